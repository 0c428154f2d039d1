//! Tells the program which commit it was built from, where that is known.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // Only unisono's own repository counts, not one that a vendored copy lies in.
    let commit = root.join(".git").exists().then(|| commit(&root)).flatten();
    // The log of HEAD changes with every commit; where git keeps none, HEAD and its branch do.
    let branch = git(&root, &["symbolic-ref", "-q", "HEAD"]).unwrap_or_default();
    let mut changing = vec!["logs/HEAD".to_string()];
    if !root.join(".git/logs/HEAD").exists() {
        changing = vec!["HEAD".to_string(), branch];
    }
    for file in changing.iter().map(|name| root.join(".git").join(name)) {
        if file.is_file() {
            println!("cargo::rerun-if-changed={}", file.display());
        }
    }
    println!("cargo::rustc-env=BUILD_COMMIT={}", commit.unwrap_or_default());
}

/// The commit that is checked out.
fn commit(root: &Path) -> Option<String> {
    git(root, &["rev-parse", "--short=12", "HEAD"])
}

/// What git says; `None` where it is not there or will not say.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}
