//! The environment of a rank: what it inherits, what the launcher sets, what the files say.

use crate::binding::{Binding, Bindings};
use crate::job::Rank;
use crate::request::Caller;
use crate::shell::{is_variable, is_variable_char};
use std::collections::BTreeMap;
use std::path::Path;
use unisono_mesh::visible::{TT as VISIBLE, UNISONO as UNISONO_VISIBLE};
use unisono_train::config::Findings;

/// Variables with these beginnings are passed on to every rank.
pub const PASSED_PREFIXES: [&str; 7] = ["TT_", "ARCH_", "WH_", "TTNN_", "DEEPSEEK_", "MESH_", "UNISONO_"];
/// Never inherited: these are a rank's own.
pub const BLOCKED: [&str; 10] = [
    "TT_MESH_ID",
    "TT_MESH_HOST_RANK",
    DESCRIPTOR,
    "TT_RUN_ORIGINAL_CWD",
    "TT_RUN_SUBCONTEXT_ID",
    "TT_RUN_SUBCONTEXT_SIZES",
    MOCK,
    VISIBLE,
    "UNISONO_RUN_DIR",
    "UNISONO_RUN_LINE",
];
/// The variable that names a rank's descriptor.
const DESCRIPTOR: &str = "TT_MESH_GRAPH_DESC_PATH";
/// The variable that names a rank's described cluster.
const MOCK: &str = "TT_METAL_MOCK_CLUSTER_DESC_PATH";
/// Variables of runners of continuous integration, secrets among them: no business of a rank.
const RUNNER_PREFIXES: [&str; 3] = ["GITHUB_", "RUNNER_", "ACTIONS_"];
/// Folders that each rank needs for itself.
const PER_RANK_FOLDERS: [&str; 2] = ["TT_METAL_CACHE", "TT_METAL_LOGS_PATH"];

/// Variables by name.
pub(crate) type Variables = BTreeMap<String, String>;

/// Names that are set at the caller and must be taken from the environment of MPI's launcher, which local ranks inherit.
/// Without bindings (`keep_descriptor`) the caller's descriptor holds for all ranks.
pub(crate) fn unset(caller: &Caller, keep_descriptor: bool) -> Vec<String> {
    let is_unset = |name: &&String| is_blocked(name, keep_descriptor);
    caller.environment.keys().filter(is_unset).cloned().collect()
}

