//! The promise at the level of operations: gradients and losses do not change by one bit with mesh, accumulation and the
//! sizes of the micro-batches; and controls that break the order in one place each, which must show.

mod common;

use common::{Draw, difference, open, values};
use unisono_kernels::scratch::Scratch;
use unisono_runtime::ops::all_reduce::RingSum;
use unisono_runtime::{BufferRef, Cost, Op, Place};
use unisono_tensor::create::{Init, ParameterDim, ParameterSpec};
use unisono_tensor::ops::matmul::Activation;
use unisono_tensor::{Dtype, MeshDevice, Result, Rows, Tensor};

/// What is computed: the sizes of a small network and of its batch.
#[derive(Clone, Debug)]
struct Case {
    sequences: usize,
    tokens: usize,
    width: usize,
    hidden: usize,
    vocabulary: usize,
    units: usize,
    dropout: f32,
    ids: Vec<u32>,
    /// Targets; some are masked.
    targets: Vec<u32>,
    dtype: Dtype,
}

/// Where it is computed: all that must not show.
#[derive(Clone, Debug)]
struct Layout {
    dp: usize,
    tp: usize,
    /// Sequences of each micro-batch on each device.
    micro: Vec<usize>,
    /// How the vocabulary is padded; always the case's own units but in a control.
    vocabulary_units: usize,
}

