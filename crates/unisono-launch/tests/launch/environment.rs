//! What a rank's environment holds, and which value wins.

use crate::common::{Sandbox, bindings, bound, request};
use std::collections::BTreeMap;
use unisono_launch::{BLOCKED, Caller};

fn caller(sandbox: &Sandbox, variables: &[(&str, &str)]) -> Caller {
    let mut caller = sandbox.caller();
    let variables = variables
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()));
    caller.environment.extend(variables);
    caller
}

fn environments(sandbox: &Sandbox, variables: &[(&str, &str)]) -> Vec<BTreeMap<String, String>> {
    let job = sandbox.job_of(&bound(|_| {}), &caller(sandbox, variables));
    job.ranks.into_iter().map(|rank| rank.environment).collect()
}

#[test]
fn prefixes_are_passed_and_a_ranks_own_names_never() {
    let sandbox = Sandbox::new();
    let mut variables = vec![
        ("TT_LOG", "1"),
        ("ARCH_NAME", "2"),
        ("WH_X", "3"),
        ("TTNN_X", "4"),
        ("DEEPSEEK_X", "5"),
        ("MESH_DEVICE", "6"),
        ("UNISONO_LOG", "debug"),
        ("OTHER", "7"),
        ("GITHUB_TOKEN", "secret"),
    ];
    variables.extend(BLOCKED.map(|name| (name, "parent's")));
    let job = sandbox.job_of(&bound(|_| {}), &caller(&sandbox, &variables));
    for rank in &job.ranks {
        let environment = &rank.environment;
        for (name, value) in &variables[..7] {
            assert_eq!(environment.get(*name).map(String::as_str), Some(*value), "{name}");
        }
        assert!(!environment.contains_key("OTHER") && !environment.contains_key("GITHUB_TOKEN"));
        assert!(environment.values().all(|value| value != "parent's"), "{environment:?}");
        assert!(!environment.contains_key("TT_VISIBLE_DEVICES"));
    }
    // Local ranks inherit MPI's launcher's environment, so that it must not have them either.
    let mut unset: Vec<&str> = BLOCKED.into_iter().chain(["GITHUB_TOKEN"]).collect();
    unset.sort_unstable();
    assert_eq!(job.unset, unset);
}

#[test]
fn defaults_are_the_launch_directory_and_the_caller_wins_over_them() {
    let sandbox = Sandbox::new();
    let launch = sandbox.path("").display().to_string();
    let launch = launch.trim_end_matches('/');
    let of = |environment: &BTreeMap<String, String>, name: &str| environment.get(name).cloned();
    let plain = &environments(&sandbox, &[])[1];
    for (name, value) in [
        ("TT_METAL_HOME", launch.to_string()),
        ("TT_METAL_RUNTIME_ROOT", launch.to_string()),
        ("PYTHONPATH", launch.to_string()),
        ("LD_LIBRARY_PATH", format!("{launch}/build/lib")),
        ("TT_RUN_ORIGINAL_CWD", launch.to_string()),
        ("TT_MESH_ID", "0".to_string()),
        ("TT_MESH_HOST_RANK", "1".to_string()),
        ("TT_MESH_GRAPH_DESC_PATH", format!("{launch}/mgd.textproto")),
        ("HOME", "/home/u".to_string()),
    ] {
        assert_eq!(of(plain, name), Some(value), "{name}");
    }
    for name in [
        "PYTHONHOME",
        "VIRTUAL_ENV",
        "TT_RUN_SUBCONTEXT_ID",
        "TT_METAL_LOGS_PATH",
    ] {
        assert_eq!(of(plain, name), None, "{name}");
    }
    let home = sandbox.path("metal").display().to_string();
    let set = [
        ("TT_METAL_HOME", home.as_str()),
        ("PYTHONPATH", "/p"),
        ("LD_LIBRARY_PATH", "/l"),
        ("PYTHONHOME", "/h"),
        ("VIRTUAL_ENV", "/v"),
    ];
    let given = &environments(&sandbox, &set)[0];
    for (name, value) in set.iter().chain(&[("TT_METAL_RUNTIME_ROOT", home.as_str())]) {
        assert_eq!(of(given, name), Some(value.to_string()), "{name}");
    }
    // A mesh that names no process has none in its environment.
    sandbox.write("b.yaml", &bindings(&["0 0", "1 0"], "mgd.textproto"));
    assert_eq!(of(&environments(&sandbox, &[])[1], "TT_MESH_HOST_RANK"), None);
}

