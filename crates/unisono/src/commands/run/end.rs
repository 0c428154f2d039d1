//! A bad end of a job, and the one message that tells it.

use super::banners::{Banners, Cause};
use super::folder::Folder;
use super::unstarted;
use crate::exit;
use crate::output::numbers::counted;
use unisono_launch::{Flavour, Job};
use unisono_runtime::machine::{cores, host_name};

/// Exit codes that stand for a signal; MPI's launchers have larger ones of their own.
const SIGNALS: std::ops::RangeInclusive<u8> = exit::SIGNAL + 1..=exit::SIGNAL + 64;
/// Signals by which MPI's launchers end the ranks that are left.
const OF_LAUNCHERS: [u8; 2] = [exit::SIGNAL + 15, exit::SIGNAL + 9];

/// Most of ssh's words that are told.
const MAX_REASONS: usize = 4;

/// See the module.
pub struct End {
    /// The exit code.
    pub code: u8,
    cause: Option<Cause>,
    /// The rank of this host that was seen to end first.
    gone: Option<usize>,
    /// The signal that ended MPI's launcher itself.
    launcher: Option<i32>,
    /// Why hosts are out of reach, in ssh's words.
    reasons: Vec<String>,
    /// All ranks had ended and MPI's launcher had not; with what a rank had said.
    stuck: Option<String>,
}

impl End {
    /// From what is known: the code and the signal of MPI's launcher, its banners, the rank that was seen to be gone, and the word that
    /// ranks of this host have left. Where a rank has `told` what went wrong it has ended the others, and MPI's launcher has its code.
    pub fn of(
        job: &Job,
        code: u8,
        launcher: Option<i32>,
        banners: &Banners,
        gone: Option<usize>,
        folder: &Folder,
        told: bool,
    ) -> End {
        let mut end = End {
            code,
            cause: banners.cause.clone(),
            gone,
            launcher,
            reasons: banners.reasons.clone(),
            stuck: None,
        };
        if end.cause.is_none() && !end.reasons.is_empty() {
            end.cause = Some(Cause::Unstarted(unstarted::UNREACHED.to_string()));
        }
        if let Some(Cause::Unstarted(_)) = end.cause {
            end.code = exit::FAILED;
            return end;
        }
        // Where a rank of another host failed, those of this one were ended for it. Open MPI ends with the code of the first.
        let is_first = |own: &u8| match job.mpirun.flavour {
            _ if job.is_here => true,
            Flavour::OpenMpi => *own == code,
            Flavour::Mpich => !OF_LAUNCHERS.contains(own),
        };
        if let Some(first) = folder.first_end().filter(|first| !told && is_first(&first.code)) {
            let (rank, host) = (first.rank, first.host);
            if let Some(why) = first.unstarted {
                end.code = exit::FAILED;
                end.cause = Some(Cause::Unstarted(format!("on {host} {why}")));
                return end;
            }
            end.code = first.code;
            end.cause = Some(match first.by_signal {
                true => Cause::Signal {
                    rank,
                    host,
                    signal: signal(first.code - exit::SIGNAL),
                },
                false => Cause::Exit {
                    rank,
                    code: i32::from(first.code),
                },
            });
        }
        end
    }

    /// Where all ranks had ended and MPI's launcher was ended for that; `has_error`: what one had said was shown.
    pub fn of_stuck(folder: &Folder, has_error: bool) -> End {
        End {
            code: exit::FAILED,
            cause: None,
            gone: None,
            launcher: None,
            reasons: Vec::new(),
            stuck: (!has_error).then(|| folder.error().unwrap_or_default()),
        }
    }

