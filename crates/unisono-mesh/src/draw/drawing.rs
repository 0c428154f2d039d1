//! What a drawing consists of, and its rendering as text.

use super::{Table, clean, counted};

/// Lines of text, panels, tables and graphs, one below the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Drawing {
    /// The parts from top to bottom.
    pub blocks: Vec<Block>,
}

/// A part of a [`Drawing`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// A line of text.
    Line(String),
    /// Lines in a frame with a title.
    Panel {
        /// Stands in the frame's upper edge.
        title: String,
        /// What the frame holds.
        lines: Vec<String>,
    },
    /// A grid of cells.
    Table(Table),
    /// Things with names and what joins them. As text a list of the edges, in SVG the nodes on a circle.
    Graph {
        /// The names.
        nodes: Vec<String>,
        /// What joins them.
        edges: Vec<GraphEdge>,
    },
}

/// A line of a [`Block::Graph`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphEdge {
    /// Index of the one node.
    pub from: usize,
    /// Index of the other node.
    pub to: usize,
    /// What is known of it, such as `8 channels STRICT`.
    pub label: String,
    /// The same in a few characters, to stand on a line of the SVG.
    pub short: String,
}

/// The edges that a text shows before it leaves some out.
const MAX_EDGES: usize = 64;

/// A piece of a line of text, and the group whose colour lies behind it.
pub(super) type Span = (String, Option<usize>);

impl Drawing {
    /// Adds a line of text.
    pub(crate) fn line(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Line(text.into()));
    }

    /// Adds a table.
    pub(crate) fn table(&mut self, table: Table) {
        self.blocks.push(Block::Table(table));
    }

    /// As text without colours. Each line ends in `\n`, with no blanks before it.
    pub fn plain(&self) -> String {
        let mut text = String::new();
        for line in self.lines() {
            let line: String = line.into_iter().map(|(piece, _)| piece).collect();
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    /// As text for a terminal with 256 colours: cells of one group have one background colour.
    pub fn colour(&self) -> String {
        let mut text = String::new();
        for line in self.lines() {
            let last = line.len().saturating_sub(1);
            for (at, (piece, group)) in line.into_iter().enumerate() {
                match group {
                    Some(group) => text += &format!("\x1b[30;48;5;{}m{piece}\x1b[0m", ansi(group)),
                    None if at == last => text += piece.trim_end(),
                    None => text += &piece,
                }
            }
            text.push('\n');
        }
        text
    }

    fn lines(&self) -> Vec<Vec<Span>> {
        let mut lines = Vec::new();
        for block in &self.blocks {
            match block {
                Block::Line(text) => lines.push(vec![(clean(text), None)]),
                Block::Panel { title, lines: inside } => panel(title, inside, &mut lines),
                Block::Table(table) => table.lines(&mut lines),
                Block::Graph { nodes, edges } => lines.extend(edge_lines(nodes, edges).map(|line| vec![(line, None)])),
            }
        }
        lines
    }
}

fn panel(title: &str, inside: &[String], lines: &mut Vec<Vec<Span>>) {
    let inside: Vec<String> = inside.iter().map(|line| clean(line)).collect();
    let title = clean(title);
    let widest = inside.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let width = widest.max(title.chars().count() + 2) + 2;
    lines.push(vec![(format!("┌{:─^width$}┐", format!(" {title} ")), None)]);
    for line in &inside {
        lines.push(vec![(format!("│ {line:<rest$} │", rest = width - 2), None)]);
    }
    lines.push(vec![(format!("└{}┘", "─".repeat(width)), None)]);
}

/// The edges of a graph in words, a line each; of many the first, and how many more there are.
pub(super) fn edge_lines(nodes: &[String], edges: &[GraphEdge]) -> impl Iterator<Item = String> {
    let name = |index: usize| nodes.get(index).map_or("?", String::as_str);
    let shown = &edges[..edges.len().min(MAX_EDGES)];
    let widest = |end: fn(&GraphEdge) -> usize| {
        let widths = shown.iter().map(|edge| name(end(edge)).chars().count());
        widths.max().unwrap_or(0)
    };
    let (from, to) = (widest(|edge| edge.from), widest(|edge| edge.to));
    let line = move |edge: &GraphEdge| {
        let (a, b) = (name(edge.from), name(edge.to));
        clean(&format!("  {a:<from$} ── {b:<to$}  {}", edge.label))
    };
    let left = edges.len() - shown.len();
    let more = (left > 0).then(|| format!("  … and {}", counted(left, "more connection")));
    shown.iter().map(line).chain(more)
}

/// Backgrounds on which black can be read: the colour's number among a terminal's 256, and the same for SVG.
const PALETTE: [(u8, &str); 12] = [
    (117, "#87d7ff"),
    (215, "#ffaf5f"),
    (120, "#87ff87"),
    (218, "#ffafd7"),
    (228, "#ffff87"),
    (183, "#d7afff"),
    (80, "#5fd7d7"),
    (209, "#ff875f"),
    (252, "#d0d0d0"),
    (149, "#afd75f"),
    (180, "#d7af87"),
    (111, "#87afff"),
];

fn ansi(group: usize) -> u8 {
    PALETTE[group % PALETTE.len()].0
}

/// The colour of a group in SVG. Twelve groups have colours of their own, then they come again.
pub(super) fn hex(group: usize) -> &'static str {
    PALETTE[group % PALETTE.len()].1
}
