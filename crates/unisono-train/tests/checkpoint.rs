//! Saved on one mesh, gone on with on another: the same bits. FAULTS 3, 4, 10, 11, 20, 29, 30, 31, 56.

mod checkpoint_support;

use checkpoint_support::{Run, adamw, bits, contents, names, open, tiny};
use unisono_nn::Model;
use unisono_nn::models::{Gpt, GptConfig};
use unisono_nn::optimizers::{NoOp, Sgd, SgdConfig};
use unisono_train::checkpoint::{Checkpoints, Holds, Keep, Live, load, verify_replicas};

type Layout = (&'static [(&'static str, usize)], usize);

const LAYOUTS: [Layout; 6] = [
    (&[], 1),
    (&[], 4),
    (&[("dp", 2)], 2),
    (&[("tp", 2)], 1),
    (&[("dp", 2), ("tp", 2)], 1),
    (&[("tp", 4)], 2),
];

/// Stopped after 3 of 8 steps, in the first epoch, and after 6, in the second, and gone on with on every other layout.
#[test]
fn a_run_resumed_on_any_layout_equals_the_straight_one() {
    let straight = bits(&Run::new(&[], 1).train(8));
    for (index, (axes, accumulation)) in LAYOUTS.into_iter().enumerate() {
        let directory = tempfile::tempdir().expect("a directory");
        let (next_axes, next_accumulation) = LAYOUTS[(index + 1) % LAYOUTS.len()];
        let (last_axes, last_accumulation) = LAYOUTS[(index + 3) % LAYOUTS.len()];
        let mut first = Run::new(axes, accumulation);
        let mut steps = first.train(3);
        let path = first.save(directory.path());
        drop(first);

        let mut second = Run::new(next_axes, next_accumulation);
        assert!(second.restore(&load(&path).expect("it is good")).warnings.is_empty());
        assert_eq!((second.state.step, second.state.samples), (3, 24));
        steps.extend(second.train(6));
        second.save(directory.path());

        let mut third = Run::new(last_axes, last_accumulation);
        let newest = Checkpoints::new(directory.path()).newest().expect("it is good");
        assert_eq!(newest.manifest().state.step, 6);
        let _ = third.restore(&newest);
        steps.extend(third.train(8));
        assert_eq!(
            bits(&steps),
            straight,
            "{axes:?} × {accumulation}, {next_axes:?}, {last_axes:?}"
        );
    }
}

/// The files of the tensors are equal whatever mesh wrote them, and loading and saving again changes no byte.
#[test]
fn checkpoints_of_all_meshes_are_the_same_bytes() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut reference = None;
    for (index, (axes, accumulation)) in LAYOUTS.into_iter().enumerate() {
        let mut run = Run::new(axes, accumulation);
        run.train(2);
        let path = run.save(&directory.path().join(format!("{index}")));
        let files = contents(&path);
        assert_eq!(
            names(&path),
            ["manifest.json", "model.safetensors", "optimizer.safetensors"]
        );
        assert_eq!(
            &files[1..],
            reference.get_or_insert_with(|| files[1..].to_vec()),
            "{axes:?}"
        );

        let mut again = Run::new(axes, accumulation);
        let _ = again.restore(&load(&path).expect("it is good"));
        let copy = again.save(&directory.path().join(format!("{index}-again")));
        assert_eq!(contents(&copy), files, "save, load, save: {axes:?}");
    }
}

