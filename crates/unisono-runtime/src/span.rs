//! How a command that concerns several processes becomes commands of one process and messages.
//!
//! Every process issues the whole program. What its own devices do, it does; where a command needs what another process holds, an
//! [`Exchange`] brings it, to the place where the device of that process has it. A collective then reads its members' memory in place
//! as it does on one machine, with the same bits. Large sums go another way ([`Spanning`]): each process first adds what its
//! own devices hold, finishes its range of elements for all, and gives that to the others.

use crate::command::{Command, Op};
use crate::error::RuntimeError;
use crate::exchange::{Exchange, Message};
use crate::host::Host;
use crate::ops::all_reduce::{AllReduce, Reduction};
use crate::ops::span::{SpanStage, Spanning, Stage};
use crate::processes::Part;
use crate::queue::Queue;
use crate::report::Phase;
use crate::sched::Scope;
use crate::task::{Download, Task};
use crate::view::View;
use crate::{BufferRef, Dtype, Kind};
use std::collections::HashMap;
use std::sync::Arc;
use unisono_mesh::AxisHandle;

/// The groups of collectives, by view, stride and size: worked out once.
pub(crate) type Groups = HashMap<(u32, usize, usize), Arc<Grouped>>;

/// How the groups of a collective lie in the processes.
pub(crate) struct Grouped {
    axis: AxisHandle,
    /// First place and parts of each group.
    groups: Vec<(usize, Vec<Part>)>,
    /// Whether some group belongs to several processes.
    spans: bool,
    /// Whether no process has two stretches of a group.
    whole: bool,
}

/// Sums of fewer bytes are brought together whole, in one round of messages in place of two.
const ONE_ROUND: usize = 16 << 10;

impl Host {
    /// Issues a task where several processes run the program; `false` if it is nothing special.
    pub(crate) fn enqueue_spanning(
        &mut self,
        view: &Arc<View>,
        queue: Queue,
        task: &Task,
        phase: Phase,
    ) -> Result<bool, RuntimeError> {
        if let Task::Download(download) = task {
            self.share(view, queue, download, phase)?;
            return Ok(true);
        }
        let Scope::Groups { stride, size } = Scope::of(task.op().group(), view.mesh()) else {
            return Ok(false);
        };
        let grouped = self.grouped(view, stride, size);
        if !grouped.spans {
            return Ok(false);
        }
        let sums: &[AllReduce] = match task {
            Task::Command(Command::AllReduce(op)) => std::slice::from_ref(op),
            Task::Command(Command::Bucket(bucket)) => &bucket.parts,
            _ => &[],
        };
        let is_sum = |op: &AllReduce| matches!(op.reduction, Reduction::Sum { .. } | Reduction::Mean { .. });
        let bytes: usize = sums.iter().map(|op| 4 * op.from.len).sum();
        if bytes > ONE_ROUND && sums.iter().all(is_sum) && grouped.whole {
            self.all_reduce(view, queue, sums, &grouped, phase)?;
        } else {
            let messages = brought(view, task.op(), &grouped);
            self.exchange(view, queue, task.op().name(), messages, phase)?;
            self.enqueue_here(view, queue, task.clone(), phase);
        }
        Ok(true)
    }

    /// Whether a command's group belongs to several processes.
    pub(crate) fn spans(&mut self, view: &Arc<View>, op: &dyn Op) -> bool {
        match Scope::of(op.group(), view.mesh()) {
            Scope::Groups { stride, size } if view.processes().size() > 1 => self.grouped(view, stride, size).spans,
            _ => false,
        }
    }

    fn grouped(&mut self, view: &Arc<View>, stride: usize, size: usize) -> Arc<Grouped> {
        let grouped = self.groups.entry((view.id, stride, size)).or_insert_with(|| {
            let axis = AxisHandle { index: 0, size, stride };
            let firsts = (0..view.mesh().num_devices()).filter(|place| (place / stride).is_multiple_of(size));
            let groups: Vec<(usize, Vec<Part>)> = firsts.map(|first| (first, view.parts(axis, first))).collect();
            let once = |parts: &Vec<Part>| {
                let mut seen: Vec<usize> = parts.iter().map(|part| part.process).collect();
                seen.sort_unstable();
                seen.dedup();
                seen.len() == parts.len()
            };
            Arc::new(Grouped {
                axis,
                spans: groups.iter().any(|(_, parts)| parts.len() > 1),
                whole: groups.iter().all(|(_, parts)| once(parts)),
                groups,
            })
        });
        Arc::clone(grouped)
    }

