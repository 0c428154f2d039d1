//! Ranks from a machine's descriptor and a list of hosts (`--mesh-graph-descriptor` with `--hosts`).
//!
//! tt-run starts a program on every host that finds out which devices it has. Here the descriptor says it all: its meshes'
//! `host_topology` gives the processes, and the sorted hosts take them in turn. The same files come out.

use crate::binding::{Binding, Bindings};
use crate::bound;
use crate::job::{Draft, GeneratedFile, Placement};
use crate::request::{Caller, Request};
use crate::{hosts, mock, paths};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use unisono_mesh::descriptor::{self, Machine};
use unisono_train::config::{Findings, Place};

/// Where the files of a job are written, below the launch directory.
const FOLDER: &str = "generated/ttrun";
/// Beside them: what they were made from.
const KEY_FILE: &str = ".phase1_cache_key";
/// Hexadecimal digits of the key that name the folder.
const SHORT: usize = 16;
/// The copy of the descriptor.
const DESCRIPTOR_FILE: &str = "mesh_graph_descriptor.textproto";

/// Writes files and makes folders; a file that holds its bytes already is left as it is.
///
/// # Errors
/// What the system says, with the path.
pub fn write_files(files: &[GeneratedFile], folders: &[PathBuf]) -> Result<(), String> {
    let failed = |path: &Path, error: std::io::Error| format!("{} cannot be written: {error}", path.display());
    for folder in folders {
        std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    }
    for file in files {
        if std::fs::read(&file.path).is_ok_and(|bytes| bytes == file.bytes) {
            continue;
        }
        let folder = file.path.parent().unwrap_or(Path::new("."));
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file.path, &file.bytes));
        written.map_err(|error| failed(&file.path, error))?;
    }
    Ok(())
}

/// The draft of the mode; `descriptor` is a file, or the name of a built-in one.
pub(crate) fn draft(name: &str, request: &Request, caller: &Caller, findings: &mut Findings) -> Option<Draft> {
    let before = findings.problems.len();
    let hosts = match (&request.hosts, &request.mock_cluster_rank_binding) {
        (Some(text), _) => hosts::parse(text, findings),
        (None, Some(_)) => Vec::new(),
        (None, None) => {
            let message = "--mesh-graph-descriptor needs --hosts a,b (or --mock-cluster-rank-binding FILE): who \
                           carries the machine that it describes?";
            findings.problem(None, message);
            Vec::new()
        }
    };
    let machine = machine(name, caller, findings);
    let mock_path = request.mock_cluster_rank_binding.as_deref();
    let mock = mock_path
        .and_then(|path| mock::read(path, caller, findings))
        .unwrap_or_default();
    let (bytes, machine) = machine.filter(|_| findings.problems.len() == before)?;
    let processes = machine.hosts().len();
    if let Some(path) = mock_path {
        mock::check(&mock, path, processes, findings);
    }
    let mut sorted = hosts;
    sorted.sort();
    if !sorted.is_empty() && (processes < sorted.len() || processes % sorted.len() != 0) {
        findings.problem(
            None,
            format!(
                "--hosts names {} hosts, and {name} describes {processes} processes (host_topology): each host takes \
                 the same number of them",
                sorted.len()
            ),
        );
    }
    if findings.problems.len() > before {
        return None;
    }
    let key = key(&bytes, &sorted, &mock, findings)?;
    let folder = folder(&key, caller);
    let generated = Generated {
        folder: &folder,
        machine: &machine,
        hosts: &sorted,
        each: processes / sorted.len().max(1),
    };
    let files_are_current = !request.force_rediscovery && key_in(&folder).is_some_and(|found| found == key);
    let mut files = generated.files(bytes, &mock);
    files.push(GeneratedFile {
        path: folder.join(KEY_FILE),
        bytes: key.into_bytes(),
    });
    let mut draft = bound::draft(&generated.bindings(), &mock, request, caller, &mut Findings::default());
    for rank in &mut draft.ranks {
        rank.host = generated.host_of(rank.rank).map(str::to_string);
    }
    // The copy need not be there yet.
    draft.machines = [(folder.join(DESCRIPTOR_FILE), machine.clone())].into();
    draft.whence = name.to_string();
    draft.placement = match sorted.is_empty() {
        true => Placement::Here,
        false => Placement::Hosts(sorted.iter().map(|host| (host.clone(), generated.each)).collect()),
    };
    draft.files = files;
    draft.files_are_current = files_are_current;
    Some(draft)
}

