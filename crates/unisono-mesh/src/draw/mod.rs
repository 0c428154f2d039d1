//! Drawings of meshes, distributed tensors and descriptors: for the terminal, plain or in colour, and as SVG.
//!
//! Every function here lays out a [`Drawing`]: lines of text, panels and [`Table`]s. A drawing is then rendered three ways
//! ([`Drawing::plain`], [`Drawing::colour`], [`Drawing::svg`]), which all show the same. Widths are in characters.
//!
//! The drawings follow `visualize_mesh_device`, `visualize_system_mesh` and `visualize_tensor` of TT-NN.

mod descriptor;
mod drawing;
mod grid;
mod mesh;
mod named;
mod svg;
mod table;
mod tensor;

pub(crate) use descriptor::rate;
pub use descriptor::show;
pub use drawing::{Block, Drawing, GraphEdge};
pub(crate) use grid::ranges;
pub use mesh::{Cell, mesh_device, system_mesh};
pub use named::draw;
pub use table::{Links, Table, TableCell};
pub use tensor::{TensorFacts, tensor};

/// The width of a device's cell without its border where there is room, in characters.
pub(crate) const CELL: usize = 30;

/// `text` without characters that would move the cursor of a terminal or break a line: names come from files.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// `text` in the middle of `width` characters; what does not fit is cut, and `…` says so.
pub(crate) fn centred(text: &str, width: usize) -> String {
    let text = clean(text);
    if text.chars().count() <= width {
        return format!("{text:^width$}");
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        cut.push('…');
    }
    cut
}

/// `1 device`, `4 devices`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    match (number, noun) {
        (1, _) => format!("1 {noun}"),
        (_, "axis") => format!("{number} axes"),
        _ => format!("{number} {noun}s"),
    }
}
