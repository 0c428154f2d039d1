//! Adapters: against PEFT's logits, through its files, worked into weights, their gradients. FAULTS 37.

mod hub_support;

use hub_support::{bits, difference, family, logits, open, reference, values, write_tensors};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use unisono_kernels::philox::Stream;
use unisono_kernels::random::fill_normal;
use unisono_nn::{Parameter, Regime};
use unisono_train::hub::{self, HubError, SaveOptions, WeightSet};
use unisono_train::model::{LiveModel, ModelSpec};
use unisono_train::peft::{self, Stored, merged};
use unisono_train::start::model_of_files;

/// Between two programs that add in different orders.
const FOREIGN: f32 = 2e-4;
/// Between a merged model and the same with its adapters apart.
const MERGED: f32 = 1e-5;

/// What `reference/peft_logits.py` wrote.
#[derive(Deserialize)]
struct Peft {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    family: String,
    config: Value,
    shapes: BTreeMap<String, Vec<usize>>,
    logits: Vec<Vec<f32>>,
}

fn cases() -> Vec<Case> {
    let text = include_str!("reference/peft_logits.json");
    serde_json::from_str::<Peft>(text).expect("the reference is JSON").cases
}

fn case(name: &str) -> Case {
    cases()
        .into_iter()
        .find(|case| case.name == name)
        .expect("a case of the reference")
}

impl Case {
    /// Writes `base` and `adapter`, as `transformers` and PEFT do.
    fn write(&self, folder: &Path) {
        let (base, adapter) = (folder.join("base"), folder.join("adapter"));
        for directory in [&base, &adapter] {
            std::fs::create_dir(directory).expect("made");
        }
        family(&self.family).write(&base);
        self.write_adapter(&adapter, &self.config, &|_| true);
    }

    fn write_adapter(&self, directory: &Path, config: &Value, keep: &dyn Fn(&str) -> bool) {
        std::fs::write(directory.join("adapter_config.json"), config.to_string()).expect("written");
        let kept = self.shapes.iter().filter(|(name, _)| keep(name));
        let tensors: Vec<_> = kept
            .map(|(name, shape)| (name.clone(), shape.clone(), values(name, shape)))
            .collect();
        write_tensors(&directory.join("adapter_model.safetensors"), &tensors, &[]);
    }
}

fn spec(folder: &Path) -> ModelSpec {
    hub::read_config(&folder.join("base")).expect("a model").spec
}

fn adapted(folder: &Path, axes: &[(&str, usize)]) -> LiveModel {
    let weights = WeightSet::open(&folder.join("base")).expect("weights");
    let adapter = folder.join("adapter");
    let model = model_of_files(&open(axes), &spec(folder), &weights, Some(&adapter));
    model.expect("it fits").0
}

/// The values of a model's adapters and of what else an adapter's files hold, by name.
fn held(model: &LiveModel, stored: &Stored) -> BTreeMap<String, Vec<u32>> {
    let table = model.as_model().table();
    let held = |p: &&Parameter| p.is_adapter() || stored.adapters.also.contains(&p.name);
    let bits = |p: &Parameter| {
        p.tensor
            .to_vec()
            .expect("values")
            .into_iter()
            .map(f32::to_bits)
            .collect()
    };
    table.all().filter(held).map(|p| (p.name.clone(), bits(p))).collect()
}

#[test]
fn logits_are_those_of_peft_and_the_same_on_every_mesh() {
    let reference = reference();
    for case in cases() {
        let folder = tempfile::tempdir().expect("a folder");
        case.write(folder.path());
        let here = logits(&adapted(folder.path(), &[]), &reference.ids, &reference.positions);
        let worst = difference(&here, &case.logits);
        assert!(worst < FOREIGN, "{}: {worst}", case.name);
        let mesh = logits(
            &adapted(folder.path(), &[("tp", 2)]),
            &reference.ids,
            &reference.positions,
        );
        assert_eq!(bits(&mesh), bits(&here), "{}", case.name);
        // The control: without its adapter the model says something else.
        let (base, _) = hub_support::loaded(&folder.path().join("base"), &[], &Regime::inference()).expect("it loads");
        let base = logits(&base, &reference.ids, &reference.positions);
        assert!(difference(&base, &here) > 0.1, "{}", case.name);
    }
}

