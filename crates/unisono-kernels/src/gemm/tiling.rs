//! How C is cut into the tiles that workers take.

use crate::simd::LANES;

/// Rows of a tile are a multiple of this, as it is one of every register tile's rows.
const ROWS: usize = 12;
/// Columns of a tile are a multiple of this.
const COLS: usize = 32;
/// Largest tile: its rows of A are packed and stay in the second-level cache, its columns of B pass through the first.
const MAX_ROWS: usize = 192;
const MAX_COLS: usize = 512;
/// As many tiles are wanted, so that workers end at about the same time (twice as many cost 2–4 % of the peak)…
const WANTED: usize = 8;
/// …unless they become smaller than this, where packing would cost too much.
const MIN_ROWS: usize = 192;
const MIN_COLS: usize = 192;

/// Most rows of a product that [`super::skinny`] may compute.
pub(super) const SKINNY_ROWS: usize = 8;
/// Columns of a tile of few rows, in vectors: at least three, so that reading gets up to speed, and not more than go on the
/// stack of sums.
const SKINNY_VECTORS: std::ops::RangeInclusive<usize> = 3..=32;

/// Tiles of `rows × cols` over an `m × n` matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiling {
    m: usize,
    n: usize,
    rows: usize,
    cols: usize,
}

impl Tiling {
    /// The tiles of one of `batch` products.
    pub fn of(batch: usize, m: usize, n: usize) -> Tiling {
        if m <= SKINNY_ROWS {
            let vectors = n.div_ceil(LANES);
            let least = vectors
                .div_ceil(WANTED)
                .clamp(*SKINNY_VECTORS.start(), *SKINNY_VECTORS.end());
            // Up to twice as much, if the tiles are then equal.
            let equal = (least..=2 * least).find(|v| vectors.is_multiple_of(*v) && SKINNY_VECTORS.contains(v));
            let cols = equal.unwrap_or(least) * LANES;
            return Tiling { m, n, rows: m, cols };
        }
        let mut down = m.div_ceil(MAX_ROWS);
        let mut across = n.div_ceil(MAX_COLS);
        let size = |len: usize, parts: usize, step: usize| len.div_ceil(parts.max(1)).next_multiple_of(step);
        while batch * down * across < WANTED {
            let (rows, cols) = (size(m, down, ROWS), size(n, across, COLS));
            if rows >= cols && rows >= 2 * MIN_ROWS {
                down += 1;
            } else if cols >= 2 * MIN_COLS {
                across += 1;
            } else if rows >= 2 * MIN_ROWS {
                down += 1;
            } else {
                break;
            }
        }
        Tiling {
            m,
            n,
            rows: size(m, down, ROWS),
            cols: size(n, across, COLS),
        }
    }

    fn down(&self) -> usize {
        self.m.div_ceil(self.rows.max(1))
    }

    /// Number of tiles.
    pub fn tiles(&self) -> usize {
        self.down() * self.n.div_ceil(self.cols.max(1))
    }

    /// The first row and column of a tile and how many it has. Tiles that share columns follow each other, so that
    /// those columns of B are fetched from memory once.
    pub fn tile(&self, index: usize) -> Tile {
        let (i, j) = (index % self.down() * self.rows, index / self.down() * self.cols);
        Tile {
            row: i,
            col: j,
            rows: self.rows.min(self.m - i),
            cols: self.cols.min(self.n - j),
        }
    }
}

/// The part of C that one tile computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    pub row: usize,
    pub col: usize,
    pub rows: usize,
    pub cols: usize,
}
