//! Pre-tokenised data: every format, and files that are cut, mislabelled or out of range.

use std::fs;
use std::path::Path;
use tempfile::tempdir;
use unisono_data::Tokens;
use unisono_data::token_file::{load_tokens, write_tokens};

fn ids(tokens: &Tokens) -> Vec<u32> {
    tokens.iter().collect()
}

/// The refusal of a directory with these files, without the directory's name.
fn refused(files: &[(&str, &[u8])], open: &str, vocab_size: Option<usize>) -> String {
    let directory = tempdir().expect("a temporary directory");
    for (name, bytes) in files {
        fs::write(directory.path().join(name), bytes).expect("a small file");
    }
    let error = load_tokens(&directory.path().join(open), vocab_size).expect_err("must be refused");
    error
        .to_string()
        .replace(&format!("{}/", directory.path().display()), "")
}

fn megatron(code: u8, lengths: &[u32], claimed: u64) -> Vec<u8> {
    let mut index = b"MMIDIDX\0\0".to_vec();
    index.extend(1u64.to_le_bytes());
    index.push(code);
    index.extend(claimed.to_le_bytes());
    index.extend((lengths.len() as u64 + 1).to_le_bytes());
    lengths.iter().for_each(|length| index.extend(length.to_le_bytes()));
    index.extend(vec![0; lengths.len() * 8 + (lengths.len() + 1) * 8]);
    index
}

#[test]
fn what_is_written_reads_back_at_both_widths() {
    let directory = tempdir().expect("a temporary directory");
    for vocab_size in [70, 70_000] {
        let path = directory.path().join("t.bin");
        let tokens = Tokens::from_vec(vec![0, 69, 7, 3], vocab_size, "memory").expect("valid ids");
        write_tokens(&path, &tokens).expect("a writable directory");
        let read = load_tokens(&path, None).expect("a valid file");
        assert_eq!((ids(&read), read.vocab_size()), (vec![0, 69, 7, 3], vocab_size));
        let mut part = [0; 2];
        assert_eq!(read.slice(1..4).read(1, &mut part), 2);
        assert_eq!(part, [7, 3]);
        assert_eq!(
            load_tokens(&path, Some(71)).expect("a valid file").vocab_size(),
            vocab_size
        );
    }
}

#[test]
fn megatron_data_is_one_stream() {
    let directory = tempdir().expect("a temporary directory");
    let path = directory.path().join("t.bin");
    fs::write(&path, [1, 0, 2, 0, 0, 1]).expect("a small file");
    fs::write(directory.path().join("t.idx"), megatron(8, &[2, 1], 2)).expect("a small file");
    let tokens = load_tokens(&path, None).expect("a valid file");
    assert_eq!((ids(&tokens), tokens.vocab_size()), (vec![1, 2, 256], 257));
    // By either file's name.
    let tokens = load_tokens(&path.with_extension("idx"), None).expect("a valid file");
    assert_eq!(ids(&tokens), [1, 2, 256]);
}

#[test]
fn text_formats_are_told_apart_by_their_beginning() {
    let directory = tempdir().expect("a temporary directory");
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("a small file");
        path
    };
    let yaml = load_tokens(
        &write("t.yaml", "tokens: [3, 1, 2]\ntokenizer_vocab_size: 50257\n"),
        None,
    )
    .expect("valid");
    assert_eq!((ids(&yaml), yaml.vocab_size()), (vec![3, 1, 2], 50257));
    let csv = load_tokens(&write("t.csv", "3,1,2\n"), None).expect("valid");
    assert_eq!((ids(&csv), csv.vocab_size()), (vec![3, 1, 2], 4));
    assert_eq!(
        load_tokens(&write("t.csv", "3 1 2"), Some(10))
            .expect("valid")
            .vocab_size(),
        10
    );
}