#[test]
fn a_merged_model_is_its_base_with_the_adapter() {
    let reference = reference();
    for case in cases() {
        let folder = tempfile::tempdir().expect("a folder");
        case.write(folder.path());
        let adapter = folder.path().join("adapter");
        // As small beside the weights as training leaves them.
        let mut small = case.config.clone();
        small["lora_alpha"] = json!(0.02);
        case.write_adapter(&adapter, &small, &|_| true);
        let spec = spec(folder.path());
        let stored = Stored::open(&adapter, &spec).expect("it fits");
        let model = adapted(folder.path(), &[]);
        let parameters = merged(model.as_model().table(), &stored.adapters).expect("it merges");
        assert!(parameters.iter().all(|p| !p.is_adapter()));
        let whole = folder.path().join("whole");
        let parameters: Vec<&Parameter> = parameters.iter().collect();
        hub::save(&whole, &spec, &parameters, &SaveOptions::default()).expect("it is written");
        for axes in [&[][..], &[("tp", 2)]] {
            let apart = logits(&adapted(folder.path(), axes), &reference.ids, &reference.positions);
            let (together, _) = hub_support::loaded(&whole, axes, &Regime::inference()).expect("it loads");
            let together = logits(&together, &reference.ids, &reference.positions);
            let worst = difference(&apart, &together);
            assert!(worst < MERGED, "{} on {axes:?}: {worst}", case.name);
        }
    }
}

#[test]
fn merging_is_refused_on_a_mesh() {
    let folder = tempfile::tempdir().expect("a folder");
    case("list").write(folder.path());
    let stored = Stored::open(&folder.path().join("adapter"), &spec(folder.path())).expect("it fits");
    let model = adapted(folder.path(), &[("tp", 2)]);
    let error = merged(model.as_model().table(), &stored.adapters).map(drop);
    assert!(error.is_err_and(|error| error.to_string().contains("one device")));
}

#[test]
fn what_is_saved_is_what_was_loaded_from_any_mesh() {
    for case in cases() {
        let folder = tempfile::tempdir().expect("a folder");
        case.write(folder.path());
        let spec = spec(folder.path());
        let adapter = folder.path().join("adapter");
        let stored = Stored::open(&adapter, &spec).expect("it fits");
        let before = held(&adapted(folder.path(), &[]), &stored);
        assert_eq!(before.len(), case.shapes.len(), "{}", case.name);
        let mut files = Vec::new();
        for (index, axes) in [&[][..], &[("tp", 2)]].into_iter().enumerate() {
            let model = adapted(folder.path(), axes);
            let again = folder.path().join(format!("again-{index}"));
            let table = model.as_model().table();
            peft::save(&again, &stored.adapters, table, Some("org/base"), &[]).expect("it is written");
            // And over itself.
            peft::save(&again, &stored.adapters, table, Some("org/base"), &[]).expect("it is written");
            files.push(
                ["adapter_config.json", "adapter_model.safetensors"]
                    .map(|name| std::fs::read(again.join(name)).expect("it is there")),
            );
            let reopened = Stored::open(&again, &spec).expect("it fits");
            assert_eq!(reopened.adapters, stored.adapters, "{}", case.name);
            assert_eq!(reopened.config.base.as_deref(), Some("org/base"));
            let fresh = spec
                .build(
                    &open(axes),
                    &Regime {
                        adapters: Some(Rc::new(reopened.adapters.clone())),
                        ..Regime::inference()
                    },
                )
                .expect("it is built");
            reopened.load(fresh.as_model().table()).expect("it fits");
            assert_eq!(held(&fresh, &reopened), before, "{} {axes:?}", case.name);
        }
        assert_eq!(files[0], files[1], "{}", case.name);
    }
}

#[test]
fn a_directory_of_something_else_is_not_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    case("list").write(folder.path());
    let stored = Stored::open(&folder.path().join("adapter"), &spec(folder.path())).expect("it fits");
    let model = adapted(folder.path(), &[]);
    let table = model.as_model().table();
    // PEFT's own, and one with a stranger's file.
    let adapter = folder.path().join("adapter");
    let other = folder.path().join("other");
    std::fs::create_dir(&other).expect("made");
    std::fs::write(other.join("notes.txt"), "mine").expect("written");
    for directory in [&adapter, &other] {
        let before: Vec<_> = std::fs::read_dir(directory)
            .expect("a folder")
            .flatten()
            .map(|e| e.path())
            .collect();
        let error = peft::save(directory, &stored.adapters, table, None, &[]).expect_err("it is in the way");
        assert!(matches!(error, HubError::InTheWay { .. }), "{error}");
        let after: Vec<_> = std::fs::read_dir(directory)
            .expect("a folder")
            .flatten()
            .map(|e| e.path())
            .collect();
        assert_eq!(before, after);
    }
}

