//! Names, configurations and weights of other programs' models: what is read, and what is refused in which words. FAULTS 10, 11,
//! 12, 37.

mod hub_support;

use hub_support::{Stored, family, loaded, write_tensors};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use unisono_nn::Regime;
use unisono_nn::models::LlamaConfig;
use unisono_nn::rope::RopeScaling;
use unisono_train::hub::config::{Architecture, Ids, config_json, parse_config};
use unisono_train::hub::inspect::{inspect, tensors};
use unisono_train::hub::{self, HubError, SaveOptions, WeightSet, expand, read_config, resolve, save};
use unisono_train::model::ModelSpec;

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

/// The configuration of a family with some keys set, or removed where they are `"-"`.
fn changed(name: &str, changes: Value) -> Result<hub::Described, HubError> {
    let mut config = family(name).config;
    let object = config.as_object_mut().expect("an object");
    for (key, value) in changes.as_object().expect("an object") {
        match value.as_str() {
            Some("-") => object.remove(key),
            _ => object.insert(key.clone(), value.clone()),
        };
    }
    parse_config(Path::new("config.json"), &config.to_string())
}

fn llama(described: hub::Described) -> LlamaConfig {
    match described.spec {
        ModelSpec::Llama(config) => config,
        other => panic!("no Llama: {other:?}"),
    }
}

#[test]
fn older_files_and_absent_keys_mean_what_transformers_takes() {
    let older = json!({
        "rope_parameters": "-",
        "rope_theta": 500000.0,
        "rope_scaling": {
            "type": "llama3", "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192
        },
        "torch_dtype": "bfloat16", "dtype": "-", "num_key_value_heads": "-", "head_dim": "-", "eos_token_id": [2, 7]
    });
    let described = changed("llama", older).expect("it is read");
    assert_eq!(described.dtype.as_deref(), Some("bfloat16"));
    assert_eq!(described.ids.eos, [2, 7]);
    let config = llama(described);
    assert_eq!(
        (config.num_groups, config.head_dim, config.rope.theta),
        (8, 8, 500_000.0)
    );
    let scaling = RopeScaling::Llama3 {
        factor: 32.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 8192,
    };
    assert_eq!(config.rope.scaling, scaling);

    let bare = |architecture: &str| {
        let text =
            json!({"architectures": [architecture], "num_attention_heads": 32, "sliding_window": null}).to_string();
        llama(parse_config(Path::new("config.json"), &text).expect("it is read"))
    };
    let numbers = |c: LlamaConfig| {
        (
            c.vocab_size,
            c.intermediate_dim,
            c.num_groups,
            c.max_sequence_length,
            c.head_dim,
            c.norm_eps,
            c.weight_tying,
        )
    };
    assert_eq!(
        numbers(bare("LlamaForCausalLM")),
        (32000, 11008, 32, 2048, 128, 1e-6, false)
    );
    assert_eq!(
        numbers(bare("MistralForCausalLM")),
        (32000, 14336, 8, 131_072, 128, 1e-6, false)
    );
    assert_eq!(
        numbers(bare("Qwen2ForCausalLM")),
        (151_936, 22016, 32, 32768, 128, 1e-6, false)
    );
    assert!(bare("Qwen2ForCausalLM").qkv_bias && !bare("Qwen2ForCausalLM").output_bias);
    let qwen3 = llama(changed("qwen3", json!({"head_dim": "-"})).expect("it is read"));
    assert_eq!((qwen3.head_dim, qwen3.qk_norm), (128, true));
    let by_type = changed("qwen3", json!({"architectures": "-"})).expect("it is read");
    assert_eq!(by_type.architecture, Architecture::Qwen3);
    let no_ids = changed("llama", json!({"bos_token_id": null, "eos_token_id": null})).expect("it is read");
    assert_eq!(no_ids.ids, Ids::default());
}

