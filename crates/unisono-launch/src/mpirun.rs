//! MPI's launcher: whose it is, and its version.

/// Whose launcher it is: they differ in their options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// MPICH's `mpiexec` (Hydra).
    Mpich,
}

/// MPI's launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mpirun {
    /// The program's name.
    pub program: String,
    /// Whose it is.
    pub flavour: Flavour,
    /// Its version, major and minor, where it says so.
    pub version: Option<(u32, u32)>,
}

impl Mpirun {
    /// From what `program --version` prints. `None`: it is no launcher that is known.
    pub fn parse(program: &str, text: &str) -> Option<Mpirun> {
        let (flavour, start) = match text {
            _ if text.contains("Open MPI") || text.contains("PRRTE") => (Flavour::OpenMpi, text.find(") ")?),
            _ if text.contains("HYDRA") || text.contains("Intel(R) MPI") => (Flavour::Mpich, text.find("ersion")?),
            _ => return None,
        };
        let numbers = text[start..].trim_start_matches(|c: char| !c.is_ascii_digit());
        let mut numbers = numbers.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        let version = match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
            _ => None,
        };
        Some(Mpirun {
            program: program.to_string(),
            flavour,
            version,
        })
    }

    /// What is shown where none is installed.
    pub(crate) fn absent() -> Mpirun {
        Mpirun {
            program: "mpirun".to_string(),
            flavour: Flavour::OpenMpi,
            version: None,
        }
    }
}
