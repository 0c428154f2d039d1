//! Unary and binary elementwise functions and their gradients.
