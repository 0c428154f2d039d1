//! From the order of a fused attention projection here to the order elsewhere, and back.

use unisono_nn::parameter::Foreign;
use unisono_runtime::stored::Run;

/// A permutation of blocks within each row of a tensor.
pub(crate) struct Permutation {
    /// Elements of a block.
    block: usize,
    /// For each block here, its place there.
    places: Vec<usize>,
}

impl Permutation {
    /// The permutation between a parameter's layout here and elsewhere, if they differ.
    ///
    /// Here the last dimension is (group, [q…, k, v], d); there it is the q of all heads, the k of all groups, the v of all
    /// groups. With `h` heads a group: block `g·(h + 2) + j` here is there block `g·h + j` for `j < h`, `G·h + g` for the key
    /// and `G·h + G + g` for the value.
    pub fn of(foreign: Foreign) -> Option<Permutation> {
        match foreign {
            Foreign::Same => None,
            Foreign::FusedQkv {
                groups,
                heads_per_group,
                head_dim,
            } => {
                let place = |group: usize, j: usize| match j {
                    j if j < heads_per_group => group * heads_per_group + j,
                    j => groups * heads_per_group + (j - heads_per_group) * groups + group,
                };
                let places = (0..groups)
                    .flat_map(|group| (0..heads_per_group + 2).map(move |j| place(group, j)))
                    .collect();
                Some(Permutation {
                    block: head_dim,
                    places,
                })
            }
        }
    }

    /// Values in the order of others.
    pub fn exported(&self, ours: &[f32]) -> Vec<f32> {
        let mut theirs = vec![0.0; ours.len()];
        self.each_block(ours.len(), |here, there| {
            theirs[there..there + self.block].copy_from_slice(&ours[here..here + self.block]);
        });
        theirs
    }

    /// Which elements of a row there go where in the row here.
    pub fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (here, there) in self.places.iter().enumerate() {
            let (to, from) = (here * self.block, there * self.block);
            match runs.last_mut() {
                Some(last) if last.from + last.len == from => last.len += self.block,
                _ => runs.push(Run {
                    to,
                    from,
                    len: self.block,
                }),
            }
        }
        runs
    }

    fn each_block(&self, len: usize, mut see: impl FnMut(usize, usize)) {
        let width = self.places.len() * self.block;
        for row in (0..len).step_by(width.max(1)) {
            for (here, there) in self.places.iter().enumerate() {
                see(row + here * self.block, row + there * self.block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two groups of two heads of one element each, two rows.
    #[test]
    fn queries_keys_and_values_of_all_groups_lie_together_elsewhere() {
        let permutation = Permutation::of(Foreign::FusedQkv {
            groups: 2,
            heads_per_group: 2,
            head_dim: 1,
        })
        .expect("the layouts differ");
        // q0 q1 k0 v0 | q2 q3 k1 v1
        let ours = [0.0, 1.0, 10.0, 20.0, 2.0, 3.0, 11.0, 21.0];
        let theirs = [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 20.0, 21.0];
        assert_eq!(permutation.exported(&[ours, ours].concat()), [theirs, theirs].concat());
        let mut back = [f32::NAN; 8];
        for run in permutation.runs() {
            back[run.to..run.to + run.len].copy_from_slice(&theirs[run.from..run.from + run.len]);
        }
        assert_eq!(back, ours);
        assert!(Permutation::of(Foreign::Same).is_none());
    }
}