/// What is said of an adapter's directory.
fn problem(change: impl FnOnce(&Case, &Path, &mut Value)) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let case = case("list");
    case.write(folder.path());
    let adapter = folder.path().join("adapter");
    let mut config = case.config.clone();
    change(&case, &adapter, &mut config);
    if adapter.join("adapter_config.json").exists() {
        std::fs::write(adapter.join("adapter_config.json"), config.to_string()).expect("written");
    }
    Stored::open(&adapter, &spec(folder.path()))
        .map(drop)
        .expect_err("it is broken")
        .to_string()
}

#[test]
fn other_kinds_of_adapters_are_refused_by_name() {
    for (key, value, said) in [
        ("peft_type", json!("IA3"), "peft_type is IA3"),
        ("task_type", json!("SEQ_CLS"), "task_type is SEQ_CLS"),
        ("use_dora", json!(true), "DoRA"),
        ("rank_pattern", json!({"q_proj": 8}), "other ranks"),
        ("alpha_pattern", json!({"q_proj": 8}), "another alpha"),
        ("layer_replication", json!([[0, 1]]), "replicated layers"),
        ("trainable_token_indices", json!([1]), "single trained tokens"),
        ("init_lora_weights", json!("pissa"), "pissa"),
        ("bias", json!("some"), "bias is some"),
        ("target_modules", json!("(?<=x)q_proj"), "regular expression"),
        ("target_modules", json!(["c_attn"]), "none of the model's linear layers"),
        ("target_modules", json!(null), "target_modules is missing"),
        ("target_modules", json!([1, 2]), "a list of texts"),
        ("r", json!(0), "r is 0"),
        ("r", json!("many"), "r is \"many\""),
        ("lora_alpha", json!(-1), "lora_alpha is -1"),
        ("lora_dropout", json!(1.5), "lora_dropout is 1.5"),
        ("modules_to_save", json!(["score"]), "score"),
        (
            "modules_to_save",
            json!(["q_proj"]),
            "modules_to_save and in target_modules",
        ),
    ] {
        let error = problem(|_, _, config| config[key] = value.clone());
        assert!(error.contains(said), "{key}: {error}");
    }
    // All at once.
    let error = problem(|_, _, config| {
        config["use_dora"] = json!(true);
        config["r"] = json!(0);
    });
    assert!(error.contains("DoRA") && error.contains("r is 0"), "{error}");
}

