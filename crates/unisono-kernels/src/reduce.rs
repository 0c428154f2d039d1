//! Row and column sums, squared norms, argmax.
