//! Two hosts on one machine: two network namespaces with host names of their own, a link between them, and Open MPI over TCP.
//!
//! `cargo test -p unisono --test two_hosts -- --ignored`, as root, with iproute2 and Open MPI. What is missing is said, and the test
//! skipped. `bench/peers/hosts.py` makes the same hosts for measurements.

#![cfg(target_os = "linux")]

mod common;

use common::{Sandbox, end};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Addresses of the two hosts. Every pair of hosts has its own network, so all can have the same.
const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// Open MPI's daemons ask each other for signs of life: a host out of reach is known after 12 to 15 s (`docs/clusters.md`).
const PROBES: [(&str, &str); 3] = [("time", "3"), ("intvl", "2"), ("probes", "6")];

/// The link between the hosts.
enum Line {
    /// As fast as the machine.
    Plain,
    /// Every packet takes so many milliseconds.
    Delayed(u32),
}

/// Two namespaces, by name; they go with the value, together with what runs in them.
struct Hosts {
    names: [String; 2],
    /// Carries the packets of a delayed link where the kernel cannot delay them.
    carrier: Option<Child>,
}

impl Hosts {
    /// Makes them; `None` where this machine or this user cannot, which is said.
    fn new(line: Line) -> Option<Hosts> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        if !succeeds("mpirun --version") {
            println!("skipped: mpirun is not installed (apt install openmpi-bin)");
            return None;
        }
        let number = 2 * MADE.fetch_add(1, Ordering::Relaxed);
        let name = |offset: usize| format!("uni{}-{}", std::process::id(), number + offset);
        let mut hosts = Hosts {
            names: [name(0), name(1)],
            carrier: None,
        };
        for name in &hosts.names {
            if !succeeds(&format!("ip netns add {name}")) {
                println!("skipped: `ip netns add` does not work here (needs root and iproute2)");
                return None;
            }
            must(&format!("ip -n {name} link set lo up"));
        }
        let [a, b] = &hosts.names;
        match line {
            Line::Plain => must(&format!("ip link add ua netns {a} type veth peer name ub netns {b}")),
            Line::Delayed(milliseconds) => {
                must(&format!("ip link add ua netns {a} type veth peer name ub netns {b}"));
                let delays = |name: &str, device: &str| {
                    succeeds(&format!(
                        "tc -n {name} qdisc add dev {device} root netem delay {milliseconds}ms"
                    ))
                };
                if !(delays(a, "ua") && delays(b, "ub")) {
                    must(&format!("ip -n {a} link del ua"));
                    hosts.carrier = Some(carrier(milliseconds, a, b)?);
                }
            }
        }
        for (index, device) in ["ua", "ub"].iter().enumerate() {
            let name = &hosts.names[index];
            must(&format!("ip -n {name} addr add {}/24 dev {device}", ADDRESSES[index]));
            must(&format!("ip -n {name} link set {device} up"));
        }
        Some(hosts)
    }

    /// Takes the second host off the net.
    fn cut(&self) {
        must(&format!("ip -n {} link set ub down", self.names[1]));
    }

    /// The program under `mpirun` on the first host, with so many processes on each.
    fn command(&self, sandbox: &Sandbox, each: usize, arguments: &str) -> Command {
        let [a, b] = &self.names;
        // Open MPI says `AGENT HOST COMMAND…`, as it would to ssh.
        let agent = format!("shift\nexec ip netns exec {b} unshare -u sh -c \"hostname {b}; $*\"\n");
        sandbox.write("agent", &agent);
        let mut mpi = Vec::new();
        let mut set = |key: &str, value: &str| mpi.extend(["--mca", key, value].map(str::to_string));
        set("btl", "self,tcp");
        set("plm_rsh_agent", &format!("sh {}", sandbox.path("agent").display()));
        set("orte_tmpdir_base", &sandbox.path("").display().to_string());
        for layer in ["btl", "oob"] {
            set(&format!("{layer}_tcp_if_include"), "10.77.0.0/24");
        }
        for (key, value) in PROBES {
            set(&format!("oob_tcp_keepalive_{key}"), value);
        }
        let hosts = ADDRESSES.map(|address| format!("{address}:{each}")).join(",");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", a, "unshare", "-u", "sh", "-c"]);
        command
            .args([&format!("hostname {a}; exec \"$@\""), "sh", "mpirun"])
            .args(mpi);
        command.args([
            "--oversubscribe",
            "--bind-to",
            "none",
            "--host",
            &hosts,
            "-np",
            &(2 * each).to_string(),
        ]);
        command
            .arg(env!("CARGO_BIN_EXE_unisono"))
            .args(arguments.split_whitespace());
        command.current_dir(sandbox.path("")).stdin(Stdio::null());
        for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
            command.env(name, "1");
        }
        command
    }

    /// Processes on each of the hosts, but for the carrier, which is on none.
    fn processes(&self) -> [Vec<String>; 2] {
        [0, 1].map(|index| {
            let listed = Command::new("ip").args(["netns", "pids", &self.names[index]]).output();
            let listed = listed.map_or(Vec::new(), |output| output.stdout);
            String::from_utf8_lossy(&listed)
                .split_whitespace()
                .map(str::to_string)
                .collect()
        })
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for pid in self.processes().concat() {
            succeeds(&format!("kill -9 {pid}"));
        }
        if let Some(carrier) = &mut self.carrier {
            // It may have ended by itself.
            let _ = carrier.kill();
            let _ = carrier.wait();
        }
        for name in &self.names {
            succeeds(&format!("ip netns del {name}"));
        }
    }
}

