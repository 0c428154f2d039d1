//! Safetensors files that are cut short or damaged give an error or sound tensors: no panic, no read outside of the file.

use proptest::prelude::*;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use unisono_data::{DataError, TensorSpec, Weights, write_safetensors};

/// A file of three tensors, one of them empty, with an alias.
fn sound(path: &Path) -> Vec<u8> {
    let spec = |name: &str, shape: &[usize]| TensorSpec {
        name: name.into(),
        shape: shape.to_vec(),
    };
    let tensors = [spec("a", &[2, 3]), spec("empty", &[0, 4]), spec("b", &[])];
    let metadata = BTreeMap::from([("format".into(), "pt".into()), ("c".into(), "a".into())]);
    write_safetensors(path, &tensors, &metadata, |i| {
        Ok::<_, DataError>(Cow::Owned(vec![1.5; tensors[i].shape.iter().product()]))
    })
    .expect("it is written");
    std::fs::read(path).expect("it is read")
}

/// Opens the bytes, and reads whatever is said to be there. True where they are sound.
fn try_out(path: &Path, bytes: &[u8]) -> bool {
    std::fs::write(path, bytes).expect("it is written");
    let weights = match Weights::open(path) {
        Ok(weights) => weights,
        Err(error) => {
            assert!(error.to_string().contains("m.safetensors"), "{error}");
            return false;
        }
    };
    for entry in weights.tensors() {
        let stored = weights.bytes(&entry.name).expect("it is there");
        assert!(stored.len() <= bytes.len() && stored.len() * 8 == entry.num_values() * entry.dtype.bitsize());
        let (memory, range) = weights.shared(&entry.name).expect("it is there");
        assert_eq!(&(*memory).as_ref()[range], stored);
        // Of another kind than floats it is refused in words.
        let _ = weights.read_f32(&entry.name);
    }
    true
}

#[test]
fn files_cut_at_every_byte_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("m.safetensors");
    let bytes = sound(&path);
    assert!(try_out(&path, &bytes));
    for end in 0..bytes.len() {
        assert!(!try_out(&path, &bytes[..end]), "cut at {end} of {}", bytes.len());
    }
}

#[test]
fn files_with_any_other_byte_are_refused_or_sound() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("m.safetensors");
    let bytes = sound(&path);
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let mut refused = 0;
    for at in 0..header {
        for other in [0, 0xff, b'"', b'{', b'}', b'[', b'9', b'-', b'e', b' ', bytes[at] ^ 1] {
            let mut changed = bytes.clone();
            changed[at] = other;
            refused += usize::from(!try_out(&path, &changed));
        }
    }
    assert!(refused > 5 * header, "{refused} of {}", 11 * header);
}

proptest! {
    #[test]
    fn no_header_makes_it_panic(header in "(\\{|\"[a-z_]{0,12}\"|[:,]|\\[|\\]|\\}|[0-9]{1,22}|-|null|F32|BF16|\"dtype\":\"F32\"|\"shape\":\\[|\"data_offsets\":\\[0,){0,24}", data in 0usize..64) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("m.safetensors");
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + data, 7);
        try_out(&path, &bytes);
    }
}
