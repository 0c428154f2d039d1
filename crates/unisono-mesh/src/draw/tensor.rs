//! How a tensor lies over a mesh: which slice of it each device has.

use super::mesh::{Cell, grid};
use super::{Block, Drawing};
use crate::MeshShape;
use std::collections::HashMap;
use std::ops::Range;

/// What is drawn of a distributed tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorFacts {
    /// Where it lies: `host` or `device`.
    pub storage: String,
    /// The placements in words, a line for each axis of the mesh; they stand in the panel.
    pub placements: Vec<String>,
    /// Size of each dim of the whole tensor.
    pub shape: Vec<usize>,
    /// Kind of numbers, such as `f32`.
    pub dtype: String,
    /// The devices in row-major order of the mesh; their annotations and colours are set here.
    pub devices: Vec<Cell>,
    /// For each device the part of each dim that it has, in elements; `None` for a device without a shard.
    pub slices: Vec<Option<Vec<Range<usize>>>>,
}

/// A tensor over a mesh of shape `mesh`, as TT-NN's `visualize_tensor`: a panel with the placements, then each device with its
/// slice (`:` stands for a whole dim), its shard's shape and the kind of numbers. Devices with equal slices have one colour.
/// `width` as in [`mesh_device`](super::mesh_device); where the cells have no room for slices, these are listed below.
pub fn tensor(mesh: &MeshShape, facts: &TensorFacts, width: usize) -> Drawing {
    let mut drawing = Drawing::default();
    drawing.blocks.push(Block::Panel {
        title: "Placement Configuration".to_string(),
        lines: facts.placements.clone(),
    });
    let mut colours: HashMap<&[Range<usize>], usize> = HashMap::new();
    let mut cells = facts.devices.clone();
    for (device, cell) in cells.iter_mut().enumerate() {
        match facts.slices.get(device) {
            Some(Some(slice)) => {
                let next = colours.len();
                cell.colour = Some(*colours.entry(slice).or_insert(next));
                cell.annotation = vec![
                    describe(slice, &facts.shape),
                    format!("Shape: {:?}", slice.iter().map(Range::len).collect::<Vec<_>>()),
                    format!("Dtype: {}", facts.dtype),
                ];
            }
            _ => {
                cell.colour = None;
                cell.annotation = vec!["no shard".to_string()];
            }
        }
    }
    let title = format!("Tensor(storage: {})", facts.storage);
    grid(&title, mesh, &cells, width, &mut drawing);
    drawing.line(format!("Tensor shape: {:?}, dtype: {}", facts.shape, facts.dtype));
    drawing
}

/// `[0:4, :]`: a part of each dim, `:` for all of it.
fn describe(slice: &[Range<usize>], shape: &[usize]) -> String {
    let parts = slice.iter().enumerate().map(|(dim, part)| {
        let whole = shape.get(dim).is_some_and(|size| *part == (0..*size));
        match whole {
            true => ":".to_string(),
            false => format!("{}:{}", part.start, part.end),
        }
    });
    format!("[{}]", parts.collect::<Vec<_>>().join(", "))
}
