//! Files of settings that are cut short or damaged give an error or a sound value: no panic, no hang, little memory. (Headers of
//! safetensors files have such tests in `unisono-data`.)

mod hub_support;

use hub_support::{family, write_tensors};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use unisono_train::hub::config::parse_config;
use unisono_train::hub::{WeightSet, expand, resolve};

/// Every text that lacks an end, and every text in which one byte is another.
fn damaged(text: &str, mut see: impl FnMut(&[u8])) {
    let bytes = text.as_bytes();
    for end in 0..bytes.len() {
        see(&bytes[..end]);
    }
    for at in 0..bytes.len() {
        for other in [b'"', b'{', b'}', b'9', b'-', b'e', b',', 0, 0xff] {
            let mut changed = bytes.to_vec();
            changed[at] = other;
            see(&changed);
        }
    }
}

#[test]
fn damaged_configurations_are_errors_or_sound() {
    for name in ["llama3", "gpt2"] {
        let text = family(name).config.to_string();
        let (mut read, mut refused) = (0, 0);
        damaged(&text, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            match parse_config(Path::new("config.json"), text) {
                Ok(_) => read += 1,
                Err(error) => {
                    assert!(error.to_string().starts_with("config.json: "), "{error}");
                    refused += 1;
                }
            }
        });
        assert!(read > 100 && refused > 1000, "{name}: {read} {refused}");
    }
}

#[test]
fn damaged_indices_are_errors_or_sound() {
    let directory = tempfile::tempdir().expect("a directory");
    let tensor = |name: &str| (name.to_owned(), vec![1], vec![0.0]);
    write_tensors(
        &directory.path().join("a.safetensors"),
        &[tensor("x"), tensor("y")],
        &[],
    );
    write_tensors(&directory.path().join("b.safetensors"), &[tensor("z")], &[]);
    let index = directory.path().join("model.safetensors.index.json");
    let text =
        r#"{"metadata":{"total_size":12},"weight_map":{"x":"a.safetensors","y":"a.safetensors","z":"b.safetensors"}}"#;
    std::fs::write(&index, text).expect("it is written");
    assert_eq!(
        WeightSet::open(directory.path())
            .expect("it is sound")
            .tensors()
            .count(),
        3
    );
    let mut refused = 0;
    damaged(text, |bytes| {
        std::fs::write(&index, bytes).expect("it is written");
        match WeightSet::open(directory.path()) {
            Ok(weights) => assert_eq!(weights.tensors().count(), 3),
            Err(error) => {
                assert!(error.to_string().contains("model.safetensors.index.json"), "{error}");
                refused += 1;
            }
        }
    });
    assert!(refused > 700, "{refused}");
}

#[test]
fn deep_and_large_texts_are_refused_at_once() {
    let deep = "[".repeat(1 << 20);
    let error = parse_config(Path::new("config.json"), &deep).expect_err("it has no end");
    assert!(error.to_string().contains("it is not JSON: recursion limit"), "{error}");
    let directory = tempfile::tempdir().expect("a directory");
    let file = std::fs::File::create(directory.path().join("config.json")).expect("it is made");
    file.set_len(1 << 40).expect("it has no blocks");
    let error = unisono_train::hub::read_config(directory.path()).expect_err("a terabyte");
    assert!(error.to_string().contains("which is no file of settings"), "{error}");
}

proptest! {
    #[test]
    fn names_never_leave_the_cache(name in "[a-z./@$~{}-]{0,24}") {
        let home = tempfile::tempdir().expect("a directory");
        let home = home.path().to_str().expect("a path in UTF-8").to_owned();
        let variables = BTreeMap::from([("HOME".to_owned(), home)]);
        let _ = expand(&name, &variables);
        if let Ok(path) = resolve(&name, &variables) {
            // The cache is empty, so it is a path that exists by itself.
            prop_assert!(path.exists());
        }
    }
}
