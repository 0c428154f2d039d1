//! Which descriptor a run goes by, and which of its devices make up the mesh that was asked for.

use super::builtin::{BUILTINS, Builtin};
use super::{Checked, check};
use crate::draw::counted;
use crate::{MeshError, MeshShape};
use std::io::Read;
use std::path::Path;

/// Reads and checks a descriptor's file.
///
/// # Errors
/// [`MeshError::UnreadableDescriptor`] and [`MeshError::Descriptor`].
pub fn load(path: &Path) -> Result<Checked, MeshError> {
    let file = path.display().to_string();
    let unreadable = |error: std::io::Error| MeshError::UnreadableDescriptor {
        file: file.clone(),
        reason: error.to_string(),
    };
    // A pipe could be waited on for ever, and a folder opens on some systems.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(MeshError::UnreadableDescriptor {
            file,
            reason: "it is not a regular file".to_owned(),
        });
    }
    let mut text = Vec::new();
    // One byte more than a descriptor may have, so that the check sees that it is too long.
    let limit = super::MAX_BYTES as u64 + 1;
    let opened = std::fs::File::open(path).map_err(unreadable)?;
    opened.take(limit).read_to_end(&mut text).map_err(unreadable)?;
    check(&file, &text).map_err(|report| MeshError::Descriptor(Box::new(report)))
}

/// Where the descriptor was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBy {
    /// `TT_MESH_GRAPH_DESC_PATH`.
    Environment,
    /// `device_config.mesh_graph_descriptor`.
    Configuration,
    /// Nowhere: a built-in one that holds the shape.
    Shape,
    /// Nowhere: the built-in one of tt-train for this number of devices.
    Count,
}

/// How the mesh lies on the machine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// As it is.
    Straight,
    /// Turned by a quarter: place (r, c) is device (c, r).
    Turned,
    /// Along the zig-zag line.
    Line,
}

impl Fit {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Fit::Straight => "as it is",
            Fit::Turned => "turned by a quarter",
            Fit::Line => "along the zig-zag line",
        }
    }
}

/// A descriptor and the devices that were taken from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    /// Where the descriptor was named.
    pub by: NamedBy,
    /// The descriptor.
    pub checked: Checked,
    /// The mesh that holds the devices: an index into the machine's blocks.
    pub block: usize,
    /// How they lie there.
    pub fit: Fit,
    /// The machine's device at each place of the mesh asked for, row-major.
    pub devices: Vec<usize>,
}

/// What a run says about its machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish<'a> {
    /// The value of `TT_MESH_GRAPH_DESC_PATH`; empty counts as not given. It goes before the configuration.
    pub environment: Option<&'a str>,
    /// `device_config.mesh_graph_descriptor`: a file, or the name of a built-in descriptor.
    pub configured: Option<&'a str>,
    /// Where the mesh begins on the machine's.
    pub offset: Option<&'a [usize]>,
}

/// The descriptor to go by for a mesh of this shape.
///
/// The one that is named; else the first built-in one that has this shape, else the smallest that holds it; else, by the
/// number of devices, the one that tt-train takes (8: a T3000 as a line, 32: a Galaxy as a line).
///
/// # Errors
/// Those of [`load`] and [`hold`]. Nothing falls back on fewer devices.
pub fn select(shape: &MeshShape, wish: Wish<'_>) -> Result<Selection, MeshError> {
    let environment = wish.environment.filter(|path| !path.is_empty());
    let named = match (environment, wish.configured) {
        (Some(path), _) => Some((NamedBy::Environment, path)),
        (None, Some(path)) => Some((NamedBy::Configuration, path)),
        (None, None) => None,
    };
    if let Some((by, name)) = named {
        return hold(open(name)?, by, shape, wish.offset);
    }
    let all = || BUILTINS.iter().map(|builtin| builtin.checked());
    let same = all().find(|checked| checked.machine.blocks[0].shape == *shape);
    if let Some(checked) = same {
        return hold(checked, NamedBy::Shape, shape, wish.offset);
    }
    let mut holding: Vec<Selection> = all()
        .filter_map(|checked| hold(checked, NamedBy::Shape, shape, wish.offset).ok())
        .collect();
    holding.sort_by_key(|selection| selection.checked.machine.num_devices());
    if !holding.is_empty() {
        return Ok(holding.swap_remove(0));
    }
    match shape.num_devices() {
        8 => hold(Builtin::named("t3k-1x8")?.checked(), NamedBy::Count, shape, wish.offset),
        32 => hold(
            Builtin::named("galaxy-1x32")?.checked(),
            NamedBy::Count,
            shape,
            wish.offset,
        ),
        devices => Err(MeshError::DescriptorDoesNotHold {
            descriptor: "none of the built-in descriptors".to_owned(),
            request: format!("{shape} = {}", counted(devices, "device")),
            problem: "the largest of them are [16, 8] and [8, 8]".to_owned(),
            mend: mend(shape),
        }),
    }
}