    /// A value that the host asks for: every process whose program asks gets it from the one that has it.
    fn share(&mut self, view: &Arc<View>, queue: Queue, download: &Download, phase: Phase) -> Result<(), RuntimeError> {
        let processes = view.processes();
        let device = view.device(download.device);
        let (owner, rank) = (processes.of(device), processes.rank());
        let readers = (0..processes.size())
            .filter(|process| download.reader.is_none_or(|reader| reader == *process) && *process != owner);
        let buffer = download.from;
        let messages = readers
            .filter(|reader| owner == rank || *reader == rank)
            .map(|reader| Message {
                peer: if owner == rank { reader } else { owner },
                sends: owner == rank,
                device,
                buffer,
            })
            .collect();
        self.exchange(view, queue, "read", messages, phase)?;
        if download.reader.is_none_or(|reader| reader == rank) {
            self.enqueue_here(view, queue, Task::Download(download.clone()), phase);
        }
        Ok(())
    }

    /// Sums or means over several processes.
    fn all_reduce(
        &mut self,
        view: &Arc<View>,
        queue: Queue,
        ops: &[AllReduce],
        grouped: &Grouped,
        phase: Phase,
    ) -> Result<(), RuntimeError> {
        let mut is_inside = false;
        let mut sums = Vec::with_capacity(ops.len());
        let mut rooms = Vec::with_capacity(ops.len());
        for op in ops {
            let s = Spanning {
                axis: AxisHandle {
                    index: op.axis.index,
                    ..grouped.axis
                },
                reduction: op.reduction,
                from: op.from,
                slot: op.slot,
                len: op.len,
                to: op.to,
                inside: op.from,
                others: op.from,
            };
            let (inside, others) = room(&s, grouped);
            is_inside |= inside > 0;
            sums.push(s);
            rooms.push((inside, others));
        }
        let needed = rooms
            .iter()
            .map(|(inside, others)| aligned(*inside) + aligned(*others))
            .sum();
        let staging = self.take_staging(view, queue, needed)?;
        let mut at = 0;
        for (s, (inside, others)) in sums.iter_mut().zip(rooms) {
            for (len, place) in [(inside, &mut s.inside), (others, &mut s.others)] {
                if len > 0 {
                    *place = staging.part(at, len);
                    at += aligned(len);
                }
            }
        }
        let sums: Arc<[Spanning]> = sums.into();
        let stage = |stage: Stage| {
            let sums = Arc::clone(&sums);
            Task::Command(Command::Custom(Arc::new(SpanStage { sums, stage })))
        };
        if is_inside {
            self.enqueue_here(view, queue, stage(Stage::Inside), phase);
        }
        let messages = sums.iter().flat_map(|s| lists(view, s, grouped)).collect();
        self.exchange(view, queue, "all_reduce", messages, phase)?;
        self.enqueue_here(view, queue, stage(Stage::Finish), phase);
        let messages = sums.iter().flat_map(|s| results(view, s, grouped)).collect();
        self.exchange(view, queue, "all_reduce", messages, phase)?;
        if is_inside {
            self.enqueue_here(view, queue, stage(Stage::Spread), phase);
        }
        match view.id {
            0 => self.staging[queue as usize] = Some(staging),
            _ => self.ledger.free(staging),
        }
        Ok(())
    }

    /// Memory for `len` elements of sums under way. On the whole mesh it is kept for the next ones of the queue: memory of the pool was
    /// last used by what the program has issued before, the end of the backward pass for example, and would have to wait for that.
    fn take_staging(&mut self, view: &Arc<View>, queue: Queue, len: usize) -> Result<BufferRef, RuntimeError> {
        if view.id == 0
            && let Some(kept) = self.staging[queue as usize].take()
        {
            if kept.len >= len {
                return Ok(kept);
            }
            self.ledger.free(kept);
        }
        self.ledger.alloc(view, Dtype::F32, len, Kind::Gradient, self.phase)
    }

    /// Gives back the memory for sums under way.
    pub(crate) fn free_staging(&mut self) {
        for kept in self.staging.iter_mut().filter_map(Option::take) {
            self.ledger.free(kept);
        }
    }

    fn exchange(
        &mut self,
        view: &Arc<View>,
        queue: Queue,
        what: &'static str,
        messages: Vec<Message>,
        phase: Phase,
    ) -> Result<(), RuntimeError> {
        if !messages.is_empty() {
            let exchange = Exchange {
                what,
                messages: messages.into(),
                mark: self.mark(),
            };
            self.enqueue_here(view, queue, Task::Exchange(exchange), phase);
        }
        Ok(())
    }
}

