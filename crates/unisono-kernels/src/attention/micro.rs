//! The one inner product of attention: a few rows of broadcasts times rows of vectors, in registers.

use crate::simd::{LANES, Portable, Simd};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

/// What becomes of the sums.
#[derive(Clone, Copy)]
pub(super) enum Sink {
    /// `c = sum`.
    Store,
    /// `c = c + sum`.
    Add,
    /// `c = c · factor[row] + sum`, fused.
    Rescale(*const f32),
}

/// `sum[r][n] = Σₜ a[r · a_row + t · a_step] · b[t · b_step + n]`, by fused multiply-add from +0, `t` ascending over the
/// steps that row `r` sees; then `sink` to `c[r · c_row + n]`.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub a: *const f32,
    pub a_row: usize,
    pub a_step: usize,
    pub b: *const f32,
    pub b_step: usize,
    pub steps: usize,
    /// A word of bits a row, bit `t` for step `t < 64`; null if each row sees all steps.
    pub seen: *const u64,
    pub c: *mut f32,
    pub c_row: usize,
    pub sink: Sink,
    /// Memory that will be read soon: step `t` asks for the line at `ahead[t · ahead_step + n]`; null for nothing.
    pub ahead: *const f32,
    pub ahead_step: usize,
}

/// Register tiles compiled for an instruction set.
pub(super) trait Micro: Simd {
    /// Most rows of a tile.
    const ROWS: usize;
    /// Vectors of accumulators, of all rows together.
    const ACCUMULATORS: usize;

    /// A tile of `R` rows and `V` vectors.
    ///
    /// # Safety
    /// The pointers of `product` reach as far as its fields say; `b` and `c` are read and written in whole vectors.
    unsafe fn tile<const R: usize, const V: usize>(product: &Product);

    /// Asks for the cache line of `p`, which need not be valid, into the second level.
    #[inline(always)]
    fn prefetch(_: *const f32) {}
}

#[cfg(target_arch = "x86_64")]
impl Micro for crate::simd::Avx512 {
    const ROWS: usize = 8;
    const ACCUMULATORS: usize = 16;

    #[inline(always)]
    unsafe fn tile<const R: usize, const V: usize>(product: &Product) {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        unsafe fn compiled<const R: usize, const V: usize>(product: &Product) {
            // SAFETY: this function runs only where the features are; the pointers are the caller's promise.
            unsafe { body::<_, R, V>(crate::simd::Avx512::new(), product) }
        }
        // SAFETY: only code that holds a token calls this.
        unsafe { compiled::<R, V>(product) }
    }

    #[inline(always)]
    fn prefetch(p: *const f32) {
        // SAFETY: a prefetch touches nothing that the program could see, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }
}

#[cfg(target_arch = "x86_64")]
impl Micro for crate::simd::Avx2 {
    const ROWS: usize = 4;
    const ACCUMULATORS: usize = 4;

    #[inline(always)]
    unsafe fn tile<const R: usize, const V: usize>(product: &Product) {
        #[target_feature(enable = "avx2,fma")]
        unsafe fn compiled<const R: usize, const V: usize>(product: &Product) {
            // SAFETY: this function runs only where the features are; the pointers are the caller's promise.
            unsafe { body::<_, R, V>(crate::simd::Avx2::new(), product) }
        }
        // SAFETY: only code that holds a token calls this.
        unsafe { compiled::<R, V>(product) }
    }

    #[inline(always)]
    fn prefetch(p: *const f32) {
        // SAFETY: a prefetch touches nothing that the program could see, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }
}

impl Micro for Portable {
    const ROWS: usize = 4;
    const ACCUMULATORS: usize = 4;

