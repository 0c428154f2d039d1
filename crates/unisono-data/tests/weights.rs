//! safetensors files: what we write others read, what others write we read, and no broken file gets through.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::tempdir;
use unisono_data::weights::Dtype;
use unisono_data::{DataError, TensorSpec, Weights, write_safetensors};

fn spec(name: &str, shape: &[usize]) -> TensorSpec {
    TensorSpec {
        name: name.to_string(),
        shape: shape.to_vec(),
    }
}

/// A file of a header and bytes after it.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn open(bytes: &[u8]) -> Result<Weights, String> {
    let directory = tempdir().expect("a temporary directory");
    let path = directory.path().join("m.safetensors");
    fs::write(&path, bytes).expect("a small file");
    Weights::open(&path).map_err(|error| error.to_string().replace(&path.display().to_string(), "m.safetensors"))
}

#[test]
fn what_is_written_reads_back_here_and_in_the_reference_reader() {
    let directory = tempdir().expect("a temporary directory");
    let path = directory.path().join("m.safetensors");
    let tensors = [
        spec("w", &[2, 3]),
        spec("scalar", &[]),
        spec("none", &[0, 4]),
        spec("quote\"é\n", &[20_000]),
    ];
    let values = [
        vec![1.0, -0.0, f32::MIN_POSITIVE / 2.0, f32::INFINITY, 1e-30, -7.5],
        vec![3.0],
        vec![],
        vec![0.25; 20_000],
    ];
    let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
    let digest = write_safetensors::<DataError>(&path, &tensors, &metadata, |i| Ok(Cow::Borrowed(&values[i])))
        .expect("a writable directory");

    let weights = Weights::open(&path).expect("a valid file");
    assert_eq!(weights.metadata(), &metadata);
    assert_eq!(weights.tensors().len(), 4);
    for (spec, values) in tensors.iter().zip(&values) {
        let entry = weights.entry(&spec.name).expect("it was written");
        assert_eq!((&entry.shape, entry.dtype), (&spec.shape, Dtype::F32));
        let read = weights.read_f32(&spec.name).expect("it was written");
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&read), bits(values), "{}", spec.name);
    }

    let bytes = fs::read(&path).expect("a file");
    assert_eq!(digest.bytes, bytes.len() as u64);
    assert_eq!(bytes[..8], ((bytes.len() - 8 - 4 * 20_007) as u64).to_le_bytes());
    assert_eq!((bytes.len() - 4 * 20_007) % 8, 0, "values begin at a multiple of 8");
    let reference = safetensors::SafeTensors::deserialize(&bytes).expect("the reference reader takes it");
    assert_eq!(reference.tensor("w").expect("it is there").shape(), [2, 3]);
    assert_eq!(
        reference.tensor("quote\"é\n").expect("it is there").data().len(),
        80_000
    );

    let again = write_safetensors::<DataError>(&path, &tensors, &metadata, |i| Ok(Cow::Owned(values[i].clone())));
    assert_eq!(
        again.expect("a writable directory"),
        digest,
        "equal tensors give equal files"
    );
}

#[test]
fn half_precision_of_the_reference_writer_converts_exactly() {
    let f16: Vec<u8> = [1.5f32, -2.0, 65504.0, 6e-8]
        .iter()
        .flat_map(|v| half::f16::from_f32(*v).to_le_bytes())
        .collect();
    let bf16: Vec<u8> = [1.5f32, -2.0, 3e38, 1e-40]
        .iter()
        .flat_map(|v| half::bf16::from_f32(*v).to_le_bytes())
        .collect();
    let view = |dtype, data| safetensors::tensor::TensorView::new(dtype, vec![2, 2], data).expect("a valid view");
    let bytes = safetensors::serialize(
        [("h", view(Dtype::F16, &f16)), ("b", view(Dtype::BF16, &bf16))],
        None::<HashMap<_, _>>,
    )
    .expect("serialised");
    let weights = open(&bytes).expect("a valid file");
    assert_eq!(
        weights.read_f32("h"),
        Ok(vec![1.5, -2.0, 65504.0, half::f16::from_f32(6e-8).to_f32()])
    );
    assert_eq!(weights.read_f32("b").map(|v| v[..2].to_vec()), Ok(vec![1.5, -2.0]));
}

