//! The exact text of every error.

use crate::common::{Sandbox, bindings, bound, descriptor, golden, request};
use unisono_launch::{Program, Request};

/// Adds a case to the golden text.
fn case(text: &mut String, title: &str, sandbox: &Sandbox, request: &Request) {
    *text += &format!("== {title}\n{}\n", sandbox.tell(request));
}

#[test]
fn options() {
    let (sandbox, mut text) = (Sandbox::new(), String::new());
    let mut case = |title: &str, set: &dyn Fn(&mut Request)| {
        case(&mut text, title, &sandbox, &request(|request| set(request)));
    };
    let some = |word: &str| Some(word.to_string());
    case("no mode", &|_| {});
    case("two modes", &|request| {
        request.rank_binding = some("b.yaml");
        request.mesh_graph_descriptor = some("mgd.textproto");
    });
    case("three modes", &|request| {
        request.rank_binding = some("b.yaml");
        request.rank_bindings_mapping = some("m.yaml");
        request.np = Some(2);
    });
    case("a descriptor without hosts", &|request| {
        request.mesh_graph_descriptor = some("mgd.textproto")
    });
    for hosts in ["", " , ", "a,b,a", "a,-b", "a b,c", "a\tb"] {
        case(&format!("hosts {hosts:?}"), &|request| {
            request.mesh_graph_descriptor = some("mgd.textproto");
            request.hosts = some(hosts);
        });
    }
    case("a rank more than the descriptor has processes", &|request| {
        request.mesh_graph_descriptor = some("mgd.textproto");
        request.hosts = some("a,b,c");
    });
    case("no program", &|request| {
        request.np = Some(2);
        request.program = Program::default();
    });
    for program in ["nosuch", "./nosuch", "./b.yaml", ".", "prog", "b.yaml", ""] {
        case(&format!("program {program:?}"), &|request| {
            request.np = Some(2);
            request.program.words = vec![program.to_string()];
        });
    }
    case("an unchecked program", &|request| {
        request.np = Some(2);
        request.program.words = vec!["nosuch".to_string()];
        request.skip_executable_check = true;
    });
    for (np, hosts) in [(0, None), (1_000_000, None), (3, Some("a,b"))] {
        case(&format!("np {np} on {hosts:?}"), &|request| {
            request.np = Some(np);
            request.hosts = hosts.map(str::to_string);
        });
    }
    case("nnodes without hosts", &|request| {
        (request.nnodes, request.nproc_per_node) = (Some(2), Some(4));
    });
    case("nnodes with other hosts", &|request| {
        (request.nnodes, request.nproc_per_node) = (Some(2), Some(4));
        request.hosts = some("a,b,c");
    });
    case("bindings with hosts", &|request| {
        request.rank_binding = some("b.yaml");
        request.hosts = some("a,b");
        request.force_rediscovery = true;
    });
    for tracy in ["--port", "-t 0", "-t x", "--port=70000", "-o", "-o --x", "'"] {
        case(&format!("tracy {tracy}"), &|request| {
            request.np = Some(2);
            request.tracy = some(tracy);
        });
    }
    for args in ["--host", "'a", "--rankfile nosuch", "--hostfile nosuch", "--mca btl"] {
        case(&format!("mpi-args {args}"), &|request| {
            request.np = Some(2);
            request.mpi_args = args.to_string();
        });
    }
    golden("options.golden", &text);
}

#[test]
fn bindings_that_are_wrong() {
    let mut text = String::new();
    let d = "mesh_graph_desc_path: mgd.textproto\n";
    for (title, file) in [
        ("empty", String::new()),
        ("a list", "- rank: 0\n".to_string()),
        ("no ranks", d.to_string()),
        ("an empty list", format!("rank_bindings: []\n{d}")),
        ("a text", format!("rank_bindings: all\n{d}")),
        ("not YAML", "rank_bindings: [\n".to_string()),
        ("no descriptor", "rank_bindings: [{rank: 0, mesh_id: 0}]\n".to_string()),
        ("rank twice", bindings(&["0 0 0", "1 0 1", "1 0 1"], "mgd.textproto")),
        ("a gap", bindings(&["0 0 0", "2 0 1"], "mgd.textproto")),
        ("not from 0", bindings(&["1 0 0", "2 0 1"], "mgd.textproto")),
        (
            "numbers that are none",
            format!(
                "rank_bindings:\n- {{rank: -1, mesh_id: x}}\n- {{rank: 0, mesh_id: 0, mesh_host_rank: 1.5}}\n- \
                 {{rank: 99999999999, mesh_id: 0, subcontext_size: 0}}\n- {{mesh_id: 0}}\n- {{rank: 1}}\n- 3\n{d}"
            ),
        ),
        (
            "environments that are none",
            format!(
                "rank_bindings: [{{rank: 0, mesh_id: 0, env_overrides: [A]}}]\nglobal_env: {{A: [1], B: {{C: 1}}, \
                 \"X=Y\": 1, TT_VISIBLE_DEVICES: 0, TT_METAL_VISIBLE_DEVICES: 1}}\n{d}"
            ),
        ),
        (
            "names of variables that are none",
            format!(
                "rank_bindings: [{{rank: 0, mesh_id: 0, env_overrides: {{\"F G\": a, 1a: a, A-B: a}}}}]\nglobal_env: {{\"\": a, \"H=I\": a, \
                 Ä: a, _A1: a}}\n{d}"
            ),
        ),
        (
            "a key twice",
            format!("rank_bindings: [{{rank: 0, rank: 1, mesh_id: 0}}]\n{d}"),
        ),
        (
            "an old and a new name",
            format!("rank_bindings: [{{rank: 0, mesh_id: 0, mesh_host_rank: 0, host_rank_id: 1}}]\n{d}"),
        ),
        ("a missing descriptor", bindings(&["0 0"], "nosuch.textproto")),
        ("a descriptor that is a folder", bindings(&["0 0"], ".")),
        ("a descriptor of version 1", bindings(&["0 0"], "t3k.yaml")),
        ("a descriptor that is none", bindings(&["0 0"], "b.yaml")),
        (
            "a rank more than the descriptor has processes",
            bindings(&["0 0 0", "1 0 1", "2 0 2"], "mgd.textproto"),
        ),
        ("a rank fewer", bindings(&["0 0 0"], "mgd.textproto")),
        (
            "a mesh that is not there",
            bindings(&["0 0 0", "1 0 1", "2 5"], "mgd.textproto"),
        ),
        ("a process twice", bindings(&["0 0 1", "1 0 1"], "mgd.textproto")),
        (
            "a process that is not there",
            bindings(&["0 0 0", "1 0 2"], "mgd.textproto"),
        ),
        ("a process for some", bindings(&["0 0 0", "1 0"], "mgd.textproto")),
        ("a process for none", bindings(&["0 0", "1 0"], "mgd.textproto")),
    ] {
        let sandbox = Sandbox::new();
        sandbox.write("b.yaml", &file);
        case(&mut text, title, &sandbox, &bound(|_| {}));
    }
    let sandbox = Sandbox::new();
    case(
        &mut text,
        "no file",
        &sandbox,
        &bound(|request| request.rank_binding = Some("nosuch.yaml".into())),
    );
    case(
        &mut text,
        "a folder",
        &sandbox,
        &bound(|request| request.rank_binding = Some(".".into())),
    );
    golden("bindings.golden", &text);
}

