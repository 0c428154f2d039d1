//! The command line of MPI's launcher.

use crate::common::{Sandbox, bindings, bound, golden, request};
use unisono_launch::{Caller, Flavour, Mpirun, RankfileSyntax, Request};

/// The words before the first rank's.
fn head(sandbox: &Sandbox, request: &Request) -> String {
    let words = sandbox.job(request).command(&[]);
    let end = words.iter().position(|word| word == "-np").expect("ranks");
    words[..end].join(" ")
}

fn args(text: &str) -> Request {
    bound(|request| request.mpi_args = text.to_string())
}

#[test]
fn versions_are_read() {
    for (text, flavour, version) in [
        (
            "mpirun (Open MPI) 4.1.4\n\nReport bugs to ...",
            Flavour::OpenMpi,
            Some((4, 1)),
        ),
        ("mpirun (Open MPI) 5.0.3rc1", Flavour::OpenMpi, Some((5, 0))),
        (
            "HYDRA build details:\n    Version:                                 4.0.2\n",
            Flavour::Mpich,
            Some((4, 0)),
        ),
        (
            "Intel(R) MPI Library for Linux* OS, Version 2021.9",
            Flavour::Mpich,
            Some((2021, 9)),
        ),
    ] {
        let mpirun = Mpirun::parse("m", text).expect("it is known");
        assert_eq!((mpirun.flavour, mpirun.version), (flavour, version), "{text}");
    }
    assert_eq!(Mpirun::parse("m", "something else"), None);
    assert_eq!(Mpirun::parse("m", ""), None);
}

#[test]
fn the_arguments_before_the_ranks() {
    let sandbox = Sandbox::new();
    const NETWORK: &str = "--mca btl self,tcp --mca btl_tcp_if_exclude docker0,lo";
    let start = "mpirun --bind-to none --tag-output --oversubscribe";
    assert_eq!(head(&sandbox, &bound(|_| {})), format!("{start} {NETWORK}"));
    assert_eq!(head(&sandbox, &bound(|request| request.bare = true)), start);
    assert_eq!(
        head(&sandbox, &bound(|request| request.program.ours = true)),
        "mpirun --bind-to none --oversubscribe --mca btl_tcp_if_exclude docker0,lo"
    );
    assert_eq!(
        head(&sandbox, &bound(|request| request.tcp_interface = Some("lo".into()))),
        format!("{start} --mca btl self,tcp --mca btl_tcp_if_include lo")
    );
    // What the user says wins.
    assert_eq!(
        head(
            &sandbox,
            &args("--bind-to core --mca btl self,vader --mca btl_tcp_if_include e0")
        ),
        "mpirun --tag-output --oversubscribe --bind-to core --mca btl self,vader --mca btl_tcp_if_include e0"
    );
    assert_eq!(
        head(&sandbox, &args("--oversubscribe")),
        format!("mpirun --bind-to none --tag-output {NETWORK} --oversubscribe")
    );
    // Hosts: crowded only where a bare name is repeated.
    let hosts = |hosts: &str| head(&sandbox, &args(&format!("--host {hosts}")));
    assert_eq!(
        hosts("a,b"),
        format!("mpirun --bind-to none --tag-output {NETWORK} --host a,b")
    );
    assert_eq!(hosts("a,a"), format!("{start} {NETWORK} --host a,a"));
    assert_eq!(
        hosts("a:2,a:2"),
        format!("mpirun --bind-to none --tag-output {NETWORK} --host a:2,a:2")
    );
    // Without bindings on one host MPI's network settings are left alone.
    assert_eq!(head(&sandbox, &request(|request| request.np = Some(2))), start);
    let counted = request(|request| {
        (request.nnodes, request.nproc_per_node, request.hosts) = (Some(2), Some(3), Some("b,a".into()))
    });
    assert_eq!(
        head(&sandbox, &counted),
        format!("mpirun --bind-to none --tag-output {NETWORK} --map-by slot --host b:3,a:3")
    );
}

