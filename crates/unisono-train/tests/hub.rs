//! Names and weights of other programs' models: what is read, and what is refused in which words. FAULTS 10, 11, 12, 37.

mod hub_support;

use hub_support::{Stored, family, loaded, write_tensors};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use unisono_nn::Regime;
use unisono_train::hub::inspect::{inspect, tensors};
use unisono_train::hub::{SaveOptions, WeightSet, expand, read_config, resolve, save};

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

#[test]
fn names_are_paths_or_models_in_the_cache() {
    let home = tempfile::tempdir().expect("a directory");
    let text = home.path().to_str().expect("a path in UTF-8");
    let given = variables(&[("HOME", text), ("MODELS", "m"), ("EMPTY", "")]);
    for (from, to) in [
        ("~/a/~", format!("{text}/a/~")),
        ("$MODELS/x", "m/x".into()),
        ("a/${MODELS}b$MODELS", "a/mbm".into()),
        ("a$EMPTY/~", "a/~".into()),
        ("5$", "5$".into()),
    ] {
        assert_eq!(expand(from, &given).expect("it is expanded"), to);
    }
    for (wrong, words) in [
        ("$NO/x", "$NO/x names the environment variable NO, which is not set"),
        ("${NO}", "names the environment variable NO"),
        ("${NO", "has a ${ without its }"),
    ] {
        let error = expand(wrong, &given).expect_err("it is refused").to_string();
        assert!(error.contains(words), "{error}");
    }

    let cache = home.path().join(".cache/huggingface/hub");
    let model = cache.join("models--org--tiny");
    for commit in ["abc", "def"] {
        std::fs::create_dir_all(model.join("snapshots").join(commit)).expect("it is made");
    }
    std::fs::create_dir_all(model.join("refs")).expect("it is made");
    std::fs::write(model.join("refs/main"), "abc\n").expect("it is written");
    std::fs::write(model.join("refs/old"), "def").expect("it is written");
    std::fs::write(model.join("refs/evil"), "../../../..").expect("it is written");
    let snapshot = |commit: &str| model.join("snapshots").join(commit);
    assert_eq!(resolve("org/tiny", &given).expect("it is there"), snapshot("abc"));
    assert_eq!(resolve("org/tiny@old", &given).expect("it is there"), snapshot("def"));
    assert_eq!(resolve("org/tiny@def", &given).expect("it is there"), snapshot("def"));
    assert_eq!(resolve("~", &given).expect("it is there"), home.path());
    let elsewhere = variables(&[
        ("HF_HUB_CACHE", cache.to_str().expect("UTF-8")),
        ("HF_HOME", "/nowhere"),
    ]);
    assert_eq!(resolve("org/tiny", &elsewhere).expect("it is there"), snapshot("abc"));
    let elsewhere = variables(&[("HF_HOME", cache.parent().and_then(Path::to_str).expect("UTF-8"))]);
    assert_eq!(resolve("org/tiny", &elsewhere).expect("it is there"), snapshot("abc"));

    for (wrong, words) in [
        (
            "org/other",
            "does not have org/other: download it with `hf download org/other`",
        ),
        (
            "org/tiny@new",
            "but no complete revision new of it: download it with `hf download org/tiny --revision new`",
        ),
        ("org/tiny@evil", "no complete revision evil"),
        ("org/tiny@../..", "does not exist"),
        ("../x", "../x does not exist"),
        ("", "the name of the model is empty"),
        ("$MODELS/a/b/c", "m/a/b/c does not exist (written as $MODELS/a/b/c)"),
    ] {
        let error = resolve(wrong, &given).expect_err("it is refused").to_string();
        assert!(error.contains(words), "{wrong}: {error}");
    }
    let error = resolve("org/tiny", &variables(&[]))
        .expect_err("there is no home")
        .to_string();
    assert!(error.contains("neither HF_HOME nor HOME is set"), "{error}");
}

