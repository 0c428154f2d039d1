//! What was asked for, by whom: the options of the launcher and the place that it was started from.

use crate::mpirun::Mpirun;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The options of the launcher, as they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `--rank-binding`: a file that says which rank has which part of which mesh.
    pub rank_binding: Option<String>,
    /// `--rank-bindings-mapping`: a file that joins several of them into one job.
    pub rank_bindings_mapping: Option<String>,
    /// `--mesh-graph-descriptor`: ranks come from a machine's description and `hosts`.
    pub mesh_graph_descriptor: Option<String>,
    /// `--np`: a number of ranks that need no file.
    pub np: Option<usize>,
    /// `--nnodes`: hosts, as torchrun has it.
    pub nnodes: Option<usize>,
    /// `--nproc-per-node`: ranks on each host, as torchrun has it.
    pub nproc_per_node: Option<usize>,
    /// `--hosts a,b`.
    pub hosts: Option<String>,
    /// `--mpi-args`: further arguments of MPI's launcher, as a shell would split them.
    pub mpi_args: String,
    /// `--mock-cluster-rank-binding`: a file that gives each rank a described cluster.
    pub mock_cluster_rank_binding: Option<String>,
    /// `--debug-gdbserver`: each rank waits for a debugger.
    pub debug_gdbserver: bool,
    /// `--tracy`: arguments of the profiler that each rank runs under.
    pub tracy: Option<String>,
    /// `--skip-executable-check`.
    pub skip_executable_check: bool,
    /// `--skip-mgd-check`.
    pub skip_mgd_check: bool,
    /// `--bare`: MPI's network settings stay as they are.
    pub bare: bool,
    /// `--tcp-interface`: the network interface of MPI's messages.
    pub tcp_interface: Option<String>,
    /// `--rankfile-syntax`.
    pub rankfile_syntax: RankfileSyntax,
    /// `--force-rediscovery`: files generated before are written anew.
    pub force_rediscovery: bool,
    /// Variables that every rank gets beside, later than what is passed on and before those of the files.
    pub exports: Vec<(String, String)>,
    /// What each rank runs.
    pub program: Program,
}

/// What each rank runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments; empty where none was named.
    pub words: Vec<String>,
    /// Whether it is unisono itself: then ranks write their lines as one program would.
    pub ours: bool,
    /// Whether its name was looked for among unisono's commands first, and is none.
    pub tried: bool,
}

/// How a rankfile is given to MPI's launcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RankfileSyntax {
    /// As the version of Open MPI wants it.
    #[default]
    Auto,
    /// `--rankfile PATH`
    Rankfile,
    /// `--map-by rankfile:file=PATH`
    MapBy,
    /// `--mca rmaps_rankfile_path PATH`
    Mca,
}

/// Where the launcher was started from: nothing else is read behind the caller's back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its environment.
    pub environment: BTreeMap<String, String>,
    /// Its working folder, absolute: the launch directory.
    pub directory: PathBuf,
    /// The name of its host.
    pub hostname: String,
    /// Processors that it may use.
    pub cores: usize,
    /// Whether it is the superuser.
    pub is_root: bool,
    /// MPI's launcher that was found, if one was.
    pub mpirun: Option<Mpirun>,
}

impl Caller {
    /// A variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let value = self.environment.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// Whether a resource manager has given out hosts, which MPI's launcher then knows by itself.
    pub fn has_allocation(&self) -> bool {
        let managers = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE", "COBALT_JOBID"];
        managers.iter().any(|name| self.variable(name).is_some())
    }
}
