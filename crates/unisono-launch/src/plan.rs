//! From what was asked for to a job: the mode, its ranks, and the words that start them.

use crate::agree::Machines;
use crate::arguments::{self, Args};
use crate::job::{Draft, Job, LaunchErrors, Placement, Rank};
use crate::mpirun::Mpirun;
use crate::program::{self, Tracy};
use crate::request::{Caller, Request};
use crate::{auto, binding, bound, env, hosts, mapping, mock, paths};
use std::collections::BTreeMap;
use unisono_train::config::Findings;

/// Most ranks of a job: more is a slip.
pub const MAX_RANKS: usize = 65_536;
/// The ways to say which ranks there are.
const MODES: &str = "--rank-binding, --rank-bindings-mapping, --mesh-graph-descriptor with --hosts, or --np";

/// Works out a job. Files are read, none is written, and nothing is started.
///
/// # Errors
/// Everything that is wrong with the options and files.
pub fn plan(request: &Request, caller: &Caller) -> Result<Job, LaunchErrors> {
    let mut findings = Findings::default();
    let job = build(request, caller, &mut findings);
    findings.limit();
    match job {
        Some(mut job) if findings.problems.is_empty() => {
            job.notes = findings.notes;
            Ok(job)
        }
        _ => {
            assert!(!findings.problems.is_empty(), "bug in unisono: no job, and no word why");
            Err(LaunchErrors {
                problems: findings.problems,
                notes: findings.notes,
            })
        }
    }
}

fn build(request: &Request, caller: &Caller, findings: &mut Findings) -> Option<Job> {
    let mode = mode(request, findings)?;
    program::check(request, caller, findings);
    let tracy = request.tracy.as_deref().map(|text| Tracy::parse(text, findings));
    let args = Args::parse(request, caller, findings);
    let draft = match mode {
        Mode::Bindings => bindings(request, caller, findings),
        Mode::Descriptor(path) => auto::draft(path, request, caller, findings),
        Mode::Count => count(request, caller, findings),
    };
    let tracy = match tracy {
        Some(tracy) => Some(tracy?),
        None => None,
    };
    let (mut draft, args) = (draft?, args?);
    args.place(&mut draft, findings);
    let mut folders = Vec::new();
    for rank in &mut draft.ranks {
        rank.words = program::words(request, tracy.as_ref(), rank.rank, caller);
        if let Some(tracy) = &tracy {
            let folder = tracy.folder(rank.rank, caller);
            let variable = "TT_METAL_PROFILER_DIR".to_string();
            rank.environment.insert(variable, folder.display().to_string());
            folders.push(folder);
        }
    }
    env::tell_hidden(&draft.ranks, caller, findings);
    let (launcher, found) = match &caller.mpirun {
        Some(mpirun) => (mpirun.clone(), true),
        None => (Mpirun::absent(), false),
    };
    let is_this = |host: &String| *host == caller.hostname || host == "localhost";
    let is_here = match draft
        .ranks
        .iter()
        .map(|rank| rank.host.as_ref())
        .collect::<Option<Vec<_>>>()
    {
        Some(hosts) => hosts.into_iter().all(is_this),
        None => args.is_local(&draft, caller),
    };
    let mpi_args = args.finish(&draft, &launcher, request, caller, findings);
    Some(Job {
        ranks: draft.ranks,
        whence: draft.whence,
        mpirun: launcher,
        mpirun_found: found,
        mpi_args,
        is_here,
        directory: caller.directory.clone(),
        unset: env::unset(caller, draft.keeps_descriptor),
        files: draft.files,
        files_are_current: draft.files_are_current,
        folders,
        machines: draft.machines,
        inherited: caller.environment.clone(),
        notes: Vec::new(),
    })
}

/// Which ranks there are is said in one of these ways.
enum Mode<'a> {
    Bindings,
    Descriptor(&'a str),
    Count,
}

fn mode<'a>(request: &'a Request, findings: &mut Findings) -> Option<Mode<'a>> {
    let counts = [
        ("--np", request.np.is_some()),
        ("--nproc-per-node", request.nproc_per_node.is_some()),
        (
            "--nnodes",
            request.nnodes.is_some() && request.nproc_per_node.is_none() && request.np.is_none(),
        ),
    ];
    let files = [
        ("--rank-binding", request.rank_binding.is_some()),
        ("--rank-bindings-mapping", request.rank_bindings_mapping.is_some()),
        ("--mesh-graph-descriptor", request.mesh_graph_descriptor.is_some()),
    ];
    let given: Vec<&str> = files
        .iter()
        .chain(&counts)
        .filter(|(_, given)| *given)
        .map(|(name, _)| *name)
        .collect();
    match given.as_slice() {
        [] => {
            findings.problem(None, format!("nothing says which ranks there are: give one of {MODES}"));
            return None;
        }
        [_] => {}
        many => {
            let many = unisono_train::config::listed(many, "and");
            findings.problem(
                None,
                format!("{many} each say which ranks there are: give only one of {MODES}"),
            );
            return None;
        }
    }
    if request.force_rediscovery && request.mesh_graph_descriptor.is_none() {
        findings.note(
            None,
            "--force-rediscovery has no meaning without --mesh-graph-descriptor and is ignored",
        );
    }
    let is_bindings = request.rank_binding.is_some() || request.rank_bindings_mapping.is_some();
    if is_bindings && request.hosts.is_some() {
        let message = "--hosts has no meaning with rank bindings and is ignored: a rankfile places their ranks \
                       (--mpi-args \"--rankfile FILE\")";
        findings.note(None, message);
    }
    if let (Some(np), Some(nodes)) = (request.np, request.nnodes) {
        if np < nodes {
            let message = format!(
                "--np {np} and --nnodes {nodes} disagree: each host has at least one rank, and --np is the number of all of them"
            );
            findings.problem(None, message);
            return None;
        }
        findings.note(None, "--nnodes only counts the hosts; --np gives all ranks");
    }
    Some(match (&request.mesh_graph_descriptor, is_bindings) {
        (Some(path), _) => Mode::Descriptor(path),
        (None, true) => Mode::Bindings,
        (None, false) => Mode::Count,
    })
}

