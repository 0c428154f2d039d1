//! Which block of the arena a buffer gets: decided on the host in program order, once for all devices.
//!
//! Free space is a set of *holes*. A buffer takes the hole that fits best, of equal ones the one freed last (its memory is
//! touched and perhaps still in a cache), and gives its block back when it is dropped; neighbouring holes grow together.
//! Small buffers live in segments of their own, so that they do not cut up the space that large ones come back to.
//!
//! Because blocks are given and taken in program order, a block may be handed out while earlier commands that use it are still
//! waiting in a queue. Within a queue order makes that right. Between the queues each hole remembers the [`Marks`] of its last
//! uses, and the next owner inherits them.

use std::collections::{BTreeMap, BTreeSet};

/// Elements in 64 bytes: the unit of small blocks.
const LINE: usize = 16;
/// Elements in 4 KiB: the unit of large blocks.
const PAGE: usize = 1024;
/// Blocks of at most this many elements (32 KiB) are small.
const SMALL: usize = 8 * 1024;
/// Elements of a segment of small blocks (1 MiB).
const SEGMENT: usize = 256 * 1024;

/// How far each queue must have come before a block may be used: numbers of ended entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(pub(crate) [u64; 2]);

impl Marks {
    /// The later of both, queue by queue.
    pub(crate) fn join(self, other: Marks) -> Marks {
        Marks([self.0[0].max(other.0[0]), self.0[1].max(other.0[1])])
    }
}

/// A block that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// First element.
    pub(crate) offset: usize,
    /// Elements that it takes.
    pub(crate) size: usize,
    /// What must have ended before it is used.
    pub(crate) marks: Marks,
}

/// The space of an arena, as holes and blocks.
#[derive(Clone)]
pub(crate) struct Pool {
    large: Holes,
    small: Holes,
    /// First element that was never handed out to either.
    top: usize,
    capacity: usize,
}

impl Pool {
    /// A pool over `capacity` elements.
    pub(crate) fn new(capacity: usize) -> Pool {
        Pool {
            large: Holes::default(),
            small: Holes::default(),
            top: 0,
            capacity,
        }
    }

    /// The elements that a buffer of `len` counts as: a multiple of 64 bytes, and at least that.
    pub(crate) fn counted(len: usize) -> usize {
        len.max(1).saturating_add(LINE - 1) / LINE * LINE
    }

    /// A block for `len` elements, or `None` if the arena has no room for it.
    pub(crate) fn take(&mut self, len: usize) -> Option<Block> {
        let size = Pool::counted(len);
        if size > SMALL {
            let size = size.checked_next_multiple_of(PAGE)?;
            return match self.large.take(size) {
                Some(block) => Some(block),
                None => self.grow(size),
            };
        }
        if let Some(block) = self.small.take(size) {
            return Some(block);
        }
        let segment = match self.large.take(SEGMENT) {
            Some(segment) => segment,
            None => self.grow(SEGMENT)?,
        };
        self.small.give(segment);
        self.small.take(size)
    }

    /// A block at the same offset in each of several pools, or `None` if one of them has no room for it.
    pub(crate) fn take_in_all(pools: &mut [&mut Pool], len: usize) -> Option<Block> {
        let size = Pool::counted(len);
        if size > SMALL {
            return take_large_in_all(pools, size.checked_next_multiple_of(PAGE)?);
        }
        if let Some(offset) = common(pools, size, |pool| &pool.small) {
            return Some(take_at(pools, offset, size, |pool| &mut pool.small));
        }
        let segment = take_large_in_all(pools, SEGMENT)?;
        for pool in pools.iter_mut() {
            pool.small.give(segment);
        }
        Some(take_at(pools, segment.offset, size, |pool| &mut pool.small))
    }

    /// Takes a block back; `marks` are the last uses of it.
    pub(crate) fn give(&mut self, block: Block) {
        let holes = if block.size > SMALL {
            &mut self.large
        } else {
            &mut self.small
        };
        holes.give(block);
    }

    /// The end of the highest block that was ever handed out, elements.
    pub(crate) fn extent(&self) -> usize {
        self.top
    }

    /// The lowest offset from `from` on at which `size` elements are free for a large block, what lies above the top included.
    fn free_from(&self, from: usize, size: usize) -> Option<usize> {
        let fits = |start: usize, end: usize| {
            let start = start.max(from);
            (start.checked_add(size)? <= end).then_some(start)
        };
        let before = self.large.by_offset.range(..=from).next_back();
        let after = self.large.by_offset.range(from.saturating_add(1)..);
        for (start, hole) in before.into_iter().chain(after) {
            let end = match start + hole.size {
                end if end == self.top => self.capacity,
                end => end,
            };
            if let Some(offset) = fits(*start, end) {
                return Some(offset);
            }
        }
        fits(self.top, self.capacity)
    }

