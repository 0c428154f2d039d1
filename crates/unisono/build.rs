//! Tells the program which commit it was built from, where that is known.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // Only unisono's own repository counts, not one that a vendored copy lies in.
    let commit = root.join(".git").exists().then(|| commit(&root)).flatten();
    let log = root.join(".git/logs/HEAD");
    if log.exists() {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    println!("cargo::rustc-env=UNISONO_COMMIT={}", commit.unwrap_or_default());
}

/// The commit that is checked out; `None` where git is not there or will not say.
fn commit(root: &Path) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}
