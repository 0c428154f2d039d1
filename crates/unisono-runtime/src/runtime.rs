//! The host's handle on the devices: memory, commands, values, reports.

use crate::arena::Arenas;
use crate::buffer::{BufferRef, Dtype, Kind};
use crate::command::Command;
use crate::error::RuntimeError;
use crate::handles::{Buffer, Leak, Pending};
use crate::host::Host;
use crate::machine;
use crate::options::{Backend, Options};
use crate::processes::Processes;
use crate::queue::Queue;
use crate::report::{Phase, Report};
use crate::sched::{HostGoal, Setup, Workers};
use crate::task::{Download, Recorded, Task, Upload};
use crate::transfer::HostData;
use crate::transport::Link;
use crate::view::View;
use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use unisono_kernels::bf16_order::Bf16Order;
use unisono_kernels::isa::Isa;
use unisono_mesh::{Mesh, MeshView};

/// Devices of a mesh, ready for commands. A clone is another handle on the same devices.
///
/// The devices stay open while a handle or a [`Buffer`] lives; after that, commands that have not begun are forgotten.
#[derive(Clone)]
pub struct Runtime {
    inner: Rc<Inner>,
    /// The mesh that this handle speaks to.
    pub(crate) view: Arc<View>,
}

struct Inner {
    /// Views made so far.
    views: Cell<u32>,
    processes: Processes,
    link: Option<Link>,
    backend: Backend,
    workers: usize,
    isa: Isa,
    bf16_order: Bf16Order,
    host: RefCell<Host>,
}

/// The most workers that may be asked for; more is taken for a slip.
const MAX_WORKERS: usize = 1024;
/// Bounds of [`Options::queue_depth`].
const DEPTHS: std::ops::RangeInclusive<usize> = 2..=1 << 20;

impl Runtime {
    /// Opens the devices of `mesh`.
    ///
    /// # Errors
    /// [`RuntimeError::Setting`] for settings that cannot be met, [`RuntimeError::NoAddressSpace`] and
    /// [`RuntimeError::NoThread`] where the system refuses.
    pub fn new(mesh: Mesh, options: Options) -> Result<Runtime, RuntimeError> {
        Runtime::on(MeshView::whole(mesh), options)
    }

    /// Opens the devices of a system, whose devices have names of their own there.
    ///
    /// # Errors
    /// As [`Runtime::new`]; [`RuntimeError::Setting`] for a view of only some of a system's devices.
    pub fn on(system: MeshView, options: Options) -> Result<Runtime, RuntimeError> {
        Runtime::open(system, options, Processes::one(), None)
    }

    /// Opens the devices of a system that several processes carry; each of them runs the same program on the whole of it.
    ///
    /// What a program does with devices is done by the process that carries them; a value that it reads comes from there to all.
    ///
    /// # Errors
    /// As [`Runtime::on`].
    pub fn between(
        system: MeshView,
        options: Options,
        processes: Processes,
        link: Link,
    ) -> Result<Runtime, RuntimeError> {
        Runtime::open(system, options, processes, Some(link))
    }

    /// Only accounts for what devices that `processes` carry would do and hold.
    ///
    /// # Errors
    /// None that is known; as [`Runtime::new`].
    pub fn rehearsal(mesh: Mesh, processes: Processes) -> Result<Runtime, RuntimeError> {
        Runtime::open(MeshView::whole(mesh), Options::null(), processes, None)
    }