#[test]
fn what_is_not_built_is_refused_by_its_key() {
    for (name, changes, words) in [
        (
            "llama",
            json!({"architectures": ["MixtralForCausalLM"]}),
            "architectures MixtralForCausalLM: mixtures of experts are not built; built are LlamaForCausalLM, MistralForCausalLM",
        ),
        ("llama", json!({"architectures": ["LlamaModel"]}), "without a head"),
        (
            "llama",
            json!({"architectures": ["WhatForCausalLM"]}),
            "this model family is not built",
        ),
        (
            "llama",
            json!({"architectures": [], "model_type": "-"}),
            "architectures and model_type are missing",
        ),
        (
            "llama",
            json!({"architectures": "LlamaForCausalLM"}),
            "architectures is \"LlamaForCausalLM\"; a list",
        ),
        (
            "llama",
            json!({"architectures": "-", "model_type": "gemma3"}),
            "model_type gemma3: scaled embeddings",
        ),
        (
            "llama",
            json!({"quantization_config": {"quant_method": "gptq"}}),
            "quantization_config \"gptq\": quantised weights are not built",
        ),
        (
            "llama",
            json!({"hidden_act": "gelu"}),
            "hidden_act gelu is not built for this family; silu is",
        ),
        (
            "llama",
            json!({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}),
            "rope_parameters of the kind \"yarn\" is not built; default, linear and llama3 are",
        ),
        (
            "llama",
            json!({"rope_parameters": "-", "rope_scaling": {"type": "dynamic", "factor": 2.0}}),
            "rope_scaling of the kind \"dynamic\"",
        ),
        (
            "llama",
            json!({"rope_parameters": {"full_attention": {"rope_type": "default"}}}),
            "differs from layer to layer",
        ),
        (
            "llama",
            json!({"rope_parameters": {"rope_type": "linear"}}),
            "rope_parameters.factor is missing",
        ),
        (
            "llama",
            json!({"rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}}),
            "the first must be greater",
        ),
        (
            "llama",
            json!({"rope_parameters": {"rope_type": "default", "rope_theta": 0}}),
            "rope_parameters.rope_theta is 0; a number above 0 is needed",
        ),
        (
            "llama",
            json!({"rope_parameters": [1]}),
            "rope_parameters is [1]; an object is needed",
        ),
        (
            "llama",
            json!({"partial_rotary_factor": 0.5}),
            "partial_rotary_factor is 0.5; only 1 is built",
        ),
        (
            "llama",
            json!({"num_attention_heads": 7}),
            "num_attention_heads 7 does not divide into num_key_value_heads 2 groups",
        ),
        (
            "llama",
            json!({"hidden_size": 63, "head_dim": null}),
            "hidden_size 63 does not divide into num_attention_heads 8 heads",
        ),
        (
            "llama",
            json!({"head_dim": 7}),
            "head_dim is 7; rotary positions need pairs",
        ),
        (
            "llama",
            json!({"vocab_size": -1}),
            "vocab_size is -1; a whole number from 1 to 4294967296 is needed",
        ),
        (
            "llama",
            json!({"vocab_size": "97"}),
            "vocab_size is \"97\"; a whole number",
        ),
        (
            "llama",
            json!({"hidden_size": 1e300}),
            "hidden_size is 1e+300; a whole number",
        ),
        (
            "llama",
            json!({"hidden_size": 4_294_967_296u64, "intermediate_size": 4_294_967_296u64}),
            "make a model of",
        ),
        (
            "llama",
            json!({"num_hidden_layers": 1_000_000}),
            "num_hidden_layers is 1000000; a whole number from 1 to 10000",
        ),
        (
            "llama",
            json!({"rms_norm_eps": "small"}),
            "rms_norm_eps is \"small\"; a number above 0",
        ),
        (
            "llama",
            json!({"tie_word_embeddings": 1}),
            "tie_word_embeddings is 1; true or false is needed",
        ),
        (
            "llama",
            json!({"eos_token_id": 4.5}),
            "eos_token_id is 4.5; a token id is needed",
        ),
        (
            "mistral",
            json!({"sliding_window": 64}),
            "sliding_window 64 is shorter than max_position_embeddings 128",
        ),
        (
            "mistral",
            json!({"sliding_window": "-", "max_position_embeddings": 8192}),
            "sliding_window 4096 (which the file does not name",
        ),
        (
            "qwen2",
            json!({"use_sliding_window": true}),
            "use_sliding_window is true",
        ),
        (
            "qwen3",
            json!({"layer_types": ["full_attention", "sliding_attention"]}),
            "layer_types has \"sliding_attention\"",
        ),
        (
            "gpt2",
            json!({"activation_function": "quick_gelu"}),
            "activation_function quick_gelu is not built",
        ),
        (
            "gpt2",
            json!({"layer_norm_epsilon": 1e-6}),
            "layer_norm_epsilon is 0.000001; only 1e-5",
        ),
        (
            "gpt2",
            json!({"n_head": 5}),
            "n_embd 64 does not divide into n_head 5 heads",
        ),
        (
            "gpt2",
            json!({"scale_attn_by_inverse_layer_idx": true}),
            "scale_attn_by_inverse_layer_idx is true, which is not built",
        ),
    ] {
        let error = changed(name, changes).expect_err(words).to_string();
        assert!(
            error.starts_with("config.json: ") && error.contains(words),
            "{words}\n{error}"
        );
    }
    let two = changed("llama", json!({"vocab_size": 0, "hidden_act": "relu"}))
        .expect_err("two are wrong")
        .to_string();
    assert!(
        two.contains("vocab_size is 0") && two.contains("hidden_act relu"),
        "{two}"
    );
    // A window that is never shorter than a text is none.
    changed("mistral", json!({"sliding_window": 128})).expect("it is read");
}

#[test]
fn configurations_are_written_as_they_are_read() {
    for name in [
        "llama",
        "llama3",
        "llama_linear_biases",
        "mistral",
        "qwen2",
        "qwen3",
        "gpt2",
    ] {
        let read = changed(name, json!({})).expect("it is read");
        let ids = Ids {
            bos: Some(1),
            eos: vec![2, 3],
            pad: None,
        };
        let text = config_json(&read.spec, &ids, "float32").expect("it is written");
        let again = parse_config(Path::new("config.json"), &text).expect("it is read");
        assert_eq!((&again.spec, again.ids), (&read.spec, ids), "{name}");
        // What older versions of transformers read.
        let mut value: Value = serde_json::from_str(&text).expect("JSON");
        value.as_object_mut().expect("an object").remove("rope_parameters");
        let older = parse_config(Path::new("config.json"), &value.to_string()).expect("it is read");
        assert_eq!(older.spec, again.spec, "{name}");
    }
    let mut odd = changed("llama", json!({})).expect("it is read");
    if let ModelSpec::Llama(config) = &mut odd.spec {
        config.output_bias = true;
    }
    let error = config_json(&odd.spec, &Ids::default(), "float32").expect_err("no family has that");
    assert!(
        error.contains("no family has this choice of biases and norms"),
        "{error}"
    );
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

#[test]
fn shards_must_be_what_their_index_says() {
    sharded(|_, _, _, _| {}).expect("it loads");
    let refused = |words: &str, change: &dyn Fn(&mut Vec<Stored>, &mut Vec<Stored>, &mut Value)| {
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
