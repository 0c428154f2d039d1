//! A grid of cells in box-drawing characters.

use super::drawing::Span;
use super::{centred, clean};

/// A grid of cells of one size.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// Stands above, in the middle.
    pub title: String,
    /// Stand above the columns; empty for none.
    pub column_labels: Vec<String>,
    /// Stand before the rows; empty for none.
    pub row_labels: Vec<String>,
    /// The cells, row by row; all rows have the same number of them.
    pub rows: Vec<Vec<TableCell>>,
    /// Width of a cell without its border, in characters.
    pub cell_width: usize,
    /// Whether lines are drawn between all rows.
    pub separators: bool,
    /// Rows, by index, below which the line is heavy: there a block of the grid ends.
    pub heavy_rows: Vec<usize>,
    /// Columns, by index, behind which the line is heavy.
    pub heavy_columns: Vec<usize>,
    /// Which neighbours are joined; `None` where the grid stands for places only.
    pub links: Option<Links>,
}

/// One cell of a [`Table`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableCell {
    /// Its text, from top to bottom.
    pub lines: Vec<String>,
    /// The group whose colour it has.
    pub colour: Option<usize>,
}

/// How the cells of a [`Table`] are joined. Neighbours always are; a ring also joins the ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Links {
    /// The last row is joined with the first: `⇅` above and below each column.
    pub ring_rows: bool,
    /// The last column is joined with the first: `⇄` on both sides of each row.
    pub ring_columns: bool,
}

/// Which of the horizontal lines of a table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    Top,
    Light,
    Heavy,
    Bottom,
}

impl Table {
    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.rows.first().map_or(0, Vec::len)
    }

    /// Lines of text in each cell: as many as the fullest has.
    pub fn cell_lines(&self) -> usize {
        let cells = self.rows.iter().flatten();
        cells.map(|cell| cell.lines.len()).max().unwrap_or(0)
    }

    pub(super) fn label_width(&self) -> usize {
        let widths = self.row_labels.iter().map(|label| label.chars().count() + 1);
        widths.max().unwrap_or(0)
    }

    pub(super) fn lines(&self, lines: &mut Vec<Vec<Span>>) {
        let ring = self.links.unwrap_or_default();
        let side = if ring.ring_columns { "⇄ " } else { "" };
        let margin = " ".repeat(self.label_width() + side.chars().count());
        let inside = self.columns() * (self.cell_width + 1) + 1;
        if !self.title.is_empty() {
            let title = clean(&self.title);
            let before = inside.saturating_sub(title.chars().count()) / 2;
            lines.push(vec![(format!("{margin}{}{title}", " ".repeat(before)), None)]);
        }
        let across = |text: &dyn Fn(usize) -> String| {
            let cells = (0..self.columns()).map(|column| format!(" {}", centred(&text(column), self.cell_width)));
            vec![(format!("{margin}{}", cells.collect::<String>()), None)]
        };
        if !self.column_labels.is_empty() {
            lines.push(across(&|column| {
                self.column_labels.get(column).cloned().unwrap_or_default()
            }));
        }
        if ring.ring_rows {
            lines.push(across(&|_| "⇅".to_string()));
        }
        lines.push(self.edge(Edge::Top, &margin));
        let height = self.cell_lines();
        for (index, row) in self.rows.iter().enumerate() {
            for line in 0..height {
                let middle = line == (height - 1) / 2;
                lines.push(self.row_line(index, row, line, middle.then_some(side)));
            }
            if index + 1 == self.rows.len() {
                lines.push(self.edge(Edge::Bottom, &margin));
            } else if self.heavy_rows.contains(&index) {
                lines.push(self.edge(Edge::Heavy, &margin));
            } else if self.separators {
                lines.push(self.edge(Edge::Light, &margin));
            }
        }
        if ring.ring_rows {
            lines.push(across(&|_| "⇅".to_string()));
        }
    }

    /// One line of text of a row; the middle one has the row's label and the `side` marks of a ring.
    fn row_line(&self, index: usize, row: &[TableCell], line: usize, side: Option<&str>) -> Vec<Span> {
        let ring = self.links.is_some_and(|links| links.ring_columns);
        let label = match (self.row_labels.get(index), side) {
            (Some(label), Some(_)) => clean(label) + " ",
            _ => String::new(),
        };
        let before = side.unwrap_or(if ring { "  " } else { "" });
        let mut spans = vec![(format!("{label:>width$}{before}│", width = self.label_width()), None)];
        for (column, cell) in row.iter().enumerate() {
            let text = cell.lines.get(line).map_or("", String::as_str);
            spans.push((centred(text, self.cell_width), cell.colour));
            let heavy = column + 1 < row.len() && self.heavy_columns.contains(&column);
            spans.push((if heavy { "┃" } else { "│" }.to_string(), None));
        }
        if ring && side.is_some() {
            spans.push((" ⇄".to_string(), None));
        }
        spans
    }

    fn edge(&self, edge: Edge, margin: &str) -> Vec<Span> {
        let (left, right, fill) = match edge {
            Edge::Top => ('┌', '┐', "─"),
            Edge::Light => ('├', '┤', "─"),
            Edge::Heavy => ('┝', '┥', "━"),
            Edge::Bottom => ('└', '┘', "─"),
        };
        let mut text = format!("{margin}{left}");
        for column in 0..self.columns() {
            text += &fill.repeat(self.cell_width);
            if column + 1 < self.columns() {
                text.push(match (edge, self.heavy_columns.contains(&column)) {
                    (Edge::Top, false) => '┬',
                    (Edge::Top, true) => '┰',
                    (Edge::Light, false) => '┼',
                    (Edge::Light, true) => '╂',
                    (Edge::Heavy, false) => '┿',
                    (Edge::Heavy, true) => '╋',
                    (Edge::Bottom, false) => '┴',
                    (Edge::Bottom, true) => '┸',
                });
            }
        }
        text.push(right);
        vec![(text, None)]
    }
}