/// A directory of the small Llama with changed tensors, and what loading it says.
fn with_tensors(name: &str, metadata: &[(&str, &str)], change: impl FnOnce(&mut Vec<Stored>)) -> Result<(), String> {
    let directory = tempfile::tempdir().expect("a directory");
    let family = family(name);
    family.write_config(directory.path());
    let mut tensors = family.tensors();
    change(&mut tensors);
    write_tensors(&directory.path().join("model.safetensors"), &tensors, metadata);
    loaded(directory.path(), &[], &Regime::inference())
        .map(drop)
        .map_err(|error| error.to_string())
}

fn refused(name: &str, words: &[&str], change: impl FnOnce(&mut Vec<Stored>)) {
    let error = with_tensors(name, &[], change).expect_err(words[0]);
    for words in words {
        assert!(error.contains(words), "{words}\n{error}");
    }
}

const TABLE: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

fn find<'a>(tensors: &'a mut [Stored], name: &str) -> &'a mut Stored {
    let found = tensors.iter_mut().find(|(known, ..)| known == name);
    found.expect("it is there")
}

#[test]
fn tensors_must_be_those_of_the_model() {
    refused(
        "llama",
        &[
            "does not fit this model, and nothing was changed",
            "it has no tensor `model.norm.weight` of shape [64]",
            "its tensor `model.norm.wait` of shape [64] has no place in the model",
            "its tensor `model.layers.0.mlp.up_proj.weight` has shape [64, 96], the model's has [96, 64]",
        ],
        |tensors| {
            find(tensors, "model.norm.weight").0 = "model.norm.wait".into();
            find(tensors, "model.layers.0.mlp.up_proj.weight").1 = vec![64, 96];
        },
    );
    refused("llama", &["; and 11 more"], |tensors| tensors.clear());
    refused(
        "llama",
        &["the file has 99 rows for a vocabulary (vocab_size) of 97; if the last 2 are padding, set vocab_size to 99"],
        |tensors| {
            let table = find(tensors, TABLE);
            table.1[0] = 99;
            table.2.extend([0.0; 128]);
        },
    );
    refused(
        "llama",
        &["it has no tensor `lm_head.weight` of shape [97, 64]: a file without a head is of a tied model"],
        |tensors| tensors.retain(|(name, ..)| name != HEAD),
    );
    with_tensors("llama", &[], |tensors| {
        tensors.push((
            "model.layers.0.self_attn.rotary_emb.inv_freq".into(),
            vec![4],
            vec![0.0; 4],
        ));
    })
    .expect("frequencies are computed");
    with_tensors("gpt2", &[], |tensors| {
        for (name, ..) in tensors.iter_mut() {
            *name = name.trim_start_matches("transformer.").to_owned();
        }
        tensors.push(("h.0.attn.bias".into(), vec![1, 1, 2, 2], vec![0.0; 4]));
        tensors.push(("h.0.attn.masked_bias".into(), vec![], vec![0.0]));
    })
    .expect("older files of GPT-2 have such names and masks");
}

#[test]
fn tied_heads_may_be_stored_once_twice_or_as_an_alias() {
    let both = |change: f32| {
        move |tensors: &mut Vec<Stored>| {
            let mut head = find(tensors, TABLE).clone();
            head.0 = HEAD.into();
            head.2[70] += change;
            tensors.push(head);
        }
    };
    with_tensors("llama3", &[], both(0.0)).expect("they are equal");
    refused(
        "llama3",
        &["its head `lm_head.weight` differs from `model.embed_tokens.weight` at element 70, but this model ties them"],
        both(1.0),
    );
    with_tensors("llama3", &[(HEAD, TABLE), ("format", "pt"), ("x", "y")], |_| {}).expect("an alias says what is so");
    with_tensors("llama3", &[(TABLE, HEAD)], |tensors| {
        find(tensors, TABLE).0 = HEAD.into()
    })
    .expect("the table is stored under the head's name");
    let untied = with_tensors("llama", &[(HEAD, TABLE)], |tensors| {
        tensors.retain(|(name, ..)| name != HEAD)
    });
    let error = untied.expect_err("the file says that they are one");
    assert!(
        error.contains(
            "its `lm_head.weight` is another name of `model.embed_tokens.weight`, but this model does not tie them"
        ),
        "{error}"
    );
}

