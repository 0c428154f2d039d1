//! What MPI's launcher says on standard error about a bad end: read for its facts, and left out where the launcher says the
//! same in its own words.

use super::unstarted;

/// How the first process ended that ended badly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// With an exit code.
    Exit {
        /// The rank.
        rank: usize,
        /// Its exit code.
        code: i32,
    },
    /// By a signal.
    Signal {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// The signal, as `9 (Killed)`.
        signal: String,
    },
    /// In order, but without a word to the others.
    Early {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
    },
    /// No process was started; why, and what to do.
    Unstarted(String),
    /// A host dropped off the network.
    Lost {
        /// Which.
        host: String,
    },
}

/// Reads standard error line by line; banners that it knows are kept back.
#[derive(Default)]
pub struct Banners {
    /// The first cause that was found.
    pub cause: Option<Cause>,
    /// Why hosts are out of reach, in ssh's words.
    pub reasons: Vec<String>,
    /// Whether all is shown that MPI's launcher says.
    shows_all: bool,
    /// Lines of a banner that is not complete.
    open: Option<Vec<String>>,
}

/// Longest banner; more lines between two rules are something else.
const MAX_LINES: usize = 60;
/// Least length of the rule before and after a banner.
const RULE: usize = 60;
/// How banners begin that the launcher replaces.
const REPLACED: [&str; 23] = [
    "A request was made to bind to that",
    "ORTE was unable to reliably start one or more daemons",
    "An ORTE daemon has unexpectedly failed",
    "ORTE does not know how to route a message",
    "ORTE has lost communication with a remote daemon",
    "A daemon (pid",
    "A daemon failed to report back after being spawned",
    "The value of the MCA parameter \"plm_rsh_agent\"",
    "The value of the MCA parameter \"plm_ssh_agent\"",
    "No available launching agents were found",
    "There are not enough slots available",
    "The rankfile that was used claimed",
    "mpirun was unable to",
    "prterun was unable to",
    "Primary job",
    "mpirun detected that one or more processes exited",
    "prterun detected that one or more processes exited",
    "mpirun noticed that",
    "prterun noticed that",
    "mpirun has exited due to process rank",
    "prterun has exited due to process rank",
    "MPI_ABORT was invoked",
    "An MPI communication peer process has unexpectedly disconnected",
];

impl Banners {
    /// For a new text; `shows_all`: nothing of it is left out.
    pub fn new(shows_all: bool) -> Banners {
        Banners {
            shows_all,
            ..Banners::default()
        }
    }

    /// Takes a line (without its end) and gives those that are to be shown.
    pub fn line(&mut self, line: &str) -> Vec<String> {
        let shown = self.read(line);
        match self.shows_all {
            true => vec![line.to_string()],
            false => shown,
        }
    }

    fn read(&mut self, line: &str) -> Vec<String> {
        let is_rule = line.len() >= RULE && line.bytes().all(|byte| byte == b'-');
        match (&mut self.open, is_rule) {
            (None, true) => {
                self.open = Some(vec![line.to_string()]);
                Vec::new()
            }
            (None, false) => {
                if let Some(reason) = unstarted::reason(line) {
                    self.reasons.push(reason);
                    return Vec::new();
                }
                match is_chatter(line) {
                    true => Vec::new(),
                    false => vec![line.to_string()],
                }
            }
            (Some(lines), _) => {
                lines.push(line.to_string());
                if is_rule {
                    return self.close();
                }
                match lines.len() > MAX_LINES {
                    true => self.open.take().unwrap_or_default(),
                    false => Vec::new(),
                }
            }
        }
    }

    /// The lines that are still kept back when the text ends.
    pub fn end(&mut self) -> Vec<String> {
        let rest = self.open.take().unwrap_or_default();
        match self.shows_all {
            true => Vec::new(),
            false => rest,
        }
    }

    /// A banner is complete.
    fn close(&mut self) -> Vec<String> {
        let lines = self.open.take().unwrap_or_default();
        let inside: Vec<&str> = lines[1..lines.len() - 1].iter().map(|line| line.trim()).collect();
        let text = inside.join(" ");
        if self.cause.is_none() {
            self.cause = cause(&text);
        }
        match REPLACED.iter().any(|start| text.trim_start().starts_with(start)) {
            true => Vec::new(),
            false => lines,
        }
    }
}

/// Lines of the launcher that say nothing.
fn is_chatter(line: &str) -> bool {
    line.starts_with("mpirun: Forwarding signal")
        || line.starts_with("prterun: Forwarding signal")
        || line.contains("more processes have sent help message")
        || line.contains("more process has sent help message")
        || line.contains("Set MCA parameter \"orte_base_help_aggregate\"")
        || line.contains("Set MCA parameter \"prte_base_help_aggregate\"")
        // The end of a text in C, which Open MPI 5 writes too.
        || line == "\0"
        // A message that was being copied from a process that is gone, and a banner that could not be gathered.
        || (line.starts_with('[') && (line.contains("] Read -1, expected ") || line.contains("Warning: setpgid(")))
        || (line.starts_with('[') && (line.contains("ORTE_ERROR_LOG: ") || line.contains("] FORCE-TERMINATE AT ")))
        // MPICH's, which always fails in several places at once; and its banner, which does not name the rank.
        || line.starts_with("[mpiexec@")
        || line.starts_with("[proxy:")
        || OF_MPICH.iter().any(|start| line.starts_with(start))
}

