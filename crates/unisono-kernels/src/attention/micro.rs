//! The one inner product of attention: a few rows of broadcasts times rows of vectors, in registers.

use super::ahead::{Ahead, Ask, LINE};
use super::seen::low_bits;
#[cfg(target_arch = "x86_64")]
use crate::gemm::arithmetic::Instruction;
use crate::gemm::arithmetic::{Arithmetic, Emulated};
use crate::simd::{LANES, Portable, Simd};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
use std::marker::PhantomData;

/// What one step of a product multiplies and adds: words of 32 bits of both factors.
pub(super) trait Step<S: Simd> {
    /// Whether [`Step::add`] is an instruction of AVX512-BF16, which the calling function must then have.
    const BF16_INSTRUCTION: bool = false;

    /// `a · b + sum`.
    fn add(s: S, a: S::F, b: S::F, sum: S::F) -> S::F;

    /// What a word of [`Product::seen`] says of the steps.
    #[inline(always)]
    fn steps_of(word: u64) -> Seen {
        Seen {
            first: word,
            second: word,
        }
    }

    /// `b` with +0 for what a row does not see of it: of a pair the first or the second.
    #[inline(always)]
    fn masked(_: S, b: S::F, _first: bool, _second: bool) -> S::F {
        b
    }
}

/// Which steps a row sees, bit `t` for step `t`: of a pair the first and the second, of another step the same twice.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    first: u64,
    second: u64,
}

/// f32, a fused multiply-add.
pub(super) struct Single;

impl<S: Simd> Step<S> for Single {
    #[inline(always)]
    fn add(s: S, a: S::F, b: S::F, sum: S::F) -> S::F {
        s.fma(a, b, sum)
    }
}

/// A pair of bf16 in each word of both factors, as in products.
pub(super) struct Pair<A>(PhantomData<A>);

impl<S: Simd, A: Arithmetic<S>> Step<S> for Pair<A> {
    const BF16_INSTRUCTION: bool = A::BF16_INSTRUCTION;

    #[inline(always)]
    fn add(s: S, a: S::F, b: S::F, sum: S::F) -> S::F {
        A::dot(s, a, b, sum)
    }

    #[inline(always)]
    fn steps_of(word: u64) -> Seen {
        Seen {
            first: word & low_bits(32),
            second: word >> 32,
        }
    }

    #[inline(always)]
    fn masked(s: S, b: S::F, first: bool, second: bool) -> S::F {
        let halves = if first { 0xffff } else { 0 } | if second { 0xffff_0000 } else { 0 };
        s.from_bits(s.and_u(s.bits(b), s.splat_u(halves)))
    }
}

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

/// `sum[r][n] = Σₜ a[r · a_row + t · a_step] · b[t · b_step + n]`, by a [`Step`] each from +0, `t` ascending over the
/// steps that row `r` sees; then `sink` to `c[r · c_row + n]`.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub a: *const f32,
    pub a_row: usize,
    pub a_step: usize,
    pub b: *const f32,
    pub b_step: usize,
    pub steps: usize,
    /// A word of bits a row, null if each row sees all steps. [`Single`]: bit `t` for step `t < 64`; [`Pair`]: bits `t` and
    /// `32 + t` for the two of step `t < 32`, as [`seen::parted`](super::seen::parted) has them; `a` is +0 for what is not seen
    /// of a pair.
    pub seen: *const u64,
    pub c: *mut f32,
    pub c_row: usize,
    pub sink: Sink,
}

/// Register tiles compiled for an instruction set.
pub(super) trait Micro: Simd {
    /// Most rows of a tile.
    const ROWS: usize;
    /// Vectors of accumulators, of all rows together.
    const ACCUMULATORS: usize;
    /// Pairs of bf16 as fast as they can be, where [`has_bf16_instruction`](crate::gemm::has_bf16_instruction).
    type Pairs: Arithmetic<Self>;

    /// A tile of `R` rows and `V` vectors; `ask` is asked for on the way.
    ///
    /// # Safety
    /// The pointers of `product` reach as far as its fields say; `b` and `c` are read and written in whole vectors.
    unsafe fn tile<T: Step<Self>, const R: usize, const V: usize>(product: &Product, ask: &Ask);

    /// Asks for the cache line of `p`, which need not be valid, into the first or the second level.
    #[inline(always)]
    fn prefetch(_: *const u8, _first: bool) {}
}

#[cfg(target_arch = "x86_64")]
impl Micro for crate::simd::Avx512 {
    const ROWS: usize = 8;
    const ACCUMULATORS: usize = 16;
    type Pairs = Instruction;

