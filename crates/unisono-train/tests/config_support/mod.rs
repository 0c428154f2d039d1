//! What the configuration's tests share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use unisono_train::config::{ConfigErrors, Environment, Loaded};

/// The folder of the tests' data.
pub fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config_data")
}

/// An environment without variables, working in a folder.
pub fn environment(working_dir: PathBuf) -> Environment {
    Environment {
        variables: BTreeMap::new(),
        working_dir,
    }
}

/// What `load` said, as text.
#[allow(dead_code)] // not each test binary prints
pub fn verdict(result: &Result<Loaded, ConfigErrors>) -> String {
    let mut out = String::new();
    let notes = match result {
        Ok(loaded) => {
            out.push_str("loads\n");
            &loaded.notes
        }
        Err(errors) => {
            for problem in &errors.problems {
                out.push_str(&format!("error: {problem}\n"));
            }
            &errors.notes
        }
    };
    for note in notes {
        out.push_str(&format!("note: {note}\n"));
    }
    out
}

/// Compares a text with a golden file; `UNISONO_BLESS=1` rewrites the file instead.
#[allow(dead_code)] // not each test binary compares
pub fn golden(path: &Path, text: &str) {
    if std::env::var_os("UNISONO_BLESS").is_some() {
        std::fs::write(path, text).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default().replace("\r\n", "\n");
    for (line, (found, wanted)) in text.lines().zip(expected.lines()).enumerate() {
        assert_eq!(
            found,
            wanted,
            "{}:{} differs; UNISONO_BLESS=1 rewrites it",
            path.display(),
            line + 1
        );
    }
    assert_eq!(
        text.lines().count(),
        expected.lines().count(),
        "{} differs in length",
        path.display()
    );
}
