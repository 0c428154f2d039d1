//! The variables by which the processes of a run are told how to go about it: each process reads its own, and a launcher looks at all of
//! them before it starts one.

use crate::exit::Failure;
use crate::output::Level;
use std::collections::BTreeMap;
use std::time::Duration;
use unisono_kernels::isa::Isa;
use unisono_launch::{Flavour, Mpirun};
use unisono_mesh::nearest;
use unisono_runtime::transport::Mpi;

/// Seconds that a process which lives is waited for, unless a variable says otherwise.
const TIMEOUT: u64 = 120;
/// Seconds without a sign of life after which a process is lost, unless a variable says otherwise.
const SILENCE: u64 = 10;

/// What every variable of unisono's begins with.
const PREFIX: &str = "UNISONO_";
/// What the variables of unisono that a user may set have behind that.
const KNOWN: [&str; 7] = [
    "ISA",
    "LOG",
    "LOG_RANKS",
    "MPI",
    "SILENCE",
    "TIMEOUT",
    "VISIBLE_DEVICES",
];
/// What those have that the launcher sets.
const OWN: [&str; 2] = ["RUN_DIR", "RUN_LINE"];

/// Variables of a process by name.
pub type Variables = BTreeMap<String, String>;

/// How long a process that lives is waited for (`UNISONO_TIMEOUT`).
///
/// # Errors
/// A value that is no time.
pub fn timeout(variables: &Variables) -> Result<Duration, Failure> {
    seconds(variables, "UNISONO_TIMEOUT", TIMEOUT)
}

/// After how long without a sign of life a process is lost (`UNISONO_SILENCE`).
///
/// # Errors
/// A value that is no time.
pub fn silence(variables: &Variables) -> Result<Duration, Failure> {
    seconds(variables, "UNISONO_SILENCE", SILENCE)
}

/// A value that is not set or empty says nothing.
fn value<'a>(variables: &'a Variables, name: &str) -> Option<&'a str> {
    variables
        .get(name)
        .map(|value| value.trim())
        .filter(|value| !value.is_empty())
}

fn seconds(variables: &Variables, name: &str, default: u64) -> Result<Duration, Failure> {
    let seconds = match value(variables, name) {
        None => default,
        Some(value) => value.parse().ok().filter(|seconds| *seconds > 0).ok_or_else(|| {
            Failure::input(format!(
                "{name} is `{value}`; a whole number of seconds above 0 was expected"
            ))
        })?,
    };
    Ok(Duration::from_secs(seconds))
}

/// A number that launchers set for each process.
///
/// # Errors
/// A value that is none.
pub fn number(variables: &Variables, name: &str) -> Result<Option<usize>, Failure> {
    match value(variables, name) {
        None => Ok(None),
        Some(value) => value
            .parse()
            .map(Some)
            .map_err(|_| Failure::input(format!("{name} is `{value}`; a number from 0 was expected"))),
    }
}

/// What a rank prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prints {
    /// All, as one program would: the first rank.
    Alone,
    /// All, by its number: another rank, where the first prints nothing.
    Result,
    /// All, by its number, beside a rank before it.
    Beside,
    /// Errors.
    Nothing,
}

/// What `rank` of `size` ranks prints (`UNISONO_LOG_RANKS`: `all` or a list; the first alone otherwise).
///
/// # Errors
/// A list that is none, or names a rank that there is not.
pub fn prints(rank: usize, size: usize, variables: &Variables) -> Result<Prints, Failure> {
    let shown = match value(variables, "UNISONO_LOG_RANKS") {
        None => vec![0],
        Some(list) => listed("UNISONO_LOG_RANKS is", list, size)?,
    };
    Ok(match rank {
        rank if !shown.contains(&rank) => Prints::Nothing,
        0 => Prints::Alone,
        rank if shown.iter().min() == Some(&rank) => Prints::Result,
        _ => Prints::Beside,
    })
}

/// The ranks of a list, `all` or `0,2`, which `place` (`--log-ranks`) gave; there are `size` ranks.
///
/// # Errors
/// A list that is none, or names a rank that there is not.
pub fn listed(place: &str, list: &str, size: usize) -> Result<Vec<usize>, Failure> {
    if list == "all" {
        return Ok((0..size).collect());
    }
    let rank = |word: &str| word.trim().parse().ok().filter(|rank| *rank < size);
    list.split(',')
        .map(|word| {
            rank(word).ok_or_else(|| {
                Failure::input(format!(
                    "{place} {list}: \"{}\" is no rank of this run, which has 0 to {}; `all` or ranks such as `0,2` were expected",
                    word.trim(),
                    size - 1
                ))
            })
        })
        .collect()
}

/// Whether a process of a run of `size` could make sense of its variables; with `is_here`, whether it would find the MPI library that
/// they name on this host, and that is one of the MPI whose launcher starts it.
///
/// # Errors
/// The first variable that means nothing.
pub fn check(variables: &Variables, size: usize, mpirun: &Mpirun, is_here: bool) -> Result<(), Failure> {
    Level::of_variables(variables).map_err(Failure::input)?;
    if let Some(name) = value(variables, "UNISONO_ISA") {
        Isa::named(name).map_err(Failure::input)?;
    }
    if size == 1 {
        return Ok(());
    }
    timeout(variables)?;
    silence(variables)?;
    prints(0, size, variables)?;
    number(variables, "TT_MESH_ID")?;
    number(variables, "TT_MESH_HOST_RANK")?;
    let Some(name) = value(variables, "UNISONO_MPI").filter(|_| is_here) else {
        return Ok(());
    };
    let found = Mpi::found(variables).map_err(Failure::input)?;
    let family = match mpirun.flavour {
        Flavour::OpenMpi => "Open MPI",
        Flavour::Mpich => "MPICH",
    };
    match found.first() {
        Some(found) if !found.version.starts_with(family) => Err(Failure::input(format!(
            "UNISONO_MPI is {name}, a library of {}, and {} is the launcher of {family}: name a library of {family} or unset it, or let \
             the other launcher come first on PATH, under the name mpirun",
            found.version, mpirun.program
        ))),
        _ => Ok(()),
    }
}

/// A note on each variable that has a name like unisono's own and means nothing.
pub fn unknown(variables: &Variables) -> Vec<String> {
    let stray = variables.keys().filter_map(|name| name.strip_prefix(PREFIX));
    stray
        .filter(|name| !KNOWN.contains(name) && !OWN.contains(name))
        .map(|name| {
            let hint = match nearest(name, KNOWN) {
                Some(near) => format!("did you mean {PREFIX}{near}?"),
                None => format!(
                    "the variables that there are: {PREFIX}{}",
                    KNOWN.join(&format!(", {PREFIX}"))
                ),
            };
            format!("{PREFIX}{name} is no variable of unisono's and changes nothing; {hint}")
        })
        .collect()
}
