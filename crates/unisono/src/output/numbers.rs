//! Numbers as people read them.

pub use unisono_train::dataset::grouped;

/// `1 device`, `2 devices`.
pub fn counted(n: usize, word: &str) -> String {
    format!("{} {word}{}", grouped(n as u64), if n == 1 { "" } else { "s" })
}

/// Bytes in the unit that fits.
pub fn bytes(n: u64) -> String {
    let n = n as f64;
    for (unit, size) in [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        let value = n / size as f64;
        if value >= 100.0 {
            return format!("{value:.0} {unit}");
        }
        if value >= 1.0 {
            return format!("{value:.1} {unit}");
        }
    }
    format!("{n} bytes")
}

/// Seconds as `0.3 s`, `12 s`, `1:05`, `2:03:04`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "?".into();
    }
    if seconds < 9.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{}:{:02}", whole / 60, whole % 60),
        _ => format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60),
    }
}

/// A rate with three significant digits, and groups above a thousand.
pub fn rate(x: f64) -> String {
    match x {
        x if !x.is_finite() => "?".into(),
        x if x >= 1000.0 => grouped(x.round() as u64),
        x if x >= 100.0 => format!("{x:.0}"),
        x if x >= 10.0 => format!("{x:.1}"),
        x => format!("{x:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [0, 999, 1000, 1234567].map(grouped),
            ["0", "999", "1,000", "1,234,567"].map(String::from)
        );
        assert_eq!(counted(1, "device"), "1 device");
        assert_eq!(counted(4096, "token"), "4,096 tokens");
        assert_eq!(
            [512, 2048, 3 << 20, 200 << 30].map(bytes),
            ["512 bytes", "2.0 KiB", "3.0 MiB", "200 GiB"].map(String::from)
        );
        assert_eq!(
            [0.25, 9.97, 65.0, 7384.0, f64::NAN].map(duration),
            ["0.2 s", "10 s", "1:05", "2:03:04", "?"].map(String::from)
        );
        assert_eq!(
            [0.5, 12.34, 123.4, 12345.6].map(rate),
            ["0.50", "12.3", "123", "12,346"].map(String::from)
        );
    }
}
