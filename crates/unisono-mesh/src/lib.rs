//! *Where*: the grids of devices that unisono trains on.
//!
//! - [`MeshShape`], [`MeshCoordinate`] and [`MeshCoordinateRange`]: N-dimensional grids and the
//!   row-major rule between coordinates and device ids.
//! - [`Mesh`]: a grid of logical devices whose axes have names (`dp`, `pp`, `tp`).
//! - [`assign_axes`]: which axis of a configured `mesh_shape` serves which [`Strategy`].
//! - [`Placement`]: how a tensor lies along one axis.
//! - [`descriptor`]: files that describe a machine: its meshes, hosts, devices and links.
//! - [`Distribution`] and [`Composition`]: which part of a tensor goes to which device, and how parts are put together.
//! - [`MeshView`]: a mesh laid over devices of a system; submeshes, reshaping, orders.
//! - [`draw`](mod@draw): meshes, distributed tensors and descriptors drawn for the terminal and as SVG.
//! - [`schedule`]: who sends what to whom in a collective, step by step, and what it costs.
//! - [`cpu_topology`]: this machine's sockets, NUMA nodes, cores and caches; [`topology`]: the matrix of pairs.
//! - [`visible`]: which devices `TT_VISIBLE_DEVICES` shows, and the cores that they have to themselves.
//!
//! Nothing here knows of threads or numbers. Every fallible function answers with a [`MeshError`],
//! whose text is a sentence fit for the user.
//!
//! ```
//! use unisono_mesh::Mesh;
//! let mesh = Mesh::new(&[("dp", 2), ("tp", 4)])?;
//! assert_eq!(mesh.num_devices(), 8);
//! assert_eq!(mesh.position(6, "tp"), 2);
//! assert_eq!(mesh.group(6, "dp"), [2, 6]);
//! assert_eq!(mesh.describe(), "2×4 = 8 devices (dp 2, tp 4)");
//! # Ok::<(), unisono_mesh::MeshError>(())
//! ```

mod composition;
pub mod cpu_topology;
pub mod descriptor;
mod distribution;
pub mod draw;
mod error;
mod mesh;
mod near;
mod order;
mod placement;
mod ranges;
mod redistribution;
pub mod schedule;
mod shape;
mod strategy;
pub mod topology;
mod view;
pub mod visible;

pub use composition::{ComposerConfig, Composition};
pub use distribution::{Distribution, DistributionMode, MapPlacement, MapperConfig, Over, devices_of, dim_of};
pub use draw::draw;
pub use error::MeshError;
pub use mesh::{Axis, AxisHandle, Mesh};
pub use near::nearest;
pub use placement::Placement;
pub use ranges::MeshCoordinateRangeSet;
pub use redistribution::{Layout, Move, Redistribution, RedistributionStep};
pub use shape::{MAX_DEVICES, MeshCoordinate, MeshCoordinateRange, MeshShape};
pub use strategy::{Strategy, assign_axes};
pub use view::MeshView;
