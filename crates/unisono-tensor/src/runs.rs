//! Where a shard lies in the whole tensor: its first element, and the runs that lie side by side in both.

use crate::tensor::Tensor;

impl Tensor {
    /// Index of the first element of a device's shard in the whole tensor, by dimension.
    pub fn start(&self, device: usize) -> Vec<usize> {
        (0..self.rank())
            .map(|dim| {
                let axis = self.meta().axis_of(self.device(), dim);
                unisono_runtime::ops::position(axis, device) * self.local_shape()[dim]
            })
            .collect()
    }
}

/// Calls `see(at, from, len)` for every run of values that lie side by side both in a tensor of shape `real` (from `at` on)
/// and in a shard of shape `local` (from `from` on) whose first element has the coordinates `start`. Padding, which lies
/// beyond `real`, is left out.
pub fn for_each_run(real: &[usize], local: &[usize], start: &[usize], see: &mut dyn FnMut(usize, usize, usize)) {
    let ([leading @ .., last], Some(&real_last), Some(&first)) = (local, real.last(), start.last()) else {
        see(0, 0, 1);
        return;
    };
    let len = real_last.saturating_sub(first).min(*last);
    if len == 0 {
        return;
    }
    'rows: for row in 0..leading.iter().product() {
        let (mut rest, mut at, mut stride) = (row, first, real_last);
        for dim in (0..leading.len()).rev() {
            let index = start[dim] + rest % local[dim];
            if index >= real[dim] {
                continue 'rows;
            }
            rest /= local[dim];
            at += index * stride;
            stride *= real[dim];
        }
        see(at, row * last, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(real: &[usize], local: &[usize], start: &[usize]) -> Vec<(usize, usize, usize)> {
        let mut runs = Vec::new();
        for_each_run(real, local, start, &mut |at, from, len| runs.push((at, from, len)));
        runs
    }

    #[test]
    fn runs_leave_padding_out() {
        assert_eq!(runs(&[2, 3], &[4, 5], &[0, 0]), [(0, 0, 3), (3, 5, 3)]);
        assert_eq!(runs(&[2, 1, 2], &[2, 2, 3], &[0; 3]), [(0, 0, 2), (2, 6, 2)]);
        assert_eq!(runs(&[], &[], &[]), [(0, 0, 1)]);
        assert_eq!(runs(&[0, 3], &[4, 3], &[0, 0]), []);
        assert_eq!(runs(&[5], &[4], &[0]), [(0, 0, 4)]);
        assert_eq!(runs(&[5], &[4], &[4]), [(4, 0, 1)]);
        assert_eq!(runs(&[5], &[4], &[8]), []);
    }

    #[test]
    fn runs_of_all_shards_are_the_whole() {
        let real = [3, 5];
        for local in [[3, 5], [2, 5], [3, 2], [2, 3], [1, 1]] {
            let mut seen = vec![0; 15];
            for row in (0..3).step_by(local[0]) {
                for column in (0..5).step_by(local[1]) {
                    for (at, from, len) in runs(&real, &local, &[row, column]) {
                        for i in 0..len {
                            let (r, c) = ((from + i) / local[1], (from + i) % local[1]);
                            assert_eq!(at + i, (row + r) * 5 + column + c, "{local:?}");
                            seen[at + i] += 1;
                        }
                    }
                }
            }
            assert_eq!(seen, [1; 15], "{local:?}");
        }
    }
}