/// The small Llama in two files, with an index that `change` has had.
fn sharded(change: impl FnOnce(&Path, &mut Vec<Stored>, &mut Vec<Stored>, &mut Value)) -> Result<(), String> {
    let directory = tempfile::tempdir().expect("a directory");
    let family = family("llama");
    family.write_config(directory.path());
    let mut first = family.tensors();
    let mut second = first.split_off(5);
    let mut map = serde_json::Map::new();
    for (tensors, file) in [(&first, "a.safetensors"), (&second, "b.safetensors")] {
        map.extend(tensors.iter().map(|(name, ..)| (name.clone(), json!(file))));
    }
    let mut index = json!({"metadata": {"total_size": 0}, "weight_map": map});
    change(directory.path(), &mut first, &mut second, &mut index);
    for (tensors, file) in [(&first, "a.safetensors"), (&second, "b.safetensors")] {
        write_tensors(&directory.path().join(file), tensors, &[]);
    }
    std::fs::write(directory.path().join("model.safetensors.index.json"), index.to_string()).expect("it is written");
    loaded(directory.path(), &[("tp", 2)], &Regime::inference())
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Changes the tensors of two files and the index.
type Change<'a> = dyn Fn(&mut Vec<Stored>, &mut Vec<Stored>, &mut Value) + 'a;

#[test]
fn shards_must_be_what_their_index_says() {
    sharded(|_, _, _, _| {}).expect("it loads");
    let refused = |words: &str, change: &Change<'_>| {
        let error = sharded(|_, a, b, index| change(a, b, index)).expect_err(words);
        assert!(
            error.contains("model.safetensors.index.json: ") && error.contains(words),
            "{words}\n{error}"
        );
    };
    refused(
        "the tensor model.norm.weight is in two files, a.safetensors and b.safetensors",
        &|a, b, _| {
            a.push(find(b, "model.norm.weight").clone());
        },
    );
    refused(
        "weight_map names the tensor model.norm.weight, which is not in b.safetensors",
        &|_, b, _| {
            b.retain(|(name, ..)| name != "model.norm.weight");
        },
    );
    refused(
        "weight_map leaves out the tensor extra, which is in b.safetensors",
        &|_, b, _| {
            b.push(("extra".into(), vec![1], vec![0.0]));
        },
    );
    refused(
        "says that the tensor model.norm.weight is in a.safetensors, and it is in b.safetensors",
        &|_, _, index| {
            index["weight_map"]["model.norm.weight"] = json!("a.safetensors");
        },
    );
    refused(
        "weight_map names the file c.safetensors, which is not there: the download is not complete",
        &|_, _, index| {
            index["weight_map"]["model.norm.weight"] = json!("c.safetensors");
        },
    );
    for path in ["../a.safetensors", "/etc/passwd", "x/a.safetensors", "..", ""] {
        refused("the name of a file beside the index is needed", &|_, _, index| {
            index["weight_map"]["model.norm.weight"] = json!(path);
        });
    }
    refused("weight_map.model.norm.weight is 7;", &|_, _, index| {
        index["weight_map"]["model.norm.weight"] = json!(7);
    });
    refused("weight_map is missing", &|_, _, index| *index = json!({"weights": {}}));
}

