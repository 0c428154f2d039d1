//! What the host keeps between calls, and the path of a command from the program into a queue.

use crate::buffer::{BufferRef, Dtype, Kind};
use crate::command::{Cost, Op};
use crate::error::RuntimeError;
use crate::exchange::Mark;
use crate::ledger::Ledger;
use crate::queue::Queue;
use crate::report::{Phase, Report};
use crate::sched::{AirTime, Entry, HostGoal, Scope, Worker, Workers, Writer};
use crate::span::Groups;
use crate::task::{Recorded, Task, Undefine};
use crate::trace::Capture;
use crate::traffic::{Pattern, TrafficBook};
use crate::transport::Link;
use crate::transport::history::What;
use crate::view::View;
use std::cell::OnceCell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono_mesh::Mesh;

/// The host's side of a runtime.
pub(crate) struct Host {
    pub(crate) ledger: Ledger,
    pub(crate) phase: Phase,
    pub(crate) report: Report,
    since: Instant,
    /// Busy time that earlier reports have shown.
    shown: [Duration; Phase::ALL.len()],
    shown_air: AirTime,
    pub(crate) hash: u64,
    /// Commands issued.
    commands: u64,
    /// How collectives lie in the processes.
    pub(crate) groups: Groups,
    /// Memory for sums under way between processes, by queue; no entry is being written that uses it.
    pub(crate) staging: [Option<BufferRef>; 2],
    pub(crate) record: Option<Vec<Recorded>>,
    cpu: Option<Cpu>,
    /// The first device of this process.
    first: usize,
    /// How they are reached.
    link: Option<Link>,
    /// Where this program and another process's part, once that has been asked.
    parted: OnceCell<Option<String>>,
    /// Entries put in each queue.
    pub(crate) issued: [u64; 2],
    /// What collectives have carried, and how devices are joined.
    pub(crate) traffic: TrafficBook,
    pub(crate) pattern: Pattern,
    /// What is being captured.
    pub(crate) capture: Option<Capture>,
    /// Traces begun so far.
    pub(crate) traces: u32,
    /// Why nothing can be asked of the devices any more.
    closed: Option<RuntimeError>,
}

/// The devices, where there are any.
struct Cpu {
    workers: Workers,
    writers: [Writer; 2],
    worker: Worker,
}

impl Host {
    /// A host with memory of `capacity` elements and at most `limit` bytes on each device, and the devices unless it
    /// only accounts.
    pub(crate) fn new(
        capacity: usize,
        limit: Option<u64>,
        first: usize,
        link: Option<Link>,
        cpu: Option<(Workers, [Writer; 2])>,
    ) -> Host {
        Host {
            ledger: Ledger::new(capacity, limit),
            phase: Phase::default(),
            report: Report::default(),
            since: Instant::now(),
            shown: Default::default(),
            shown_air: AirTime::default(),
            hash: 0,
            commands: 0,
            groups: Groups::new(),
            staging: [None; 2],
            record: None,
            cpu: cpu.map(|(workers, writers)| Cpu {
                worker: workers.host_worker(),
                workers,
                writers,
            }),
            first,
            link,
            parted: OnceCell::new(),
            issued: [0; 2],
            traffic: TrafficBook::default(),
            pattern: Pattern::default(),
            capture: None,
            traces: 0,
            closed: None,
        }
    }

    /// A block on every device of a view.
    pub(crate) fn alloc(
        &mut self,
        view: &Arc<View>,
        dtype: Dtype,
        len: usize,
        kind: Kind,
    ) -> Result<BufferRef, RuntimeError> {
        self.ready(view)?;
        if self.capture.is_some() && kind != Kind::Activation {
            return Err(RuntimeError::Trace(format!(
                "memory for {} was asked for inside a capture; make such tensors before begin_capture(). Only results of commands \
                 belong to a trace",
                kind.name()
            )));
        }
        let buffer = self.ledger.alloc(view, dtype, len, kind, self.phase)?;
        // Not part of the program, so neither booked nor recorded.
        if cfg!(debug_assertions) && self.cpu.is_some() && self.capture.is_none() {
            self.enqueue_here(view, Queue::Compute, Task::Undefine(Undefine { buffer }), Phase::Other);
        }
        Ok(buffer)
    }

    /// Gives a block back.
    pub(crate) fn free(&mut self, buffer: BufferRef) {
        self.ledger.free(buffer);
    }