#[test]
fn a_rankfile_is_given_in_the_form_that_was_asked_for() {
    let sandbox = Sandbox::new();
    sandbox.write("sub/rf", "rank 0=b slot=0\nrank 1=a slot=0\n");
    const NETWORK: &str = "--mca btl self,tcp --mca btl_tcp_if_exclude docker0,lo";
    let absolute = sandbox.path("sub/rf").display().to_string();
    for given in [
        "--rankfile sub/rf".to_string(),
        format!("-rf {absolute}"),
        "--map-by rankfile:file=sub/rf".to_string(),
        format!("--mca rmaps_rankfile_path {absolute}"),
    ] {
        for (syntax, form) in [
            (RankfileSyntax::Auto, "--rankfile sub/rf"),
            (RankfileSyntax::Rankfile, "--rankfile sub/rf"),
            (RankfileSyntax::Mca, "--mca rmaps_rankfile_path sub/rf"),
        ] {
            let mut request = args(&given);
            request.rankfile_syntax = syntax;
            assert_eq!(
                head(&sandbox, &request),
                format!("mpirun --tag-output {NETWORK} --host b,a {form}")
            );
        }
    }
    let mut caller = sandbox.caller();
    caller.mpirun = Mpirun::parse("mpirun", "mpirun (Open MPI) 5.0.1");
    let words = sandbox
        .job_of(&args("--rankfile sub/rf"), &caller)
        .command(&[])
        .join(" ");
    assert!(words.contains(" --map-by rankfile:file=sub/rf "), "{words}");
    // That form is refused where the version does not know it, and taken where it does or nobody knows the version.
    let mut request = args("--rankfile sub/rf");
    request.rankfile_syntax = RankfileSyntax::MapBy;
    let words = sandbox.job_of(&request, &caller).command(&[]).join(" ");
    assert!(words.contains(" --map-by rankfile:file=sub/rf "), "{words}");
    assert_eq!(
        sandbox.tell(&request),
        "error: --rankfile-syntax map-by needs Open MPI 5.0 or newer, and mpirun here is of Open MPI 4.1: leave the option away, or \
         write --rankfile-syntax rankfile\n"
    );
    let unknown = Caller {
        mpirun: None,
        ..caller.clone()
    };
    assert!(unisono_launch::plan(&request, &unknown).is_ok());
    // Without a rankfile the option says nothing.
    request.mpi_args = String::new();
    assert!(unisono_launch::plan(&request, &sandbox.caller()).is_ok());
    // The hosts of the user stay; two ranks on a host crowd it.
    sandbox.write("sub/rf", "rank 0=a slot=0\nrank 1=a slot=1\n");
    assert_eq!(
        head(&sandbox, &args("--rankfile sub/rf --host a:2")),
        format!("mpirun --tag-output --oversubscribe {NETWORK} --rankfile sub/rf --host a:2")
    );
    // From a folder beside, the way is still relative.
    std::fs::create_dir(sandbox.path("work")).expect("a folder");
    caller.directory = sandbox.path("work");
    caller
        .environment
        .insert("TT_METAL_HOME".into(), sandbox.path("").display().to_string());
    let mut request = args(&format!("--rankfile {absolute}"));
    request.program.words = vec!["../prog".into()];
    let words = sandbox.job_of(&request, &caller).command(&[]).join(" ");
    assert!(words.contains("rankfile:file=../sub/rf"), "{words}");
}

#[test]
fn the_line_for_a_shell() {
    let sandbox = Sandbox::new();
    let odd = [
        "--name", "a b", "--note", ":", "--config", "x=y", "-v", "", "it's", "$HOME",
    ];
    let mut text = String::new();
    let mut request = bound(|request| request.program.words.extend(odd.map(str::to_string)));
    let mut caller = sandbox.caller();
    let variables = [
        ("TT_ODD", "a; b"),
        ("TT_PLAIN", "p"),
        ("TT_VISIBLE_DEVICES", "0"),
        ("TT_MESH_ID", "7"),
    ];
    caller
        .environment
        .extend(variables.map(|(name, value)| (name.to_string(), value.to_string())));
    text += &sandbox.job_of(&request, &caller).shell_line();
    // Without a colon the words stand as they are.
    request.program.words.truncate(3);
    text += &format!("\n{}", sandbox.job_of(&request, &caller).shell_line());
    request.debug_gdbserver = true;
    text += &format!("\n{}", sandbox.job(&request).shell_line());
    request.debug_gdbserver = false;
    request.tracy = Some("-r -t 9000 -o out".into());
    let job = sandbox.job(&request);
    assert_eq!(job.folders, [sandbox.path("out/rank0"), sandbox.path("out/rank1")]);
    text += &format!("\n{}\n", job.shell_line());
    let folder = sandbox.path("").display().to_string();
    golden("line.golden", &text.replace(folder.trim_end_matches('/'), "DIR"));
}

