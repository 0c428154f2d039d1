//! The launcher in a sandbox.

use super::{Done, Sandbox};
use std::process::{Command, Stdio};

/// Whether MPI's launcher is here; otherwise says that the test is skipped.
pub fn has_mpirun() -> bool {
    let found = Command::new("mpirun")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if found.is_err() {
        println!("skipped: mpirun is not installed (apt install openmpi-bin)");
    }
    found.is_ok()
}

/// The program in a sandbox, with Open MPI allowed to run as root.
pub fn launch(sandbox: &Sandbox, arguments: &[&str]) -> Command {
    let mut command = sandbox.command("");
    command.args(arguments);
    for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
        command.env(name, "1");
    }
    for name in ["SLURM_JOB_ID", "TT_METAL_HOME", "TT_VISIBLE_DEVICES"] {
        command.env_remove(name);
    }
    command
}

/// The same, run to its end.
pub fn run(sandbox: &Sandbox, arguments: &[&str]) -> Done {
    Sandbox::finish(&mut launch(sandbox, arguments))
}
