//! Messages over MPI between real processes: this file starts itself under `mpirun`, of Open MPI and of MPICH where they are installed.

#[path = "common/messages.rs"]
mod messages;

use std::collections::BTreeMap;
use std::process::{Command, Output};
use unisono_runtime::transport::{Given, Mpi, Transport, TransportError, World};

/// An MPI with its launcher.
struct Install {
    mpirun: &'static str,
    library: &'static str,
}

const OPEN_MPI: Install = Install {
    mpirun: "mpirun.openmpi",
    library: "libmpi.so.40",
};

const MPICH: Install = Install {
    mpirun: "mpirun.mpich",
    library: "libmpich.so.12",
};

/// What an `mpirun` says of itself.
fn version(mpirun: &str) -> Option<String> {
    let output = Command::new(mpirun).arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The name of the launcher, if it is there: Debian's, or `mpirun` where that is of this MPI.
fn launcher(of: &Install) -> Option<&'static str> {
    let word = if of.library == OPEN_MPI.library {
        "Open MPI"
    } else {
        "HYDRA"
    };
    let found = [of.mpirun, "mpirun"]
        .into_iter()
        .find(|mpirun| version(mpirun).is_some_and(|text| text.contains(word)));
    if found.is_none() {
        eprintln!("skipped: no {} and no mpirun of the same MPI is installed", of.mpirun);
    }
    found
}

/// Runs a process of the test `name` in each of `np` processes, or nothing where the launcher is missing.
fn run(of: &Install, np: usize, name: &str, changes: &[(&str, &str)]) -> Option<Output> {
    let mpirun = launcher(of)?;
    let mut command = Command::new(mpirun);
    if of.library == OPEN_MPI.library {
        command.args(["--oversubscribe", "--bind-to", "none"]);
        command
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }
    command.args(["-np", &np.to_string()]);
    command.arg(std::env::current_exe().expect("the test is a file"));
    command.args([name, "--exact", "--ignored", "--nocapture"]);
    command.env("UNISONO_MPI", of.library).env(PROCESS, "1");
    command.envs(changes.iter().copied());
    Some(command.output().expect("mpirun starts"))
}

/// As [`run`], and it must succeed.
fn succeeds(of: &Install, np: usize, name: &str, changes: &[(&str, &str)]) {
    let Some(output) = run(of, np, name, changes) else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{np} processes of {name}\n{text}\n{errors}");
    // A test that was not found would succeed as well.
    assert_eq!(text.matches("1 passed").count(), np, "{text}\n{errors}");
}

/// As [`run`] with a change to the environment, and each process must find `error` in its message.
fn refuses(of: &Install, np: usize, changes: &[(&str, &str)], error: &[&str]) {
    let Some(output) = run(of, np, "process_prints_its_error", changes) else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    for part in error {
        assert_eq!(text.matches(part).count(), np, "{part}\n{text}\n{errors}");
    }
}

/// Set for the processes that this file starts; the long suite runs their tests by themselves too, and there is nothing in that.
const PROCESS: &str = "UNISONO_TEST_PROCESS";

fn is_process() -> bool {
    std::env::var_os(PROCESS).is_some()
}

fn environment() -> BTreeMap<String, String> {
    std::env::vars().collect()
}

fn open() -> Result<Mpi, TransportError> {
    let environment = environment();
    Mpi::open(&environment, &World::find(Given::default(), &environment)?)
}

#[test]
fn messages_arrive_whole_and_in_order() {
    for of in [OPEN_MPI, MPICH] {
        for np in [1, 2, 3] {
            succeeds(&of, np, "process_of_all_messages", &[]);
        }
    }
    // The paths of Open MPI that do not read the sender's memory.
    let name = "process_of_all_messages";
    succeeds(&OPEN_MPI, 2, name, &[("OMPI_MCA_btl", "tcp,self")]);
    succeeds(
        &OPEN_MPI,
        2,
        name,
        &[("OMPI_MCA_btl_vader_single_copy_mechanism", "none")],
    );
}

