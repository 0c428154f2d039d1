//! Sixteen lanes of f32 on every instruction set.
