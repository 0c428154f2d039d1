//! A tiny GPT on any mesh, trained step by step on real batches, saved and restored: what the tests of checkpoints, exports
//! and comparisons share.

// Each test file uses the part that it needs.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use unisono_data::{Batch, IGNORE, Tokens, TrainBatches, Windows};
use unisono_nn::layers::Activation;
use unisono_nn::models::{Gpt, GptConfig, Positions};
use unisono_nn::optimizers::{AdamW, AdamWConfig};
use unisono_nn::{GradientNorm, Model, Optimizer};
use unisono_tensor::{Dtype, Mesh, MeshDevice, Options, Result, Rows};
use unisono_train::checkpoint::{Checkpoint, Checkpoints, Keep, Live, Restored, Saved, State};

/// Sequences of an optimizer step.
pub const SEQUENCES: usize = 8;
/// Tokens of a sequence.
pub const TOKENS: usize = 16;
const SEED: u64 = 42;

/// Dropout, biases, a tied head, a vocabulary that no unit divides: everything that a checkpoint could get wrong.
pub fn tiny() -> GptConfig {
    GptConfig {
        vocab_size: 65,
        max_sequence_length: TOKENS,
        num_blocks: 2,
        num_heads: 4,
        num_groups: 4,
        embedding_dim: 32,
        intermediate_dim: 64,
        dropout: 0.1,
        bias: true,
        weight_tying: true,
        positions: Positions::Trainable,
        activation: Activation::Gelu,
        recompute: false,
        dtype: Dtype::F32,
    }
}

/// A run: everything that training holds.
pub struct Run {
    pub device: MeshDevice,
    pub model: Gpt,
    pub optimizer: Box<dyn Optimizer>,
    pub state: State,
    norm: GradientNorm,
    batches: TrainBatches,
    accumulation: usize,
}

/// The devices of a mesh.
pub fn open(axes: &[(&str, usize)]) -> MeshDevice {
    let options = Options {
        workers: Some(1),
        memory_limit: Some(64 << 20),
        ..Options::default()
    };
    let device = MeshDevice::open(Mesh::new(axes).expect("a mesh of the test"), options).expect("devices open");
    device.set_seed(SEED);
    device
}

/// AdamW over a model's parameters.
pub fn adamw(model: &Gpt) -> Box<dyn Optimizer> {
    let config = AdamWConfig {
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.1,
        decay_norms_and_biases: false,
    };
    Box::new(AdamW::new(model.parameters(), config).expect("there is room for the moments"))
}

/// One line of a run's history: loss and gradient norm.
pub type Step = (f32, f32);

impl Run {
    /// A fresh run on a mesh, in micro-steps of a share of the batch.
    pub fn new(axes: &[(&str, usize)], accumulation: usize) -> Run {
        Run::of(axes, accumulation, tiny())
    }

    /// The same for another model.
    pub fn of(axes: &[(&str, usize)], accumulation: usize, config: GptConfig) -> Run {
        let device = open(axes);
        let vocab_size = config.vocab_size;
        let model = Gpt::new(&device, config).expect("the mesh cuts the model");
        let optimizer = adamw(&model);
        let norm = GradientNorm::new(&device, model.parameters().len(), Some(0.5)).expect("there is room");
        // 37 samples: an epoch ends inside the fifth step.
        let tokens = Tokens::random(3, 37 + TOKENS, vocab_size).expect("tokens");
        let windows = Windows::new(tokens, TOKENS).expect("windows");
        assert_eq!(windows.num_samples(), 37);
        let batches = TrainBatches::new(windows, SEED, true).expect("batches");
        let state = State {
            seed: SEED,
            ..State::default()
        };
        Run {
            device,
            model,
            optimizer,
            state,
            norm,
            batches,
            accumulation,
        }
    }

    /// Trains until `step` steps are done.
    pub fn train(&mut self, step: u64) -> Vec<Step> {
        (self.state.step..step)
            .map(|_| self.step().expect("a step is made"))
            .collect()
    }

