//! Weights for others and back. FAULTS 10, 11, 12, 20.

mod checkpoint_support;

use checkpoint_support::{Run, contents, names, tiny};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use unisono_data::{DataError, TensorSpec, Tokenizer, Weights, write_safetensors};
use unisono_nn::layers::Activation;
use unisono_nn::models::{Gpt, GptConfig, Positions};
use unisono_nn::{Model, Parameter};
use unisono_train::export::{Exported, export};
use unisono_train::hub::{HubError, Loaded, WeightSet, load};
use unisono_train::model::ModelSpec;

fn values(parameters: &[Parameter]) -> Vec<Vec<u32>> {
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    parameters
        .iter()
        .map(|p| bits(p.tensor.to_vec().expect("values")))
        .collect()
}

fn export_run(run: &Run, path: &Path) -> Exported {
    export(run.model.parameters(), Some(run.model.config()), None, path).expect("it is exported")
}

fn import(path: &Path, model: &Gpt) -> Result<Loaded, HubError> {
    let spec = ModelSpec::Gpt(model.config().clone());
    load(&WeightSet::open(path)?, model.table().all(), &spec)
}

/// Two steps on a mesh, exported.
fn exported(axes: &[(&str, usize)], config: GptConfig, path: &Path) -> (Run, Exported) {
    let mut run = Run::of(axes, 1, config);
    run.train(2);
    let exported = export_run(&run, path);
    (run, exported)
}

#[test]
fn every_mesh_exports_the_same_file_and_reads_it_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut reference = None;
    for (index, axes) in [&[][..], &[("tp", 2)], &[("dp", 2), ("tp", 4)]].into_iter().enumerate() {
        let into = directory.path().join(format!("{index}"));
        std::fs::create_dir(&into).expect("it is made");
        let path = into.join("model.safetensors");
        let (run, exported) = exported(axes, tiny(), &path);
        assert!(exported.notes.is_empty(), "{:?}", exported.notes);
        assert_eq!(names(&into), ["config.json", "model.safetensors"]);
        assert_eq!(
            &contents(&into),
            reference.get_or_insert_with(|| contents(&into)),
            "{axes:?}"
        );

        let fresh = Run::new(axes, 1);
        assert_ne!(values(fresh.model.parameters()), values(run.model.parameters()));
        let imported = import(&path, &fresh.model).expect("it fits");
        assert!(imported.ignored.is_empty());
        assert_eq!(
            values(fresh.model.parameters()),
            values(run.model.parameters()),
            "{axes:?}"
        );
    }
}

#[test]
fn names_shapes_and_configuration_are_those_of_hugging_face() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("model.safetensors");
    let config = GptConfig {
        activation: Activation::GeluTanh,
        ..tiny()
    };
    let (run, exported) = exported(&[("tp", 2)], config, &path);
    assert_eq!(exported.files, [path.clone(), directory.path().join("config.json")]);
    let weights = Weights::open(&path).expect("it is sound");
    let shape = |name: &str| weights.entry(name).expect("it is there").shape.clone();
    assert_eq!(shape("transformer.wte.weight"), [65, 32], "no row of padding");
    assert_eq!(shape("transformer.wpe.weight"), [16, 32]);
    assert_eq!(shape("transformer.h.1.attn.c_attn.weight"), [32, 96]);
    assert_eq!(shape("transformer.h.1.mlp.c_fc.bias"), [64]);
    assert!(!weights.contains("lm_head.weight"), "a tied head is written once");
    assert_eq!(weights.tensors().len(), run.model.parameters().len());
    assert_eq!(weights.metadata().get("format").map(String::as_str), Some("pt"));

    // The first query of head 2 is column 2·8 there and column 2·(3·8) here; its key 32 + 2·8 and 2·(3·8) + 8.
    let theirs = weights.read_f32("transformer.h.0.attn.c_attn.weight").expect("values");
    let named = |p: &&Parameter| p.name == "h.0.attn.c_attn.weight";
    let ours = run
        .model
        .parameters()
        .iter()
        .find(named)
        .expect("it is there")
        .tensor
        .to_vec()
        .expect("values");
    assert_eq!(theirs[96 + 16], ours[96 + 48]);
    assert_eq!(theirs[96 + 32 + 16], ours[96 + 48 + 8]);
    assert_eq!(theirs[96 + 64 + 16 + 3], ours[96 + 48 + 16 + 3]);

    let text = std::fs::read_to_string(directory.path().join("config.json")).expect("it is there");
    let json: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    for (key, value) in [
        ("vocab_size", "65"),
        ("n_positions", "16"),
        ("n_embd", "32"),
        ("n_layer", "2"),
        ("n_head", "4"),
        ("n_inner", "64"),
        ("activation_function", "\"gelu_new\""),
        ("resid_pdrop", "0.1"),
        ("layer_norm_epsilon", "1e-5"),
        ("tie_word_embeddings", "true"),
    ] {
        let value: serde_json::Value = serde_json::from_str(value).expect("it is JSON");
        assert_eq!(json[key], value, "{key}");
    }
}

