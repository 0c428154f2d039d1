//! A drawing as SVG: one self-contained text, its letters those of whatever monospaced font the viewer has.

use super::drawing::{edge_lines, hex};
use super::{Block, Drawing, GraphEdge, Table, clean};
use std::fmt::Write;

/// Width of a character and height of a line, in pixels.
const CHARACTER: f64 = 8.0;
const LINE: f64 = 18.0;
/// Room around everything, and between blocks.
const MARGIN: f64 = 16.0;
/// Room between cells that links join.
const GAP: f64 = 22.0;
const EDGE: &str = "#444444";
const RING: &str = "#c02020";

/// The parts as they are drawn, and the room they take.
#[derive(Default)]
struct Page {
    text: String,
    width: f64,
    y: f64,
}

impl Drawing {
    /// As SVG: what [`colour`](Self::colour) shows, links and connections drawn as lines. It loads nothing from elsewhere, and all
    /// text is escaped.
    pub fn svg(&self) -> String {
        let mut page = Page {
            y: MARGIN,
            ..Page::default()
        };
        for block in &self.blocks {
            match block {
                Block::Line(text) => page.line(text),
                Block::Panel { title, lines } => page.panel(title, lines),
                Block::Table(table) => page.table(table),
                Block::Graph { nodes, edges } => page.graph(nodes, edges),
            }
        }
        let (width, height) = (page.width + MARGIN, page.y + MARGIN);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"monospace\" font-size=\"13\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</svg>\n",
            page.text
        )
    }
}

impl Page {
    fn line(&mut self, text: &str) {
        self.write(MARGIN, self.y + LINE * 0.75, "start", text);
        self.grow(MARGIN + length(text));
        self.y += LINE;
    }

    fn panel(&mut self, title: &str, lines: &[String]) {
        let widest = lines.iter().map(|line| length(line)).fold(length(title), f64::max);
        let (width, height) = (widest + 2.0 * CHARACTER, LINE * (lines.len() as f64 + 1.5));
        self.rect((MARGIN, self.y), (width, height), "#f4f4f4", EDGE);
        for (index, line) in std::iter::once(title)
            .chain(lines.iter().map(String::as_str))
            .enumerate()
        {
            self.write(MARGIN + CHARACTER, self.y + LINE * (index as f64 + 1.0), "start", line);
        }
        self.grow(MARGIN + width);
        self.y += height + MARGIN / 2.0;
    }

    fn table(&mut self, table: &Table) {
        let gap = if table.links.is_some() { GAP } else { 0.0 };
        let ring = table.links.unwrap_or_default();
        let width = (table.cell_width as f64 * CHARACTER).max(LINE);
        let height = table.cell_lines().max(1) as f64 * LINE + 6.0;
        let left = MARGIN + table.label_width() as f64 * CHARACTER + if ring.ring_columns { GAP } else { 0.0 };
        let (rows, columns) = (table.rows.len(), table.columns());
        let inside = columns as f64 * (width + gap) - gap;
        self.y += LINE;
        self.write(
            left + (inside / 2.0).max(length(&table.title) / 2.0),
            self.y - 4.0,
            "middle",
            &table.title,
        );
        self.grow((left + length(&table.title)).max(left + inside + if ring.ring_columns { GAP } else { 0.0 }));
        if !table.column_labels.is_empty() {
            for (column, label) in table.column_labels.iter().enumerate() {
                let x = left + column as f64 * (width + gap) + width / 2.0;
                self.write(x, self.y + LINE * 0.75, "middle", label);
            }
            self.y += LINE;
        }
        if ring.ring_rows {
            self.y += GAP;
        }
        let top = self.y;
        let x = |column: usize| left + column as f64 * (width + gap);
        let y = |row: usize| top + row as f64 * (height + gap);
        if table.links.is_some() {
            self.links(table, (x(0), y(0)), (width, height));
        }
        for (row, cells) in table.rows.iter().enumerate() {
            if let Some(label) = table.row_labels.get(row) {
                self.write(MARGIN, y(row) + height / 2.0 + 5.0, "start", label);
            }
            for (column, cell) in cells.iter().enumerate() {
                let fill = cell.colour.map_or("#ffffff", hex);
                self.rect((x(column), y(row)), (width, height), fill, EDGE);
                for (line, text) in cell.lines.iter().enumerate() {
                    let baseline = y(row) + LINE * (line as f64 + 0.75) + 3.0;
                    self.write(x(column) + width / 2.0, baseline, "middle", text);
                }
            }
        }
        let bottom = y(rows.saturating_sub(1)) + height;
        for column in &table.heavy_columns {
            let at = x(*column) + width + gap / 2.0;
            self.heavy((at, top), (at, bottom));
        }
        for row in &table.heavy_rows {
            let at = y(*row) + height + gap / 2.0;
            self.heavy((left, at), (left + inside, at));
        }
        self.y = bottom + MARGIN + if ring.ring_rows { GAP } else { 0.0 };
    }

