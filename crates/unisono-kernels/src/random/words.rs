//! Philox over lanes: 64 words at a time, in the order of the elements.

use crate::philox::Stream;
use crate::simd::{LANES, Simd};

/// Words of one turn: 16 blocks of four.
const TURN: usize = 4 * LANES;

/// Where block `b` of a turn is worked out: in lane `4 (b mod 4) + b / 4`, so that transposing each 4 × 4 block of lanes leaves
/// the words in order. This is the inverse: the block of each lane.
const BLOCKS: [u32; LANES] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];

/// Calls `f(i, count, words)` for the elements `first..first + n` in pieces of at most 16: the first `count` lanes of `words` are
/// the words of the elements `first + i..first + i + count`.
#[inline(always)]
pub(crate) fn each_word<S: Simd>(s: S, stream: &Stream, first: u64, n: usize, mut f: impl FnMut(usize, usize, S::U)) {
    // Up to the first whole block.
    let head = ((4 - first % 4) % 4).min(n as u64) as usize;
    if head > 0 {
        let words = stream.block(first / 4);
        let mut lanes = [0; LANES];
        for (i, lane) in lanes[..head].iter_mut().enumerate() {
            *lane = words[(first % 4) as usize + i];
        }
        f(0, head, s.from_array_u(lanes));
    }
    let mut i = head;
    while i + TURN <= n {
        let words = turn(s, stream, (first + i as u64) / 4);
        for (k, words) in words.iter().enumerate() {
            f(i + k * LANES, LANES, *words);
        }
        i += TURN;
    }
    if i < n {
        for words in &turn(s, stream, (first + i as u64) / 4) {
            let count = LANES.min(n - i);
            if count > 0 {
                f(i, count, *words);
            }
            i += count;
        }
    }
}

/// The 64 words of the blocks `block..block + 16`: [`philox4x32`](crate::philox::philox4x32) of each.
///
/// A 64-bit product needs two lanes, so the even and the odd lanes take the rounds apart; what stands in the odd lanes then is
/// never looked at.
#[inline(always)]
fn turn<S: Simd>(s: S, stream: &Stream, block: u64) -> [S::U; 4] {
    let low = s.splat_u(block as u32);
    let high = s.splat_u((block >> 32) as u32);
    let c0 = s.add_u(low, s.from_array_u(BLOCKS));
    // A sum that wrapped is smaller than its parts.
    let c1 = s.select_u(s.ge_u(c0, low), high, s.add_u(high, s.splat_u(1)));
    let (c2, c3) = (s.splat_u(stream.site), s.splat_u(stream.step));
    // One after the other: the state of both at once would not fit the registers of AVX2.
    let even = rounds(s, [c0, c1, c2, c3], stream.seed);
    let odd = rounds(s, [s.odd_to_even_u(c0), s.odd_to_even_u(c1), c2, c3], stream.seed);
    s.transpose4_u([
        s.weave_even_u(even[0], odd[0]),
        s.weave_even_u(even[1], odd[1]),
        s.weave_even_u(even[2], odd[2]),
        s.weave_even_u(even[3], odd[3]),
    ])
}

/// The ten rounds of Philox in the even lanes.
#[inline(always)]
fn rounds<S: Simd>(s: S, mut counter: [S::U; 4], seed: u64) -> [S::U; 4] {
    let mut key = [s.splat_u(seed as u32), s.splat_u((seed >> 32) as u32)];
    for _ in 0..10 {
        counter = round(s, counter, key);
        key = [
            s.add_u(key[0], s.splat_u(0x9E37_79B9)),
            s.add_u(key[1], s.splat_u(0xBB67_AE85)),
        ];
    }
    counter
}

/// One round.
#[inline(always)]
fn round<S: Simd>(s: S, c: [S::U; 4], key: [S::U; 2]) -> [S::U; 4] {
    let p0 = s.mul_even_u(c[0], s.splat_u(0xD251_1F53));
    let p1 = s.mul_even_u(c[2], s.splat_u(0xCD9E_8D57));
    [
        s.xor_u(s.xor_u(s.odd_to_even_u(p1), c[1]), key[0]),
        p1,
        s.xor_u(s.xor_u(s.odd_to_even_u(p0), c[3]), key[1]),
        p0,
    ]
}