#[test]
fn what_hugging_face_cannot_express_keeps_our_names() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("weights.safetensors");
    let config = GptConfig {
        num_groups: 2,
        bias: false,
        positions: Positions::Fixed,
        weight_tying: false,
        ..tiny()
    };
    let (run, exported) = exported(&[("tp", 2)], config.clone(), &path);
    assert_eq!(
        exported.notes,
        [
            "Hugging Face's GPT-2 has no grouped heads (4 heads in 2 groups) and no layers without biases and no fixed \
             positions, so the tensors keep unisono's names and there is no config.json; weights are [in, out], and c_attn's \
             columns are (q of all heads, k of all groups, v of all groups)"
        ]
    );
    assert_eq!(names(directory.path()), ["weights.safetensors"]);
    let weights = Weights::open(&path).expect("it is sound");
    assert!(weights.contains("lm_head.weight") && weights.contains("h.0.attn.c_attn.weight"));
    let fresh = Run::of(&[], 1, config);
    import(&path, &fresh.model).expect("it fits");
    let real = |model: &Gpt| values(&model.parameters()[1..2]);
    assert_eq!(real(&fresh.model), real(&run.model));
}

/// Writes a file of Hugging Face's, from an exported one, with changes.
fn rewritten(from: &Path, to: &Path, change: impl FnOnce(&mut Vec<(String, Vec<usize>, Vec<f32>)>)) {
    let weights = Weights::open(from).expect("it is sound");
    let read = |name: &str| weights.read_f32(name).expect("values");
    let mut tensors: Vec<_> = weights
        .tensors()
        .iter()
        .map(|entry| (entry.name.clone(), entry.shape.clone(), read(&entry.name)))
        .collect();
    change(&mut tensors);
    let specs: Vec<TensorSpec> = tensors
        .iter()
        .map(|(name, shape, _)| TensorSpec {
            name: name.clone(),
            shape: shape.clone(),
        })
        .collect();
    write_safetensors(to, &specs, &BTreeMap::new(), |i| {
        Ok::<_, DataError>(Cow::Borrowed(&tensors[i].2[..]))
    })
    .expect("it is written");
}

#[test]
fn a_file_with_the_head_beside_its_table_loads_if_they_are_equal() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("model.safetensors");
    let (run, _) = exported(&[], tiny(), &path);
    let both = directory.path().join("both.safetensors");
    // Names without `transformer.`, a head, and the mask that older files carry.
    rewritten(&path, &both, |tensors| {
        for (name, _, _) in tensors.iter_mut() {
            *name = name.replace("transformer.", "");
        }
        let table = tensors
            .iter()
            .find(|(name, _, _)| name == "wte.weight")
            .expect("it is there");
        tensors.push(("lm_head.weight".into(), table.1.clone(), table.2.clone()));
        tensors.push(("h.0.attn.bias".into(), vec![1, 1, 2, 2], vec![1.0, 0.0, 1.0, 1.0]));
    });
    let mut fresh = Run::new(&[("tp", 4)], 1);
    let imported = import(&both, &fresh.model).expect("they are equal");
    assert_eq!(imported.ignored, ["lm_head.weight", "h.0.attn.bias"]);
    assert_eq!(
        values(&fresh.model.parameters()[1..]),
        values(&run.model.parameters()[1..])
    );
    // Trained on: still one tensor.
    fresh.train(10);
    let again = directory.path().join("again.safetensors");
    export_run(&fresh, &again);
    assert!(!Weights::open(&again).expect("it is sound").contains("lm_head.weight"));

    rewritten(&both, &both, |tensors| {
        let head = tensors
            .iter_mut()
            .find(|(name, _, _)| name == "lm_head.weight")
            .expect("it is there");
        head.2[70] += 1.0;
    });
    let before = values(fresh.model.parameters());
    let error = import(&both, &fresh.model).expect_err("they differ").to_string();
    assert!(
        error.ends_with(
            "nothing was changed: its head `lm_head.weight` differs from `wte.weight` at element 70, but this model ties them: \
             set weight_tying: false (tie_word_embeddings in config.json)"
        ),
        "{error}"
    );
    assert_eq!(values(fresh.model.parameters()), before);
}

#[test]
fn an_untied_model_says_that_the_file_is_tied() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("model.safetensors");
    exported(&[], tiny(), &path);
    let untied = GptConfig {
        weight_tying: false,
        num_blocks: 1,
        ..tiny()
    };
    let fresh = Run::of(&[], 1, untied);
    let error = import(&path, &fresh.model).expect_err("it lacks a head").to_string();
    assert!(
        error.contains("it has no tensor `lm_head.weight` of shape [65, 32]: a file without a head is of a tied model"),
        "{error}"
    );
    assert!(error.ends_with("; and 3 more"), "{error}");
}

#[test]
fn files_of_others_are_not_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("model.safetensors");
    let config = directory.path().join("config.json");
    let run = Run::new(&[], 1);
    std::fs::write(&config, "{\"model_type\": \"llama\"}").expect("it is written");
    let attempt = || {
        export(
            run.model.parameters(),
            Some(run.model.config()),
            Some(&Tokenizer::Byte),
            &path,
        )
    };
    let error = attempt().expect_err("it would replace a file").to_string();
    assert!(error.ends_with("config.json was not written by `unisono export` and would be replaced: export into a directory of its own, or move it away"), "{error}");
    assert_eq!(names(directory.path()), ["config.json"]);
    std::fs::remove_file(&config).expect("it is removed");
    for _ in 0..2 {
        let exported = attempt().expect("it is exported, and again over itself");
        assert_eq!(exported.files.len(), 3);
    }
    assert_eq!(
        names(directory.path()),
        ["config.json", "model.safetensors", "tokenizer.json"]
    );
}