/// A descriptor by its file or, where there is no such file, by its built-in name.
///
/// # Errors
/// Those of [`load`]; for a word that is neither a file nor a name [`MeshError::UnknownDescriptor`].
pub fn open(name: &str) -> Result<Checked, MeshError> {
    let path = Path::new(name);
    let is_word = !name.contains(['/', '\\', '.']);
    if !path.exists() && is_word {
        return Builtin::named(name).map(Builtin::checked);
    }
    load(path)
}

/// How to get a descriptor of this shape.
fn mend(shape: &MeshShape) -> String {
    let sizes: Vec<String> = shape.sizes().iter().map(usize::to_string).collect();
    format!(
        "`unisono mesh new --shape {}` writes a descriptor of that shape",
        sizes.join("x")
    )
}

/// Lays a mesh over the first mesh of the machine that can hold it.
///
/// # Errors
/// [`MeshError::DescriptorDoesNotHold`], with both numbers of devices and the shapes that fit.
pub fn hold(
    checked: Checked,
    by: NamedBy,
    shape: &MeshShape,
    offset: Option<&[usize]>,
) -> Result<Selection, MeshError> {
    let mut problems: Vec<String> = Vec::new();
    let mut fitting: Vec<String> = Vec::new();
    for (index, block) in checked
        .machine
        .blocks
        .iter()
        .enumerate()
        .filter(|(_, block)| !block.is_switch)
    {
        match block.shape.place(shape, offset) {
            Ok(places) => {
                let fit = fit(&block.shape, shape, &places);
                let devices = places.into_iter().map(|place| block.first_device + place).collect();
                return Ok(Selection {
                    by,
                    block: index,
                    fit,
                    devices,
                    checked,
                });
            }
            Err(refusal) => {
                let problem = match refusal {
                    MeshError::DoesNotFit { problem, .. } => problem,
                    other => other.to_string(),
                };
                problems.push(problem);
                fitting.extend(block.shape.fitting());
            }
        }
    }
    // Meshes of one shape say the same.
    problems.dedup();
    fitting.sort();
    fitting.dedup();
    problems.truncate(3);
    fitting.truncate(6);
    let fits = match fitting.is_empty() {
        true => String::new(),
        false => format!(
            "set mesh_shape to one that fits ({}, or smaller), or describe the machine as it is meant: ",
            fitting.join(", ")
        ),
    };
    Err(MeshError::DescriptorDoesNotHold {
        descriptor: summary(&checked),
        request: format!("{shape} = {}", counted(shape.num_devices(), "device")),
        problem: problems.join("; "),
        mend: fits + &mend(shape),
    })
}

/// How a mesh lies, seen from where its places went.
fn fit(system: &MeshShape, shape: &MeshShape, places: &[usize]) -> Fit {
    let strides = system.strides();
    let first = places.first().copied().unwrap_or(0);
    let straight = shape.num_axes() == system.num_axes()
        && shape.coordinates().zip(places).all(|(at, place)| {
            *place
                == first
                    + at.0
                        .iter()
                        .zip(&strides)
                        .map(|(index, stride)| index * stride)
                        .sum::<usize>()
        });
    match straight {
        true => Fit::Straight,
        false if shape.is_line() => Fit::Line,
        false => Fit::Turned,
    }
}

/// The file and its meshes in a few words.
fn summary(checked: &Checked) -> String {
    let machine = &checked.machine;
    let mut shapes: Vec<(String, usize)> = Vec::new();
    for block in machine.meshes() {
        let shape = block.shape.to_string();
        match shapes.iter_mut().find(|(known, _)| *known == shape) {
            Some((_, times)) => *times += 1,
            None => shapes.push((shape, 1)),
        }
    }
    shapes.truncate(4);
    let shapes: Vec<String> = shapes
        .into_iter()
        .map(|(shape, times)| {
            if times == 1 {
                shape
            } else {
                format!("{times} times {shape}")
            }
        })
        .collect();
    format!(
        "the descriptor {} ({} = {})",
        checked.file,
        shapes.join(", "),
        counted(machine.num_devices(), "device")
    )
}
