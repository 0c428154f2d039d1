//! The operations of Llama-family models on meshes against one device, bit for bit, and against plain arithmetic.

mod common;

use common::{Draw, MESHES, open, same_bits, transposed, values};
use unisono_tensor::create::{Init, ParameterDim, ParameterSpec};
use unisono_tensor::ops::attention::{AttentionSpec, KvCache, Places};
use unisono_tensor::ops::matmul::Activation;
use unisono_tensor::{Dtype, Kind, MeshDevice, Result, Rows, Tensor};

const BATCH: usize = 4;
const TOKENS: usize = 5;
const IN: usize = 36;
/// Twelve heads of four elements.
const OUT: usize = 48;
const HEAD: usize = 4;
/// What every axis of the meshes divides.
const UNITS: usize = 12;
const VOCABULARY: usize = 48;

/// What a computation gives: its results and gradients, by name.
type Outcome = Vec<(&'static str, Vec<f32>)>;

/// A parameter of shape `shape`, dimension `cut` of which is in [`UNITS`] units along `tp`; with a copy where products in bf16
/// need one.
fn weight(device: &MeshDevice, seed: u64, shape: &[usize], cut: Option<usize>, dtype: Dtype) -> Result<Tensor> {
    let t = device.parameter(&format!("parameter {seed}"), &spec(shape, cut))?;
    if shape.len() > 1 {
        t.keep_copy(dtype)?;
    }
    t.upload_global(&values(seed, shape.iter().product()))?;
    Ok(t)
}

fn spec(shape: &[usize], cut: Option<usize>) -> ParameterSpec {
    let dims = shape.iter().enumerate().map(|(dim, len)| ParameterDim {
        len: *len,
        units: if cut == Some(dim) { UNITS } else { 1 },
        axis: (cut == Some(dim)).then_some("tp"),
    });
    ParameterSpec {
        dims: dims.collect(),
        init: Init::Zeros,
    }
}

fn input(device: &MeshDevice) -> Result<Tensor> {
    device
        .batch(&values(1, BATCH * TOKENS * IN), &[BATCH, TOKENS, IN])?
        .requires_grad()
}

/// The gradient that reaches a result, placed like it.
fn seed(y: &Tensor) -> Result<Tensor> {
    let seed = y.detach().to_dtype(Dtype::F32)?.zeros_like(Kind::Activation)?;
    seed.upload_global(&values(9, y.shape().iter().product()))?;
    Ok(seed)
}

fn grad(t: &Tensor) -> Result<Vec<f32>> {
    t.grad()?.expect("the leaf takes part").to_vec()
}

/// Runs `body` in both kinds on one device and on every mesh and compares the bits of all that it gives.
fn equal_everywhere(body: impl Fn(&MeshDevice, Dtype) -> Result<Outcome>) {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let reference = body(&open(&[("dp", 1)]), dtype).expect("one device computes");
        assert!(reference.iter().all(|(_, v)| v.iter().any(|x| *x != 0.0)));
        for axes in MESHES {
            let found = body(&open(axes), dtype).unwrap_or_else(|error| panic!("{axes:?}: {error}"));
            for ((name, expected), (_, found)) in reference.iter().zip(&found) {
                same_bits(&format!("{axes:?}, {}: {name}", dtype.name()), found, expected);
            }
        }
    }
}

#[test]
fn column_parallel_with_and_without_bias() {
    for bias in [false, true] {
        equal_everywhere(|device, dtype| {
            let x = input(device)?;
            let w = weight(device, 2, &[OUT, IN], Some(0), dtype)?;
            let b = weight(device, 3, &[OUT], Some(0), dtype)?;
            let y = x
                .to_dtype(dtype)?
                .broadcast("tp")?
                .linear_transposed(&w, bias.then_some(&b))?;
            assert_eq!(y.dtype(), dtype);
            y.backward_with(&seed(&y)?)?;
            let mut outcome = vec![("y", y.to_vec()?), ("dx", grad(&x)?), ("dw", grad(&w)?)];
            if bias {
                outcome.push(("db", grad(&b)?));
            }
            Ok(outcome)
        });
    }
}

