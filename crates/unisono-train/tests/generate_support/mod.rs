//! Models whose texts are lively, prompts, and requests: what the tests of generation share.

#![allow(dead_code)]

use std::cell::RefCell;
use std::collections::VecDeque;
use unisono_kernels::isa::Isa;
use unisono_kernels::philox::Stream;
use unisono_kernels::random::fill_normal;
use unisono_nn::layers::Activation;
use unisono_nn::models::{Gpt, GptConfig, Llama, LlamaConfig, Positions};
use unisono_nn::parameter::Table;
use unisono_nn::rope::{Rope, RopeScaling};
use unisono_nn::{LanguageModel, Model, Regime};
use unisono_tensor::ops::attention::KvCache;
use unisono_tensor::{Dtype, Mesh, MeshDevice, Options, Tensor};
use unisono_train::generate::{Request, Sampling};

pub const POSITIONS: usize = 96;

pub fn config() -> GptConfig {
    GptConfig {
        vocab_size: 65,
        max_sequence_length: POSITIONS,
        num_blocks: 2,
        num_heads: 8,
        num_groups: 4,
        embedding_dim: 64,
        intermediate_dim: 256,
        dropout: 0.1,
        bias: true,
        weight_tying: true,
        positions: Positions::Trainable,
        activation: Activation::Gelu,
        recompute: false,
        dtype: Dtype::F32,
    }
}

/// A model whose values are large enough for lively texts.
pub fn model_of(config: GptConfig, axes: &[(&str, usize)], workers: usize, isa: Isa) -> Gpt {
    let options = Options {
        workers: Some(workers),
        isa: Some(isa),
        memory_limit: Some(64 << 20),
        ..Options::default()
    };
    let device = MeshDevice::open(Mesh::new(axes).unwrap(), options).unwrap();
    let model = Gpt::new(&device, config).unwrap();
    enliven(&model);
    model
}

/// Gives a model values that are large enough for lively texts.
pub fn enliven(model: &dyn Model) {
    for (index, parameter) in model.table().all().enumerate() {
        let mut values = vec![0.0; parameter.spec.padded().iter().product()];
        let stream = Stream {
            seed: 3,
            site: index as u32,
            step: 0,
        };
        let real = parameter.num_elements();
        let gain = parameter.spec.dims.len() == 1 && parameter.name.ends_with("weight");
        fill_normal(&stream, 0, if gain { 1.0 } else { 0.0 }, 0.3, &mut values[..real]);
        parameter.tensor.upload_global(&values).unwrap();
    }
}

pub fn model(axes: &[(&str, usize)]) -> Gpt {
    model_of(config(), axes, 1, Isa::detect())
}

pub fn model_in(dtype: Dtype, axes: &[(&str, usize)]) -> Gpt {
    model_of(GptConfig { dtype, ..config() }, axes, 1, Isa::detect())
}

pub const DTYPES: [Dtype; 2] = [Dtype::F32, Dtype::Bf16];

pub fn ids(len: usize, seed: u64) -> Vec<u32> {
    let stream = Stream { seed, site: 0, step: 0 };
    (0..len as u64).map(|i| stream.word(i) % 65).collect()
}

/// Five prompts of different lengths, each with settings of its own.
pub fn requests() -> Vec<Request> {
    let sampling = [
        Sampling::greedy(),
        Sampling::default(),
        Sampling {
            temperature: 0.8,
            top_k: Some(12),
            seed: 4,
            ..Sampling::default()
        },
        Sampling {
            top_p: 0.7,
            repetition_penalty: 1.3,
            seed: 5,
            ..Sampling::default()
        },
        Sampling {
            repetition_penalty: 1.2,
            ..Sampling::greedy()
        },
    ];
    let lengths = [(1, 20), (70, 12), (7, 31), (33, 1), (18, 24)];
    lengths
        .into_iter()
        .zip(sampling)
        .enumerate()
        .map(|(i, ((len, max_new_tokens), sampling))| Request {
            prompt_ids: ids(len, 100 + i as u64),
            max_new_tokens,
            sampling,
            ..Request::default()
        })
        .collect()
}

