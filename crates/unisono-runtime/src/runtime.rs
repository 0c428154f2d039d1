//! The host's handle on the devices: memory, commands, values, reports.

use crate::arena::Arenas;
use crate::buffer::{BufferRef, Kind};
use crate::command::{Command, Cost};
use crate::error::RuntimeError;
use crate::ledger::Ledger;
use crate::options::{Backend, Options};
use crate::place::Place;
use crate::report::{Phase, Report};
use crate::transfer::HostData;
use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;
use std::time::Instant;
use unisono_kernels::isa::Isa;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// Devices of a mesh, ready for commands. A clone is another handle on the same devices.
#[derive(Clone)]
pub struct Runtime {
    inner: Rc<Inner>,
}

struct Inner {
    mesh: Mesh,
    backend: Backend,
    workers: usize,
    isa: Isa,
    arenas: Option<Arenas>,
    host: RefCell<Host>,
}

struct Host {
    ledger: Ledger,
    phase: Phase,
    report: Report,
    since: Instant,
    scratch: Scratch,
    hash: u64,
    record: Option<Vec<Command>>,
}

impl Runtime {
    /// Opens the devices of `mesh`.
    ///
    /// # Errors
    /// Settings that cannot be met, or a system that gives no address space or threads.
    pub fn new(mesh: Mesh, options: Options) -> Result<Runtime, RuntimeError> {
        let isa = options.isa.unwrap_or_else(Isa::detect);
        let (arenas, capacity) = match options.backend {
            Backend::Null => (None, usize::MAX / 8),
            Backend::Cpu => {
                let bytes = options.memory_limit.unwrap_or(16 << 30);
                let arenas = Arenas::reserve(mesh.num_devices(), bytes.saturating_mul(2))?;
                let capacity = arenas.all()[0].len;
                (Some(arenas), capacity)
            }
        };
        Ok(Runtime {
            inner: Rc::new(Inner {
                mesh,
                backend: options.backend,
                workers: 1,
                isa,
                arenas,
                host: RefCell::new(Host {
                    ledger: Ledger::new(capacity, options.memory_limit),
                    phase: Phase::default(),
                    report: Report::default(),
                    since: Instant::now(),
                    scratch: Scratch::new(isa),
                    hash: 0,
                    record: None,
                }),
            }),
        })
    }

    /// The mesh that commands run on.
    pub fn mesh(&self) -> &Mesh {
        &self.inner.mesh
    }

    /// Who consumes the commands.
    pub fn backend(&self) -> Backend {
        self.inner.backend
    }

    /// Workers, the host thread among them.
    pub fn workers(&self) -> usize {
        self.inner.workers
    }

    /// The instruction set of the kernels.
    pub fn isa(&self) -> Isa {
        self.inner.isa
    }

    /// A buffer of `len` four-byte elements on every device. Its contents are undefined (NaN in debug builds).
    ///
    /// # Errors
    /// [`RuntimeError::OutOfMemory`].
    pub fn alloc(&self, len: usize, kind: Kind) -> Result<Buffer, RuntimeError> {
        let host = &mut *self.inner.host.borrow_mut();
        let r = host.ledger.alloc(len, kind, host.phase)?;
        Ok(Buffer {
            r,
            kind,
            runtime: self.clone(),
        })
    }

    /// Puts a command at the end of every device's compute queue.
    ///
    /// # Errors
    /// [`RuntimeError::CommandFailed`] if an earlier command failed.
    pub fn issue(&self, command: impl Into<Command>) -> Result<(), RuntimeError> {
        self.push(command.into())
    }

    /// Puts a command at the end of every device's transfer queue: it runs beside the compute queue, except that it waits
    /// for the commands issued before it that use the same memory, and those issued later wait for it.
    ///
    /// # Errors
    /// [`RuntimeError::CommandFailed`] if an earlier command failed.
    pub fn issue_transfer(&self, command: impl Into<Command>) -> Result<(), RuntimeError> {
        self.push(command.into())
    }