#[test]
fn row_parallel() {
    equal_everywhere(|device, dtype| {
        let x = input(device)?;
        let w = weight(device, 2, &[OUT, IN], Some(1), dtype)?;
        let cut = x.scatter("tp", 2)?.to_dtype(dtype)?;
        let y = cut.linear_transposed(&w, None)?.all_reduce("tp")?;
        assert_eq!(y.dtype(), dtype);
        y.backward_with(&seed(&y)?)?;
        Ok(vec![("y", y.to_vec()?), ("dx", grad(&x)?), ("dw", grad(&w)?)])
    });
}

/// The order of a sum does not depend on how the weight lies.
#[test]
fn a_weight_and_its_transpose_give_the_same_bits() -> Result<()> {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let device = open(&[]);
        let (x, other) = (input(&device)?, input(&device)?);
        let w = weight(&device, 2, &[OUT, IN], None, dtype)?;
        let b = weight(&device, 3, &[OUT], None, dtype)?;
        let t = device
            .tensor(&transposed(&values(2, OUT * IN), OUT, IN), &[IN, OUT])?
            .requires_grad()?;
        t.keep_copy(dtype)?;
        let c = weight(&device, 3, &[OUT], None, dtype)?;
        let y = x.to_dtype(dtype)?.linear_transposed(&w, Some(&b))?;
        let z = other.to_dtype(dtype)?.linear(&t, Some(&c), Activation::None)?;
        y.backward_with(&seed(&y)?)?;
        z.backward_with(&seed(&z)?)?;
        same_bits("y", &y.to_vec()?, &z.to_vec()?);
        same_bits("dx", &grad(&x)?, &grad(&other)?);
        same_bits("dw", &grad(&w)?, &transposed(&grad(&t)?, IN, OUT));
        same_bits("db", &grad(&b)?, &grad(&c)?);
    }
    Ok(())
}

#[test]
fn a_bias_on_a_partial_sum_is_refused() -> Result<()> {
    let device = open(&[("tp", 2)]);
    let x = input(&device)?;
    let w = weight(&device, 2, &[OUT, IN], Some(1), Dtype::F32)?;
    let b = weight(&device, 3, &[OUT], None, Dtype::F32)?;
    let message = common::text(x.scatter("tp", 2)?.linear_transposed(&w, Some(&b)));
    assert!(message.contains("all_reduce"), "{message}");
    let square = weight(&device, 4, &[IN, IN / 2], None, Dtype::F32)?;
    let message = common::text(x.scatter("tp", 2)?.linear_transposed(&square, None));
    assert!(
        message.contains("a Shard(0) weight a replicated input, a Shard(1) weight an input that is Shard(2)"),
        "{message}"
    );
    let message = common::text(x.linear_transposed(&w, None));
    assert!(message.contains("the weight's second"), "{message}");
    Ok(())
}

/// 1, 10^(-1), …, as many as a head has pairs.
fn frequencies(device: &MeshDevice) -> Result<Tensor> {
    device.tensor(&[1.0, 0.1], &[HEAD / 2])
}

/// The positions of tokens that do not begin at 0.
fn positions(device: &MeshDevice) -> Result<Tensor> {
    let mut ids = Draw::new(4).ids(BATCH * TOKENS, 2000);
    ids[3] = 131_071;
    device.batch_u32(&ids, &[BATCH, TOKENS])
}

#[test]
fn rotary_positions() {
    for given in [false, true] {
        equal_everywhere(|device, dtype| {
            let x = input(device)?;
            let w = weight(device, 2, &[OUT, IN], Some(0), dtype)?;
            let heads = x.to_dtype(dtype)?.broadcast("tp")?.linear_transposed(&w, None)?;
            let positions = positions(device)?;
            let y = heads.rope(HEAD, &frequencies(device)?, given.then_some(&positions))?;
            y.backward_with(&seed(&y)?)?;
            Ok(vec![("y", y.to_vec()?), ("dx", grad(&x)?), ("dw", grad(&w)?)])
        });
    }
}

