//! One body for every layout: a tiny GPT is trained for some steps, and what came out is compared bit by bit.

// Each test file uses the part that it needs.
#![allow(dead_code)]

use unisono_kernels::isa::Isa;
use unisono_kernels::philox::Stream;
use unisono_nn::layers::Activation;
use unisono_nn::models::{Gpt, GptConfig, Positions};
use unisono_nn::optimizers::{AdamW, AdamWConfig};
use unisono_nn::{GradientNorm, Model, Optimizer};
use unisono_tensor::{Dtype, Mesh, MeshDevice, Options, Result, Rows, Tensor};

/// Where and how a run is made: all that must not show in its bits.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Axes of the mesh.
    pub axes: Vec<(&'static str, usize)>,
    /// Micro-batches of an optimizer step.
    pub accumulation: usize,
    /// Whether blocks are computed again in the backward pass.
    pub recompute: bool,
    /// Worker threads.
    pub workers: usize,
    /// Instruction set.
    pub isa: Isa,
}

/// One worker, no accumulation, this CPU's instruction set.
pub fn on(axes: &[(&'static str, usize)]) -> Layout {
    Layout {
        axes: axes.to_vec(),
        accumulation: 1,
        recompute: false,
        workers: 1,
        isa: Isa::detect(),
    }
}

impl Layout {
    pub fn accumulate(self, accumulation: usize) -> Layout {
        Layout { accumulation, ..self }
    }

    pub fn recompute(self) -> Layout {
        Layout {
            recompute: true,
            ..self
        }
    }

    pub fn workers(self, workers: usize) -> Layout {
        Layout { workers, ..self }
    }

    pub fn isa(self, isa: Isa) -> Layout {
        Layout { isa, ..self }
    }

    pub fn open(&self) -> Result<MeshDevice> {
        let options = Options {
            workers: Some(self.workers),
            isa: Some(self.isa),
            memory_limit: Some(64 << 20),
            ..Options::default()
        };
        MeshDevice::open(Mesh::new(&self.axes)?, options)
    }
}

/// What is trained, and on how much.
#[derive(Clone, Debug)]
pub struct Task {
    pub config: GptConfig,
    /// Sequences of an optimizer step.
    pub sequences: usize,
    /// Tokens of a sequence.
    pub tokens: usize,
    /// Optimizer steps.
    pub steps: u32,
    /// An attention mask, the same for each sequence.
    pub attention_mask: bool,
    /// By how many places the sequences of a step are rotated: other orders of the same addends.
    pub rotation: usize,
}

/// A tiny GPT: dropout 0.1, tied, biases, 4 heads in 4 groups.
pub fn tiny() -> GptConfig {
    GptConfig {
        vocab_size: 65,
        max_sequence_length: 40,
        num_blocks: 2,
        num_heads: 4,
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

/// Five steps of eight sequences of 32 tokens.
pub fn task(config: GptConfig) -> Task {
    Task {
        config,
        sequences: 8,
        tokens: 32,
        steps: 5,
        attention_mask: false,
        rotation: 0,
    }
}

/// What a run leaves behind.
pub struct Outcome {
    /// Loss by step.
    pub losses: Vec<f32>,
    /// Gradient norm by step.
    pub norms: Vec<f32>,
    /// Parameters by name.
    pub parameters: Vec<(String, Vec<f32>)>,
}

impl Task {
    /// Ids and targets of one sequence of one step; every seventh target or so is masked, and all of one sequence.
    fn sequence(&self, step: u32, place: usize) -> (Vec<u32>, Vec<u32>) {
        let sequence = (place + self.rotation) % self.sequences;
        let stream = Stream { seed: 7, site: 1, step };
        let word = |i: usize| stream.word((sequence * (self.tokens + 1) + i) as u64);
        // Small ids are frequent, so there is something to learn.
        let id = |i: usize| (word(i) & 0xFFFF) * (word(i) >> 16) / 65_536 * self.config.vocab_size as u32 / 65_536;
        let ids = (0..self.tokens).map(id).collect();
        let masked = |i: usize| (word(i) >> 16).is_multiple_of(7) || sequence == 3;
        let target = |i: usize| if masked(i) { u32::MAX } else { id(i + 1) };
        (ids, (0..self.tokens).map(target).collect())
    }

    /// One byte a (query, key), packed into words; each query sees itself.
    pub fn mask(&self, device: &MeshDevice) -> Result<Tensor> {
        let t = self.tokens;
        let byte = |i: usize| u32::from(i / t == i % t || !((i * 2_654_435_761) >> 7).is_multiple_of(3));
        let words: Vec<u32> = (0..t * t / 4)
            .map(|w| (0..4).fold(0, |word, b| word | byte(4 * w + b) << (8 * b)))
            .collect();
        device.tensor_u32(&words, &[t, t / 4])
    }

    /// Trains on one layout.
    pub fn run(&self, layout: &Layout) -> Result<Outcome> {
        let device = layout.open()?;
        device.set_seed(42);
        let config = GptConfig {
            recompute: layout.recompute,
            ..self.config.clone()
        };
        let mut model = Gpt::new(&device, config)?;
        if self.attention_mask {
            model.set_mask(Some(self.mask(&device)?));
        }
        let mut optimizer = AdamW::new(
            model.parameters(),
            AdamWConfig {
                beta1: 0.9,
                beta2: 0.99,
                epsilon: 1e-8,
                weight_decay: 0.1,
                decay_norms_and_biases: false,
            },
        )?;
        let norm = GradientNorm::new(&device, model.parameters().len(), Some(0.5))?;
        let (mut losses, mut norms) = (Vec::new(), Vec::new());
        for step in 0..self.steps {
            device.set_step(step);
            losses.push(self.gradients(&device, &model, step, layout.accumulation)?);
            let last = device.full(losses[step as usize], &[1])?;
            norm.measure(model.parameters(), &last)?;
            norms.push(device.runtime().read_f32(norm.control(), 0)?[0]);
            optimizer.step(model.parameters(), 3e-3, u64::from(step), norm.control())?;
        }
        let parameters = values(&model)?;
        Ok(Outcome {
            losses,
            norms,
            parameters,
        })
    }

    /// Leaves a step's gradients in the model and returns its loss.
    pub fn gradients(&self, device: &MeshDevice, model: &Gpt, step: u32, accumulation: usize) -> Result<f32> {
        let axis = device.axis("dp");
        let positions = axis.map_or(1, |axis| axis.size);
        let each = self.sequences / positions;
        let count = each / accumulation;
        assert_eq!(
            positions * count * accumulation,
            self.sequences,
            "the layout must divide the batch"
        );
        let targets = (0..self.sequences).flat_map(|s| self.sequence(step, s).1);
        let scale = 1.0 / targets.filter(|t| *t != u32::MAX).count() as f32;
        let mut by_sequence = vec![f32::NAN; self.sequences];
        for parameter in model.parameters() {
            parameter.tensor.zero_grad();
        }
        for micro in 0..accumulation {
            let rows = Rows {
                total: self.sequences,
                axis,
                skip: micro * count,
                count,
            };
            let owned: Vec<usize> = (0..positions)
                .flat_map(|p| (0..count).map(move |i| p * each + micro * count + i))
                .collect();
            let (mut ids, mut targets) = (Vec::new(), Vec::new());
            for sequence in &owned {
                let (i, t) = self.sequence(step, *sequence);
                ids.extend(i);
                targets.extend(t);
            }
            let shape = [owned.len(), self.tokens];
            let ids = device.micro_batch_u32(&ids, &shape, rows)?;
            let targets = device.micro_batch_u32(&targets, &shape, rows)?;
            let losses = model.losses(&ids, &targets, scale)?;
            losses.backward()?;
            for (sequence, loss) in owned.iter().zip(losses.to_vec()?) {
                by_sequence[*sequence] = loss;
            }
        }
        Ok(by_sequence.iter().fold(0.0, |sum, loss| sum + loss) * scale)
    }
}

/// All parameters.
pub fn values(model: &Gpt) -> Result<Vec<(String, Vec<f32>)>> {
    let parameters = model.parameters().iter();
    parameters.map(|p| Ok((p.name.clone(), p.tensor.to_vec()?))).collect()
}

/// The first difference in bits, in words.
pub fn difference(a: &Outcome, b: &Outcome) -> Option<String> {
    let list = |what: &str, a: &[f32], b: &[f32]| {
        if a.len() != b.len() {
            return Some(format!("{what}: {} values against {}", a.len(), b.len()));
        }
        let at = (0..a.len()).find(|i| a[*i].to_bits() != b[*i].to_bits())?;
        let count = (0..a.len()).filter(|i| a[*i].to_bits() != b[*i].to_bits()).count();
        let (x, y) = (a[at], b[at]);
        Some(format!(
            "{what}[{at}]: {x:e} ({:08x}) against {y:e} ({:08x}); {count} of {} differ",
            x.to_bits(),
            y.to_bits(),
            a.len()
        ))
    };
    list("loss by step", &a.losses, &b.losses)
        .or_else(|| list("norm by step", &a.norms, &b.norms))
        .or_else(|| {
            let pairs = a.parameters.iter().zip(&b.parameters);
            pairs
                .filter_map(|((name, x), (_, y))| list(name, x, y))
                .reduce(|all, one| all + "\n  " + &one)
        })
}