/// Starts `link.py`; `None`, which is said, where it cannot run.
fn carrier(milliseconds: u32, a: &str, b: &str) -> Option<Child> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/two_hosts/link.py");
    let mut command = Command::new("python3");
    // Until they have moved, the devices' names are seen by all.
    let names = [a, b].map(|name| format!("t{}", &name[3..]));
    command.arg(script).arg(milliseconds.to_string());
    command.args([&names[0], a, &names[1], b]);
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let is_ready = |child: &mut Child| {
        let out = child.stdout.as_mut().expect("it is piped");
        out.read_exact(&mut [0; 5]).is_ok()
    };
    let Some(child) = started.ok().and_then(|mut child| is_ready(&mut child).then_some(child)) else {
        println!("skipped: the kernel has no netem, and link.py does not run (needs python3 and /dev/net/tun)");
        return None;
    };
    for (name, (from, to)) in [a, b].iter().zip(names.iter().zip(["ua", "ub"])) {
        must(&format!("ip -n {name} link set {from} name {to}"));
    }
    Some(child)
}

/// Whether a command ends well; what it says is dropped.
fn succeeds(command: &str) -> bool {
    run(command).is_some_and(|done| done.0)
}

fn must(command: &str) {
    let (well, said) = run(command).expect("the program is there");
    assert!(well, "{command}: {said}");
}

fn run(command: &str) -> Option<(bool, String)> {
    let mut words = command.split(' ');
    let output = Command::new(words.next()?)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    Some((
        output.status.success(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    ))
}

/// Trains on one process, and on one and two processes a host; all runs must be the same.
fn is_exact(line: Line) {
    let Some(hosts) = Hosts::new(line) else { return };
    let s = Sandbox::new();
    s.run("train -c run.yaml --mesh dp=2 --out alone").ended(0);
    for each in [1, 2] {
        let (mesh, out) = (format!("dp={}", 2 * each), format!("hosts-{each}"));
        let done =
            Sandbox::finish(&mut hosts.command(&s, each, &format!("train -c run.yaml --mesh {mesh} --out {out}")));
        let [a, b] = &hosts.names;
        done.ended(0).says(&[
            &format!("{} processes over", 2 * each),
            &format!("{each} on {a}, {each} on {b}"),
        ]);
        s.run(&format!("diff alone {out}"))
            .ended(0)
            .says(&["Identical, bit by bit."]);
    }
}

#[test]
#[ignore = "needs root, iproute2 and Open MPI: cargo test -p unisono --test two_hosts -- --ignored"]
fn two_hosts_train_to_the_same_bits_as_one_process() {
    is_exact(Line::Plain);
}

#[test]
#[ignore = "needs root, iproute2 and Open MPI: cargo test -p unisono --test two_hosts -- --ignored"]
fn a_slow_link_changes_no_bit() {
    is_exact(Line::Delayed(20));
}

#[test]
#[ignore = "needs root, iproute2 and Open MPI: cargo test -p unisono --test two_hosts -- --ignored"]
fn a_link_cut_in_the_middle_of_a_step_ends_the_run_on_both_hosts() {
    let Some(hosts) = Hosts::new(Line::Plain) else { return };
    let s = Sandbox::new();
    s.config("max_steps: 8", "max_steps: 1000000");
    let mut command = hosts.command(&s, 2, "train -c run.yaml --mesh dp=4 --out run");
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ip starts");
    s.wait_for("run/checkpoints/step-00000004/manifest.json");
    hosts.cut();
    // Against a hang only: with the daemons' probes it takes 15 s, and without them a quarter of an hour.
    let start = Instant::now();
    while !hosts.processes().concat().is_empty() {
        let left = hosts.processes();
        assert!(start.elapsed() < Duration::from_secs(40), "still there: {left:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let done = end(child);
    assert!(!matches!(done.code, None | Some(0)), "exit code {:?}", done.code);
    let errors = done.errors();
    assert_eq!(errors.len(), 1, "{}", done.err);
    let (second, third) = (
        format!("rank 2 on {}", hosts.names[1]),
        format!("rank 3 on {}", hosts.names[1]),
    );
    assert!(
        errors[0].contains(&second) || errors[0].contains(&third),
        "{}",
        done.err
    );
    assert!(errors[0].contains("no sign of life"), "{}", done.err);
    // What was saved last is good: one process goes on from it, and is where a run without a cut would be.
    let saved = s
        .names("run/checkpoints")
        .iter()
        .filter_map(|name| name.strip_prefix("step-")?.parse::<u64>().ok())
        .max();
    let more = saved.expect("there is one") + 2;
    s.run(&format!("train --resume run --set training_config.max_steps={more}"))
        .ended(0);
    s.run(&format!(
        "train -c run.yaml --mesh dp=4 --out straight --set training_config.max_steps={more}"
    ))
    .ended(0);
    s.run("diff run straight").ended(0);
}