/// The rotation by its definition, in f64 but for the angle.
#[test]
fn rotary_positions_are_the_definition() -> Result<()> {
    let device = open(&[]);
    let (frequency, position) = ([1.0f32, 0.1], Draw::new(4).ids(BATCH * TOKENS, 131_072));
    let x = values(7, BATCH * TOKENS * OUT);
    let shape = [BATCH, TOKENS, OUT];
    let y = device.tensor(&x, &shape)?.rope(
        HEAD,
        &frequencies(&device)?,
        Some(&device.tensor_u32(&position, &[BATCH, TOKENS])?),
    )?;
    for (i, found) in y.to_vec()?.iter().enumerate() {
        let (token, at) = (i / OUT, i % HEAD);
        let angle = f64::from(position[token] as f32 * frequency[at % 2]);
        let (partner, turned) = if at < 2 { (i + 2, -1.0) } else { (i - 2, 1.0) };
        let expected = f64::from(x[i]) * angle.cos() + turned * f64::from(x[partner]) * angle.sin();
        assert!(
            (f64::from(*found) - expected).abs() < 3e-7,
            "element {i}: {found}, expected {expected}"
        );
    }
    let index: Vec<u32> = (0..BATCH * TOKENS).map(|i| (i % TOKENS) as u32).collect();
    let given = device.tensor_u32(&index, &[BATCH, TOKENS])?;
    let x = device.tensor(&x, &shape)?;
    same_bits(
        "no positions",
        &x.rope(HEAD, &frequencies(&device)?, None)?.to_vec()?,
        &x.rope(HEAD, &frequencies(&device)?, Some(&given))?.to_vec()?,
    );
    Ok(())
}

#[test]
fn rotary_positions_say_what_does_not_fit() -> Result<()> {
    let device = open(&[("dp", 2)]);
    let x = device.batch(&values(1, BATCH * TOKENS * OUT), &[BATCH, TOKENS, OUT])?;
    let f = frequencies(&device)?;
    for (message, words) in [
        (common::text(x.rope(5, &f, None)), "whole heads of an even number"),
        (common::text(x.rope(6, &f, None)), "one frequency a pair, 3"),
        (
            common::text(x.rope(HEAD, &f, Some(&device.tensor_u32(&[0; 20], &[4, 5])?))),
            "one position for each token",
        ),
        (
            common::text(x.rope(HEAD, &f, Some(&device.tensor_u32(&[0; 10], &[2, 5])?))),
            "the positions must be Shard(0)",
        ),
    ] {
        assert!(message.contains(words), "{message}");
    }
    Ok(())
}

#[test]
fn gated_activations() {
    equal_everywhere(|device, dtype| {
        let x = input(device)?;
        let gate = weight(device, 2, &[OUT, IN], Some(0), dtype)?;
        let up = weight(device, 3, &[OUT, IN], Some(0), dtype)?;
        let down = weight(device, 4, &[IN, OUT], Some(1), dtype)?;
        let h = x.to_dtype(dtype)?;
        let project = |w: &Tensor| h.broadcast("tp")?.linear_transposed(w, None);
        let gated = project(&gate)?.swiglu(&project(&up)?)?;
        let y = gated.linear_transposed(&down, None)?.all_reduce("tp")?;
        y.backward_with(&seed(&y)?)?;
        Ok(vec![
            ("y", y.to_vec()?),
            ("dx", grad(&x)?),
            ("d gate", grad(&gate)?),
            ("d up", grad(&up)?),
            ("d down", grad(&down)?),
        ])
    });
}