#[test]
fn bad_files_are_refused_in_sentences() {
    let sidecar: &[u8] = br#"{"dtype": "u16", "vocab_size": 5}"#;
    let cases: Vec<(String, &str)> = vec![
        (
            refused(&[("t.bin", &[1, 0, 5, 0]), ("t.bin.json", sidecar)], "t.bin", None),
            "token id 5 at position 1 of t.bin is outside the vocabulary of 5 (ids 0 to 4)",
        ),
        (
            refused(&[("t.bin", &[1, 0, 5, 0]), ("t.bin.json", sidecar)], "t.bin", Some(9)),
            "token id 5 at position 1 of t.bin is outside the vocabulary of 5 (ids 0 to 4)",
        ),
        (
            refused(&[("t.csv", b"0, 1, 65")], "t.csv", Some(65)),
            "token id 65 at position 2 of t.csv (which names no vocabulary size, so the model's counts) is outside the vocabulary of 65 (ids 0 to 64)",
        ),
        (
            refused(&[("t.yaml", b"tokens: [7]\ntokenizer_vocab_size: 7")], "t.yaml", None),
            "token id 7 at position 0 of t.yaml is outside the vocabulary of 7 (ids 0 to 6)",
        ),
        (
            refused(&[("t.bin", &[1, 0, 5]), ("t.bin.json", sidecar)], "t.bin", None),
            "t.bin is no usable token file: its 3 bytes are no whole number of ids of 2 bytes; it is cut short or of another dtype",
        ),
        (
            refused(&[("t.bin", &[]), ("t.bin.json", sidecar)], "t.bin", None),
            "t.bin is no usable token file: it is empty",
        ),
        (
            refused(&[("t.bin", &[1, 0])], "t.bin", None),
            "t.bin is no usable token file: neither t.idx (Megatron's index) nor t.bin.json lies beside it; for plain little-endian ids write the latter, for example {\"dtype\": \"u16\", \"vocab_size\": 50257}",
        ),
        (
            refused(
                &[("t.bin", &[1, 0]), ("t.bin.json", br#"{"dtype": "f32"}"#)],
                "t.bin",
                None,
            ),
            "t.bin.json is no usable token file: dtype \"f32\" is unknown; use u8, u16 or u32",
        ),
        (
            refused(&[("t.bin", &[1, 0]), ("t.bin.json", b"{}")], "t.bin", None),
            "t.bin.json is no usable token file: missing field `dtype` at line 1 column 2; expected for example {\"dtype\": \"u16\", \"vocab_size\": 50257}",
        ),
        (
            refused(&[("t.bin", &[1, 0]), ("t.idx", b"MMIDIDX")], "t.bin", None),
            "t.idx is no usable token file: its 7 bytes are fewer than the 34 of an index's head",
        ),
        (
            refused(&[("t.bin", &[1, 0]), ("t.idx", &[0; 40])], "t.bin", None),
            "t.idx is no usable token file: it does not begin with MMIDIDX, so it is no Megatron index",
        ),
        (
            refused(&[("t.bin", &[1, 0]), ("t.idx", &megatron(7, &[1], 1))], "t.bin", None),
            "t.idx is no usable token file: its dtype code is 7; ids may be u8 (1), i32 (4) or u16 (8)",
        ),
        (
            refused(&[("t.bin", &[1, 0]), ("t.idx", &megatron(8, &[2], 1))], "t.bin", None),
            "t.idx is no usable token file: its sequences have 2 tokens of 2 bytes, but the data beside it has 2 bytes",
        ),
        (
            refused(
                &[("t.bin", &[1, 0]), ("t.idx", &megatron(8, &[1], u64::MAX))],
                "t.bin",
                None,
            ),
            "t.idx is no usable token file: it claims 18446744073709551615 sequences, more than its 62 bytes hold",
        ),
        (
            refused(
                &[("t.bin", &[255, 255, 255, 255]), ("t.idx", &megatron(4, &[1], 1))],
                "t.bin",
                Some(10),
            ),
            "token id 4294967295 at position 0 of t.bin (which names no vocabulary size, so the model's counts) is outside the vocabulary of 10 (ids 0 to 9)",
        ),
        (
            refused(&[("t.yaml", b"")], "t.yaml", None),
            "t.yaml is no usable token file: it is empty",
        ),
        (
            refused(&[("t.csv", b"1,2\n3,four")], "t.csv", None),
            "t.csv is no usable token file: line 2, column 3: found \"four\" where a token id should stand",
        ),
        (
            refused(&[], "t.bin", None),
            "cannot read t.bin: there is no such file or directory",
        ),
    ];
    for (got, expected) in cases {
        assert_eq!(got, expected);
    }
    let directory = tempdir().expect("a temporary directory");
    let inner = directory.path().join("d.bin");
    fs::create_dir(&inner).expect("a directory");
    assert!(
        load_tokens(&inner, None)
            .expect_err("must be refused")
            .to_string()
            .ends_with("it is a directory; name a file")
    );
    assert!(load_tokens(Path::new(""), None).is_err());
}

#[test]
fn large_lists_are_quick() {
    let text: String = (0..1_000_000).map(|i| format!("{}, ", i % 50_257)).collect();
    let directory = tempdir().expect("a temporary directory");
    let path = directory.path().join("t.yaml");
    fs::write(&path, format!("tokens: [{text}]\n")).expect("a file");
    let start = std::time::Instant::now();
    assert_eq!(load_tokens(&path, None).expect("valid").len(), 1_000_000);
    assert!(start.elapsed().as_secs() < 2, "{:?}", start.elapsed());
}
