//! A job: every rank with its place and environment, and how it is started.

use crate::agree::Machines;
use crate::mpirun::Mpirun;
use std::collections::BTreeMap;
use std::path::PathBuf;
use unisono_mesh::descriptor::Machine;
use unisono_train::config::{Note, Problem};

/// One process of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Its number, from 0.
    pub rank: usize,
    /// The host that it will run on, where that is known.
    pub host: Option<String>,
    /// Its processors, as a rankfile writes them.
    pub slot: Option<String>,
    /// The mesh that it belongs to; `None` in a job without bindings.
    pub mesh_id: Option<u32>,
    /// Which of the mesh's processes it is, row-major over the grid of hosts; `None` where nothing says so.
    pub mesh_host_rank: Option<u32>,
    /// The part of the job that it belongs to, where there are several.
    pub subcontext: Option<Subcontext>,
    /// The descriptor of its machine.
    pub descriptor: Option<PathBuf>,
    /// Variables that it is given beside what its host has.
    pub environment: BTreeMap<String, String>,
    /// The program and its arguments.
    pub words: Vec<String>,
}

/// A part of a job with bindings of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subcontext {
    /// Its number, from 0.
    pub id: usize,
    /// Its number of ranks, where the file says so.
    pub size: Option<usize>,
}

/// Everything that is needed to start a job.
#[derive(Clone, Debug)]
pub struct Job {
    /// The ranks in order.
    pub ranks: Vec<Rank>,
    /// Where the number of ranks was said, for messages: `--np 4`, or a file.
    pub whence: String,
    /// MPI's launcher.
    pub mpirun: Mpirun,
    /// Whether that launcher was found; otherwise the job can only be shown.
    pub mpirun_found: bool,
    /// Its arguments before those of the ranks.
    pub mpi_args: Vec<String>,
    /// Whether it is sure that all ranks run on the launcher's host.
    pub is_here: bool,
    /// The folder that it is started in.
    pub directory: PathBuf,
    /// Variables of the caller that it must not see.
    pub unset: Vec<String>,
    /// Files that must be written first.
    pub files: Vec<GeneratedFile>,
    /// Folders that must be made first.
    pub folders: Vec<PathBuf>,
    /// Whether `files` hold already what they must: a key beside them says so.
    pub files_are_current: bool,
    /// The machines that ranks belong to, by their descriptor.
    pub machines: BTreeMap<PathBuf, Machine>,
    /// Values of the caller's, by which a variable can be passed on by its name alone.
    pub(crate) inherited: BTreeMap<String, String>,
    /// What the user should know.
    pub notes: Vec<Note>,
}

/// Why a job cannot be started, one sentence a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
pub struct LaunchErrors {
    /// What is wrong, never empty.
    pub problems: Vec<Problem>,
    /// What else there is to say.
    pub notes: Vec<Note>,
}

/// A file that a job needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedFile {
    /// Where it lies, absolute.
    pub path: PathBuf,
    /// What it holds.
    pub bytes: Vec<u8>,
}

/// What a mode says: ranks without program and launcher.
pub(crate) struct Draft {
    pub ranks: Vec<Rank>,
    pub whence: String,
    pub placement: Placement,
    pub machines: Machines,
    pub files: Vec<GeneratedFile>,
    pub files_are_current: bool,
    pub keeps_descriptor: bool,
}

/// Which hosts take the ranks.
pub(crate) enum Placement {
    /// This one, or what MPI's launcher finds by itself.
    Here,
    /// These, with the number of ranks of each.
    Hosts(Vec<(String, usize)>),
}
