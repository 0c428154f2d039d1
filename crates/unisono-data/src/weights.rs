//! Weight files in the safetensors format: a JSON header of names, shapes and byte ranges, then the values.
//!
//! Whatever stands in a file is checked before it is used ([`Weights::open`]); a file is written at once or not at all, one
//! tensor in memory at a time ([`write_safetensors`]).

mod header;
mod write;

use crate::DataError;
use crate::files::open_regular;
use memmap2::Mmap;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use header::TensorEntry;
pub use safetensors::Dtype;
pub use write::{TensorSpec, WrittenDtype, write_safetensors, write_safetensors_as, write_safetensors_bytes};

/// Memory that several threads read.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// An open safetensors file, memory-mapped.
#[derive(Debug)]
pub struct Weights {
    path: PathBuf,
    map: Arc<Mmap>,
    /// Where the values begin in the file.
    data: usize,
    /// In the order of their bytes.
    tensors: Vec<TensorEntry>,
    /// Place in `tensors` by name.
    by_name: BTreeMap<String, usize>,
    metadata: BTreeMap<String, String>,
    /// Name to stored name, for tensors that are stored once under another name.
    aliases: BTreeMap<String, String>,
}

impl Weights {
    /// Opens a file and checks all of its header: sizes, names, shapes, and that the tensors' bytes follow one another
    /// without gap or overlap to the end of the file. Reads no values.
    ///
    /// An entry of `__metadata__` whose value is a stored tensor and whose key is not is an alias: the key names the same
    /// tensor. Other metadata has no meaning here.
    ///
    /// # Errors
    /// [`DataError::Read`], [`DataError::WeightFile`] or [`DataError::Tensor`].
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let failed = |error: std::io::Error| DataError::read(path, &error);
        let file = open_regular(path)?;
        let metadata = file.metadata().map_err(failed)?;
        header::check_size(path, metadata.len())?;
        // SAFETY: the map is private to this process and only ever read as bytes, for which every content is valid; all
        // indexing of it is bounds-checked. Files of unisono are replaced by renaming, which leaves a mapped one as it is. A
        // process that truncates the file in place can end this one by a signal, as with any map of a file.
        let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
        let header = header::parse(path, &map)?;
        let by_name: BTreeMap<String, usize> = header
            .tensors
            .iter()
            .enumerate()
            .map(|(i, tensor)| (tensor.name.clone(), i))
            .collect();
        let aliases = header
            .metadata
            .iter()
            .filter(|(key, value)| by_name.contains_key(*value) && !by_name.contains_key(*key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        Ok(Self {
            path: path.to_path_buf(),
            map: Arc::new(map),
            data: header.data,
            tensors: header.tensors,
            by_name,
            metadata: header.metadata,
            aliases,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The stored tensors in the order of their bytes, aliases left out.
    pub fn tensors(&self) -> &[TensorEntry] {
        &self.tensors
    }

    /// All of `__metadata__`.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Names that stand for a tensor stored under another one, and that one.
    pub fn aliases(&self) -> &BTreeMap<String, String> {
        &self.aliases
    }

    /// True when the file has a tensor of this name, itself or as an alias.
    pub fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// What is known of a tensor; the entry has the stored name where `name` is an alias.
    ///
    /// # Errors
    /// [`DataError::Tensor`] when there is none.
    pub fn entry(&self, name: &str) -> Result<&TensorEntry, DataError> {
        self.find(name).ok_or_else(|| {
            let problem = match self.tensors.as_slice() {
                [] => "is not there; the file holds no tensors".to_string(),
                [first, ..] => {
                    format!(
                        "is not there; the file holds {} tensors, the first is {:?}",
                        self.tensors.len(),
                        first.name
                    )
                }
            };
            self.tensor_error(name, problem)
        })
    }

    /// The bytes of a tensor, little-endian, row-major, not aligned.
    ///
    /// # Errors
    /// [`DataError::Tensor`] when there is none.
    pub fn bytes(&self, name: &str) -> Result<&[u8], DataError> {
        let entry = self.entry(name)?;
        // In range, since opening has compared the ranges with the size of the file.
        Ok(&self.map[self.data + entry.bytes.start..self.data + entry.bytes.end])
    }

    /// The file's memory, and where in it the bytes of a tensor lie: for readers on other threads. Reads nothing.
    ///
    /// # Errors
    /// [`DataError::Tensor`] when there is none.
    pub fn shared(&self, name: &str) -> Result<(SharedBytes, Range<usize>), DataError> {
        let entry = self.entry(name)?;
        let range = self.data + entry.bytes.start..self.data + entry.bytes.end;
        Ok((self.map.clone(), range))
    }

    /// Writes the values of an f32, f16 or bf16 tensor as f32 into `out`, row-major. f16 and bf16 convert exactly.
    ///
    /// # Errors
    /// [`DataError::Tensor`]: no such tensor, another dtype, or another number of values than `out` has.
    pub fn read_f32_into(&self, name: &str, out: &mut [f32]) -> Result<(), DataError> {
        let (entry, bytes) = (self.entry(name)?, self.bytes(name)?);
        if entry.num_values() != out.len() {
            let (shape, given, wanted) = (&entry.shape, entry.num_values(), out.len());
            return Err(self.tensor_error(
                name,
                format!("has shape {shape:?}, so {given} values, but {wanted} are wanted"),
            ));
        }
        match entry.dtype {
            Dtype::F32 => {
                for (value, b) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                    *value = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                }
            }
            Dtype::F16 => {
                for (value, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                    *value = half::f16::from_le_bytes([b[0], b[1]]).to_f32();
                }
            }
            Dtype::BF16 => {
                for (value, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                    *value = half::bf16::from_le_bytes([b[0], b[1]]).to_f32();
                }
            }
            other => {
                return Err(self.tensor_error(name, format!("is of dtype {other}, but weights are F32, F16 or BF16")));
            }
        }
        Ok(())
    }

    /// The values of an f32, f16 or bf16 tensor as f32, row-major.
    ///
    /// # Errors
    /// As [`read_f32_into`](Self::read_f32_into).
    pub fn read_f32(&self, name: &str) -> Result<Vec<f32>, DataError> {
        // No larger than the file, which opening has compared shapes with (times two for half-width values).
        let mut values = vec![0.0; self.entry(name)?.num_values()];
        self.read_f32_into(name, &mut values)?;
        Ok(values)
    }

    fn find(&self, name: &str) -> Option<&TensorEntry> {
        let stored = self.aliases.get(name).map_or(name, String::as_str);
        self.by_name.get(stored).map(|i| &self.tensors[*i])
    }

    fn tensor_error(&self, name: &str, problem: String) -> DataError {
        DataError::Tensor {
            path: self.path.display().to_string(),
            tensor: name.to_string(),
            problem,
        }
    }
}
