//! Submeshes: programs side by side, parameters shared by reference, and what cannot be.

mod common;

use common::{open, same_bits, text, values};
use unisono_tensor::ops::matmul::Activation;
use unisono_tensor::{MeshDevice, Options, Result, Tensor};

const IN: usize = 12;
const HIDDEN: usize = 20;

fn mlp(device: &MeshDevice, [up, down]: &[Tensor; 2], batch: u64) -> Result<Tensor> {
    let x = device.tensor(&values(batch, 4 * IN), &[4, IN])?;
    let hidden = x.linear(up, None, Activation::Gelu)?;
    hidden.linear(down, None, Activation::None)
}

fn weights(device: &MeshDevice) -> Result<[Tensor; 2]> {
    Ok([
        device.tensor(&values(1, IN * HIDDEN), &[IN, HIDDEN])?,
        device.tensor(&values(2, HIDDEN * IN), &[HIDDEN, IN])?,
    ])
}

fn grid() -> Result<MeshDevice> {
    let options = Options {
        workers: Some(2),
        memory_limit: Some(64 << 20),
        ..Options::default()
    };
    MeshDevice::open_grid(&[4, 4], options)
}

/// Weights placed once on the whole mesh; four tiles and one that overlaps them, each with its own batch.
#[test]
fn submeshes_share_weights_and_give_one_devices_bits() -> Result<()> {
    let all = grid()?;
    let shared = weights(&all)?;
    let mut parts = all.create_submeshes(&[2, 2])?;
    parts.push(all.create_submesh(&[2, 2], Some(&[1, 1]))?);
    parts.push(all.reshape(&[16])?);
    // All are issued before any is read.
    let mut results = Vec::new();
    for (batch, part) in parts.iter().enumerate() {
        let seen = [shared[0].on(part)?, shared[1].on(part)?];
        results.push(mlp(part, &seen, 10 + batch as u64)?);
    }
    let one = open(&[]);
    let alone = weights(&one)?;
    for (batch, result) in results.iter().enumerate() {
        let expected = mlp(&one, &alone, 10 + batch as u64)?.to_vec()?;
        same_bits(&format!("submesh {batch}"), &result.to_vec()?, &expected);
    }
    Ok(())
}

#[test]
fn a_cut_tensor_is_seen_where_its_axis_is_whole() -> Result<()> {
    let all = open(&[("dp", 2), ("tp", 2)]);
    let x = all.sharded(&values(3, 8), &[2, 4], &[("tp", 1)])?;
    let row = all.create_submesh(&[1, 2], Some(&[1, 0]))?;
    same_bits("row", &x.on(&row)?.to_vec()?, &values(3, 8));
    let column = all.create_submesh(&[2, 1], None)?;
    assert_eq!(
        text(x.on(&column)),
        "on: along mesh axis `tp`, the tensor [2, 4] is Shard(1), and 2×1 = 2 devices (dp 2, tp 1) on devices [0, 2] has not the whole \
         axis; a submesh sees a tensor where all its parts are there: all_gather it first, or take a submesh over the whole axis"
    );
    // Turned round: each device would take the other's part.
    let turned = all.on_view(row.view().pick(&[1, 0])?)?;
    assert!(text(x.on(&turned)).contains("has not the whole axis"));
    Ok(())
}

#[test]
fn what_cannot_be_seen_or_mixed_is_told_in_words() -> Result<()> {
    let all = open(&[("dp", 4)]);
    let (left, right) = (all.create_submesh(&[2], None)?, all.create_submesh(&[2], Some(&[2]))?);
    let a = left.tensor(&[1.0, 2.0], &[2])?;
    let b = right.tensor(&[1.0, 2.0], &[2])?;
    assert!(
        text(a.add(&b)).contains("the tensors live on two meshes"),
        "{}",
        text(a.add(&b))
    );
    let outside = "on: the tensor lies on 2 devices (dp 2) on devices [0, 1], and not on all devices of";
    assert!(text(a.on(&right)).starts_with(outside));
    assert!(text(a.on(&all)).starts_with(outside));
    assert!(text(a.on(&open(&[("dp", 2)]))).starts_with(outside));
    let leaf = all.tensor(&[1.0], &[1])?.requires_grad()?;
    assert!(text(leaf.on(&left)).starts_with("on: the gradient of this tensor would not see"));
    assert_eq!(all.no_grad(|| leaf.on(&left))?.to_vec()?, [1.0]);
    Ok(())
}
