//! Traces: a part of a program, captured as it is issued and replayed without issuing it again.
//!
//! While a trace is captured, commands are kept instead of being run. They may be for any views of the runtime. Results of captured
//! commands lie in memory that belongs to the trace, so a replay finds it where the capture left it; what the capture freed is reused by later
//! results of the same capture only. All captured commands go into the compute queue: among themselves their order is enough,
//! and towards the rest of the program the whole trace counts as one command that reads and writes what its commands do.

use crate::buffer::{BufferRef, Dtype};
use crate::command::Cost;
use crate::error::RuntimeError;
use crate::host::{Host, StreamHash};
use crate::pool::Marks;
use crate::queue::Queue;
use crate::report::{Phase, PhaseReport};
use crate::runtime::Runtime;
use crate::sched::Scope;
use crate::task::{Recorded, Task};
use crate::traffic::TrafficBook;
use crate::transport::history::What;
use crate::view::View;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

impl Runtime {
    /// Keeps commands from now on instead of running them, on all views of these devices, until [`Runtime::end_capture`]. Results
    /// of commands lie in memory of the trace; other memory, uploads and reads are refused meanwhile.
    ///
    /// # Errors
    /// [`RuntimeError::Trace`] inside another capture.
    pub fn begin_capture(&self) -> Result<(), RuntimeError> {
        let mut host = self.host();
        host.ready(&self.view)?;
        host.begin_capture()
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// [`RuntimeError::Trace`] where none was begun, or where a buffer that a command uses was freed meanwhile.
    pub fn end_capture(&self) -> Result<Trace, RuntimeError> {
        let body = self.host().end_capture()?;
        Ok(Trace::new(body, self.clone()))
    }
}

/// A captured part of a program; its memory is given back by [`Trace::release`] or when it is dropped.
pub struct Trace {
    body: RefCell<Body>,
    runtime: Runtime,
}

impl Trace {
    pub(crate) fn new(body: Body, runtime: Runtime) -> Trace {
        Trace {
            body: RefCell::new(body),
            runtime,
        }
    }

    /// Issues the captured commands again; inputs are what the tensors that they read hold at this point of the program.
    ///
    /// # Errors
    /// [`RuntimeError::Trace`] after the release, inside a capture, or where a tensor that they use is gone.
    pub fn execute(&self) -> Result<(), RuntimeError> {
        self.runtime.host().execute(&mut self.body.borrow_mut())
    }

    /// As [`Trace::execute`], and waits until everything has been done.
    ///
    /// # Errors
    /// As [`Trace::execute`] and [`Runtime::sync`].
    pub fn execute_and_wait(&self) -> Result<(), RuntimeError> {
        self.execute()?;
        self.runtime.sync()
    }

    /// Gives the memory back; what the program still holds of the results stays valid. Executing it is an error from now on;
    /// releasing it again is not.
    pub fn release(&self) {
        if let Some((id, marks)) = self.body.borrow_mut().retire()
            && let Some(mut host) = self.runtime.host_if_free()
        {
            host.release(id, marks);
        }
    }

    /// Number of commands.
    pub fn num_commands(&self) -> usize {
        self.body.borrow().len()
    }

    /// Commands, operations and bytes of each device of the system, by its number.
    pub fn by_device(&self) -> Vec<PhaseReport> {
        let devices = self.runtime.view().system_shape().num_devices();
        self.body.borrow().by_device(devices)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.body.borrow())
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({} commands)", self.num_commands())
    }
}

/// What is being captured.
pub(crate) struct Capture {
    id: u32,
    commands: Vec<Captured>,
    /// Buffers of the program that captured commands use, and whether one of them writes it.
    foreign: HashMap<u64, (BufferRef, bool, &'static str)>,
    phases: [PhaseReport; Phase::ALL.len()],
    traffic: TrafficBook,
    hash: StreamHash,
}

/// A captured command.
pub(crate) struct Captured {
    view: Arc<View>,
    task: Task,
    scope: Scope,
    tiles: usize,
    /// The phase that was set, and the one that it is booked in.
    phases: [Phase; 2],
}

/// A captured part of a program.
pub(crate) struct Body {
    id: u32,
    commands: Vec<Captured>,
    /// Buffers of the program that must live, and whether they are written.
    foreign: Vec<(BufferRef, bool, &'static str)>,
    /// Results that the program held when the capture ended.
    results: Vec<BufferRef>,
    phases: [PhaseReport; Phase::ALL.len()],
    traffic: TrafficBook,
    hash: u64,
    /// What must have ended before the trace may touch its memory: grows with each replay.
    marks: Marks,
    released: bool,
}

impl Host {
    /// Keeps commands from now on.
    pub(crate) fn begin_capture(&mut self) -> Result<(), RuntimeError> {
        if self.capture.is_some() {
            return Err(RuntimeError::Trace(
                "a capture was begun inside another; end that one first with end_capture()".into(),
            ));
        }
        self.traces += 1;
        self.ledger.begin_capture(self.traces);
        self.capture = Some(Capture {
            id: self.traces,
            commands: Vec::new(),
            foreign: HashMap::new(),
            phases: Default::default(),
            traffic: TrafficBook::default(),
            hash: StreamHash::default(),
        });
        Ok(())
    }

