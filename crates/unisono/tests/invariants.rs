//! What the architecture forbids, held by reading the sources: imports upwards, printing outside the command line, `unsafe`
//! outside the modules named for it, files that no longer fit in a head, the platform's mathematical functions.

use std::path::{Path, PathBuf};

/// The crates from bottom to top; each may import only those before it.
const ORDER: [&str; 9] = [
    "unisono-mesh",
    "unisono-kernels",
    "unisono-runtime",
    "unisono-tensor",
    "unisono-nn",
    "unisono-data",
    "unisono-train",
    "unisono-launch",
    "unisono",
];

/// Where `unsafe` may stand: kernels, and in other crates only these files or folders.
const UNSAFE: [&str; 6] = [
    "crates/unisono-kernels/src",
    "crates/unisono-runtime/src/arena.rs",
    "crates/unisono-runtime/src/place.rs",
    "crates/unisono-runtime/src/sched",
    "crates/unisono-runtime/src/transport",
    "crates/unisono-data/src",
];

/// Where threads may start: workers, the watch over other processes, the preparation of batches, checkpoints behind the run, and measurements of the machine.
const THREADS: [&str; 6] = [
    "crates/unisono-runtime/src/sched/mod.rs",
    "crates/unisono-runtime/src/transport/link.rs",
    "crates/unisono-data/src/prefetch.rs",
    "crates/unisono-train/src/checkpoint/writer.rs",
    "crates/unisono-kernels/src/gemm/peak.rs",
    "crates/unisono-kernels/src/bandwidth.rs",
];

/// Tables and other files that may be longer than 500 lines.
const LONG: [&str; 0] = [];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every source file of the crates (not tests, examples or benches) with its path from the root and its text.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for krate in ORDER {
        let folder = root().join("crates").join(krate).join("src");
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("the crate's sources can be listed") {
                let path = entry.expect("the entry can be read").path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|ext| ext == "rs") {
                    let name = path
                        .strip_prefix(root())
                        .expect("it is below the root")
                        .display()
                        .to_string();
                    let text = std::fs::read_to_string(&path).expect("the source can be read");
                    found.push((name, text));
                }
            }
        }
    }
    assert!(found.len() > 100, "the sources were found");
    found
}

/// The lines of a file before its tests, without comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .take_while(|line| !line.starts_with("#[cfg(test)]"))
        .enumerate()
        .map(|(index, line)| (index + 1, line.split("//").next().unwrap_or("")))
}

fn is_test_file(name: &str) -> bool {
    name.ends_with("/tests.rs") || name.contains("/tests/")
}

#[test]
fn crates_import_only_downwards() {
    for (index, krate) in ORDER.iter().enumerate() {
        let manifest = root().join("crates").join(krate).join("Cargo.toml");
        let text = std::fs::read_to_string(manifest).expect("the manifest can be read");
        let dependencies = text.split("[dev-dependencies]").next().unwrap_or("");
        for (other_index, other) in ORDER.iter().enumerate() {
            let imports = dependencies
                .lines()
                .any(|line| line.starts_with(&format!("{other}.")) || line.starts_with(&format!("{other} ")));
            assert!(
                !imports || other_index < index,
                "{krate} imports {other}, which is not below it"
            );
        }
    }
}

#[test]
fn only_the_command_line_prints() {
    for (name, text) in sources()
        .iter()
        .filter(|(name, _)| !name.starts_with("crates/unisono/") && !is_test_file(name))
    {
        for (line, code) in code(text) {
            let prints = ["println!", "eprintln!", "print!(", "eprint!(", "dbg!("]
                .iter()
                .any(|macro_| code.contains(macro_));
            assert!(
                !prints,
                "{name}:{line} prints: libraries return values or call an observer"
            );
        }
    }
}

#[test]
fn unsafe_stands_only_where_it_may() {
    for (name, text) in sources()
        .iter()
        .filter(|(name, _)| !UNSAFE.iter().any(|allowed| name.starts_with(allowed)))
    {
        for (line, code) in code(text) {
            let found = code
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(|word| word == "unsafe");
            assert!(!found, "{name}:{line} uses unsafe outside {UNSAFE:?}");
        }
    }
}

#[test]
fn threads_start_only_where_they_may() {
    let starts = |code: &str| {
        ["thread::spawn", "thread::Builder", "thread::scope"]
            .iter()
            .any(|call| code.contains(call))
    };
    let mut found = 0;
    for (name, text) in sources().iter().filter(|(name, _)| !is_test_file(name)) {
        for (line, _) in code(text).filter(|(_, code)| starts(code)) {
            assert!(
                THREADS.contains(&name.as_str()),
                "{name}:{line} starts a thread outside {THREADS:?}"
            );
            found += 1;
        }
    }
    assert!(found >= 3, "the search finds the threads that there are");
}

#[test]
fn files_fit_in_a_head() {
    for (name, text) in sources() {
        let lines = text.lines().count();
        assert!(
            lines <= 500 || LONG.contains(&name.as_str()),
            "{name} has {lines} lines, more than 500"
        );
    }
}

#[test]
fn no_platform_mathematics() {
    // Exactly rounded functions (sqrt, mul_add, abs, rounding) are the same everywhere; these are not.
    let forbidden = [
        ".exp(",
        ".exp2(",
        ".exp_m1(",
        ".ln(",
        ".ln_1p(",
        ".log(",
        ".log2(",
        ".log10(",
        ".powf(",
        ".powi(",
        ".sin(",
        ".cos(",
        ".tan(",
        ".sin_cos(",
        ".tanh(",
        ".sinh(",
        ".cosh(",
        ".atan(",
        ".cbrt(",
        ".hypot(",
    ];
    for (name, text) in sources().iter().filter(|(name, _)| !is_test_file(name)) {
        // The command line may round a number for people; what trains may not.
        if name.starts_with("crates/unisono/") {
            continue;
        }
        for (line, code) in code(text) {
            for call in forbidden {
                assert!(
                    !code.contains(call),
                    "{name}:{line} calls {call}…): use unisono_kernels::math"
                );
            }
        }
    }
}
