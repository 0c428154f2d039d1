//! The header of a safetensors file, trusted in nothing.

use crate::{DataError, json};
use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;

/// Bytes of the length in front of the header.
const LENGTH: usize = 8;
/// The longest header that the format allows.
const MAX_HEADER: u64 = 100_000_000;
/// The key of the header that is no tensor.
pub(super) const METADATA: &str = "__metadata__";

/// What a file says of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorEntry {
    /// Its name.
    pub name: String,
    /// The kind of its values.
    pub dtype: Dtype,
    /// Its shape, outermost dim first; `[]` for a single value.
    pub shape: Vec<usize>,
    /// Where its bytes lie, counted from the end of the header.
    pub bytes: Range<usize>,
}

impl TensorEntry {
    /// The number of values: the product of the shape.
    pub fn num_values(&self) -> usize {
        // Checked when the file was opened.
        self.shape.iter().product()
    }
}

/// A header that is sound.
#[derive(Debug)]
pub(super) struct Header {
    /// Where the values begin in the file.
    pub data: usize,
    pub tensors: Vec<TensorEntry>,
    pub metadata: BTreeMap<String, String>,
}

/// Refuses files that are too short to have a header.
pub(super) fn check_size(path: &Path, bytes: u64) -> Result<(), DataError> {
    if bytes >= LENGTH as u64 {
        return Ok(());
    }
    Err(file_error(
        path,
        format!("its {bytes} bytes are fewer than the {LENGTH} of the header's length"),
    ))
}

/// Reads and checks the header of a whole file.
pub(super) fn parse(path: &Path, file: &[u8]) -> Result<Header, DataError> {
    let fail = |problem: String| Err(file_error(path, problem));
    let Some((length, rest)) = file.split_first_chunk::<LENGTH>() else {
        return check_size(path, file.len() as u64).and(fail("it has no header".to_string()));
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER {
        return fail(format!(
            "its header claims {length} bytes, more than the {MAX_HEADER} that the format allows"
        ));
    }
    // The conversion cannot cut: the length is at most MAX_HEADER.
    let Some((header, data)) = rest.split_at_checked(length as usize) else {
        return fail(format!(
            "its header claims {length} bytes, but only {} follow; the file is cut short",
            rest.len()
        ));
    };
    let mut json = serde_json::Deserializer::from_slice(header);
    let (tensors, metadata) = match HeaderSeed
        .deserialize(&mut json)
        .and_then(|parsed| json.end().map(|()| parsed))
    {
        Ok(parsed) => parsed,
        Err(error) => {
            return fail(format!(
                "its header is not what the format asks for: {}",
                json::plain(error)
            ));
        }
    };
    check_ranges(path, &tensors, data.len())?;
    Ok(Header {
        data: LENGTH + header.len(),
        tensors,
        metadata,
    })
}

/// Refuses shapes that overflow or do not match their bytes, and byte ranges that leave a gap, overlap or end elsewhere than
/// the file. `tensors` are in the order of their bytes.
fn check_ranges(path: &Path, tensors: &[TensorEntry], available: usize) -> Result<(), DataError> {
    let mut end = 0;
    for tensor in tensors {
        let fail = |problem: String| {
            Err(DataError::Tensor {
                path: path.display().to_string(),
                tensor: tensor.name.clone(),
                problem,
            })
        };
        let Range { start, end: stop } = tensor.bytes;
        if stop < start {
            return fail(format!(
                "has the byte range [{start}, {stop}], which ends before it starts"
            ));
        }
        let bits = tensor
            .shape
            .iter()
            .try_fold(1usize, |product, size| product.checked_mul(*size))
            .and_then(|values| values.checked_mul(tensor.dtype.bitsize()));
        let (shape, dtype) = (&tensor.shape, tensor.dtype);
        let Some(bits) = bits else {
            return fail(format!(
                "has shape {shape:?}, more {dtype} values than memory has bytes"
            ));
        };
        if bits % 8 != 0 {
            return fail(format!(
                "has shape {shape:?} of {dtype}, which is no whole number of bytes"
            ));
        }
        if stop - start != bits / 8 {
            return fail(format!(
                "has shape {shape:?} of {dtype}, which takes {} bytes, but its byte range [{start}, {stop}] has {}",
                bits / 8,
                stop - start
            ));
        }
        if start < end {
            return fail(format!(
                "has the byte range [{start}, {stop}], but bytes up to {end} belong to another tensor"
            ));
        }
        if start > end {
            return fail(format!(
                "has the byte range [{start}, {stop}], but bytes {end} to {start} belong to no tensor"
            ));
        }
        if stop > available {
            return fail(format!(
                "has the byte range [{start}, {stop}], but only {available} bytes follow the header; the file is cut short"
            ));
        }
        end = stop;
    }
    if end < available {
        return Err(file_error(
            path,
            format!("{} bytes at its end belong to no tensor", available - end),
        ));
    }
    Ok(())
}

fn file_error(path: &Path, problem: String) -> DataError {
    DataError::WeightFile {
        path: path.display().to_string(),
        problem,
    }
}

/// Reads the header's map: the tensors, sorted by their bytes, and the metadata. Refuses repeated names, which a map would
/// hide.
struct HeaderSeed;

impl<'de> DeserializeSeed<'de> for HeaderSeed {
    type Value = (Vec<TensorEntry>, BTreeMap<String, String>);

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for HeaderSeed {
    type Value = (Vec<TensorEntry>, BTreeMap<String, String>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut tensors: Vec<TensorEntry> = Vec::new();
        let mut metadata = None;
        while let Some(name) = map.next_key::<String>()? {
            if name == METADATA {
                if metadata.is_some() {
                    return Err(A::Error::custom("__metadata__ is given twice"));
                }
                let read: BTreeMap<String, String> = map
                    .next_value()
                    .map_err(|error| A::Error::custom(format!("__metadata__: {error}")))?;
                metadata = Some(read);
                continue;
            }
            let info: TensorInfo = map
                .next_value()
                .map_err(|error| A::Error::custom(format!("the tensor {name:?}: {error}")))?;
            let (start, end) = info.data_offsets;
            tensors.push(TensorEntry {
                name,
                dtype: info.dtype,
                shape: info.shape,
                bytes: start..end,
            });
        }
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(pair) = tensors.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(A::Error::custom(format!(
                "the tensor {:?} is given twice",
                pair[0].name
            )));
        }
        // Empty tensors may share their start with a full one and must come first; names settle the rest.
        tensors.sort_by_key(|tensor| (tensor.bytes.start, tensor.bytes.end));
        Ok((tensors, metadata.unwrap_or_default()))
    }
}