/// In f32 the fused gate is its two steps; what a product needs of it is made again.
#[test]
fn a_gate_is_silu_times_up_and_is_not_kept() -> Result<()> {
    let device = open(&[]);
    let leaf = |seed, shape: &[usize]| {
        device
            .tensor(&values(seed, shape.iter().product()), shape)?
            .requires_grad()
    };
    let (a, b, down) = (leaf(1, &[32, 96])?, leaf(2, &[32, 96])?, leaf(3, &[16, 96])?);
    let expected = device.no_grad(|| a.silu()?.mul(&b))?.to_vec()?;
    let activations = || device.runtime().report().memory.current_by_kind[Kind::Activation as usize];
    let before = activations();
    let gated = a.swiglu(&b)?;
    same_bits("swiglu", &gated.to_vec()?, &expected);
    let y = gated.linear_transposed(&down, None)?;
    drop(gated);
    assert_eq!(activations() - before, 4 * 32 * 16, "only the result stays");
    y.backward()?;
    let (c, other) = (leaf(1, &[32, 96])?, leaf(3, &[16, 96])?);
    let z = c.silu()?.mul(&b)?.linear_transposed(&other, None)?;
    z.backward()?;
    same_bits("d down", &grad(&down)?, &grad(&other)?);
    for (found, expected) in grad(&a)?.iter().zip(grad(&c)?) {
        assert!((found - expected).abs() < 1e-6, "{found} and {expected}");
    }
    Ok(())
}

/// Qwen3's norm of queries, whose gain is shared by heads on several devices.
#[test]
fn norms_of_heads() {
    equal_everywhere(|device, dtype| {
        let x = input(device)?;
        let w = weight(device, 2, &[OUT, IN], Some(0), dtype)?;
        let gain = weight(device, 3, &[HEAD], None, dtype)?;
        let heads = x.to_dtype(dtype)?.broadcast("tp")?.linear_transposed(&w, None)?;
        let y = heads.head_norm(HEAD, &gain, 1e-5)?;
        y.backward_with(&seed(&y)?)?;
        Ok(vec![
            ("y", y.to_vec()?),
            ("dx", grad(&x)?),
            ("dw", grad(&w)?),
            ("d gain", grad(&gain)?),
        ])
    });
}

/// Each head is a row of `rms_norm`.
#[test]
fn a_norm_of_heads_is_one_of_rows() -> Result<()> {
    let device = open(&[]);
    let x = values(1, BATCH * TOKENS * OUT);
    let leaf = |shape: &[usize]| device.tensor(&x, shape)?.requires_grad();
    let (a, b) = (leaf(&[BATCH, TOKENS, OUT])?, leaf(&[BATCH, TOKENS, OUT / HEAD, HEAD])?);
    let gains = [
        device.tensor(&values(2, HEAD), &[HEAD])?.requires_grad()?,
        device.tensor(&values(2, HEAD), &[HEAD])?.requires_grad()?,
    ];
    let y = a.head_norm(HEAD, &gains[0], 1e-5)?;
    let z = b.rms_norm(Some(&gains[1]), 1e-5)?;
    y.backward_with(&seed(&y)?)?;
    z.backward_with(&seed(&z)?)?;
    same_bits("y", &y.to_vec()?, &z.to_vec()?);
    same_bits("dx", &grad(&a)?, &grad(&b)?);
    // Another order of the same sum.
    for (found, expected) in grad(&gains[0])?.iter().zip(grad(&gains[1])?) {
        assert!((found - expected).abs() < 1e-4, "{found} and {expected}");
    }
    Ok(())
}