    fn step(&mut self) -> Result<Step> {
        let step = self.state.step;
        self.device.set_step(step as u32);
        let mut batch = Batch::default();
        self.batches
            .fill(self.state.samples, SEQUENCES, &mut batch)
            .expect("the data does not end");
        let axis = self.device.axis("dp");
        let positions = axis.map_or(1, |axis| axis.size);
        let each = SEQUENCES / positions;
        let count = each / self.accumulation;
        let scale = 1.0 / batch.num_targets() as f32;
        let mut by_sequence = [0.0; SEQUENCES];
        self.model.parameters().iter().for_each(|p| p.tensor.zero_grad());
        for micro in 0..self.accumulation {
            let rows = Rows {
                total: SEQUENCES,
                axis,
                skip: micro * count,
                count,
            };
            let owned: Vec<usize> = (0..positions)
                .flat_map(|p| (0..count).map(move |i| p * each + micro * count + i))
                .collect();
            let pick = |values: &[u32]| -> Vec<u32> {
                owned
                    .iter()
                    .flat_map(|s| values[s * TOKENS..(s + 1) * TOKENS].to_vec())
                    .collect()
            };
            let shape = [owned.len(), TOKENS];
            let ids = self.device.micro_batch_u32(&pick(&batch.inputs), &shape, rows)?;
            let targets = self.device.micro_batch_u32(&pick(&batch.targets), &shape, rows)?;
            let losses = self.model.losses(&ids, &targets, scale)?;
            losses.backward()?;
            for (sequence, loss) in owned.iter().zip(losses.to_vec()?) {
                by_sequence[*sequence] = loss;
            }
        }
        let loss = by_sequence.iter().fold(0.0, |sum, loss| sum + loss) * scale;
        let parameters = self.model.parameters();
        self.norm.measure(parameters, &self.device.full(loss, &[1])?)?;
        let norm = self.device.runtime().read_f32(self.norm.control(), 0)?[0];
        self.optimizer.step(parameters, 3e-3, step, self.norm.control())?;
        self.state.step += 1;
        self.state.samples += SEQUENCES as u64;
        self.state.tokens += batch.targets.iter().filter(|t| **t != IGNORE).count() as u64;
        Ok((loss, norm))
    }

    /// What a checkpoint of it is made of.
    pub fn live(&self) -> Live<'_> {
        Live {
            state: &self.state,
            parameters: self.model.parameters(),
            optimizer: self.optimizer.as_ref(),
            config_digest: "config",
            data_digest: "data",
        }
    }

    /// Saves into a directory.
    pub fn save_to(&self, store: &Checkpoints, keep: Keep) -> unisono_train::checkpoint::Result<Saved> {
        store.save(&self.live(), keep)
    }

    /// Saves, keeping the last three.
    pub fn save(&self, directory: &Path) -> PathBuf {
        let keep = Keep { last: 3, best: false };
        self.save_to(&Checkpoints::new(directory), keep)
            .expect("it is saved")
            .path
    }

    /// Goes on from a checkpoint.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Restored {
        let restored = checkpoint
            .restore(self.model.parameters(), self.optimizer.as_ref())
            .expect("it fits");
        self.state = checkpoint.manifest().state.clone();
        restored
    }
}

/// Every file of a directory by name, with its contents.
pub fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(directory)
        .expect("the directory is there")
        .map(|entry| {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("a name of ours");
            (name, std::fs::read(entry.path()).expect("a file"))
        })
        .collect();
    files.sort();
    files
}

/// The names in a directory, sorted.
pub fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .expect("the directory is there")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a name of ours")
        })
        .collect();
    names.sort();
    names
}

/// Bits of a history, for comparison.
pub fn bits(steps: &[Step]) -> Vec<(u32, u32)> {
    steps
        .iter()
        .map(|(loss, norm)| (loss.to_bits(), norm.to_bits()))
        .collect()
}
