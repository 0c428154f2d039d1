//! What collectives carry over the links between devices, counted as they are issued.
//!
//! In one process peers read each other's memory and there are no links. What is counted is what the canonical schedule of
//! [`unisono_mesh::schedule`] would carry on the pattern that the program asked for; the values do not depend on it.

use crate::command::{Group, Op};
use crate::runtime::Runtime;
use crate::view::View;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use unisono_mesh::schedule::{self, Algorithm, Collective, Fabric, Link, Topology, Traffic};

/// How the devices that meet in a collective are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// Line or ring, along each axis.
    pub topology: Topology,
    /// Parallel links between neighbours that share what is carried, at least 1.
    pub num_links: usize,
}

impl Default for Pattern {
    fn default() -> Pattern {
        Pattern {
            topology: Topology::Linear,
            num_links: 1,
        }
    }
}

/// A kind of collective that was issued, how often, and what one group of devices carried each time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficReport {
    /// What was issued.
    pub collective: Collective,
    /// How the devices are joined.
    pub pattern: Pattern,
    /// Devices in a group.
    pub devices: usize,
    /// Groups that did the same at once.
    pub groups: usize,
    /// Bytes of the payload, as [`Collective`] defines it.
    pub payload: u64,
    /// How often.
    pub calls: u64,
    /// What one group carried in one call.
    pub traffic: Traffic,
}

impl Runtime {
    /// What collectives have carried since the runtime was opened or the report last reset.
    pub fn traffic(&self) -> Vec<TrafficReport> {
        self.host().traffic.report()
    }

    /// Bytes that they have carried over each link between devices of the system, in each direction.
    pub fn link_bytes(&self) -> BTreeMap<Link, u64> {
        self.host().traffic.links()
    }

    /// Says how the devices that meet in the collectives that follow are joined. Returns what held before. It is for the books
    /// only: values do not depend on it.
    pub fn set_pattern(&self, pattern: Pattern) -> Pattern {
        std::mem::replace(&mut self.host().pattern, pattern)
    }
}

/// The books.
#[derive(Clone, Default)]
pub(crate) struct TrafficBook {
    /// Calls of each kind on each view.
    calls: HashMap<Key, (Arc<View>, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    view: u32,
    collective: Collective,
    group: Group,
    payload: u64,
    pattern: Pattern,
}

impl TrafficBook {
    /// Counts a command, if it is a collective.
    pub(crate) fn book(&mut self, view: &Arc<View>, op: &dyn Op, pattern: Pattern) {
        let (Some((collective, payload)), Some(group)) = (op.collective(), op.group()) else {
            return;
        };
        let key = Key {
            view: view.id,
            collective,
            group,
            payload,
            pattern,
        };
        self.calls.entry(key).or_insert_with(|| (Arc::clone(view), 0)).1 += 1;
    }

    /// Adds what another book has counted.
    pub(crate) fn add(&mut self, other: &TrafficBook) {
        for (key, (view, calls)) in &other.calls {
            self.calls.entry(*key).or_insert_with(|| (Arc::clone(view), 0)).1 += calls;
        }
    }

    /// What was issued, in the order of names and sizes.
    pub(crate) fn report(&self) -> Vec<TrafficReport> {
        let mut lines: Vec<TrafficReport> = self
            .calls
            .iter()
            .map(|(key, (view, calls))| {
                let fabric = fabric(key, view);
                let traffic = schedule::traffic(
                    &key.collective,
                    &fabric,
                    Algorithm::Canonical,
                    key.payload,
                    key.pattern.num_links,
                );
                TrafficReport {
                    collective: key.collective,
                    pattern: key.pattern,
                    devices: fabric.num_devices(),
                    groups: view.mesh().num_devices() / fabric.num_devices(),
                    payload: key.payload,
                    calls: *calls,
                    traffic: traffic.unwrap_or_else(|error| panic!("bug in unisono: {error}")),
                }
            })
            .collect();
        lines.sort_by_key(|line| (line.collective.name(), line.payload, line.devices, line.calls));
        lines
    }

    /// Bytes over each link between devices of the system, in each direction, all calls together.
    pub(crate) fn links(&self) -> BTreeMap<Link, u64> {
        let mut sums = BTreeMap::new();
        for (key, (view, calls)) in &self.calls {
            let fabric = fabric(key, view);
            let carried = schedule::link_bytes(&key.collective, &fabric, Algorithm::Canonical, key.payload)
                .unwrap_or_else(|error| panic!("bug in unisono: {error}"));
            let stride = match key.group {
                Group::All => 1,
                Group::Along(axis) => axis.stride,
            };
            let size = fabric.num_devices();
            for first in (0..view.mesh().num_devices()).filter(|place| (place / stride).is_multiple_of(size)) {
                for (link, bytes) in &carried {
                    let device = |member: usize| view.device(first + member * stride);
                    let link = Link {
                        from: device(link.from),
                        to: device(link.to),
                    };
                    *sums.entry(link).or_insert(0) += bytes * calls;
                }
            }
        }
        sums
    }
}

/// The links between the devices of one group.
fn fabric(key: &Key, view: &View) -> Fabric {
    let mesh = view.mesh();
    let all = mesh.num_devices();
    let topology = key.pattern.topology;
    let fabric = match (key.group, mesh.shape().sizes()) {
        (Group::Along(axis), _) if axis.size < all || mesh.axes().iter().any(|one| one.size == all) => {
            Fabric::line(axis.size, topology)
        }
        (_, &[rows, cols]) => Fabric::grid([rows, cols], [topology; 2]),
        _ => Fabric::line(all, topology),
    };
    fabric.unwrap_or_else(|error| panic!("bug in unisono: {error}"))
}