fn is_blocked(name: &str, keep_descriptor: bool) -> bool {
    let blocked = BLOCKED.contains(&name) && !(keep_descriptor && name == DESCRIPTOR);
    blocked || RUNNER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Says that the caller's choice of devices does not reach the ranks, where they have none of their own.
pub(crate) fn tell_hidden(ranks: &[Rank], caller: &Caller, findings: &mut Findings) {
    let is_without = |rank: &Rank| !rank.environment.contains_key(VISIBLE);
    if let (Some(value), Some(rank)) = (caller.variable(VISIBLE), ranks.iter().find(|rank| is_without(rank))) {
        let message = format!(
            "{VISIBLE}={value} does not reach rank {}: as in tt-run the caller's is never passed on; give each rank its own by \
             env_overrides of its binding, or all of them {UNISONO_VISIBLE}",
            rank.rank
        );
        findings.note(None, message);
    }
}

/// What every rank inherits by the beginning of its name.
fn passed(caller: &Caller, keep_descriptor: bool) -> Variables {
    let is_passed = |name: &str| {
        PASSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !is_blocked(name, keep_descriptor)
    };
    let variables = caller.environment.iter().filter(|(name, _)| is_passed(name));
    variables.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The environment of all ranks of a job without bindings. Ranks on the launcher's host inherit everything anyway, so
/// that only other hosts (`remote`) need to be told.
pub(crate) fn plain(exports: &[(String, String)], remote: bool, caller: &Caller) -> Variables {
    let mut variables = Variables::new();
    if remote {
        variables = passed(caller, true);
        inherit(
            &["HOME", "USER", "PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV"],
            caller,
            &mut variables,
        );
    }
    variables.extend(exports.iter().cloned());
    variables
}

/// The environment of a rank of `bindings`. Later steps win over earlier ones.
pub(crate) fn of_rank(
    binding: &Binding,
    bindings: &Bindings,
    mock: Option<&Path>,
    exports: &[(String, String)],
    caller: &Caller,
) -> Variables {
    let launch = caller.directory.display().to_string();
    let or_default = |name: &str, default: String| caller.variable(name).map_or(default, str::to_string);
    // 1. Passed on.
    let mut variables = passed(caller, false);
    // 2. Set.
    let home = or_default("TT_METAL_HOME", launch.clone());
    let mut set = |name: &str, value: String| variables.insert(name.to_string(), value);
    set("TT_MESH_ID", binding.mesh_id.to_string());
    set(DESCRIPTOR, binding.descriptor.display().to_string());
    set(
        "TT_METAL_RUNTIME_ROOT",
        or_default("TT_METAL_RUNTIME_ROOT", home.clone()),
    );
    set("TT_METAL_HOME", home);
    set("PYTHONPATH", or_default("PYTHONPATH", launch.clone()));
    set(
        "LD_LIBRARY_PATH",
        or_default("LD_LIBRARY_PATH", format!("{launch}/build/lib")),
    );
    set("TT_RUN_ORIGINAL_CWD", launch);
    // 3. Of the user.
    inherit(
        &["HOME", "USER", "PATH", "VIRTUAL_ENV", "PYTHONHOME"],
        caller,
        &mut variables,
    );
    // Folders of a rank's own, which explicit values replace below.
    for (name, value) in folders(binding.rank, caller) {
        variables.insert(name, value);
    }
    // 4. Of this rank.
    let mut set = |name: &str, value: Option<String>| value.map(|value| variables.insert(name.to_string(), value));
    set("TT_MESH_HOST_RANK", binding.mesh_host_rank.map(|rank| rank.to_string()));
    set("TT_RUN_SUBCONTEXT_ID", binding.subcontext_id.map(|id| id.to_string()));
    set(MOCK, mock.map(|path| path.display().to_string()));
    variables.extend(exports.iter().cloned());
    // 5. What the files say.
    let global = bindings.global_env.iter().map(|(name, value, _)| (name, value));
    let own = binding.env_overrides.iter().map(|(name, value)| (name, value));
    for (name, value) in global.chain(own) {
        variables.insert(name.clone(), expand(value, &caller.environment));
    }
    variables
}

fn inherit(names: &[&str], caller: &Caller, variables: &mut Variables) {
    for name in names {
        if let Some(value) = caller.variable(name) {
            variables.insert(name.to_string(), value.to_string());
        }
    }
}

/// The folders that each rank has for itself: below the caller's, or for the cache below `~/.cache`.
fn folders(rank: usize, caller: &Caller) -> Vec<(String, String)> {
    let host = &caller.hostname;
    let own = format!("{host}_rank_{rank}");
    let mut folders = Vec::new();
    for name in PER_RANK_FOLDERS {
        if let Some(folder) = caller.variable(name) {
            let folder = folder.trim_end_matches('/');
            let is_own = Path::new(folder).file_name().is_some_and(|last| last == own.as_str());
            let folder = if is_own {
                folder.to_string()
            } else {
                format!("{folder}/{own}")
            };
            folders.push((name.to_string(), folder));
        } else if let ("TT_METAL_CACHE", Some(home)) = (name, caller.variable("HOME")) {
            folders.push((name.to_string(), format!("{home}/.cache/{host}_rank{rank}")));
        }
    }
    folders
}

/// `$VAR` and `${VAR}` with the caller's values; unknown ones stay as they are written.
fn expand(text: &str, variables: &Variables) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        let braced = behind.strip_prefix('{').and_then(|behind| behind.split_once('}'));
        let (name, after) = match braced {
            Some((name, after)) if is_variable(name) => (name, after),
            _ => {
                let end = behind.find(|c: char| !is_variable_char(c)).unwrap_or(behind.len());
                behind.split_at(end)
            }
        };
        let whole = &rest[at..rest.len() - after.len()];
        match variables.get(name) {
            Some(value) if is_variable(name) => expanded.push_str(value),
            _ => expanded.push_str(whole),
        }
        rest = after;
    }
    expanded + rest
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn variables_are_expanded_and_unknown_ones_stay() {
        let variables = [("PWD", "/w"), ("A_1", "x"), ("E", "")];
        let variables = variables
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .into();
        for (text, expected) in [
            ("${PWD}/a:$PWD", "/w/a:/w"),
            ("$A_1-$A_12", "x-$A_12"),
            ("${NO} $NO ${} $ $$ $1 a$", "${NO} $NO ${} $ $$ $1 a$"),
            ("${PWD", "${PWD"),
            ("[$E]", "[]"),
            ("ä$PWDä", "ä/wä"),
            ("${a${PWD}", "${a/w"),
        ] {
            assert_eq!(expand(text, &variables), expected, "{text}");
        }
    }
}
