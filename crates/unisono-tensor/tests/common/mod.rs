//! Meshes, reproducible values and comparisons for the tests of tensors.

// Each test file uses the part that it needs.
#![allow(dead_code)]

pub mod host;
pub mod slopes;

use std::path::Path;
use unisono_kernels::order::{Units, dot};
use unisono_kernels::philox::Stream;
use unisono_tensor::{Mesh, MeshDevice, Options, Result};

/// The meshes that one test body runs on.
pub const MESHES: [&[(&str, usize)]; 5] = [
    &[("dp", 2)],
    &[("tp", 2)],
    &[("tp", 3)],
    &[("tp", 4)],
    &[("dp", 2), ("tp", 2)],
];

/// A mesh of these axes on one worker.
pub fn open(axes: &[(&str, usize)]) -> MeshDevice {
    let options = Options {
        workers: Some(1),
        memory_limit: Some(64 << 20),
        ..Options::default()
    };
    let mesh = Mesh::new(axes).expect("the axes are valid");
    MeshDevice::open(mesh, options).expect("64 MiB a device are there")
}

/// Draws for a test, one after the other.
pub struct Draw {
    stream: Stream,
    at: u64,
}

impl Draw {
    pub fn new(seed: u64) -> Draw {
        let stream = Stream {
            seed,
            site: 77,
            step: 0,
        };
        Draw { stream, at: 0 }
    }

    /// A whole number from `low` to `high`, both included.
    pub fn int(&mut self, low: usize, high: usize) -> usize {
        self.at += 1;
        low + self.stream.word(self.at) as usize % (high - low + 1)
    }

    /// One of `items`.
    pub fn one<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.int(0, items.len() - 1)].clone()
    }

    /// `n` numbers between −1 and 1, of very different sizes, so that another order of a sum shows in its bits.
    pub fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n)
            .map(|_| {
                self.at += 1;
                let x = 2.0 * self.stream.uniform(self.at) - 1.0;
                x * x * x
            })
            .collect()
    }

    /// `n` ids below `below`.
    pub fn ids(&mut self, n: usize, below: usize) -> Vec<u32> {
        (0..n).map(|_| self.int(0, below - 1) as u32).collect()
    }
}

/// `n` numbers between −1 and 1, always the same for one seed.
pub fn values(seed: u64, n: usize) -> Vec<f32> {
    Draw::new(seed).values(n)
}

/// The first difference in bits, in words.
pub fn difference(what: &str, found: &[f32], expected: &[f32]) -> Option<String> {
    if found.len() != expected.len() {
        return Some(format!("{what}: {} values, expected {}", found.len(), expected.len()));
    }
    let differs = |i: &usize| found[*i].to_bits() != expected[*i].to_bits();
    let at = (0..found.len()).find(differs)?;
    let (x, y) = (found[at], expected[at]);
    Some(format!(
        "{what}[{at}]: {x:e} ({:08x}), expected {y:e} ({:08x}); {} of {} differ",
        x.to_bits(),
        y.to_bits(),
        (0..found.len()).filter(differs).count(),
        found.len()
    ))
}

/// Fails where two lists differ in one bit.
pub fn same_bits(what: &str, found: &[f32], expected: &[f32]) {
    if let Some(difference) = difference(what, found, expected) {
        panic!("{difference}");
    }
}

/// The text of the error that must have come.
pub fn text<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => "NO ERROR".into(),
        Err(error) => error.to_string(),
    }
}

/// `a` [m, k] times `b` [k, n] on the host, the sums in canonical order over `units` units.
pub fn host_matmul(a: &[f32], b: &[f32], [m, k, n]: [usize; 3], units: usize) -> Vec<f32> {
    let mut y = Vec::with_capacity(m * n);
    for row in 0..m {
        for col in 0..n {
            let column: Vec<f32> = (0..k).map(|i| b[i * n + col]).collect();
            y.push(dot(&a[row * k..(row + 1) * k], &column, Units::of(k, units)));
        }
    }
    y
}

/// The transpose of a [rows, cols].
pub fn transposed(a: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    assert_eq!(a.len(), rows * cols);
    (0..rows * cols).map(|i| a[i % rows * cols + i / rows]).collect()
}

/// Compares a text with a golden file in `tests/data`; `UNISONO_BLESS=1` rewrites the file instead.
pub fn golden(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    if std::env::var_os("UNISONO_BLESS").is_some() {
        std::fs::write(&path, found).expect("the golden file can be written");
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    if let Some((a, b)) = found.lines().zip(expected.lines()).find(|(a, b)| a != b) {
        panic!("{name} differs; UNISONO_BLESS=1 rewrites it\n   found: {a}\nexpected: {b}");
    }
    assert_eq!(found, expected, "{name} differs in length; UNISONO_BLESS=1 rewrites it");
}