/// A Llama with grouped heads, which only runs.
pub fn llama(dtype: Dtype, axes: &[(&str, usize)]) -> Llama {
    let config = LlamaConfig {
        vocab_size: 65,
        max_sequence_length: 300,
        num_blocks: 2,
        num_heads: 8,
        num_groups: 4,
        head_dim: 8,
        embedding_dim: 64,
        intermediate_dim: 96,
        rope: Rope {
            theta: 10_000.0,
            scaling: RopeScaling::None,
        },
        norm_eps: 1e-5,
        weight_tying: true,
        qkv_bias: true,
        output_bias: false,
        mlp_bias: false,
        qk_norm: true,
        dropout: 0.0,
        recompute: false,
        dtype,
    };
    let device = MeshDevice::open(Mesh::new(axes).unwrap(), Options::default()).unwrap();
    let regime = Regime {
        frozen: true,
        ..Regime::default()
    };
    let model = Llama::new(&device, config, regime).unwrap();
    enliven(&model);
    model
}

/// A model that notes the shape of what each device gets in each pass: sequences and tokens. It may be told what to write.
pub struct Spy<'a> {
    model: &'a dyn LanguageModel,
    passes: RefCell<Vec<[usize; 2]>>,
    script: RefCell<VecDeque<u32>>,
}

impl Spy<'_> {
    pub fn of(model: &dyn LanguageModel) -> Spy<'_> {
        Spy {
            model,
            passes: RefCell::default(),
            script: RefCell::default(),
        }
    }

    /// One that writes these tokens, whatever it is asked; for a single sequence on a single device.
    pub fn scripted(model: &dyn LanguageModel, script: impl IntoIterator<Item = u32>) -> Spy<'_> {
        Spy {
            script: RefCell::new(script.into_iter().collect()),
            ..Spy::of(model)
        }
    }

    /// What was noted since the last call.
    pub fn take(&self) -> Vec<[usize; 2]> {
        self.passes.take()
    }
}

impl Model for Spy<'_> {
    fn table(&self) -> &Table {
        self.model.table()
    }

    fn losses(&self, inputs: &Tensor, targets: &Tensor, scale: f32) -> unisono_tensor::Result<Tensor> {
        self.model.losses(inputs, targets, scale)
    }

    fn set_training(&self, on: bool) {
        self.model.set_training(on);
    }
}

impl LanguageModel for Spy<'_> {
    fn device(&self) -> &MeshDevice {
        self.model.device()
    }

    fn vocab_size(&self) -> usize {
        self.model.vocab_size()
    }

    fn max_sequence_length(&self) -> usize {
        self.model.max_sequence_length()
    }

    fn forward(&self, ids: &Tensor) -> unisono_tensor::Result<Tensor> {
        self.model.forward(ids)
    }

    fn forward_cached(&self, ids: &Tensor, caches: &[KvCache], positions: &Tensor) -> unisono_tensor::Result<Tensor> {
        let shape = ids.local_shape();
        self.passes.borrow_mut().push([shape[0], shape[1]]);
        self.model.forward_cached(ids, caches, positions)
    }

    fn caches(&self, batch: usize, capacity: usize) -> unisono_tensor::Result<Vec<KvCache>> {
        self.model.caches(batch, capacity)
    }

    fn logits(&self, features: &Tensor) -> unisono_tensor::Result<Tensor> {
        let Some(next) = self.script.borrow_mut().pop_front() else {
            return self.model.logits(features);
        };
        let mut logits = vec![0.0; self.vocab_size()];
        logits[next as usize] = 1e4;
        self.device().tensor(&logits, &[1, 1, logits.len()])
    }
}
