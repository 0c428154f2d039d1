//! How the devices of a mesh become tables of a given width: roomy cells where they fit, cells of just the id where they do
//! not, and a part of the mesh, with a sentence, where even those are too many.

use super::{Drawing, Links, Table, TableCell, counted};

/// Rows of short cells that a mesh may take, over all tables and bands of columns, before it is summarised.
const MAX_LINES: usize = 64;
/// Rows of a summary.
const SUMMARY_ROWS: usize = 8;
/// Rows of roomy cells that a mesh may take, over all tables.
const MAX_ROOMY_ROWS: usize = 16;
/// Tables (indices of all axes but the last two) that are drawn before some are left out.
const MAX_TABLES: usize = 4;

/// A mesh to be laid out. Devices are row-major.
pub(super) struct Grid<'a> {
    /// Stands above each table.
    pub title: &'a str,
    /// Sizes of the axes, at least one.
    pub sizes: &'a [usize],
    /// The roomy cell of a device.
    pub roomy: &'a dyn Fn(usize) -> TableCell,
    /// The cell of a device in one short line.
    pub short: &'a dyn Fn(usize) -> TableCell,
    /// The width of a roomy cell where there is room, in characters.
    pub cell: usize,
    /// Rows and columns of the blocks that heavy lines part; `None` for none.
    pub blocks: Option<(usize, usize)>,
    /// How neighbours are joined.
    pub links: Option<Links>,
}

/// Which cells a grid was laid out with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cells {
    Roomy,
    Short,
}

/// Adds the tables of `grid` to `drawing`, no line wider than `width` (but one cell is always drawn).
pub(super) fn lay_out(grid: &Grid, width: usize, drawing: &mut Drawing) -> Cells {
    let (outer, rows, columns) = match grid.sizes {
        [] => (&[][..], 1, 1),
        [columns] => (&[][..], 1, *columns),
        [outer @ .., rows, columns] => (outer, *rows, *columns),
    };
    let tables: usize = outer.iter().product();
    let drawn = tables.min(MAX_TABLES);
    let part = Part {
        grid,
        rows,
        columns,
        tables: drawn,
    };
    let roomy = part.roomy_width(width);
    for index in 0..drawn {
        let title = match outer {
            [] => grid.title.to_string(),
            _ => format!("{} at {}", grid.title, place(outer, index)),
        };
        let first = index * rows * columns;
        match roomy {
            Some(cell) => drawing.table(part.table(title, first, &all(0, rows), &all(0, columns), cell, Cells::Roomy)),
            None => part.short(title, first, width, drawing),
        }
    }
    if tables > drawn {
        let left = tables - drawn;
        drawing.line(format!(
            "… and {} of {}",
            counted(left, "more table"),
            counted(left * rows * columns, "device")
        ));
    }
    if roomy.is_some() { Cells::Roomy } else { Cells::Short }
}

/// The indices of the outer axes, row-major: `(1, 0, …, …)`.
fn place(outer: &[usize], index: usize) -> String {
    let mut rest = index;
    let mut parts = vec![String::new(); outer.len()];
    for (part, size) in parts.iter_mut().zip(outer).rev() {
        *part = (rest % size).to_string();
        rest /= size;
    }
    format!("({}, …, …)", parts.join(", "))
}

/// The tables of a grid are alike: `rows` × `columns` devices each.
struct Part<'a> {
    grid: &'a Grid<'a>,
    rows: usize,
    columns: usize,
    /// Tables that are drawn in all.
    tables: usize,
}