    #[inline(never)]
    unsafe fn tile<const R: usize, const V: usize>(product: &Product) {
        // SAFETY: the caller's promise.
        unsafe { body::<_, R, V>(Portable::new(), product) }
    }
}

/// Runs `product` for `rows` rows of `vectors` vectors, tile by tile. Sums do not depend on the tiles.
///
/// # Safety
/// As for [`Micro::tile`].
#[inline(always)]
pub(super) unsafe fn multiply<S: Micro>(_: S, rows: usize, vectors: usize, product: &Product) {
    let mut row = 0;
    while row < rows {
        let height = (rows - row).min(S::ROWS);
        let widest = (S::ACCUMULATORS / height).min(4);
        let mut vector = 0;
        while vector < vectors {
            let width = match (vectors - vector).min(widest) {
                3 if height > 4 => 2,
                width => width,
            };
            let sink = match product.sink {
                // SAFETY: a factor a row.
                Sink::Rescale(factor) => Sink::Rescale(unsafe { factor.add(row) }),
                other => other,
            };
            let seen = match product.seen.is_null() {
                true => product.seen,
                // SAFETY: a word a row.
                false => unsafe { product.seen.add(row) },
            };
            // SAFETY: rows and vectors of the product; the caller's promise.
            unsafe {
                let part = Product {
                    a: product.a.add(row * product.a_row),
                    b: product.b.add(vector * LANES),
                    seen,
                    c: product.c.add(row * product.c_row + vector * LANES),
                    sink,
                    // Each line once, with the first rows.
                    ahead: match product.ahead.is_null() || row > 0 {
                        true => std::ptr::null(),
                        false => product.ahead.wrapping_add(vector * LANES),
                    },
                    ..*product
                };
                by_size::<S>(height, width, &part);
            }
            vector += width;
        }
        row += height;
    }
}

/// # Safety
/// As for [`Micro::tile`].
#[inline(always)]
unsafe fn by_size<S: Micro>(rows: usize, vectors: usize, product: &Product) {
    // SAFETY: the caller's promise. Tiles that an instruction set has no registers for are never asked for.
    unsafe {
        match (rows, vectors) {
            (1, 1) => S::tile::<1, 1>(product),
            (1, 2) => S::tile::<1, 2>(product),
            (1, 3) => S::tile::<1, 3>(product),
            (1, 4) => S::tile::<1, 4>(product),
            (2, 1) => S::tile::<2, 1>(product),
            (2, 2) => S::tile::<2, 2>(product),
            (3, 1) => S::tile::<3, 1>(product),
            (4, 1) => S::tile::<4, 1>(product),
            _ if S::ROWS < 8 => unreachable!("bug in unisono: a tile of {rows} × {vectors}"),
            (2, 3) => S::tile::<2, 3>(product),
            (2, 4) => S::tile::<2, 4>(product),
            (3, 2) => S::tile::<3, 2>(product),
            (3, 3) => S::tile::<3, 3>(product),
            (3, 4) => S::tile::<3, 4>(product),
            (4, 2) => S::tile::<4, 2>(product),
            (4, 3) => S::tile::<4, 3>(product),
            (4, 4) => S::tile::<4, 4>(product),
            (5, 1) => S::tile::<5, 1>(product),
            (5, 2) => S::tile::<5, 2>(product),
            (6, 1) => S::tile::<6, 1>(product),
            (6, 2) => S::tile::<6, 2>(product),
            (7, 1) => S::tile::<7, 1>(product),
            (7, 2) => S::tile::<7, 2>(product),
            (8, 1) => S::tile::<8, 1>(product),
            (8, 2) => S::tile::<8, 2>(product),
            _ => unreachable!("bug in unisono: a tile of {rows} × {vectors}"),
        }
    }
}

/// # Safety
/// As for [`Micro::tile`].
#[inline(always)]
unsafe fn body<S: Micro, const R: usize, const V: usize>(s: S, product: &Product) {
    let p = *product;
    let mut sums = [[s.zero(); V]; R];
    // SAFETY: the caller's promise, here and below.
    unsafe {
        if p.seen.is_null() {
            every(s, &p, 0, p.steps, &mut sums);
        } else {
            let seen: [u64; R] = std::array::from_fn(|r| *p.seen.add(r));
            let any = seen.iter().fold(0, |bits, row| bits | row);
            let all = seen.iter().fold(u64::MAX, |bits, row| bits & row);
            if any != 0 {
                let (first, end) = (any.trailing_zeros() as usize, 64 - any.leading_zeros() as usize);
                // The first run of steps that all rows see goes without looking at bits.
                let run = if all == 0 { end } else { all.trailing_zeros() as usize };
                let run_end = if all == 0 {
                    end
                } else {
                    run + (all >> run).trailing_ones() as usize
                };
                some(s, &p, first, run, &seen, &mut sums);
                every(s, &p, run, run_end, &mut sums);
                some(s, &p, run_end, end, &seen, &mut sums);
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                let c = p.c.add(r * p.c_row + v * LANES);
                let value = match p.sink {
                    Sink::Store => *sum,
                    Sink::Add => s.add(s.load(c), *sum),
                    Sink::Rescale(factor) => s.fma(s.load(c), s.splat(*factor.add(r)), *sum),
                };
                s.store(c, value);
            }
        }
    }
}

/// The steps `from..to`, which all rows see.
///
/// # Safety
/// As for [`Micro::tile`].
#[inline(always)]
unsafe fn every<S: Micro, const R: usize, const V: usize>(
    s: S,
    p: &Product,
    from: usize,
    to: usize,
    sums: &mut [[S::F; V]; R],
) {
    let mut local = *sums;
    for t in from..to {
        if !p.ahead.is_null() {
            (0..V).for_each(|v| S::prefetch(p.ahead.wrapping_add(t * p.ahead_step + v * LANES)));
        }
        // SAFETY: step `t` of the product.
        unsafe {
            let b: [S::F; V] = std::array::from_fn(|v| s.load(p.b.add(t * p.b_step + v * LANES)));
            for (r, sums) in local.iter_mut().enumerate() {
                let a = s.splat(*p.a.add(r * p.a_row + t * p.a_step));
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum = s.fma(a, b, *sum);
                }
            }
        }
    }
    *sums = local;
}

/// The steps `from..to`, each for the rows that see it.
///
/// # Safety
/// As for [`Micro::tile`].
#[inline(always)]
unsafe fn some<S: Simd, const R: usize, const V: usize>(
    s: S,
    p: &Product,
    from: usize,
    to: usize,
    seen: &[u64; R],
    sums: &mut [[S::F; V]; R],
) {
    for t in from..to {
        for (r, sums) in sums.iter_mut().enumerate() {
            if seen[r] >> t & 1 == 1 {
                // SAFETY: step `t` of the product.
                unsafe {
                    let a = s.splat(*p.a.add(r * p.a_row + t * p.a_step));
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = s.fma(a, s.load(p.b.add(t * p.b_step + v * LANES)), *sum);
                    }
                }
            }
        }
    }
}