/// A layer of all of it over an optimizer step of micro-batches: gradients do not see how the batch is cut.
#[test]
fn micro_batches_of_a_layer() -> Result<()> {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let run = |axes: &[(&str, usize)], micro: &[usize]| -> Result<Outcome> {
            let device = open(axes);
            let dp = device.axis("dp").map_or(1, |axis| axis.size);
            let w = weight(&device, 2, &[OUT, IN], Some(0), dtype)?;
            let gain = weight(&device, 3, &[HEAD], None, dtype)?;
            let down = weight(&device, 4, &[IN, OUT], Some(1), dtype)?;
            let (all, seeds) = (values(1, 12 * TOKENS * IN), values(9, 12 * TOKENS * IN));
            let mut skip = 0;
            for count in micro {
                let pick = |all: &[f32]| -> Vec<f32> {
                    let owned = (0..dp).flat_map(|i| (0..*count).map(move |s| i * 12 / dp + skip + s));
                    let size = TOKENS * IN;
                    owned.flat_map(|s| all[s * size..(s + 1) * size].to_vec()).collect()
                };
                let rows = Rows {
                    total: 12,
                    axis: device.axis("dp"),
                    skip,
                    count: *count,
                };
                let shape = [dp * count, TOKENS, IN];
                let x = device.micro_batch(&pick(&all), &shape, rows)?.to_dtype(dtype)?;
                let heads = x.broadcast("tp")?.linear_transposed(&w, None)?;
                let heads = heads
                    .head_norm(HEAD, &gain, 1e-5)?
                    .rope(HEAD, &frequencies(&device)?, None)?;
                let y = heads.swiglu(&heads)?.linear_transposed(&down, None)?.all_reduce("tp")?;
                y.backward_with(&device.micro_batch(&pick(&seeds), &shape, rows)?)?;
                skip += count;
            }
            Ok(vec![
                ("dw", grad(&w)?),
                ("d gain", grad(&gain)?),
                ("d down", grad(&down)?),
            ])
        };
        let expected = run(&[], &[12])?;
        for (axes, micro) in [
            (&[][..], &[5, 7][..]),
            (&[("tp", 3)], &[1, 4, 7]),
            (&[("dp", 2)], &[6]),
            (&[("dp", 3), ("tp", 2)], &[3, 1]),
            (&[("dp", 4), ("tp", 4)], &[1, 1, 1]),
        ] {
            for ((name, expected), (_, found)) in expected.iter().zip(run(axes, micro)?) {
                same_bits(&format!("{axes:?} {micro:?}: {name}"), &found, expected);
            }
        }
    }
    Ok(())
}

/// A prompt at once, in pieces and token by token through the cache is attention without one, and what fused projections give.
#[test]
fn cached_attention_of_separate_projections() -> Result<()> {
    let spec = AttentionSpec {
        num_heads: 6,
        num_groups: 2,
        head_dim: HEAD,
        causal: true,
    };
    let tokens = 9;
    for dtype in [Dtype::F32, Dtype::Bf16] {
        for axes in [&[][..], &[("tp", 2)], &[("dp", 2)]] {
            let device = open(axes);
            let (dp, tp) = (
                device.axis("dp").map_or(1, |a| a.size),
                device.axis("tp").map_or(1, |a| a.size),
            );
            let whole = |heads: usize, seed: u64| -> Result<Tensor> {
                let shape = [2, tokens, heads * HEAD];
                let x = device
                    .batch(&values(seed, shape.iter().product()), &shape)?
                    .to_dtype(dtype)?;
                x.scatter("tp", 2)
            };
            let (q, k, v) = (whole(6, 1)?, whole(2, 2)?, whole(2, 3)?);
            let expected = q.attention_qkv(&k, &v, &spec)?.to_vec()?;
            for pieces in [&[9][..], &[4, 5], &[1, 1, 1, 1, 1, 1, 1, 1, 1]] {
                let cache = KvCache::new(&device, &spec, 2 / tp, 2 / dp, 16, dtype)?;
                let mut at = 0;
                let mut parts = Vec::new();
                for &piece in pieces {
                    let part = |t: &Tensor| t.slice(1, at..at + piece);
                    let positions: Vec<u32> = (at..at + piece).map(|t| t as u32).collect();
                    let positions = device.batch_u32(&positions.repeat(2), &[2, piece])?;
                    let places = Places::all(&positions)?;
                    parts.push(part(&q)?.cached_attention_qkv(&part(&k)?, &part(&v)?, &spec, &cache, &places)?);
                    // The same tokens again, of which the last asks: the same last row.
                    let last = q.slice(1, at + piece - 1..at + piece)?;
                    let places = places.last()?;
                    let found = last.cached_attention_qkv(&part(&k)?, &part(&v)?, &spec, &cache, &places)?;
                    let row = parts[parts.len() - 1].slice(1, piece - 1..piece)?;
                    same_bits(
                        &format!("{axes:?} {pieces:?}, the last"),
                        &found.to_vec()?,
                        &row.to_vec()?,
                    );
                    at += piece;
                }
                let found = Tensor::concat(&parts.iter().collect::<Vec<_>>(), 1)?;
                same_bits(&format!("{axes:?} {pieces:?}"), &found.to_vec()?, &expected);
            }
        }
    }
    let device = open(&[]);
    let x = |heads: usize| device.zeros(&[2, tokens, heads * HEAD]);
    let cache = KvCache::new(&device, &spec, 3, 2, 16, Dtype::F32)?;
    let positions = device.tensor_u32(&[0; 18], &[2, tokens])?;
    let (k, v) = (x(2)?, x(2)?);
    let attend =
        |queries: &Tensor, places: &Places| common::text(queries.cached_attention_qkv(&k, &v, &spec, &cache, places));
    let message = attend(&x(6)?, &Places::all(&positions)?);
    assert!(message.contains("2 groups of 4 elements on each device"), "{message}");
    let message = attend(&x(6)?, &Places::all(&positions)?.last()?);
    assert!(message.contains("each that asks has queries"), "{message}");
    Ok(())
}

