//! What the graph remembers and forgets: no_grad, detach, freed and retained graphs, leaves used twice, micro-batches, and
//! the texts of the errors.

mod common;

use common::{golden, open, same_bits, text, values};
use std::fmt::Write;
use unisono_tensor::ops::matmul::Activation;
use unisono_tensor::{MeshDevice, ReduceType, Result, Rows, Tensor, sync_gradients};

fn leaf(device: &MeshDevice, seed: u64, shape: &[usize]) -> Result<Tensor> {
    device
        .tensor(&values(seed, shape.iter().product()), shape)?
        .requires_grad()
}

fn grad(t: &Tensor) -> Result<Vec<f32>> {
    t.grad()?.expect("the leaf takes part").to_vec()
}

#[test]
fn no_grad_records_nothing_and_ends_with_its_body() -> Result<()> {
    let device = open(&[]);
    let x = leaf(&device, 1, &[3])?;
    let y = device.no_grad(|| {
        assert!(!device.grad_enabled());
        x.mul(&x)
    })?;
    assert!(!y.needs_grad());
    assert!(device.grad_enabled());
    assert!(x.mul(&x)?.needs_grad());
    // An error or a panic inside does not leave it switched off.
    assert!(device.no_grad(|| x.add(&leaf(&device, 2, &[2])?)).is_err());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        device.no_grad(|| std::panic::resume_unwind(Box::new(())))
    }));
    assert!(panicked.is_err() && device.grad_enabled());
    Ok(())
}

#[test]
fn detach_cuts_the_graph() -> Result<()> {
    let device = open(&[]);
    let x = leaf(&device, 1, &[3])?;
    let y = x.mul(&x)?;
    assert!(!y.detach().needs_grad());
    // d/dx of x · stop(x²) is x².
    x.mul(&y.detach())?.sum()?.backward()?;
    same_bits("dx", &grad(&x)?, &y.to_vec()?);
    Ok(())
}

#[test]
fn gradients_add_up_until_zero_grad() -> Result<()> {
    let device = open(&[]);
    let x = leaf(&device, 1, &[3])?;
    assert!(x.grad()?.is_none());
    x.mul_scalar(2.0)?.sum()?.backward()?;
    x.mul_scalar(3.0)?.sum()?.backward()?;
    assert_eq!(grad(&x)?, [5.0; 3]);
    x.zero_grad();
    assert!(x.grad()?.is_none());
    x.mul_scalar(3.0)?.sum()?.backward()?;
    assert_eq!(grad(&x)?, [3.0; 3]);
    Ok(())
}

#[test]
fn a_tensor_used_many_times_gets_the_sum() -> Result<()> {
    let device = open(&[]);
    let x = leaf(&device, 1, &[4])?;
    let twice = x.add(&x)?;
    // (2x)² + 2x: the middle of a diamond, then 8x + 2.
    twice.mul(&twice)?.add(&twice)?.sum()?.backward()?;
    let expected: Vec<f32> = values(1, 4).iter().map(|x| 8.0 * x + 2.0).collect();
    for (found, expected) in grad(&x)?.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-6);
    }
    Ok(())
}

/// Two uses of a weight are two sums over the batch, each of its own, added in the order of use.
#[test]
fn a_weight_used_twice_has_two_accumulators() -> Result<()> {
    let device = open(&[]);
    let x = device.batch(&values(1, 4 * 3), &[4, 3])?;
    let w = leaf(&device, 2, &[3, 3])?;
    x.linear(&w, None, Activation::None)?
        .linear(&w, None, Activation::None)?
        .sum()?
        .backward()?;
    assert_eq!(w.grad_bytes(), 2 * 9 * 4);
    // The same with two weights of equal values.
    let (a, b) = (leaf(&device, 2, &[3, 3])?, leaf(&device, 2, &[3, 3])?);
    x.linear(&a, None, Activation::None)?
        .linear(&b, None, Activation::None)?
        .sum()?
        .backward()?;
    let expected: Vec<f32> = grad(&a)?.iter().zip(grad(&b)?).map(|(a, b)| a + b).collect();
    same_bits("dw", &grad(&w)?, &expected);
    // The next step uses the same two.
    w.zero_grad();
    x.linear(&w, None, Activation::None)?
        .linear(&w, None, Activation::None)?
        .sum()?
        .backward()?;
    assert_eq!(w.grad_bytes(), 2 * 9 * 4);
    same_bits("dw again", &grad(&w)?, &expected);
    Ok(())
}

