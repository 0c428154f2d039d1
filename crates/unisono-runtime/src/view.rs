//! Which devices a command is for.

use crate::processes::{Part, Processes, parts};
use std::sync::atomic::{AtomicBool, Ordering};
use unisono_mesh::{AxisHandle, Mesh, MeshView};

/// A mesh over some of the runtime's devices, as the scheduler looks at it: which device stands at a place, and where a device
/// stands.
pub(crate) struct View {
    /// Number that no other view of this runtime has.
    pub(crate) id: u32,
    view: MeshView,
    /// Place of each device of the runtime, or [`NOWHERE`]; empty where every device stands at the place of its own number.
    places: Box<[u32]>,
    processes: Processes,
    closed: AtomicBool,
}

const NOWHERE: u32 = u32::MAX;

impl View {
    pub(crate) fn new(id: u32, view: MeshView, processes: Processes) -> View {
        let mut places = Vec::new();
        if !view.is_whole() {
            places = vec![NOWHERE; view.system_shape().num_devices()];
            for (place, device) in view.devices().iter().enumerate() {
                // A mesh has at most `MAX_DEVICES` places, which fits.
                places[*device] = place as u32;
            }
        }
        View {
            id,
            view,
            places: places.into(),
            processes,
            closed: AtomicBool::new(false),
        }
    }

    /// The mesh.
    pub(crate) fn mesh(&self) -> &Mesh {
        self.view.mesh()
    }

    /// The mesh with its devices.
    pub(crate) fn mesh_view(&self) -> &MeshView {
        &self.view
    }

    /// The device at a place.
    pub(crate) fn device(&self, place: usize) -> usize {
        match self.places.is_empty() {
            true => place,
            false => self.view.devices()[place],
        }
    }

    /// The place of a device, if it has one here.
    pub(crate) fn place(&self, device: usize) -> Option<usize> {
        match self.places.is_empty() {
            true => Some(device),
            false => Some(self.places[device])
                .filter(|place| *place != NOWHERE)
                .map(|place| place as usize),
        }
    }

    /// Which process carries which device.
    pub(crate) fn processes(&self) -> &Processes {
        &self.processes
    }

    /// Whether this process carries the device at a place.
    pub(crate) fn is_here(&self, place: usize) -> bool {
        self.processes.is_here(self.device(place))
    }

    /// The process of the device at a place.
    pub(crate) fn process(&self, place: usize) -> usize {
        self.processes.of(self.device(place))
    }

    /// The processes' parts of the group that begins with place `first`.
    pub(crate) fn parts(&self, axis: AxisHandle, first: usize) -> Vec<Part> {
        parts(axis, first, |place| self.process(place))
    }

    /// Whether commands are refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Refuses commands from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}
