//! The links that join the devices of a group, and the way that a message takes over them.

use crate::MeshError;
use crate::shape::checked_volume;
use std::fmt;

/// How the devices of a line are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topology {
    /// Each device is joined with the next, and the last with the first. Fewer than three devices are a line.
    Ring,
    /// Each device is joined with the next.
    Linear,
}

impl Topology {
    /// `ring` or `linear`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Linear => "linear",
        }
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A connection in one of its two directions. Links are full duplex, so the directions are counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// The device that sends.
    pub from: usize,
    /// The neighbour that receives.
    pub to: usize,
}

/// The devices of a group and the links between neighbours: a line, a ring, or a grid of them.
///
/// Devices are numbered from 0 within the group, row-major in a grid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fabric {
    rows: usize,
    cols: usize,
    /// Along a column, between rows.
    down: Topology,
    /// Along a row, between columns.
    across: Topology,
}

/// One of the two axes of a [`Fabric`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Along {
    /// Along each row.
    Rows,
    /// Along each column.
    Columns,
}

/// The way between two places of a line: how many links, and whether towards higher places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) links: usize,
    pub(super) forward: bool,
}

impl Fabric {
    /// `devices` in a line or a ring.
    ///
    /// # Errors
    /// [`MeshError::ZeroAxis`] or [`MeshError::TooManyDevices`].
    pub fn line(devices: usize, topology: Topology) -> Result<Self, MeshError> {
        Self::grid([1, devices], [Topology::Linear, topology])
    }

    /// All devices of a mesh of `[rows, columns]`; `topology` says how a column (first) and how a row (second) is joined.
    ///
    /// # Errors
    /// [`MeshError::ZeroAxis`] or [`MeshError::TooManyDevices`].
    pub fn grid(sizes: [usize; 2], topology: [Topology; 2]) -> Result<Self, MeshError> {
        let mesh = || format!("[{}, {}]", sizes[0], sizes[1]);
        if let Some(axis) = sizes.iter().position(|size| *size == 0) {
            return Err(MeshError::ZeroAxis {
                axis: axis.to_string(),
                mesh: mesh(),
            });
        }
        checked_volume(&sizes, mesh)?;
        // A column is a line of the same kind as a row: one shape for each group.
        let [rows, cols] = sizes;
        let [down, across] = topology;
        Ok(if cols == 1 {
            Self {
                rows: 1,
                cols: rows,
                down: Topology::Linear,
                across: down,
            }
        } else {
            Self {
                rows,
                cols,
                down,
                across,
            }
        })
    }

    /// Number of devices in the group.
    pub fn num_devices(&self) -> usize {
        self.rows * self.cols
    }

    /// True when there is but one row.
    pub fn is_line(&self) -> bool {
        self.rows == 1
    }

    /// `[rows, columns]`; a line is one row.
    pub fn sizes(&self) -> [usize; 2] {
        [self.rows, self.cols]
    }

    /// How a column and how a row is joined.
    pub fn topology(&self) -> [Topology; 2] {
        [self.down, self.across]
    }

    /// `a ring of 4 devices`, `a line of 1 device`, `a 2×4 grid of 8 devices (columns linear, rows ring)`.
    pub fn describe(&self) -> String {
        let n = self.num_devices();
        let devices = if n == 1 { "device" } else { "devices" };
        if self.is_line() {
            let kind = if self.wraps(Along::Rows) { "ring" } else { "line" };
            return format!("a {kind} of {n} {devices}");
        }
        let kind = |along| if self.wraps(along) { "ring" } else { "linear" };
        format!(
            "a {}×{} grid of {n} {devices} (columns {}, rows {})",
            self.rows,
            self.cols,
            kind(Along::Columns),
            kind(Along::Rows)
        )
    }

    /// True when the two are joined by a link.
    pub fn joined(&self, link: Link) -> bool {
        link.from < self.num_devices() && link.to < self.num_devices() && self.distance(link.from, link.to) == 1
    }

    /// All links, in order of their sender and then receiver.
    pub fn links(&self) -> Vec<Link> {
        let mut links = Vec::new();
        for from in 0..self.num_devices() {
            let mut to = Vec::with_capacity(4);
            for along in [Along::Rows, Along::Columns] {
                let (line, place) = self.place(along, from);
                let size = self.size(along);
                for forward in [true, false] {
                    if let Some(next) = self.neighbour(along, place, forward).filter(|_| size > 1) {
                        to.push(self.device(along, line, next));
                    }
                }
            }
            to.sort_unstable();
            to.dedup();
            links.extend(to.into_iter().map(|to| Link { from, to }));
        }
        links
    }

