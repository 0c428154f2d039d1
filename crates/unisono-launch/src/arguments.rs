//! The command line of MPI's launcher.

use crate::agree;
use crate::job::{Draft, Job, Placement, Rank};
use crate::mpirun::{Flavour, Mpirun};
use crate::paths;
use crate::rankfile::{self, RankfileText};
use crate::request::{Caller, Request};
use crate::shell;
use std::path::{Path, PathBuf};
use unisono_train::config::{Findings, read_text};

/// The options of `--mpi-args` that the launcher itself must know of.
const KNOWN: [(&str, Option_); 14] = [
    ("rankfile", Option_::Rankfile),
    ("rf", Option_::Rankfile),
    ("hostfile", Option_::Hostfile),
    ("machinefile", Option_::Hostfile),
    ("host", Option_::Host),
    ("H", Option_::Host),
    ("hosts", Option_::Host),
    ("bind-to", Option_::Bind),
    ("bind-to-core", Option_::Bind),
    ("bind-to-socket", Option_::Bind),
    ("map-by", Option_::Map),
    ("mca", Option_::Mca),
    ("gmca", Option_::Mca),
    ("oversubscribe", Option_::Oversubscribe),
];

/// What an option is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Option_ {
    Rankfile,
    Hostfile,
    Host,
    Bind,
    Map,
    Mca,
    Oversubscribe,
}

fn known(word: &str) -> Option<Option_> {
    let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
    let name = name.split('=').next().unwrap_or(name);
    KNOWN
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, option)| *option)
}

/// Whether arguments say by themselves which hosts there are.
pub(crate) fn names_hosts(mpi_args: &str) -> bool {
    let words = shell::split(mpi_args).unwrap_or_default();
    let names = |word: &String| matches!(known(word), Some(Option_::Host | Option_::Hostfile | Option_::Rankfile));
    words.iter().any(names)
}

/// A file of places that was read.
struct File {
    path: PathBuf,
    shown: String,
    text: RankfileText,
}

/// `--mpi-args`, taken apart.
#[derive(Default)]
pub(crate) struct Args {
    /// All words but those of the rankfile.
    words: Vec<String>,
    rankfile: Option<File>,
    hostfile: Option<File>,
    /// Entries of `--host`.
    hosts: Vec<String>,
    binds: bool,
    maps: bool,
    has_btl: bool,
    has_interface: bool,
    oversubscribes: bool,
}

