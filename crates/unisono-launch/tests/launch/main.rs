//! The launcher's plan: files and options in, a job or everything that is wrong with them out.

mod auto;
mod bindings;
mod command;
mod common;
mod environment;
mod errors;
mod rankfiles;