/// The lines of MPICH's banner.
const OF_MPICH: [&str; 5] = [
    "=====================================",
    "=   ",
    "YOUR APPLICATION TERMINATED WITH",
    "This typically refers to a problem with your application.",
    "Please see the FAQ page for debugging suggestions",
];

/// The facts of a banner whose lines are joined by blanks.
fn cause(text: &str) -> Option<Cause> {
    let after = |mark: &str| text.split_once(mark).map(|(_, rest)| rest.trim_start());
    let word = |text: &str| text.split_whitespace().next().unwrap_or_default().to_string();
    let number = |text: &str| word(text).trim_matches(|c: char| !c.is_ascii_digit()).parse().ok();
    if let Some(why) = unstarted::why(text) {
        return Some(Cause::Unstarted(why));
    }
    if let Some(host) = unstarted::lost(text) {
        return Some(Cause::Lost { host });
    }
    if let (Some(name), Some(code)) = (after("Process name:"), after("Exit code:")) {
        // [[job,1],RANK] or [prterun-host-pid@1,RANK]
        let rank = word(name).trim_end_matches(']').rsplit(',').next()?.parse().ok()?;
        let code = word(code).parse().ok()?;
        return Some(Cause::Exit { rank, code });
    }
    let rank = number(after("process rank ")?)?;
    let host = word(after("on node ")?).trim_end_matches([',', '.']).to_string();
    if let Some(signal) = after("exited on signal ") {
        let signal = signal.trim_end_matches('.').to_string();
        return Some(Cause::Signal { rank, host, signal });
    }
    text.contains("exiting improperly")
        .then_some(Cause::Early { rank, host })
}

#[cfg(test)]
mod tests {
    use super::{Banners, Cause};

    /// What is shown of a text, and what it says.
    fn read(text: &str) -> (Vec<String>, Option<Cause>) {
        let mut banners = Banners::default();
        let mut shown: Vec<String> = text.lines().flat_map(|line| banners.line(line)).collect();
        shown.extend(banners.end());
        (shown, banners.cause)
    }

    #[test]
    fn banners_are_read_and_left_out() {
        let rule = "-".repeat(74);
        let exit = format!(
            "mine\n{rule}\nPrimary job  terminated normally, but 1 process returned\na non-zero exit code. Per \
             user-direction, the job has been aborted.\n{rule}\n{rule}\nmpirun detected that one or more processes \
             exited with non-zero status, thus causing\nthe job to be terminated. The first process to do so was:\n\n  \
             Process name: [[547,1],2]\n  Exit code:    3\n{rule}\n"
        );
        assert_eq!(
            read(&exit),
            (vec!["mine".to_string()], Some(Cause::Exit { rank: 2, code: 3 }))
        );
        let signal = format!(
            "{rule}\nmpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).\n{rule}\n"
        );
        let killed = Cause::Signal {
            rank: 1,
            host: "vm".into(),
            signal: "9 (Killed)".into(),
        };
        assert_eq!(read(&signal), (vec![], Some(killed)));
        let early = format!(
            "{rule}\nmpirun has exited due to process rank 1 with PID 0 on\nnode vm exiting improperly. There are three \
             reasons this could occur:\n{rule}\n"
        );
        let cause = Cause::Early {
            rank: 1,
            host: "vm".into(),
        };
        assert_eq!(read(&early), (vec![], Some(cause)));
    }

    #[test]
    fn a_start_that_fails_is_left_out_and_its_first_reason_stays() {
        let rule = "-".repeat(74);
        let text = format!(
            "ssh: connect to host b port 22: Connection refused\n{rule}\nORTE was unable to reliably start one or more \
             daemons.\n\n* not finding\n{rule}\n[vm:1] [[1,0],0] ORTE_ERROR_LOG: Data unpack would read past end of buffer in file \
             a.c at line 1\n{rule}\nORTE does not know how to route a message to the specified daemon\n{rule}\n"
        );
        let (shown, cause) = read(&text);
        assert!(shown.is_empty(), "{shown:?}");
        assert!(matches!(cause, Some(Cause::Unstarted(why)) if why.contains("cannot all be reached")));
        let mut all = Banners::new(true);
        let shown: Vec<String> = text.lines().flat_map(|line| all.line(line)).collect();
        assert_eq!(shown, text.lines().collect::<Vec<_>>());
    }

    #[test]
    fn what_is_not_known_is_shown_whole() {
        let rule = "-".repeat(74);
        let text = format!("{rule}\nWARNING: a network is missing\n{rule}\nand more\n{rule}\nopen");
        assert_eq!(read(&text), (text.lines().map(str::to_string).collect(), None));
        let long = format!("{rule}\n{}", "a\n".repeat(200));
        assert_eq!(read(&long).0.len(), 201);
    }
}
