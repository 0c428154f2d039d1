//! Sizes, times and runs of numbers as `explain` writes them.

use std::ops::Range;

/// Numbers in ascending order, runs as ranges: `0–3,5`.
pub(super) fn numbers(mut numbers: Vec<usize>) -> String {
    numbers.sort_unstable();
    let mut runs: Vec<Range<usize>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == number => run.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    ranges(&runs)
}

/// Ranges by their first and last number: `0–3,5`.
pub(super) fn ranges(runs: &[Range<usize>]) -> String {
    let texts: Vec<String> = runs
        .iter()
        .map(|run| match run.len() {
            1 => run.start.to_string(),
            _ => format!("{}–{}", run.start, run.end - 1),
        })
        .collect();
    texts.join(",")
}

/// Bytes in the largest binary unit that leaves at most two decimals, or in bytes.
pub(super) fn size(bytes: u64) -> String {
    for (unit, name) in [
        (1u64 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ] {
        if bytes >= unit {
            let hundredths = (u128::from(bytes) * 100 + u128::from(unit) / 2) / u128::from(unit);
            let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
            let text = text.trim_end_matches('0').trim_end_matches('.');
            return format!("{text} {name}");
        }
    }
    format!("{bytes} B")
}

/// A time with three digits.
pub(super) fn seconds(time: f64) -> String {
    let (value, unit) = match time {
        t if t < 1e-6 => (t * 1e9, "ns"),
        t if t < 1e-3 => (t * 1e6, "µs"),
        t if t < 1.0 => (t * 1e3, "ms"),
        t => (t, "s"),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::{numbers, seconds, size};

    #[test]
    fn sizes_times_and_runs() {
        let sizes = [0, 1023, 1024, 1536, 4 << 20, 1 << 40, 1_048_575].map(size);
        assert_eq!(
            sizes,
            ["0 B", "1023 B", "1 KiB", "1.5 KiB", "4 MiB", "1 TiB", "1024 KiB"]
        );
        assert_eq!(
            [2.5e-9, 1.25e-5, 0.123_4, 12.0].map(seconds),
            ["2.50 ns", "12.5 µs", "123 ms", "12.0 s"]
        );
        assert_eq!(numbers(vec![5, 1, 0, 2, 9, 8]), "0–2,5,8–9");
    }
}
