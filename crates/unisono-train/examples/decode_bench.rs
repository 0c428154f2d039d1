//! How fast text is generated: `cargo run --release -p unisono-train --example decode_bench [tokens]`.
//!
//! For the default model's shape and for GPT-2's: prompt tokens a second, new tokens a second alone and in a batch of 8, and
//! how fast that reads the weights, which is what bounds a lone sequence of a large model.

use std::ops::ControlFlow;
use std::time::Instant;
use unisono_nn::Model;
use unisono_nn::layers::Activation;
use unisono_nn::models::{Gpt, GptConfig, Positions};
use unisono_tensor::{Dtype, MeshDevice};
use unisono_train::generate::{Decoder, Request, Sampling, generate};

fn config([num_blocks, embedding_dim, num_heads, vocab_size, positions]: [usize; 5], dtype: Dtype) -> GptConfig {
    GptConfig {
        vocab_size,
        max_sequence_length: positions,
        num_blocks,
        num_heads,
        num_groups: num_heads,
        embedding_dim,
        intermediate_dim: 4 * embedding_dim,
        dropout: 0.0,
        bias: true,
        weight_tying: true,
        positions: Positions::Trainable,
        activation: Activation::Gelu,
        recompute: false,
        dtype,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tokens: usize = std::env::args().nth(1).map_or(Ok(64), |arg| arg.parse())?;
    let device = MeshDevice::one()?;
    println!(
        "{} workers, {}",
        device.runtime().workers(),
        device.runtime().isa().name()
    );
    let shapes = [
        ("default, 4 layers, 128 wide", [4, 128, 4, 65, 256], Dtype::F32),
        ("default, 4 layers, 128 wide", [4, 128, 4, 65, 256], Dtype::Bf16),
        ("GPT-2, 12 layers, 768 wide", [12, 768, 12, 50_257, 1024], Dtype::F32),
        ("GPT-2, 12 layers, 768 wide", [12, 768, 12, 50_257, 1024], Dtype::Bf16),
    ];
    for (name, shape, dtype) in shapes {
        let config = config(shape, dtype);
        let positions = config.max_sequence_length;
        let model = Gpt::new(&device, config)?;
        let bytes = dtype.bytes() * model.num_parameters();
        println!(
            "{name}, {}: {:.1} M parameters",
            dtype.name(),
            model.num_parameters() as f64 / 1e6
        );

        let prompt: Vec<u32> = (0..positions / 2).map(|i| (i * 7 % 65) as u32).collect();
        let mut decoder = Decoder::new(&model, 1, positions)?;
        decoder.append(0, &prompt, 512)?.wait()?;
        decoder.clear(0);
        let start = Instant::now();
        decoder.append(0, &prompt, 512)?.wait()?;
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "  prompt of {}: {:.0} tokens/s",
            prompt.len(),
            prompt.len() as f64 / seconds
        );
        for (batch, sampling) in [
            (1, Sampling::greedy()),
            (1, Sampling::default()),
            (8, Sampling::default()),
        ] {
            let requests: Vec<Request> = (0..batch)
                .map(|seed| Request {
                    prompt_ids: prompt[..8].to_vec(),
                    max_new_tokens: tokens + 1,
                    sampling: Sampling { seed, ..sampling },
                    stop_ids: Vec::new(),
                })
                .collect();
            // From the first token on, so that prompts are not counted.
            let mut start = None;
            generate(&model, &requests, &mut |_, _| {
                start.get_or_insert_with(Instant::now);
                ControlFlow::Continue(())
            })?;
            let seconds = start.map_or(0.0, |start| start.elapsed().as_secs_f64());
            let steps = tokens as f64 / seconds;
            let how = if sampling.temperature == 0.0 { "greedy" } else { "drawn" };
            println!(
                "  batch of {batch}, {how}: {:.0} tokens/s, {:.2} ms a step, weights at {:.1} GB/s",
                steps * batch as f64,
                1e3 / steps,
                steps * bytes as f64 / 1e9
            );
        }
    }
    Ok(())
}
