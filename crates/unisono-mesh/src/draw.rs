//! A mesh as a table of box-drawing cells, for a header or a manual page.

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

    let mut text = String::new();
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
        text += &table(mesh, &caption, slice * per_slice, rows, columns, width);
    }
    if slices > MAX_SLICES {
        text += &format!("… and {} more tables\n", slices - MAX_SLICES);
    }
    text
}

/// One table of `rows` × `columns` devices beginning at device `first`.
fn table(mesh: &Mesh, caption: &str, first: usize, rows: usize, columns: usize, width: usize) -> String {
    let fit = (width.saturating_sub(1) / (CELL + 1)).max(1);
    let shown_columns = columns.min(fit);
    let shown_rows = rows.min(MAX_ROWS);
    let border = |left: char, middle: char, right: char| {
        let cells = vec!["─".repeat(CELL); shown_columns];
        format!("{left}{}{right}\n", cells.join(&middle.to_string()))
    };
    let mut text = centred(caption, shown_columns * (CELL + 1) + 1).trim_end().to_string() + "\n";
    text += &border('┌', '┬', '┐');
    for row in 0..shown_rows {
        if row > 0 {
            text += &border('├', '┼', '┤');
        }
        let devices: Vec<usize> = (0..shown_columns)
            .map(|column| first + row * columns + column)
            .collect();
        let ids = devices.iter().map(|device| format!("Dev. ID: {device}"));
        let coordinates = devices
            .iter()
            .map(|device| mesh.coordinate(*device).map(|c| c.to_string()).unwrap_or_default());
        text += &line(ids);
        text += &line(coordinates);
    }
    text += &border('└', '┴', '┘');
    if shown_columns < columns || shown_rows < rows {
        text += &format!(
            "… {} of {} devices are drawn\n",
            shown_columns * shown_rows,
            rows * columns
        );
    }
    text
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.map(|cell| centred(&cell, CELL)).collect();
    format!("│{}│\n", cells.join("│"))
}

fn centred(text: &str, width: usize) -> String {
    format!("{text:^width$}")
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
