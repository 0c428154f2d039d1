//! Atomic writes: either the whole new file or the old one, and nothing else in the directory.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use tempfile::tempdir;
use unisono_data::files::{hash_bytes, remove_temporaries};
use unisono_data::{AtomicFile, atomic_write, hash_file};

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_written_file_has_its_contents_and_digest() {
    let directory = tempdir().expect("a temporary directory");
    let path = directory.path().join("a.txt");
    for text in ["first", "second, which is longer", ""] {
        let digest = atomic_write(&path, |file| file.write_all(text.as_bytes())).expect("a writable directory");
        assert_eq!(fs::read_to_string(&path).expect("a file"), text);
        assert_eq!(digest, hash_file(&path).expect("a file"));
        assert_eq!(
            (digest.bytes, digest.blake3),
            (text.len() as u64, hash_bytes(text.as_bytes()))
        );
    }
    assert_eq!(names(directory.path()), ["a.txt"]);
    assert_eq!(
        hash_bytes(b""),
        "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    );
}

#[test]
fn a_failed_write_leaves_the_old_file_and_nothing_else() {
    let directory = tempdir().expect("a temporary directory");
    let path = directory.path().join("a.txt");
    fs::write(&path, "old").expect("a small file");
    let error = atomic_write(&path, |file| {
        file.write_all(&vec![1; 1 << 20])?;
        Err(io::ErrorKind::StorageFull.into())
    })
    .expect_err("must fail");
    assert_eq!(
        error.to_string(),
        format!("cannot write {}: the disk is full", path.display())
    );
    let mut abandoned = AtomicFile::create(&path).expect("a writable directory");
    abandoned.write_all(b"new").expect("room in a buffer");
    assert_eq!(names(directory.path()).len(), 2);
    drop(abandoned);
    assert_eq!(names(directory.path()), ["a.txt"]);
    assert_eq!(fs::read_to_string(&path).expect("a file"), "old");
}

#[test]
fn places_that_cannot_be_written_are_named() {
    let directory = tempdir().expect("a temporary directory");
    let write = |path: &Path| {
        atomic_write(path, |file| file.write_all(b"x"))
            .expect_err("must fail")
            .to_string()
    };
    assert!(write(&directory.path().join("no/such/a.txt")).ends_with("there is no such file or directory"));
    assert!(write(directory.path()).ends_with("it is a directory; name a file"));
    assert!(write(Path::new("/")).contains("cannot write /"));
    fs::write(directory.path().join("f"), "").expect("a small file");
    assert!(write(&directory.path().join("f/a.txt")).ends_with("a part of the path is a file, not a directory"));
    assert_eq!(names(directory.path()), ["f"]);
    assert!(hash_file(&directory.path().join("none")).is_err());
}

#[test]
fn a_full_disk_is_said() {
    // /dev/full takes no bytes; a link to it stands for the temporary file's disk.
    if let Ok(mut full) = fs::OpenOptions::new().write(true).open("/dev/full") {
        let directory = tempdir().expect("a temporary directory");
        let path = directory.path().join("a.txt");
        let error = atomic_write(&path, |_| full.write_all(b"x"))
            .expect_err("must fail")
            .to_string();
        assert!(error.ends_with("the disk is full"), "{error}");
        assert!(names(directory.path()).is_empty());
    }
}

#[test]
fn what_killed_processes_left_can_be_removed() {
    let directory = tempdir().expect("a temporary directory");
    let path = directory.path().join("a.txt");
    let file = AtomicFile::create(&path).expect("a writable directory");
    std::mem::forget(file); // as a kill would
    fs::write(&path, "kept").expect("a small file");
    assert_eq!(remove_temporaries(directory.path()), Ok(1));
    assert_eq!(names(directory.path()), ["a.txt"]);
}

#[test]
fn long_names_are_written_too() {
    let directory = tempdir().expect("a temporary directory");
    let path = directory.path().join("n".repeat(250));
    atomic_write(&path, |file| file.write_all(b"x")).expect("a name within the system's bounds");
    assert_eq!(names(directory.path()), ["n".repeat(250)]);
}

/// Reading a device or a pipe may never end: it is refused before it is opened.
#[cfg(unix)]
#[test]
fn only_regular_files_are_read() {
    let directory = tempdir().expect("a temporary directory");
    let pipe = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo is there").success());
    let mut things = vec![pipe.clone(), Path::new("/dev/zero").to_path_buf()];
    for name in ["pipe.bin", "pipe.yaml"] {
        let link = directory.path().join(name);
        std::os::unix::fs::symlink(&pipe, &link).expect("a link");
        things.push(link);
    }
    for path in &things {
        let texts = [
            unisono_data::text::read_text(path).map(|_| ()),
            unisono_data::text::read_bytes(path).map(|_| ()),
            unisono_data::token_file::load_tokens(path, None).map(|_| ()),
            unisono_data::Tokenizer::load(path).map(|_| ()),
            unisono_data::Weights::open(path).map(|_| ()),
            hash_file(path).map(|_| ()),
        ]
        .map(|result| result.expect_err("must be refused").to_string());
        for text in texts {
            let start = format!("cannot read {}: it is not a regular file ", path.display());
            assert!(text.starts_with(&start), "{text}");
        }
    }
    // A sidecar that is a pipe.
    let data = directory.path().join("t.bin");
    fs::write(&data, [1, 0]).expect("a small file");
    std::os::unix::fs::symlink(&pipe, directory.path().join("t.bin.json")).expect("a link");
    let text = unisono_data::token_file::load_tokens(&data, None)
        .expect_err("must be refused")
        .to_string();
    assert!(text.contains("t.bin.json: it is not a regular file "), "{text}");
}

#[test]
fn an_empty_path_is_named() {
    for path in ["", "."] {
        let text = unisono_data::text::read_text(Path::new(path))
            .expect_err("must be refused")
            .to_string();
        assert!(text.ends_with(": it is a directory; name a file"), "{text}");
        assert!(!text.contains("read :"), "{text}");
    }
}

#[cfg(unix)]
#[test]
fn a_link_keeps_leading_there_and_a_device_is_never_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    std::fs::write(&file, "old").expect("written");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    let mut writer = AtomicFile::create(&link).expect("opened");
    writer.write_all(b"new").expect("written");
    writer.commit().expect("committed");
    assert!(link.is_symlink());
    assert_eq!(std::fs::read_to_string(&file).expect("read"), "new");
    let error = AtomicFile::create(std::path::Path::new("/dev/null"))
        .expect_err("a device")
        .to_string();
    assert!(
        error.contains("/dev/null") && error.contains("no regular file"),
        "{error}"
    );
}
