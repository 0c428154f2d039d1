//! The command line of unisono.

fn main() {}
