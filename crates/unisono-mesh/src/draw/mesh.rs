//! The devices of an open mesh, and of the whole system.

use super::grid::{Cells, Grid, lay_out, legend};
use super::{CELL, Drawing, TableCell};
use crate::MeshShape;

/// What is known of one device of a drawing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cell {
    /// Its id; `None` where that is not known here, as on a mesh over several hosts.
    pub id: Option<usize>,
    /// Whether it belongs to this host; `None` where there is one host only, and then nothing is said of it.
    pub local: Option<bool>,
    /// Further lines.
    pub annotation: Vec<String>,
    /// The group whose background colour it has.
    pub colour: Option<usize>,
}

impl Cell {
    /// A device of this host, without more.
    pub fn of(id: usize) -> Self {
        Self {
            id: Some(id),
            ..Self::default()
        }
    }

    fn roomy(&self, coordinate: String) -> TableCell {
        let mut lines = Vec::new();
        if let Some(local) = self.local {
            lines.push(if local { "Local" } else { "Remote" }.to_string());
        }
        lines.push(match self.id {
            Some(id) => format!("Dev. ID: {id}"),
            None => "Unknown ID".to_string(),
        });
        lines.push(coordinate);
        match self.annotation.is_empty() {
            true => lines.push(String::new()),
            false => lines.extend(self.annotation.iter().cloned()),
        }
        TableCell {
            lines,
            colour: self.colour,
        }
    }

    fn short(&self) -> TableCell {
        TableCell {
            lines: vec![self.id.map_or_else(|| "?".to_string(), |id| id.to_string())],
            colour: self.colour,
        }
    }
}

/// A mesh with the id and the coordinate of each device, as TT-NN's `visualize_mesh_device`.
///
/// `cells` are the devices in row-major order of `shape`; where some are missing, `?` is drawn. Cells are 30 characters wide,
/// narrower where `width` asks for it, and hold just the id where not even that fits; large meshes are summarised. Of more
/// than two axes the outer ones make a table for each of their indices.
pub fn mesh_device(shape: &MeshShape, cells: &[Cell], width: usize) -> Drawing {
    let mut drawing = Drawing::default();
    grid(
        &format!("MeshDevice({})", describe(shape)),
        shape,
        cells,
        width,
        &mut drawing,
    );
    drawing
}

/// All devices of a system, as TT-NN's `visualize_system_mesh`: two lines with the global shape and this host's, then the
/// table. `cells` as in [`mesh_device`], in row-major order of `global`.
pub fn system_mesh(global: &MeshShape, local: &MeshShape, cells: &[Cell], width: usize) -> Drawing {
    let (whole, own) = (tuple(global), tuple(local));
    let mut drawing = Drawing::default();
    drawing.line(format!("SystemMesh Global Shape: {whole}"));
    drawing.line(format!("SystemMesh Local Shape: {own}"));
    let title = format!("SystemMesh Global Shape: {whole} | Local Shape: {own}");
    grid(&title, global, cells, width, &mut drawing);
    drawing
}

/// Tables of cells under a title, and below short cells what their annotations say.
pub(super) fn grid(title: &str, shape: &MeshShape, cells: &[Cell], width: usize, drawing: &mut Drawing) {
    let unknown = Cell::default();
    let cell = |device: usize| cells.get(device).unwrap_or(&unknown);
    let coordinate = |device| shape.coordinate(device).map(|c| c.to_string()).unwrap_or_default();
    let grid = Grid {
        title,
        sizes: shape.sizes(),
        roomy: &|device| cell(device).roomy(coordinate(device)),
        short: &|device| cell(device).short(),
        cell: CELL,
        blocks: None,
        links: None,
    };
    if lay_out(&grid, width, drawing) == Cells::Short {
        let texts = cells.iter().take(shape.num_devices());
        legend(texts.map(|cell| cell.annotation.join(" ")), drawing);
    }
}

/// `rows=2, cols=4`, or for more than two axes `shape=[2, 2, 4]`.
fn describe(shape: &MeshShape) -> String {
    match shape.sizes() {
        [columns] => format!("rows=1, cols={columns}"),
        [rows, columns] => format!("rows={rows}, cols={columns}"),
        _ => format!("shape={shape}"),
    }
}

fn tuple(shape: &MeshShape) -> String {
    let sizes: Vec<String> = shape.sizes().iter().map(usize::to_string).collect();
    format!("({})", sizes.join(", "))
}
