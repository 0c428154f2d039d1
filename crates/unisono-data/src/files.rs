//! Files that are either old or new, never half: atomic writes, and hashes to check them by.

use crate::DataError;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Begins the name of every temporary file, so that what a killed process left can be told and removed.
const TEMPORARY_PREFIX: &str = ".unisono-tmp-";

/// Size and hash of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDigest {
    /// Size in bytes.
    pub bytes: u64,
    /// BLAKE3 of the contents in lower-case hex, 64 digits.
    pub blake3: String,
}

/// A file being written under a temporary name in the directory of its final one.
///
/// Writes are buffered and hashed. [`commit`](Self::commit) makes the file durable and gives it its name; dropped before that, it
/// leaves nothing behind, and an older file of the name is as it was.
#[derive(Debug)]
pub struct AtomicFile {
    target: PathBuf,
    temporary: PathBuf,
    writer: Option<BufWriter<File>>,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl AtomicFile {
    /// Opens a temporary file beside `path`, whose directory must exist. Where `path` is a link, the file that it leads to is meant.
    ///
    /// # Errors
    /// [`DataError::Write`], also where `path` is there and is no regular file: a device or a pipe would be replaced by a file.
    pub fn create(path: &Path) -> Result<Self, DataError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let failed = |error: io::Error| DataError::write(path, &error);
        let target = match path.is_symlink() {
            true => fs::canonicalize(path).map_err(failed)?,
            false => path.to_path_buf(),
        };
        if fs::metadata(&target).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            return Err(failed(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is no regular file, and would be replaced by one; name a file",
            )));
        }
        let Some(name) = target.file_name() else {
            return Err(failed(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the path names no file",
            )));
        };
        if target.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        // A number that is taken belongs to a process of the same id that was killed; the next one will do.
        for _ in 0..1000 {
            let mut temporary = OsString::from(TEMPORARY_PREFIX);
            temporary.push(format!(
                "{}-{}-",
                std::process::id(),
                NEXT.fetch_add(1, Ordering::Relaxed)
            ));
            // A name may be 255 bytes on most systems: leave the final name out where both would be longer.
            if name.len() < 200 {
                temporary.push(name);
            }
            let temporary = target.with_file_name(temporary);
            match OpenOptions::new().write(true).create_new(true).open(&temporary) {
                Ok(file) => {
                    return Ok(Self {
                        target,
                        temporary,
                        writer: Some(BufWriter::with_capacity(1 << 18, file)),
                        hasher: blake3::Hasher::new(),
                        bytes: 0,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(io::Error::other("a thousand temporary files are in the way")))
    }

    /// Writes out what is buffered, waits until the disk has it, gives the file its name in place of an older one, and waits
    /// for the directory.
    ///
    /// # Errors
    /// [`DataError::Write`]; the temporary file is then gone, and an older file is as it was unless it was the very last step, the
    /// wait for the directory, that failed.
    pub fn commit(mut self) -> Result<FileDigest, DataError> {
        self.finish().map_err(|error| DataError::write(&self.target, &error))?;
        Ok(FileDigest {
            bytes: self.bytes,
            blake3: self.hasher.finalize().to_hex().to_string(),
        })
    }

    /// The error of a write to this file, in words.
    pub fn error(&self, error: &io::Error) -> DataError {
        DataError::write(&self.target, error)
    }

    fn finish(&mut self) -> io::Result<()> {
        let Some(writer) = self.writer.take() else {
            return Ok(());
        };
        let finished = writer
            .into_inner()
            .map_err(|error| error.into_error())
            .and_then(|file| {
                file.sync_all()?;
                drop(file);
                fs::rename(&self.temporary, &self.target)
            });
        if finished.is_err() {
            remove_quietly(&self.temporary);
        }
        finished?;
        sync_directory(self.target.parent().unwrap_or(Path::new("")))
    }
}

impl Write for AtomicFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let Some(writer) = self.writer.as_mut() else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let written = writer.write(data)?;
        self.hasher.update(&data[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            // The parts are taken so that nothing buffered is written to a file about to be removed.
            drop(writer.into_parts());
            remove_quietly(&self.temporary);
        }
    }
}

/// Writes a file at once or not at all: `write` gets the temporary file, and the result is named `path` when it succeeds.
///
/// # Errors
/// [`DataError::Write`], for errors of `write` too; an older file is then as it was and nothing is left behind.
pub fn atomic_write(
    path: &Path,
    write: impl FnOnce(&mut AtomicFile) -> io::Result<()>,
) -> Result<FileDigest, DataError> {
    let mut file = AtomicFile::create(path)?;
    write(&mut file).map_err(|error| file.error(&error))?;
    file.commit()
}

/// Size and hash of a file, read in pieces.
///
/// # Errors
/// [`DataError::Read`].
pub fn hash_file(path: &Path) -> Result<FileDigest, DataError> {
    let failed = |error: io::Error| DataError::read(path, &error);
    let mut file = open_regular(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 18];
    let mut bytes = 0;
    loop {
        let count = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed(error)),
        };
        hasher.update(&buffer[..count]);
        bytes += count as u64;
    }
    Ok(FileDigest {
        bytes,
        blake3: hasher.finalize().to_hex().to_string(),
    })
}

