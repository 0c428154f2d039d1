//! The two orders in which products of bf16 add up, of which a run chooses one.

/// In which order a leaf of a product of bf16 is added up: part of the arithmetic, as [`crate::order`] is, and not of the
/// machine. Each runs on every CPU to the same bits; the two differ in their last bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Bf16Order {
    /// Pair after pair, as the instruction `vdpbf16ps` of AVX512-BF16 adds.
    #[default]
    Pairs,
    /// By chunks of 16 pairs, the first and the second elements apart, as the instruction `tdpbf16ps` of AMX adds.
    Tiles,
}

impl Bf16Order {
    /// Both, the default first.
    pub const ALL: [Bf16Order; 2] = [Bf16Order::Pairs, Bf16Order::Tiles];

    /// Name as in configurations and headers.
    pub fn name(self) -> &'static str {
        match self {
            Bf16Order::Pairs => "pairs",
            Bf16Order::Tiles => "tiles",
        }
    }
}