#[test]
fn overrides_win_over_global_env_and_both_over_the_caller() {
    let sandbox = Sandbox::new();
    let text = bindings(&["0 0 0", "1 0 1"], "mgd.textproto").replace(
        "  mesh_host_rank: 1\n",
        "  mesh_host_rank: 1\n  env_overrides: {TT_A: own, TT_MESH_ID: \"9\", PATHS: \"$TT_A:${NO}:${HOME}\"}\n",
    );
    sandbox.write(
        "b.yaml",
        &format!("{text}global_env: {{TT_A: all, TT_B: all, PYTHONPATH: /all}}\n"),
    );
    let environments = environments(&sandbox, &[("TT_A", "parent"), ("TT_B", "parent"), ("TT_C", "parent")]);
    let of = |rank: usize, name: &str| environments[rank][name].as_str();
    assert_eq!((of(0, "TT_A"), of(0, "TT_B"), of(0, "TT_C")), ("all", "all", "parent"));
    assert_eq!(
        (of(1, "TT_A"), of(1, "TT_B"), of(1, "PYTHONPATH")),
        ("own", "all", "/all")
    );
    assert_eq!((of(0, "TT_MESH_ID"), of(1, "TT_MESH_ID")), ("0", "9"));
    // $VAR means the caller's, not another line of the file.
    assert_eq!(of(1, "PATHS"), "parent:${NO}:/home/u");
}

#[test]
fn caches_and_logs_are_each_ranks_own() {
    let sandbox = Sandbox::new();
    let of = |variables: &[(&str, &str)], name: &str| environments(&sandbox, variables)[1].get(name).cloned();
    let some = |value: &str| Some(value.to_string());
    assert_eq!(of(&[], "TT_METAL_CACHE"), some("/home/u/.cache/node_rank1"));
    for name in ["TT_METAL_CACHE", "TT_METAL_LOGS_PATH"] {
        assert_eq!(of(&[(name, "/c")], name), some("/c/node_rank_1"));
        assert_eq!(of(&[(name, "/c/")], name), some("/c/node_rank_1"));
        assert_eq!(
            of(&[(name, "/c/node_rank_1")], name),
            some("/c/node_rank_1"),
            "not doubled"
        );
        assert_eq!(
            of(&[(name, "/c/node_rank_0")], name),
            some("/c/node_rank_0/node_rank_1")
        );
    }
    let text = bindings(&["0 0 0", "1 0 1"], "mgd.textproto");
    sandbox.write("b.yaml", &format!("{text}global_env: {{TT_METAL_CACHE: /shared}}\n"));
    assert_eq!(
        of(&[("TT_METAL_CACHE", "/c")], "TT_METAL_CACHE"),
        some("/shared"),
        "as it is written"
    );
}

#[test]
fn without_bindings_only_other_hosts_are_told() {
    let sandbox = Sandbox::new();
    let caller = caller(
        &sandbox,
        &[
            ("TT_LOG", "1"),
            ("OTHER", "2"),
            ("TT_MESH_GRAPH_DESC_PATH", "/m"),
            ("TT_MESH_ID", "3"),
        ],
    );
    let local = sandbox.job_of(&request(|request| request.np = Some(2)), &caller);
    assert!(local.ranks[0].environment.is_empty());
    assert_eq!(local.unset, ["TT_MESH_ID"]);
    let remote = request(|request| {
        request.np = Some(2);
        request.hosts = Some("a,b".into());
        request.exports = vec![("UNISONO_TIMEOUT".into(), "9".into())];
    });
    let environment = sandbox.job_of(&remote, &caller).ranks[0].environment.clone();
    let names: Vec<&str> = environment.keys().map(String::as_str).collect();
    assert_eq!(names, ["HOME", "TT_LOG", "TT_MESH_GRAPH_DESC_PATH", "UNISONO_TIMEOUT"]);
}
