//! How fast a model generates: new tokens by the KV cache, and a prompt at once, for a GPT-2 of 124 M parameters.
//!
//! A new token reads every weight once, so the roof is the rate of reading; a prompt is limited by arithmetic.

use crate::exit::Failure;
use std::ops::ControlFlow;
use std::time::Instant;
use unisono_nn::Model;
use unisono_nn::layers::Activation;
use unisono_nn::models::{Gpt, GptConfig, Positions};
use unisono_tensor::{Dtype, MeshDevice};

use unisono_train::generate::{Decoder, Request, Sampling, generate};

/// One measurement.
pub struct Generation {
    /// What, for how many sequences, in which kind of number.
    pub name: String,
    /// The kind of number.
    pub dtype: Dtype,
    /// Seconds, repetition by repetition: of a step of all sequences, or of a prompt.
    pub seconds: Vec<f64>,
    /// Operations in that time.
    pub flops: f64,
    /// Bytes of weights that are read in it.
    pub bytes: f64,
}

/// Tokens of the prompt.
const PROMPT: usize = 256;
/// New tokens of a sequence that are timed.
const NEW: usize = 32;
/// Tokens before them.
const BEFORE: usize = 16;

fn gpt2(dtype: Dtype) -> GptConfig {
    GptConfig {
        vocab_size: 50_257,
        max_sequence_length: 1024,
        num_blocks: 12,
        num_heads: 12,
        num_groups: 12,
        embedding_dim: 768,
        intermediate_dim: 3072,
        dropout: 0.0,
        bias: true,
        weight_tying: true,
        positions: Positions::Trainable,
        activation: Activation::GeluTanh,
        recompute: false,
        dtype,
    }
}

/// The names, by kind of number: one and eight sequences, and a prompt.
fn names(dtype: Dtype) -> [(String, usize); 3] {
    let dtype = dtype.name();
    [
        (format!("decode gpt2 124M {dtype}"), 1),
        (format!("decode gpt2 124M, 8 sequences {dtype}"), 8),
        (format!("prompt gpt2 124M, {PROMPT} tokens {dtype}"), 0),
    ]
}

const DTYPES: [Dtype; 2] = [Dtype::F32, Dtype::Bf16];

/// Whether a name contains the filter.
pub fn generates(filter: &str) -> bool {
    let all = DTYPES.iter().flat_map(|dtype| names(*dtype));
    all.into_iter().any(|(name, _)| name.contains(filter))
}

/// Measures what has a name that contains the filter, each `repetitions` times.
///
/// # Errors
/// Too little memory.
pub fn generations(device: &MeshDevice, filter: &str, repetitions: usize) -> Result<Vec<Generation>, Failure> {
    let mut all = Vec::new();
    for dtype in DTYPES {
        let wanted: Vec<(String, usize)> = names(dtype)
            .into_iter()
            .filter(|(name, _)| name.contains(filter))
            .collect();
        if wanted.is_empty() {
            continue;
        }
        let model = Gpt::new(device, gpt2(dtype))?;
        let weights = model.num_parameters() as f64;
        // The head sees a prompt's last token only, and tables are looked up.
        let c = model.config();
        let tables = ((c.vocab_size + c.max_sequence_length) * c.embedding_dim) as f64;
        for (name, sequences) in wanted {
            let run = || match sequences {
                0 => prompt_seconds(&model),
                n => step_seconds(&model, n),
            };
            all.push(Generation {
                name,
                dtype,
                seconds: (0..repetitions).map(|_| run()).collect::<Result<_, _>>()?,
                flops: match sequences {
                    0 => 2.0 * (weights - tables) * PROMPT as f64,
                    n => 2.0 * weights * n as f64,
                },
                bytes: dtype.bytes() as f64 * weights,
            });
        }
    }
    Ok(all)
}

fn tokens(n: usize) -> Vec<u32> {
    (0..n).map(|i| (i * 7919 % 50_257) as u32).collect()
}

/// Seconds of one step of greedy decoding, from the first new token on.
fn step_seconds(model: &Gpt, sequences: usize) -> Result<f64, Failure> {
    let request = Request {
        prompt_ids: tokens(BEFORE),
        max_new_tokens: NEW + 1,
        sampling: Sampling::greedy(),
        ..Request::default()
    };
    let mut start = None;
    generate(model, &vec![request; sequences], &mut |_, _| {
        start.get_or_insert_with(Instant::now);
        ControlFlow::Continue(())
    })?;
    Ok(start.map_or(f64::NAN, |start| start.elapsed().as_secs_f64() / NEW as f64))
}

/// Seconds of a prompt, until the logits after its last token are there.
fn prompt_seconds(model: &Gpt) -> Result<f64, Failure> {
    let mut decoder = Decoder::new(model, 1, PROMPT)?;
    let ids = tokens(PROMPT);
    let start = Instant::now();
    decoder.append(0, &ids, PROMPT)?.wait()?;
    Ok(start.elapsed().as_secs_f64())
}
