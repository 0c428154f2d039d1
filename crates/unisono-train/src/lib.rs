//! Configuration, plan, training loop, checkpoints, metrics and generation of unisono.

pub mod config;
