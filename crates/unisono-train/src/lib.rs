//! Configuration, plan, training loop, checkpoints, metrics and generation of unisono.

pub mod checkpoint;
pub mod config;
pub mod diff;
pub mod export;
