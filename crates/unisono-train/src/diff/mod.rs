//! Comparing two runs, bit by bit.
