//! Models of each family give the logits of `transformers`, on any mesh and through the cache. FAULTS 13.

mod hub_support;

use hub_support::{bits, cached_logits, difference, family, loaded, logits, reference, write_tensors};
use unisono_data::weights::WrittenDtype;
use unisono_nn::Regime;
use unisono_train::hub::{SaveOptions, save};

/// The largest difference from `transformers` that the order of sums may make.
const TOLERANCE: f32 = 2e-4;

#[test]
fn logits_are_those_of_transformers() {
    let reference = reference();
    for family in &reference.families {
        let directory = tempfile::tempdir().expect("a directory");
        family.write(directory.path());
        let mut one_device: Option<Vec<u32>> = None;
        for axes in [&[][..], &[("tp", 2)]] {
            let (model, _) = loaded(directory.path(), axes, &Regime::inference()).expect("it loads");
            let found = logits(&model, &reference.ids, &reference.positions);
            let worst = difference(&found, &family.logits);
            assert!(worst < TOLERANCE, "{} on {axes:?}: {worst}", family.name);
            assert_eq!(
                &bits(&found),
                one_device.get_or_insert_with(|| bits(&found)),
                "{} on {axes:?}",
                family.name
            );
            let cached = cached_logits(&model, &reference.ids, &reference.positions);
            assert_eq!(
                bits(&cached),
                bits(&found),
                "{} through the cache, on {axes:?}",
                family.name
            );
        }
    }
}

/// The rows of queries and keys in the order of interleaved pairs, as Meta's files have them.
#[test]
fn interleaved_rotary_pairs_are_not_taken_for_halves() {
    let reference = reference();
    let family = family("llama");
    let (heads, width) = (8, 64);
    let directory = tempfile::tempdir().expect("a directory");
    family.write_config(directory.path());
    let mut tensors = family.tensors();
    for (name, shape, values) in &mut tensors {
        if !name.ends_with("q_proj.weight") && !name.ends_with("k_proj.weight") {
            continue;
        }
        let head_dim = 64 / heads;
        let given = values.clone();
        for row in 0..shape[0] {
            let (head, i) = (row / head_dim, row % head_dim);
            let from = head * head_dim + i / 2 + (i % 2) * head_dim / 2;
            values[row * width..][..width].copy_from_slice(&given[from * width..][..width]);
        }
    }
    write_tensors(&directory.path().join("model.safetensors"), &tensors, &[]);
    let (model, _) = loaded(directory.path(), &[], &Regime::inference()).expect("it loads");
    let found = logits(&model, &reference.ids, &reference.positions);
    assert!(difference(&found, &family.logits) > 0.3, "the check is blind");
}

/// Written, in one file or several, and read again: the same bits; trained parameters too.
#[test]
fn saved_models_load_again() {
    let reference = reference();
    let few = &reference.positions[..2];
    for family in &reference.families {
        let directory = tempfile::tempdir().expect("a directory");
        family.write(directory.path());
        let (model, spec) = loaded(directory.path(), &[("tp", 2)], &Regime::default()).expect("it loads");
        let expected = bits(&logits(&model, &reference.ids, few));
        let parameters: Vec<_> = model.as_model().table().all().collect();
        for shard_bytes in [u64::MAX, 40_000] {
            let options = SaveOptions {
                shard_bytes,
                ..SaveOptions::default()
            };
            let to = directory.path().join("saved").join(&family.name);
            let files = save(&to, &spec, &parameters, &options).expect("it is written");
            assert_eq!(files.len() > 5, shard_bytes == 40_000, "{files:?}");
            let (again, read) = loaded(&to, &[], &Regime::inference()).expect("it loads");
            assert_eq!(read, spec, "{}", family.name);
            assert_eq!(bits(&logits(&again, &reference.ids, few)), expected, "{}", family.name);
        }
        let options = SaveOptions {
            dtype: WrittenDtype::Bf16,
            ..SaveOptions::default()
        };
        let half = directory.path().join("half");
        save(&half, &spec, &parameters, &options).expect("it is written");
        let (rounded, _) = loaded(&half, &[], &Regime::inference()).expect("it loads");
        let worst = difference(&logits(&rounded, &reference.ids, few), &family.logits[..2]);
        assert!((1e-3..0.5).contains(&worst), "{}: {worst}", family.name);
    }
}