impl Args {
    /// Splits and reads what the words name. `None`: something is wrong, and `findings` says what.
    pub(crate) fn parse(request: &Request, caller: &Caller, findings: &mut Findings) -> Option<Args> {
        let before = findings.problems.len();
        let words = shell::split(&request.mpi_args);
        let words = words
            .map_err(|error| findings.problem(None, format!("--mpi-args: {error}")))
            .ok()?;
        let mut args = Args::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let Some(option) = known(&word) else {
                args.words.push(word);
                continue;
            };
            let inline = word.split_once('=').map(|(_, value)| value.to_string());
            let mut taken = vec![word.clone()];
            let mut value = || {
                let value = inline
                    .clone()
                    .or_else(|| words.next().inspect(|value| taken.push(value.clone())));
                if value.is_none() {
                    findings.problem(None, format!("--mpi-args: {word} has no value"));
                }
                value
            };
            match option {
                Option_::Rankfile => {
                    let path = value()?;
                    args.rankfile = args.file(&path, "rankfile", caller, findings);
                    continue;
                }
                Option_::Hostfile => {
                    let path = value()?;
                    args.hostfile = args.file(&path, "hostfile", caller, findings);
                }
                Option_::Host => args.hosts.extend(value()?.split(',').map(str::to_string)),
                Option_::Bind => args.binds = true,
                Option_::Oversubscribe => args.oversubscribes = true,
                Option_::Map => {
                    let policy = value()?;
                    args.maps = true;
                    args.oversubscribes |= policy.to_ascii_lowercase().contains("oversubscribe");
                    if let Some(path) = policy.strip_prefix("rankfile:file=") {
                        args.rankfile = args.file(path, "rankfile", caller, findings);
                        continue;
                    }
                }
                Option_::Mca => {
                    let (key, setting) = (value()?, value()?);
                    args.has_btl |= key == "btl";
                    args.has_interface |= key == "btl_tcp_if_include" || key == "btl_tcp_if_exclude";
                    if key == "rmaps_rankfile_path" || key == "orte_rankfile" {
                        args.rankfile = args.file(&setting, "rankfile", caller, findings);
                        continue;
                    }
                }
            }
            args.words.extend(taken);
        }
        Some(args).filter(|_| findings.problems.len() == before)
    }

    fn file(&self, path: &str, what: &str, caller: &Caller, findings: &mut Findings) -> Option<File> {
        if what == "rankfile" && self.rankfile.is_some() {
            findings.problem(None, "--mpi-args names two rankfiles: give one");
            return None;
        }
        let path = paths::file(path, &format!("the {what}"), None, false, caller, None, findings)?;
        let shown = paths::shown(&path, caller);
        let text = read_text(&path, &shown, None, findings)?;
        let before = findings.problems.len();
        let text = rankfile::parse(&text, &shown, findings);
        let (is_empty, wrong) = match what {
            "rankfile" => (text.ranks.is_empty(), "places no rank: rank 0=HOST slot=0"),
            _ => (text.hosts.is_empty(), "names no host: HOST slots=N"),
        };
        if is_empty && findings.problems.len() == before {
            findings.problem(None, format!("the {what} {shown} {wrong}"));
        }
        Some(File { path, shown, text })
    }

    /// Gives ranks the hosts and slots of the files, which must agree with them.
    pub(crate) fn place(&self, draft: &mut Draft, findings: &mut Findings) {
        let Some(file) = self.rankfile.as_ref().or(self.hostfile.as_ref()) else {
            return;
        };
        if let (Placement::Hosts(_), Some(file)) = (&draft.placement, &self.rankfile) {
            let message = format!(
                "--hosts and the rankfile {} both place the ranks: give one of them",
                file.shown
            );
            findings.problem(None, message);
            return;
        }
        if self.maps && self.rankfile.is_none() {
            return;
        }
        let oversubscribes = self.oversubscribes;
        let places = agree::placed(
            &file.text,
            &file.shown,
            draft.ranks.len(),
            &draft.whence,
            oversubscribes,
            findings,
        );
        for (rank, place) in draft.ranks.iter_mut().zip(places) {
            if let Some((host, slot)) = place {
                (rank.host, rank.slot) = (Some(host), slot);
            }
        }
    }

    /// The arguments before those of the ranks.
    pub(crate) fn finish(
        self,
        draft: &Draft,
        launcher: &Mpirun,
        request: &Request,
        caller: &Caller,
        findings: &mut Findings,
    ) -> Vec<String> {
        let ranks = draft.ranks.len();
        let is_open = launcher.flavour == Flavour::OpenMpi;
        let is_local = self.is_local(draft, caller);
        if is_local && ranks > caller.cores {
            let message = format!(
                "{ranks} ranks share {} {}: they take turns",
                caller.cores,
                if caller.cores == 1 { "core" } else { "cores" }
            );
            findings.note(None, message);
        }
        if !is_open {
            return self.finish_hydra(draft, request, findings);
        }
        let mut words = Vec::new();
        let mut add = |more: &[&str]| words.extend(more.iter().map(|word| word.to_string()));
        if !self.binds && self.rankfile.is_none() {
            add(&["--bind-to", "none"]);
        }
        if !request.program.ours {
            add(&["--tag-output"]);
        }
        if !self.oversubscribes && (is_local || self.crowds()) {
            add(&["--oversubscribe"]);
        }
        self.network(draft, is_local, request, findings)
            .iter()
            .for_each(|word| add(&[word]));
        match &draft.placement {
            Placement::Hosts(hosts) => {
                let hosts: Vec<String> = hosts.iter().map(|(host, ranks)| format!("{host}:{ranks}")).collect();
                if !self.maps {
                    add(&["--map-by", "slot"]);
                }
                add(&["--host", &hosts.join(",")]);
            }
            Placement::Here => {
                if let (Some(file), true) = (&self.rankfile, self.hosts.is_empty() && self.hostfile.is_none()) {
                    let mut hosts: Vec<&str> = Vec::new();
                    for line in &file.text.ranks {
                        if !hosts.contains(&line.host.as_str()) && !line.host.starts_with('+') {
                            hosts.push(&line.host);
                        }
                    }
                    if !hosts.is_empty() {
                        add(&["--host", &hosts.join(",")]);
                    }
                }
            }
        }
        if let Some(file) = &self.rankfile {
            let path = paths::relative(&file.path, caller).display().to_string();
            words.extend(rankfile::option(request.rankfile_syntax, &path, launcher, findings));
        }
        words.extend(self.words);
        words
    }

    /// Whether nothing names a host: then all ranks are on this one.
    pub(crate) fn is_local(&self, draft: &Draft, caller: &Caller) -> bool {
        matches!(draft.placement, Placement::Here)
            && self.rankfile.is_none()
            && self.hostfile.is_none()
            && self.hosts.is_empty()
            && !caller.has_allocation()
    }

    /// Whether a host gets more ranks than Open MPI would give it by itself.
    fn crowds(&self) -> bool {
        let lines = self.rankfile.iter().flat_map(|file| &file.text.ranks);
        let placed: Vec<&str> = lines.map(|line| line.host.as_str()).collect();
        let bare: Vec<&str> = self
            .hosts
            .iter()
            .map(String::as_str)
            .filter(|host| !host.contains(':'))
            .collect();
        let repeats = |hosts: &[&str]| (1..hosts.len()).any(|index| hosts[..index].contains(&hosts[index]));
        repeats(&placed) || repeats(&bare)
    }

    /// Which network MPI's messages take.
    fn network(&self, draft: &Draft, is_local: bool, request: &Request, findings: &mut Findings) -> Vec<String> {
        let mut words = Vec::new();
        let mut set = |key: &str, value: &str| words.extend(["--mca", key, value].map(str::to_string));
        if let Some(name) = &request.tcp_interface
            && !Path::new("/sys/class/net").join(name).exists()
        {
            let message = format!("--tcp-interface {name}: this host has no such network interface");
            findings.note(None, message);
        }
        // Ranks without bindings on one host: shared memory, and nothing to be said.
        let is_plain = is_local && draft.ranks.iter().all(|rank| rank.mesh_id.is_none());
        if request.bare || (is_plain && request.tcp_interface.is_none()) {
            return words;
        }
        if request.program.ours && !is_local {
            // Otherwise a host that drops off the net holds Open MPI's daemons up for a quarter of an hour after the run's end. They learn
            // of it after 12 to 15 s, when the ranks have said what there is to say.
            for (key, value) in [("time", "3"), ("intvl", "2"), ("probes", "6")] {
                set(&format!("oob_tcp_keepalive_{key}"), value);
            }
        }
        // unisono leaves ranks of one host their shared memory.
        if !self.has_btl && !request.program.ours && !is_plain {
            set("btl", "self,tcp");
        }
        match &request.tcp_interface {
            Some(name) if self.has_interface => {
                let message = format!("--tcp-interface {name} is ignored: --mpi-args says which interfaces to take");
                findings.note(None, message);
            }
            Some(name) => set("btl_tcp_if_include", name),
            None if self.has_interface => {}
            None => set("btl_tcp_if_exclude", "docker0,lo"),
        }
        words
    }

    fn finish_hydra(self, draft: &Draft, request: &Request, findings: &mut Findings) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(file) = &self.rankfile {
            let message = format!(
                "{}: only Open MPI places ranks by a rankfile, and this is MPICH's launcher",
                file.shown
            );
            findings.problem(None, message);
        }
        if !request.program.ours {
            words.push("-l".to_string());
        }
        if let Placement::Hosts(hosts) = &draft.placement {
            let hosts: Vec<String> = hosts.iter().map(|(host, ranks)| format!("{host}:{ranks}")).collect();
            words.extend(["-hosts".to_string(), hosts.join(",")]);
        }
        words.extend(self.words);
        words
    }
}

