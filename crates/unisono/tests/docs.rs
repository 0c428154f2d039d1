//! What the documents name exists: files, tests, headings, commands, examples.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Written by hand; the others are generated, and tested where they are.
const DOCUMENTS: [&str; 20] = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/architecture.md",
    "docs/exactness.md",
    "docs/cli.md",
    "docs/launcher.md",
    "docs/clusters.md",
    "docs/coming-from/tt-train.md",
    "docs/coming-from/pytorch-ddp.md",
    "docs/coming-from/accelerate.md",
    "docs/coming-from/transformers.md",
    "docs/coming-from/tt-nn.md",
    "docs/fine-tuning.md",
    "docs/mgd.md",
    "docs/parallelism/README.md",
    "docs/parallelism/data-parallel.md",
    "docs/parallelism/tensor-parallel.md",
    "docs/program-a-mesh.md",
    "bench/amx/README.md",
];

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository's root")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All Rust code of the crates, tests and examples too.
fn code() -> String {
    let (mut text, mut folders) = (String::new(), vec![root().join("crates")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text += &std::fs::read_to_string(&path).expect("a source file is text");
            }
        }
    }
    text
}

/// A document without its fenced blocks, and the fenced blocks with the word after the fence.
fn parts(text: &str) -> (String, Vec<(String, String)>) {
    let (mut prose, mut blocks, mut open) = (String::new(), Vec::new(), None::<(String, String)>);
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some("")) => blocks.extend(open.take()),
            (Some((_, block)), _) => *block += &format!("{line}\n"),
            (None, Some(word)) => open = Some((word.to_string(), String::new())),
            (None, None) => prose += &format!("{line}\n"),
        }
    }
    assert!(open.is_none(), "a fenced block has no end");
    (prose, blocks)
}

/// The contents of `code` in a text.
fn spans(text: &str) -> Vec<&str> {
    text.lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect()
}

/// The anchors of a document's headings, as the usual viewers make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let (prose, _) = parts(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let kept = line.trim_start_matches('#').trim().to_lowercase();
            kept.chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

#[test]
fn links_resolve() {
    for document in DOCUMENTS {
        let text = read(document);
        let (prose, _) = parts(&text);
        let folder = root().join(document).parent().expect("a file has a folder").to_owned();
        for link in prose.split("](").skip(1) {
            let link = link.split(')').next().unwrap_or_default();
            if link.starts_with("https://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                root().join(document)
            } else {
                folder.join(path)
            };
            assert!(target.exists(), "{document} links to {link}, which does not exist");
            if !anchor.is_empty() {
                let there = std::fs::read_to_string(&target).expect("a document is text");
                assert!(anchors(&there).contains(anchor), "{document}: {link} names no heading");
            }
        }
    }
}

#[test]
fn the_references_are_linked() {
    let readme = read("README.md");
    let links = [
        "architecture",
        "exactness",
        "configuration",
        "coming-from/tt-train",
        "coming-from/pytorch-ddp",
        "coming-from/tt-nn",
        "program-a-mesh",
        "mgd",
    ];
    for page in links.map(|page| format!("](docs/{page}.md)")) {
        assert!(readme.contains(&page), "README.md has no link {page}");
    }
    assert!(readme.contains("](CONTRIBUTING.md)"));
}

#[test]
fn named_files_and_tests_exist() {
    let code = code();
    for document in DOCUMENTS {
        let text = read(document);
        let (prose, _) = parts(&text);
        for span in spans(&prose) {
            let is_path = ["crates/", "configs/", "docs/", ".ci/"]
                .iter()
                .any(|start| span.starts_with(start));
            if is_path && !span.contains(['…', ' ']) {
                assert!(
                    root().join(span).exists(),
                    "{document} names {span}, which does not exist"
                );
            }
        }
        if document.starts_with("docs/coming-from") {
            continue;
        }
        // Rows of tables that name a source file name tests too.
        for row in prose
            .lines()
            .filter(|line| line.starts_with('|') && line.contains(".rs`"))
        {
            for span in spans(row) {
                let is_name = span
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
                if is_name && span.matches('_').count() >= 2 {
                    assert!(
                        code.contains(&format!("fn {span}(")),
                        "{document} names the test {span}, which does not exist"
                    );
                }
            }
        }
    }
}