/// The messages that bring to this process what its members of an operation's groups read, and take to others what theirs read.
fn brought(view: &View, op: &dyn Op, grouped: &Grouped) -> Vec<Message> {
    let rank = view.processes().rank();
    let mut buffers: Vec<BufferRef> = Vec::new();
    op.reads(&mut |buffer| {
        if buffer.len > 0 && !buffers.contains(&buffer) {
            buffers.push(buffer);
        }
    });
    if buffers.is_empty() {
        // Nothing is read; that all have come is what matters.
        buffers.push(BufferRef {
            id: 0,
            offset: 0,
            len: 0,
            dtype: Dtype::U8,
        });
    }
    let mut messages = Vec::new();
    for (first, parts) in grouped.groups.iter().filter(|(_, parts)| parts.len() > 1) {
        // A process with several stretches gets a value once.
        let mut targets: Vec<usize> = parts.iter().map(|part| part.process).collect();
        targets.sort_unstable();
        targets.dedup();
        for part in parts {
            for source in part.members.clone() {
                for target in targets.iter().copied().filter(|target| *target != part.process) {
                    let sends = part.process == rank;
                    if !sends && target != rank {
                        continue;
                    }
                    let mut readers = parts
                        .iter()
                        .filter(|part| part.process == target)
                        .flat_map(|part| part.members.clone());
                    if !readers.any(|reader| op.sends(source, reader)) {
                        continue;
                    }
                    messages.extend(buffers.iter().map(|buffer| Message {
                        peer: if sends { target } else { part.process },
                        sends,
                        device: view.device(first + source * grouped.axis.stride),
                        buffer: *buffer,
                    }));
                }
            }
        }
    }
    messages
}

/// The next multiple of a line of 64 bytes.
fn aligned(elements: usize) -> usize {
    elements.next_multiple_of(16)
}

/// Elements that a sum needs for what the devices of a process hold together, and for what other processes hold of the elements that
/// one finishes: as much on every process as the one needs that needs most, since memory must lie alike on all.
fn room(s: &Spanning, grouped: &Grouped) -> (usize, usize) {
    let tree = s.tree();
    let (mut inside, mut others) = (0, 0);
    for (_, parts) in &grouped.groups {
        let slots: Vec<usize> = parts.iter().map(|part| s.slots_of(part, &tree)).collect();
        let total: usize = slots.iter().sum();
        for (index, part) in parts.iter().enumerate() {
            if part.members.len() > 1 {
                inside = inside.max(slots[index] * s.len);
            }
            others = others.max((total - slots[index]) * s.finished_by(index, parts.len()).len());
        }
    }
    (inside, others)
}

/// Every part's list of subtrees goes, piece by piece, to those who finish the pieces.
fn lists(view: &View, s: &Spanning, grouped: &Grouped) -> Vec<Message> {
    let tree = s.tree();
    of_pairs(view, grouped, &|pair, messages| {
        let Pair {
            parts,
            own,
            other,
            device,
        } = pair;
        let (mine, theirs) = (&parts[own], &parts[other]);
        let (list, slot) = s.list_of(mine);
        let wanted = s.finished_by(other, parts.len());
        for index in 0..s.slots_of(mine, &tree) {
            messages.push(Message {
                peer: theirs.process,
                sends: true,
                device,
                buffer: list.part(index * slot + wanted.start, wanted.len()),
            });
        }
        let finished = s.finished_by(own, parts.len()).len();
        let before = (0..other).filter(|part| *part != own);
        let mut at: usize = before.map(|part| s.slots_of(&parts[part], &tree) * finished).sum();
        for _ in 0..s.slots_of(theirs, &tree) {
            messages.push(Message {
                peer: theirs.process,
                sends: false,
                device,
                buffer: s.others.part(at, finished),
            });
            at += finished;
        }
    })
}

/// Every part gives the elements that it has finished to the others.
fn results(view: &View, s: &Spanning, grouped: &Grouped) -> Vec<Message> {
    of_pairs(view, grouped, &|pair, messages| {
        let Pair {
            parts,
            own,
            other,
            device,
        } = pair;
        for (part, sends) in [(own, true), (other, false)] {
            let range = s.finished_by(part, parts.len());
            messages.push(Message {
                peer: parts[other].process,
                sends,
                device,
                buffer: s.to.part(range.start, range.len()),
            });
        }
    })
}

/// This process and another in a group.
struct Pair<'a> {
    parts: &'a [Part],
    /// This process's part.
    own: usize,
    /// The other's.
    other: usize,
    /// This process's first device in the group.
    device: usize,
}

/// The messages that `make` adds for each group of this process and each other process in it, but for empty ones.
fn of_pairs(view: &View, grouped: &Grouped, make: &dyn Fn(Pair<'_>, &mut Vec<Message>)) -> Vec<Message> {
    let rank = view.processes().rank();
    let mut messages = Vec::new();
    for (first, parts) in &grouped.groups {
        let Some(own) = parts.iter().position(|part| part.process == rank) else {
            continue;
        };
        let device = view.device(first + parts[own].members.start * grouped.axis.stride);
        for other in (0..parts.len()).filter(|other| *other != own) {
            let pair = Pair {
                parts,
                own,
                other,
                device,
            };
            make(pair, &mut messages);
        }
    }
    messages.retain(|message| message.buffer.len > 0);
    messages
}
