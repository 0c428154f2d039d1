//! Own mathematical functions: the same bits on every machine.
