//! What a program has cost so far: commands, work and time by phase, memory by kind.

use crate::buffer::Kind;
use crate::command::Cost;
use crate::sched::AirTime;
use std::time::Duration;

/// The part of a training step that a command belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Creating parameters and state.
    Setup,
    /// Bringing batches to the devices.
    Data,
    /// Forward pass.
    Forward,
    /// Backward pass.
    Backward,
    /// Collectives and sends. Every collective is booked here, whatever the phase it was issued in.
    Communication,
    /// Clipping and parameter updates.
    Optimizer,
    /// Validation and generation.
    Evaluation,
    /// Reading values for checkpoints and writing them back.
    Checkpoint,
    /// Everything else.
    #[default]
    Other,
}

impl Phase {
    /// All phases, in the order in which reports list them.
    pub const ALL: [Phase; 9] = [
        Phase::Setup,
        Phase::Data,
        Phase::Forward,
        Phase::Backward,
        Phase::Communication,
        Phase::Optimizer,
        Phase::Evaluation,
        Phase::Checkpoint,
        Phase::Other,
    ];

    /// The word for reports.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Setup => "setup",
            Phase::Data => "data",
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Communication => "communication",
            Phase::Optimizer => "optimizer",
            Phase::Evaluation => "evaluation",
            Phase::Checkpoint => "checkpoint",
            Phase::Other => "other",
        }
    }
}

/// What was issued and done in one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseReport {
    /// Commands issued; one for the mesh counts once.
    pub commands: u64,
    /// Floating-point operations of one device, as issued.
    pub flops: u64,
    /// Bytes that one device reads and writes in its own memory, as issued.
    pub bytes: u64,
    /// Bytes that one device exchanges with peers, as issued.
    pub link_bytes: u64,
    /// Time that workers spent in these commands so far, summed over workers; zero on the null backend.
    pub busy: Duration,
}

impl PhaseReport {
    /// Books one command.
    pub(crate) fn book(&mut self, cost: Cost) {
        self.commands += 1;
        self.flops += cost.flops;
        self.bytes += cost.bytes;
        self.link_bytes += cost.link_bytes;
    }

    /// Adds another phase's figures.
    pub(crate) fn add(&mut self, other: &PhaseReport) {
        self.commands += other.commands;
        self.flops += other.flops;
        self.bytes += other.bytes;
        self.link_bytes += other.link_bytes;
        self.busy += other.busy;
    }
}

/// Memory of one device in bytes, in program order: the same on every backend, machine and number of workers.
///
/// A buffer counts as its length rounded up to 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryReport {
    /// Bytes in use now.
    pub current: u64,
    /// The most bytes that were in use at once.
    pub peak: u64,
    /// Bytes in use now, in the order of [`Kind::ALL`].
    pub current_by_kind: [u64; Kind::ALL.len()],
    /// What `peak` consisted of, in the order of [`Kind::ALL`].
    pub peak_by_kind: [u64; Kind::ALL.len()],
    /// Each kind's own highest value, in the order of [`Kind::ALL`]; these moments differ.
    pub highest_by_kind: [u64; Kind::ALL.len()],
    /// The most bytes that were in use at once during a phase, in the order of [`Phase::ALL`]; 0 for one that never came.
    pub peak_by_phase: [u64; Phase::ALL.len()],
    /// The end of the highest block that was ever handed out: what the process really touches, gaps included.
    pub extent: u64,
}

/// What has happened since the runtime was opened or the report last reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Messages between processes.
    pub air: AirTime,
    /// One entry a phase, in the order of [`Phase::ALL`].
    pub phases: [PhaseReport; Phase::ALL.len()],
    /// Memory of each device.
    pub memory: MemoryReport,
    /// Wall-clock time that the report covers.
    pub wall: Duration,
}

impl Report {
    /// The figures of one phase.
    pub fn phase(&self, phase: Phase) -> &PhaseReport {
        &self.phases[phase as usize]
    }

    /// The figures of all phases together.
    pub fn total(&self) -> PhaseReport {
        let mut total = PhaseReport::default();
        for phase in &self.phases {
            total.add(phase);
        }
        total
    }
}
