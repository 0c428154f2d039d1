//! Writing a safetensors file one tensor at a time.

use super::header::METADATA;
use crate::{AtomicFile, DataError, FileDigest};
use safetensors::Dtype;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use unisono_kernels::element::Bf16;

/// Name and shape of a tensor to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name.
    pub name: String,
    /// Its shape, outermost dim first.
    pub shape: Vec<usize>,
}

/// What the header says of a tensor, in the order in which other writers say it.
#[derive(Serialize)]
struct Entry<'a> {
    dtype: Dtype,
    shape: &'a [usize],
    data_offsets: [u64; 2],
}

/// What the values of a written file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrittenDtype {
    /// As they are given.
    F32,
    /// Rounded to nearest even.
    Bf16,
}

impl WrittenDtype {
    /// Bytes of a value.
    pub fn bytes(self) -> usize {
        match self {
            WrittenDtype::F32 => 4,
            WrittenDtype::Bf16 => 2,
        }
    }

    /// The format's kind.
    fn stored(self) -> Dtype {
        match self {
            WrittenDtype::F32 => Dtype::F32,
            WrittenDtype::Bf16 => Dtype::BF16,
        }
    }
}

/// Writes an f32 safetensors file at once or not at all: the header first, then `values(i)` for each tensor `i` in the
/// order given, so that only one tensor need be in memory. Equal tensors and metadata give equal files.
///
/// # Errors
/// [`DataError::Tensor`] for a name that is given twice or reserved, a shape whose size overflows, or values of another number than the
/// shape's; [`DataError::Write`]; and whatever `values` answers. An older file is then as it was.
pub fn write_safetensors<'a, E: From<DataError>>(
    path: &Path,
    tensors: &[TensorSpec],
    metadata: &BTreeMap<String, String>,
    values: impl FnMut(usize) -> Result<Cow<'a, [f32]>, E>,
) -> Result<FileDigest, E> {
    write_safetensors_as(WrittenDtype::F32, path, tensors, metadata, values)
}

/// As [`write_safetensors`], with the values in `dtype`.
///
/// # Errors
/// As [`write_safetensors`].
pub fn write_safetensors_as<'a, E: From<DataError>>(
    dtype: WrittenDtype,
    path: &Path,
    tensors: &[TensorSpec],
    metadata: &BTreeMap<String, String>,
    mut values: impl FnMut(usize) -> Result<Cow<'a, [f32]>, E>,
) -> Result<FileDigest, E> {
    let stored = tensors.iter().map(|spec| (spec, dtype.stored()));
    let (mut file, size) = begun(path, stored, metadata)?;
    let mut bytes = Vec::new();
    for (i, spec) in tensors.iter().enumerate() {
        let values = values(i)?;
        let wanted: usize = spec.shape.iter().product(); // its overflow was checked for the header
        if values.len() != wanted {
            let problem = format!(
                "has shape {:?}, so {wanted} values, but {} were given",
                spec.shape,
                values.len()
            );
            return Err(tensor_error(path, spec, problem).into());
        }
        for part in values.chunks(1 << 14) {
            bytes.clear();
            match dtype {
                WrittenDtype::F32 => part.iter().for_each(|value| bytes.extend(value.to_le_bytes())),
                WrittenDtype::Bf16 => part
                    .iter()
                    .for_each(|value| bytes.extend(Bf16::from_f32(*value).to_bits().to_le_bytes())),
            }
            write_all(&mut file, &bytes).map_err(|error| of_size(error, size))?;
        }
    }
    Ok(file.commit().map_err(|error| of_size(error, size))?)
}

