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

/// What the elements of a buffer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// 32-bit floating point.
    F32,
    /// 16-bit floating point with the exponent of f32.
    Bf16,
    /// 32-bit unsigned integers: token ids, masks.
    U32,
    /// 32-bit signed integers. They are moved, not computed with.
    I32,
    /// Bytes. They are moved, not computed with.
    U8,
}

impl Dtype {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Dtype::F32 | Dtype::U32 | Dtype::I32 => 4,
            Dtype::Bf16 => 2,
            Dtype::U8 => 1,
        }
    }

    /// The word for reports, and in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "f32",
            Dtype::Bf16 => "bf16",
            Dtype::U32 => "u32",
            Dtype::I32 => "i32",
            Dtype::U8 => "u8",
        }
    }

    /// Whether they are numbers with a fraction.
    pub fn is_float(self) -> bool {
        matches!(self, Dtype::F32 | Dtype::Bf16)
    }

    /// Four-byte words that `len` elements take.
    pub(crate) fn words(self, len: usize) -> usize {
        len.div_ceil(4 / self.bytes())
    }
}

/// A piece of every device's arena: plain data, the same offset on each device of the mesh.
///
/// Offset and length count elements of `dtype`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufferRef {
    /// Number that no other buffer of this runtime has had.
    pub id: u64,
    /// First element, counted from the arena's start.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
    /// What they are.
    pub dtype: Dtype,
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
            offset: self.offset + from,
            len,
            ..*self
        }
    }

    /// Bytes of its elements.
    pub fn bytes(&self) -> u64 {
        (self.dtype.bytes() * self.len) as u64
    }
}

impl std::fmt::Debug for BufferRef {
    /// `b12[4096+256]`: the twelfth buffer, at element 4096 of the arena, 256 elements long; `b12[8192+256 bf16]` where they
    /// are not four bytes wide.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b{}[{}+{}", self.id >> SLOT_BITS, self.offset, self.len)?;
        match self.dtype {
            Dtype::F32 | Dtype::U32 => write!(f, "]"),
            Dtype::Bf16 | Dtype::I32 | Dtype::U8 => write!(f, " {}]", self.dtype.name()),
        }
    }
}

/// The low bits of an id say where the host keeps its books on the buffer; the high bits count buffers.
pub(crate) const SLOT_BITS: u32 = 24;
