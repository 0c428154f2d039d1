//! Strided copies: transposes, slices, concatenations, broadcasts and the splitting and merging of heads.
//!
//! Only the layout changes, never a value, so there is no order to state.

use crate::out::Out;

/// Dimensions of a strided copy; shorter shapes lead with ones.
pub const MAX_DIMS: usize = 6;

/// Side of the squares in which a transpose goes, so that both sides stay in the first cache.
const SQUARE: usize = 16;

/// `dst[dst_offset + Σ iₖ dst[k]] = src[src_offset + Σ iₖ src[k]]` for all `i` with `iₖ < dims[k]`.
///
/// Strides are in elements; a source stride of 0 broadcasts. Destination elements must not be named twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Strided {
    /// Sizes, outermost first; unused leading dimensions are 1.
    pub dims: [usize; MAX_DIMS],
    /// Source strides.
    pub src: [usize; MAX_DIMS],
    /// Destination strides.
    pub dst: [usize; MAX_DIMS],
    /// Index of the first source element.
    pub src_offset: usize,
    /// Index of the first destination element.
    pub dst_offset: usize,
}

/// One dimension after neighbours that lie alike were joined.
#[derive(Clone, Copy)]
struct Dim {
    len: usize,
    src: usize,
    dst: usize,
}

impl Strided {
    /// Number of rows, i.e. of combinations of all but the last dimension: what a range of a copy counts.
    pub fn outer(&self) -> usize {
        self.dims[..MAX_DIMS - 1].iter().product()
    }

    /// Elements that one row copies.
    pub fn inner(&self) -> usize {
        self.dims[MAX_DIMS - 1]
    }

    /// Index of the last element that the strides reach, none for an empty copy.
    fn last(&self, offset: usize, strides: &[usize; MAX_DIMS]) -> Option<usize> {
        if self.dims.contains(&0) {
            return None;
        }
        Some(offset + self.dims.iter().zip(strides).map(|(d, s)| (d - 1) * s).sum::<usize>())
    }

    /// The same copy with as few dimensions as possible (at least one); the row-major order of elements stays.
    fn joined(&self) -> ([Dim; MAX_DIMS], usize) {
        let one = Dim { len: 1, src: 1, dst: 1 };
        let (mut dims, mut count) = ([one; MAX_DIMS], 0);
        for k in 0..MAX_DIMS {
            let dim = Dim {
                len: self.dims[k],
                src: self.src[k],
                dst: self.dst[k],
            };
            if dim.len == 1 {
                continue;
            }
            let outside: &mut Dim = &mut dims[if count == 0 { 0 } else { count - 1 }];
            if count > 0 && outside.src == dim.len * dim.src && outside.dst == dim.len * dim.dst {
                *outside = Dim {
                    len: outside.len * dim.len,
                    ..dim
                };
            } else {
                dims[count] = dim;
                count += 1;
            }
        }
        (dims, count.max(1))
    }
}

/// Copies the rows `outer_from..outer_to` of `plan` (see [`Strided::outer`]) from `src` to `dst`.
///
/// Ranges that do not overlap write disjoint elements, so any workers may copy them at once.
///
/// # Panics
/// If the plan reaches outside `src` or `dst`, or the range outside the plan: a bug in unisono.
pub fn copy<T: Copy>(plan: &Strided, outer_from: usize, outer_to: usize, src: &[T], dst: Out<T>) {
    let (Some(last_src), Some(last_dst)) = (
        plan.last(plan.src_offset, &plan.src),
        plan.last(plan.dst_offset, &plan.dst),
    ) else {
        return;
    };
    assert!(
        last_src < src.len() && last_dst < dst.len() && outer_to <= plan.outer(),
        "bug in unisono: copy {plan:?} of rows ..{outer_to} from {} to {} elements",
        src.len(),
        dst.len()
    );
    let (dims, count) = plan.joined();
    let (mut at, end) = (outer_from * plan.inner(), outer_to * plan.inner());
    let row = dims[count - 1];
    while at < end {
        // Where the element `at` of the row-major order lies, by its digits.
        let (mut from, mut to) = (plan.src_offset, plan.dst_offset);
        let mut rest = at;
        for dim in dims[..count].iter().rev() {
            let digit = rest % dim.len;
            rest /= dim.len;
            from += digit * dim.src;
            to += digit * dim.dst;
        }
        let first = at % row.len;
        let rows_left = match count {
            1 => 1,
            _ => dims[count - 2].len - at / row.len % dims[count - 2].len,
        };
        let rows = rows_left.min((end - at) / row.len);
        // SAFETY: both ends of every dimension were checked against the two arrays above.
        let (from, to) = unsafe { (src.as_ptr().add(from), dst.as_ptr().add(to)) };
        if first > 0 || rows == 0 {
            let len = (row.len - first).min(end - at);
            // SAFETY: `len` elements of one row of the plan, inside both arrays; `Out` keeps other writers away.
            unsafe { copy_row(from, to, Dim { len, ..row }) };
            at += len;
            continue;
        }
        let outside = match count {
            1 => Dim { len: 1, src: 0, dst: 0 },
            _ => Dim {
                len: rows,
                ..dims[count - 2]
            },
        };
        // SAFETY: `rows` whole rows of the plan, as above.
        unsafe {
            if is_transpose(outside, row) {
                transpose(from, to, outside, row);
            } else {
                (0..rows).for_each(|r| copy_row(from.add(r * outside.src), to.add(r * outside.dst), row));
            }
        }
        at += rows * row.len;
    }
}

/// Whether one side is contiguous in the inner and the other in the outer dimension.
fn is_transpose(outside: Dim, row: Dim) -> bool {
    (outside.src == 1 && row.dst == 1 && row.src > 1) || (outside.dst == 1 && row.src == 1 && row.dst > 1)
}

/// # Safety
/// The row must lie inside both arrays, which must not overlap.
unsafe fn copy_row<T: Copy>(from: *const T, to: *mut T, row: Dim) {
    // SAFETY: the caller's.
    unsafe {
        match (row.src, row.dst) {
            (1, 1) => std::ptr::copy_nonoverlapping(from, to, row.len),
            (0, 1) => std::slice::from_raw_parts_mut(to, row.len).fill(*from),
            (0, _) => {
                let value = *from;
                (0..row.len).for_each(|i| to.add(i * row.dst).write(value));
            }
            _ => (0..row.len).for_each(|i| to.add(i * row.dst).write(*from.add(i * row.src))),
        }
    }
}

/// # Safety
/// The `outside.len` rows must lie inside both arrays, which must not overlap.
unsafe fn transpose<T: Copy>(from: *const T, to: *mut T, outside: Dim, row: Dim) {
    for i in (0..outside.len).step_by(SQUARE) {
        let rows = SQUARE.min(outside.len - i);
        for j in (0..row.len).step_by(SQUARE) {
            let cols = SQUARE.min(row.len - j);
            for a in i..i + rows {
                for b in j..j + cols {
                    // SAFETY: row `a`, element `b` of the plan.
                    unsafe {
                        to.add(a * outside.dst + b * row.dst)
                            .write(*from.add(a * outside.src + b * row.src));
                    }
                }
            }
        }
    }
}
