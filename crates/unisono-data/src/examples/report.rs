//! What was found in a file of examples.

use super::lines::Form;
use serde::Serialize;
use std::collections::BTreeMap;

/// A line that cannot be trained on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it, as a clause.
    pub problem: String,
}

/// An example that stands in the file twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Duplicate {
    /// Its line, from 1.
    pub line: usize,
    /// The line where it stands first.
    pub first: usize,
}

/// Lengths of examples in tokens, before any is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Lengths {
    /// The shortest.
    pub min: usize,
    /// The middle one (of an even number, the lower).
    pub median: usize,
    /// 95 of 100 are as long or shorter.
    pub p95: usize,
    /// The longest.
    pub max: usize,
}

impl Lengths {
    /// The lengths of some examples; none of none.
    pub(super) fn of(mut lengths: Vec<usize>) -> Option<Lengths> {
        lengths.sort_unstable();
        let place = |percent: usize| (lengths.len() * percent).div_ceil(100).max(1) - 1;
        Some(Lengths {
            min: *lengths.first()?,
            median: lengths[place(50)],
            p95: lengths[place(95)],
            max: *lengths.last()?,
        })
    }
}

/// What was found in a file of examples. Lines count from 1.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Lines that are not blank.
    pub lines: usize,
    /// Blank lines, which are passed over.
    pub blank: usize,
    /// Whether the file begins with a byte order mark, which is passed over.
    pub bom: bool,
    /// Lines that end in `\r\n`.
    pub crlf: usize,
    /// Examples that can be used.
    pub examples: usize,
    /// How many have which fields.
    pub forms: BTreeMap<Form, usize>,
    /// Tokens of all examples, after cutting.
    pub tokens: u64,
    /// Those of them that are targets.
    pub targets: u64,
    /// Lengths before cutting; none without examples. Without a tokenizer they count bytes.
    pub lengths: Option<Lengths>,
    /// Lines of examples that were cut to the longest length allowed.
    pub truncated: Vec<usize>,
    /// Lines of examples without a target: all of the answer was cut away.
    pub all_masked: Vec<usize>,
    /// Lines of examples with an empty answer: the model learns to say nothing.
    pub empty_answers: Vec<usize>,
    /// Examples that stand in the file before.
    pub duplicates: Vec<Duplicate>,
    /// Lines that cannot be used.
    pub problems: Vec<Problem>,
}

impl Report {
    /// Why the file cannot be trained on, as a clause with the first ten bad lines; none where it can.
    pub fn obstacle(&self) -> Option<String> {
        const SHOWN: usize = 10;
        if !self.problems.is_empty() {
            let shown: Vec<String> = self
                .problems
                .iter()
                .take(SHOWN)
                .map(|problem| format!("line {}: {}", problem.line, problem.problem))
                .collect();
            let more = match self.problems.len().saturating_sub(SHOWN) {
                0 => String::new(),
                more => format!("\nand {more} more (unisono data check lists all)"),
            };
            let what = match self.problems.len() {
                1 => "has a line that cannot be used".to_string(),
                many => format!("has {many} lines that cannot be used"),
            };
            return Some(format!("{what}:\n{}{more}", shown.join("\n")));
        }
        if self.examples == 0 {
            return Some("holds no examples".to_string());
        }
        if self.all_masked.len() == self.examples {
            return Some(self.nothing_to_learn());
        }
        None
    }

    /// Why none of the examples has a target, as a clause with what to do.
    fn nothing_to_learn(&self) -> String {
        let is_empty = |line: &&usize| self.empty_answers.contains(line);
        let is_late = |line: &&usize| !is_empty(line) && self.truncated.contains(line);
        let empty = self.all_masked.iter().filter(is_empty).count();
        let late = self.all_masked.iter().filter(is_late).count();
        let of = self.examples;
        let one_or = |n: usize, one: &'static str, many: &'static str| if n == 1 { one } else { many };
        let mut reasons = Vec::new();
        let mut remedies = Vec::new();
        if empty > 0 {
            reasons.push(format!("{empty} of {of} answers {} empty", one_or(empty, "is", "are")));
            remedies.push("give the examples answers");
        }
        if late > 0 {
            let shortest = match (late == self.examples, self.lengths) {
                (true, Some(lengths)) => format!(" (the shortest example has {} tokens)", lengths.min),
                _ => String::new(),
            };
            reasons.push(format!(
                "{late} of {of} answers {} beyond the longest length allowed{shortest}",
                one_or(late, "begins", "begin")
            ));
            remedies.push("allow longer sequences");
        }
        let rest = self.examples - empty - late;
        if rest > 0 {
            reasons.push(format!(
                "{rest} of {of} answers {} a single token with nothing before it to predict it from",
                one_or(rest, "is", "are")
            ));
            remedies.push("give the examples prompts");
        }
        format!(
            "has no answer to learn: {}; {}",
            reasons.join(", "),
            remedies.join(", ")
        )
    }
}
