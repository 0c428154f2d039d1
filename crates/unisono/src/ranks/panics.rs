//! A panic in one process of a run is an error like any other: told once, and the end of all of them.

use crate::exit::Failure;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

/// The exit code of a Rust program that panics.
const PANICKED: u8 = 101;

thread_local! {
    /// What the last panic of this thread said, and where.
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs what a process does, on this thread; a panic becomes its failure, in place of lines of its own. `RUST_BACKTRACE` shows those too.
///
/// # Errors
/// What `body` says, or the panic.
pub fn caught<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let usual = std::panic::take_hook();
    let this = std::thread::current().id();
    let shows = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() == this {
            LAST.with(|last| *last.borrow_mut() = said(info));
        }
        if shows || std::thread::current().id() != this {
            usual(info);
        }
    }));
    // Nothing that the panic may have left half done is used again, but for the link between the processes, which expects it.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        Err(Failure {
            code: PANICKED,
            message: LAST.with(|last| last.borrow().clone()),
        })
    })
}

/// A panic in one line.
fn said(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("without a word").replace('\n', " ");
    let place = info
        .location()
        .map(|place| format!("{}:{}", place.file(), place.line()));
    format!(
        "unisono panicked: {text} ({}); that is a fault of unisono's own, please report it",
        place.unwrap_or_else(|| "place unknown".to_string())
    )
}

#[cfg(test)]
mod tests {
    use super::caught;
    use crate::exit::Failure;
    use crate::output::{Level, Out};
    use crate::ranks::Ranks;
    use std::process::Command;
    use unisono_train::config::Environment;

    /// Set for the processes that the test starts of this file.
    const PROCESS: &str = "UNISONO_TEST_PROCESS";

    #[test]
    fn a_panic_in_one_process_is_told_once_and_ends_all() {
        let has_mpirun = Command::new("mpirun").arg("--version").output().is_ok();
        if !has_mpirun {
            println!("skipped: mpirun is not installed (apt install openmpi-bin)");
            return;
        }
        for victim in ["0", "1", "2"] {
            let mut command = Command::new("mpirun");
            command.args(["--oversubscribe", "--bind-to", "none", "-np", "3"]);
            command.arg(std::env::current_exe().expect("the test is a file"));
            let name = concat!(module_path!(), "::process_of_the_test");
            let name = name.split_once("::").expect("it is in the crate").1;
            command.args([name, "--exact", "--ignored", "--nocapture"]);
            command.env(PROCESS, victim).env_remove("RUST_BACKTRACE");
            command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
            let output = command.output().expect("mpirun starts");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(101), "{errors}");
            let told: Vec<&str> = errors.lines().filter(|line| line.starts_with("error: ")).collect();
            assert_eq!(told.len(), 1, "{errors}");
            assert!(
                told[0].contains("unisono panicked: two lines of one panic ("),
                "{errors}"
            );
            let who = format!("rank {victim} on ");
            assert!(victim == "0" || told[0].contains(&who), "{errors}");
            assert!(!errors.contains("thread '"), "{errors}");
        }
    }

    #[test]
    #[ignore = "a process of another test"]
    fn process_of_the_test() {
        let Ok(victim) = std::env::var(PROCESS) else { return };
        let ranks = Ranks::join(&Environment::of_process(), false).expect("MPI is there");
        let ranks = ranks.expect("there are several");
        let result: Result<(), Failure> = caught(|| {
            if ranks.rank().to_string() == victim {
                panic!("two lines\nof one panic");
            }
            // The others wait, as in a collective.
            ranks.largest(&[0.0]).map(|_| ())
        });
        let failure = result.expect_err("one process panicked");
        ranks.farewell(&failure, &Out::new(Level::Error, false, false, true));
    }
}
