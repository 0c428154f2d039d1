//! Presets, the repository's configurations, the reference and the schema.

mod config_support;

use config_support::{data, environment, golden};
use serde_json::Value;
use std::path::{Path, PathBuf};
use unisono_train::config::*;

/// The repository's root, where this crate lies in it; a published crate has none.
fn repository() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("docs").is_dir().then_some(root)
}

#[test]
fn every_preset_loads_without_a_word() {
    for (name, _, yaml) in PRESETS {
        let loaded = load_text(name, preset(name).unwrap(), &[], &environment(data())).unwrap();
        assert_eq!(loaded.notes, vec![], "{name}");
        assert!(yaml.starts_with('#'), "{name} begins with what it is");
    }
    assert_eq!(preset("none"), None);
}

#[test]
fn the_gpt2_preset_is_gpt2() {
    let config = load_text("gpt2", preset("gpt2").unwrap(), &[], &environment(data()))
        .unwrap()
        .config;
    let ModelConfig::Gpt2(g) = config.model else {
        panic!("not a GPT")
    };
    let d = g.embedding_dim;
    let block = 12 * d * d + 13 * d;
    assert_eq!(
        g.num_blocks * block + (g.vocab_size + g.max_sequence_length) * d + 2 * d,
        124_439_808
    );
}

#[test]
fn the_repositorys_configurations_load_and_differ_only_in_the_mesh() {
    let Some(root) = repository() else { return };
    let environment = environment(root);
    let names = [
        "char-gpt-1",
        "char-gpt-dp2",
        "char-gpt-tp4",
        "char-gpt-dp2-tp2",
        "char-gpt-dp2-tp4",
        "char-gpt-dp4-tp8",
    ];
    let loaded = names.map(|name| {
        let path = format!("configs/{name}.yaml");
        load(Path::new(&path), &[], &environment).unwrap_or_else(|errors| panic!("{errors}"))
    });
    for (name, other) in names.iter().zip(&loaded) {
        assert_eq!(other.notes, vec![], "{name}");
        let keys = differing_keys(&loaded[0].config, &other.config);
        assert!(
            keys.iter()
                .all(|difference| difference.key.starts_with("device_config.")),
            "{name}: {keys:?}"
        );
    }
}

#[test]
fn the_reference_is_up_to_date() {
    let Some(root) = repository() else { return };
    golden(&root.join("docs/configuration.md"), &reference_markdown());
}

/// Whether a document's keys are all in a schema (the part of JSON schema that ours uses for keys).
fn keys_are_known(schema: &Value, document: &Value, path: &str) {
    let Some(map) = document.as_object() else { return };
    let options = schema["anyOf"]
        .as_array()
        .cloned()
        .unwrap_or_else(|| vec![schema.clone()]);
    let Some(schema) = options.iter().find(|option| option["properties"].is_object()) else {
        return;
    };
    for (key, value) in map {
        let inner = &schema["properties"][key];
        assert!(!inner.is_null(), "the schema lacks {path}.{key}");
        keys_are_known(inner, value, &format!("{path}.{key}"));
    }
}

#[test]
fn the_schema_knows_every_key_that_is_written() {
    let schema = schema();
    assert_eq!(
        schema["properties"]["training_config"]["properties"]["batch_size"]["default"],
        64
    );
    assert_eq!(schema["properties"]["training_config"]["additionalProperties"], false);
    assert_eq!(
        schema["properties"]["training_config"]["properties"]["optimizer"]["properties"]["type"]["enum"][0],
        "AdamW"
    );
    assert!(
        schema["properties"]["scheduler_config"]["properties"]["phases"]["items"]["properties"]["gamma"].is_object()
    );
    assert!(schema["properties"]["optimizer_config"]["anyOf"].is_array());
    // A run's own copy, section by section, as a JSON document.
    let yaml = to_yaml(&RunConfig::default());
    let mut document = serde_json::Map::new();
    let (mut section, mut inner) = (String::new(), String::new());
    for line in yaml
        .lines()
        .filter(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty())
    {
        let (key, value) = line.trim().split_once(':').unwrap();
        let indent = line.len() - line.trim_start().len();
        let value = Value::String(value.trim().to_string());
        match indent {
            0 => section = key.to_string(),
            2 if value == "" => inner = key.to_string(),
            2 => document.entry(&section).or_insert(serde_json::json!({}))[key] = value,
            _ => document.entry(&section).or_insert(serde_json::json!({}))[&inner][key] = value,
        }
    }
    assert_eq!(document.len(), 4);
    keys_are_known(&schema, &Value::Object(document), "");
}

#[test]
fn a_runs_copy_is_commented() {
    let config = load_text("char-gpt", preset("char-gpt").unwrap(), &[], &environment(data()))
        .unwrap()
        .config;
    golden(&data().join("char-gpt-resolved.golden"), &to_yaml(&config));
}
