//! Devices that have had the same buffers so far, and the memory of each such class.
//!
//! A buffer lies at one offset on all devices of its view. While all views are the whole mesh there is one class, one pool and
//! one book. When a view that holds only some of a class's devices gets its first buffer, the class is split: both halves begin with
//! what the whole had. A buffer of a view then takes a block that is free in all classes that the view consists of. So submeshes
//! have the whole memory of their own devices, and submeshes that overlap share it.

use crate::buffer::Kind;
use crate::pool::{Block, Pool};
use crate::report::{MemoryReport, Phase};
use crate::view::View;

/// The classes, and of which of them each view consists.
pub(crate) struct Classes {
    classes: Vec<Class>,
    /// The class of each device; empty while there is only one.
    of_device: Vec<usize>,
    /// By the number of the view; nothing for one that has had no buffer yet.
    views: Vec<Vec<usize>>,
}

#[derive(Clone)]
struct Class {
    pool: Pool,
    memory: MemoryReport,
}

impl Classes {
    /// One class of all devices, with an arena of `capacity` elements.
    pub(crate) fn new(capacity: usize) -> Classes {
        Classes {
            classes: vec![Class {
                pool: Pool::new(capacity),
                memory: MemoryReport::default(),
            }],
            of_device: Vec::new(),
            views: Vec::new(),
        }
    }

    /// Makes sure that the view consists of whole classes.
    pub(crate) fn enter_view(&mut self, view: &View) {
        let id = view.id as usize;
        if self.views.len() <= id {
            self.views.resize(id + 1, Vec::new());
        }
        if !self.views[id].is_empty() {
            return;
        }
        let mesh_view = view.mesh_view();
        let devices = mesh_view.system_shape().num_devices();
        if self.classes.len() == 1 && mesh_view.num_devices() == devices {
            self.views[id] = vec![0];
            return;
        }
        if self.of_device.is_empty() {
            self.of_device = vec![0; devices];
        }
        let mut own = Vec::new();
        for class in 0..self.classes.len() {
            let members = |device: &usize| self.of_device[*device] == class;
            let (inside, outside): (Vec<usize>, Vec<usize>) = (0..devices)
                .filter(members)
                .partition(|device| view.place(*device).is_some());
            if inside.is_empty() {
                continue;
            }
            own.push(class);
            if outside.is_empty() {
                continue;
            }
            let split_off = self.classes.len();
            self.classes.push(self.classes[class].clone());
            for device in outside {
                self.of_device[device] = split_off;
            }
            for classes in self.views.iter_mut().filter(|classes| classes.contains(&class)) {
                classes.push(split_off);
            }
        }
        self.views[id] = own;
    }

    /// The most bytes in use on a device of the view.
    pub(crate) fn in_use(&self, view: u32) -> u64 {
        let classes = self.views[view as usize].iter();
        classes
            .map(|class| self.classes[*class].memory.current)
            .max()
            .unwrap_or(0)
    }

    /// A block that is free on all devices of the view.
    pub(crate) fn take(&mut self, view: u32, words: usize) -> Option<Block> {
        match self.views[view as usize].as_slice() {
            [class] => self.classes[*class].pool.take(words),
            several => {
                let mut pools: Vec<&mut Pool> = self
                    .classes
                    .iter_mut()
                    .enumerate()
                    .filter(|(class, _)| several.contains(class))
                    .map(|(_, class)| &mut class.pool)
                    .collect();
                Pool::take_in_all(&mut pools, words)
            }
        }
    }

    /// Takes a block of the view back.
    pub(crate) fn give(&mut self, view: u32, block: Block) {
        for class in &self.views[view as usize] {
            self.classes[*class].pool.give(block);
        }
    }

    /// Counts a block of `bytes` as in use.
    pub(crate) fn count(&mut self, view: u32, kind: Kind, bytes: u64, phase: Phase) {
        for class in &self.views[view as usize] {
            let memory = &mut self.classes[*class].memory;
            let kind = kind as usize;
            memory.current += bytes;
            memory.current_by_kind[kind] += bytes;
            memory.highest_by_kind[kind] = memory.highest_by_kind[kind].max(memory.current_by_kind[kind]);
            if memory.current > memory.peak {
                memory.peak = memory.current;
                memory.peak_by_kind = memory.current_by_kind;
            }
            enter(memory, phase);
        }
    }

    /// Counts a block as no longer in use.
    pub(crate) fn uncount(&mut self, view: u32, kind: Kind, bytes: u64) {
        for class in &self.views[view as usize] {
            let memory = &mut self.classes[*class].memory;
            memory.current -= bytes;
            memory.current_by_kind[kind as usize] -= bytes;
        }
    }

    /// The memory of the device that had the highest peak.
    pub(crate) fn memory(&self) -> MemoryReport {
        let fullest = self.classes.iter().max_by_key(|class| class.memory.peak);
        fullest.map_or_else(MemoryReport::default, |class| MemoryReport {
            extent: 4 * class.pool.extent() as u64,
            ..class.memory
        })
    }

    /// Starts the peaks anew from what is in use now.
    pub(crate) fn reset_peaks(&mut self, phase: Phase) {
        for class in &mut self.classes {
            let memory = &mut class.memory;
            memory.peak = memory.current;
            memory.peak_by_kind = memory.current_by_kind;
            memory.highest_by_kind = memory.current_by_kind;
            memory.peak_by_phase = Default::default();
            enter(memory, phase);
        }
    }

    /// A phase begins with what is in use now.
    pub(crate) fn enter_phase(&mut self, phase: Phase) {
        for class in &mut self.classes {
            enter(&mut class.memory, phase);
        }
    }
}

fn enter(memory: &mut MemoryReport, phase: Phase) {
    let peak = &mut memory.peak_by_phase[phase as usize];
    *peak = (*peak).max(memory.current);
}