    /// Books a task and puts it at the end of a queue.
    pub(crate) fn push(&mut self, view: &Arc<View>, queue: Queue, task: Task) -> Result<(), RuntimeError> {
        self.ready(view)?;
        self.ledger.check_places(view, task.op())?;
        if self.capture.is_some() {
            return self.capture_task(view, task);
        }
        let op = task.op();
        let phase = match op.group() {
            Some(_) => Phase::Communication,
            None => self.phase,
        };
        let cost = op.cost(view.mesh());
        self.report.phases[phase as usize].book(cost);
        if op.group().is_some() {
            self.traffic.book(view, op, self.pattern);
        }
        let mut hash = StreamHash(self.hash);
        hash.view(view);
        hash.command(op, queue, cost);
        self.hash = hash.0;
        self.issued_one(|phase| {
            What::Command(Recorded {
                queue,
                phase,
                task: task.without_values(),
            })
        });
        if let Some(record) = &mut self.record {
            record.push(Recorded {
                queue,
                phase: self.phase,
                task: task.clone(),
            });
        }
        if view.processes().size() > 1 && self.enqueue_spanning(view, queue, &task, phase)? {
            return Ok(());
        }
        self.enqueue_here(view, queue, task, phase);
        Ok(())
    }

    /// Counts a command; where several processes run, what it is is kept for a while.
    pub(crate) fn issued_one(&mut self, what: impl FnOnce(Phase) -> What) {
        self.commands += 1;
        if let Some(link) = &self.link {
            link.remember(self.hash, what(self.phase));
        }
    }

    /// The place that the program is at.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            commands: self.commands,
            hash: self.hash,
        }
    }

    /// Finds what the task must wait for and hands it to the devices of this process.
    pub(crate) fn enqueue_here(&mut self, view: &Arc<View>, queue: Queue, task: Task, phase: Phase) {
        let op = task.op();
        let tiles = op.tiles();
        if tiles == 0 {
            // Nothing for anyone to do, and so nothing for anyone to wait for.
            return;
        }
        let index = self.issued[queue as usize];
        let mut wait = 0;
        let ledger = &mut self.ledger;
        op.reads(&mut |buffer| wait = wait.max(ledger.read(buffer, queue as usize, index, op.name())));
        op.writes(&mut |buffer| wait = wait.max(ledger.write(buffer, queue as usize, index, op.name())));
        self.issued[queue as usize] += 1;
        let scope = match &task {
            Task::Download(download) => Scope::Only {
                lane: self.lane(view, download.device),
                place: download.device,
            },
            Task::Exchange(_) => Scope::Process,
            task => Scope::of(task.op().group(), view.mesh()),
        };
        self.write_entry(queue, task, view, scope, tiles, wait, phase);
    }

    /// The device that does what concerns one place: that very device, or the first of this process where another carries it.
    pub(crate) fn lane(&self, view: &View, place: usize) -> usize {
        let device = view.device(place);
        match view.processes().is_here(device) {
            true => device,
            false => self.first,
        }
    }

    /// Hands an entry to the devices, once there is room.
    #[allow(clippy::too_many_arguments, reason = "they are the fields of an entry")]
    pub(crate) fn write_entry(
        &mut self,
        queue: Queue,
        task: Task,
        view: &Arc<View>,
        scope: Scope,
        tiles: usize,
        wait: u64,
        phase: Phase,
    ) {
        let Some(cpu) = &mut self.cpu else {
            return;
        };
        if let Some(count) = cpu.writers[queue as usize].must_end() {
            let mut goal = HostGoal::default();
            goal.everywhere[queue as usize] = count;
            cpu.workers.wait(&mut cpu.worker, goal);
        }
        cpu.writers[queue as usize].push(Entry {
            task,
            view: Arc::clone(view),
            scope,
            tiles,
            wait,
            phase,
        });
    }

    /// The goal that all that has been issued has ended.
    pub(crate) fn everything(&self) -> HostGoal {
        HostGoal {
            everywhere: self.issued,
            on: None,
        }
    }

    /// The goal that the last entry of `queue` has ended on the device that does what concerns a place.
    pub(crate) fn last_on(&self, queue: Queue, view: &View, place: usize) -> HostGoal {
        HostGoal {
            everywhere: [0; 2],
            on: Some((self.lane(view, place), queue as usize, self.issued[queue as usize])),
        }
    }

    /// Waits, and works, until the goal is met.
    pub(crate) fn wait(&mut self, goal: HostGoal) -> Result<(), RuntimeError> {
        if let Some(cpu) = &mut self.cpu {
            cpu.workers.wait(&mut cpu.worker, goal);
            for writer in &mut cpu.writers {
                writer.clear();
            }
        }
        self.failure()
    }

    /// Whether the goal is met. Where the host is the only worker, nobody but this call can bring it about.
    pub(crate) fn is_met(&mut self, goal: HostGoal) -> bool {
        let Some(cpu) = &mut self.cpu else {
            return true;
        };
        if cpu.workers.is_alone() {
            cpu.workers.wait(&mut cpu.worker, goal);
        }
        cpu.workers.is_met(goal)
    }

    /// Whether the view takes commands.
    pub(crate) fn ready(&self, view: &View) -> Result<(), RuntimeError> {
        self.open(view)?;
        self.failure()
    }

    /// Whether neither the view nor the whole has been closed.
    pub(crate) fn open(&self, view: &View) -> Result<(), RuntimeError> {
        match &self.closed {
            Some(closed) => Err(closed.clone()),
            None if view.is_closed() => Err(RuntimeError::Closed(view.mesh().describe())),
            None => Ok(()),
        }
    }

    /// Ends the workers and gives the devices' memory back.
    pub(crate) fn close(&mut self, mesh: &Mesh) {
        self.capture = None;
        self.cpu = None;
        self.closed.get_or_insert(RuntimeError::Closed(mesh.describe()));
    }

    pub(crate) fn failure(&self) -> Result<(), RuntimeError> {
        if let Some(closed) = &self.closed {
            return Err(closed.clone());
        }
        let failure = self.cpu.as_ref().map_or(Ok(()), |cpu| cpu.workers.failure());
        match (failure, &self.link) {
            (Err(RuntimeError::Diverged { peer, .. }), Some(link)) if self.parting(peer, link).is_some() => {
                Err(RuntimeError::Parted(self.parting(peer, link).unwrap_or_default()))
            }
            (failure, _) => failure,
        }
    }

    /// Where this program parts from another process's; the two find out once.
    fn parting(&self, peer: usize, link: &Link) -> Option<String> {
        self.parted.get_or_init(|| link.parting_from(peer)).clone()
    }

    /// Sets the phase of what follows.
    pub(crate) fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
        self.ledger.enter(phase);
    }

    /// The phase as last set.
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// The figures so far.
    pub(crate) fn report(&self) -> Report {
        let mut report = Report {
            memory: self.ledger.memory(),
            wall: self.since.elapsed(),
            air: self.air_since_shown(),
            ..self.report.clone()
        };
        for (phase, busy) in self.busy().into_iter().enumerate() {
            report.phases[phase].busy = busy.saturating_sub(self.shown[phase]);
        }
        report
    }

    /// Begins the figures anew.
    pub(crate) fn reset_report(&mut self) {
        self.report = Report::default();
        self.traffic = TrafficBook::default();
        self.since = Instant::now();
        self.shown = self.busy();
        self.shown_air = self.air_time();
        self.ledger.reset_peaks(self.phase);
    }

    fn air_time(&self) -> AirTime {
        self.cpu
            .as_ref()
            .map_or_else(AirTime::default, |cpu| cpu.workers.air_time())
    }

    fn air_since_shown(&self) -> AirTime {
        let now = self.air_time();
        AirTime {
            total: now.total.saturating_sub(self.shown_air.total),
            exposed: now.exposed.saturating_sub(self.shown_air.exposed),
        }
    }

    fn busy(&self) -> [Duration; Phase::ALL.len()] {
        self.cpu
            .as_ref()
            .map_or_else(Default::default, |cpu| cpu.workers.busy())
    }

    /// Begins or ends recording.
    pub(crate) fn record(&mut self, on: bool) {
        self.record = on.then(Vec::new);
    }

    /// What was recorded.
    pub(crate) fn take_record(&mut self) -> Vec<Recorded> {
        self.record.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The hash of the stream.
    pub(crate) fn stream_hash(&self) -> u64 {
        self.hash
    }
}

