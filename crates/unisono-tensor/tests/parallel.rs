//! Layers whose weights are cut over devices against the same layers on one device, bit for bit, forward and backward.

mod common;

use common::{Draw, MESHES, open, same_bits, values};
use unisono_tensor::create::{Init, ParameterDim, ParameterSpec};
use unisono_tensor::ops::matmul::Activation;
use unisono_tensor::{MeshDevice, ReduceType, Result, Tensor};

const BATCH: usize = 4;
const TOKENS: usize = 3;
const IN: usize = 36;
const OUT: usize = 60;
/// What every axis of the meshes divides.
const UNITS: usize = 12;

/// What a layer gives: its result and its gradients, by name.
type Outcome = Vec<(&'static str, Vec<f32>)>;

/// A weight whose `cut_dim` is in [`UNITS`] units, cut along `tp` where there is one.
fn weight(device: &MeshDevice, name: &str, seed: u64, shape: &[usize], cut_dim: Option<usize>) -> Result<Tensor> {
    let dims = shape.iter().enumerate().map(|(dim, len)| ParameterDim {
        len: *len,
        units: if cut_dim == Some(dim) { UNITS } else { 1 },
        axis: (cut_dim == Some(dim)).then_some("tp"),
    });
    let spec = ParameterSpec {
        dims: dims.collect(),
        init: Init::Zeros,
    };
    let t = device.parameter(name, &spec)?;
    t.upload_global(&values(seed, shape.iter().product()))?;
    Ok(t)
}

fn grad(t: &Tensor) -> Result<Vec<f32>> {
    t.grad()?.expect("the leaf takes part").to_vec()
}

/// Runs `body` on one device and on every mesh and compares the bits of all that it gives.
fn equal_everywhere(body: impl Fn(&MeshDevice) -> Result<Outcome>) {
    let reference = body(&open(&[("dp", 1)])).expect("one device computes");
    assert!(reference.iter().all(|(_, v)| v.iter().any(|x| *x != 0.0)));
    for axes in MESHES {
        let found = body(&open(axes)).unwrap_or_else(|error| panic!("{axes:?}: {error}"));
        for ((name, expected), (_, found)) in reference.iter().zip(&found) {
            same_bits(&format!("{axes:?}: {name}"), found, expected);
        }
    }
}

fn input(device: &MeshDevice) -> Result<Tensor> {
    device
        .batch(&values(1, BATCH * TOKENS * IN), &[BATCH, TOKENS, IN])?
        .requires_grad()
}

/// The gradient that reaches a result of `n` features, placed like it.
fn seed(y: &Tensor) -> Result<Tensor> {
    let seed = y.detach().zeros_like(unisono_tensor::Kind::Activation)?;
    seed.upload_global(&values(9, y.shape().iter().product()))?;
    Ok(seed)
}

#[test]
fn column_parallel_with_and_without_bias_and_every_activation() {
    for bias in [false, true] {
        for activation in [
            Activation::None,
            Activation::Relu,
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Silu,
        ] {
            equal_everywhere(|device| {
                let x = input(device)?;
                let w = weight(device, "w", 2, &[IN, OUT], Some(1))?;
                let b = weight(device, "b", 3, &[OUT], Some(0))?;
                let y = x.broadcast("tp")?.linear(&w, bias.then_some(&b), activation)?;
                y.backward_with(&seed(&y)?)?;
                let mut outcome = vec![("y", y.to_vec()?), ("dx", grad(&x)?), ("dw", grad(&w)?)];
                if bias {
                    outcome.push(("db", grad(&b)?));
                }
                Ok(outcome)
            });
        }
    }
}

#[test]
fn row_parallel_with_and_without_bias() {
    for bias in [false, true] {
        equal_everywhere(|device| {
            let x = input(device)?;
            // The input comes cut in its features, as a column-parallel layer leaves it.
            let cut = x.scatter("tp", 2)?;
            let w = weight(device, "w", 2, &[IN, OUT], Some(0))?;
            let b = weight(device, "b", 3, &[OUT], None)?;
            let mut y = cut.linear(&w, None, Activation::None)?.all_reduce("tp")?;
            if bias {
                y = y.add(&b)?;
            }
            y.backward_with(&seed(&y)?)?;
            let mut outcome = vec![("y", y.to_vec()?), ("dx", grad(&x)?), ("dw", grad(&w)?)];
            if bias {
                outcome.push(("db", grad(&b)?));
            }
            Ok(outcome)
        });
    }
}

/// Bias fused into the product on one device and added after the reduction on a mesh are the same.
#[test]
fn a_fused_bias_equals_one_added_after_the_reduction() -> Result<()> {
    let one = open(&[("dp", 1)]);
    let fused = input(&one)?.linear(
        &weight(&one, "w", 2, &[IN, OUT], Some(0))?,
        Some(&weight(&one, "b", 3, &[OUT], None)?),
        Activation::None,
    )?;
    let mesh = open(&[("tp", 4)]);
    let cut = input(&mesh)?.scatter("tp", 2)?;
    let after = cut
        .linear(&weight(&mesh, "w", 2, &[IN, OUT], Some(0))?, None, Activation::None)?
        .all_reduce("tp")?
        .add(&weight(&mesh, "b", 3, &[OUT], None)?)?;
    same_bits("y", &after.to_vec()?, &fused.to_vec()?);
    Ok(())
}

const VOCABULARY: usize = 50;

fn targets(device: &MeshDevice) -> Result<Tensor> {
    let mut ids = Draw::new(5).ids(BATCH * TOKENS, VOCABULARY);
    ids[4] = u32::MAX;
    device.batch_u32(&ids, &[BATCH, TOKENS])
}

/// A table of the vocabulary, stored in whole units: rows beyond it are padding that must not matter.
fn table(device: &MeshDevice) -> Result<Tensor> {
    let spec = ParameterSpec {
        dims: vec![
            ParameterDim {
                len: VOCABULARY,
                units: UNITS,
                axis: Some("tp"),
            },
            ParameterDim {
                len: IN,
                units: 1,
                axis: None,
            },
        ],
        init: Init::Zeros,
    };
    let rows = spec.padded()[0];
    let t = device.parameter("table", &spec)?;
    let mut all = values(6, VOCABULARY * IN);
    all.resize(rows * IN, 0.0);
    t.upload_global(&all)?;
    Ok(t)
}

#[test]
fn a_lookup_in_a_cut_table() {
    equal_everywhere(|device| {
        let table = table(device)?;
        let ids = device.batch_u32(&Draw::new(4).ids(BATCH * TOKENS, VOCABULARY), &[BATCH, TOKENS])?;
        let y = table.embedding(&ids)?;
        y.backward_with(&seed(&y)?)?;
        Ok(vec![("y", y.to_vec()?), ("d table", grad(&table)?)])
    });
}

#[test]
fn cross_entropy_of_cut_logits() {
    for reduce in [
        ReduceType::Mean,
        ReduceType::MeanOver(11),
        ReduceType::Sum,
        ReduceType::None,
    ] {
        equal_everywhere(|device| {
            let x = input(device)?;
            let w = weight(device, "w", 2, &[IN, OUT], Some(1))?;
            let logits = x.broadcast("tp")?.linear(&w, None, Activation::None)?;
            // The last 10 columns are padding.
            let loss = logits.cross_entropy(&targets(device)?, VOCABULARY, reduce)?;
            loss.backward()?;
            Ok(vec![("loss", loss.to_vec()?), ("dx", grad(&x)?), ("dw", grad(&w)?)])
        });
    }
}

#[test]
fn the_fused_head_on_a_cut_table() {
    equal_everywhere(|device| {
        let x = input(device)?;
        let table = table(device)?;
        let losses = x.linear_cross_entropy(&table, &targets(device)?, VOCABULARY, 1.0 / 11.0)?;
        losses.backward()?;
        Ok(vec![
            ("losses", losses.to_vec()?),
            ("dx", grad(&x)?),
            ("d table", grad(&table)?),
        ])
    });
}

/// A tied table is used by lookup and head, each with its accumulator; the sum of the two does not see the mesh.
#[test]
fn a_tied_table() {
    equal_everywhere(|device| {
        let table = table(device)?;
        let ids = device.batch_u32(&Draw::new(4).ids(BATCH * TOKENS, VOCABULARY), &[BATCH, TOKENS])?;
        let losses = table
            .embedding(&ids)?
            .linear_cross_entropy(&table, &targets(device)?, VOCABULARY, 1.0)?;
        losses.backward()?;
        Ok(vec![("losses", losses.to_vec()?), ("d table", grad(&table)?)])
    });
}

#[test]
fn logits_without_gradients() {
    equal_everywhere(|device| {
        let (x, table) = (input(device)?, table(device)?);
        let logits = device.no_grad(|| x.broadcast("tp")?.logits(&table))?;
        Ok(vec![("logits", logits.to_vec()?)])
    });
}

/// Dropout and random numbers are keyed by the global element, however the tensor is cut.
#[test]
fn random_numbers_do_not_see_the_mesh() {
    for dim in 0..3 {
        equal_everywhere(|device| {
            device.set_seed(3);
            let shape = [12, 12, 12];
            let normal = unisono_runtime::ops::random::Distribution::Normal { mean: 0.0, std: 1.0 };
            let drawn = device.random(&shape, &[("tp", dim)], 7, normal)?;
            let x = device
                .sharded(&values(1, 1728), &shape, &[("tp", dim)])?
                .requires_grad()?;
            let y = x.dropout(0.3, 5)?;
            y.backward_with(&seed(&y)?)?;
            Ok(vec![
                ("random", drawn.to_vec()?),
                ("dropout", y.to_vec()?),
                ("dx", grad(&x)?),
            ])
        });
    }
}

/// A tensor of one row meets every row of a batch, wherever the rows are; its gradient is the sum over all of them.
#[test]
fn a_leading_dimension_of_one_is_repeated_over_a_cut_batch() {
    for swapped in [false, true] {
        equal_everywhere(|device| {
            let x = input(device)?;
            let one = device
                .tensor(&values(2, TOKENS * IN), &[1, TOKENS, IN])?
                .requires_grad()?;
            let y = if swapped { one.mul(&x)? } else { x.mul(&one)? };
            y.backward_with(&seed(&y)?)?;
            Ok(vec![("y", y.to_vec()?), ("dx", grad(&x)?), ("d one", grad(&one)?)])
        });
    }
}
