//! The options of `unisono run` and tt-run.

use super::program::Child;
use crate::exit::Failure;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use unisono_launch::{MAX_RANKS, Program, RankfileSyntax, Request, quoted};

/// Options of `run`.
#[derive(Args)]
#[command(
    after_help = "The program and everything behind it is the program's: `unisono run --np 2 train -v` asks train to \
                        say more. Without a program it is `unisono train`; one of unisono's commands means unisono itself. \
                        Patterns, files and errors: docs/launcher.md"
)]
pub struct RunArgs {
    /// Start N ranks; no file is needed
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = ranks)]
    pub np: Option<usize>,
    /// The mesh of unisono's program, passed on to it: --mesh dp=2,tp=2
    #[arg(long, value_name = "AXES")]
    pub mesh: Option<String>,
    /// Start N ranks on each host, as torchrun
    #[arg(long, value_name = "N", alias = "nproc_per_node", allow_negative_numbers = true, value_parser = ranks)]
    pub nproc_per_node: Option<usize>,
    /// The number of hosts, as torchrun
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = ranks)]
    pub nnodes: Option<usize>,
    /// Rank bindings: a YAML file that says which rank has which part of which mesh
    #[arg(long, value_name = "FILE")]
    pub rank_binding: Option<String>,
    /// A YAML file that joins several files of rank bindings into one job
    #[arg(long, value_name = "FILE")]
    pub rank_bindings_mapping: Option<String>,
    /// Take the ranks from a mesh graph descriptor (a file or a built-in name) and --hosts
    #[arg(long, value_name = "FILE|NAME")]
    pub mesh_graph_descriptor: Option<String>,
    /// The hosts that take the ranks: a,b,c
    #[arg(long, value_name = "HOSTS", allow_hyphen_values = true)]
    pub hosts: Option<String>,
    /// Print the command as a line for a shell, and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Draw which rank and host owns which devices, and run nothing
    #[arg(long)]
    pub show: bool,
    /// Further arguments of MPI's launcher, split as a shell would
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub mpi_args: Option<String>,
    /// Seconds that a rank waits for another before the job ends
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds)]
    pub timeout: Option<u64>,
    /// Ranks whose standard output is shown: all, or 0,2 [default: rank 0]
    #[arg(long, value_name = "all|RANKS")]
    pub log_ranks: Option<String>,
    /// Start again after a bad end, at most N times; a training run goes on from its last checkpoint
    #[arg(long, value_name = "N", default_value_t = 0, alias = "max_restarts", allow_negative_numbers = true, value_parser = restarts)]
    pub max_restarts: u32,
    /// Start each rank under gdbserver, on port 20000 + rank
    #[arg(long)]
    pub debug_gdbserver: bool,
    /// Run each rank under the profiler tracy with these arguments; port and output are made per rank
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub tracy: Option<String>,
    /// A YAML file that gives each rank the descriptor of a mock cluster
    #[arg(long, value_name = "FILE")]
    pub mock_cluster_rank_binding: Option<String>,
    /// Do not ask that the program exists on this host
    #[arg(long)]
    pub skip_executable_check: bool,
    /// Do not ask that mesh graph descriptors exist on this host
    #[arg(long)]
    pub skip_mgd_check: bool,
    /// Leave MPI's network settings as they are
    #[arg(long)]
    pub bare: bool,
    /// The network interface of MPI's messages
    #[arg(long, value_name = "NAME")]
    pub tcp_interface: Option<String>,
    /// How a rankfile is given to MPI's launcher
    #[arg(long, value_name = "FORM", value_enum, default_value = "auto")]
    pub rankfile_syntax: Syntax,
    /// Write the files of --mesh-graph-descriptor anew
    #[arg(long)]
    pub force_rediscovery: bool,
    /// The default now; older tt-run asked for it
    #[arg(long, hide = true)]
    pub multihost: bool,
    /// The program that each rank runs, and its arguments [default: unisono train]
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, allow_hyphen_values = true)]
    pub program: Vec<String>,
}