#[test]
fn ranks_are_started_in_order_and_equal_ones_together() {
    let sandbox = Sandbox::new();
    sandbox.write("b.yaml", &bindings(&["1 0 1", "0 0 0"], "mgd.textproto"));
    let words = sandbox
        .job(&bound(|_| {}))
        .command(&[("UNISONO_RUN_DIR".into(), "/r".into())]);
    let segments: Vec<&[String]> = words.split(|word| word == ":").collect();
    assert_eq!(segments.len(), 2);
    for (rank, segment) in segments.iter().enumerate() {
        assert!(segment.contains(&format!("TT_MESH_HOST_RANK={rank}")));
        assert!(segment.contains(&"UNISONO_RUN_DIR=/r".to_string()));
        assert_eq!(segment.last().map(String::as_str), Some("./prog"));
    }
    let job = sandbox.job(&request(|request| request.np = Some(5)));
    assert!(job.command(&[]).join(" ").ends_with("-np 5 ./prog"));
}

#[test]
fn mpich_has_its_own_options() {
    let sandbox = Sandbox::new();
    let mut caller = sandbox.caller();
    caller.mpirun = Mpirun::parse("mpiexec", "HYDRA build details:\n Version: 4.0.2");
    let request = request(|request| {
        request.np = Some(4);
        request.hosts = Some("a,b".into());
        request.exports = vec![("UNISONO_TIMEOUT".into(), "5".into())];
    });
    let words = sandbox.job_of(&request, &caller).command(&[]).join(" ");
    assert_eq!(
        words,
        "mpiexec -l -hosts a:2,b:2 -n 4 -env HOME /home/u -env UNISONO_TIMEOUT 5 ./prog"
    );
    sandbox.write("rf", "rank 0=a slot=0\nrank 1=a slot=0\n");
    let refused = unisono_launch::plan(&args("--rankfile rf"), &caller).expect_err("only Open MPI's");
    assert!(
        refused.to_string().contains("only Open MPI places ranks by a rankfile"),
        "{refused}"
    );
}

#[test]
fn what_keeps_a_job_from_starting_is_said_before() {
    let sandbox = Sandbox::new();
    let mut caller = sandbox.caller();
    let refusal = |request: &Request, caller: &unisono_launch::Caller| sandbox.job_of(request, caller).refusal(caller);
    assert_eq!(refusal(&bound(|_| {}), &caller), None);
    caller.is_root = true;
    let said = refusal(&bound(|_| {}), &caller).expect("Open MPI refuses");
    assert!(
        said.contains("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"),
        "{said}"
    );
    assert_eq!(refusal(&args("--allow-run-as-root"), &caller), None);
    caller.environment.insert("OMPI_ALLOW_RUN_AS_ROOT".into(), "1".into());
    assert!(refusal(&bound(|_| {}), &caller).is_some(), "one is not enough");
    caller
        .environment
        .insert("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM".into(), "1".into());
    assert_eq!(refusal(&bound(|_| {}), &caller), None);
    caller.mpirun = None;
    let said = refusal(&bound(|_| {}), &caller).expect("there is none");
    assert!(said.contains("openmpi-bin"), "{said}");
    let crowded = unisono_launch::Caller {
        cores: 1,
        ..sandbox.caller()
    };
    let notes = sandbox.job_of(&request(|request| request.np = Some(3)), &crowded).notes;
    assert_eq!(notes[0].message, "3 ranks share 1 core: they take turns");
}