/// Opens a file to read. Whatever else has a name (a directory, a device, a named pipe) is refused before it is opened: reading
/// such a thing may never end.
///
/// # Errors
/// [`DataError::Read`].
pub fn open_regular(path: &Path) -> Result<File, DataError> {
    let failed = |error: io::Error| DataError::read(path, &error);
    // An empty path is the current directory, as in `sync_directory`.
    let metadata = match path.as_os_str().is_empty() {
        true => fs::metadata("."),
        false => fs::metadata(path),
    };
    regular(&metadata.map_err(failed)?).map_err(failed)?;
    let file = File::open(path).map_err(failed)?;
    // What has just been opened may be another than what was looked at.
    regular(&file.metadata().map_err(failed)?).map_err(failed)?;
    Ok(file)
}

/// All bytes of a file; see [`open_regular`].
///
/// # Errors
/// [`DataError::Read`].
pub fn read_regular(path: &Path) -> Result<Vec<u8>, DataError> {
    let mut file = open_regular(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)
        .map_err(|error| DataError::read(path, &error))?;
    Ok(bytes)
}

fn regular(metadata: &fs::Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    Err(match metadata.is_dir() {
        true => io::ErrorKind::IsADirectory.into(),
        false => io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file (but a device, a pipe or a socket, which may never end); copy what it gives to a file",
        ),
    })
}

/// The hash of bytes in memory, as [`hash_file`] writes it.
pub fn hash_bytes(data: &[u8]) -> String {
    blake3::hash(data).to_hex().to_string()
}

/// Waits until the disk has a directory's entries (files made, renamed or removed in it). `""` is the current directory.
///
/// # Errors
/// What the system answers; systems that cannot open directories succeed without doing anything.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    File::open(directory)?.sync_all()
}

/// Removes the temporary files that killed processes left in a directory, and says how many. Call it only where no other
/// process is writing.
///
/// # Errors
/// [`DataError::Read`] when the directory cannot be listed; a file that cannot be removed is left alone.
pub fn remove_temporaries(directory: &Path) -> Result<usize, DataError> {
    let entries = fs::read_dir(directory).map_err(|error| DataError::read(directory, &error))?;
    let mut removed = 0;
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(TEMPORARY_PREFIX);
        if ours && fs::remove_file(entry.path()).is_ok() {
            removed += 1;
        }
    }
    Ok(removed)
}

fn remove_quietly(path: &Path) {
    // The error that led here is the one to report; a second one would hide it.
    let _ = fs::remove_file(path);
}