impl Drop for Host {
    /// What this process has yet to send, others wait for.
    fn drop(&mut self) {
        if self.link.is_some() && self.cpu.is_some() && self.failure().is_ok() && !std::thread::panicking() {
            let everything = self.everything();
            // An error has nobody left to hear of it; the messages are given up then.
            let _ = self.wait(everything);
        }
    }
}

/// A quick running hash; it has to tell programs apart, not to withstand an attack.
#[derive(Default)]
pub(crate) struct StreamHash(pub(crate) u64);

impl StreamHash {
    /// Takes in a command.
    pub(crate) fn command(&mut self, op: &dyn Op, queue: Queue, cost: Cost) {
        self.bytes(op.name().as_bytes());
        for word in [queue as u64, op.tiles() as u64, cost.flops, cost.bytes, cost.link_bytes] {
            self.word(word);
        }
        op.reads(&mut |buffer| self.buffer(buffer));
        self.word(u64::MAX);
        op.writes(&mut |buffer| self.buffer(buffer));
    }

    /// Takes in which mesh a command is for. The whole mesh is the rule, and needs no word.
    pub(crate) fn view(&mut self, view: &View) {
        if view.id != 0 {
            self.word(u64::from(view.id));
        }
    }

    pub(crate) fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn buffer(&mut self, buffer: BufferRef) {
        self.word(buffer.id);
        self.word(buffer.offset as u64);
        self.word(buffer.len as u64);
        self.word(buffer.dtype as u64);
    }
}
