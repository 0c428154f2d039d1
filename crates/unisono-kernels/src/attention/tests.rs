//! What only the inside can choose.

use super::*;

/// `out` and `lse` of 70 causal tokens in two groups of heads of `d`.
fn results(d: usize, bf16_instruction: bool) -> (Vec<Bf16>, Vec<u32>) {
    const TOKENS: usize = 70;
    const GROUPS: usize = 2;
    let layout = |width: usize| Layout {
        batch: 0,
        token: GROUPS * width,
        group: width,
        head: 0,
    };
    let fused: Vec<Bf16> = (0..TOKENS * GROUPS * 3 * d)
        // Some are denormal in bf16.
        .map(|i| Bf16::from_f32(((i * 7919 % 1013) as f32 - 506.0) * if i % 97 == 0 { 1e-41 } else { 3e-3 }))
        .collect();
    let mut out = vec![Bf16::default(); TOKENS * GROUPS * d];
    let mut lse = vec![0.0; TOKENS * GROUPS];
    let attention = Attention {
        inputs: Inputs {
            shape: Shape {
                batch: 1,
                groups: GROUPS,
                heads_per_group: 1,
                head_dim: d,
                queries: TOKENS,
                keys: TOKENS,
                causal: true,
                scale: 1.0,
            },
            q: Floats::from(&fused[..]),
            q_layout: layout(3 * d),
            k: Floats::from(&fused[d..]),
            k_layout: layout(3 * d),
            v: Floats::from(&fused[2 * d..]),
            v_layout: layout(3 * d),
            first_query: None,
            mask: None,
            mask_batch: 0,
            out_layout: layout(d),
        },
        out: Out::new(&mut out).into(),
        lse: Some(Out::new(&mut lse)),
    };
    let mut scratch = Scratch::new(Isa::Avx512);
    for tile in 0..attention.tiles() {
        attention.run_with(tile, &mut scratch, bf16_instruction);
    }
    (out, lse.iter().map(|x| x.to_bits()).collect())
}

/// AVX-512 without BF16 emulates the instruction, on CPUs that have it nowhere else than here.
#[test]
fn pairs_are_emulated_on_avx512() {
    if !has_bf16_instruction() {
        return;
    }
    for d in [1, 7, 32, 64, 65, 128, 130] {
        let (found, emulated) = (results(d, true), results(d, false));
        assert!(found.1.iter().any(|x| *x != 0));
        assert!(found == emulated, "heads of {d}");
    }
}