/// Weights that are not trained: bf16 without f32 values, and no memory for a gradient.
#[test]
fn frozen_weights_pass_gradients_on_and_have_none() -> Result<()> {
    for axes in [&[][..], &[("tp", 2)], &[("dp", 2), ("tp", 2)]] {
        let run = |frozen: bool| -> Result<(Outcome, u64)> {
            let device = open(axes);
            let make = |seed: u64, shape: &[usize], cut: Option<usize>| -> Result<Tensor> {
                if !frozen {
                    return weight(&device, seed, shape, cut, Dtype::Bf16);
                }
                let t = device.constant(&format!("frozen {seed}"), &spec(shape, cut), Dtype::Bf16)?;
                t.upload_global(&values(seed, shape.iter().product()))?;
                Ok(t)
            };
            let table = make(1, &[VOCABULARY, IN], Some(0))?;
            let up = make(2, &[OUT, IN], Some(0))?;
            let down = make(3, &[OUT, IN], Some(0))?;
            let head = make(4, &[VOCABULARY, IN], Some(0))?;
            let ids = device.batch_u32(&Draw::new(6).ids(BATCH * TOKENS, VOCABULARY), &[BATCH, TOKENS])?;
            let targets = device.batch_u32(&Draw::new(7).ids(BATCH * TOKENS, VOCABULARY), &[BATCH, TOKENS])?;
            let added = input(&device)?;
            let x = table.embedding(&ids)?;
            assert_eq!(x.dtype(), Dtype::Bf16);
            let x = x.add(&added.to_dtype(Dtype::Bf16)?)?;
            let h = x.broadcast("tp")?.linear_transposed(&up, None)?;
            let y = h.linear(&down, None, Activation::None)?.all_reduce("tp")?;
            let logits = device.no_grad(|| y.broadcast("tp")?.logits(&head))?;
            y.linear_cross_entropy(&head, &targets, VOCABULARY, 0.1)?.backward()?;
            let gradients = device.runtime().report().memory.highest_by_kind[Kind::Gradient as usize];
            Ok((
                vec![("y", y.to_vec()?), ("logits", logits.to_vec()?), ("dx", grad(&added)?)],
                gradients,
            ))
        };
        let ((trained, some), (frozen, none)) = (run(false)?, run(true)?);
        for ((name, expected), (_, found)) in trained.iter().zip(&frozen) {
            same_bits(name, found, expected);
        }
        assert!(
            some > 0 && none == 0,
            "{some} bytes of gradients, {none} where weights are frozen"
        );
    }
    Ok(())
}
