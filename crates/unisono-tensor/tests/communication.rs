//! The communication operations, forward and backward, against computation on the host, bit for bit.

mod common;

use common::{MESHES, host_matmul, open, same_bits, text, transposed, values};
use unisono_tensor::ops::matmul::Activation;
use unisono_tensor::{MeshDevice, Placement, Result, Tensor};

/// Every mesh with each of its axes.
fn everywhere(body: impl Fn(&MeshDevice, &str, usize) -> Result<()>) {
    for axes in MESHES {
        for (name, size) in axes {
            let device = open(axes);
            body(&device, name, *size).unwrap_or_else(|error| panic!("{axes:?}, {name}: {error}"));
        }
    }
}

/// The values of every device are `expected`.
fn replicated(what: &str, t: &Tensor, expected: &[f32]) -> Result<()> {
    assert!(t.placements().iter().all(|p| p.is_replicate()), "{what}: {t:?}");
    for device in 0..t.device().mesh().num_devices() {
        same_bits(&format!("{what} on device {device}"), &t.to_vec_on(device)?, expected);
    }
    Ok(())
}

/// The values of each device are its part of dimension `dim` of `whole`.
fn cut(what: &str, t: &Tensor, axis: &str, dim: usize, whole: &[f32]) -> Result<()> {
    let handle = t.device().axis(axis).expect("the axis is there");
    assert_eq!(t.placements()[handle.index], Placement::Shard(dim), "{what}: {t:?}");
    same_bits(&format!("{what}, put together"), &t.to_vec()?, whole);
    let shape = t.shape();
    let inner: usize = shape[dim..].iter().product();
    let part = inner / handle.size;
    for device in 0..t.device().mesh().num_devices() {
        let position = t.device().mesh().position(device, axis);
        let expected: Vec<f32> = (0..whole.len())
            .filter(|i| i % inner / part == position)
            .map(|i| whole[i])
            .collect();
        same_bits(&format!("{what} on device {device}"), &t.to_vec_on(device)?, &expected);
    }
    Ok(())
}

/// A product whose inner dimension is cut: x [4, 12·n] and w [12·n, 6], and what it is.
struct Product {
    x: Tensor,
    w: Tensor,
    partial: Tensor,
    whole: Vec<f32>,
    k: usize,
}

const M: usize = 12;
const N: usize = 24;

fn product(device: &MeshDevice, axis: &str, size: usize) -> Result<Product> {
    let k = 10 * size;
    let (a, b) = (values(1, M * k), values(2, k * N));
    let x = device.sharded(&a, &[M, k], &[(axis, 1)])?.requires_grad()?;
    let w = device.sharded(&b, &[k, N], &[(axis, 0)])?.requires_grad()?;
    let partial = x.linear(&w, None, Activation::None)?;
    assert_eq!(
        partial.placements()[device.axis(axis).expect("the axis is there").index],
        Placement::Partial
    );
    let whole = host_matmul(&a, &b, [M, k, N], size);
    Ok(Product {
        x,
        w,
        partial,
        whole,
        k,
    })
}

impl Product {
    /// The gradients that `dy` [M, N] must have led to.
    fn check_gradients(&self, what: &str, axis: &str, dy: &[f32]) -> Result<()> {
        let (a, b) = (values(1, M * self.k), values(2, self.k * N));
        let dx = host_matmul(dy, &transposed(&b, self.k, N), [M, N, self.k], 1);
        // The rows of a plain tensor are one unit each.
        let dw = host_matmul(&transposed(&a, M, self.k), dy, [self.k, M, N], M);
        cut(
            &format!("{what}: dx"),
            &self.x.grad()?.expect("x takes part"),
            axis,
            1,
            &dx,
        )?;
        cut(
            &format!("{what}: dw"),
            &self.w.grad()?.expect("w takes part"),
            axis,
            0,
            &dw,
        )
    }
}

#[test]
fn all_reduce_completes_a_sum_and_hands_the_gradient_through() {
    everywhere(|device, axis, size| {
        let p = product(device, axis, size)?;
        let y = p.partial.all_reduce(axis)?;
        replicated("all_reduce", &y, &p.whole)?;
        let dy = values(3, M * N);
        y.backward_with(&device.tensor(&dy, &[M, N])?)?;
        p.check_gradients("all_reduce", axis, &dy)
    });
}

#[test]
fn reduce_scatter_leaves_a_part_and_gathers_the_gradient() {
    everywhere(|device, axis, size| {
        for dim in 0..2 {
            let p = product(device, axis, size)?;
            let y = p.partial.reduce_scatter(axis, dim)?;
            cut("reduce_scatter", &y, axis, dim, &p.whole)?;
            let dy = values(3, M * N);
            y.backward_with(&device.sharded(&dy, &[M, N], &[(axis, dim)])?)?;
            p.check_gradients("reduce_scatter", axis, &dy)?;
        }
        Ok(())
    });
}

#[test]
fn broadcast_is_the_identity_and_reduces_the_gradient() {
    everywhere(|device, axis, size| {
        let (m, k, n) = (6, 5, 8 * size);
        let (a, b, dy) = (values(1, m * k), values(2, k * n), values(3, m * n));
        let x = device.tensor(&a, &[m, k])?.requires_grad()?;
        let w = device.sharded(&b, &[k, n], &[(axis, 1)])?.requires_grad()?;
        let copies = x.broadcast(axis)?;
        replicated("broadcast", &copies, &a)?;
        let y = copies.linear(&w, None, Activation::None)?;
        cut(
            "column-parallel product",
            &y,
            axis,
            1,
            &host_matmul(&a, &b, [m, k, n], 1),
        )?;
        y.backward_with(&device.sharded(&dy, &[m, n], &[(axis, 1)])?)?;
        let dx = host_matmul(&dy, &transposed(&b, k, n), [m, n, k], size);
        replicated("broadcast: dx", &x.grad()?.expect("x takes part"), &dx)?;
        let dw = host_matmul(&transposed(&a, m, k), &dy, [k, m, n], m);
        cut("broadcast: dw", &w.grad()?.expect("w takes part"), axis, 1, &dw)
    });
}

