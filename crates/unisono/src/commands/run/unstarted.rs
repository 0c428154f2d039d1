//! What MPI's launcher says where it could not start the ranks: pages of its own, here one sentence.

/// What ssh says when it does not reach a host.
const OF_SSH: [&str; 8] = [
    "ssh: ",
    "Host key verification failed",
    "Permission denied (",
    "Permission denied, please try again",
    "kex_exchange_identification: ",
    "Connection closed by ",
    "Connection reset by ",
    "Connection timed out during ",
];

/// What is known where a host has not answered, or only ssh has said something: Open MPI 5 tells its reason on standard output.
pub const UNREACHED: &str = "the hosts of the job cannot all be reached: each needs an address, must let this user in by ssh without a \
     password, and have the same MPI in the same place";

/// Why a host is out of reach, if this line says so.
pub fn reason(line: &str) -> Option<String> {
    let line = line.trim();
    // `root@b: Permission denied (publickey).`
    let rest = line.split_once(": ").map_or("", |(_, rest)| rest);
    let says = |part: &str| OF_SSH.iter().any(|start| part.starts_with(start));
    (says(line) || says(rest) && line.contains('@')).then(|| line.trim_end_matches('.').to_string())
}

/// Why no rank was started and what to do, if a banner (its lines joined by blanks) says so.
pub fn why(text: &str) -> Option<String> {
    let word = |mark: &str| {
        let rest = text.split_once(mark)?.1;
        rest.split_whitespace().next().map(str::to_string)
    };
    let has = |part: &str| text.contains(part);
    if has("unable to reliably start one or more daemons")
        || has("daemon has unexpectedly failed after launch")
        || has("daemon failed to report back after being spawned")
        || has("died unexpectedly with status") && has("while attempting to launch")
    {
        return Some(UNREACHED.to_string());
    }
    // Open MPI 5 calls it after ssh.
    if (has("plm_rsh_agent") || has("plm_ssh_agent")) && has("could not be found") {
        let agent = word("plm_rsh_agent:").or_else(|| word("plm_ssh_agent:"));
        let agent = agent.unwrap_or_else(|| "ssh".to_string());
        return Some(format!(
            "{agent}, by which other hosts are reached, is not on this host: install it (Debian and Ubuntu: apt install openssh-client), or \
             name another with --mpi-args \"--mca plm_rsh_agent PROGRAM\""
        ));
    }
    if has("not enough slots available") {
        let slots = word("to satisfy the").unwrap_or_else(|| "many".to_string());
        return Some(format!(
            "the hosts have fewer slots than the {slots} that are needed: give more (HOST slots=N in a hostfile, --host HOST:N), or let ranks \
             take turns with --mpi-args --oversubscribe"
        ));
    }
    if has("rankfile that was used claimed that a host was either not") {
        let host = word("Host:").unwrap_or_else(|| "a host".to_string());
        return Some(format!(
            "the rankfile places ranks on {host}, which is not among the job's hosts under this name, or has fewer slots than that"
        ));
    }
    if has("would result in binding more processes than cpus") {
        let to = word("Bind to:").unwrap_or_else(|| "a processor".to_string());
        return Some(format!(
            "more ranks than there are processors are to be bound, each to a {to}: leave the binding out, or add :overload-allowed to it"
        ));
    }
    if has("was unable to launch the specified application") || has("was unable to find the specified executable") {
        let (program, host) = (word("Executable:"), word("Node:"));
        return Some(format!(
            "{} cannot be executed on {}: it must lie there at the same path, and be executable",
            program.unwrap_or_else(|| "the program".to_string()),
            host.unwrap_or_else(|| "a host".to_string())
        ));
    }
    None
}

/// The host of a rank that a banner says was lost in the middle of a run.
pub fn lost(text: &str) -> Option<String> {
    let rest = text.split_once("has lost communication with a remote daemon")?.1;
    let remote = rest.split_once("Remote daemon:")?.1;
    let host = remote.split_once("on node")?.1.split_whitespace().next()?;
    Some(host.to_string())
}

#[cfg(test)]
mod tests {
    use super::{lost, reason, why};

    #[test]
    fn reasons_of_ssh_are_told_from_other_lines() {
        for line in [
            "ssh: Could not resolve hostname b: Name or service not known",
            "ssh: connect to host b port 22: Connection refused",
            "root@b: Permission denied (publickey,password).",
            "Host key verification failed.",
        ] {
            assert_eq!(reason(line).as_deref(), Some(line.trim_end_matches('.')));
        }
        for line in ["", "error: b", "step 3: ssh", "file: Permission denied (os error 13)"] {
            assert_eq!(reason(line), None, "{line}");
        }
    }

    #[test]
    fn banners_of_a_start_that_fails_become_sentences() {
        for (text, part) in [
            (
                "ORTE was unable to reliably start one or more daemons. This usually is caused by:",
                "cannot all be reached",
            ),
            (
                "A daemon failed to report back after being spawned. This could be due to several factors, including inability to find",
                "cannot all be reached",
            ),
            (
                "The value of the MCA parameter \"plm_rsh_agent\" was set to a path that could not be found:  plm_rsh_agent: ssh : rsh  Please",
                "ssh, by which other hosts are reached, is not on this host",
            ),
            (
                "There are not enough slots available in the system to satisfy the 2 slots that were requested",
                "fewer slots than the 2 that",
            ),
            (
                "The rankfile that was used claimed that a host was either not allocated or oversubscribed its slots.   Host: far",
                "places ranks on far, which",
            ),
            (
                "A request was made to bind to that would result in binding more processes than cpus on a resource:  Bind to:  CORE  Node: a",
                "each to a CORE",
            ),
            (
                "mpirun was unable to launch the specified application as it could not access or execute an executable:  Executable: ./a \
                 Node: b  while attempting",
                "./a cannot be executed on b",
            ),
        ] {
            let why = why(text).unwrap_or_else(|| panic!("{text}"));
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(why("mpirun noticed that process rank 1"), None);
        let text = "ORTE has lost communication with a remote daemon.    HNP daemon   : [[1,0],0] on node a   Remote daemon: [[1,0],1] on \
                    node b  This is usually due to";
        assert_eq!(lost(text).as_deref(), Some("b"));
    }
}
