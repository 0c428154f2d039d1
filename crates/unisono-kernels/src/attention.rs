//! Causal attention, forward and backward, without a T×T matrix.