/// A forward pass that no backward pass follows (its loss is dropped) does not shift the uses of the next one: they are
/// counted anew.
#[test]
fn an_evaluation_between_two_steps_does_not_matter() -> Result<()> {
    let device = open(&[]);
    let x = device.batch(&values(1, 4 * 3), &[4, 3])?;
    let w = leaf(&device, 2, &[3, 3])?;
    let loss = || x.linear(&w, None, Activation::None)?.sum();
    loss()?.backward()?;
    let first = grad(&w)?;
    w.zero_grad();
    device.no_grad(loss)?;
    loss()?.backward()?;
    assert_eq!(w.grad_bytes(), 9 * 4);
    same_bits("dw", &grad(&w)?, &first);
    Ok(())
}

fn micro(device: &MeshDevice, rows: Rows, all: &[f32]) -> Result<Tensor> {
    let owned = &all[rows.skip * 3..(rows.skip + rows.count) * 3];
    device.micro_batch(owned, &[rows.count, 3], rows)
}

fn rows(total: usize, skip: usize, count: usize) -> Rows {
    Rows {
        total,
        axis: None,
        skip,
        count,
    }
}

#[test]
fn micro_batches_of_any_size_add_up_to_the_batch() -> Result<()> {
    let device = open(&[]);
    let all = values(1, 12 * 3);
    let run = |cuts: &[usize]| -> Result<Vec<Vec<f32>>> {
        let w = leaf(&device, 2, &[3, 5])?;
        let b = leaf(&device, 3, &[5])?;
        let gain = leaf(&device, 4, &[5])?;
        let mut skip = 0;
        for count in cuts {
            let x = micro(&device, rows(12, skip, *count), &all)?;
            let y = x
                .linear(&w, Some(&b), Activation::Gelu)?
                .layer_norm(Some(&gain), None, 1e-5)?;
            y.mul(&y)?.mean()?.backward()?;
            skip += count;
        }
        [&w, &b, &gain].into_iter().map(grad).collect()
    };
    let whole = run(&[12])?;
    for cuts in [
        &[6, 6][..],
        &[4, 4, 4],
        &[3, 3, 3, 3],
        &[2; 6],
        &[1; 12],
        &[1, 2, 3, 6],
        &[5, 7],
        &[7, 4, 1],
    ] {
        for (index, (found, expected)) in run(cuts)?.iter().zip(&whole).enumerate() {
            same_bits(&format!("{cuts:?}, parameter {index}"), found, expected);
        }
    }
    Ok(())
}

/// The gradient keeps the place of its micro-batch through operations that lose it on the way.
#[test]
fn a_broadcast_weight_before_a_permutation_accumulates() -> Result<()> {
    let device = open(&[]);
    let all = values(1, 8 * 3);
    let run = |count: usize| -> Result<Vec<f32>> {
        let w = leaf(&device, 2, &[3])?;
        for skip in (0..8).step_by(count) {
            let x = micro(&device, rows(8, skip, count), &all)?;
            // Σ (x·w)², by way of the transpose.
            let t = x.mul(&w)?.permute(&[1, 0])?;
            t.mul(&t)?.sum()?.backward()?;
        }
        grad(&w)
    };
    let whole = run(8)?;
    same_bits("dw", &run(4)?, &whole);
    same_bits("dw", &run(2)?, &whole);
    Ok(())
}

#[test]
fn a_retained_graph_can_be_used_again() -> Result<()> {
    let device = open(&[]);
    let x = leaf(&device, 1, &[2, 3])?;
    let w = leaf(&device, 2, &[3, 3])?;
    let loss = x
        .linear(&w, None, Activation::Gelu)?
        .softmax()?
        .slice(1, 0..2)?
        .mse_loss(&device.zeros(&[2, 2])?, ReduceType::Sum)?;
    loss.backward_retain()?;
    let (dx, dw) = (grad(&x)?, grad(&w)?);
    for t in [&x, &w] {
        t.zero_grad();
    }
    loss.backward_retain()?;
    same_bits("dx", &grad(&x)?, &dx);
    same_bits("dw", &grad(&w)?, &dw);
    // Tensors' gradients add up without zero_grad; a weight's sum is complete, and says so.
    w.zero_grad();
    loss.backward()?;
    let twice: Vec<f32> = dx.iter().map(|x| x + x).collect();
    same_bits("dx twice", &grad(&x)?, &twice);
    assert!(loss.backward().is_err(), "the last pass has freed the graph");
    Ok(())
}

