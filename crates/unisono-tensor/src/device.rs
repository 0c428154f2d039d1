//! A mesh opened for tensors.

use crate::distributed::Defaults;
use crate::tensor::Meta;
use crate::{Result, Rows, Tensor};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use unisono_kernels::philox::Stream;
use unisono_mesh::{AxisHandle, Mesh, MeshView};
use unisono_runtime::transport::Link;
use unisono_runtime::{Buffer, Leak, Options, Processes, Runtime, Trace};

/// Sender, receiver and tag of a message; devices by their numbers in the system.
pub(crate) type Ends = (usize, usize, u64);

/// A message on its way: the memory and the shape of a tensor. (A tensor would hold the mesh that holds the message.)
struct Message {
    memory: Rc<Buffer>,
    meta: Meta,
}

/// The links between neighbouring devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// Channels of each connection; `None` where nothing is known of them.
    pub channels: Option<usize>,
    /// Whether the ends of each axis are joined.
    pub rings: Vec<bool>,
}

/// The devices of a mesh, with what a program on them needs: whether gradients are recorded, and the random seed.
///
/// A clone is another handle on the same devices. Nothing is global: two of them know nothing of each other.
#[derive(Clone)]
pub struct MeshDevice {
    /// The devices at the places of this mesh.
    runtime: Runtime,
    /// What a mesh shares with all that is cut out of it.
    inner: Rc<Inner>,
}

struct Inner {
    grad: Cell<bool>,
    /// Whether uses of leaves are counted although no gradients are recorded: the first pass of a recomputed block.
    counting: Cell<bool>,
    next_id: Cell<u64>,
    seed: Cell<u64>,
    step: Cell<u32>,
    uses: RefCell<HashMap<(u64, &'static str), usize>>,
    /// What was noticed and is worth a word, each once.
    notes: RefCell<Vec<String>>,
    /// How many notes have been taken.
    notes_taken: Cell<usize>,
    /// The links between devices, where a descriptor tells of them.
    links: RefCell<Links>,
    /// Messages on their way, by sender, receiver and tag.
    posts: RefCell<BTreeMap<Ends, VecDeque<Message>>>,
    /// Slots of gradients over a batch, by (sequences, devices, sequences pushed at a time): every weight of a model asks
    /// the same.
    slots: RefCell<HashMap<(usize, usize, usize), usize>>,
    /// Mappers and composers in scope.
    defaults: Defaults,
    /// Meshes cut out for distributions: those of one shape share a handle, whatever the number of tensors on them.
    known: RefCell<HashMap<(Vec<usize>, Mesh), Runtime>>,
}

impl MeshDevice {
    /// Opens the devices of `mesh`, numbered row-major.
    ///
    /// # Errors
    /// What [`Runtime::new`] says.
    pub fn open(mesh: Mesh, options: Options) -> Result<MeshDevice> {
        Ok(MeshDevice::of(Runtime::new(mesh, options)?))
    }

    /// Opens a grid of devices for a program that speaks of axes by number.
    ///
    /// ```
    /// use unisono_tensor::{MeshDevice, Options};
    /// let mesh = MeshDevice::open_grid(&[2, 4], Options::default())?;
    /// let left = mesh.create_submesh(&[2, 2], None)?;
    /// assert_eq!(left.view().ids(), [0, 1, 4, 5]);
    /// assert_eq!(mesh.close()?, []);
    /// # Ok::<(), unisono_tensor::TensorError>(())
    /// ```
    ///
    /// # Errors
    /// A shape that is none, and what [`Runtime::new`] says.
    pub fn open_grid(shape: &[usize], options: Options) -> Result<MeshDevice> {
        MeshDevice::open(Mesh::grid(shape)?, options)
    }

    /// Opens the devices of a system that have names of their own there, such as the visible devices of a machine.
    ///
    /// # Errors
    /// What [`Runtime::on`] says.
    pub fn open_system(system: MeshView, options: Options) -> Result<MeshDevice> {
        Ok(MeshDevice::of(Runtime::on(system, options)?))
    }

    /// Opens the devices of a system that several processes carry, each of which runs this program.
    ///
    /// # Errors
    /// What [`Runtime::between`] says.
    pub fn open_between(system: MeshView, options: Options, processes: Processes, link: Link) -> Result<MeshDevice> {
        Ok(MeshDevice::of(Runtime::between(system, options, processes, link)?))
    }

