//! `pinnings`: which logical devices may take which physical positions, as numbers, ranges or regular expressions.

use super::regex::Regex;
use super::report::{At, Position, Problems};
use super::schema::{PinField, PinPair, Pinning};

/// What a number or a pattern allows.
#[derive(Debug, Clone)]
pub(crate) enum Matcher {
    /// One number.
    Number(u32),
    /// Ranges, both ends inclusive.
    Ranges(Vec<(u32, u32)>),
    /// A regular expression over the whole decimal number.
    Pattern(Regex),
}

impl Matcher {
    /// What a field allows. A field that is not written is 0, as everywhere in the format.
    pub(crate) fn new(field: &PinField) -> Result<Self, String> {
        match (&field.number, &field.pattern) {
            (_, Some(pattern)) => Self::pattern(&pattern.value),
            (Some(number), None) => Ok(Matcher::Number(number.value)),
            (None, None) => Ok(Matcher::Number(0)),
        }
    }

    fn pattern(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err(
                "the pattern is empty; write for example \"0-31\", \"0,2,4-6\" or a regular expression".to_owned(),
            );
        }
        // Only digits, commas, dashes and blanks: ranges. All else is a regular expression.
        if !text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b',' | b'-' | b' '))
        {
            return Regex::new(text)
                .map(Matcher::Pattern)
                .map_err(|fault| format!("{text:?} is no regular expression: {fault}"));
        }
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>()) else {
                return Err(format!(
                    "{part:?} in {text:?} is no range; write for example \"0-31\" or \"0,2,4-6\""
                ));
            };
            if last < first {
                return Err(format!(
                    "the range {part:?} in {text:?} is inverted; write {last}-{first}"
                ));
            }
            ranges.push((first, last));
        }
        Ok(Matcher::Ranges(ranges))
    }

    /// True when `number` is allowed.
    pub(crate) fn allows(&self, number: u32) -> bool {
        match self {
            Matcher::Number(only) => *only == number,
            Matcher::Ranges(ranges) => ranges.iter().any(|(first, last)| (*first..=*last).contains(&number)),
            Matcher::Pattern(regex) => regex.matches(&number.to_string()),
        }
    }
}

/// The rules of stage C for one entry.
pub(crate) fn check(problems: &mut Problems, index: usize, pin: &Pinning) {
    let path = format!("pinnings[{index}]");
    let sides = [
        ("logical_fabric_node_id", &pin.nodes, ["mesh_id", "chip_id"]),
        ("physical_asic_position", &pin.positions, ["tray_id", "asic_location"]),
    ];
    for (side, pairs, names) in sides {
        if pairs.is_empty() {
            problems.add(pin.at, format!("{path}.{side}"), || {
                format!("the entry has no {side}; a pinning joins at least one device with at least one position")
            });
        }
        let patterned = |pair: &&PinPair| pair.first.pattern.is_some() || pair.second.pattern.is_some();
        if let (Some(with), Some(without)) = (pairs.iter().find(patterned), pairs.iter().find(|pair| !patterned(pair)))
        {
            problems.add(with.at.max(without.at), format!("{path}.{side}"), || {
                format!("an entry with patterns ({}) and one with plain numbers ({}) stand side by side; use one form in a pinning", with.at, without.at)
            });
        }
        for (i, pair) in pairs.iter().enumerate() {
            for (field, name) in [&pair.first, &pair.second].into_iter().zip(names) {
                check_field(problems, &format!("{path}.{side}[{i}].{name}"), field);
            }
        }
    }
}

fn check_field(problems: &mut Problems, path: &str, field: &PinField) {
    if let (Some(number), Some(pattern)) = (&field.number, &field.pattern) {
        let at: Position = number.at.max(pattern.at);
        problems.add(at, path, || {
            format!(
                "both the number {} and the pattern {:?} are given; give one of them",
                number.value, pattern.value
            )
        });
    }
    if let Some(At { at, .. }) = field.pattern
        && let Err(fault) = Matcher::new(field)
    {
        problems.add(at, format!("{path}_regex"), || fault);
    }
}
