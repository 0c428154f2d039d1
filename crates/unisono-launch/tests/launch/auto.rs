//! Ranks from a descriptor and hosts: the files that are generated and the job that comes of them.

use crate::common::{Sandbox, bound, descriptor, request};
use unisono_launch::{Job, Request, plan, write_files};

fn auto(hosts: &str) -> Request {
    request(|request| {
        request.mesh_graph_descriptor = Some("mgd.textproto".into());
        request.hosts = Some(hosts.into());
    })
}

/// A generated file by its name.
fn file(job: &Job, name: &str) -> String {
    let file = job.files.iter().find(|file| file.path.ends_with(name));
    let file = file.unwrap_or_else(|| panic!("no {name}"));
    String::from_utf8(file.bytes.clone()).expect("text")
}

#[test]
fn the_sorted_hosts_take_the_processes_in_order() {
    let sandbox = Sandbox::new();
    let job = sandbox.job(&auto(" b, a,"));
    assert_eq!(file(&job, "rankfile"), "rank 0=a slot=0\nrank 1=b slot=0\n");
    assert_eq!(file(&job, "hostfile"), "a slots=1\nb slots=1\n");
    let hosts: Vec<_> = job
        .ranks
        .iter()
        .map(|rank| rank.host.clone().expect("it is placed"))
        .collect();
    assert_eq!(hosts, ["a", "b"]);
    let words = job.command(&[]).join(" ");
    assert!(words.contains("--map-by slot --host a:1,b:1 -np 1"), "{words}");
    // Two hosts, emulated on one.
    let one = sandbox.job(&auto("localhost"));
    assert_eq!(
        file(&one, "rankfile"),
        "rank 0=localhost slot=0\nrank 1=localhost slot=1\n"
    );
    assert_eq!(file(&one, "hostfile"), "localhost slots=2\n");
}

#[test]
fn the_files_work_as_bindings_of_their_own() {
    let sandbox = Sandbox::new();
    sandbox.write("mgd.textproto", &descriptor("4, 4", "2, 2"));
    let job = sandbox.job(&auto("d,c,b,a"));
    write_files(&job.files, &job.folders).expect("they can be written");
    let bindings = job
        .files
        .iter()
        .find(|file| file.path.ends_with("rank_bindings.yaml"))
        .expect("bindings");
    let places = bindings.path.parent().expect("a folder").join("rankfile");
    let again = sandbox.job(&bound(|request| {
        request.rank_binding = Some(bindings.path.display().to_string());
        request.mpi_args = format!("--rankfile {}", places.display());
    }));
    for (a, b) in job.ranks.iter().zip(&again.ranks) {
        assert_eq!(
            (&a.mesh_id, &a.mesh_host_rank, &a.host),
            (&b.mesh_id, &b.mesh_host_rank, &b.host)
        );
        assert_eq!(a.environment, b.environment);
    }
    assert_eq!(job.ranks.len(), again.ranks.len());
}

#[test]
fn the_key_is_that_of_descriptor_and_sorted_hosts() {
    let sandbox = Sandbox::new();
    sandbox.write("mgd.textproto", &descriptor("1, 4", "1, 2"));
    let job = sandbox.job(&auto("b,a"));
    let key = file(&job, ".phase1_cache_key");
    assert!(
        key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{key}"
    );
    // By hashlib in Python: sha256(descriptor + b'\0' + b'["a","b"]').
    assert_eq!(key, "408d9be2321e74b87f442177af142073301608d4e059c269206cef1433622bcb");
    assert!(
        job.files[0]
            .path
            .starts_with(sandbox.path(&format!("generated/ttrun/{}", &key[..16])))
    );
    assert!(!job.files_are_current);
    write_files(&job.files, &job.folders).expect("they can be written");
    assert!(
        sandbox.job(&auto("a,b")).files_are_current,
        "the order of hosts does not count"
    );
    let mut forced = auto("a,b");
    forced.force_rediscovery = true;
    assert!(!sandbox.job(&forced).files_are_current);
    assert_ne!(file(&sandbox.job(&auto("a,c")), ".phase1_cache_key"), key);
    // The short name is taken by another key: then the whole key names the folder.
    sandbox.write(
        &format!("generated/ttrun/{}/.phase1_cache_key", &key[..16]),
        &"0".repeat(64),
    );
    let other = sandbox.job(&auto("a,b"));
    assert!(
        other.files[0]
            .path
            .starts_with(sandbox.path(&format!("generated/ttrun/{key}")))
    );
}

#[test]
fn described_clusters_stay_on_this_host() {
    let sandbox = Sandbox::new();
    sandbox.write("c0.yaml", "arch: a\n");
    sandbox.write("c1.yaml", "arch: b\n");
    sandbox.write(
        "mock.yaml",
        "rank_to_cluster_mock_cluster_desc: {0: c0.yaml, 1: c1.yaml}\n",
    );
    let request = request(|request| {
        request.mesh_graph_descriptor = Some("mgd.textproto".into());
        request.mock_cluster_rank_binding = Some("mock.yaml".into());
    });
    let job = sandbox.job(&request);
    let words = job.command(&[]).join(" ");
    assert!(
        words.contains("--oversubscribe") && !words.contains("--host "),
        "{words}"
    );
    for (rank, name) in job.ranks.iter().zip(["c0.yaml", "c1.yaml"]) {
        let path = sandbox.path(name).display().to_string();
        assert_eq!(rank.environment["TT_METAL_MOCK_CLUSTER_DESC_PATH"], path);
    }
    assert!(file(&job, "phase2_mock_mapping.yaml").starts_with("rank_to_cluster_mock_cluster_desc:\n  0: \""));
    let key = file(&job, ".phase1_cache_key");
    sandbox.write("c1.yaml", "arch: c\n");
    assert_ne!(
        file(&sandbox.job(&request), ".phase1_cache_key"),
        key,
        "what the files hold counts"
    );
}

#[test]
fn a_built_in_machine_needs_no_file() {
    let sandbox = Sandbox::new();
    let request = request(|request| {
        request.mesh_graph_descriptor = Some("dual-galaxy".into());
        request.hosts = Some("a,b".into());
    });
    let job = sandbox.job(&request);
    assert_eq!(job.ranks.len(), 2);
    assert!(file(&job, "mesh_graph_descriptor.textproto").contains("mesh_descriptors"));
    let drawing = unisono_launch::drawing(&job, None, &sandbox.caller(), 200).plain();
    assert!(drawing.contains("rank 1 on b: mesh 0, process 1"), "{drawing}");
    // A job that cannot be planned writes nothing.
    assert!(plan(&auto("a,a"), &sandbox.caller()).is_err());
    assert!(!sandbox.path("generated").exists());
}
