//! Host arrays in files, and named parameters from files onto a mesh.
//!
//! ```
//! use unisono_tensor::{HostTensor, MapperConfig, MeshDevice, Options, Placement};
//! use unisono_train::arrays::{load_parameters, write_safetensors};
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("two.safetensors");
//! let w = HostTensor::new(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
//! write_safetensors(&path, &[("w", &w)])?;
//! let device = MeshDevice::open_grid(&[1, 2], Options::default())?;
//! // The mapper in scope deals out what is loaded.
//! let loaded = device.with_default_mapper(MapperConfig::shard(0), || load_parameters(&path, &device))?;
//! assert_eq!(loaded[0].1.placements()[1], Placement::Shard(0));
//! assert_eq!(loaded[0].1.to_host()?, w);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::{Result, TrainError};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use unisono_data::files::open_regular;
use unisono_data::weights::{Dtype as Stored, TensorEntry, write_safetensors_bytes};
use unisono_data::{DataError, TensorSpec, Weights, atomic_write};
use unisono_tensor::{Dtype, HostTensor, MeshDevice, Tensor};

/// Reads a `.npy` file; see [`HostTensor::from_npy`].
///
/// # Errors
/// No such file, or what [`HostTensor::from_npy`] says.
pub fn read_npy(path: &Path) -> Result<HostTensor> {
    let mut file = open_regular(path)?;
    let mut bytes = Vec::new();
    // The first bytes alone tell that a file is none of these, however large it is.
    for most in [6, u64::MAX] {
        let read = Read::by_ref(&mut file).take(most).read_to_end(&mut bytes);
        read.map_err(|error| DataError::read(path, &error))?;
        if !bytes.starts_with(b"\x93NUMPY") {
            break;
        }
    }
    HostTensor::from_npy(&bytes).map_err(|error| refused(path, error.to_string()))
}

/// Writes a `.npy` file, at once or not at all.
///
/// # Errors
/// What the system says, or more dims than NumPy has.
pub fn write_npy(path: &Path, array: &HostTensor) -> Result<()> {
    let file = array.to_npy().map_err(|error| refused(path, error.to_string()))?;
    atomic_write(path, |to| to.write_all(&file))?;
    Ok(())
}

/// All tensors of a safetensors file, in the order of their bytes.
///
/// # Errors
/// No such file, a header that is damaged, or a kind of numbers that host arrays do not hold.
pub fn read_safetensors(path: &Path) -> Result<Vec<(String, HostTensor)>> {
    let file = Weights::open(path)?;
    let entries = file.tensors().iter();
    entries
        .map(|entry| Ok((entry.name.clone(), read(path, &file, entry)?)))
        .collect()
}

/// Writes arrays to a safetensors file, at once or not at all.
///
/// # Errors
/// A name given twice or reserved, or what the system says.
pub fn write_safetensors(path: &Path, arrays: &[(&str, &HostTensor)]) -> Result<()> {
    let specs: Vec<(TensorSpec, Stored)> = arrays
        .iter()
        .map(|(name, array)| {
            let spec = TensorSpec {
                name: (*name).to_string(),
                shape: array.shape().to_vec(),
            };
            let dtype = match array.dtype() {
                Dtype::F32 => Stored::F32,
                Dtype::Bf16 => Stored::BF16,
                Dtype::U32 => Stored::U32,
                Dtype::I32 => Stored::I32,
                Dtype::U8 => Stored::U8,
            };
            (spec, dtype)
        })
        .collect();
    write_safetensors_bytes(path, &specs, &BTreeMap::new(), |i| {
        Ok::<_, TrainError>(Cow::Borrowed(arrays[i].1.bytes()))
    })?;
    Ok(())
}

/// All tensors of a safetensors file on a mesh, by name: each is dealt out by the mapper in scope
/// ([`MeshDevice::with_default_mapper`]), and whole on every device where there is none. One at a time is on the host.
///
/// # Errors
/// As [`read_safetensors`], and a tensor that the mapper cannot deal out, by its name.
pub fn load_parameters(path: &Path, device: &MeshDevice) -> Result<Vec<(String, Tensor)>> {
    let file = Weights::open(path)?;
    let place = |entry: &TensorEntry| {
        let tensor = device
            .from_host(&read(path, &file, entry)?)
            .map_err(|error| refused(path, format!("the tensor {:?}: {error}", entry.name)))?;
        Ok((entry.name.clone(), tensor))
    };
    file.tensors().iter().map(place).collect()
}

fn read(path: &Path, file: &Weights, entry: &TensorEntry) -> Result<HostTensor> {
    let dtype = match entry.dtype {
        Stored::F32 => Dtype::F32,
        Stored::BF16 => Dtype::Bf16,
        Stored::U32 => Dtype::U32,
        Stored::I32 => Dtype::I32,
        Stored::U8 => Dtype::U8,
        other => {
            return Err(refused(
                path,
                format!(
                    "the tensor {:?} is of {other}; host arrays hold F32, BF16, U32, I32 and U8",
                    entry.name
                ),
            ));
        }
    };
    Ok(HostTensor::from_bytes(dtype, &entry.shape, file.bytes(&entry.name)?)?)
}

fn refused(path: &Path, what: String) -> TrainError {
    TrainError::Path {
        path: path.to_path_buf(),
        what,
    }
}
