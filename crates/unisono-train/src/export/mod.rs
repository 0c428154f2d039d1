//! Weights for other programs.
