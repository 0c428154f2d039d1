//! What can go wrong with tensors.

use unisono_mesh::MeshError;
use unisono_runtime::RuntimeError;

/// Errors of tensors and operations. The messages are complete sentences for the user.
#[derive(Debug, Clone, thiserror::Error, PartialEq)]
pub enum TensorError {
    /// Shapes that an operation cannot take together.
    #[error("{op}: {found}; {rule}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// The shapes given.
        found: String,
        /// What would be right.
        rule: String,
    },
    /// A partial sum where a complete value is needed.
    #[error(
        "{op}: {what} is still a partial sum over axis `{axis}`; a partial sum can only be moved or reduced: call all_reduce(\"{axis}\") on it first{hint}"
    )]
    Partial {
        /// The operation.
        op: &'static str,
        /// Which tensor, with its shape.
        what: String,
        /// The mesh axis.
        axis: String,
        /// A further word, or nothing.
        hint: &'static str,
    },
    /// Placements that do not fit together.
    #[error("{op}: along mesh axis `{axis}`, {found}; {rule}")]
    Placement {
        /// The operation.
        op: &'static str,
        /// The mesh axis.
        axis: String,
        /// The placements given.
        found: String,
        /// What would be right.
        rule: String,
    },
    /// A use of the gradient machinery that cannot be right.
    #[error("{0}")]
    Gradient(String),
    /// An argument outside its range.
    #[error("{op}: {what}")]
    Argument {
        /// The operation.
        op: &'static str,
        /// What was given, and the rule.
        what: String,
    },
    /// From the mesh.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// From the runtime.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}