#[test]
fn tensors_that_do_not_fit_are_all_named() {
    let rewrite =
        |keep: &dyn Fn(&str) -> bool| problem(|case, adapter, config| case.write_adapter(adapter, config, keep));
    let error = rewrite(&|name| !name.contains("layers.1.self_attn.q_proj"));
    for part in [
        "q_proj.lora_A.weight` of shape [4, 64]",
        "q_proj.lora_B.weight` of shape [64, 4]",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let error = problem(|_, _, config| config["r"] = json!(8));
    assert!(
        error.contains("shape [4, 64]") && error.contains("[8, 64]") && error.contains("and 2 more"),
        "{error}"
    );
    let error = problem(|_, _, config| config["target_modules"] = json!(["q_proj", "v_proj"]));
    assert!(error.contains("down_proj") && error.contains("has no place"), "{error}");
}

#[test]
fn broken_files_are_errors_with_their_names() {
    for (said, length) in [
        ("adapter_model.safetensors", 0),
        ("adapter_model.safetensors", 7),
        ("adapter_model.safetensors", 900),
    ] {
        let error = problem(|_, adapter, _| {
            let path = adapter.join("adapter_model.safetensors");
            let bytes = std::fs::read(&path).expect("there");
            std::fs::write(&path, &bytes[..length]).expect("written");
        });
        assert!(error.contains(said), "{error}");
    }
    let error = problem(|_, adapter, _| std::fs::remove_file(adapter.join("adapter_model.safetensors")).expect("gone"));
    assert!(error.contains("is the download complete?"), "{error}");
    let error = problem(|_, adapter, _| {
        std::fs::rename(
            adapter.join("adapter_model.safetensors"),
            adapter.join("adapter_model.bin"),
        )
        .expect("renamed");
    });
    assert!(error.contains("safe_serialization=True"), "{error}");
    let error = problem(|_, adapter, _| std::fs::remove_file(adapter.join("adapter_config.json")).expect("gone"));
    assert!(error.contains("has no adapter_config.json"), "{error}");
    // A whole model is no adapter, and neither belongs beside a GPT-2.
    let folder = tempfile::tempdir().expect("a folder");
    case("list").write(folder.path());
    let error = Stored::open(&folder.path().join("base"), &spec(folder.path()))
        .map(drop)
        .expect_err("no adapter");
    assert!(error.to_string().contains("a whole model and no adapter"), "{error}");
    let gpt = folder.path().join("gpt2");
    std::fs::create_dir(&gpt).expect("made");
    family("gpt2").write(&gpt);
    let gpt = hub::read_config(&gpt).expect("a model").spec;
    let error = Stored::open(&folder.path().join("adapter"), &gpt)
        .map(drop)
        .expect_err("no Llama");
    assert!(error.to_string().contains("Llama family"), "{error}");
}

/// Normal values of a tensor.
fn normal(len: usize, site: u32, std: f32) -> Vec<f32> {
    let mut values = vec![0.0; len];
    let stream = Stream { seed: 3, site, step: 0 };
    fill_normal(&stream, 0, 0.0, std, &mut values);
    values
}

/// Each adapter is moved along its gradient and along a random direction; slopes come from two points, in f64.
#[test]
fn gradients_are_those_of_finite_differences() {
    let folder = tempfile::tempdir().expect("a folder");
    let case = case("list");
    case.write(folder.path());
    // So that the loss is nearly a polynomial of low degree over the points.
    let mut gentle = case.config.clone();
    gentle["lora_alpha"] = json!(0.5);
    case.write_adapter(&folder.path().join("adapter"), &gentle, &|_| true);
    let spec = spec(folder.path());
    let stored = Stored::open(&folder.path().join("adapter"), &spec).expect("it fits");
    for axes in [&[][..], &[("tp", 2)]] {
        let device = open(axes);
        let model = spec
            .build(
                &device,
                &Regime {
                    frozen: false,
                    adapters: Some(Rc::new(stored.adapters.clone())),
                    values_come_later: true,
                },
            )
            .expect("it is built");
        let model = model.as_model();
        hub::load(
            &WeightSet::open(&folder.path().join("base")).expect("weights"),
            model.table().all(),
            &spec,
        )
        .expect("it fits");
        stored.load(model.table()).expect("it fits");
        assert!(model.parameters().iter().all(Parameter::is_adapter));
        assert_eq!(model.parameters().len(), case.shapes.len());
        let ids: Vec<u32> = (0..24).map(|i| (7 * i * i + 3) % 97).collect();
        let targets: Vec<u32> = ids.iter().map(|id| (id * 5 + 1) % 97).collect();
        let losses = |device: &unisono_tensor::MeshDevice| {
            let (ids, targets) = (device.batch_u32(&ids, &[2, 12])?, device.batch_u32(&targets, &[2, 12])?);
            model.losses(&ids, &targets, 1.0)
        };
        let loss = || -> f64 {
            let losses = device.no_grad(|| losses(&device)?.to_vec()).expect("it computes");
            losses.into_iter().map(f64::from).sum()
        };
        losses(&device)
            .and_then(|losses| losses.backward())
            .expect("it computes");
        let dot = |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum() };
        for (site, parameter) in model.parameters().iter().enumerate() {
            let gradient = parameter
                .tensor
                .grad()
                .expect("gradients")
                .expect("it takes part")
                .to_vec()
                .expect("values");
            let values = parameter.tensor.to_vec().expect("values");
            let size = dot(&gradient, &gradient).sqrt();
            assert!(size > 1e-3, "{}: {size}", parameter.name);
            let random = normal(values.len(), site as u32, 1.0);
            for direction in [gradient.clone(), random] {
                let unit = dot(&direction, &direction).sqrt();
                let at = |t: f64| {
                    let moved: Vec<f32> = values
                        .iter()
                        .zip(&direction)
                        .map(|(value, d)| (f64::from(*value) + t * f64::from(*d) / unit) as f32)
                        .collect();
                    parameter.tensor.upload_global(&moved).expect("uploaded");
                    loss()
                };
                let h = 0.02;
                let slope = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h);
                let expected = dot(&gradient, &direction) / unit;
                assert!(
                    (slope - expected).abs() < 4e-3 * size,
                    "{} on {axes:?}: slope {slope}, gradient {expected} of {size}",
                    parameter.name
                );
            }
            parameter.tensor.upload_global(&values).expect("uploaded");
        }
    }
}