/// 65 entries in 4 units are stored as 68: the padding does not reach the file, and one head stands for both.
#[test]
fn files_hold_real_shapes_and_a_tied_head_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut run = Run::new(&[("tp", 2)], 1);
    run.train(1);
    assert_eq!(
        run.model.parameters()[0].tensor.shape(),
        [68, 32],
        "the test is blind without padding"
    );
    let checkpoint = load(&run.save(directory.path())).expect("it is good");
    let shape = |kind, name| checkpoint.row(kind, name).map(|row| row.shape.clone());
    assert_eq!(shape(Holds::Parameter, "wte.weight"), Some(vec![65, 32]));
    assert_eq!(shape(Holds::Optimizer, "exp_avg_sq.wte.weight"), Some(vec![65, 32]));
    assert_eq!(shape(Holds::Parameter, "lm_head.weight"), None);
    let manifest = checkpoint.manifest();
    assert_eq!(manifest.tensors.len(), 3 * run.model.parameters().len());
    assert_eq!(manifest.mesh, "2 devices (tp 2)");
    assert!(manifest.tensors.iter().all(|row| row.dtype == "f32"));

    // Into a model that is not tied: refused, naming what it lacks.
    let untied = GptConfig {
        weight_tying: false,
        ..tiny()
    };
    let model = Gpt::new(&open(&[]), untied).expect("a model");
    let error = checkpoint
        .restore(model.parameters(), adamw(&model).as_ref())
        .expect_err("it does not fit");
    let path = checkpoint.path().display();
    assert_eq!(
        error.to_string(),
        format!(
            "{path} does not fit this model, and nothing was changed: it has no tensor `lm_head.weight` of shape [65, 32]; it \
             has no tensor `exp_avg.lm_head.weight` of shape [65, 32]; it has no tensor `exp_avg_sq.lm_head.weight` of shape \
             [65, 32]"
        )
    );
}

#[test]
fn what_does_not_fit_is_listed_before_anything_is_changed() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut run = Run::new(&[], 1);
    run.train(1);
    let checkpoint = load(&run.save(directory.path())).expect("it is good");
    let other = GptConfig {
        num_blocks: 1,
        max_sequence_length: 20,
        vocab_size: 66,
        ..tiny()
    };
    let model = Gpt::new(&open(&[("tp", 2)]), other).expect("a model");
    let before: Vec<Vec<f32>> = model
        .parameters()
        .iter()
        .map(|p| p.tensor.to_vec().expect("values"))
        .collect();
    let error = checkpoint
        .restore_parameters(model.parameters())
        .expect_err("it does not fit")
        .to_string();
    let expected = "its tensor `wte.weight` has shape [65, 32], the model's has [66, 32]; its tensor `wpe.weight` has shape \
                    [16, 32], the model's has [20, 32]; its tensor `h.1.ln_1.weight` of shape [32] has no place in the model; \
                    and 11 more";
    assert!(error.ends_with(expected), "{error}");
    let after: Vec<Vec<f32>> = model
        .parameters()
        .iter()
        .map(|p| p.tensor.to_vec().expect("values"))
        .collect();
    assert_eq!(before, after);
}

#[test]
fn missing_optimizer_state_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut run = Run::new(&[], 1);
    run.train(1);
    let with_moments = load(&run.save(directory.path())).expect("it is good");
    let live = Live {
        state: &run.state,
        parameters: run.model.parameters(),
        optimizer: &NoOp,
        config_digest: "",
        data_digest: "",
    };
    let store = Checkpoints::new(directory.path().join("bare"));
    let keep = Keep { last: 1, best: false };
    let bare = load(&store.save(&live, keep).expect("it is saved").path).expect("it is good");
    let restored = bare
        .restore(run.model.parameters(), run.optimizer.as_ref())
        .expect("it fits");
    let says = |warnings: &[String], text: &str| assert!(matches!(warnings, [w] if w.contains(text)), "{warnings:?}");
    says(
        &restored.warnings,
        "holds no optimizer state: exp_avg, exp_avg_sq begin at zero",
    );

    let momentum = SgdConfig {
        momentum: 0.9,
        dampening: 0.0,
        weight_decay: 0.0,
        nesterov: false,
        decay_norms_and_biases: false,
    };
    let sgd = Sgd::new(run.model.parameters(), momentum).expect("an optimizer");
    let restored = with_moments.restore(run.model.parameters(), &sgd).expect("it fits");
    says(
        &restored.warnings,
        "holds the state of another optimizer (exp_avg, exp_avg_sq): this run's (momentum) begins at zero",
    );
    let restored = with_moments.restore(run.model.parameters(), &NoOp).expect("it fits");
    says(&restored.warnings, "that this run's optimizer does not keep");
    assert!(
        bare.restore(run.model.parameters(), &NoOp)
            .expect("it fits")
            .warnings
            .is_empty()
    );
}