    /// Lines between neighbours, and around the ends where an axis is a ring.
    fn links(&mut self, table: &Table, (left, top): (f64, f64), (width, height): (f64, f64)) {
        let ring = table.links.unwrap_or_default();
        let (rows, columns) = (table.rows.len(), table.columns());
        let (dx, dy) = (width + GAP, height + GAP);
        let right = left + columns as f64 * dx - GAP;
        let bottom = top + rows as f64 * dy - GAP;
        for row in 0..rows {
            let y = top + row as f64 * dy + height / 2.0;
            self.stroke(&format!("M{left} {y}H{right}"), EDGE);
            if ring.ring_columns {
                // Out to the right, back in the gap below the row, in from the left.
                let below = y + height / 2.0 + GAP * 0.3;
                let (out, back) = (right + GAP * 0.5, left - GAP * 0.5);
                self.stroke(&format!("M{right} {y}H{out}V{below}H{back}V{y}H{left}"), RING);
            }
        }
        for column in 0..columns {
            let x = left + column as f64 * dx + width / 2.0;
            self.stroke(&format!("M{x} {top}V{bottom}"), EDGE);
            if ring.ring_rows {
                let beside = x + width / 2.0 + GAP * 0.3;
                let (above, below) = (top - GAP * 0.5, bottom + GAP * 0.6);
                self.stroke(&format!("M{x} {bottom}V{below}H{beside}V{above}H{x}V{top}"), RING);
            }
        }
    }

    fn graph(&mut self, nodes: &[String], edges: &[GraphEdge]) {
        if nodes.is_empty() {
            return;
        }
        let widest = nodes.iter().map(|name| length(name)).fold(0.0, f64::max) + 2.0 * CHARACTER;
        // Far enough apart that neighbours on the circle do not touch, and with room for what stands on the lines.
        let around = nodes.len() as f64 * (widest + 2.0 * GAP) / std::f64::consts::TAU;
        let radius = if nodes.len() == 1 { 0.0 } else { around.max(120.0) };
        let center = (MARGIN + radius + widest / 2.0, self.y + radius + 2.0 * LINE);
        let points = circle(nodes.len()).into_iter();
        let points: Vec<(f64, f64)> = points
            .map(|(x, y)| (center.0 + radius * x, center.1 + radius * y))
            .collect();
        let ends = |edge: &GraphEdge| Some((*points.get(edge.from)?, *points.get(edge.to)?));
        for (from, to) in edges.iter().filter_map(ends) {
            self.stroke(&format!("M{:.1} {:.1}L{:.1} {:.1}", from.0, from.1, to.0, to.1), EDGE);
        }
        for edge in edges {
            let Some((from, to)) = ends(edge) else { continue };
            // Not in the middle, where many lines cross.
            let (x, y) = (from.0 + (to.0 - from.0) * 0.4, from.1 + (to.1 - from.1) * 0.4);
            let width = length(&edge.short) + 4.0;
            self.rect((x - width / 2.0, y - 8.0), (width, 16.0), "#ffffff", "none");
            self.write(x, y + 4.0, "middle", &edge.short);
        }
        for ((x, y), name) in points.iter().zip(nodes) {
            self.rect((x - widest / 2.0, y - LINE), (widest, 2.0 * LINE), "#e8f0ff", EDGE);
            self.write(*x, y + 5.0, "middle", name);
        }
        self.grow(center.0 + radius + widest / 2.0);
        self.y = center.1 + radius + 2.0 * LINE;
        for line in edge_lines(nodes, edges) {
            self.line(&line);
        }
    }

    fn write(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        if !text.is_empty() {
            let text = escaped(text);
            // Writing to a string cannot fail.
            let _ = writeln!(
                self.text,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" xml:space=\"preserve\">{text}</text>"
            );
        }
    }

    fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str, stroke: &str) {
        let _ = writeln!(
            self.text,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\" stroke=\"{stroke}\"/>"
        );
    }

    fn stroke(&mut self, path: &str, colour: &str) {
        let _ = writeln!(
            self.text,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
        );
    }

    fn heavy(&mut self, from: (f64, f64), to: (f64, f64)) {
        let _ = writeln!(
            self.text,
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"#000000\" stroke-width=\"3\" stroke-dasharray=\"6 3\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    fn grow(&mut self, right: f64) {
        self.width = self.width.max(right);
    }
}

fn length(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

/// `count` points on the circle of radius 1, clockwise from the top. Made of exact arithmetic only: the platform's sine may
/// differ from machine to machine, and so would the file.
fn circle(count: usize) -> Vec<(f64, f64)> {
    // Points of the polygon with 4 corners, then halfway between neighbours again and again, pushed out to the circle.
    let mut fine = vec![(0.0, -1.0), (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)];
    while fine.len() < 64 * count.min(1024) {
        let next = fine.iter().cycle().skip(1);
        let halved = fine.iter().zip(next).flat_map(|(a, b)| {
            let middle: (f64, f64) = ((a.0 + b.0) / 2.0, (a.1 + b.1) / 2.0);
            let norm = (middle.0 * middle.0 + middle.1 * middle.1).sqrt();
            [*a, (middle.0 / norm, middle.1 / norm)]
        });
        fine = halved.collect();
    }
    (0..count).map(|index| fine[index * fine.len() / count]).collect()
}

/// A text that may stand in XML.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in clean(text).chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            // Not characters of XML.
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