#[test]
fn mappings_that_are_wrong() {
    const KEY: &str = "subcontext_id_to_rank_bindings";
    let mut text = String::new();
    let conflict = format!("{}global_env: {{A: \"1\"}}\n", bindings(&["0 0"], "one.textproto"));
    for (title, mapping) in [
        ("empty", String::new()),
        ("no key", "files: {0: b.yaml}\n".to_string()),
        ("a list", format!("{KEY}: [b.yaml]\n")),
        ("no file", format!("{KEY}: {{}}\n")),
        ("not from 0", format!("{KEY}: {{1: b.yaml}}\n")),
        ("not in order", format!("{KEY}: {{0: b.yaml, 2: b.yaml, 1: b.yaml}}\n")),
        ("no number", format!("{KEY}: {{a: b.yaml}}\n")),
        ("no path", format!("{KEY}: {{0: }}\n")),
        ("a missing overlay", format!("{KEY}: {{0: b.yaml, 1: nosuch.yaml}}\n")),
        (
            "a conflict of global_env",
            format!("{KEY}: {{0: c1.yaml, 1: c2.yaml}}\n"),
        ),
    ] {
        let sandbox = Sandbox::new();
        sandbox.write("m.yaml", &mapping);
        sandbox.write("one.textproto", &descriptor("1, 1", "1, 1"));
        sandbox.write("c1.yaml", &conflict);
        sandbox.write("c2.yaml", &conflict.replace("\"1\"", "\"2\""));
        let request = request(|request| request.rank_bindings_mapping = Some("m.yaml".into()));
        case(&mut text, title, &sandbox, &request);
    }
    golden("mappings.golden", &text);
}

#[test]
fn mock_files_that_are_wrong() {
    const KEY: &str = "rank_to_cluster_mock_cluster_desc";
    let mut text = String::new();
    for (title, mock) in [
        (
            "a cluster's own descriptor, for two ranks",
            "arch: blackhole\n".to_string(),
        ),
        ("a list", format!("{KEY}: [{{rank: 0, filename: a}}]\n")),
        ("no rank", format!("{KEY}: {{}}\n")),
        ("no number", format!("{KEY}: {{a: c.yaml}}\n")),
        ("a missing file", format!("{KEY}: {{0: c.yaml, 1: nosuch.yaml}}\n")),
        ("a rank fewer", format!("{KEY}: {{0: c.yaml}}\n")),
        ("right", format!("{KEY}: {{0: c.yaml, 1: c.yaml}}\n")),
        ("a rank more", format!("{KEY}: {{0: c.yaml, 1: c.yaml, 2: c.yaml}}\n")),
    ] {
        let sandbox = Sandbox::new();
        sandbox.write("mock.yaml", &mock);
        sandbox.write("c.yaml", "arch: blackhole\n");
        sandbox.write("m.yaml", "subcontext_id_to_rank_bindings: {0: b.yaml}\n");
        let mock = |request: &mut Request| request.mock_cluster_rank_binding = Some("mock.yaml".into());
        case(&mut text, &format!("{title}: bindings"), &sandbox, &bound(mock));
        let mapping = request(|request| {
            mock(request);
            request.rank_bindings_mapping = Some("m.yaml".into());
        });
        case(&mut text, &format!("{title}: mapping"), &sandbox, &mapping);
        let auto = request(|request| {
            mock(request);
            request.mesh_graph_descriptor = Some("mgd.textproto".into());
        });
        case(&mut text, &format!("{title}: descriptor"), &sandbox, &auto);
    }
    golden("mocks.golden", &text);
}
