//! Rankfiles (`rank N=HOST slot=M`) and hostfiles (`HOST slots=N`) of Open MPI, as strictly as Open MPI reads them.

use crate::mpirun::Mpirun;
use crate::request::RankfileSyntax;
use unisono_train::config::{Findings, Place};

/// The first major version of Open MPI that takes a rankfile by `--map-by rankfile:file=`.
const MAP_BY_SINCE: u32 = 5;

/// A file of either form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankfileText {
    /// Lines that place a rank.
    pub ranks: Vec<RankLine>,
    /// Lines that name a host.
    pub hosts: Vec<HostLine>,
}

/// `rank N=HOST slot=M`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankLine {
    /// The rank.
    pub rank: usize,
    /// Its host.
    pub host: String,
    /// Its processors, as Open MPI writes them: `0`, `0-3`, `1:*`.
    pub slot: String,
    /// Where it was written.
    pub place: Place,
}

/// `HOST slots=N`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLine {
    /// The host.
    pub host: String,
    /// Ranks that it takes; `None`: as many as it has cores.
    pub slots: Option<usize>,
    /// Where it was written.
    pub place: Place,
}

/// Reads a file; what Open MPI would not read is told with its line.
pub(crate) fn parse(text: &str, shown: &str, findings: &mut Findings) -> RankfileText {
    let mut file = RankfileText::default();
    for (index, line) in text.split('\n').enumerate() {
        let place = Place::File {
            file: shown.into(),
            line: index + 1,
            column: 1,
        };
        if line.ends_with('\r') {
            findings.problem(
                Some(place),
                "the line ends with CRLF, which Open MPI does not read: save the file with Unix line ends",
            );
            break;
        }
        let line = line.split('#').next().unwrap_or_default().replace('=', " = ");
        let words: Vec<&str> = line.split_whitespace().collect();
        let result = match words.as_slice() {
            [] => Ok(()),
            ["rank", ..] => rank(&words, &place).map(|line| file.ranks.push(line)),
            [first, ..] if first.eq_ignore_ascii_case("rank") => {
                Err(format!("{first} must be written in small letters: rank N=HOST slot=M"))
            }
            _ => host(&words, &place).map(|line| file.hosts.push(line)),
        };
        if let Err(message) = result {
            findings.problem(Some(place), message);
        }
    }
    if let (Some(rank), Some(host)) = (file.ranks.first(), file.hosts.first()) {
        let message = format!(
            "this line names a host ({}), and {} places a rank: a rankfile has lines rank N=HOST slot=M only, a \
             hostfile lines HOST slots=N only",
            host.host, rank.place
        );
        findings.problem(Some(host.place.clone()), message);
    }
    for (index, line) in file.ranks.iter().enumerate() {
        if let Some(first) = file.ranks[..index].iter().find(|first| first.rank == line.rank) {
            let message = format!("rank {} is placed twice: here and at {}", line.rank, first.place);
            findings.problem(Some(line.place.clone()), message);
        }
    }
    file
}

fn rank(words: &[&str], place: &Place) -> Result<RankLine, String> {
    const FORM: &str = "the form is rank N=HOST slot=M";
    let (rank, host, slot) = match words {
        [_, rank, "=", host, "slot" | "slots", "=", slot] => (rank, host, slot),
        [_, _, "=", host] => return Err(format!("{host} has no slot: {FORM}")),
        [_, _, "=", _, key, "=", _] => return Err(format!("\"{key}\" is not known: {FORM}")),
        _ => {
            return Err(format!(
                "\"{}\" cannot be read: {FORM}",
                words.join(" ").replace(" = ", "=")
            ));
        }
    };
    let rank = rank
        .parse::<u32>()
        .map_err(|_| format!("\"{rank}\" is no rank: {FORM}"))?;
    let is_slot = |c: char| c.is_ascii_digit() || ":,-*pP\"".contains(c);
    if !slot.chars().all(is_slot) {
        return Err(format!(
            "\"{slot}\" is no slot: a processor (0), a range (0-3), or socket:core (1:0-3)"
        ));
    }
    Ok(RankLine {
        rank: rank as usize,
        host: name(host)?,
        slot: slot.trim_matches('"').to_string(),
        place: place.clone(),
    })
}

fn host(words: &[&str], place: &Place) -> Result<HostLine, String> {
    const FORM: &str = "the form is HOST slots=N (of a rankfile: rank N=HOST slot=M)";
    let mut slots = None;
    for pair in words[1..].chunks(3) {
        let number = |value: &str| {
            let number = value.parse::<u32>().ok().filter(|number| *number > 0);
            number.ok_or_else(|| format!("\"{value}\" slots: a whole number of at least 1 is needed"))
        };
        match pair {
            ["slots" | "slot" | "count" | "cpu", "=", value] => slots = Some(number(value)? as usize),
            ["max_slots" | "max-slots" | "slots_max" | "slots-max", "=", value] => {
                number(value)?;
            }
            ["user" | "username" | "port" | "boards" | "sockets", "=", _] => {}
            _ => {
                return Err(format!(
                    "\"{}\" cannot be read: {FORM}",
                    words.join(" ").replace(" = ", "=")
                ));
            }
        }
    }
    Ok(HostLine {
        host: name(words[0])?,
        slots,
        place: place.clone(),
    })
}

/// The arguments by which Open MPI's launcher takes the rankfile at `path`; a form that its version does not know is a problem.
pub(crate) fn option(syntax: RankfileSyntax, path: &str, launcher: &Mpirun, findings: &mut Findings) -> Vec<String> {
    let is_new = launcher.version.is_some_and(|(major, _)| major >= MAP_BY_SINCE);
    if let (RankfileSyntax::MapBy, false, Some((major, minor))) = (syntax, is_new, launcher.version) {
        let message = format!(
            "--rankfile-syntax map-by needs Open MPI {MAP_BY_SINCE}.0 or newer, and {} here is of Open MPI {major}.{minor}: leave the \
             option away, or write --rankfile-syntax rankfile",
            launcher.program
        );
        findings.problem(None, message);
    }
    let map_by = format!("rankfile:file={path}");
    let words: &[&str] = match syntax {
        RankfileSyntax::MapBy => &["--map-by", &map_by],
        RankfileSyntax::Auto if is_new => &["--map-by", &map_by],
        RankfileSyntax::Auto | RankfileSyntax::Rankfile => &["--rankfile", path],
        RankfileSyntax::Mca => &["--mca", "rmaps_rankfile_path", path],
    };
    words.iter().map(|word| word.to_string()).collect()
}

/// The name of a host, without a user in front of it.
fn name(host: &str) -> Result<String, String> {
    let name = host.rsplit_once('@').map_or(host, |(_, name)| name);
    if name.contains(':') {
        return Err(format!(
            "{name} is an IPv6 address, which Open MPI does not take as the name of a host: give it a name in \
             /etc/hosts"
        ));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._+".contains(c);
    if name.is_empty() || name.starts_with('-') || !name.chars().all(is_name) {
        return Err(format!("\"{name}\" is no name of a host"));
    }
    Ok(name.to_string())
}
