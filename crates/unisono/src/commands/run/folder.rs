//! The folder in which ranks of this host leave word for the launcher.

use crate::exit::Failure;
use crate::launched::FOLDER;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A temporary folder, gone with this value.
pub struct Folder {
    path: PathBuf,
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
    /// A new one.
    ///
    /// # Errors
    /// A system that has no room for it.
    pub fn new() -> Result<Folder, Failure> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_nanos());
        let name = format!("unisono-run-{}-{now:x}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).map_err(|error| {
            Failure::running(format!(
                "the temporary folder {} cannot be made: {error}",
                path.display()
            ))
        })?;
        Ok(Folder { path })
    }

    /// The variables that tell ranks of it.
    pub fn variables(&self) -> Vec<(String, String)> {
        vec![(FOLDER.to_string(), self.path.display().to_string())]
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Whether a rank has said itself what went wrong.
    pub fn has_error(&self) -> bool {
        self.file("error").exists()
    }

    /// What rank `rank` left.
    pub fn word(&self, rank: usize) -> Option<Word> {
        word(&self.file(&format!("rank-{rank}")))
    }
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
        // What cannot be deleted stays for the system's own cleaning.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