#[test]
fn directories_without_weights_say_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let say = || {
        WeightSet::open(directory.path())
            .expect_err("there are no weights")
            .to_string()
    };
    assert!(
        say().contains("it has neither model.safetensors nor model.safetensors.index.json"),
        "{}",
        say()
    );
    std::fs::write(directory.path().join("x.gguf"), "").expect("it is written");
    assert!(say().contains("x.gguf is in a format that is not read"), "{}", say());
    std::fs::write(directory.path().join("pytorch_model.bin"), "").expect("it is written");
    assert!(
        say().contains("pytorch_model.bin is not read, since such files can run code: convert it with `python"),
        "{}",
        say()
    );
    let error = read_config(directory.path())
        .expect_err("there is no configuration")
        .to_string();
    assert!(error.contains("it has no config.json"), "{error}");
}

#[test]
fn directories_of_others_are_not_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    std::fs::create_dir(&from).expect("it is made");
    family("llama").write(&from);
    let (model, spec) = loaded(&from, &[], &Regime::inference()).expect("it loads");
    let parameters: Vec<_> = model.as_model().table().all().collect();
    let options = SaveOptions {
        files: vec![("tokenizer.json".into(), b"{}".to_vec())],
        ..SaveOptions::default()
    };
    let attempt = |to: &Path| save(to, &spec, &parameters, &options).map_err(|error| error.to_string());
    let error = attempt(&from).expect_err("it was not written by us");
    assert!(
        error.contains("config.json was not written by `unisono export`"),
        "{error}"
    );
    for _ in 0..2 {
        assert_eq!(attempt(&to).expect("it is written, and again").len(), 3);
    }
    std::fs::write(to.join("notes.txt"), "mine").expect("it is written");
    let error = attempt(&to).expect_err("it would be deleted");
    assert!(error.contains("notes.txt was not written by"), "{error}");
    let left: Vec<_> = std::fs::read_dir(directory.path())
        .expect("a directory")
        .flatten()
        .collect();
    assert_eq!(left.len(), 2, "temporary directories are left: {left:?}");
}

#[test]
fn models_are_inspected_without_their_weights() {
    let directory = tempfile::tempdir().expect("a directory");
    family("llama").write(directory.path());
    let seen = inspect(directory.path()).expect("a directory");
    assert!(seen.refused.is_empty(), "{:?}", seen.refused);
    let model = seen.model.expect("it is described");
    let count: usize = family("llama")
        .shapes
        .values()
        .map(|shape| shape.iter().product::<usize>())
        .sum();
    assert_eq!(
        (model.architecture, model.parameters as usize),
        ("LlamaForCausalLM", count)
    );
    assert_eq!((model.context, model.vocabulary, model.tied), (128, 97, false));
    // The tables' 97 rows are kept as 98, in two units. Vectors (norms) stay f32 in bf16.
    let (padded, vectors) = (count + 2 * 64, 5 * 64);
    let memory = model.memory;
    assert_eq!(memory.inference_f32 as usize, 4 * padded);
    assert_eq!(memory.inference_bf16 as usize, 2 * (padded - vectors) + 4 * vectors);
    assert_eq!(memory.training_f32 as usize, 16 * padded);
    assert_eq!(memory.training_bf16 as usize, 16 * padded + 2 * (padded - vectors));
    assert_eq!(seen.weights.expect("they are read").bytes as usize, 4 * count);
    assert!(
        seen.tokenizer.is_none() && seen.notes[0].contains("no tokenizer.json"),
        "{:?}",
        seen.notes
    );

    let (list, total) = tensors(&directory.path().join("model.safetensors")).expect("it is read");
    assert_eq!((list.len(), total.tensors), (21, 21));
    std::fs::remove_file(directory.path().join("model.safetensors")).expect("it is removed");
    let seen = inspect(directory.path()).expect("a directory");
    assert_eq!(seen.refused.len(), 1, "{:?}", seen.refused);
    let error = tensors(&directory.path().join("config.json"))
        .expect_err("no weights")
        .to_string();
    assert!(error.contains("it is no safetensors file"), "{error}");
}
