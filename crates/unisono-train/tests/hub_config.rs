//! `config.json` of other programs' models: what is read, and what is refused in which words.

mod hub_support;

use hub_support::family;
use serde_json::{Value, json};
use std::path::Path;
use unisono_nn::models::LlamaConfig;
use unisono_nn::rope::RopeScaling;
use unisono_train::hub::config::{Architecture, Ids, config_json, parse_config};
use unisono_train::hub::{self, HubError};
use unisono_train::model::ModelSpec;

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
