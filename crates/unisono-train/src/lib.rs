//! Configuration, plan, training loop, checkpoints, metrics and generation of unisono.

pub mod adapters;
pub mod arrays;
pub mod checkpoint;
pub mod config;
pub mod dataset;
pub mod diff;
pub mod error;
pub mod evaluate;
pub mod export;
pub mod generate;
pub mod hub;
pub mod metrics;
pub mod model;
pub mod peft;
pub mod plan;
pub mod run;
mod shards;
pub mod start;
pub mod step;
mod votes;

pub use error::{Result, TrainError};
pub use metrics::{Event, Record, Tracker};
pub use plan::Plan;