/// A number of ranks, or of hosts that have some.
fn ranks(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MAX_RANKS).contains(number));
    number.ok_or_else(|| format!("a whole number from 1 to {MAX_RANKS} is needed"))
}

fn seconds(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "a whole number of seconds above 0 is needed".to_string())
}

fn restarts(text: &str) -> Result<u32, String> {
    let number = text.parse();
    number.map_err(|_| format!("a whole number from 0 (no restart) to {} is needed", u32::MAX))
}

/// See [`RankfileSyntax`].
#[derive(Clone, Copy, ValueEnum)]
pub enum Syntax {
    /// As the version of Open MPI wants it
    Auto,
    /// --rankfile PATH
    Rankfile,
    /// --map-by rankfile:file=PATH
    MapBy,
    /// --mca rmaps_rankfile_path PATH
    Mca,
}

impl RunArgs {
    /// Whether a program of unisono's, about to start, is asked for JSON: then what goes wrong before is JSON too.
    pub fn asks_for_json(&self) -> bool {
        let starts = !self.show && !self.dry_run;
        let ours = Child::of(&self.program, None).is_ok_and(|child| child.ours);
        starts && ours && self.program.iter().any(|word| word == "--json")
    }

    /// The line by which a user who started `unisono train` with these words goes on with the run, up to the run's folder; none where
    /// they are no text. What the options of the program said, the run knows.
    pub fn resume_line(&self, words: impl Iterator<Item = OsString>) -> Option<String> {
        let words: Result<Vec<String>, OsString> = words.map(OsString::into_string).collect();
        let words = words.ok()?;
        let launcher = &words[..words.len().checked_sub(self.program.len())?];
        let mut line: Vec<String> = launcher.iter().map(|word| quoted(word)).collect();
        if line.last().is_none_or(|word| word != "--") {
            line.push("--".to_string());
        }
        // A program that was named by its path keeps its name.
        let names_ours = Child::named(&self.program, None).is_ok_and(|program| program.ours);
        line.extend(self.program.first().filter(|_| names_ours).map(|word| quoted(word)));
        line.extend(["train", "--resume"].map(str::to_string));
        Some(line.join(" "))
    }

    /// What the launcher is asked for.
    ///
    /// # Errors
    /// Ranks of `--log-ranks` that are none.
    pub fn request(&self, child: &Child) -> Result<Request, Failure> {
        let mut exports = Vec::new();
        let mut export =
            |name: &str, value: Option<String>| exports.extend(value.map(|value| (name.to_string(), value)));
        export("UNISONO_TIMEOUT", self.timeout.map(|seconds| seconds.to_string()));
        export("UNISONO_LOG_RANKS", self.log_ranks.clone());
        Ok(Request {
            rank_binding: self.rank_binding.clone(),
            rank_bindings_mapping: self.rank_bindings_mapping.clone(),
            mesh_graph_descriptor: self.mesh_graph_descriptor.clone(),
            np: self.np,
            nnodes: self.nnodes,
            nproc_per_node: self.nproc_per_node,
            hosts: self.hosts.clone(),
            mpi_args: self.mpi_args.clone().unwrap_or_default(),
            mock_cluster_rank_binding: self.mock_cluster_rank_binding.clone(),
            debug_gdbserver: self.debug_gdbserver,
            tracy: self.tracy.clone(),
            skip_executable_check: self.skip_executable_check,
            skip_mgd_check: self.skip_mgd_check,
            bare: self.bare,
            tcp_interface: self.tcp_interface.clone(),
            rankfile_syntax: match self.rankfile_syntax {
                Syntax::Auto => RankfileSyntax::Auto,
                Syntax::Rankfile => RankfileSyntax::Rankfile,
                Syntax::MapBy => RankfileSyntax::MapBy,
                Syntax::Mca => RankfileSyntax::Mca,
            },
            force_rediscovery: self.force_rediscovery,
            exports,
            program: Program {
                words: child.words.clone(),
                ours: child.ours,
                tried: child.tried,
            },
        })
    }
}
