//! How fast models generate: new tokens by the KV cache, and a prompt at once, for a GPT-2 of 124 M parameters and a Llama of
//! SmolLM2-135M's shape, both with random weights.
//!
//! A new token reads every weight once, so the roof is the rate of reading; a prompt is limited by arithmetic.

use crate::exit::Failure;
use std::ops::ControlFlow;
use std::time::Instant;
use unisono_nn::layers::Activation;
use unisono_nn::models::{GptConfig, LlamaConfig, Positions};
use unisono_nn::rope::{Rope, RopeScaling};
use unisono_nn::{LanguageModel, Regime};
use unisono_tensor::{Dtype, MeshDevice};
use unisono_train::generate::{Decoder, Request, Sampling, generate};
use unisono_train::model::ModelSpec;

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

/// The models: name, definition, elements of tables that a prompt does not multiply.
fn models(dtype: Dtype) -> [(&'static str, ModelSpec, usize); 2] {
    let gpt2 = GptConfig {
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
    };
    let smol = LlamaConfig {
        vocab_size: 49_152,
        max_sequence_length: 8192,
        num_blocks: 30,
        num_heads: 9,
        num_groups: 3,
        head_dim: 64,
        embedding_dim: 576,
        intermediate_dim: 1536,
        rope: Rope {
            theta: 100_000.0,
            scaling: RopeScaling::None,
        },
        norm_eps: 1e-5,
        weight_tying: true,
        qkv_bias: false,
        output_bias: false,
        mlp_bias: false,
        qk_norm: false,
        dropout: 0.0,
        recompute: false,
        dtype,
    };
    let gpt2_tables = (gpt2.vocab_size + gpt2.max_sequence_length) * gpt2.embedding_dim;
    let smol_tables = smol.vocab_size * smol.embedding_dim;
    [
        ("gpt2 124M", ModelSpec::Gpt(gpt2), gpt2_tables),
        ("SmolLM2-135M", ModelSpec::Llama(smol), smol_tables),
    ]
}

/// The names, by kind of number: one and eight sequences, and a prompt.
fn names(model: &str, dtype: Dtype) -> [(String, usize); 3] {
    let dtype = dtype.name();
    [
        (format!("decode {model} {dtype}"), 1),
        (format!("decode {model}, 8 sequences {dtype}"), 8),
        (format!("prompt {model}, {PROMPT} tokens {dtype}"), 0),
    ]
}

const DTYPES: [Dtype; 2] = [Dtype::F32, Dtype::Bf16];

/// Whether a name contains the filter.
pub fn generates(filter: &str) -> bool {
    let of = |dtype: Dtype| models(dtype).map(|(model, ..)| names(model, dtype));
    let mut all = DTYPES.into_iter().flat_map(of).flatten();
    all.any(|(name, _)| name.contains(filter))
}

/// Measures what has a name that contains the filter, each `repetitions` times.
///
/// # Errors
/// Too little memory.
pub fn generations(device: &MeshDevice, filter: &str, repetitions: usize) -> Result<Vec<Generation>, Failure> {
    let mut all = Vec::new();
    for dtype in DTYPES {
        for (model, spec, tables) in models(dtype) {
            let mut wanted = names(model, dtype).to_vec();
            wanted.retain(|(name, _)| name.contains(filter));
            if wanted.is_empty() {
                continue;
            }
            // As generation holds a model: weights in one kind, no gradients.
            let regime = Regime {
                frozen: true,
                ..Regime::default()
            };
            let live = spec.build(device, &regime)?;
            live.as_model().set_training(false);
            let Some(model) = live.as_language_model() else {
                continue;
            };
            let weights = model.num_parameters() as f64;
            for (name, sequences) in wanted {
                let run = || match sequences {
                    0 => prompt_seconds(model),
                    n => step_seconds(model, n),
                };
                all.push(Generation {
                    name,
                    dtype,
                    seconds: (0..repetitions).map(|_| run()).collect::<Result<_, _>>()?,
                    // The head sees a prompt's last token only, and tables are looked up.
                    flops: match sequences {
                        0 => 2.0 * (weights - tables as f64) * PROMPT as f64,
                        n => 2.0 * weights * n as f64,
                    },
                    bytes: dtype.bytes() as f64 * weights,
                });
            }
        }
    }
    Ok(all)
}

fn tokens(n: usize) -> Vec<u32> {
    (0..n).map(|i| (i * 7919 % 49_152) as u32).collect()
}

/// Seconds of one step of greedy decoding, from the first new token on.
fn step_seconds(model: &dyn LanguageModel, sequences: usize) -> Result<f64, Failure> {
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
fn prompt_seconds(model: &dyn LanguageModel) -> Result<f64, Failure> {
    let mut decoder = Decoder::new(model, 1, PROMPT)?;
    let ids = tokens(PROMPT);
    let start = Instant::now();
    decoder.append(0, &ids, PROMPT)?.wait()?;
    Ok(start.elapsed().as_secs_f64())
}