    /// Devices that only account for what they would do and hold, were they carried by `processes`.
    ///
    /// # Errors
    /// What [`Runtime::rehearsal`] says.
    pub fn rehearsal(mesh: Mesh, processes: Processes) -> Result<MeshDevice> {
        Ok(MeshDevice::of(Runtime::rehearsal(mesh, processes)?))
    }

    /// One device on this machine's cores.
    ///
    /// # Errors
    /// What [`Runtime::new`] says.
    pub fn one() -> Result<MeshDevice> {
        MeshDevice::open(Mesh::one(), Options::default())
    }

    /// Tensors on a runtime that is open already.
    pub fn of(runtime: Runtime) -> MeshDevice {
        MeshDevice {
            runtime,
            inner: Rc::new(Inner {
                grad: Cell::new(true),
                counting: Cell::new(false),
                next_id: Cell::new(1),
                seed: Cell::new(0),
                step: Cell::new(0),
                uses: RefCell::new(HashMap::new()),
                notes: RefCell::default(),
                notes_taken: Cell::new(0),
                links: RefCell::default(),
                posts: RefCell::default(),
                slots: RefCell::new(HashMap::new()),
                defaults: Defaults::default(),
                known: RefCell::new(HashMap::new()),
            }),
        }
    }

    /// The runtime underneath.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The mesh.
    pub fn mesh(&self) -> &Mesh {
        self.runtime.mesh()
    }

    /// The mesh with the devices behind it: ids by coordinate, line and ring order.
    pub fn view(&self) -> &MeshView {
        self.runtime.view()
    }

    /// The same program state on a mesh that was cut out of this one.
    ///
    /// # Errors
    /// A view of another system.
    pub fn on_view(&self, view: MeshView) -> Result<MeshDevice> {
        Ok(MeshDevice {
            runtime: self.runtime.on_view(view)?,
            inner: Rc::clone(&self.inner),
        })
    }

    /// As [`MeshDevice::on_view`]; one handle serves all who ask for the same view.
    pub(crate) fn known_view(&self, view: MeshView) -> Result<MeshDevice> {
        if view == *self.view() {
            return Ok(self.clone());
        }
        let key = (view.devices().to_vec(), view.mesh().clone());
        let known = self.inner.known.borrow().get(&key).cloned();
        let runtime = match known {
            Some(runtime) => runtime,
            None => {
                let runtime = self.runtime.on_view(view)?;
                self.inner.known.borrow_mut().insert(key, runtime.clone());
                runtime
            }
        };
        Ok(MeshDevice {
            runtime,
            inner: Rc::clone(&self.inner),
        })
    }

    pub(crate) fn defaults(&self) -> &Defaults {
        &self.inner.defaults
    }

    /// The box of `shape` at `offset` (by default the first corner). Its devices are those of this mesh: programs on submeshes that
    /// share no device run at the same time, memory is each device's own. Submeshes may overlap.
    ///
    /// # Errors
    /// A box that this mesh does not have.
    pub fn create_submesh(&self, shape: &[usize], offset: Option<&[usize]>) -> Result<MeshDevice> {
        self.on_view(self.view().submesh(shape, offset)?)
    }

    /// All boxes of `shape` that tile this mesh, row-major.
    ///
    /// # Errors
    /// A shape that does not tile it.
    pub fn create_submeshes(&self, shape: &[usize]) -> Result<Vec<MeshDevice>> {
        self.view()
            .submeshes(shape)?
            .into_iter()
            .map(|view| self.on_view(view))
            .collect()
    }

    /// The same devices in another shape; see [`MeshView::reshape`] for their order. Tensors stay on the mesh that they were placed
    /// on.
    ///
    /// # Errors
    /// A shape that these devices cannot take.
    pub fn reshape(&self, shape: &[usize]) -> Result<MeshDevice> {
        self.on_view(self.view().reshape(shape)?)
    }

    /// Ends the use of this mesh; see [`Runtime::close`]. Returns what was still in use on it.
    ///
    /// # Errors
    /// A failed command, or a mesh that was closed before.
    pub fn close(&self) -> Result<Vec<Leak>> {
        let key = (self.view().devices().to_vec(), self.mesh().clone());
        self.inner.known.borrow_mut().remove(&key);
        Ok(self.runtime.close()?)
    }

