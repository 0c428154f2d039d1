//! A decoding step captured once and replayed: the same bits as issuing it anew, at less of the host's time.
//!
//! `cargo test --release -p unisono-nn --test replay -- --ignored --nocapture` prints the host's time a command.

use std::time::Instant;
use unisono_nn::LanguageModel;
use unisono_nn::layers::Activation;
use unisono_nn::models::{Gpt, GptConfig, Positions};
use unisono_tensor::{Dtype, Mesh, MeshDevice, Options, Tensor};

fn config(blocks: usize, width: usize) -> GptConfig {
    GptConfig {
        vocab_size: 60,
        max_sequence_length: 32,
        num_blocks: blocks,
        num_heads: 4,
        num_groups: 4,
        embedding_dim: width,
        intermediate_dim: 4 * width,
        dropout: 0.0,
        bias: true,
        weight_tying: true,
        positions: Positions::Trainable,
        activation: Activation::GeluTanh,
        recompute: false,
        dtype: Dtype::F32,
    }
}

fn model(device: &MeshDevice, blocks: usize, width: usize) -> Gpt {
    device.set_seed(5);
    Gpt::new(device, config(blocks, width)).expect("a model")
}

/// Logits of the next token.
fn step(model: &Gpt, ids: &Tensor, positions: &Tensor, caches: &[unisono_tensor::ops::kv_cache::KvCache]) -> Tensor {
    let features = model.forward_cached(ids, caches, positions).expect("it fits");
    model.logits(&features).expect("it fits")
}

const TOKENS: [u32; 6] = [3, 14, 15, 9, 26, 53];

fn issued(device: &MeshDevice) -> Vec<Vec<f32>> {
    let model = model(device, 2, 32);
    device.no_grad(|| {
        let caches = model.caches(1, 32).expect("memory");
        let mut logits = Vec::new();
        for (position, token) in TOKENS.iter().enumerate() {
            let ids = device.tensor_u32(&[*token], &[1, 1]).expect("memory");
            let at = device.tensor_u32(&[position as u32], &[1, 1]).expect("memory");
            logits.push(step(&model, &ids, &at, &caches).to_vec().expect("values"));
        }
        logits
    })
}

fn replayed(device: &MeshDevice) -> Vec<Vec<f32>> {
    let model = model(device, 2, 32);
    device.no_grad(|| {
        let caches = model.caches(1, 32).expect("memory");
        let ids = device.tensor_u32(&[0], &[1, 1]).expect("memory");
        let at = device.tensor_u32(&[0], &[1, 1]).expect("memory");
        device.begin_capture().expect("no other capture");
        let y = step(&model, &ids, &at, &caches);
        let trace = device.end_capture().expect("all tensors live");
        let mut logits = Vec::new();
        for (position, token) in TOKENS.iter().enumerate() {
            ids.upload_global_u32(&[*token]).expect("as many");
            at.upload_global_u32(&[position as u32]).expect("as many");
            trace.execute().expect("no failure");
            logits.push(y.to_vec().expect("values"));
        }
        logits
    })
}

#[test]
fn a_replayed_decoding_step_gives_the_same_bits() {
    let reference = issued(&MeshDevice::one().expect("a device"));
    assert!(reference[0].iter().all(|logit| logit.is_finite()) && reference[0] != reference[1]);
    for (axes, workers) in [
        (vec![], 1),
        (vec![], 2),
        (vec![("tp", 2)], 2),
        (vec![("dp", 1), ("tp", 4)], 2),
    ] {
        let mesh = Mesh::new(&axes).expect("a mesh");
        let options = Options {
            workers: Some(workers),
            ..Options::default()
        };
        let device = MeshDevice::open(mesh, options).expect("devices");
        assert_eq!(replayed(&device), reference, "{axes:?}, {workers} workers");
    }
}

/// Prints, asserts nothing: it is a measurement.
#[test]
#[ignore = "prints figures"]
fn the_hosts_time_a_command() {
    for (name, options) in [
        ("null", Options::null()),
        (
            "2 workers",
            Options {
                workers: Some(2),
                ..Options::default()
            },
        ),
    ] {
        let device = MeshDevice::open(Mesh::one(), options).expect("devices");
        let model = model(&device, 12, 64);
        device.no_grad(|| {
            let caches = model.caches(1, 32).expect("memory");
            let ids = device.tensor_u32(&[0], &[1, 1]).expect("memory");
            let at = device.tensor_u32(&[7], &[1, 1]).expect("memory");
            let mut anew: Vec<f64> = Vec::new();
            for _ in 0..200 {
                device.runtime().sync().expect("no failure");
                let start = Instant::now();
                let _y = step(&model, &ids, &at, &caches);
                anew.push(start.elapsed().as_secs_f64());
            }
            device.begin_capture().expect("no other capture");
            let _y = step(&model, &ids, &at, &caches);
            let trace = device.end_capture().expect("all tensors live");
            let mut replays: Vec<f64> = Vec::new();
            for _ in 0..200 {
                device.runtime().sync().expect("no failure");
                let start = Instant::now();
                trace.execute().expect("no failure");
                replays.push(start.elapsed().as_secs_f64());
            }
            let each = |mut seconds: Vec<f64>| {
                seconds.sort_by(f64::total_cmp);
                1e6 * seconds[seconds.len() / 2] / trace.num_commands() as f64
            };
            println!(
                "{name}: a decoding step of {} commands, host time a command: issued {:.3} µs, replayed {:.3} µs",
                trace.num_commands(),
                each(anew),
                each(replays)
            );
        });
    }
}