    #[inline(always)]
    unsafe fn tile<T: Step<Self>, const R: usize, const V: usize>(product: &Product, ask: &Ask) {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        unsafe fn compiled<T: Step<crate::simd::Avx512>, const R: usize, const V: usize>(product: &Product, ask: &Ask) {
            // SAFETY: this function runs only where the features are; the pointers are the caller's promise.
            unsafe { body::<_, T, R, V>(crate::simd::Avx512::new(), product, ask) }
        }
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
        unsafe fn with_bf16<T: Step<crate::simd::Avx512>, const R: usize, const V: usize>(
            product: &Product,
            ask: &Ask,
        ) {
            // SAFETY: as above.
            unsafe { body::<_, T, R, V>(crate::simd::Avx512::new(), product, ask) }
        }
        // SAFETY: only code that holds a token calls this; whoever chose the step made sure of the instruction.
        unsafe {
            if T::BF16_INSTRUCTION {
                with_bf16::<T, R, V>(product, ask)
            } else {
                compiled::<T, R, V>(product, ask)
            }
        }
    }

    #[inline(always)]
    fn prefetch(p: *const u8, first: bool) {
        // SAFETY: a prefetch touches nothing that the program could see, whatever the address.
        unsafe {
            match first {
                true => _mm_prefetch::<_MM_HINT_T0>(p.cast()),
                false => _mm_prefetch::<_MM_HINT_T1>(p.cast()),
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Micro for crate::simd::Avx2 {
    const ROWS: usize = 4;
    const ACCUMULATORS: usize = 4;
    type Pairs = Emulated;

    #[inline(always)]
    unsafe fn tile<T: Step<Self>, const R: usize, const V: usize>(product: &Product, ask: &Ask) {
        #[target_feature(enable = "avx2,fma")]
        unsafe fn compiled<T: Step<crate::simd::Avx2>, const R: usize, const V: usize>(product: &Product, ask: &Ask) {
            // SAFETY: this function runs only where the features are; the pointers are the caller's promise.
            unsafe { body::<_, T, R, V>(crate::simd::Avx2::new(), product, ask) }
        }
        // SAFETY: only code that holds a token calls this.
        unsafe { compiled::<T, R, V>(product, ask) }
    }

    #[inline(always)]
    fn prefetch(p: *const u8, first: bool) {
        // SAFETY: a prefetch touches nothing that the program could see, whatever the address.
        unsafe {
            match first {
                true => _mm_prefetch::<_MM_HINT_T0>(p.cast()),
                false => _mm_prefetch::<_MM_HINT_T1>(p.cast()),
            }
        }
    }
}

impl Micro for Portable {
    const ROWS: usize = 4;
    const ACCUMULATORS: usize = 4;
    type Pairs = Emulated;

    #[inline(never)]
    unsafe fn tile<T: Step<Self>, const R: usize, const V: usize>(product: &Product, ask: &Ask) {
        // SAFETY: the caller's promise.
        unsafe { body::<_, T, R, V>(Portable::new(), product, ask) }
    }
}

/// Runs `product` for `rows` rows of `vectors` vectors, tile by tile. Sums do not depend on the tiles.
///
/// # Safety
/// As for [`Micro::tile`].
#[inline(always)]
pub(super) unsafe fn multiply<S: Micro, T: Step<S>>(
    _: S,
    rows: usize,
    vectors: usize,
    product: &Product,
    ahead: &mut Ahead,
) {
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
                    ..*product
                };
                by_size::<S, T>(height, width, &part, &ahead.next());
            }
            vector += width;
        }
        row += height;
    }
}

/// # Safety
/// As for [`Micro::tile`].
#[inline(always)]
unsafe fn by_size<S: Micro, T: Step<S>>(rows: usize, vectors: usize, product: &Product, ask: &Ask) {
    // SAFETY: the caller's promise. Tiles that an instruction set has no registers for are never asked for.
    unsafe {
        match (rows, vectors) {
            (1, 1) => S::tile::<T, 1, 1>(product, ask),
            (1, 2) => S::tile::<T, 1, 2>(product, ask),
            (1, 3) => S::tile::<T, 1, 3>(product, ask),
            (1, 4) => S::tile::<T, 1, 4>(product, ask),
            (2, 1) => S::tile::<T, 2, 1>(product, ask),
            (2, 2) => S::tile::<T, 2, 2>(product, ask),
            (3, 1) => S::tile::<T, 3, 1>(product, ask),
            (4, 1) => S::tile::<T, 4, 1>(product, ask),
            _ if S::ROWS < 8 => unreachable!("bug in unisono: a tile of {rows} × {vectors}"),
            (2, 3) => S::tile::<T, 2, 3>(product, ask),
            (2, 4) => S::tile::<T, 2, 4>(product, ask),
            (3, 2) => S::tile::<T, 3, 2>(product, ask),
            (3, 3) => S::tile::<T, 3, 3>(product, ask),
            (3, 4) => S::tile::<T, 3, 4>(product, ask),
            (4, 2) => S::tile::<T, 4, 2>(product, ask),
            (4, 3) => S::tile::<T, 4, 3>(product, ask),
            (4, 4) => S::tile::<T, 4, 4>(product, ask),
            (5, 1) => S::tile::<T, 5, 1>(product, ask),
            (5, 2) => S::tile::<T, 5, 2>(product, ask),
            (6, 1) => S::tile::<T, 6, 1>(product, ask),
            (6, 2) => S::tile::<T, 6, 2>(product, ask),
            (7, 1) => S::tile::<T, 7, 1>(product, ask),
            (7, 2) => S::tile::<T, 7, 2>(product, ask),
            (8, 1) => S::tile::<T, 8, 1>(product, ask),
            (8, 2) => S::tile::<T, 8, 2>(product, ask),
            _ => unreachable!("bug in unisono: a tile of {rows} × {vectors}"),
        }
    }
}

