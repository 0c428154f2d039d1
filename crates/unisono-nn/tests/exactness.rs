//! The promise at the level of models: the same bits on every mesh, with every accumulation, recomputed or not, by any
//! number of workers, on every instruction set.

mod common;

use common::{Layout, Outcome, Task, difference, on, task, tiny};
use unisono_kernels::isa::Isa;
use unisono_nn::layers::Activation;
use unisono_nn::models::{GptConfig, Positions};

/// Runs the task on every layout and compares with one device.
fn all_equal(task: &Task, layouts: &[Layout]) {
    let reference = task.run(&on(&[])).expect("one device trains");
    assert!(
        reference.losses.iter().all(|loss| loss.is_finite()),
        "{:?}",
        reference.losses
    );
    assert!(
        reference.losses.last() < reference.losses.first(),
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
    assert!(failures.is_empty(), "{}", failures.join("\n"));
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

/// A control that must fail: another order of the same addends (sequences exchanged) shows in the bits.
#[test]
fn another_batch_size_shows() {
    let run = |sequences: usize| -> Outcome {
        let task = Task {
            sequences,
            steps: 2,
            ..task(tiny())
        };
        task.run(&on(&[])).expect("one device trains")
    };
    assert!(difference(&run(8), &run(6)).is_some());
}
