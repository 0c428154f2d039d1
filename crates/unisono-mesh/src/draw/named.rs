//! A mesh as a table of box-drawing cells, for a header or a manual page.

use super::{Drawing, Table, TableCell};
use crate::Mesh;

/// The width of a cell without its border, in characters.
const CELL: usize = 16;
/// The rows of devices that a drawing shows before it leaves some out.
const MAX_ROWS: usize = 8;
/// The slices (all axes but the last two) that a drawing shows before it leaves some out.
const MAX_SLICES: usize = 4;

/// Draws a mesh as plain text: one cell a device with its id and coordinate, the last axis to the right and the one
/// before it downwards; further axes become one table for each of their indices. No line is wider than `width` characters
/// (but one cell and its border are always drawn); columns, rows and tables that do not fit are left out, and that is said.
/// Lines end in `\n`.
pub fn draw(mesh: &Mesh, width: usize) -> String {
    let sizes: Vec<usize> = mesh.axes().iter().map(|axis| axis.size).collect();
    let names: Vec<&str> = mesh.axes().iter().map(|axis| axis.name.as_str()).collect();
    let (rows, columns) = match sizes.as_slice() {
        [] => (1, 1),
        [columns] => (1, *columns),
        [.., rows, columns] => (*rows, *columns),
    };
    let per_slice = rows * columns;
    let slices = mesh.num_devices() / per_slice;
    let title = format!("Mesh({})", describe_axes(&names, &sizes));

    let mut drawing = Drawing::default();
    for slice in 0..slices.min(MAX_SLICES) {
        let caption = if slices == 1 {
            title.clone()
        } else {
            let outer = sizes.len() - 2; // several slices only with three axes or more
            let mut rest = slice;
            let mut indices = vec![0; outer];
            for axis in (0..outer).rev() {
                indices[axis] = rest % sizes[axis];
                rest /= sizes[axis];
            }
            format!("{title} at {}", describe_axes(&names[..outer], &indices))
        };
        let shown = (
            rows.min(MAX_ROWS),
            columns.min((width.saturating_sub(1) / (CELL + 1)).max(1)),
        );
        drawing.table(table(mesh, caption, slice * per_slice, columns, shown));
        if shown != (rows, columns) {
            drawing.line(format!(
                "… {} of {} devices are drawn",
                shown.0 * shown.1,
                rows * columns
            ));
        }
    }
    if slices > MAX_SLICES {
        drawing.line(format!("… and {} more tables", slices - MAX_SLICES));
    }
    drawing.plain()
}

/// The first rows and columns, as many as `shown` says, of the devices from `first` on that lie in rows of `columns`.
fn table(mesh: &Mesh, title: String, first: usize, columns: usize, shown: (usize, usize)) -> Table {
    let cell = |device: usize| TableCell {
        lines: vec![
            format!("Dev. ID: {device}"),
            mesh.coordinate(device).map(|c| c.to_string()).unwrap_or_default(),
        ],
        colour: None,
    };
    let row = |row: usize| {
        (0..shown.1)
            .map(|column| cell(first + row * columns + column))
            .collect()
    };
    Table {
        title,
        rows: (0..shown.0).map(row).collect(),
        cell_width: CELL,
        separators: true,
        ..Table::default()
    }
}

fn describe_axes(names: &[&str], values: &[usize]) -> String {
    let parts: Vec<String> = names
        .iter()
        .zip(values)
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if parts.is_empty() {
        "one device".to_string()
    } else {
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_two_axis_mesh_is_drawn_to_the_character() {
        let mesh = Mesh::new(&[("dp", 2), ("tp", 2)]).expect("a valid mesh");
        let expected = "         Mesh(dp=2, tp=2)
┌────────────────┬────────────────┐
│   Dev. ID: 0   │   Dev. ID: 1   │
│     (0, 0)     │     (0, 1)     │
├────────────────┼────────────────┤
│   Dev. ID: 2   │   Dev. ID: 3   │
│     (1, 0)     │     (1, 1)     │
└────────────────┴────────────────┘
";
        assert_eq!(draw(&mesh, 100), expected);
    }

    #[test]
    fn one_device_has_a_cell_too() {
        let text = draw(&Mesh::one(), 0);
        assert!(
            text.contains("Mesh(one device)") && text.contains("Dev. ID: 0"),
            "{text}"
        );
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_said() {
        let mesh = Mesh::new(&[("dp", 16), ("tp", 32)]).expect("a valid mesh");
        let text = draw(&mesh, 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("… 32 of 512 devices are drawn"), "{text}");
    }

    #[test]
    fn outer_axes_make_one_table_each() {
        let mesh = Mesh::new(&[("dp", 2), ("pp", 1), ("tp", 2)]).expect("a valid mesh");
        let text = draw(&mesh, 100);
        assert!(text.contains("at dp=0") && text.contains("at dp=1"), "{text}");
        assert!(text.contains("(1, 0, 1)") && text.contains("Dev. ID: 3"), "{text}");
    }
}