#[test]
fn many_files_are_one_checkpoint() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut run = Run::new(&[("dp", 2)], 1);
    run.train(1);
    let whole = load(&run.save(&directory.path().join("whole"))).expect("it is good");
    let store = Checkpoints::new(directory.path().join("cut")).with_shard_bytes(10_000);
    let keep = Keep { last: 1, best: false };
    let cut = load(&run.save_to(&store, keep).expect("it is saved").path).expect("it is good");
    let files = &cut.manifest().files;
    assert!(files.len() > 8, "{}", files.len());
    assert!(files[0].name.starts_with("model-00001-of-0"), "{}", files[0].name);
    // Only a single tensor may be larger than the bound: the header takes less than a fifth here.
    let largest = cut
        .manifest()
        .tensors
        .iter()
        .map(|row| 4 * row.shape.iter().product::<usize>())
        .max();
    assert!(
        files
            .iter()
            .all(|file| file.bytes as usize <= largest.unwrap_or(0).max(10_000) + 2_000)
    );
    assert_eq!(cut.manifest().tensors, whole.manifest().tensors);
    for row in &cut.manifest().tensors {
        assert_eq!(
            cut.bytes(row.kind, &row.name).expect("it is there"),
            whole.bytes(row.kind, &row.name).expect("it is there")
        );
    }
    let mut again = Run::new(&[], 1);
    let _ = again.restore(&cut);
    assert_eq!(bits(&again.train(3)), bits(&run.train(3)));
}

/// A copy that goes its own way is found, named, and not saved.
#[test]
fn replicas_that_differ_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut run = Run::new(&[("dp", 2), ("tp", 2)], 1);
    run.train(1);
    verify_replicas(run.model.parameters(), run.optimizer.as_ref(), 1).expect("copies are equal");
    // Device 3 (dp 1, tp 1) gets another value in its shard of a matrix that tp cuts: device 1 holds the true one.
    let parameter = run
        .model
        .parameters()
        .iter()
        .find(|p| p.name == "h.1.mlp.c_fc.weight")
        .expect("it is there");
    let mut shards: Vec<Vec<f32>> = (0..4)
        .map(|d| parameter.tensor.to_vec_on(d).expect("a shard"))
        .collect();
    let (good, bad) = (shards[1][77], 0.5);
    shards[3][77] = bad;
    let data = unisono_runtime::HostData::F32PerDevice(shards.into_iter().map(Into::into).collect());
    run.device
        .runtime()
        .upload(parameter.tensor.buffer(), data)
        .expect("it is copied");
    let store = Checkpoints::new(directory.path());
    let error = run
        .save_to(&store, Keep { last: 1, best: false })
        .expect_err("copies differ")
        .to_string();
    let expected = format!(
        "after step 1, the parameter `h.1.mlp.c_fc.weight` is not the same on devices 1 and 3: element 77 of their shard is \
         {good} ({:08x}) and {bad} ({:08x}).",
        good.to_bits(),
        f32::to_bits(bad)
    );
    assert!(error.starts_with(&expected), "{error}");
    assert!(names(directory.path()).is_empty());
}

/// FAULTS 38: what is not finite is not saved, and rotation never gets to the last good one.
#[test]
fn values_that_are_not_finite_are_not_saved() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Checkpoints::new(directory.path());
    let keep = Keep { last: 1, best: false };
    let mut run = Run::new(&[("tp", 2)], 1);
    run.train(1);
    run.save_to(&store, keep).expect("it is finite");
    run.train(2);
    let table = &run.model.parameters()[1];
    let mut values = table.tensor.to_vec().expect("values");
    values[40] = f32::NEG_INFINITY;
    table.tensor.upload_global(&values).expect("it is copied");
    for _ in 0..3 {
        let error = run.save_to(&store, keep).expect_err("it is not finite").to_string();
        assert!(
            error.starts_with(
                "after step 2, the parameter `wpe.weight` holds -inf at element 40, so no checkpoint was written"
            ),
            "{error}"
        );
    }
    assert_eq!(names(directory.path()), ["latest", "step-00000001"]);
    store.newest().expect("the finite one is good");
}