    /// Copies values to the devices, on the transfer queue.
    ///
    /// # Errors
    /// [`RuntimeError::Length`] if there are not as many values as `to` has elements, or not as many arrays as devices.
    pub fn upload(&self, to: BufferRef, data: impl Into<HostData>) -> Result<(), RuntimeError> {
        let data = data.into();
        let devices = self.inner.mesh.num_devices();
        if let Some(given) = data.arrays().filter(|given| *given != devices) {
            return Err(RuntimeError::Length {
                what: "arrays to upload, one a device",
                given,
                expected: devices,
            });
        }
        for device in 0..devices {
            if let Some(given) = data.len(device).filter(|given| *given != to.len) {
                return Err(RuntimeError::Length {
                    what: "values to upload",
                    given,
                    expected: to.len,
                });
            }
        }
        let host = &mut *self.inner.host.borrow_mut();
        host.ledger.write(to, 0, 0, "upload");
        host.report.phases[host.phase as usize].book(Cost {
            flops: 0,
            bytes: 4 * to.len as u64,
            link_bytes: 0,
        });
        let Some(arenas) = &self.inner.arenas else {
            return Ok(());
        };
        for device in 0..devices {
            let place = self.place(arenas, device);
            match &data {
                HostData::F32(data) => place.write(to, 0, to.len).copy_from_slice(data),
                HostData::U32(data) => place.write_u32(to, 0, to.len).copy_from_slice(data),
                HostData::F32PerDevice(data) => place.write(to, 0, to.len).copy_from_slice(&data[device]),
                HostData::U32PerDevice(data) => place.write_u32(to, 0, to.len).copy_from_slice(&data[device]),
            }
        }
        Ok(())
    }

    /// Waits for the floats of `from` on one device.
    ///
    /// # Errors
    /// As [`Runtime::read_later`] and [`Pending::wait`].
    pub fn read_f32(&self, from: BufferRef, device: usize) -> Result<Vec<f32>, RuntimeError> {
        self.read_later(from, device)?.wait()
    }

    /// Waits for the integers of `from` on one device.
    ///
    /// # Errors
    /// As [`Runtime::read_later`] and [`Pending::wait`].
    pub fn read_u32(&self, from: BufferRef, device: usize) -> Result<Vec<u32>, RuntimeError> {
        self.read_later(from, device)?.wait_u32()
    }

    /// Asks for the values of `from` on one device as they are at this point of the program, on the transfer queue.
    ///
    /// # Errors
    /// [`RuntimeError::NoValues`] on the null backend, [`RuntimeError::NoDevice`], [`RuntimeError::CommandFailed`].
    pub fn read_later(&self, from: BufferRef, device: usize) -> Result<Pending, RuntimeError> {
        let devices = self.inner.mesh.num_devices();
        if device >= devices {
            return Err(RuntimeError::NoDevice { device, devices });
        }
        let host = &mut *self.inner.host.borrow_mut();
        host.ledger.read(from, 0, 0, "download");
        let Some(arenas) = &self.inner.arenas else {
            return Err(RuntimeError::NoValues);
        };
        Ok(Pending {
            values: self.place(arenas, device).f32(from).to_vec(),
        })
    }

    /// Waits until every queue is empty.
    ///
    /// # Errors
    /// [`RuntimeError::CommandFailed`] if a command failed.
    pub fn sync(&self) -> Result<(), RuntimeError> {
        Ok(())
    }

    /// Says which part of the program the commands and buffers that follow belong to.
    pub fn set_phase(&self, phase: Phase) {
        let host = &mut *self.inner.host.borrow_mut();
        host.phase = phase;
        host.ledger.enter(phase);
    }

    /// The part of the program as last set.
    pub fn phase(&self) -> Phase {
        self.inner.host.borrow().phase
    }

    /// What has been issued and done since the runtime was opened or the report last reset.
    pub fn report(&self) -> Report {
        let host = self.inner.host.borrow();
        Report {
            memory: host.ledger.memory(),
            wall: host.since.elapsed(),
            ..host.report.clone()
        }
    }