    fn open(
        system: MeshView,
        options: Options,
        processes: Processes,
        link: Option<Link>,
    ) -> Result<Runtime, RuntimeError> {
        if !system.is_whole() {
            return Err(RuntimeError::Setting(format!(
                "{system:?} is a part of the system {}; open that, and cut submeshes out of it",
                system.system_shape()
            )));
        }
        let devices = system.num_devices();
        let cores = machine::cores();
        let workers = options.workers.unwrap_or(cores.min(MAX_WORKERS));
        if workers == 0 || workers > MAX_WORKERS {
            return Err(RuntimeError::Setting(format!(
                "{workers} workers were asked for; 1 to {MAX_WORKERS} work, and this process may use {cores} cores"
            )));
        }
        if !DEPTHS.contains(&options.queue_depth) {
            return Err(RuntimeError::Setting(format!(
                "a queue depth of {} was asked for; {} to {} work",
                options.queue_depth,
                DEPTHS.start(),
                DEPTHS.end()
            )));
        }
        let isa = options.isa.unwrap_or_else(Isa::detect);
        if isa > Isa::detect() {
            return Err(RuntimeError::Setting(format!(
                "the instruction set {} was asked for, and this CPU has no more than {}",
                isa.name(),
                Isa::detect().name()
            )));
        }
        let here = processes.here(devices);
        let first = here[0];
        let host = match options.backend {
            Backend::Null => Host::new(usize::MAX / 8, options.memory_limit, first, None, None),
            Backend::Cpu => {
                let limit = options
                    .memory_limit
                    .or_else(|| machine::memory().map(|bytes| bytes / here.len() as u64))
                    .unwrap_or(DEFAULT_MEMORY);
                // Room for the gaps between blocks: address space costs nothing.
                let arenas = Arenas::reserve(devices, limit.saturating_mul(2).saturating_add(SLACK))?;
                let capacity = arenas.all()[0].len;
                let (workers, writers) = Workers::start(Setup {
                    arenas,
                    processes: processes.clone(),
                    link: link.clone(),
                    isa,
                    bf16_order: options.bf16_order,
                    workers,
                    cores,
                    queue_depth: options.queue_depth,
                    pin: options.pin,
                })?;
                let devices = Some((workers, writers));
                Host::new(capacity, Some(limit), first, link.clone(), devices)
            }
        };
        Ok(Runtime {
            view: Arc::new(View::new(0, system, processes.clone())),
            inner: Rc::new(Inner {
                processes,
                link: link.clone(),
                views: Cell::new(1),
                backend: options.backend,
                workers: if options.backend == Backend::Cpu { workers } else { 0 },
                isa,
                bf16_order: options.bf16_order,
                host: RefCell::new(host),
            }),
        })
    }

    /// The mesh that commands run on.
    pub fn mesh(&self) -> &Mesh {
        self.view.mesh()
    }

    /// The mesh with the devices behind it.
    pub fn view(&self) -> &MeshView {
        self.view.mesh_view()
    }

    /// A handle on some of the same devices: what is issued through it runs on these only, beside what others do. `view` must
    /// have been cut out of the mesh of this runtime.
    ///
    /// # Errors
    /// [`RuntimeError::Setting`] for a view of another system, [`RuntimeError::Closed`] after [`Runtime::close`].
    pub fn on_view(&self, view: MeshView) -> Result<Runtime, RuntimeError> {
        self.host().open(&self.view)?;
        if !view.is_of(self.view()) {
            return Err(RuntimeError::Setting(format!(
                "{view:?} was not cut out of {:?}",
                self.view()
            )));
        }
        let id = self.inner.views.get();
        self.inner.views.set(id + 1);
        Ok(Runtime {
            inner: Rc::clone(&self.inner),
            view: Arc::new(View::new(id, view, self.inner.processes.clone())),
        })
    }

    /// Whether both are handles on the same devices at the same places, so that a buffer of one can be used by the other.
    pub fn same(&self, other: &Runtime) -> bool {
        Rc::ptr_eq(&self.inner, &other.inner) && (Arc::ptr_eq(&self.view, &other.view) || self.view() == other.view())
    }

    /// Whether both use the same workers and memory.
    pub fn same_system(&self, other: &Runtime) -> bool {
        Rc::ptr_eq(&self.inner, &other.inner)
    }

