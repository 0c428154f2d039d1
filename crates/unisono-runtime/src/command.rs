//! Commands: what a device can be told, as plain data.
//!
//! An operation is one file under `ops/`: a struct of buffers and numbers that implements [`Op`], and one line in the list
//! below. Nothing else needs to know of it: queues, accounting, traces and printing go through the trait.

use crate::buffer::BufferRef;
use crate::place::Place;
use std::fmt::Debug;
use std::sync::Arc;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::schedule::Collective;
use unisono_mesh::{AxisHandle, Mesh};

/// What a command costs on one device: what the null backend adds up and a simulator prices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Floating-point operations; a multiply-add counts as two.
    pub flops: u64,
    /// Bytes read from and written to the device's own memory.
    pub bytes: u64,
    /// Bytes that come from or go to peers.
    pub link_bytes: u64,
}

/// Which devices meet in a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// The devices that differ only in their position on this axis, which may be all devices as one ([`Mesh::all`]).
    Along(AxisHandle),
    /// All devices of the mesh.
    All,
}

/// An operation: plain data that says what it touches, what it costs and how to run one tile of it.
///
/// Tiles of one command may run at the same time and in any order; they write disjoint parts of the outputs.
pub trait Op: Debug {
    /// Short name for traces and messages.
    fn name(&self) -> &'static str;

    /// Calls `see` for every buffer that is read.
    fn reads(&self, see: &mut dyn FnMut(BufferRef));

    /// Calls `see` for every buffer that is written (a buffer that is updated is in both lists).
    fn writes(&self, see: &mut dyn FnMut(BufferRef));

    /// The devices that meet, for a collective; `None` for an operation that each device does alone.
    fn group(&self) -> Option<Group> {
        None
    }

    /// What a collective carries over links, and its payload in bytes, as [`Collective`] defines it.
    fn collective(&self) -> Option<(Collective, u64)> {
        None
    }

    /// Whether the member at position `target` of a group reads what the one at `source` holds; where they belong to different
    /// processes, it is sent.
    fn sends(&self, source: usize, target: usize) -> bool {
        let _ = (source, target);
        true
    }

    /// What it costs each device.
    fn cost(&self, mesh: &Mesh) -> Cost;

    /// Number of tiles on one device (of one group, for a collective): the same on each.
    fn tiles(&self) -> usize;

    /// Runs one tile on a device (for one group, for a collective).
    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch);
}

macro_rules! commands {
    ($($variant:ident($type:ty)),* $(,)?) => {
        /// Everything that a device can be told.
        #[derive(Clone, Debug)]
        pub enum Command {
            $(#[doc = concat!("See [`", stringify!($type), "`].")] $variant($type),)*
            /// A user's own operation.
            Custom(Arc<dyn Op + Send + Sync>),
        }

        impl Command {
            /// The operation behind the command.
            pub fn op(&self) -> &dyn Op {
                match self {
                    $(Command::$variant(op) => op,)*
                    Command::Custom(op) => op.as_ref(),
                }
            }
        }

        $(impl From<$type> for Command {
            fn from(op: $type) -> Command {
                Command::$variant(op)
            }
        })*
    };
}

commands! {
    Fill(crate::ops::fill::Fill),
    FillRandom(crate::ops::random::FillRandom),
    Copy(crate::ops::copy::Copy),
    Cast(crate::ops::cast::Cast),
    CacheAppend(crate::ops::cache::CacheAppend),
    Nll(crate::ops::nll::Nll),
    Map(crate::ops::elementwise::Map),
    MapGrad(crate::ops::elementwise::MapGrad),
    Combine(crate::ops::elementwise::Combine),
    Swiglu(crate::ops::swiglu::Swiglu),
    SwigluGrad(crate::ops::swiglu::SwigluGrad),
    Rope(crate::ops::rope::Rope),
    Dropout(crate::ops::dropout::Dropout),
    MatMul(crate::ops::matmul::MatMul),
    Attention(crate::ops::attention::Attention),
    AttentionGrad(crate::ops::attention::AttentionGrad),
    Norm(crate::ops::norm::Norm),
    NormGrad(crate::ops::norm::NormGrad),
    NormParamGrad(crate::ops::norm::NormParamGrad),
    Softmax(crate::ops::softmax::Softmax),
    SoftmaxGrad(crate::ops::softmax::SoftmaxGrad),
    LogitsMax(crate::ops::cross_entropy::LogitsMax),
    LogitsSum(crate::ops::cross_entropy::LogitsSum),
    TokenLoss(crate::ops::cross_entropy::TokenLoss),
    LogitsGrad(crate::ops::cross_entropy::LogitsGrad),
    Lookup(crate::ops::embedding::Lookup),
    LookupGrad(crate::ops::embedding::LookupGrad),
    ColumnSums(crate::ops::reduce::ColumnSums),
    RowSums(crate::ops::reduce::RowSums),
    RowSquares(crate::ops::reduce::RowSquares),
    VectorSum(crate::ops::reduce::VectorSum),
    SegmentSums(crate::ops::reduce::SegmentSums),
    ArgMax(crate::ops::reduce::ArgMax),
    Move(crate::ops::reduce::Move),
    AllReduce(crate::ops::all_reduce::AllReduce),
    Bucket(crate::ops::bucket::Bucket),
    RingSum(crate::ops::all_reduce::RingSum),
    AllGather(crate::ops::gather::AllGather),
    TakePart(crate::ops::gather::TakePart),
    Broadcast(crate::ops::gather::Broadcast),
    Scatter(crate::ops::gather::Scatter),
    ReduceScatter(crate::ops::reduce_scatter::ReduceScatter),
    AllToAll(crate::ops::exchange::AllToAll),
    Shift(crate::ops::exchange::Shift),
    PointToPoint(crate::ops::exchange::PointToPoint),
    Barrier(crate::ops::exchange::Barrier),
    SelectRows(crate::ops::gather::SelectRows),
    Control(crate::ops::optimizer::Control),
    AdamWStep(crate::ops::optimizer::AdamWStep),
    SgdStep(crate::ops::optimizer::SgdStep),
    Digest(crate::ops::digest::Digest),
}