/// # Safety
/// As for [`Micro::tile`].
#[inline(always)]
unsafe fn body<S: Micro, T: Step<S>, const R: usize, const V: usize>(s: S, product: &Product, ask: &Ask) {
    let p = *product;
    let mut sums = [[s.zero(); V]; R];
    // SAFETY: the caller's promise, here and below.
    unsafe {
        if p.seen.is_null() {
            every::<S, T, R, V>(s, &p, 0, p.steps, ask, &mut sums);
        } else {
            let seen: [Seen; R] = std::array::from_fn(|r| T::steps_of(*p.seen.add(r)));
            let all = seen.iter().fold(u64::MAX, |bits, row| bits & row.first & row.second);
            // The first run of steps that all rows see goes without looking at bits.
            let run = all.trailing_zeros();
            let end = run + all.checked_shr(run).unwrap_or(0).trailing_ones();
            let before = low_bits(run as usize);
            some::<S, T, R, V>(s, &p, before, &seen, &mut sums);
            every::<S, T, R, V>(s, &p, run as usize, end as usize, ask, &mut sums);
            some::<S, T, R, V>(s, &p, !low_bits(end as usize), &seen, &mut sums);
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

/// The steps `from..to`, which all rows see; on the way they ask for rows.
///
/// # Safety
/// As for [`Micro::tile`].
#[inline(always)]
unsafe fn every<S: Micro, T: Step<S>, const R: usize, const V: usize>(
    s: S,
    p: &Product,
    from: usize,
    to: usize,
    ask: &Ask,
    sums: &mut [[S::F; V]; R],
) {
    let mut local = *sums;
    let rows = ask.rows.min(to - from);
    // At most a row a step, spread over the steps: a burst would keep the product's own loads waiting. Rows beyond that are left to
    // the CPU: to ask for two at a step made decoding in bf16 some 5 % slower.
    let spacing = (to - from).checked_div(rows).unwrap_or(0);
    let mut t = from;
    // SAFETY: steps of the product.
    unsafe {
        for row in 0..rows {
            for line in 0..ask.lines {
                S::prefetch(ask.from.wrapping_add(row * ask.stride + line * LINE), ask.first_level);
            }
            for _ in 0..spacing {
                step::<S, T, R, V>(s, p, t, &mut local);
                t += 1;
            }
        }
        for t in t..to {
            step::<S, T, R, V>(s, p, t, &mut local);
        }
    }
    *sums = local;
}

/// Step `t` for all rows.
///
/// # Safety
/// As for [`Micro::tile`].
#[inline(always)]
unsafe fn step<S: Micro, T: Step<S>, const R: usize, const V: usize>(
    s: S,
    p: &Product,
    t: usize,
    sums: &mut [[S::F; V]; R],
) {
    // SAFETY: step `t` of the product.
    unsafe {
        let b: [S::F; V] = std::array::from_fn(|v| s.load(p.b.add(t * p.b_step + v * LANES)));
        for (r, sums) in sums.iter_mut().enumerate() {
            let a = s.splat(*p.a.add(r * p.a_row + t * p.a_step));
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum = T::add(s, a, b, *sum);
            }
        }
    }
}

/// The steps of `wanted`, for each row those that it sees: row by row, so that the work is that of the bits that are set.
///
/// # Safety
/// As for [`Micro::tile`].
#[inline(always)]
unsafe fn some<S: Micro, T: Step<S>, const R: usize, const V: usize>(
    s: S,
    p: &Product,
    wanted: u64,
    seen: &[Seen; R],
    sums: &mut [[S::F; V]; R],
) {
    for (r, sums) in sums.iter_mut().enumerate() {
        let Seen { first, second } = seen[r];
        let mut left = (first | second) & wanted;
        let mut local = *sums;
        while left != 0 {
            let t = left.trailing_zeros() as usize;
            left &= left - 1;
            // SAFETY: step `t` of the product.
            unsafe {
                let a = s.splat(*p.a.add(r * p.a_row + t * p.a_step));
                let (first, second) = (first >> t & 1 == 1, second >> t & 1 == 1);
                for (v, sum) in local.iter_mut().enumerate() {
                    let b = s.load(p.b.add(t * p.b_step + v * LANES));
                    *sum = T::add(s, a, T::masked(s, b, first, second), *sum);
                }
            }
        }
        *sums = local;
    }
}
