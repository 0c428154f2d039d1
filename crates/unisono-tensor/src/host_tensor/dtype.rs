//! The kinds of numbers that host arrays hold: those of the runtime, and two that it is about to have.

/// What the elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// f32
    F32,
    /// bf16
    Bf16,
    /// u32
    U32,
    /// i32
    I32,
    /// u8
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
    /// Name.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "f32",
            Dtype::Bf16 => "bf16",
            Dtype::U32 => "u32",
            Dtype::I32 => "i32",
            Dtype::U8 => "u8",
        }
    }
    /// Float.
    pub fn is_float(self) -> bool {
        matches!(self, Dtype::F32 | Dtype::Bf16)
    }
}
