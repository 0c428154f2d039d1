//! Each sample of tt-train gets a verdict: it loads, or a sentence says what is not built or missing.

mod config_support;

use config_support::{data, environment, golden, verdict};
use std::path::{Path, PathBuf};
use unisono_train::config::load;

fn yaml_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            yaml_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
}

#[test]
fn every_sample_has_its_verdict() {
    let root = data().join("tt_train_configs");
    let environment = environment(root.clone());
    let mut files = Vec::new();
    yaml_files(&root, &mut files);
    files.sort();
    assert_eq!(files.len(), 23);
    let mut out = String::new();
    for file in files {
        let relative = file.strip_prefix(&root).unwrap();
        out.push_str(&format!(
            "== {}\n{}\n",
            relative.display(),
            verdict(&load(relative, &[], &environment))
        ));
    }
    golden(&data().join("samples.golden"), &out);
}