#[test]
fn broadcast_hands_a_complete_gradient_through() {
    everywhere(|device, axis, _| {
        let x = device.tensor(&values(1, 6), &[6])?.requires_grad()?;
        let y = x.broadcast(axis)?;
        y.backward_with(&device.tensor(&values(2, 6), &[6])?)?;
        replicated("dx", &x.grad()?.expect("x takes part"), &values(2, 6))
    });
}

#[test]
fn all_gather_with_a_replicated_gradient_takes_its_own_part() {
    everywhere(|device, axis, size| {
        for dim in 0..3 {
            let mut shape = [2, 3, 4];
            shape[dim] *= size;
            let n = 24 * size;
            let x = device.sharded(&values(1, n), &shape, &[(axis, dim)])?.requires_grad()?;
            let y = x.all_gather(axis, dim, true)?;
            replicated("all_gather", &y, &values(1, n))?;
            y.backward_with(&device.tensor(&values(2, n), &shape)?)?;
            cut(
                "all_gather: dx",
                &x.grad()?.expect("x takes part"),
                axis,
                dim,
                &values(2, n),
            )?;
        }
        Ok(())
    });
}

/// As sequence parallelism has it: gathered before a column-parallel weight, whose input gradient is a partial sum.
#[test]
fn all_gather_of_a_partial_gradient_reduces_and_scatters_it() {
    everywhere(|device, axis, size| {
        let (m, k, n) = (3 * size, 5, 8 * size);
        let (a, b, dy) = (values(1, m * k), values(2, k * n), values(3, m * n));
        let x = device.sharded(&a, &[m, k], &[(axis, 0)])?.requires_grad()?;
        let w = device.sharded(&b, &[k, n], &[(axis, 1)])?.requires_grad()?;
        let y = x.all_gather(axis, 0, false)?.linear(&w, None, Activation::None)?;
        y.backward_with(&device.sharded(&dy, &[m, n], &[(axis, 1)])?)?;
        let dx = host_matmul(&dy, &transposed(&b, k, n), [m, n, k], size);
        cut("dx", &x.grad()?.expect("x takes part"), axis, 0, &dx)?;
        let dw = host_matmul(&transposed(&a, m, k), &dy, [k, m, n], m);
        cut("dw", &w.grad()?.expect("w takes part"), axis, 1, &dw)
    });
}

#[test]
fn scatter_keeps_a_part_and_gathers_the_gradient() {
    everywhere(|device, axis, size| {
        for dim in 0..3 {
            let mut shape = [2, 3, 4];
            shape[dim] *= size;
            let n = 24 * size;
            let x = device.tensor(&values(1, n), &shape)?.requires_grad()?;
            let y = x.scatter(axis, dim)?;
            cut("scatter", &y, axis, dim, &values(1, n))?;
            y.backward_with(&device.sharded(&values(2, n), &shape, &[(axis, dim)])?)?;
            replicated("scatter: dx", &x.grad()?.expect("x takes part"), &values(2, n))?;
        }
        Ok(())
    });
}

#[test]
fn broadcast_from_copies_one_position_of_the_axis() {
    everywhere(|device, axis, size| {
        let whole = values(1, 5 * size);
        let x = device.sharded(&whole, &[size, 5], &[(axis, 0)])?;
        for root in 0..size {
            let y = x.broadcast_from(axis, root)?;
            for i in 0..device.mesh().num_devices() {
                same_bits("copy", &y.to_vec_on(i)?, &whole[5 * root..5 * root + 5]);
            }
        }
        let error = text(x.broadcast_from(axis, size));
        let rule = format!("broadcast_from: position {size} on an axis of {size} devices; positions count from 0");
        assert_eq!(error, rule);
        Ok(())
    });
}

/// What is gathered is one batch, not one batch a device.
#[test]
fn a_gathered_batch_is_summed_once() {
    for axes in [&[("dp", 2)][..], &[("dp", 4)], &[("dp", 2), ("tp", 2)]] {
        let device = open(axes);
        let ones = vec![1.0; 8 * 3];
        let batch = device.batch(&ones, &[8, 3]).expect("8 is a multiple");
        let whole = batch.all_gather("dp", 0, true).expect("it is cut in dimension 0");
        assert_eq!(whole.sum().and_then(|sum| sum.item()).expect("it is a sum"), 24.0);
        let parts = whole.scatter("dp", 0).expect("it is replicated");
        assert_eq!(parts.sum().and_then(|sum| sum.item()).expect("it is a sum"), 24.0);
        assert_eq!(parts.mean().and_then(|sum| sum.item()).expect("it is a mean"), 1.0);
    }
}

/// Code written for an axis runs where the mesh has none.
#[test]
fn without_the_axis_there_is_nothing_to_do() -> Result<()> {
    let device = open(&[("dp", 1)]);
    let x = device.tensor(&values(1, 6), &[2, 3])?;
    for y in [
        x.all_reduce("tp")?,
        x.broadcast("tp")?,
        x.all_gather("tp", 0, true)?,
        x.reduce_scatter("dp", 1)?,
        x.scatter("dp", 1)?,
        x.broadcast_from("tp", 5)?,
    ] {
        same_bits("identity", &y.to_vec()?, &values(1, 6));
    }
    Ok(())
}
