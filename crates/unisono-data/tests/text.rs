//! Text files and tokenizers: what other systems leave in files, and characters nobody has seen.

use std::fs;
use std::path::Path;
use tempfile::tempdir;
use unisono_data::text::{read_bytes, read_text};
use unisono_data::{DataError, Tokenizer};

fn refused(bytes: &[u8]) -> String {
    let directory = tempdir().expect("a temporary directory");
    let path = directory.path().join("t.txt");
    fs::write(&path, bytes).expect("a small file");
    let text = read_text(&path).expect_err("must be refused").to_string();
    text.replace(&path.display().to_string(), "t.txt")
}

#[test]
fn a_text_from_another_system_gives_the_same_text() {
    let directory = tempdir().expect("a temporary directory");
    let path = directory.path().join("t.txt");
    fs::write(&path, "\u{feff}one\r\ntwo\rthree\r\n").expect("a small file");
    let read = read_text(&path).expect("valid text");
    assert_eq!(
        (read.text.as_str(), read.had_bom, read.num_crlf),
        ("one\ntwo\rthree\n", true, 2)
    );
    assert_eq!(read_bytes(&path).expect("a file").len(), 19);
}

#[test]
fn text_errors_are_sentences() {
    assert_eq!(
        refused(b""),
        "t.txt is empty: it has 0 tokens, and at least 2 are needed, since each is predicted from those before it"
    );
    assert_eq!(
        refused(b"\xef\xbb\xbf"),
        "t.txt is empty: it has 0 tokens, and at least 2 are needed, since each is predicted from those before it"
    );
    assert_eq!(
        refused(b"ab\ncd\xe9f"),
        "t.txt is not UTF-8 text: byte 0xe9 at offset 5 (line 2) is no part of a character; convert it to UTF-8 (iconv -f LATIN1 -t UTF-8, where it is Latin-1)"
    );
    assert_eq!(
        refused(b"\xff\xfea\0b\0"),
        "t.txt is not UTF-8 text: byte 0xff at offset 0 (line 1) looks like UTF-16; convert it with iconv -f UTF-16 -t UTF-8"
    );
    let missing = read_text(Path::new("no/such/file.txt"))
        .expect_err("must be refused")
        .to_string();
    assert_eq!(
        missing,
        "cannot read no/such/file.txt: there is no such file or directory"
    );
    let directory = tempdir().expect("a temporary directory");
    let text = read_text(directory.path()).expect_err("must be refused").to_string();
    assert!(text.ends_with("it is a directory; name a file"), "{text}");
}

#[test]
fn characters_are_sorted_by_code_point_and_read_back() {
    let tokenizer = Tokenizer::char_from_text("zebra é 🦓\n").expect("not empty");
    let Tokenizer::Char(vocabulary) = &tokenizer else {
        panic!("a char tokenizer")
    };
    assert_eq!(
        vocabulary.characters().iter().collect::<String>(),
        "\n abezré🦓".replace("zr", "rz")
    );
    let ids = tokenizer.encode("é zebra🦓").expect("known characters");
    assert_eq!(tokenizer.decode(&ids).as_deref(), Ok("é zebra🦓"));
    assert_eq!(
        Tokenizer::from_json(&tokenizer.to_json(), "memory"),
        Ok(tokenizer.clone())
    );
    let directory = tempdir().expect("a temporary directory");
    let path = directory.path().join("tokenizer.json");
    tokenizer.save(&path).expect("a writable directory");
    assert_eq!(Tokenizer::load(&path), Ok(tokenizer));
}

#[test]
fn an_unknown_character_is_named() {
    let tokenizer = Tokenizer::char_from_text("ab é").expect("not empty");
    assert_eq!(
        tokenizer.encode("aéb🦓").expect_err("must be refused").to_string(),
        "the character '🦓' (U+1F993) at character 3 (byte 4) is not in the vocabulary, which has 4 characters: \" abé\""
    );
    assert_eq!(
        tokenizer.encode("b\t").expect_err("must be refused").to_string(),
        "the character '\\t' (U+0009) at character 1 (byte 1) is not in the vocabulary, which has 4 characters: \" abé\""
    );
    assert_eq!(
        tokenizer.decode(&[0, 4]).expect_err("must be refused").to_string(),
        "token id 4 at position 1 of the text to decode is outside the vocabulary of 4 (ids 0 to 3)"
    );
    assert!(Tokenizer::Byte.decode(&[256]).is_err());
}

#[test]
fn broken_vocabularies_are_refused() {
    for (json, problem) in [
        ("", "it ends before its JSON does"),
        (r#"{"type": "bpe"}"#, "unknown variant `bpe`"),
        (r#"{"type": "char", "characters": []}"#, "it has no characters"),
        (
            r#"{"type": "char", "characters": ["b", "a"]}"#,
            "sorted by code point, each once, but 'b' is followed by 'a'",
        ),
        (
            r#"{"type": "char", "characters": ["a", "a"]}"#,
            "'a' is followed by 'a'",
        ),
        (r#"{"type": "char", "characters": ["ab"]}"#, "expected a character"),
    ] {
        let text = Tokenizer::from_json(json, "here").expect_err(json).to_string();
        assert!(
            text.starts_with("here holds no usable vocabulary: ") && text.contains(problem),
            "{text}"
        );
    }
    assert!(matches!(
        Tokenizer::char_from_text(""),
        Err(DataError::Vocabulary { .. })
    ));
}

#[test]
fn a_stream_gives_the_text_of_the_whole_byte_for_byte() {
    let texts: [&[u8]; 6] = [
        "héllo 🦓 мир".as_bytes(),
        b"a\xf0\x9f\xa6b",                // cut inside an emoji, then more
        b"\xe2\x82",                      // ends inside a character
        b"\xff\xfe\xc3\x28\xa9",          // never valid
        b"\xed\xa0\x80 \xf4\x90\x80\x80", // surrogate, above U+10FFFF
        b"",
    ];
    for bytes in texts {
        let ids: Vec<u32> = bytes.iter().map(|byte| u32::from(*byte)).collect();
        let whole = String::from_utf8_lossy(bytes);
        assert_eq!(Tokenizer::Byte.decode(&ids).as_deref(), Ok(&*whole), "{bytes:x?}");
        let mut stream = Tokenizer::Byte.stream();
        let mut pieces: Vec<String> = ids.iter().map(|id| stream.push(*id).expect("a byte")).collect();
        if std::str::from_utf8(bytes).is_ok() {
            assert!(pieces.iter().all(|piece| !piece.contains('\u{fffd}')), "{pieces:?}");
        }
        pieces.push(stream.finish());
        assert_eq!(pieces.concat(), whole, "{bytes:x?}");
    }
    assert_eq!(Tokenizer::Byte.encode("é"), Ok(vec![0xc3, 0xa9]));
}