/// As [`write_safetensors`], for values of any kind: `bytes(i)` gives those of tensor `i`, little-endian in row-major order.
///
/// # Errors
/// As [`write_safetensors`], and [`DataError::Tensor`] for a kind of less than a byte.
pub fn write_safetensors_bytes<'a, E: From<DataError>>(
    path: &Path,
    tensors: &[(TensorSpec, Dtype)],
    metadata: &BTreeMap<String, String>,
    mut bytes: impl FnMut(usize) -> Result<Cow<'a, [u8]>, E>,
) -> Result<FileDigest, E> {
    if let Some((spec, dtype)) = tensors.iter().find(|(_, dtype)| dtype.bitsize() % 8 != 0) {
        let problem = format!("is of {dtype}, whose values take less than a byte; they cannot be written");
        return Err(tensor_error(path, spec, problem).into());
    }
    let (mut file, size) = begun(path, tensors.iter().map(|(spec, dtype)| (spec, *dtype)), metadata)?;
    for (i, (spec, dtype)) in tensors.iter().enumerate() {
        let bytes = bytes(i)?;
        let wanted = spec.shape.iter().product::<usize>() * (dtype.bitsize() / 8); // checked for the header
        if bytes.len() != wanted {
            let problem = format!(
                "has shape {:?} of {dtype}, so {wanted} bytes, but {} were given",
                spec.shape,
                bytes.len()
            );
            return Err(tensor_error(path, spec, problem).into());
        }
        write_all(&mut file, &bytes).map_err(|error| of_size(error, size))?;
    }
    Ok(file.commit().map_err(|error| of_size(error, size))?)
}

fn tensor_error(path: &Path, spec: &TensorSpec, problem: String) -> DataError {
    DataError::Tensor {
        path: path.display().to_string(),
        tensor: spec.name.clone(),
        problem,
    }
}

/// Adds what the whole file takes to an error of writing it.
fn of_size(error: DataError, size: u64) -> DataError {
    match error {
        DataError::Write { path, reason } => DataError::Write {
            path,
            reason: format!("{reason}; the file takes {size} bytes in all: make room for it, or name another place"),
        },
        error => error,
    }
}

/// A file with its header, to which the values are to be added, and the bytes that it takes with them.
fn begun<'a>(
    path: &Path,
    tensors: impl ExactSizeIterator<Item = (&'a TensorSpec, Dtype)>,
    metadata: &BTreeMap<String, String>,
) -> Result<(AtomicFile, u64), DataError> {
    let (header, values) = header(tensors, metadata, |spec, problem| tensor_error(path, spec, problem))?;
    let mut file = AtomicFile::create(path)?;
    let size = values.saturating_add(8 + header.len() as u64);
    let begun = write_all(&mut file, &(header.len() as u64).to_le_bytes()).and_then(|()| write_all(&mut file, &header));
    begun.map_err(|error| of_size(error, size))?;
    Ok((file, size))
}

fn write_all(file: &mut AtomicFile, bytes: &[u8]) -> Result<(), DataError> {
    file.write_all(bytes).map_err(|error| file.error(&error))
}

/// The header, padded with blanks so that the values begin at a multiple of 8 bytes, and the bytes of the values.
fn header<'a>(
    tensors: impl ExactSizeIterator<Item = (&'a TensorSpec, Dtype)>,
    metadata: &BTreeMap<String, String>,
    error: impl Fn(&TensorSpec, String) -> DataError,
) -> Result<(Vec<u8>, u64), DataError> {
    // Strings, numbers and maps of them always have a JSON form.
    const NO_JSON: &str = "bug in unisono: a header has no JSON form";
    let mut parts = Vec::with_capacity(tensors.len() + 1);
    if !metadata.is_empty() {
        parts.push(format!(
            "{METADATA:?}:{}",
            serde_json::to_string(metadata).expect(NO_JSON)
        ));
    }
    let mut names = BTreeSet::new();
    let mut start = 0u64;
    for (spec, dtype) in tensors {
        if spec.name == METADATA {
            return Err(error(
                spec,
                "has a name that the format keeps for itself; use another".to_string(),
            ));
        }
        if !names.insert(spec.name.as_str()) {
            return Err(error(spec, "is given twice; a file holds each name once".to_string()));
        }
        let end = spec
            .shape
            .iter()
            .try_fold(dtype.bitsize() as u64 / 8, |product, size| {
                product.checked_mul(*size as u64)
            })
            .and_then(|bytes| start.checked_add(bytes))
            .ok_or_else(|| error(spec, format!("has shape {:?}, which no file can hold", spec.shape)))?;
        let entry = Entry {
            dtype,
            shape: &spec.shape,
            data_offsets: [start, end],
        };
        let name = serde_json::to_string(&spec.name).expect(NO_JSON);
        parts.push(format!("{name}:{}", serde_json::to_string(&entry).expect(NO_JSON)));
        start = end;
    }
    let mut header = format!("{{{}}}", parts.join(",")).into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok((header, start))
}