    /// `size` elements at the top, together with a hole that ends there.
    fn grow(&mut self, size: usize) -> Option<Block> {
        let tail = self.large.take_ending_at(self.top);
        let start = tail.map_or(self.top, |hole| hole.offset);
        let Some(end) = start.checked_add(size).filter(|end| *end <= self.capacity) else {
            if let Some(hole) = tail {
                self.large.give(hole);
            }
            return None;
        };
        self.top = end;
        Some(Block {
            offset: start,
            size,
            marks: tail.map_or(Marks::default(), |hole| hole.marks),
        })
    }
}

fn take_large_in_all(pools: &mut [&mut Pool], size: usize) -> Option<Block> {
    let offset = match common(pools, size, |pool| &pool.large) {
        Some(offset) => offset,
        None => lowest_common(pools, size)?,
    };
    let end = offset + size;
    for pool in pools.iter_mut().filter(|pool| pool.top < end) {
        pool.large.give(Block {
            offset: pool.top,
            size: end - pool.top,
            marks: Marks::default(),
        });
        pool.top = end;
    }
    Some(take_at(pools, offset, size, |pool| &mut pool.large))
}

/// Holes of the first pool that are looked at in search of one whose start is free in all pools.
const CANDIDATES: usize = 64;

/// An offset at which a hole of the first pool begins and all pools have `size` free elements: the best fit, where that is quickly
/// found.
fn common(pools: &[&mut Pool], size: usize, holes: impl Fn(&Pool) -> &Holes) -> Option<usize> {
    let (first, others) = pools.split_first()?;
    let candidates = holes(first).by_size.range((size, 0, 0)..).take(CANDIDATES);
    candidates
        .map(|(_, _, offset)| *offset)
        .find(|offset| others.iter().all(|pool| holes(pool).covers(*offset, size)))
}

/// The lowest offset at which all pools have `size` free elements, what lies above their tops included.
fn lowest_common(pools: &[&mut Pool], size: usize) -> Option<usize> {
    let mut offset = 0;
    loop {
        let mut highest = offset;
        for pool in pools {
            highest = highest.max(pool.free_from(offset, size)?);
        }
        if highest == offset {
            return Some(offset);
        }
        offset = highest;
    }
}

/// Takes the hole that all pools are known to have.
fn take_at(pools: &mut [&mut Pool], offset: usize, size: usize, holes: impl Fn(&mut Pool) -> &mut Holes) -> Block {
    let marks = pools
        .iter_mut()
        .map(|pool| holes(pool).cut(offset, size))
        .fold(Marks::default(), Marks::join);
    Block { offset, size, marks }
}

/// Disjoint holes, no two of them touching.
#[derive(Clone, Default)]
struct Holes {
    by_offset: BTreeMap<usize, Hole>,
    /// (size, `u64::MAX` − time of freeing, offset): best fit first, and of equals the latest.
    by_size: BTreeSet<(usize, u64, usize)>,
    clock: u64,
}

#[derive(Clone, Copy)]
struct Hole {
    size: usize,
    age: u64,
    marks: Marks,
}

impl Holes {
    fn take(&mut self, size: usize) -> Option<Block> {
        let (_, _, offset) = *self.by_size.range((size, 0, 0)..).next()?;
        let hole = self.remove(offset)?;
        if hole.size > size {
            self.insert(offset + size, hole.size - size, hole.age, hole.marks);
        }
        Some(Block {
            offset,
            size,
            marks: hole.marks,
        })
    }

    /// The hole that `offset..offset + size` lies in.
    fn around(&self, offset: usize, size: usize) -> Option<(usize, Hole)> {
        let (at, hole) = self.by_offset.range(..=offset).next_back()?;
        (offset + size <= at + hole.size).then_some((*at, *hole))
    }

    fn covers(&self, offset: usize, size: usize) -> bool {
        self.around(offset, size).is_some()
    }

    /// Cuts a block out of the hole around it, which must be there. What is left of the hole stays. Returns its last uses.
    fn cut(&mut self, offset: usize, size: usize) -> Marks {
        let Some((at, hole)) = self.around(offset, size) else {
            panic!("bug in unisono: no hole for {size} elements at {offset}");
        };
        self.remove(at);
        if at < offset {
            self.insert(at, offset - at, hole.age, hole.marks);
        }
        let (end, hole_end) = (offset + size, at + hole.size);
        if end < hole_end {
            self.insert(end, hole_end - end, hole.age, hole.marks);
        }
        hole.marks
    }

