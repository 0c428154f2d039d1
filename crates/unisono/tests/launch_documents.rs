//! The files that the launcher's documents show do what the documents say.

#![cfg(unix)]

mod common;

use common::Sandbox;
use common::launcher::run;
use std::path::Path;
use std::process::Command;

/// The patterns of docs/launcher.md and the hostfile of docs/clusters.md, from the repository's folder.
#[test]
fn the_documented_files_are_right() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sandbox = Sandbox::new();
    let copy = |folder: &str| {
        for entry in std::fs::read_dir(root.join(folder)).expect("the folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            sandbox.write(
                &format!("{folder}/{name}"),
                &std::fs::read_to_string(&path).expect("text"),
            );
        }
    };
    ["configs/launch", "configs/clusters"]
        .iter()
        .for_each(|folder| copy(folder));
    let rankfile = "--rankfile configs/launch/cluster.rankfile";
    let ranks = |arguments: &[&str]| {
        let words: Vec<&str> = ["run", "--dry-run", "--json"]
            .iter()
            .chain(arguments)
            .copied()
            .collect();
        run(&sandbox, &words).ended(0).json()
    };
    let one = ranks(&[
        "--rank-binding",
        "configs/launch/one-mesh.yaml",
        "train",
        "--mesh",
        "dp=4",
    ]);
    assert_eq!(
        (&one["ranks"][1]["mesh_id"], &one["ranks"][1]["mesh_host_rank"]),
        (&0.into(), &1.into())
    );
    let own = ranks(&[
        "--rank-binding",
        "configs/launch/independent.yaml",
        "train",
        "--mesh",
        "dp=2",
    ]);
    assert_eq!(own["ranks"][0]["environment"]["EXPERIMENT"], "first");
    assert_eq!(own["ranks"][1]["environment"]["EXPERIMENT"], "second");
    let emulated = [
        "--mesh-graph-descriptor",
        "configs/launch/four-hosts.textproto",
        "--hosts",
        "localhost",
    ];
    let emulated = ranks(&[&emulated[..], &["train", "--mesh", "dp=2,tp=4"]].concat());
    assert_eq!(emulated["ranks"].as_array().expect("ranks").len(), 4);
    assert!(sandbox.path("generated/ttrun").is_dir());
    let cluster = ranks(&[
        "--rank-binding",
        "configs/launch/cluster.yaml",
        "--mpi-args",
        rankfile,
        "true",
    ]);
    assert_eq!(
        (&cluster["ranks"][3]["host"], &cluster["ranks"][3]["slot"]),
        (&"node-b".into(), &"4-7".into())
    );
    let hosts = [
        "--np",
        "2",
        "--mpi-args",
        "--hostfile configs/clusters/hostfile",
        "train",
        "--mesh",
        "dp=2",
    ];
    assert_eq!(ranks(&hosts)["ranks"][1]["host"], "node-b");
    // What Kubernetes runs is a command of ours, and Slurm's script is one for bash.
    let job = sandbox.read("configs/clusters/mpijob.yaml");
    assert!(job.contains("[\"unisono\", \"run\", \"--np\", \"2\", \"--mpi-args\""));
    let check = Command::new("bash")
        .args(["-n", "configs/clusters/slurm.sbatch"])
        .current_dir(&root)
        .status();
    assert!(check.expect("bash").success());
    let drawing = run(
        &sandbox,
        &[
            "run",
            "--show",
            "--rank-binding",
            "configs/launch/one-mesh.yaml",
            "true",
        ],
    )
    .ended(0);
    drawing.says(&["rank 1 on", "mesh 0, process 1", "Dev. ID: 3"]);
}