    /// Keeps a command. The caller has made sure that a capture is on.
    pub(crate) fn capture_task(&mut self, view: &Arc<View>, task: Task) -> Result<(), RuntimeError> {
        if self.spans(view, task.op()) {
            return Err(RuntimeError::Trace(format!(
                "{} meets other processes, which a trace cannot hold yet; capture what one process does",
                task.op().name()
            )));
        }
        let Some(capture) = &mut self.capture else {
            unreachable!("bug in unisono: a command is captured without a capture");
        };
        if !matches!(task, Task::Command(_)) {
            let (what, mend) = match task {
                Task::Upload(_) => ("values were copied to the devices", "refresh inputs before execute()"),
                _ => ("values were read", "read results after execute()"),
            };
            return Err(RuntimeError::Trace(format!(
                "{what} inside a capture, which a replay could not repeat; {mend}"
            )));
        }
        let op = task.op();
        let (ledger, foreign) = (&self.ledger, &mut capture.foreign);
        let mut freed = None;
        let mut see = |buffer: BufferRef, written: bool| {
            if !ledger.is_live(buffer) {
                freed = Some(buffer);
                return;
            }
            let (whole, trace) = ledger.whole(buffer);
            if trace != Some(capture.id) {
                let entry = foreign.entry(whole.id).or_insert((whole, false, op.name()));
                entry.1 |= written;
            }
        };
        op.reads(&mut |buffer| see(buffer, false));
        op.writes(&mut |buffer| see(buffer, true));
        if let Some(buffer) = freed {
            return Err(freed_buffer(buffer, op.name()));
        }
        let booked = match op.group() {
            Some(_) => Phase::Communication,
            None => self.phase,
        };
        let cost = op.cost(view.mesh());
        capture.phases[booked as usize].book(cost);
        capture.traffic.book(view, op, self.pattern);
        capture.hash.view(view);
        capture.hash.command(op, Queue::Compute, cost);
        let tiles = op.tiles();
        if tiles > 0 {
            capture.commands.push(Captured {
                view: Arc::clone(view),
                scope: Scope::of(op.group(), view.mesh()),
                tiles,
                phases: [self.phase, booked],
                task,
            });
        }
        Ok(())
    }

    /// Ends the capture.
    pub(crate) fn end_capture(&mut self) -> Result<Body, RuntimeError> {
        let Some(capture) = self.capture.take() else {
            self.failure()?;
            return Err(RuntimeError::Trace(
                "a capture was ended that was never begun; call begin_capture() first".into(),
            ));
        };
        let (results, marks) = self.ledger.end_capture();
        let mut foreign: Vec<_> = capture.foreign.into_values().collect();
        // So that of several that are gone the same one is named each time.
        foreign.sort_unstable_by_key(|(buffer, ..)| buffer.id);
        let body = Body {
            id: capture.id,
            commands: capture.commands,
            foreign,
            results,
            phases: capture.phases,
            traffic: capture.traffic,
            hash: capture.hash.0,
            marks,
            released: false,
        };
        if let Err(error) = self.check_foreign(&body) {
            self.release(body.id, body.marks);
            return Err(error);
        }
        Ok(body)
    }

