//! Which device is how near to which: the matrix of pairs, as `nvidia-smi topo -m` prints it.

mod links;

pub use links::of_descriptor;

use crate::draw::clean;

/// Things in rows and columns, and for each pair a short code of what joins them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Matrix {
    /// Names of the things, of rows and columns alike.
    pub names: Vec<String>,
    /// The code of each pair: `codes[row][column]`; of those that are never shown it may be missing.
    pub codes: Vec<Vec<String>>,
    /// Headings of what else is known of each row, such as `NUMA affinity`.
    pub headings: Vec<String>,
    /// What is known of each row: `affinity[row][heading]`.
    pub affinity: Vec<Vec<String>>,
    /// Codes and what they mean.
    pub legend: Vec<(String, String)>,
}

/// Things that are shown before some are left out.
pub(crate) const MAX_NAMES: usize = 64;
/// Blanks between columns.
const BETWEEN: usize = 2;

impl Matrix {
    /// Whether all things are shown, in one band, in `width` characters.
    pub fn fits(&self, width: usize) -> bool {
        let names = self.names.iter().map(|name| name.chars().count());
        let first = names.clone().max().unwrap_or(0);
        let codes = (0..self.names.len()).map(|column| {
            let codes = self.codes.iter().filter_map(|row| row.get(column));
            codes.map(|code| code.chars().count()).max().unwrap_or(0)
        });
        let columns: usize = names.zip(codes).map(|(name, code)| BETWEEN + name.max(code)).sum();
        let headings = self.headings.iter().enumerate().map(|(index, heading)| {
            let values = self.affinity.iter().filter_map(|row| row.get(index));
            let widest = values.map(|value| value.chars().count()).max().unwrap_or(0);
            BETWEEN + widest.max(heading.chars().count())
        });
        self.names.len() <= MAX_NAMES && first + columns + headings.sum::<usize>() <= width
    }

    /// The matrix as text, its legend below. Where the columns do not fit into `width` characters, they follow in bands; of more
    /// than 64 things the first are shown, and that is said. Lines end in `\n`.
    pub fn text(&self, width: usize) -> String {
        let shown = self.names.len().min(MAX_NAMES);
        let name = |row: usize| clean(&self.names[row]);
        let code = |row: usize, column: usize| {
            let codes = self.codes.get(row).and_then(|codes| codes.get(column));
            clean(codes.map_or("?", String::as_str))
        };
        let mut columns: Vec<Vec<String>> = Vec::new();
        for column in 0..shown {
            let codes = (0..shown).map(|row| code(row, column));
            columns.push(std::iter::once(name(column)).chain(codes).collect());
        }
        for (index, heading) in self.headings.iter().enumerate() {
            let value = |row: usize| self.affinity.get(row).and_then(|values| values.get(index));
            let values = (0..shown).map(|row| clean(value(row).map_or("", String::as_str)));
            columns.push(std::iter::once(clean(heading)).chain(values).collect());
        }
        let first: Vec<String> = std::iter::once(String::new()).chain((0..shown).map(name)).collect();
        let mut text = String::new();
        let mut start = 0;
        while start < columns.len() {
            let mut end = start + 1;
            let mut taken = wide(&first) + BETWEEN + wide(&columns[start]);
            while end < columns.len() && taken + BETWEEN + wide(&columns[end]) <= width {
                taken += BETWEEN + wide(&columns[end]);
                end += 1;
            }
            if start > 0 {
                text.push('\n');
            }
            for line in 0..=shown {
                let mut row = format!("{:<w$}", first[line], w = wide(&first));
                for column in &columns[start..end] {
                    row += &format!("{:BETWEEN$}{:<w$}", "", column[line], w = wide(column));
                }
                text += row.trim_end();
                text.push('\n');
            }
            start = end;
        }
        if self.names.len() > shown {
            text += &format!("… {shown} of {} are shown\n", self.names.len());
        }
        if !self.legend.is_empty() {
            text += "\nLegend:\n";
            let codes = self.legend.iter().map(|(code, _)| code.chars().count());
            let codes = codes.max().unwrap_or(0);
            for (code, meaning) in &self.legend {
                text += &clean(&format!("  {code:<codes$}  {meaning}"));
                text.push('\n');
            }
        }
        text
    }
}

fn wide(column: &[String]) -> usize {
    column.iter().map(|cell| cell.chars().count()).max().unwrap_or(0)
}
