//! Small models of each family in the files of `transformers`, with weights from a formula: what the tests of `hub` share.

// Each test file uses the part that it needs.
#![allow(dead_code)]

use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use unisono_data::weights::{WrittenDtype, write_safetensors_as};
use unisono_data::{DataError, TensorSpec};
use unisono_nn::Regime;
use unisono_tensor::{Mesh, MeshDevice, Options};
use unisono_train::generate::Decoder;
use unisono_train::hub::{self, WeightSet};
use unisono_train::model::{LiveModel, ModelSpec};

/// What `reference/hf_logits.py` wrote.
#[derive(Deserialize)]
pub struct Reference {
    pub ids: Vec<u32>,
    pub positions: Vec<usize>,
    pub families: Vec<Family>,
}

/// A model of one family.
#[derive(Deserialize)]
pub struct Family {
    pub name: String,
    pub config: serde_json::Value,
    /// Shapes by name.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// One row a position.
    pub logits: Vec<Vec<f32>>,
}

/// A tensor: name, shape, values.
pub type Stored = (String, Vec<usize>, Vec<f32>);

pub fn reference() -> Reference {
    serde_json::from_str(include_str!("../reference/hf_logits.json")).expect("the reference is JSON")
}

pub fn family(name: &str) -> Family {
    let mut families = reference().families;
    let at = families.iter().position(|family| family.name == name);
    families.swap_remove(at.expect("a family of the reference"))
}

/// The formula of `hf_logits.py`.
pub fn values(name: &str, shape: &[usize]) -> Vec<f32> {
    let hashed = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let scale = shape.last().map_or(1.0, |last| (30.0 / *last as f64).sqrt());
    (0..shape.iter().product::<usize>() as u64)
        .map(|i| {
            let z = hashed.wrapping_add(i).wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            let u = ((z ^ z >> 31) >> 40) as f64 / 16_777_216.0 - 0.5;
            let value = match (shape.len(), name.ends_with("bias")) {
                (1, true) => 0.6 * u,
                (1, false) => 1.0 + 0.6 * u,
                _ => u * scale,
            };
            value as f32
        })
        .collect()
}

impl Family {
    /// Its tensors.
    pub fn tensors(&self) -> Vec<Stored> {
        let tensor = |(name, shape): (&String, &Vec<usize>)| (name.clone(), shape.clone(), values(name, shape));
        self.shapes.iter().map(tensor).collect()
    }

    /// Its directory as `transformers` writes it.
    pub fn write(&self, directory: &Path) {
        self.write_config(directory);
        write_tensors(&directory.join("model.safetensors"), &self.tensors(), &[]);
    }

    pub fn write_config(&self, directory: &Path) {
        let text = serde_json::to_string_pretty(&self.config).expect("JSON");
        std::fs::write(directory.join("config.json"), text).expect("it is written");
    }
}

/// Writes tensors in f32.
pub fn write_tensors(path: &Path, tensors: &[Stored], metadata: &[(&str, &str)]) {
    write_tensors_as(WrittenDtype::F32, path, tensors, metadata);
}

pub fn write_tensors_as(dtype: WrittenDtype, path: &Path, tensors: &[Stored], metadata: &[(&str, &str)]) {
    let specs: Vec<TensorSpec> = tensors
        .iter()
        .map(|(name, shape, _)| TensorSpec {
            name: name.clone(),
            shape: shape.clone(),
        })
        .collect();
    let metadata = metadata.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    write_safetensors_as(dtype, path, &specs, &metadata, |i| {
        Ok::<_, DataError>(Cow::Borrowed(&tensors[i].2[..]))
    })
    .expect("it is written");
}

/// The devices of a mesh.
pub fn open(axes: &[(&str, usize)]) -> MeshDevice {
    let options = Options {
        workers: Some(2),
        memory_limit: Some(64 << 20),
        ..Options::default()
    };
    MeshDevice::open(Mesh::new(axes).expect("a mesh of the test"), options).expect("devices open")
}

/// The model of a directory on a mesh.
pub fn loaded(directory: &Path, axes: &[(&str, usize)], regime: &Regime) -> hub::Result<(LiveModel, ModelSpec)> {
    let spec = hub::read_config(directory)?.spec;
    let weights = WeightSet::open(directory)?;
    hub::check(&weights, &spec)?;
    let model = spec.build(&open(axes), regime)?;
    hub::load(&weights, model.as_model().table().all(), &spec)?;
    model.as_model().set_training(false);
    Ok((model, spec))
}

/// Logits of all tokens at once, a row for each of `positions`.
pub fn logits(model: &LiveModel, ids: &[u32], positions: &[usize]) -> Vec<Vec<f32>> {
    let model = model.as_language_model().expect("a language model");
    let device = model.device();
    let all = device
        .no_grad(|| {
            let ids = device.tensor_u32(ids, &[1, ids.len()])?;
            let logits = model.logits(&model.forward(&ids)?)?;
            logits.all_gather("tp", 2, true)?.to_vec()
        })
        .expect("it computes");
    let width = all.len() / ids.len();
    let row = |position: &usize| all[position * width..][..model.vocab_size()].to_vec();
    positions.iter().map(row).collect()
}

/// The same through the cache: a prompt in chunks, then token by token.
pub fn cached_logits(model: &LiveModel, ids: &[u32], positions: &[usize]) -> Vec<Vec<f32>> {
    let model = model.as_language_model().expect("a language model");
    let mut decoder = Decoder::new(model, 1, ids.len()).expect("room");
    let first = positions[0];
    let mut rows = vec![decoder.append(0, &ids[..=first], 13).expect("it is issued")];
    rows.extend(
        ids[first + 1..]
            .iter()
            .map(|id| decoder.step(&[Some(*id)]).expect("it is issued")),
    );
    let rows: Vec<Vec<f32>> = rows.into_iter().map(|row| row.wait().expect("it computes")).collect();
    let row = |position: &usize| rows[position - first][..model.vocab_size()].to_vec();
    positions.iter().map(row).collect()
}

/// The largest difference of two tables.
pub fn difference(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    assert_eq!((a.len(), a[0].len()), (b.len(), b[0].len()));
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, |worst, difference| {
        // A NaN must not be passed over.
        if difference <= worst { worst } else { difference }
    })
}

pub fn bits(rows: &[Vec<f32>]) -> Vec<u32> {
    rows.iter().flatten().map(|x| x.to_bits()).collect()
}