    /// Runs the captured commands again.
    pub(crate) fn execute(&mut self, body: &mut Body) -> Result<(), RuntimeError> {
        self.failure()?;
        if body.released {
            return Err(RuntimeError::Trace(
                "a trace was executed after its release; capture it anew".into(),
            ));
        }
        if self.capture.is_some() {
            return Err(RuntimeError::Trace(
                "a trace was executed inside a capture; end the capture first".into(),
            ));
        }
        if let Some(closed) = body.commands.iter().find(|command| command.view.is_closed()) {
            return Err(RuntimeError::Closed(closed.view.mesh().describe()));
        }
        self.check_foreign(body)?;
        for (phase, part) in self.report.phases.iter_mut().zip(&body.phases) {
            phase.add(part);
        }
        self.traffic.add(&body.traffic);
        let mut hash = StreamHash(self.hash);
        hash.word(body.hash);
        self.hash = hash.0;
        self.issued_one(|_| What::Replay(body.commands.len()));
        if let Some(record) = &mut self.record {
            record.extend(body.commands.iter().map(Captured::recorded));
        }
        let Some(count) = (body.commands.len() as u64).checked_sub(1) else {
            return Ok(());
        };
        let compute = Queue::Compute as usize;
        // To the rest of the program the trace is its last command.
        let last = self.issued[compute] + count;
        let mut wait = body.marks.join(self.ledger.freed_of_trace(body.id)).0[1 - compute];
        for (buffer, written, name) in &body.foreign {
            wait = wait.max(match written {
                true => self.ledger.write(*buffer, compute, last, name),
                false => self.ledger.read(*buffer, compute, last, name),
            });
        }
        for result in &body.results {
            if self.ledger.is_live(*result) {
                wait = wait.max(self.ledger.write(*result, compute, last, "trace"));
            }
        }
        body.marks = Marks([last + 1, wait]);
        self.issued[compute] = last + 1;
        for command in &body.commands {
            let phase = command.phases[1];
            self.write_entry(
                Queue::Compute,
                command.task.clone(),
                &command.view,
                command.scope,
                command.tiles,
                wait,
                phase,
            );
        }
        Ok(())
    }

    /// Gives a trace's memory back.
    pub(crate) fn release(&mut self, id: u32, marks: Marks) {
        self.ledger.release_trace(id, marks);
    }

    fn check_foreign(&self, body: &Body) -> Result<(), RuntimeError> {
        match body.foreign.iter().find(|(buffer, ..)| !self.ledger.is_live(*buffer)) {
            Some((buffer, _, name)) => Err(freed_buffer(*buffer, name)),
            None => Ok(()),
        }
    }
}

fn freed_buffer(buffer: BufferRef, name: &str) -> RuntimeError {
    RuntimeError::Trace(format!(
        "the command {name} of a trace uses {buffer:?}, which has been freed; keep the tensor for as long as the trace is executed"
    ))
}

impl Captured {
    fn recorded(&self) -> Recorded {
        Recorded {
            queue: Queue::Compute,
            phase: self.phases[0],
            task: self.task.clone(),
        }
    }

    fn cost(&self) -> Cost {
        self.task.op().cost(self.view.mesh())
    }
}

impl Body {
    /// Refuses replays from now on. Returns what to release, the first time.
    pub(crate) fn retire(&mut self) -> Option<(u32, Marks)> {
        let first = !std::mem::replace(&mut self.released, true);
        first.then_some((self.id, self.marks))
    }

    /// Number of commands.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// What each device of the runtime does, by its number.
    pub(crate) fn by_device(&self, devices: usize) -> Vec<PhaseReport> {
        let mut sums = vec![PhaseReport::default(); devices];
        for command in &self.commands {
            let cost = command.cost();
            for device in command.view.mesh_view().devices() {
                sums[*device].book(cost);
            }
        }
        sums
    }
}

impl fmt::Display for Body {
    /// A line a command: the mesh, what it does, what it costs each device.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, command) in self.commands.iter().enumerate() {
            let cost = command.cost();
            let op = command.task.op();
            let mut touched: Vec<String> = Vec::new();
            let mut see = |buffer: BufferRef| {
                let text = match buffer.dtype {
                    Dtype::F32 => format!("{}", buffer.len),
                    dtype => format!("{} {}", buffer.len, dtype.name()),
                };
                touched.push(text);
            };
            op.reads(&mut see);
            let inputs = touched.join(", ");
            let mut touched = Vec::new();
            op.writes(&mut |buffer| touched.push(buffer.len.to_string()));
            writeln!(
                f,
                "{index:>5}  {:<14} [{inputs}] -> [{}]  {} FLOP, {} B memory, {} B links, on {}",
                op.name(),
                touched.join(", "),
                cost.flops,
                cost.bytes,
                cost.link_bytes,
                command.view.mesh().describe(),
            )?;
        }
        Ok(())
    }
}