/// Why Open MPI would refuse to start as the superuser, where it would.
pub(crate) fn refuses_root(job: &Job, caller: &Caller) -> Option<String> {
    const NAMES: [&str; 2] = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
    let allowed = NAMES.iter().all(|name| caller.variable(name) == Some("1"))
        || job
            .mpi_args
            .iter()
            .any(|word| word.trim_start_matches('-') == "allow-run-as-root");
    let refuses = caller.is_root && job.mpirun.flavour == Flavour::OpenMpi && !allowed;
    refuses.then(|| {
        format!(
            "Open MPI refuses to run as root: start it as another user, or allow it with {}=1 {}=1 (or --mpi-args \
             --allow-run-as-root)",
            NAMES[0], NAMES[1]
        )
    })
}

impl Job {
    /// The words of the command that starts the job, in [`Job::directory`] and without the variables of [`Job::unset`].
    /// Every rank gets the variables of `more` beside.
    pub fn command(&self, more: &[(String, String)]) -> Vec<String> {
        let is_open = self.mpirun.flavour == Flavour::OpenMpi;
        let mut words = vec![self.mpirun.program.clone()];
        words.extend(self.mpi_args.iter().cloned());
        let same = |a: &Rank, b: &Rank| a.environment == b.environment && a.words == b.words;
        for (index, ranks) in self.ranks.chunk_by(same).enumerate() {
            if index > 0 {
                words.push(":".to_string());
            }
            let number = if is_open { "-np" } else { "-n" };
            words.extend([number.to_string(), ranks.len().to_string()]);
            let own = ranks[0].environment.iter();
            for (name, value) in own.chain(more.iter().map(|pair| (&pair.0, &pair.1))) {
                match is_open {
                    true => words.extend(["-x".to_string(), self.export(name, value)]),
                    false => words.extend(["-env".to_string(), name.clone(), value.clone()]),
                }
            }
            words.extend(ranks[0].words.iter().cloned());
        }
        words
    }