#[test]
fn metadata_may_name_a_tensor_twice() {
    let bytes = file(
        r#"{"__metadata__":{"lm_head.weight":"wte","format":"pt","wte":"other","x":"y"},"wte":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#,
        &2f32.to_le_bytes(),
    );
    let weights = open(&bytes).expect("a valid file");
    assert_eq!(weights.read_f32("lm_head.weight"), Ok(vec![2.0]));
    assert_eq!(weights.entry("lm_head.weight").expect("an alias").name, "wte");
    assert_eq!(
        weights.aliases(),
        &BTreeMap::from([("lm_head.weight".to_string(), "wte".to_string())])
    );
    assert_eq!(weights.tensors().len(), 1);
    assert!(weights.contains("wte") && !weights.contains("format") && !weights.contains("x"));
}

#[test]
fn every_small_broken_file_is_refused_by_name_and_quickly() {
    let one =
        |shape: &str, offsets: &str| format!(r#"{{"w":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#);
    let two = |a: &str, b: &str| {
        format!(
            r#"{{"a":{{"dtype":"F32","shape":[2],"data_offsets":{a}}},"b":{{"dtype":"F32","shape":[2],"data_offsets":{b}}}}}"#
        )
    };
    let good = file(&one("[2]", "[0,8]"), &[0; 8]);
    assert!(open(&good).is_ok());
    let twice = r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (
            vec![],
            "m.safetensors is no usable safetensors file: its 0 bytes are fewer than the 8 of the header's length",
        ),
        (
            vec![0; 7],
            "m.safetensors is no usable safetensors file: its 7 bytes are fewer than the 8 of the header's length",
        ),
        (
            (1u64 << 63).to_le_bytes().to_vec(),
            "m.safetensors is no usable safetensors file: its header claims 9223372036854775808 bytes, more than the 100000000 that the format allows",
        ),
        (
            good[..good.len() / 3].to_vec(),
            "m.safetensors is no usable safetensors file: its header claims 54 bytes, but only 15 follow; the file is cut short",
        ),
        (
            file(&one("[2]", "[8,0]"), &[0; 8]),
            "the tensor \"w\" in m.safetensors has the byte range [8, 0], which ends before it starts",
        ),
        (
            file(&one("[2]", "[]"), &[0; 8]),
            "m.safetensors is no usable safetensors file: its header is not what the format asks for: the tensor \"w\": invalid length 0, expected a list of 2 (line 1, column 49)",
        ),
        (
            file(&one("[4294967296,4294967296]", "[0,8]"), &[0; 8]),
            "the tensor \"w\" in m.safetensors has shape [4294967296, 4294967296], more F32 values than memory has bytes",
        ),
        (
            file(&one("[3]", "[0,8]"), &[0; 8]),
            "the tensor \"w\" in m.safetensors has shape [3] of F32, which takes 12 bytes, but its byte range [0, 8] has 8",
        ),
        (
            file(&two("[0,8]", "[4,12]"), &[0; 12]),
            "the tensor \"b\" in m.safetensors has the byte range [4, 12], but bytes up to 8 belong to another tensor",
        ),
        (
            file(&two("[0,8]", "[12,20]"), &[0; 20]),
            "the tensor \"b\" in m.safetensors has the byte range [12, 20], but bytes 8 to 12 belong to no tensor",
        ),
        (
            file(twice, &[0; 8]),
            "m.safetensors is no usable safetensors file: its header is not what the format asks for: the tensor \"w\" is given twice (line 1, column 107)",
        ),
        (
            good[..good.len() - 4].to_vec(),
            "the tensor \"w\" in m.safetensors has the byte range [0, 8], but only 4 bytes follow the header; the file is cut short",
        ),
        (
            [good.clone(), vec![0; 16]].concat(),
            "m.safetensors is no usable safetensors file: 16 bytes at its end belong to no tensor",
        ),
        (
            file(&one("[-1]", "[0,8]"), &[0; 8]),
            "m.safetensors is no usable safetensors file: its header is not what the format asks for: the tensor \"w\": invalid value: integer `-1`, expected a whole number that is not negative (line 1, column 31)",
        ),
        (
            file(&one("[2]", "[0,8]").replace("F32", "F99"), &[0; 8]),
            "the tensor \"w\": unknown variant `F99`",
        ),
        (file("{\"w\":", &[]), "it ends before its JSON does"),
        (file("[]", &[]), "expected a map of tensors"),
        (file("{} {}", &[]), "something follows the end of the JSON"),
        (file("{\"\u{1}\":1}", &[]), "control character"),
        (
            [&3u64.to_le_bytes()[..], b"{\xff}"].concat(),
            "its header is not what the format asks for",
        ),
        (
            file(r#"{"__metadata__":{"a":1}}"#, &[]),
            "__metadata__: invalid type: integer `1`, expected a string",
        ),
        (
            file(r#"{"__metadata__":{},"__metadata__":{}}"#, &[]),
            "__metadata__ is given twice",
        ),
        (
            file(r#"{"w":{"dtype":"F4","shape":[1],"data_offsets":[0,0]}}"#, &[]),
            "which is no whole number of bytes",
        ),
    ];
    let start = Instant::now();
    for (bytes, expected) in &cases {
        let text = open(bytes).expect_err(expected);
        assert!(
            text == *expected
                || (!expected.starts_with("m.")
                    && !expected.starts_with("the tensor \"w\" in")
                    && text.contains(expected)),
            "{text}\n{expected}"
        );
    }
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(Weights::open(Path::new("no/such.safetensors")).is_err());
    let directory = tempdir().expect("a temporary directory");
    assert!(
        Weights::open(directory.path())
            .expect_err("must be refused")
            .to_string()
            .contains("it is a directory")
    );
}

#[test]
fn wrong_names_dtypes_and_sizes_are_said() {
    let bytes = file(
        r#"{"i":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]}}"#,
        &[0; 16],
    );
    let directory = tempdir().expect("a temporary directory");
    let path = directory.path().join("m.safetensors");
    fs::write(&path, bytes).expect("a small file");
    let weights = Weights::open(&path).expect("a valid file");
    let text = |error: DataError| error.to_string().replace(&path.display().to_string(), "m");
    assert_eq!(
        text(weights.read_f32("x").expect_err("absent")),
        "the tensor \"x\" in m is not there; the file holds 2 tensors, the first is \"i\""
    );
    assert_eq!(
        text(weights.read_f32("i").expect_err("integers")),
        "the tensor \"i\" in m is of dtype I64, but weights are F32, F16 or BF16"
    );
    assert_eq!(
        text(weights.read_f32_into("w", &mut [0.0; 3]).expect_err("too few")),
        "the tensor \"w\" in m has shape [1, 2], so 2 values, but 3 are wanted"
    );
    assert_eq!(weights.bytes("i").map(<[u8]>::len), Ok(8));
}

#[test]
fn a_write_that_fails_leaves_the_old_file() {
    let directory = tempdir().expect("a temporary directory");
    let path = directory.path().join("m.safetensors");
    fs::write(&path, "old").expect("a small file");
    let write = |tensors: &[TensorSpec]| {
        write_safetensors::<DataError>(&path, tensors, &BTreeMap::new(), |i| match i {
            0 => Ok(Cow::Owned(vec![0.0; 2])),
            _ => Err(DataError::Prefetch {
                batch: 0,
                reason: "the device is gone".to_string(),
            }),
        })
        .expect_err("must fail")
        .to_string()
        .replace(&path.display().to_string(), "m")
    };
    assert_eq!(
        write(&[spec("a", &[3])]),
        "the tensor \"a\" in m has shape [3], so 3 values, but 2 were given"
    );
    assert_eq!(
        write(&[spec("a", &[2]), spec("a", &[2])]),
        "the tensor \"a\" in m is given twice; a file holds each name once"
    );
    assert_eq!(
        write(&[spec("__metadata__", &[2])]),
        "the tensor \"__metadata__\" in m has a name that the format keeps for itself; use another"
    );
    assert_eq!(
        write(&[spec("a", &[usize::MAX, 2])]),
        format!(
            "the tensor \"a\" in m has shape [{}, 2], which no file can hold",
            usize::MAX
        )
    );
    assert!(write(&[spec("a", &[2]), spec("b", &[2])]).contains("the device is gone"));
    assert_eq!(fs::read_to_string(&path).expect("a file"), "old");
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
}