    fn take_ending_at(&mut self, end: usize) -> Option<Block> {
        let (offset, hole) = self.by_offset.range(..end).next_back()?;
        let (offset, size) = (*offset, hole.size);
        if offset + size != end {
            return None;
        }
        let hole = self.remove(offset)?;
        Some(Block {
            offset,
            size,
            marks: hole.marks,
        })
    }

    fn give(&mut self, block: Block) {
        let Block {
            mut offset,
            mut size,
            mut marks,
        } = block;
        if let Some(before) = self.take_ending_at(offset) {
            offset = before.offset;
            size += before.size;
            marks = marks.join(before.marks);
        }
        if let Some(after) = self.remove(block.offset + block.size) {
            size += after.size;
            marks = marks.join(after.marks);
        }
        self.clock += 1;
        self.insert(offset, size, u64::MAX - self.clock, marks);
    }

    fn insert(&mut self, offset: usize, size: usize, age: u64, marks: Marks) {
        self.by_size.insert((size, age, offset));
        self.by_offset.insert(offset, Hole { size, age, marks });
    }

    fn remove(&mut self, offset: usize) -> Option<Hole> {
        let hole = self.by_offset.remove(&offset)?;
        self.by_size.remove(&(hole.size, hole.age, offset));
        Some(hole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_to_the_same_place_and_grow_together() {
        let mut pool = Pool::new(1 << 20);
        let a = pool.take(100_000).expect("room");
        let b = pool.take(100_000).expect("room");
        let c = pool.take(100_000).expect("room");
        assert_eq!(a.offset % PAGE, 0);
        pool.give(a);
        pool.give(b);
        let d = pool.take(200_000).expect("room");
        assert_eq!(d.offset, a.offset);
        pool.give(c);
        pool.give(d);
        let extent = pool.extent();
        let e = pool.take(300_000).expect("room");
        assert_eq!((e.offset, pool.extent()), (0, extent));
        assert!(pool.take(1 << 20).is_none());
        assert!(pool.take(usize::MAX).is_none());
    }

    #[test]
    fn of_equal_holes_the_latest_is_taken() {
        let mut pool = Pool::new(1 << 20);
        let blocks: Vec<Block> = (0..6).map(|_| pool.take(20_000).expect("room")).collect();
        pool.give(blocks[0]);
        pool.give(blocks[4]);
        pool.give(blocks[2]);
        assert_eq!(pool.take(20_000).expect("room").offset, blocks[2].offset);
        assert_eq!(pool.take(20_000).expect("room").offset, blocks[4].offset);
        assert_eq!(pool.take(20_000).expect("room").offset, blocks[0].offset);
    }

    #[test]
    fn small_blocks_do_not_cut_up_large_holes() {
        let mut pool = Pool::new(1 << 22);
        let large = pool.take(500_000).expect("room");
        let small = pool.take(1).expect("room");
        pool.give(large);
        let another = pool.take(7).expect("room");
        assert_eq!(another.offset, small.offset + LINE);
        assert_eq!(pool.take(500_000).expect("room").offset, large.offset);
    }

    #[test]
    fn a_block_for_several_pools_is_free_in_each_and_comes_back_to_each() {
        let mut one = Pool::new(1 << 22);
        let common = one.take(40_000).expect("room");
        let mut other = one.clone();
        let own = one.take(50_000).expect("room");
        let mut both = [&mut one, &mut other];
        let large = Pool::take_in_all(&mut both, 30_000).expect("room");
        let small = Pool::take_in_all(&mut both, 10).expect("room");
        assert!(large.offset >= own.offset + own.size && small.offset >= large.offset + large.size);
        // The gap that the second pool was left with is used by itself.
        assert_eq!(other.take(50_000).expect("room").offset, own.offset);
        one.give(common);
        other.give(common);
        let mut both = [&mut one, &mut other];
        assert_eq!(
            Pool::take_in_all(&mut both, 40_000).expect("room").offset,
            common.offset
        );
        one.give(small);
        other.give(small);
        let mut both = [&mut one, &mut other];
        assert_eq!(Pool::take_in_all(&mut both, 10).expect("room").offset, small.offset);
        assert!(Pool::take_in_all(&mut both, 1 << 22).is_none());
    }

    #[test]
    fn a_new_owner_inherits_the_last_uses() {
        let mut pool = Pool::new(1 << 20);
        let mut a = pool.take(10_000).expect("room");
        let mut b = pool.take(10_000).expect("room");
        assert_eq!(a.marks, Marks::default());
        a.marks = Marks([7, 0]);
        b.marks = Marks([3, 9]);
        pool.give(a);
        pool.give(b);
        assert_eq!(pool.take(15_000).expect("room").marks, Marks([7, 9]));
    }
}