/// Every test in the table of invariants stands in a file of its row.
#[test]
fn invariants_name_their_tests() {
    let text = read("docs/architecture.md");
    let table = text
        .split("## Invariants")
        .nth(1)
        .expect("the table")
        .split("\n## ")
        .next()
        .unwrap_or_default();
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    let mut count = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let &[_, tests, files] = cells.as_slice() else {
            panic!("a row of other than three cells: {row}")
        };
        let files: String = spans(files).iter().map(|file| read(file)).collect();
        for test in spans(tests) {
            assert!(
                files.contains(&format!("fn {test}(")),
                "{test} is not in the files of: {row}"
            );
            count += 1;
        }
    }
    assert!(count > 50, "{count} tests");
}

#[test]
fn the_examples_are_the_files() {
    let text = read("CONTRIBUTING.md");
    let mut count = 0;
    for example in text.split("<!-- file: ").skip(1) {
        let (path, rest) = example.split_once(" -->\n```rust\n").expect("a fence follows");
        let shown = rest.split("```\n").next().expect("the fence ends");
        assert!(
            shown == read(path),
            "CONTRIBUTING.md shows another {path} than there is"
        );
        count += 1;
    }
    assert_eq!(count, 2);
}

/// A text's lines without the blanks around them and the marks of documentation.
fn bare(text: &str) -> Vec<&str> {
    text.lines()
        .map(|line| line.trim().trim_start_matches("//! "))
        .collect()
}

/// Code that is said to be from a file stands there, line after line; the file is an example or a test.
#[test]
fn shown_code_stands_in_its_file() {
    let mut count = 0;
    for document in DOCUMENTS {
        let text = read(document);
        for excerpt in text.split("<!-- from: ").skip(1) {
            let (path, rest) = excerpt.split_once(" -->\n```rust\n").expect("a fence follows");
            let shown = rest.split("```\n").next().expect("the fence ends");
            let file = read(path);
            let (shown, file) = (bare(shown), bare(&file));
            assert!(
                file.windows(shown.len()).any(|lines| lines == shown),
                "{document} shows code of {path} that does not stand there:\n{}",
                shown.join("\n")
            );
            count += 1;
        }
    }
    assert!(count > 5, "{count} excerpts");
}

/// The help of a command, or of the program itself.
fn help(command: &str) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_unisono"));
    program.args(command.split_whitespace());
    let output = program.arg("--help").output().expect("the program runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Every `unisono …` in the documents is a command, with options that it has.
#[test]
fn commands_parse() {
    let known = help("");
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let mut count = 0;
    for document in DOCUMENTS {
        let text = read(document);
        let (prose, blocks) = parts(&text);
        let mut lines: Vec<&str> = spans(&prose);
        for (word, block) in &blocks {
            if word != "rust" && word != "python" {
                lines.extend(block.lines().map(|line| line.trim_start_matches("$ ")));
            }
        }
        for line in lines {
            let line = line.split('#').next().unwrap_or_default().trim();
            let run = ["unisono ", "cargo run --release -- "]
                .iter()
                .find_map(|start| line.strip_prefix(start));
            let Some(arguments) = run else { continue };
            let mut words = arguments.split_whitespace();
            let command = words.next().unwrap_or_default();
            // `unisono 0.1.0 (…)` is the program's own first line, and `unisono --version` an option of it.
            if command.starts_with(|c: char| !c.is_ascii_lowercase()) {
                continue;
            }
            let shown = |help: &str, word: &str| help.split([' ', '\n', ',', '=', '[', ']']).any(|w| w == word);
            assert!(
                shown(&known, command),
                "{document}: there is no command {command}: {line}"
            );
            let command = match ["data", "lora", "mesh", "tokenizer"].contains(&command) {
                true => format!("{command} {}", words.next().unwrap_or_default()),
                false => command.to_string(),
            };
            let help = helps.entry(command.clone()).or_insert_with(|| help(&command));
            // Behind `--` stands another program's.
            let words = words.take_while(|word| *word != "--");
            for option in words.filter(|word| word.starts_with('-') && *word != "-") {
                let option = option.split('=').next().unwrap_or_default();
                assert!(
                    shown(help, option),
                    "{document}: {command} has no option {option}: {line}"
                );
            }
            count += 1;
        }
    }
    assert!(count > 20, "{count} commands");
}