/// Losses and gradients by name.
type Outcome = Vec<(&'static str, Vec<f32>)>;

fn first_difference(found: &Outcome, expected: &Outcome) -> Option<String> {
    let pairs = found.iter().zip(expected);
    pairs.filter_map(|((name, a), (_, b))| difference(name, a, b)).next()
}

impl Case {
    fn draw(draw: &mut Draw) -> Case {
        let units = draw.one(&[2, 4, 6, 12]);
        let sequences = draw.one(&[1, 2, 3, 4, 6, 8, 12]);
        let tokens = draw.int(1, 9);
        let vocabulary = draw.int(units, 70);
        let n = sequences * tokens;
        let mut targets = draw.ids(n, vocabulary);
        for target in &mut targets {
            if draw.int(0, 4) == 0 {
                *target = u32::MAX;
            }
        }
        // A whole sequence without a target.
        if sequences > 1 && draw.int(0, 1) == 0 {
            targets[..tokens].fill(u32::MAX);
        }
        Case {
            sequences,
            tokens,
            width: draw.int(1, 40),
            hidden: units * draw.int(1, 12),
            vocabulary,
            units,
            dropout: draw.one(&[0.0, 0.25]),
            ids: draw.ids(n, vocabulary),
            targets,
            dtype: draw.one(&[Dtype::F32, Dtype::Bf16]),
        }
    }

    fn one_device(&self) -> Layout {
        Layout {
            dp: 1,
            tp: 1,
            micro: vec![self.sequences],
            vocabulary_units: self.units,
        }
    }

    fn layout(&self, draw: &mut Draw) -> Layout {
        let divisors = |n: usize| (1..=4).filter(|d| n.is_multiple_of(*d)).collect::<Vec<_>>();
        let dp = draw.one(&divisors(self.sequences));
        let tp = draw.one(&divisors(self.units));
        let mut left = self.sequences / dp;
        let mut micro = Vec::new();
        while left > 0 {
            micro.push(draw.int(1, left));
            left -= micro[micro.len() - 1];
        }
        Layout {
            dp,
            tp,
            micro,
            vocabulary_units: self.units,
        }
    }

    /// Losses by sequence and gradients of all parameters after one optimizer step's forward and backward passes.
    fn run(&self, layout: &Layout) -> Result<Outcome> {
        let device = open(&[("dp", layout.dp), ("tp", layout.tp)]);
        device.set_seed(11);
        let p = Parameters::new(&device, self, layout.vocabulary_units)?;
        let axis = device.axis("dp");
        let each = self.sequences / layout.dp;
        let unmasked = self.targets.iter().filter(|t| **t != u32::MAX).count();
        let mut losses = vec![0.0; self.sequences];
        let mut skip = 0;
        for count in &layout.micro {
            let owned: Vec<usize> = (0..layout.dp)
                .flat_map(|i| (0..*count).map(move |s| i * each + skip + s))
                .collect();
            let pick = |all: &[u32]| -> Vec<u32> {
                let tokens = |s: &usize| all[s * self.tokens..(s + 1) * self.tokens].to_vec();
                owned.iter().flat_map(tokens).collect()
            };
            let rows = Rows {
                total: self.sequences,
                axis,
                skip,
                count: *count,
            };
            let shape = [owned.len(), self.tokens];
            let ids = device.micro_batch_u32(&pick(&self.ids), &shape, rows)?;
            let targets = device.micro_batch_u32(&pick(&self.targets), &shape, rows)?;
            let found = p.losses(self, &ids, &targets, 1.0 / unmasked.max(1) as f32)?;
            found.backward()?;
            for (sequence, loss) in owned.iter().zip(found.to_vec()?) {
                losses[*sequence] = loss;
            }
            skip += count;
        }
        p.outcome(self, losses)
    }
}

struct Parameters {
    table: Tensor,
    positions: Tensor,
    gain: Tensor,
    offset: Tensor,
    expand: Tensor,
    expand_bias: Tensor,
    shrink: Tensor,
    shrink_bias: Tensor,
    last_gain: Tensor,
}

/// A parameter of real sizes `len`; dimension `cut` is in `units` units along `tp`.
fn parameter(device: &MeshDevice, seed: u64, len: &[usize], cut: Option<(usize, usize)>) -> Result<Tensor> {
    let dims = len.iter().enumerate().map(|(dim, len)| {
        let units = cut.filter(|(cut, _)| *cut == dim).map(|(_, units)| units);
        ParameterDim {
            len: *len,
            units: units.unwrap_or(1),
            axis: units.map(|_| "tp"),
        }
    });
    let spec = ParameterSpec {
        dims: dims.collect(),
        init: Init::Zeros,
    };
    let t = device.parameter(&format!("parameter {seed}"), &spec)?;
    let mut all = values(seed, len.iter().product());
    // Only first dimensions have padding here.
    all.resize(spec.padded().iter().product(), 0.0);
    t.upload_global(&all)?;
    Ok(t)
}

impl Parameters {
    fn new(device: &MeshDevice, c: &Case, vocabulary_units: usize) -> Result<Parameters> {
        let of = |seed, len: &[usize], cut| -> Result<Tensor> {
            let t = parameter(device, seed, len, cut)?;
            if len.len() > 1 {
                t.keep_copy(c.dtype)?;
            }
            Ok(t)
        };
        Ok(Parameters {
            table: of(1, &[c.vocabulary, c.width], Some((0, vocabulary_units)))?,
            positions: of(2, &[c.tokens + 2, c.width], None)?,
            gain: of(3, &[c.width], None)?,
            offset: of(4, &[c.width], None)?,
            expand: of(5, &[c.width, c.hidden], Some((1, c.units)))?,
            expand_bias: of(6, &[c.hidden], Some((0, c.units)))?,
            shrink: of(7, &[c.hidden, c.width], Some((0, c.units)))?,
            shrink_bias: of(8, &[c.width], None)?,
            last_gain: of(9, &[c.width], None)?,
        })
    }

    fn losses(&self, c: &Case, ids: &Tensor, targets: &Tensor, scale: f32) -> Result<Tensor> {
        let x = self.table.embedding(ids)?.add_rows(&self.positions)?;
        let h = x.layer_norm(Some(&self.gain), Some(&self.offset), 1e-5)?;
        let h = h
            .broadcast("tp")?
            .linear(&self.expand, Some(&self.expand_bias), Activation::Gelu)?;
        let h = match h.device().axis("tp") {
            None => h.linear(&self.shrink, Some(&self.shrink_bias), Activation::None)?,
            Some(_) => h
                .linear(&self.shrink, None, Activation::None)?
                .all_reduce_f32("tp")?
                .add(&self.shrink_bias)?
                .to_dtype(c.dtype)?,
        };
        h.dropout_add(&x, c.dropout, 1)?
            .rms_norm(Some(&self.last_gain), 1e-5)?
            .linear_cross_entropy(&self.table, targets, c.vocabulary, scale)
    }

    fn outcome(&self, c: &Case, losses: Vec<f32>) -> Result<Outcome> {
        let named = [
            ("d positions", &self.positions),
            ("d gain", &self.gain),
            ("d offset", &self.offset),
            ("d expand", &self.expand),
            ("d expand bias", &self.expand_bias),
            ("d shrink", &self.shrink),
            ("d shrink bias", &self.shrink_bias),
            ("d last gain", &self.last_gain),
        ];
        let grad = |t: &Tensor| t.grad()?.expect("every parameter takes part").to_vec();
        let mut outcome = vec![("losses", losses)];
        let mut table = grad(&self.table)?;
        // Padding has no gradient, and its size may differ in a control.
        assert!(table[c.vocabulary * c.width..].iter().all(|g| *g == 0.0));
        table.truncate(c.vocabulary * c.width);
        outcome.push(("d table", table));
        for (name, t) in named {
            outcome.push((name, grad(t)?));
        }
        Ok(outcome)
    }
}

#[test]
fn random_shapes_on_random_meshes_with_random_micro_batches() {
    for seed in 0..60 {
        let draw = &mut Draw::new(1000 + seed);
        let case = Case::draw(draw);
        let expected = case.run(&case.one_device()).expect("one device computes");
        for _ in 0..4 {
            let layout = case.layout(draw);
            let found = case
                .run(&layout)
                .unwrap_or_else(|error| panic!("seed {seed}, {layout:?}: {error}\n{case:?}"));
            if let Some(difference) = first_difference(&found, &expected) {
                panic!("seed {seed}, {layout:?}: {difference}\n{case:?}");
            }
        }
    }
}

/// A case large enough that any broken order shows.
fn control() -> Case {
    let draw = &mut Draw::new(5);
    Case {
        sequences: 12,
        tokens: 7,
        width: 24,
        hidden: 96,
        vocabulary: 50,
        units: 12,
        ids: draw.ids(84, 50),
        targets: draw.ids(84, 50),
        dtype: Dtype::F32,
        ..Case::draw(draw)
    }
}

#[test]
fn control_padding_that_depends_on_the_mesh() {
    let case = control();
    let expected = case.run(&case.one_device()).expect("one device computes");
    for tp in [2, 3, 4] {
        let layout = |vocabulary_units| Layout {
            tp,
            vocabulary_units,
            ..case.one_device()
        };
        let right = case.run(&layout(case.units)).expect("the mesh computes");
        assert_eq!(first_difference(&right, &expected), None);
        // As many units as devices: the vocabulary is padded to a multiple of them.
        let wrong = case.run(&layout(tp)).expect("the mesh computes");
        assert!(
            first_difference(&wrong, &expected).is_some(),
            "tp {tp}: padding by the mesh does not show"
        );
    }
}

#[test]
fn control_a_mean_of_means() -> Result<()> {
    let device = open(&[]);
    let x = values(1, 4 * 6);
    // 6, 2, 3 and 1 targets in the four sequences.
    let counts = [6, 2, 3, 1];
    let targets: Vec<u32> = (0..24)
        .map(|i| {
            if i % 6 < counts[i / 6] {
                (i % 5) as u32
            } else {
                u32::MAX
            }
        })
        .collect();
    let run = |micro: usize, scales: &[f32]| -> Result<Vec<f32>> {
        let head = parameter(&device, 2, &[5, 1], None)?;
        for (i, scale) in scales.iter().enumerate() {
            let rows = Rows {
                total: 4,
                axis: None,
                skip: i * micro,
                count: micro,
            };
            let range = i * micro * 6..(i + 1) * micro * 6;
            let x = device.micro_batch(&x[range.clone()], &[micro, 6, 1], rows)?;
            let targets = device.micro_batch_u32(&targets[range], &[micro, 6], rows)?;
            x.linear_cross_entropy(&head, &targets, 5, *scale)?.backward()?;
        }
        head.grad()?.expect("the head takes part").to_vec()
    };
    let right = 1.0 / 12.0;
    let expected = run(4, &[right])?;
    assert_eq!(difference("d head", &run(2, &[right; 2])?, &expected), None);
    assert_eq!(difference("d head", &run(1, &[right; 4])?, &expected), None);
    let means = run(2, &[0.5 / 8.0, 0.5 / 4.0])?;
    assert!(
        difference("d head", &means, &expected).is_some(),
        "a mean of means does not show"
    );
    Ok(())
}

/// A partial sum [6, 5] over four devices, and its right value.
fn partial(device: &MeshDevice) -> Result<(Tensor, Vec<f32>)> {
    let (a, b) = (values(1, 6 * 40), values(2, 40 * 5));
    let x = device.sharded(&a, &[6, 40], &[("tp", 1)])?;
    let w = device.sharded(&b, &[40, 5], &[("tp", 0)])?.requires_grad()?;
    let p = x.linear(&w, None, Activation::None)?;
    Ok((p, common::host_matmul(&a, &b, [6, 40, 5], 4)))
}

#[test]
fn control_a_ring_order() -> Result<()> {
    let device = open(&[("tp", 4)]);
    let (p, expected) = partial(&device)?;
    assert_eq!(difference("y", &p.all_reduce("tp")?.to_vec()?, &expected), None);
    let axis = device.axis("tp").expect("the axis is there");
    device.issue(std::sync::Arc::new(RingSum {
        axis,
        buffer: p.buffer(),
    }))?;
    let ring = p.to_vec_on(0)?;
    for (a, b) in ring.iter().zip(&expected) {
        assert!((a - b).abs() < 1e-5, "a ring's sum is the sum all the same");
    }
    assert!(
        difference("y", &ring, &expected).is_some(),
        "the order of a ring does not show"
    );
    Ok(())
}

/// Drops the lower half of each number, as sending a share in bf16 would.
#[derive(Debug)]
struct Truncate {
    buffer: BufferRef,
}

impl Op for Truncate {
    fn name(&self) -> &'static str {
        "truncate"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.buffer);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.buffer);
    }

    fn cost(&self, _mesh: &unisono_tensor::Mesh) -> Cost {
        Cost::default()
    }

    fn tiles(&self) -> usize {
        1
    }

    fn run(&self, place: &Place<'_>, _tile: usize, _scratch: &mut Scratch) {
        for value in place.write(self.buffer, 0, self.buffer.len) {
            *value = f32::from_bits(value.to_bits() & 0xFFFF_0000);
        }
    }
}

#[test]
fn control_a_rounded_partial_sum() -> Result<()> {
    let device = open(&[("tp", 4)]);
    let (p, expected) = partial(&device)?;
    device.issue(std::sync::Arc::new(Truncate { buffer: p.buffer() }))?;
    let rounded = p.all_reduce("tp")?.to_vec()?;
    for (a, b) in rounded.iter().zip(&expected) {
        assert!((a - b).abs() < 0.1, "it is near all the same: {a} and {b}");
    }
    assert!(
        difference("y", &rounded, &expected).is_some(),
        "rounding a share does not show"
    );
    Ok(())
}
