//! Which MPI library there is.

use super::functions;
use crate::transport::{Source, TransportError};
use libloading::Library;
use std::collections::BTreeMap;

/// The variable that names the library.
pub const VARIABLE: &str = "UNISONO_MPI";

/// The two families of libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Open MPI.
    OpenMpi,
    /// MPICH, Intel MPI, MVAPICH, Cray MPICH.
    Mpich,
}

impl Family {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
        }
    }

    /// The names of its shared library: of Open MPI 3 to 5; of MPICH as Debian calls it, and as it calls itself.
    pub fn files(self) -> &'static [&'static str] {
        match (self, cfg!(target_os = "macos")) {
            (Self::OpenMpi, false) => &["libmpi.so.40"],
            (Self::Mpich, false) => &["libmpich.so.12", "libmpi.so.12"],
            (Self::OpenMpi, true) => &["libmpi.40.dylib"],
            (Self::Mpich, true) => &["libmpi.12.dylib", "libmpich.12.dylib"],
        }
    }
}

/// A library that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The file, as the system's loader was asked for it.
    pub library: String,
    /// Its name and version, short.
    pub version: String,
}

/// A library that is loaded.
pub struct Loaded {
    pub library: &'static Library,
    pub family: Family,
    pub found: Found,
}

/// Files to look for: the one that the environment names, else the family that the launcher speaks for, then the other.
pub fn files(environment: &BTreeMap<String, String>, source: Source) -> Vec<String> {
    if let Some(named) = environment.get(VARIABLE).filter(|named| !named.is_empty()) {
        return vec![named.clone()];
    }
    let families = match source {
        Source::Pmi => [Family::Mpich, Family::OpenMpi],
        _ => [Family::OpenMpi, Family::Mpich],
    };
    families
        .into_iter()
        .flat_map(Family::files)
        .map(|file| file.to_string())
        .collect()
}

/// Loads a library, to stay until the process ends: MPI leaves threads and handlers behind that have their code there. `open` says that it
/// will be used: parts that it loads itself find its symbols.
///
/// # Errors
/// Why it cannot be used.
pub fn load(file: &str, open: bool) -> Result<Loaded, String> {
    let library = dlopen(file, open)?;
    // SAFETY: only the address is looked up.
    let is_open_mpi = unsafe { library.get::<*const u8>(b"ompi_mpi_comm_world") }.is_ok();
    // SAFETY: the function is looked up by its name in the standard.
    let version = unsafe { functions::version(library) };
    let version = version.map_err(|error| format!("{file} is no MPI library: {error}"))?;
    let is_mpich = ["MPICH", "Intel(R) MPI", "MVAPICH"]
        .iter()
        .any(|name| version.contains(name));
    let family = match (is_open_mpi, is_mpich) {
        (true, _) => Family::OpenMpi,
        (false, true) => Family::Mpich,
        (false, false) => {
            let line = version.lines().next().unwrap_or_default();
            return Err(format!("{file} is {line:?}, neither Open MPI nor of MPICH's kind"));
        }
    };
    Ok(Loaded {
        library,
        family,
        found: Found {
            library: file.to_string(),
            version: short(&version),
        },
    })
}

#[cfg(unix)]
fn dlopen(file: &str, open: bool) -> Result<&'static Library, String> {
    use libloading::os::unix;
    let flags = match open {
        true => unix::RTLD_NOW | unix::RTLD_GLOBAL,
        // Two libraries that are only asked for their versions must not find each other's symbols.
        false => unix::RTLD_LAZY | unix::RTLD_LOCAL,
    };
    // SAFETY: loading runs what the library does at its start; the user has installed or named it as an MPI library.
    let library = unsafe { unix::Library::open(Some(file), flags) };
    let library = library.map_err(|error| error.to_string())?;
    Ok(Box::leak(Box::new(library.into())))
}

#[cfg(not(unix))]
fn dlopen(file: &str, _open: bool) -> Result<&'static Library, String> {
    // SAFETY: as above.
    let library = unsafe { Library::new(file) };
    Ok(Box::leak(Box::new(library.map_err(|error| error.to_string())?)))
}

/// Loads the first library that there is.
///
/// # Errors
/// [`TransportError::Absent`] with what was looked for.
pub fn first(environment: &BTreeMap<String, String>, source: Source) -> Result<Loaded, TransportError> {
    let mut reasons = Vec::new();
    for file in files(environment, source) {
        match load(&file, true) {
            Ok(loaded) => return Ok(loaded),
            Err(reason) => reasons.push(reason),
        }
    }
    Err(TransportError::Absent(absent(environment, &reasons)))
}

/// The sentence where no library can be used.
pub fn absent(environment: &BTreeMap<String, String>, reasons: &[String]) -> String {
    let what = match environment.get(VARIABLE).filter(|named| !named.is_empty()) {
        Some(named) => format!("{VARIABLE} names {named}, which cannot be used"),
        None => "no MPI library was found".to_string(),
    };
    format!(
        "{what} ({}); several processes need one: install Open MPI or MPICH (on Debian and Ubuntu apt-get install openmpi-bin, or \
         mpich), or name the library with {VARIABLE}",
        reasons.join("; ")
    )
}

/// The name and number in a library's long text about itself.
fn short(version: &str) -> String {
    let line = version.lines().next().unwrap_or_default();
    // "Open MPI v4.1.4, package: Debian OpenMPI, ident: …" and "MPICH Version:  4.0.2".
    let line = line.split(',').next().unwrap_or_default();
    let line = line.replace(" Version:", "").replace("Open MPI v", "Open MPI ");
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_short() {
        for (text, name) in [
            (
                "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022",
                "Open MPI 4.1.4",
            ),
            ("MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7", "MPICH 4.0.2"),
            (
                "Intel(R) MPI Library 2021.9 for Linux* OS\n",
                "Intel(R) MPI Library 2021.9 for Linux* OS",
            ),
        ] {
            assert_eq!(short(text), name);
        }
    }

    #[test]
    fn the_launchers_library_comes_first() {
        let mut environment = BTreeMap::new();
        assert_eq!(files(&environment, Source::Pmi).len(), 3);
        assert_eq!(files(&environment, Source::OpenMpi)[0], Family::OpenMpi.files()[0]);
        assert_eq!(files(&environment, Source::Pmi)[0], Family::Mpich.files()[0]);
        environment.insert(VARIABLE.into(), "mine.so".into());
        assert_eq!(files(&environment, Source::Pmi), ["mine.so"]);
    }

    #[test]
    fn a_library_of_something_else_is_refused() {
        let reason = |file| load(file, false).err().expect("it is no MPI library");
        assert!(
            reason("libc.so.6").contains("libc.so.6 is no MPI library"),
            "{}",
            reason("libc.so.6")
        );
        assert!(reason("no-such-library.so").contains("no-such-library.so"));
        let environment = BTreeMap::from([(VARIABLE.to_string(), "no-such-library.so".to_string())]);
        let error = first(&environment, Source::Alone)
            .err()
            .expect("there is none")
            .to_string();
        assert!(
            error.starts_with("UNISONO_MPI names no-such-library.so, which cannot be used"),
            "{error}"
        );
        assert!(error.contains("apt-get install openmpi-bin"), "{error}");
    }
}
