//! *Who runs what where*: from rank bindings, hosts and the environment to a [`Job`] and the command line that starts it.
//!
//! The files and options are those of `tt-run`; `docs/launcher.md` is the reference. Everything here is a function of its
//! arguments and of the files that they name: nothing is started, and only the mode with a descriptor and hosts writes
//! files ([`write_files`]). [`plan`] is the way in:
//!
//! ```text
//! Request (options) ─┐                    binding, mapping, mock ─▶ agree ─▶ env ─▶ Job ─▶ arguments ─▶ words of a command
//! Caller (where from) ┴─▶ plan ─▶ mode ─▶ auto (descriptor + hosts)
//!                                         np (a number of processes)
//! ```
//!
//! What is wrong comes all at once, a sentence each, with file, line and column where there is one.

mod agree;
mod arguments;
mod auto;
mod binding;
mod bound;
mod env;
mod hosts;
mod job;
mod mapping;
mod mock;
mod mpirun;
mod paths;
mod plan;
mod program;
mod rankfile;
mod request;
mod shell;
mod show;

pub use auto::write_files;
pub use binding::{Binding, Bindings};
pub use env::{BLOCKED, PASSED_PREFIXES};
pub use job::{GeneratedFile, Job, LaunchErrors, Rank, Subcontext};
pub use mpirun::{Flavour, Mpirun};
pub use plan::{MAX_RANKS, plan};
pub use program::on_path;
pub use rankfile::{HostLine, RankLine, RankfileText};
pub use request::{Caller, Program, RankfileSyntax, Request};
pub use shell::{quoted, split};
pub use show::drawing;
