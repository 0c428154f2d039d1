//! Host arrays in files, and named parameters from them onto a mesh.

use std::collections::BTreeMap;
use std::path::Path;
use unisono_data::weights::{Dtype, TensorSpec, write_safetensors_bytes};
use unisono_kernels::element::Bf16;
use unisono_tensor::{ComposerConfig, HostTensor, MapperConfig, MeshDevice, Options, Placement};
use unisono_train::TrainError;
use unisono_train::arrays::{load_parameters, read_npy, read_safetensors, write_npy, write_safetensors};

fn one_of_each() -> Vec<(&'static str, HostTensor)> {
    let bf16: Vec<Bf16> = (0..8).map(|i| Bf16::from_bits(0x7f80 + 7 * i)).collect();
    let arrays = [
        ("weight", HostTensor::new(&[1.0f32, -0.0, f32::NAN, 4.0], &[4, 1])),
        ("halves", HostTensor::new(&bf16, &[4, 2])),
        ("ids", HostTensor::new(&[0u32, 1, 2, u32::MAX], &[4])),
        ("signed", HostTensor::new(&[-1i32, 0, 1, i32::MIN], &[4])),
        ("bytes", HostTensor::new(&[0u8, 255, 3, 4], &[4])),
    ];
    arrays
        .into_iter()
        .map(|(name, array)| (name, array.expect("valid")))
        .collect()
}

fn written(path: &Path) -> Vec<(&'static str, HostTensor)> {
    let arrays = one_of_each();
    let named: Vec<(&str, &HostTensor)> = arrays.iter().map(|(name, array)| (*name, array)).collect();
    write_safetensors(path, &named).expect("written");
    arrays
}

#[test]
fn files_give_back_what_they_were_given() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("all.safetensors");
    let arrays = written(&path);
    let read = read_safetensors(&path).expect("read");
    assert_eq!(read.len(), arrays.len());
    for ((name, array), (read_name, read)) in arrays.iter().zip(&read) {
        assert_eq!((*name, array), (read_name.as_str(), read));
        let npy = folder.path().join("one.npy");
        write_npy(&npy, array).expect("written");
        assert_eq!(read_npy(&npy).expect("read"), *array);
    }
}

#[test]
fn parameters_follow_the_mapper_in_scope() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("all.safetensors");
    let arrays = written(&path);
    let device = MeshDevice::open_grid(&[2, 2], Options::default()).expect("devices");
    let whole = load_parameters(&path, &device).expect("loaded");
    let cut = device
        .with_default_mapper(MapperConfig::grid(Some(0), None), || load_parameters(&path, &device))
        .expect("loaded");
    let one_copy = ComposerConfig::over(&[0, 0], unisono_tensor::MeshShape::new(&[2, 1]).expect("a shape"));
    for (((name, array), (_, whole)), (cut_name, cut)) in arrays.iter().zip(&whole).zip(&cut) {
        assert_eq!(name, cut_name);
        assert_eq!(whole.placements(), [Placement::Replicate; 2]);
        assert_eq!(cut.placements(), [Placement::Shard(0), Placement::Replicate]);
        assert_eq!(cut.aggregate(&one_copy).expect("composed"), *array);
        assert_eq!(whole.read_shard(3).expect("read"), *array);
    }
    let error = device
        .with_default_mapper(MapperConfig::grid(None, Some(1)), || load_parameters(&path, &device))
        .expect_err("not every tensor has two even dims")
        .to_string();
    assert!(
        error.contains("the tensor \"weight\": dim 1 of the tensor [4, 1]"),
        "{error}"
    );
}

#[test]
fn what_is_not_held_is_refused_with_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ids.safetensors");
    let spec = |name: &str| TensorSpec {
        name: name.to_string(),
        shape: vec![2],
    };
    let write = |specs: &[(TensorSpec, Dtype)], bytes: &'static [u8]| {
        write_safetensors_bytes(&path, specs, &BTreeMap::new(), |_| Ok::<_, TrainError>(bytes.into()))
    };
    write(&[(spec("ids"), Dtype::I64)], &[0; 16]).expect("written");
    let error = read_safetensors(&path).expect_err("not held").to_string();
    assert!(
        error.contains("the tensor \"ids\" is of I64; host arrays hold F32, BF16, U32, I32 and U8"),
        "{error}"
    );
    // What cannot be written leaves the older file as it was.
    for (specs, bytes, words) in [
        (
            vec![(spec("a"), Dtype::F32)],
            &[0u8; 7][..],
            "so 8 bytes, but 7 were given",
        ),
        (
            vec![(spec("a"), Dtype::U8), (spec("a"), Dtype::U8)],
            &[0; 2],
            "is given twice",
        ),
        (vec![(spec("a"), Dtype::F4)], &[0; 1], "less than a byte"),
    ] {
        let error = write(&specs, bytes).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
    assert!(read_safetensors(&path).is_err_and(|error| error.to_string().contains("I64")));
    std::fs::write(&path, b"\x93NUMPY").expect("written");
    let error = read_npy(&path).expect_err("cut short").to_string();
    assert!(
        error.starts_with(&path.display().to_string()) && error.contains("inside its header"),
        "{error}"
    );
    assert!(read_npy(&folder.path().join("none.npy")).is_err());
}