    /// Ends the use of this mesh: waits for what was issued, then refuses everything. Closing the mesh that was opened, and not
    /// one cut out of it, also ends the workers and gives the devices' memory back, whatever still lies in it.
    ///
    /// Returns what was still in use there: number of buffers and bytes on a device, by kind.
    ///
    /// # Errors
    /// [`RuntimeError::CommandFailed`] if a command failed, [`RuntimeError::Closed`] if it was closed before.
    pub fn close(&self) -> Result<Vec<Leak>, RuntimeError> {
        if self.view.is_closed() {
            return Err(RuntimeError::Closed(self.mesh().describe()));
        }
        let outcome = self.sync();
        let host = &mut *self.host();
        let is_root = self.view.id == 0;
        if is_root {
            host.free_staging();
        }
        let live = host.ledger.live((!is_root).then_some(self.view.id));
        self.view.close();
        if is_root {
            host.close(self.mesh());
        }
        outcome?;
        Ok(Kind::ALL
            .into_iter()
            .zip(live)
            .filter(|(_, (buffers, _))| *buffers > 0)
            .map(|(kind, (buffers, bytes))| Leak { kind, buffers, bytes })
            .collect())
    }

    /// Who consumes the commands.
    pub fn backend(&self) -> Backend {
        self.inner.backend
    }

    /// The processes that carry the devices.
    pub fn processes(&self) -> &Processes {
        &self.inner.processes
    }

    /// How the processes that carry the devices talk, where there are several.
    pub fn link(&self) -> Option<&Link> {
        self.inner.link.as_ref()
    }

    /// Workers, the host thread among them; none on the null backend.
    pub fn workers(&self) -> usize {
        self.inner.workers
    }

    /// The instruction set of the kernels.
    pub fn isa(&self) -> Isa {
        self.inner.isa
    }

    /// The order in which products of bf16 add up.
    pub fn bf16_order(&self) -> Bf16Order {
        self.inner.bf16_order
    }

    /// A buffer of `len` four-byte elements on every device. Its contents are undefined (in debug builds,
    /// [`crate::UNDEFINED`], a NaN).
    ///
    /// # Errors
    /// [`RuntimeError::OutOfMemory`], and [`RuntimeError::CommandFailed`] if an earlier command failed.
    pub fn alloc(&self, len: usize, kind: Kind) -> Result<Buffer, RuntimeError> {
        self.alloc_as(Dtype::F32, len, kind)
    }

    /// As [`Runtime::alloc`], for elements of any kind.
    ///
    /// # Errors
    /// As [`Runtime::alloc`].
    pub fn alloc_as(&self, dtype: Dtype, len: usize, kind: Kind) -> Result<Buffer, RuntimeError> {
        let r = self.host().alloc(&self.view, dtype, len, kind)?;
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
        self.push(Queue::Compute, Task::Command(command.into()))
    }

    /// Puts a command at the end of every device's transfer queue: it runs beside the compute queue, except that it waits
    /// for the commands issued before it that use the same memory, and those issued later wait for it.
    ///
    /// # Errors
    /// [`RuntimeError::CommandFailed`] if an earlier command failed.
    pub fn issue_transfer(&self, command: impl Into<Command>) -> Result<(), RuntimeError> {
        self.push(Queue::Transfer, Task::Command(command.into()))
    }

    /// Copies values to the devices, on the transfer queue. Floats on their way into bf16 are rounded to nearest even.
    ///
    /// # Errors
    /// [`RuntimeError::Length`] if there are not as many values as `to` has elements, or not as many arrays as devices;
    /// [`RuntimeError::CommandFailed`] if an earlier command failed.
    pub fn upload(&self, to: BufferRef, data: impl Into<HostData>) -> Result<(), RuntimeError> {
        let data = data.into();
        data.check(to, self.mesh().num_devices())?;
        self.push(Queue::Transfer, Task::Upload(Upload { to, data }))
    }

    /// Waits for the floats of `from` on one device; bf16 becomes f32, which is exact.
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
    /// [`RuntimeError::NoValues`] on the null backend (which accounts for the copy all the same), [`RuntimeError::NoDevice`],
    /// [`RuntimeError::CommandFailed`] if an earlier command failed.
    pub fn read_later(&self, from: BufferRef, device: usize) -> Result<Pending, RuntimeError> {
        self.read_later_into(from, device, Vec::new())
    }

    /// The same into memory that the host has already, which [`Pending::wait`] gives back: what is read again and again
    /// need not touch fresh memory each time. What `room` holds is lost.
    ///
    /// # Errors
    /// As [`Runtime::read_later`].
    pub fn read_later_into(&self, from: BufferRef, device: usize, room: Vec<f32>) -> Result<Pending, RuntimeError> {
        self.fetch(Download::new(from, device, room))
    }

