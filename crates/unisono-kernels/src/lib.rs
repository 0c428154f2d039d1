//! *How fast*: CPU kernels over plain slices, each in the one canonical reduction order.
//!
//! A kernel knows nothing of devices, meshes or threads. Large kernels are plain structs of arguments with `tiles()` and
//! `run(tile, &mut Scratch)`: any worker may run any tile, in any order, and the bits of the result are the same, because
//! the order of every sum belongs to the output element and not to the tile ([`order`]).
//! Every kernel has a slow twin in plain loops that states its order, and is compared with it bit by bit.

pub mod attention;
pub mod bandwidth;
pub mod bf16_order;
pub mod cast;
pub mod combine;
pub mod copy;
pub mod cross_entropy;
pub mod dropout;
pub mod element;
pub mod elementwise;
pub mod embedding;
pub mod gemm;
pub mod isa;
pub mod math;
pub mod norm;
pub mod optimizer;
pub mod order;
pub mod out;
pub mod philox;
pub mod random;
pub mod reduce;
pub mod rope;
pub mod scratch;
pub mod simd;
pub mod softmax;
pub mod stream;
