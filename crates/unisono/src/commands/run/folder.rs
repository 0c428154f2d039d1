//! The folder in which ranks of this host leave word for the launcher, and MPI its files: what they leave behind goes with it.

use super::rank::{self, RankEnd};
use crate::exit::Failure;
use crate::launched::{ERROR, FOLDER};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use unisono_launch::Job;

/// Where the system has memory that processes share by name.
const SHARED_MEMORY: &str = "/dev/shm";
/// Tries to delete a folder in which somebody may be writing still.
const TRIES: u32 = 20;

/// A temporary folder, gone with this value.
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
    /// A folder in shared memory, where all ranks are on this host: Open MPI leaves its segments behind where it is killed.
    pub memory: Option<PathBuf>,
}

/// What a rank left behind.
pub struct Word {
    /// Its host.
    pub host: String,
    /// Its process id there.
    pub pid: i32,
    /// What it last did.
    pub last: String,
}

impl Folder {
    /// A new one, for a job.
    ///
    /// # Errors
    /// A system that has no room for it.
    pub fn new(job: &Job) -> Result<Folder, Failure> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_nanos());
        let name = format!("unisono-run-{}-{now:x}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        // Ranks and the guard look from elsewhere.
        let path = std::path::absolute(&path).unwrap_or(path);
        make(&path).map_err(|error| {
            Failure::running(format!(
                "the temporary folder {} cannot be made: {error}",
                path.display()
            ))
        })?;
        let memory = Path::new(SHARED_MEMORY).join(&name);
        // Without it Open MPI chooses a place by itself.
        let memory = (job.is_here && make(&memory).is_ok()).then_some(memory);
        Ok(Folder { path, memory })
    }

    /// The variables that tell ranks of it.
    pub fn variables(&self) -> Vec<(String, String)> {
        vec![(FOLDER.to_string(), self.path.display().to_string())]
    }

    /// The variables that tell MPI's launcher where to put its files, unless the caller has said so: Open MPI 4, then 5. Other hosts
    /// do not have these folders.
    pub fn of_launcher(&self, job: &Job) -> Vec<(&'static str, PathBuf)> {
        let Some(memory) = &self.memory else { return Vec::new() };
        let all = [
            ("OMPI_MCA_orte_tmpdir_base", &self.path),
            ("PRTE_MCA_prte_tmpdir_base", &self.path),
            ("OMPI_MCA_btl_vader_backing_directory", memory),
            ("OMPI_MCA_btl_sm_backing_directory", memory),
        ];
        let is_said = |name: &str| {
            let (_, setting) = name.split_once("_MCA_").unwrap_or_default();
            std::env::var_os(name).is_some() || job.mpi_args.iter().any(|word| word == setting)
        };
        all.into_iter()
            .filter(|(name, _)| !is_said(name))
            .map(|(name, path)| (name, path.clone()))
            .collect()
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Whether a rank has said itself what went wrong.
    pub fn has_error(&self) -> bool {
        self.file(ERROR).exists()
    }

    /// What rank `rank` left.
    pub fn word(&self, rank: usize) -> Option<Word> {
        word(&self.file(&format!("rank-{rank}")))
    }

    /// How the first rank of this host ended that ended badly, of a program that is not unisono.
    pub fn first_end(&self) -> Option<RankEnd> {
        rank::read(&self.path)
    }

    /// What a rank has said that went wrong.
    pub fn error(&self) -> Option<String> {
        std::fs::read_to_string(self.file(ERROR)).ok()
    }

    /// Kills what is left of the job on this host.
    pub fn kill_ranks(&self) {
        for pid in self.processes() {
            // It may just have ended.
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Processes of this host that have this folder in their environment: the ranks and what they have started.
    pub fn processes(&self) -> Vec<Pid> {
        let variable = format!("{FOLDER}={}", self.path.display());
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_of_job = |number: &i32| {
            let environment = std::fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|known| known == variable.as_bytes())
        };
        let own = std::process::id() as i32;
        numbers
            .filter(|number| *number != own && is_of_job(number))
            .filter_map(Pid::from_raw)
            .collect()
    }
}

/// Makes a folder that nobody else can look into.
fn make(path: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Whether a process is there and has not ended; one that has and waits to be reaped is gone.
pub fn lives(pid: Pid) -> bool {
    if test_kill_process(pid).is_err() {
        return false;
    }
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // Behind the name in brackets, which may hold anything, comes the state. Other systems have no such file.
    let state = stat.ok().and_then(|text| text.rsplit_once(") ")?.1.chars().next());
    !matches!(state, Some('Z' | 'X'))
}

fn word(path: &Path) -> Option<Word> {
    let text = std::fs::read_to_string(path).ok()?;
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let (host, pid) = first.trim().rsplit_once(' ')?;
    Some(Word {
        host: host.to_string(),
        pid: pid.parse().ok()?,
        last: rest.lines().next().unwrap_or_default().trim().to_string(),
    })
}

impl Drop for Folder {
    fn drop(&mut self) {
        for path in self.memory.iter().chain([&self.path]) {
            for _ in 0..TRIES {
                // A rank that is just ending may write there still. What cannot be deleted stays for the system's own cleaning.
                if std::fs::remove_dir_all(path).is_ok() || !path.exists() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
