//! *Where*: the grids of devices that unisono trains on.
//!
//! - [`MeshShape`], [`MeshCoordinate`] and [`MeshCoordinateRange`]: N-dimensional grids and the
//!   row-major rule between coordinates and device ids.
//! - [`Mesh`]: a grid of logical devices whose axes have names (`dp`, `pp`, `tp`).
//! - [`assign_axes`]: which axis of a configured `mesh_shape` serves which [`Strategy`].
//! - [`Placement`]: how a tensor lies along one axis.
//! - [`draw`]: a mesh in box-drawing cells.
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

mod draw;
mod error;
mod mesh;
mod placement;
pub mod schedule;
mod shape;
mod strategy;

pub use draw::draw;
pub use error::MeshError;
pub use mesh::{Axis, AxisHandle, Mesh};
pub use placement::Placement;
pub use shape::{MAX_DEVICES, MeshCoordinate, MeshCoordinateRange, MeshShape};
pub use strategy::{Strategy, assign_axes};