    /// Which rank ended how, in one sentence; `None` where a rank has said it.
    pub fn message(&self, job: &Job, folder: &Folder, ours: bool) -> Option<String> {
        let launcher = &job.mpirun.program;
        if let Some(said) = &self.stuck {
            let said = match said.is_empty() {
                true => String::new(),
                false => format!("; the last that one said: {said}"),
            };
            return Some(format!(
                "the ranks have ended without a word to {launcher}, which did not end by itself (a file that cannot grow, under `ulimit -f`, \
                 does that){said}; unisono run -v shows what {launcher} says"
            ));
        }
        if ours && folder.has_error() {
            return None;
        }
        if let Some(signal) = self.launcher {
            return Some(format!(
                "{launcher} was ended by signal {signal}, and its ranks with it"
            ));
        }
        match &self.cause {
            Some(Cause::Unstarted(why)) => return Some(self.unstarted(why, job)),
            Some(Cause::Lost { host }) => {
                return Some(format!(
                    "{launcher} has lost its connection to {host}, and ended the ranks: the host is down, or cut off"
                ));
            }
            _ => {}
        }
        let host = |rank: usize| {
            let host = folder.word(rank).map(|word| word.host);
            let host = host.or_else(|| job.ranks.get(rank)?.host.clone());
            let host = host.or_else(|| job.is_here.then(host_name));
            host.map(|host| format!(" on {host}")).unwrap_or_default()
        };
        let (rank, mut message) = match &self.cause {
            Some(Cause::Exit { rank, code }) => {
                (rank, format!("rank {rank}{} ended with exit code {code}", host(*rank)))
            }
            Some(Cause::Signal { rank, host, signal }) => {
                (rank, format!("rank {rank} on {host} was ended by signal {signal}"))
            }
            Some(Cause::Early { rank, host }) => (
                rank,
                format!("rank {rank} on {host} ended before the others, without a word to them"),
            ),
            Some(Cause::Unstarted(_) | Cause::Lost { .. }) | None => {
                let how = match self.code {
                    code if SIGNALS.contains(&code) => format!("was ended by signal {}", signal(code - exit::SIGNAL)),
                    code => format!("ended with exit code {code}"),
                };
                match &self.gone {
                    Some(rank) => (rank, format!("rank {rank}{} {how}", host(*rank))),
                    None => {
                        if let Some(rank) = beyond(job) {
                            return Some(rank);
                        }
                        return Some(match SIGNALS.contains(&self.code) {
                            true => format!("a rank {how}; {launcher} does not say which, and ended the others too"),
                            false => format!(
                                "{launcher} {how} and does not say which rank, if one, was the cause; unisono run -v shows what it says"
                            ),
                        });
                    }
                }
            }
        };
        let last = folder.word(*rank).map(|word| word.last).filter(|last| !last.is_empty());
        if let Some(last) = last {
            message += &format!("; the last that it did: {last}");
        }
        Some(format!("{message}; this ended the other ranks too"))
    }

    /// That nothing was started, where, and why.
    fn unstarted(&self, why: &str, job: &Job) -> String {
        let mut hosts: Vec<&str> = job.ranks.iter().filter_map(|rank| rank.host.as_deref()).collect();
        hosts.dedup();
        let hosts = match hosts.is_empty() {
            true => String::new(),
            false => format!(" on {}", unisono_train::config::listed(&hosts, "and")),
        };
        let mut reasons = self.reasons.clone();
        reasons.sort();
        reasons.dedup();
        reasons.truncate(MAX_REASONS);
        let reasons = match reasons.is_empty() {
            true => String::new(),
            false => format!(" ({})", reasons.join("; ")),
        };
        let ranks = counted(job.ranks.len(), "rank");
        let launcher = &job.mpirun.program;
        format!("{ranks}{hosts} could not be started: {why}{reasons}; unisono run -v shows what {launcher} says")
    }
}

/// A rank that a rankfile places at a processor which this host does not have: Open MPI ends without a word then.
fn beyond(job: &Job) -> Option<String> {
    let is_here = |host: &str| host == "localhost" || host == host_name();
    let cores = cores();
    job.ranks.iter().find_map(|rank| {
        let host = rank.host.as_deref().filter(|host| is_here(host))?;
        let slot = rank.slot.as_deref()?;
        let last = slot.split([',', '-']).filter_map(|number| number.trim().parse::<usize>().ok()).max()?;
        (last >= cores).then(|| {
            format!(
                "{} could not be started: the rankfile places rank {} at slot {slot} of {host}, which has {} (slot 0 to {})",
                counted(job.ranks.len(), "rank"),
                rank.rank,
                counted(cores, "processor"),
                cores - 1
            )
        })
    })
}

/// A signal with its name: `9 (SIGKILL)`.
fn signal(number: u8) -> String {
    let name = signal_hook::low_level::signal_name(i32::from(number));
    name.map_or(number.to_string(), |name| format!("{number} ({name})"))
}