fn bindings(request: &Request, caller: &Caller, findings: &mut Findings) -> Option<Draft> {
    let skip = request.skip_mgd_check;
    let (path, what, is_mapping) = match (&request.rank_binding, &request.rank_bindings_mapping) {
        (Some(path), _) => (path, "--rank-binding", false),
        (None, path) => (path.as_ref()?, "--rank-bindings-mapping", true),
    };
    let read = paths::file(path, what, None, false, caller, None, findings);
    let mock_path = request.mock_cluster_rank_binding.as_deref();
    let mock = mock_path.map(|path| mock::read(path, caller, findings));
    let file = read?;
    let bindings = match is_mapping {
        false => binding::read(&file, skip, caller, findings)?,
        // As in tt-run the option does not reach the files of a mapping.
        true => mapping::read(&file, false, caller, findings)?,
    };
    let mock = match mock {
        Some(mock) => mock?,
        None => BTreeMap::new(),
    };
    if let Some(path) = mock_path {
        if is_mapping {
            mock::check(&mock, path, bindings.ranks.len(), findings);
        } else if let Some(binding) = bindings.ranks.iter().find(|binding| !mock.contains_key(&binding.rank)) {
            let message = format!(
                "--mock-cluster-rank-binding {path} has no file for rank {}, which {} binds",
                binding.rank, bindings.file
            );
            findings.problem(Some(binding.place.clone()), message);
        }
    }
    Some(bound::draft(&bindings, &mock, request, caller, findings))
}

/// A number of ranks, on this host or shared out among `--hosts`.
fn count(request: &Request, caller: &Caller, findings: &mut Findings) -> Option<Draft> {
    let hosts = request.hosts.as_ref().map(|text| hosts::parse(text, findings));
    let hosts = hosts.unwrap_or_default();
    let (ranks, whence) = match (request.np, request.nproc_per_node, request.nnodes) {
        (Some(np), ..) => (np, format!("--np {np}")),
        (None, Some(each), nodes) => {
            let nodes = nodes.unwrap_or(hosts.len().max(1));
            (
                each.saturating_mul(nodes),
                format!("--nnodes {nodes} --nproc-per-node {each}"),
            )
        }
        (None, None, nodes) => {
            let nodes = nodes.unwrap_or(1);
            (nodes, format!("--nnodes {nodes}"))
        }
    };
    if ranks == 0 || ranks > MAX_RANKS {
        findings.problem(
            None,
            format!("{whence} gives {ranks} ranks: 1 to {MAX_RANKS} are possible"),
        );
        return None;
    }
    if let Some(nodes) = request.nnodes {
        if !hosts.is_empty() && hosts.len() != nodes {
            let message = format!("--nnodes {nodes} and --hosts with {} hosts disagree", hosts.len());
            findings.problem(None, message);
        } else if nodes > 1
            && hosts.is_empty()
            && !caller.has_allocation()
            && !arguments::names_hosts(&request.mpi_args)
        {
            let message = format!(
                "--nnodes {nodes}: nothing names the {nodes} hosts; give --hosts a,b or a hostfile \
                                   (--mpi-args \"--hostfile FILE\")"
            );
            findings.problem(None, message);
        }
    }
    if !hosts.is_empty() && ranks % hosts.len() != 0 {
        let message = format!(
            "{whence} cannot be shared out evenly among the {} hosts of --hosts",
            hosts.len()
        );
        findings.problem(None, message);
        return None;
    }
    let each = ranks / hosts.len().max(1);
    let remote = !hosts.is_empty() || caller.has_allocation() || arguments::names_hosts(&request.mpi_args);
    let environment = env::plain(&request.exports, remote, caller);
    let ranks = (0..ranks).map(|rank| Rank {
        rank,
        host: hosts.get(rank / each.max(1)).cloned(),
        slot: None,
        mesh_id: None,
        mesh_host_rank: None,
        subcontext: None,
        descriptor: None,
        environment: environment.clone(),
        words: Vec::new(),
    });
    Some(Draft {
        ranks: ranks.collect(),
        whence,
        placement: match hosts.is_empty() {
            true => Placement::Here,
            false => Placement::Hosts(hosts.into_iter().map(|host| (host, each)).collect()),
        },
        machines: Machines::new(),
        files: Vec::new(),
        files_are_current: false,
        keeps_descriptor: true,
    })
}
