//! The promise at the level of models: the same bits on every mesh, with every accumulation, recomputed or not, by any
//! number of workers, on every instruction set.

mod common;

use common::{Layout, Outcome, Task, difference, on, task, tiny};
use unisono_kernels::isa::Isa;
use unisono_kernels::philox::Stream;
use unisono_nn::layers::Activation;
use unisono_nn::models::{GptConfig, Positions};
use unisono_tensor::Dtype;

/// Runs the task on every layout and compares with one device.
fn all_equal(task: &Task, layouts: &[Layout]) {
    equal(task, layouts, true);
}

fn equal(task: &Task, layouts: &[Layout], learns: bool) {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let config = GptConfig {
            dtype,
            ..task.config.clone()
        };
        equal_in(&Task { config, ..task.clone() }, layouts, learns);
    }
}

fn equal_in(task: &Task, layouts: &[Layout], learns: bool) {
    let reference = task.run(&on(&[])).expect("one device trains");
    assert!(
        reference.losses.iter().all(|loss| loss.is_finite()),
        "{:?}",
        reference.losses
    );
    assert!(
        !learns || reference.losses.last() < reference.losses.first(),
        "it does not learn: {:?}",
        reference.losses
    );
    let mut failures = Vec::new();
    for layout in layouts {
        match task.run(layout) {
            Err(error) => failures.push(format!("{layout:?}: {error}")),
            Ok(outcome) => failures.extend(difference(&reference, &outcome).map(|d| format!("{layout:?}:\n  {d}"))),
        }
    }
    assert!(failures.is_empty(), "{task:?}\n{}", failures.join("\n"));
}

#[test]
fn data_parallel_tensor_parallel_and_both_equal_one_device() {
    all_equal(
        &task(tiny()),
        &[
            on(&[("dp", 1)]),
            on(&[("dp", 2)]),
            on(&[("dp", 4)]),
            on(&[("dp", 8)]),
            on(&[("tp", 2)]),
            on(&[("tp", 4)]),
            on(&[("dp", 2), ("tp", 2)]),
            on(&[("tp", 2), ("dp", 2)]),
            on(&[("dp", 2), ("tp", 4)]),
        ],
    );
}

#[test]
fn any_accumulation_of_the_same_batch_is_equal() {
    all_equal(
        &task(tiny()),
        &[
            on(&[]).accumulate(2),
            on(&[]).accumulate(4),
            on(&[]).accumulate(8),
            on(&[("dp", 2)]).accumulate(2),
            on(&[("dp", 2)]).accumulate(4),
            on(&[("tp", 2)]).accumulate(4),
            on(&[("dp", 2), ("tp", 2)]).accumulate(2),
        ],
    );
}

#[test]
fn shares_that_do_not_align_with_the_tree_are_equal() {
    let task = Task {
        sequences: 12,
        steps: 3,
        ..task(tiny())
    };
    all_equal(
        &task,
        &[
            on(&[]).accumulate(3),
            on(&[]).accumulate(4),
            on(&[("dp", 3)]),
            on(&[("dp", 2)]).accumulate(3),
            on(&[("dp", 3), ("tp", 2)]).accumulate(2),
            on(&[("dp", 4)]).accumulate(3),
        ],
    );
}

#[test]
fn recomputation_and_workers_do_not_show() {
    all_equal(
        &task(tiny()),
        &[
            on(&[]).recompute(),
            on(&[("dp", 2), ("tp", 2)]).recompute().accumulate(2),
            on(&[]).workers(2),
            on(&[("dp", 2)]).workers(2).accumulate(2),
            on(&[("tp", 2)]).workers(2).recompute(),
            on(&[("dp", 2), ("tp", 2)]).workers(3),
        ],
    );
}

#[test]
fn instruction_sets_do_not_show() {
    let narrower = [Isa::Portable, Isa::Avx2]
        .into_iter()
        .filter(|isa| *isa < Isa::detect());
    let layouts: Vec<Layout> = narrower
        .flat_map(|isa| {
            [
                on(&[]).isa(isa),
                on(&[("dp", 2), ("tp", 2)]).isa(isa).accumulate(2).workers(2),
            ]
        })
        .collect();
    all_equal(&task(tiny()), &layouts);
}

#[test]
fn three_groups_of_two_heads_on_three_devices() {
    let config = GptConfig {
        num_heads: 6,
        num_groups: 3,
        embedding_dim: 96,
        intermediate_dim: 384,
        weight_tying: false,
        ..tiny()
    };
    let task = Task {
        sequences: 6,
        tokens: 40,
        ..task(config)
    };
    all_equal(
        &task,
        &[
            on(&[("tp", 3)]),
            on(&[("dp", 2), ("tp", 3)]),
            on(&[("dp", 3)]).accumulate(2),
            on(&[("dp", 2), ("tp", 3)]).recompute().accumulate(3).workers(2),
        ],
    );
}