    /// As [`Runtime::read_later_into`] for one process alone; [`Pending::wait`] gives the others nothing, at once. All processes call it.
    ///
    /// # Errors
    /// As [`Runtime::read_later`].
    pub fn read_later_at(
        &self,
        from: BufferRef,
        device: usize,
        process: usize,
        room: Vec<f32>,
    ) -> Result<Pending, RuntimeError> {
        let mut download = Download::new(from, device, room);
        download.reader = Some(process);
        self.fetch(download)
    }

    /// Waits for the elements of `from` on one device, as bytes.
    ///
    /// # Errors
    /// As [`Runtime::read_later`] and [`Pending::wait`].
    pub fn read_bytes(&self, from: BufferRef, device: usize) -> Result<Vec<u8>, RuntimeError> {
        let pending = self.fetch(Download::raw(from, device))?;
        self.host().wait(pending.goal)?;
        Ok(pending.download.take_bytes())
    }

    fn fetch(&self, download: Download) -> Result<Pending, RuntimeError> {
        let (device, devices) = (download.device, self.mesh().num_devices());
        if device >= devices {
            return Err(RuntimeError::NoDevice { device, devices });
        }
        self.push(Queue::Transfer, Task::Download(download.clone()))?;
        if self.inner.backend == Backend::Null {
            return Err(RuntimeError::NoValues);
        }
        let is_mine = download
            .reader
            .is_none_or(|reader| reader == self.inner.processes.rank());
        Ok(Pending {
            goal: match is_mine {
                true => self.host().last_on(Queue::Transfer, &self.view, device),
                false => HostGoal::default(),
            },
            download,
            runtime: self.clone(),
        })
    }

    /// Waits, and works, until every queue is empty.
    ///
    /// # Errors
    /// [`RuntimeError::CommandFailed`] if a command failed.
    pub fn sync(&self) -> Result<(), RuntimeError> {
        let host = &mut *self.host();
        host.open(&self.view)?;
        let goal = host.everything();
        host.wait(goal)
    }

    /// Says which part of the program the commands and buffers that follow belong to.
    pub fn set_phase(&self, phase: Phase) {
        self.host().set_phase(phase);
    }

    /// The part of the program as last set.
    pub fn phase(&self) -> Phase {
        self.host().phase()
    }

    /// What has been issued and done since the runtime was opened or the report last reset.
    pub fn report(&self) -> Report {
        self.host().report()
    }

    /// Starts the report anew; memory in use stays counted.
    pub fn reset_report(&self) {
        self.host().reset_report();
    }

    /// Starts or stops keeping a copy of everything that is issued.
    pub fn record(&self, on: bool) {
        self.host().record(on);
    }

    /// What has been issued since recording began or this was last called.
    pub fn take_record(&self) -> Vec<Recorded> {
        self.host().take_record()
    }

    /// A hash of everything issued so far: which operations, on which queue, on which memory, of which cost. Programs on the same
    /// mesh that differ in it have diverged; it does not depend on backend, workers or timing.
    pub fn stream_hash(&self) -> u64 {
        self.host().stream_hash()
    }

    fn push(&self, queue: Queue, task: Task) -> Result<(), RuntimeError> {
        self.host().push(&self.view, queue, task)
    }

    pub(crate) fn host(&self) -> RefMut<'_, Host> {
        self.inner.host.borrow_mut()
    }

    /// The host, unless a panic of ours is unwinding through it: the books no longer matter then.
    pub(crate) fn host_if_free(&self) -> Option<RefMut<'_, Host>> {
        self.inner.host.try_borrow_mut().ok()
    }
}

/// Bytes of a device where neither the options nor the system name a limit.
const DEFAULT_MEMORY: u64 = 16 << 30;
/// Bytes of address space beyond twice the limit.
const SLACK: u64 = 64 << 20;

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} runtime on {}", self.inner.backend, self.mesh().describe())
    }
}