/// backward() frees what the operations saved, though the loss is still held; so does dropping the loss without it.
#[test]
fn saved_values_are_freed() -> Result<()> {
    let device = open(&[]);
    let x = leaf(&device, 1, &[256, 256])?;
    let live = || device.runtime().report().memory.current as usize;
    let before = live();
    let forward = || -> Result<Tensor> {
        let mut y = x.clone();
        for _ in 0..4 {
            y = y.map(unisono_tensor::Unary::Tanh)?;
        }
        y.sum()
    };
    let loss = forward()?;
    let held = live() - before;
    assert!(held >= 3 * 256 * 256 * 4, "{held} bytes");
    loss.backward()?;
    x.zero_grad();
    assert!(live() - before < 4096, "{} bytes are still held", live() - before);
    drop(loss);
    let kept = forward()?;
    kept.backward_retain()?;
    assert!(live() - before >= held);
    drop(kept);
    x.zero_grad();
    assert!(live() - before < 4096, "{} bytes are still held", live() - before);
    Ok(())
}

#[test]
fn errors_say_what_to_do() -> Result<()> {
    let device = open(&[]);
    let x = leaf(&device, 1, &[2, 3])?;
    let all = values(1, 12 * 3);
    let mut cases: Vec<(&str, String)> = Vec::new();

    let loss = x.mul(&x)?.sum()?;
    loss.backward()?;
    cases.push(("backward twice", text(loss.backward())));
    cases.push(("backward outside the graph", text(device.zeros(&[2])?.backward())));
    cases.push(("backward after no_grad", text(device.no_grad(|| x.sum())?.backward())));
    cases.push((
        "gradient of another shape",
        text(x.mul(&x)?.backward_with(&device.zeros(&[3])?)),
    ));
    cases.push(("requires_grad on a result", text(x.mul(&x)?.requires_grad())));
    cases.push((
        "with_backward twice",
        text(x.mul(&x)?.with_backward("mine", &[&x], |_| Ok(vec![None]))),
    ));
    cases.push(("logits with gradients", text(x.logits(&leaf(&device, 2, &[4, 3])?))));

    let head = leaf(&device, 2, &[5, 3])?;
    let targets = device.tensor_u32(&[1, 2, 3, 4], &[2, 2])?;
    let fused = || leaf(&device, 1, &[2, 2, 3])?.linear_cross_entropy(&head, &targets, 5, 1.0);
    cases.push(("fused loss inside", text(fused()?.mul_scalar(2.0)?.backward())));
    head.zero_grad();
    cases.push((
        "fused loss with a gradient",
        text(fused()?.backward_with(&device.ones(&[2])?)),
    ));
    head.zero_grad();
    cases.push(("fused loss retained", text(fused()?.backward_retain())));
    head.zero_grad();

    let w = leaf(&device, 2, &[3, 5])?;
    w.set_name("h.0.mlp.c_fc.weight");
    let step = |skip, count| -> Result<()> {
        let x = micro(&device, rows(12, skip, count), &all)?;
        x.linear(&w, None, Activation::None)?.sum()?.backward()
    };
    step(0, 4)?;
    cases.push(("micro-batch left out", text(step(8, 4))));
    cases.push(("micro-batch twice", text(step(0, 4))));
    cases.push(("micro-batches missing", text(sync_gradients(&[&w]))));
    cases.push(("gradient too early", text(w.grad())));
    step(4, 4)?;
    step(8, 4)?;
    cases.push(("sync of a complete step", text(sync_gradients(&[&w]))));
    cases.push(("no zero_grad before the next step", text(step(0, 4))));
    w.zero_grad();
    cases.push(("another total within a step", {
        step(0, 4)?;
        let x = micro(&device, rows(16, 4, 4), &all)?;
        text(x.linear(&w, None, Activation::None)?.sum()?.backward())
    }));
    w.zero_grad();
    cases.push(("a made weight under accumulation", {
        let made = w.mul_scalar(2.0)?;
        let x = micro(&device, rows(12, 0, 4), &all)?;
        text(x.linear(&made, None, Activation::None)?.sum()?.backward())
    }));
    let mut out = String::new();
    for (case, message) in cases {
        writeln!(out, "{case}\n    {message}").expect("a string takes everything");
    }
    golden("gradient_errors.golden", &out);
    Ok(())
}
