//! A mesh opened for tensors.

use crate::{Result, Rows};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use unisono_kernels::philox::Stream;
use unisono_mesh::{AxisHandle, Mesh};
use unisono_runtime::{Options, Runtime};

/// The devices of a mesh, with what a program on them needs: whether gradients are recorded, and the random seed.
///
/// A clone is another handle on the same devices. Nothing is global: two of them know nothing of each other.
#[derive(Clone)]
pub struct MeshDevice {
    inner: Rc<Inner>,
}

struct Inner {
    runtime: Runtime,
    grad: Cell<bool>,
    /// Whether uses of leaves are counted although no gradients are recorded: the first pass of a recomputed block.
    counting: Cell<bool>,
    next_id: Cell<u64>,
    seed: Cell<u64>,
    step: Cell<u32>,
    uses: RefCell<HashMap<(u64, &'static str), usize>>,
    /// Slots of gradients over a batch, by (sequences, devices, sequences pushed at a time): every weight of a model asks
    /// the same.
    slots: RefCell<HashMap<(usize, usize, usize), usize>>,
}

impl MeshDevice {
    /// Opens the devices of `mesh`.
    ///
    /// # Errors
    /// What [`Runtime::new`] says.
    pub fn open(mesh: Mesh, options: Options) -> Result<MeshDevice> {
        Ok(MeshDevice::of(Runtime::new(mesh, options)?))
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
            inner: Rc::new(Inner {
                runtime,
                grad: Cell::new(true),
                counting: Cell::new(false),
                next_id: Cell::new(1),
                seed: Cell::new(0),
                step: Cell::new(0),
                uses: RefCell::new(HashMap::new()),
                slots: RefCell::new(HashMap::new()),
            }),
        }
    }

    /// The runtime underneath.
    pub fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    /// The mesh.
    pub fn mesh(&self) -> &Mesh {
        self.inner.runtime.mesh()
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
        let mesh = self.mesh();
        let size = mesh.axes()[index].size;
        let stride = mesh.axes()[index + 1..].iter().map(|axis| axis.size).product();
        AxisHandle { index, size, stride }
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

    /// Whether both are handles on the same devices.
    pub fn same(&self, other: &MeshDevice) -> bool {
        Rc::ptr_eq(&self.inner, &other.inner)
    }
}

impl std::fmt::Debug for MeshDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MeshDevice({})", self.mesh().describe())
    }
}