    /// `NAME=value`; by its name alone where the caller has that value and a shell would change it.
    fn export(&self, name: &str, value: &str) -> String {
        let is_inherited = self.inherited.get(name).is_some_and(|inherited| inherited == value);
        match is_inherited && !shell::is_plain(value) {
            true => name.to_string(),
            false => format!("{name}={value}"),
        }
    }

    /// The command as a line for a shell, which does the same from any folder.
    pub fn shell_line(&self) -> String {
        let folder = shell::quoted(&self.directory.display().to_string());
        let unset: Vec<String> = self
            .unset
            .iter()
            .map(|name| format!("-u {}", shell::quoted(name)))
            .collect();
        let env = match unset.is_empty() {
            true => String::new(),
            false => format!("env {} ", unset.join(" ")),
        };
        format!("(cd {folder} && {env}{})", shell::joined(&self.command(&[])))
    }

    /// Why this job cannot be started by its caller as it is, in a sentence with what to do.
    pub fn refusal(&self, caller: &Caller) -> Option<String> {
        if !self.mpirun_found {
            return Some(
                "MPI's launcher (mpirun) is not on PATH: install it (Debian and Ubuntu: apt install openmpi-bin, or mpich)"
                    .to_string(),
            );
        }
        refuses_root(self, caller)
    }
}
