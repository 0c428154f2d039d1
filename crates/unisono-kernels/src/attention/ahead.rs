//! Asking for memory before it is needed.
//!
//! Rows of a head lie apart, often a page or more from token to token, which the CPU does not foresee; and products work in
//! the first two caches, while memory is idle. So what the next blocks will read, and what finished ones will write, is
//! noted here, and each register tile asks for a few rows of it on its way.

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// Notes that are kept; a further one displaces the oldest.
const NOTES: usize = 8;

/// Some rows of memory, of the same number of lines each.
#[derive(Clone, Copy)]
pub(super) struct Ask {
    /// Start of the first row; need not be valid.
    pub from: *const u8,
    /// Bytes from one row to the next.
    pub stride: usize,
    /// Rows that were not asked for yet.
    pub rows: usize,
    /// Cache lines of a row.
    pub lines: usize,
    /// Whether into the first level.
    pub first_level: bool,
}

/// What will be needed soon, latest note first.
pub(super) struct Ahead {
    notes: [Ask; NOTES],
    count: usize,
    lines: usize,
    first_level: bool,
    /// Rows that a register tile asks for.
    quota: usize,
}

impl Ahead {
    /// Nothing noted; rows will have `bytes` bytes, and each register tile asks for `quota` rows.
    ///
    /// They go into the first level where `many` tiles pass until they are needed: the second hides much less. Where a few
    /// tiles ask for all of the next block, as while decoding, they would displace this block there.
    pub fn new(bytes: usize, quota: usize, many: bool) -> Ahead {
        Ahead {
            notes: [Ahead::nothing(); NOTES],
            count: 0,
            lines: bytes.div_ceil(LINE),
            first_level: many,
            quota,
        }
    }

    fn nothing() -> Ask {
        Ask {
            from: std::ptr::null(),
            stride: 0,
            rows: 0,
            lines: 0,
            first_level: false,
        }
    }

    /// Notes the row that begins at element `at` of `array` and the `rows - 1` after it, `stride` elements apart; nobody reads memory here, so they need not be there.
    #[inline(always)]
    pub fn note<E>(&mut self, array: *const E, at: usize, stride: usize, rows: usize) {
        if self.count == NOTES {
            self.notes.copy_within(1.., 0);
            self.count -= 1;
        }
        self.notes[self.count] = Ask {
            from: array.wrapping_add(at).cast(),
            stride: stride * size_of::<E>(),
            rows,
            lines: self.lines,
            first_level: self.first_level,
        };
        self.count += 1;
    }

    /// The next few rows to ask for.
    #[inline(always)]
    pub fn next(&mut self) -> Ask {
        if self.count == 0 {
            return Ahead::nothing();
        }
        let note = &mut self.notes[self.count - 1];
        let rows = note.rows.min(self.quota);
        let ask = Ask { rows, ..*note };
        note.from = note.from.wrapping_add(rows * note.stride);
        note.rows -= rows;
        if note.rows == 0 {
            self.count -= 1;
        }
        ask
    }
}