/// The descriptor's text and what it describes.
fn machine(name: &str, caller: &Caller, findings: &mut Findings) -> Option<(Vec<u8>, Machine)> {
    let builtin = descriptor::BUILTINS.iter().find(|builtin| builtin.name == name);
    if let (Some(builtin), false) = (builtin, caller.directory.join(name).exists()) {
        let checked = descriptor::open(name).map_err(|error| findings.problem(None, error.to_string()));
        return Some((builtin.text.as_bytes().to_vec(), checked.ok()?.machine));
    }
    let path = paths::file(name, "--mesh-graph-descriptor", None, false, caller, None, findings)?;
    let checked = descriptor::load(&path).map_err(|error| findings.problem(None, error.to_string()));
    let machine = checked.ok()?.machine;
    let bytes = std::fs::read(&path);
    let bytes = bytes.map_err(|error| findings.problem(None, format!("{} cannot be read: {error}", path.display())));
    Some((bytes.ok()?, machine))
}

/// What the files are made from: the descriptor, a byte 0, then the sorted hosts as JSON, or of each rank with a described
/// cluster its number, a byte 0 and the hash of its file. 64 hexadecimal digits.
fn key(
    descriptor: &[u8],
    hosts: &[String],
    mock: &BTreeMap<usize, PathBuf>,
    findings: &mut Findings,
) -> Option<String> {
    let mut hash = Sha256::new();
    hash.update(descriptor);
    hash.update([0]);
    if mock.is_empty() {
        hash.update(serde_json::json!(hosts).to_string());
    }
    for (rank, path) in mock {
        let bytes = std::fs::read(path);
        let bytes =
            bytes.map_err(|error| findings.problem(None, format!("{} cannot be read: {error}", path.display())));
        hash.update(rank.to_string());
        hash.update([0]);
        hash.update(Sha256::digest(bytes.ok()?));
    }
    Some(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The folder of a key: by its first digits, or by all of them where another key has that folder.
fn folder(key: &str, caller: &Caller) -> PathBuf {
    let below = caller.directory.join(FOLDER);
    let short = below.join(&key[..SHORT]);
    match key_in(&short) {
        Some(other) if other != key => below.join(key),
        _ => short,
    }
}

fn key_in(folder: &Path) -> Option<String> {
    let text = std::fs::read_to_string(folder.join(KEY_FILE)).ok()?;
    Some(text.trim().to_string())
}

/// What the files say.
struct Generated<'a> {
    folder: &'a Path,
    machine: &'a Machine,
    hosts: &'a [String],
    /// Ranks on each host.
    each: usize,
}

impl Generated<'_> {
    fn host_of(&self, rank: usize) -> Option<&str> {
        self.hosts.get(rank / self.each).map(String::as_str)
    }

    fn bindings(&self) -> Bindings {
        let descriptor = self.folder.join(DESCRIPTOR_FILE);
        let file = self.folder.join("rank_bindings.yaml").display().to_string();
        let hosts = self.machine.hosts().into_iter().enumerate();
        let ranks = hosts.map(|(rank, host)| Binding {
            rank,
            mesh_id: self.machine.blocks[host.block].id,
            mesh_host_rank: Some(host.rank as u32),
            env_overrides: Vec::new(),
            subcontext_id: None,
            subcontext_size: None,
            descriptor: descriptor.clone(),
            place: Place::whole_file(&file),
        });
        Bindings {
            ranks: ranks.collect(),
            global_env: Vec::new(),
            file,
            descriptor: descriptor.clone(),
        }
    }

    fn files(&self, descriptor: Vec<u8>, mock: &BTreeMap<usize, PathBuf>) -> Vec<GeneratedFile> {
        let bindings = self.bindings();
        let mut yaml = String::from("rank_bindings:\n");
        for binding in &bindings.ranks {
            let host_rank = binding.mesh_host_rank.unwrap_or_default();
            yaml += &format!(
                "- rank: {}\n  mesh_id: {}\n  mesh_host_rank: {host_rank}\n",
                binding.rank, binding.mesh_id
            );
        }
        let path = bindings.descriptor.display().to_string();
        yaml += &format!("mesh_graph_desc_path: {}\n", serde_json::json!(path));
        let file = |name: &str, bytes: Vec<u8>| GeneratedFile {
            path: self.folder.join(name),
            bytes,
        };
        let mut files = vec![
            file(DESCRIPTOR_FILE, descriptor),
            file("rank_bindings.yaml", yaml.into_bytes()),
        ];
        if !self.hosts.is_empty() {
            let placed = bindings.ranks.iter().map(|binding| {
                let host = self.host_of(binding.rank).unwrap_or_default();
                format!("rank {}={host} slot={}\n", binding.rank, binding.rank % self.each)
            });
            files.push(file("rankfile", placed.collect::<String>().into_bytes()));
            let hosts = self.hosts.iter().map(|host| format!("{host} slots={}\n", self.each));
            files.push(file("hostfile", hosts.collect::<String>().into_bytes()));
        }
        if !mock.is_empty() {
            let mut yaml = String::from("rank_to_cluster_mock_cluster_desc:\n");
            for (rank, path) in mock {
                yaml += &format!("  {rank}: {}\n", serde_json::json!(path.display().to_string()));
            }
            files.push(file("phase2_mock_mapping.yaml", yaml.into_bytes()));
        }
        files
    }
}
