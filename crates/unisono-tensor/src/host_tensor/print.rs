//! Arrays in text, as NumPy and PyTorch print them.

use super::HostTensor;
use crate::Dtype;

/// Elements shown at either end of a dim that is too long.
const EDGE: usize = 3;

impl std::fmt::Display for HostTensor {
    /// The values, of long dims the first and last three; then shape and kind.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}\nshape {:?}, {}",
            array(self, 0),
            self.shape(),
            self.dtype().name()
        )
    }
}

/// The values in brackets, further lines indented by `indent` characters. The last line has no end.
pub(crate) fn array(t: &HostTensor, indent: usize) -> String {
    if t.is_empty() {
        return "[]".to_string();
    }
    // Only what is shown is looked at, whatever the size.
    let mut shown = Vec::new();
    see_shown(t.shape(), 0, &mut |at| shown.push(value_at(t, at)));
    let mut words = in_one_format(t.dtype(), &shown).into_iter();
    let width = words.clone().map(|word| word.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    write_dim(t.shape(), indent, &mut text, &mut || {
        format!("{:>width$}", words.next().unwrap_or_default())
    });
    text
}

/// Indices of a dim that are shown; `None` stands for what is left out.
fn indices(size: usize) -> Vec<Option<usize>> {
    if size <= 2 * EDGE {
        return (0..size).map(Some).collect();
    }
    let first = (0..EDGE).map(Some);
    first.chain([None]).chain((size - EDGE..size).map(Some)).collect()
}

/// Calls `see` with the place of every element that is shown, in order.
fn see_shown(shape: &[usize], at: usize, see: &mut dyn FnMut(usize)) {
    match shape {
        [] => see(at),
        [size, rest @ ..] => {
            for index in indices(*size).into_iter().flatten() {
                see_shown(rest, at * size + index, see);
            }
        }
    }
}

fn write_dim(shape: &[usize], indent: usize, text: &mut String, word: &mut dyn FnMut() -> String) {
    let [size, rest @ ..] = shape else {
        *text += &word();
        return;
    };
    let between = match rest.len() {
        0 => ", ".to_string(),
        // A blank line more for every further dim.
        deep => format!(",{}{}", "\n".repeat(deep), " ".repeat(indent + 1)),
    };
    text.push('[');
    for (i, index) in indices(*size).into_iter().enumerate() {
        if i > 0 {
            *text += &between;
        }
        match index {
            Some(_) => write_dim(rest, indent + 1, text, word),
            None => *text += "...",
        }
    }
    text.push(']');
}

fn value_at(t: &HostTensor, at: usize) -> f64 {
    let size = t.dtype().bytes();
    let bytes = t.bytes()[at * size..(at + 1) * size].to_vec();
    let one = HostTensor {
        dtype: t.dtype(),
        shape: Vec::new(),
        bytes: bytes.into(),
    };
    one.to_f64()[0]
}

/// Each value in words, all in one format: whole numbers with one decimal, others with four, and in scientific notation where
/// the values span too much for that.
fn in_one_format(dtype: Dtype, values: &[f64]) -> Vec<String> {
    if !dtype.is_float() {
        return values.iter().map(f64::to_string).collect();
    }
    let finite = || values.iter().filter(|x| x.is_finite()).map(|x| x.abs());
    let largest = finite().fold(0.0, f64::max);
    let smallest = finite().filter(|x| *x > 0.0).fold(f64::INFINITY, f64::min);
    let whole = finite().all(|x| x.fract() == 0.0);
    let scientific = largest >= 1e8 || (!whole && (smallest < 1e-4 || largest / smallest > 1e4));
    let word = |x: &f64| match (x.is_finite(), scientific, whole) {
        (false, ..) if x.is_nan() => "nan".to_string(),
        (false, ..) => if *x > 0.0 { "inf" } else { "-inf" }.to_string(),
        (_, true, _) => format!("{x:.4e}"),
        (_, _, true) => format!("{x:.1}"),
        _ => format!("{x:.4}"),
    };
    values.iter().map(word).collect()
}