    /// Starts the report anew; memory in use stays counted.
    pub fn reset_report(&self) {
        let host = &mut *self.inner.host.borrow_mut();
        host.report = Report::default();
        host.since = Instant::now();
        host.ledger.reset_peaks(host.phase);
    }

    /// Starts or stops keeping a copy of every command.
    pub fn record(&self, on: bool) {
        self.inner.host.borrow_mut().record = on.then(Vec::new);
    }

    /// The commands kept since recording began or this was last called.
    pub fn take_record(&self) -> Vec<Command> {
        let host = &mut *self.inner.host.borrow_mut();
        host.record.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// A running hash of the command stream.
    pub fn stream_hash(&self) -> u64 {
        self.inner.host.borrow().hash
    }

    fn push(&self, command: Command) -> Result<(), RuntimeError> {
        let inner = &*self.inner;
        let host = &mut *inner.host.borrow_mut();
        let op = command.op();
        op.reads(&mut |buffer| {
            host.ledger.read(buffer, 0, 0, op.name());
        });
        op.writes(&mut |buffer| {
            host.ledger.write(buffer, 0, 0, op.name());
        });
        let phase = match op.group() {
            Some(_) => Phase::Communication,
            None => host.phase,
        };
        host.report.phases[phase as usize].book(op.cost(&inner.mesh));
        if let Some(arenas) = &inner.arenas {
            let start = Instant::now();
            for device in 0..inner.mesh.num_devices() {
                let first = match op.group() {
                    None => device,
                    Some(crate::command::Group::All) => 0,
                    Some(crate::command::Group::Axis(axis)) => {
                        let name = &inner.mesh.axes()[axis].name;
                        inner.mesh.group(device, name)[0]
                    }
                };
                if first == device {
                    for tile in 0..op.tiles() {
                        op.run(&self.place(arenas, device), tile, &mut host.scratch);
                    }
                }
            }
            host.report.phases[phase as usize].busy += start.elapsed();
        }
        if let Some(record) = &mut host.record {
            record.push(command);
        }
        Ok(())
    }

    fn place<'a>(&'a self, arenas: &'a Arenas, device: usize) -> Place<'a> {
        Place {
            mesh: &self.inner.mesh,
            device,
            arenas: arenas.all(),
        }
    }
}

/// A value on its way to the host.
pub struct Pending {
    values: Vec<f32>,
}

impl Pending {
    /// Whether [`Pending::wait`] would return at once.
    pub fn is_ready(&self) -> bool {
        true
    }

    /// Waits for the values as floats.
    ///
    /// # Errors
    /// [`RuntimeError::CommandFailed`] if a command failed.
    pub fn wait(self) -> Result<Vec<f32>, RuntimeError> {
        Ok(self.values)
    }

    /// Waits for the values as integers.
    ///
    /// # Errors
    /// As [`Pending::wait`].
    pub fn wait_u32(self) -> Result<Vec<u32>, RuntimeError> {
        Ok(self.wait()?.into_iter().map(f32::to_bits).collect())
    }
}

/// A piece of every device's memory, given back when dropped (in program order: commands issued before still have it).
pub struct Buffer {
    r: BufferRef,
    kind: Kind,
    runtime: Runtime,
}

impl Buffer {
    /// The name that commands use for it. It must not be used after this buffer is dropped.
    pub fn r(&self) -> BufferRef {
        self.r
    }

    /// What it is counted as.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The runtime that it belongs to.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

impl Deref for Buffer {
    type Target = BufferRef;

    fn deref(&self) -> &BufferRef {
        &self.r
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}", self.r, self.kind.name())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Already borrowed only while a panic of ours unwinds; the books no longer matter then.
        if let Ok(mut host) = self.runtime.inner.host.try_borrow_mut() {
            host.ledger.free(self.r);
        }
    }
}