    /// The devices that a message passes from `from` to `to`, both included: along the row first, then along the column,
    /// on a ring the shorter way round. Where both ways are equally long, devices at even places go forward and those at odd
    /// places backward, which shares the links evenly.
    pub fn route(&self, from: usize, to: usize) -> Vec<usize> {
        let mut route = vec![from];
        for along in [Along::Rows, Along::Columns] {
            let (line, mut place) = self.place(along, *route.last().expect("it begins with `from`"));
            let way = self.way(along, place, self.place(along, to).1);
            for _ in 0..way.links {
                place = self.step(along, place, way.forward);
                route.push(self.device(along, line, place));
            }
        }
        route
    }

    /// Number of links on the [`route`](Self::route).
    pub fn distance(&self, from: usize, to: usize) -> usize {
        [Along::Rows, Along::Columns]
            .into_iter()
            .map(|along| {
                self.way(along, self.place(along, from).1, self.place(along, to).1)
                    .links
            })
            .sum()
    }

    /// The largest distance from a device.
    pub(super) fn reach(&self, from: usize) -> usize {
        [Along::Rows, Along::Columns]
            .into_iter()
            .map(|along| {
                let (place, size) = (self.place(along, from).1, self.size(along));
                if self.wraps(along) {
                    size / 2
                } else {
                    place.max((size - 1).abs_diff(place))
                }
            })
            .sum()
    }

    /// Devices of each line along an axis.
    pub(super) fn size(&self, along: Along) -> usize {
        match along {
            Along::Rows => self.cols,
            Along::Columns => self.rows,
        }
    }

    /// Number of lines along an axis.
    pub(super) fn num_lines(&self, along: Along) -> usize {
        match along {
            Along::Rows => self.rows,
            Along::Columns => self.cols,
        }
    }

    /// True when the ends of the lines are joined by a link of their own.
    pub(super) fn wraps(&self, along: Along) -> bool {
        let topology = match along {
            Along::Rows => self.across,
            Along::Columns => self.down,
        };
        topology == Topology::Ring && self.size(along) > 2
    }

    /// The device at a place of a line.
    pub(super) fn device(&self, along: Along, line: usize, place: usize) -> usize {
        match along {
            Along::Rows => line * self.cols + place,
            Along::Columns => place * self.cols + line,
        }
    }

    /// The line and the place in it of a device.
    pub(super) fn place(&self, along: Along, device: usize) -> (usize, usize) {
        match along {
            Along::Rows => (device / self.cols, device % self.cols),
            Along::Columns => (device % self.cols, device / self.cols),
        }
    }

    /// The place after `place`, round the end.
    pub(super) fn step(&self, along: Along, place: usize, forward: bool) -> usize {
        let size = self.size(along);
        (place + if forward { 1 } else { size - 1 }) % size
    }

    fn neighbour(&self, along: Along, place: usize, forward: bool) -> Option<usize> {
        let next = self.step(along, place, forward);
        (self.wraps(along) || (next > place) == forward).then_some(next)
    }

    /// The way from one place of a line to another.
    pub(super) fn way(&self, along: Along, from: usize, to: usize) -> Way {
        let size = self.size(along);
        if !self.wraps(along) {
            return Way {
                links: from.abs_diff(to),
                forward: to >= from,
            };
        }
        let ahead = (to + size - from) % size;
        let behind = size - ahead;
        if ahead < behind || (ahead == behind && from.is_multiple_of(2)) {
            Way {
                links: ahead,
                forward: true,
            }
        } else {
            Way {
                links: behind,
                forward: false,
            }
        }
    }

    /// The devices in the order of a ring through all of them: along the rows, there and back.
    pub(super) fn ring_order(&self) -> Vec<usize> {
        (0..self.num_devices())
            .map(|i| {
                let (row, col) = (i / self.cols, i % self.cols);
                row * self.cols
                    + if row.is_multiple_of(2) {
                        col
                    } else {
                        self.cols - 1 - col
                    }
            })
            .collect()
    }
}