impl Part<'_> {
    /// The width of roomy cells, if they fit.
    fn roomy_width(&self, width: usize) -> Option<usize> {
        let fit = (width.saturating_sub(1 + self.ring_margin()) / self.columns).checked_sub(1)?;
        if self.tables * self.rows > MAX_ROOMY_ROWS || fit < 4 {
            return None;
        }
        let devices = 0..self.tables * self.rows * self.columns;
        let needed = devices.flat_map(|device| (self.grid.roomy)(device).lines);
        let needed = needed.map(|line| line.chars().count()).max().unwrap_or(0);
        (needed <= fit).then(|| self.grid.cell.max(needed + 2).min(fit))
    }

    fn ring_margin(&self) -> usize {
        // Two characters on each side.
        4 * usize::from(self.grid.links.is_some_and(|links| links.ring_columns))
    }

    /// Tables of short cells: all devices, in bands of columns, or a part of them and a sentence.
    fn short(&self, title: String, first: usize, width: usize, drawing: &mut Drawing) {
        let devices = self.rows * self.columns;
        // Ids are longest at the end; other short texts are looked at where they are drawn first.
        let probes = (0..devices.min(256)).chain([devices - 1]);
        let longest = probes
            .flat_map(|device| (self.grid.short)(first + device).lines)
            .map(|line| line.chars().count())
            .max()
            .unwrap_or(1);
        let labels = (self.rows - 1).to_string().len() + 1;
        let room = width.saturating_sub(1 + labels + self.ring_margin());
        // A blank on each side if that fits.
        let cell = match (longest + 3) * self.columns <= room {
            true => longest + 2,
            false => longest,
        };
        let band = (room / (cell + 1)).clamp(1, self.columns);
        let bands = self.columns.div_ceil(band);
        if bands * self.rows * self.tables <= MAX_LINES {
            // Bands of one width, as far as it goes.
            let even = self.columns.div_ceil(bands);
            for start in (0..self.columns).step_by(even) {
                let end = (start + even).min(self.columns);
                let which = match end - start {
                    1 => format!("column {start}"),
                    _ => format!("columns {start} to {}", end - 1),
                };
                let title = match (bands, start) {
                    (1, _) => title.clone(),
                    (_, 0) => format!("{title}, {which}"),
                    _ => which,
                };
                let shown = all(start, end);
                drawing.table(self.table(title, first, &all(0, self.rows), &shown, cell, Cells::Short));
            }
            return;
        }
        let (rows, columns) = (some(self.rows, SUMMARY_ROWS), some(self.columns, band));
        let drawn = rows.iter().flatten().count() * columns.iter().flatten().count();
        drawing.table(self.table(title, first, &rows, &columns, cell, Cells::Short));
        drawing.line(format!(
            "… {drawn} of {devices} devices are drawn, of {} rows and {} columns",
            self.rows, self.columns
        ));
    }

    /// The devices of the shown rows and columns; `None` stands for those left out.
    fn table(
        &self,
        title: String,
        first: usize,
        rows: &[Option<usize>],
        columns: &[Option<usize>],
        cell_width: usize,
        cells: Cells,
    ) -> Table {
        let left_out = || TableCell {
            lines: vec!["…".to_string()],
            colour: None,
        };
        let cell = |row: &Option<usize>, column: &Option<usize>| match (row, column) {
            (Some(row), Some(column)) => {
                let device = first + row * self.columns + column;
                match cells {
                    Cells::Roomy => (self.grid.roomy)(device),
                    Cells::Short => (self.grid.short)(device),
                }
            }
            _ => left_out(),
        };
        let label = |index: &Option<usize>| index.map_or_else(|| "…".to_string(), |index| index.to_string());
        let labels = |indices: &[Option<usize>]| match cells {
            Cells::Roomy => Vec::new(),
            Cells::Short => indices.iter().map(label).collect(),
        };
        let whole = columns.len() == self.columns || columns.contains(&None);
        let links = self.grid.links.map(|links| Links {
            // A band of the columns has only one of the ring's ends.
            ring_columns: links.ring_columns && whole,
            ..links
        });
        let (block_rows, block_columns) = self.grid.blocks.unwrap_or((self.rows, self.columns));
        Table {
            title,
            column_labels: labels(columns),
            row_labels: labels(rows),
            rows: rows
                .iter()
                .map(|row| columns.iter().map(|column| cell(row, column)).collect())
                .collect(),
            cell_width,
            separators: cells == Cells::Roomy,
            heavy_rows: ends_of_blocks(rows, block_rows),
            heavy_columns: ends_of_blocks(columns, block_columns),
            links,
        }
    }
}

fn all(start: usize, end: usize) -> Vec<Option<usize>> {
    (start..end).map(Some).collect()
}

/// At most `most` of `count` indices: the first ones and the last, between them `None`.
fn some(count: usize, most: usize) -> Vec<Option<usize>> {
    if count <= most {
        return all(0, count);
    }
    if most < 3 {
        return all(0, most);
    }
    let mut shown = all(0, most - 2);
    shown.extend([None, Some(count - 1)]);
    shown
}

fn ends_of_blocks(shown: &[Option<usize>], block: usize) -> Vec<usize> {
    let block = block.max(1);
    let ends = shown.windows(2).enumerate().filter(|(_, pair)| match pair {
        [Some(a), Some(b)] => a / block != b / block,
        _ => false,
    });
    ends.map(|(index, _)| index).collect()
}

/// Groups of devices with equal texts, a line each: `[0:4, :]  devices 0-3, 8`. At most sixteen lines.
pub(super) fn legend(texts: impl Iterator<Item = String>, drawing: &mut Drawing) {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    let mut known = std::collections::HashMap::new();
    for (device, text) in texts.enumerate().filter(|(_, text)| !text.is_empty()) {
        let group = *known.entry(text.clone()).or_insert_with(|| {
            groups.push((text, Vec::new()));
            groups.len() - 1
        });
        groups[group].1.push(device);
    }
    let widest = groups.iter().take(MOST).map(|(text, _)| text.chars().count()).max();
    let width = widest.unwrap_or(0);
    const MOST: usize = 16;
    for (text, devices) in groups.iter().take(MOST) {
        let word = if devices.len() == 1 { "device" } else { "devices" };
        drawing.line(format!("  {text:width$}  {word} {}", ranges(devices)));
    }
    if groups.len() > MOST {
        drawing.line(format!("  … and {} more", groups.len() - MOST));
    }
}

/// Ascending numbers as `0-3, 8, 10-11`; after twelve ranges `…`.
pub(crate) fn ranges(numbers: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, end)) if *end + 1 == *number => *end = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let written = parts.iter().take(12).map(|(start, end)| match start == end {
        true => start.to_string(),
        false => format!("{start}-{end}"),
    });
    let mut written: Vec<String> = written.collect();
    if parts.len() > 12 {
        written.push(format!("… ({} in all)", numbers.len()));
    }
    written.join(", ")
}
