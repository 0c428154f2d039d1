//! What several tests of descriptors share.
#![allow(dead_code)] // each test uses its part

use std::path::PathBuf;

/// The folder of descriptors that tests read.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/descriptors")
}

/// The names of the real descriptors, sorted.
pub fn real_names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder().join("real"))
        .expect("the folder is there")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The text of a real descriptor.
pub fn real(name: &str) -> Vec<u8> {
    std::fs::read(folder().join("real").join(format!("{name}.textproto"))).expect("the descriptor can be read")
}