#[test]
#[ignore = "a process of another test"]
fn process_of_all_messages() {
    if is_process() {
        messages::all(&mut open().expect("MPI is there"));
        let error = open().expect_err("once in a process").to_string();
        assert!(error.contains("MPI is initialised already in this process"), "{error}");
    }
}

/// One process ends the run while the others wait for it: all of them end, with its exit code.
#[test]
fn an_end_of_the_run_ends_every_process() {
    for of in [OPEN_MPI, MPICH] {
        if let Some(output) = run(&of, 3, "process_that_ends_the_run", &[]) {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(7), "{errors}");
        }
    }
}

#[test]
#[ignore = "a process of another test"]
fn process_that_ends_the_run() {
    if is_process() {
        let mut mpi = open().expect("MPI is there");
        if mpi.rank() == 1 {
            mpi.abort(7);
        }
        messages::wait_for_ever(&mut mpi, 1);
    }
}

#[test]
#[ignore = "slow: 2 GiB there and back, in 6 GiB of memory"]
fn messages_longer_than_an_int_arrive() {
    for of in [OPEN_MPI, MPICH] {
        succeeds(&of, 2, "process_of_long_messages", &[]);
    }
}

#[test]
#[ignore = "a process of another test"]
fn process_of_long_messages() {
    if is_process() {
        let mut mpi = open().expect("MPI is there");
        for len in [1 << 30, (1 << 31) + 12_345] {
            messages::one_way(&mut mpi, len);
        }
        mpi.finish().expect("both take leave");
    }
}

/// `cargo test --release -p unisono-runtime --test mpi -- --ignored --exact latency_and_rate --nocapture`
#[test]
#[ignore = "a measurement"]
fn latency_and_rate() {
    for (of, changes) in [
        (OPEN_MPI, &[][..]),
        (OPEN_MPI, &[("OMPI_MCA_btl_vader_single_copy_mechanism", "none")]),
        (OPEN_MPI, &[("OMPI_MCA_btl", "tcp,self")]),
        (MPICH, &[]),
    ] {
        if let Some(output) = run(&of, 2, "process_that_measures", changes) {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8_lossy(&output.stdout);
            let lines: Vec<&str> = text.lines().filter(|line| line.contains(" B: ")).collect();
            println!("{} {changes:?}\n  {}", of.library, lines.join("\n  "));
        }
    }
}

#[test]
#[ignore = "a process of another test"]
fn process_that_measures() {
    if is_process() {
        let mut mpi = open().expect("MPI is there");
        for (len, times) in [
            (4, 20_000),
            (4096, 5000),
            (65_536, 1000),
            (1 << 20, 200),
            (21_000_000, 30),
        ] {
            let (there, both) = (
                messages::there_and_back(&mut mpi, len, times),
                messages::both_ways(&mut mpi, len, times),
            );
            if mpi.rank() == 0 {
                let rate = len as f64 / both / 1e9;
                println!(
                    "\n{len} B: {:.2} µs one way; both ways at once {:.2} µs, {rate:.2} GB/s each way",
                    there * 1e6,
                    both * 1e6
                );
            }
        }
        mpi.finish().expect("both take leave");
    }
}

#[test]
fn two_libraries_at_odds_are_refused() {
    if launcher(&OPEN_MPI).is_none() || launcher(&MPICH).is_none() {
        return;
    }
    let changes = [("UNISONO_MPI", MPICH.library)];
    let words = [
        "mpirun of Open MPI started 2 processes",
        "(libmpich.so.12) sees 1 and rank 0",
        "UNISONO_MPI=libmpi.so.40",
    ];
    refuses(&OPEN_MPI, 2, &changes, &words);
    let changes = [("UNISONO_MPI", OPEN_MPI.library)];
    let words = ["PMI", "(libmpi.so.40)", "UNISONO_MPI=libmpich.so.12"];
    refuses(&MPICH, 2, &changes, &words);
}

#[test]
#[ignore = "a process of another test"]
fn process_prints_its_error() {
    if is_process() {
        match open() {
            Ok(mpi) => println!("no error on {mpi:?}"),
            Err(error) => println!("{error}"),
        }
    }
}