    /// Keeps commands from now on, on this mesh and all that share its devices; see [`Runtime::begin_capture`].
    ///
    /// ```
    /// use unisono_tensor::MeshDevice;
    /// let device = MeshDevice::one()?;
    /// let x = device.tensor(&[1.0, 2.0], &[2])?;
    /// device.begin_capture()?;
    /// let y = x.mul(&x)?;
    /// let trace = device.end_capture()?;
    /// x.upload_global(&[3.0, 4.0])?;
    /// trace.execute()?;
    /// assert_eq!(y.to_vec()?, [9.0, 16.0]);
    /// # Ok::<(), unisono_tensor::TensorError>(())
    /// ```
    ///
    /// # Errors
    /// A capture inside another.
    pub fn begin_capture(&self) -> Result<()> {
        Ok(self.runtime.begin_capture()?)
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// As [`Runtime::end_capture`].
    pub fn end_capture(&self) -> Result<Trace> {
        Ok(self.runtime.end_capture()?)
    }

    /// What a descriptor says of the links between the devices: how many channels neighbours have, and which axes end in a wrap.
    pub fn set_links(&self, links: Links) {
        *self.inner.links.borrow_mut() = links;
    }

    /// The links as last set; on a part of the mesh an axis ends in a wrap only where it is a whole axis of that.
    pub fn links(&self) -> Links {
        let mut links = self.inner.links.borrow().clone();
        let view = self.view();
        if view.is_whole() || links.rings.is_empty() {
            return links;
        }
        let (here, system) = (view.shape(), view.system_shape());
        let (strides, of_system) = (here.strides(), system.strides());
        let devices = view.devices();
        let is_whole_axis = |axis: usize| {
            let same = here.num_axes() == system.num_axes() && here.sizes()[axis] == system.sizes()[axis];
            let second = devices.get(strides.get(axis).copied().unwrap_or(0));
            same && here.sizes()[axis] > 1 && second == Some(&(devices[0] + of_system[axis]))
        };
        links.rings = (0..here.num_axes())
            .map(|axis| is_whole_axis(axis) && links.rings.get(axis) == Some(&true))
            .collect();
        links
    }

    /// Channels of each connection, where a descriptor tells of them.
    pub(crate) fn channels(&self) -> Option<usize> {
        self.inner.links.borrow().channels
    }

    /// What was noticed since this was last called: collectives that had nothing to do, rings that are lines. Each is said once.
    pub fn take_notes(&self) -> Vec<String> {
        let notes = self.inner.notes.borrow();
        notes[self.inner.notes_taken.replace(notes.len())..].to_vec()
    }

    pub(crate) fn note(&self, text: String) {
        let mut notes = self.inner.notes.borrow_mut();
        if !notes.contains(&text) {
            notes.push(text);
        }
    }

    /// Leaves a message for a receiver.
    pub(crate) fn post(&self, ends: Ends, message: &Tensor) {
        let message = Message {
            memory: message.inner.memory.clone(),
            meta: message.meta().clone(),
        };
        let mut posts = self.inner.posts.borrow_mut();
        posts.entry(ends).or_default().push_back(message);
    }

    /// Takes the oldest message with these ends that was sent on this mesh.
    pub(crate) fn take_post(&self, ends: Ends) -> Option<Tensor> {
        let mut posts = self.inner.posts.borrow_mut();
        let queue = posts.get_mut(&ends)?;
        let index = queue
            .iter()
            .position(|message| message.memory.runtime().same(&self.runtime))?;
        let message = queue.remove(index)?;
        if queue.is_empty() {
            posts.remove(&ends);
        }
        let buffer = message.memory.r();
        Some(Tensor::view(self, message.memory, buffer, message.meta))
    }

    /// The messages that nobody has taken, in words.
    pub(crate) fn waiting_posts(&self) -> String {
        const SHOWN: usize = 5;
        let posts = self.inner.posts.borrow();
        let count: usize = posts.values().map(VecDeque::len).sum();
        let list = posts.keys().take(SHOWN);
        let list: Vec<String> = list
            .map(|(from, to, tag)| format!("device {from} to {to} with tag {tag}"))
            .collect();
        match count {
            0 => "none is waiting".to_string(),
            _ => format!("{count} are waiting ({})", list.join(", ")),
        }
    }

    /// The axis of this name if the mesh has one of more than one device; code written for `tp` runs where there is none.
    pub fn axis(&self, name: &str) -> Option<AxisHandle> {
        self.mesh().axis(name).ok().filter(|axis| axis.size > 1)
    }

    /// Name of the axis with this index.
    pub(crate) fn axis_name(&self, index: usize) -> String {
        self.mesh().axes()[index].name.clone()
    }

    /// The axis with this index.
    pub(crate) fn axis_at(&self, index: usize) -> AxisHandle {
        self.mesh()
            .axis_at(index)
            .unwrap_or_else(|error| panic!("bug in unisono: {error}"))
    }

    /// Number of mesh axes, which is the number of placements of each tensor.
    pub(crate) fn num_axes(&self) -> usize {
        self.mesh().axes().len()
    }

    /// The seed that random numbers are keyed by.
    pub fn set_seed(&self, seed: u64) {
        self.inner.seed.set(seed);
    }

    /// The optimizer step that dropout is keyed by.
    pub fn set_step(&self, step: u32) {
        self.inner.step.set(step);
    }

    /// The random stream of one site; `per_step` where every optimizer step draws anew.
    pub fn stream(&self, site: u32, per_step: bool) -> Stream {
        let step = if per_step {
            self.inner.step.get().wrapping_add(1)
        } else {
            0
        };
        Stream {
            seed: self.inner.seed.get(),
            site,
            step,
        }
    }

    /// Runs `body` without recording gradients.
    pub fn no_grad<T>(&self, body: impl FnOnce() -> T) -> T {
        self.with_grad(false, body)
    }

    pub(crate) fn with_grad<T>(&self, on: bool, body: impl FnOnce() -> T) -> T {
        /// Puts the old mode back even when `body` unwinds.
        struct Restore<'a>(&'a Cell<bool>, bool);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                self.0.set(self.1);
            }
        }
        let _restore = Restore(&self.inner.grad, self.inner.grad.replace(on));
        body()
    }

    /// Runs `body` without recording gradients, but counting the uses of leaves as if they were recorded.
    pub(crate) fn rehearse<T>(&self, body: impl FnOnce() -> T) -> T {
        let before = self.inner.counting.replace(true);
        let result = self.no_grad(body);
        self.inner.counting.set(before);
        result
    }

    /// Whether gradients are recorded.
    pub fn grad_enabled(&self) -> bool {
        self.inner.grad.get()
    }

    /// A number that orders nodes and names tensors.
    pub(crate) fn next_id(&self) -> u64 {
        let id = self.inner.next_id.get();
        self.inner.next_id.set(id + 1);
        id
    }

    /// How often `op` has used leaf `leaf` since the counters were last reset: each use has an accumulator of its own.
    pub(crate) fn next_use(&self, leaf: u64, op: &'static str) -> usize {
        if !self.inner.grad.get() && !self.inner.counting.get() {
            return 0;
        }
        let mut uses = self.inner.uses.borrow_mut();
        let count = uses.entry((leaf, op)).or_insert(0);
        *count += 1;
        *count - 1
    }

    /// Most slots that any device needs while `step` sequences at a time are pushed on its stack.
    pub(crate) fn slots(&self, rows: &Rows, step: usize) -> usize {
        let key = (rows.total, rows.per_position(), step);
        *self
            .inner
            .slots
            .borrow_mut()
            .entry(key)
            .or_insert_with(|| rows.slots(step))
    }

    /// The use counters, to be put back when a forward pass is computed again.
    pub(crate) fn uses(&self) -> HashMap<(u64, &'static str), usize> {
        self.inner.uses.borrow().clone()
    }

    pub(crate) fn set_uses(&self, uses: HashMap<(u64, &'static str), usize>) {
        *self.inner.uses.borrow_mut() = uses;
    }

    /// The mesh in words with the ids of its devices, the first of many.
    pub(crate) fn with_ids(&self) -> String {
        const SHOWN: usize = 8;
        let ids = self.view().ids();
        let first = &ids[..ids.len().min(SHOWN)];
        let more = if ids.len() > SHOWN { ", …" } else { "" };
        let first: Vec<String> = first.iter().map(usize::to_string).collect();
        format!("{self:?} on devices [{}{more}]", first.join(", "))
    }

    /// Whether both are handles on the same devices at the same places.
    pub fn same(&self, other: &MeshDevice) -> bool {
        Rc::ptr_eq(&self.inner, &other.inner) && self.runtime.same(&other.runtime)
    }
}

impl std::fmt::Debug for MeshDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shape: Vec<String> = self.view().shape().sizes().iter().map(usize::to_string).collect();
        write!(
            f,
            "MeshDevice({} grid, {} devices)",
            shape.join("x"),
            self.mesh().num_devices()
        )
    }
}