#[test]
fn fixed_positions_masks_and_no_biases() {
    let config = GptConfig {
        bias: false,
        positions: Positions::Fixed,
        activation: Activation::Silu,
        num_groups: 2,
        ..tiny()
    };
    let task = Task {
        attention_mask: true,
        ..task(config)
    };
    all_equal(
        &task,
        &[
            on(&[("tp", 2)]),
            on(&[("dp", 4)]).accumulate(2),
            on(&[("dp", 2), ("tp", 2)]).recompute(),
        ],
    );
}

/// Sums longer than a leaf: 130 tokens (two leaves of 65), 300 hidden features a unit, 37 entries of the vocabulary a unit.
#[test]
fn odd_sizes_above_a_leaf() {
    let config = GptConfig {
        vocab_size: 147,
        max_sequence_length: 130,
        num_blocks: 1,
        embedding_dim: 132,
        intermediate_dim: 1200,
        ..tiny()
    };
    let task = Task {
        tokens: 130,
        sequences: 4,
        steps: 2,
        ..task(config)
    };
    all_equal(
        &task,
        &[
            on(&[("tp", 4)]),
            on(&[("dp", 2), ("tp", 2)]),
            on(&[("dp", 2)]).accumulate(2),
            on(&[]).workers(2),
        ],
    );
}

/// A control that must fail: the same addends in another order (the sequences rotated by one) show in the bits, though the
/// sums agree in all but the last of them.
#[test]
fn another_order_of_the_same_addends_shows() {
    let run = |rotation| {
        let config = GptConfig { dropout: 0.0, ..tiny() };
        let task = Task {
            rotation,
            steps: 1,
            ..task(config)
        };
        task.run(&on(&[("dp", 2)])).expect("it trains")
    };
    let (a, b): (Outcome, Outcome) = (run(0), run(1));
    assert!(
        (a.norms[0] - b.norms[0]).abs() < 1e-5 * a.norms[0],
        "{:?} {:?}",
        a.norms,
        b.norms
    );
    assert!(a.parameters != b.parameters);
}

/// Shapes and layouts drawn at random, two steps each.
#[test]
fn drawn_shapes_on_drawn_layouts() {
    for case in 0..14u32 {
        let stream = Stream {
            seed: 2024,
            site: case,
            step: 0,
        };
        let mut draws = 0;
        let mut pick = |list: &[usize]| {
            draws += 1;
            list[stream.word(draws) as usize % list.len()]
        };
        let divisors = |n: usize| (1..=n).filter(|d| n.is_multiple_of(*d)).collect::<Vec<_>>();
        let groups = pick(&[1, 2, 3, 4, 6]);
        let (per_group, head_dim, tokens) = (pick(&[1, 2, 3]), pick(&[8, 20]), pick(&[96, 100, 33]));
        let config = GptConfig {
            vocab_size: pick(&[65, 64, 7]),
            max_sequence_length: 100,
            num_blocks: 1,
            num_heads: groups * per_group,
            num_groups: groups,
            embedding_dim: groups * per_group * head_dim,
            intermediate_dim: groups * pick(&[16, 70]),
            bias: pick(&[0, 1]) == 1,
            weight_tying: pick(&[0, 1]) == 1,
            positions: [Positions::Trainable, Positions::Fixed][pick(&[0, 1])],
            activation: [
                Activation::Gelu,
                Activation::GeluTanh,
                Activation::Silu,
                Activation::Relu,
            ][pick(&[0, 1, 2, 3])],
            ..tiny()
        };
        let task = Task {
            sequences: pick(&[4, 6, 8, 12, 5]),
            tokens,
            steps: 2,
            attention_mask: pick(&[0, 1]) == 1 && tokens.is_multiple_of(4),
            ..task(config)
        };
        let layouts: Vec<Layout> = (0..3)
            .map(|_| {
                let (dp, tp) = (pick(&divisors(task.sequences)), pick(&divisors(groups)));
                let axes = match pick(&[0, 1]) {
                    0 => [("dp", dp), ("tp", tp)],
                    _ => [("tp", tp), ("dp", dp)],
                };
                let layout = on(&axes)
                    .accumulate(pick(&divisors(task.sequences / dp)))
                    .workers(pick(&[1, 2]));
                match pick(&[0, 1]) {
                    0 => layout,
                    _ => layout.recompute(),
                }
            })
            .collect();
        equal(&task, &layouts, false);
    }
}
