//! Names for device memory.

/// What a buffer holds, for the memory report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Model parameters.
    Parameter,
    /// Gradient accumulators.
    Gradient,
    /// Optimizer state.
    Optimizer,
    /// Activations and other intermediate tensors.
    Activation,
    /// Batches and other data copied in from the host.
    Data,
    /// Keys and values of earlier tokens.
    Cache,
}

impl Kind {
    /// All kinds, in the order in which reports list them.
    pub const ALL: [Kind; 6] = [
        Kind::Parameter,
        Kind::Gradient,
        Kind::Optimizer,
        Kind::Activation,
        Kind::Data,
        Kind::Cache,
    ];

    /// The word for reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Parameter => "parameters",
            Kind::Gradient => "gradients",
            Kind::Optimizer => "optimizer state",
            Kind::Activation => "activations",
            Kind::Data => "data",
            Kind::Cache => "key/value cache",
        }
    }
}

/// A piece of every device's arena: plain data, the same offset on each device of the mesh.
///
/// Elements are four bytes wide (f32 or u32); offset and length count elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufferRef {
    /// Number that no other buffer of this runtime has had.
    pub id: u64,
    /// First element in the arena.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
}

impl BufferRef {
    /// The elements `from..from + len` of this buffer, under the same id.
    ///
    /// # Panics
    /// If the range is not inside the buffer: a bug in unisono.
    pub fn part(&self, from: usize, len: usize) -> BufferRef {
        assert!(
            from.checked_add(len).is_some_and(|end| end <= self.len),
            "bug in unisono: elements {from}..{from}+{len} of a buffer of {}",
            self.len
        );
        BufferRef {
            id: self.id,
            offset: self.offset + from,
            len,
        }
    }
}

impl std::fmt::Debug for BufferRef {
    /// `b12[4096+256]`: the twelfth buffer, at element 4096 of the arena, 256 elements long.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b{}[{}+{}]", self.id >> SLOT_BITS, self.offset, self.len)
    }
}

/// The low bits of an id say where the host keeps its books on the buffer; the high bits count buffers.
pub(crate) const SLOT_BITS: u32 = 24;
