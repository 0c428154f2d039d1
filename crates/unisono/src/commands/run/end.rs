//! A bad end of a job, and the one message that tells it.

use super::banners::{Banners, Cause};
use super::folder::Folder;
use crate::exit;
use unisono_launch::{Flavour, Job};
use unisono_runtime::machine::host_name;

/// Exit codes that stand for a signal; MPI's launchers have larger ones of their own.
const SIGNALS: std::ops::RangeInclusive<u8> = exit::SIGNAL + 1..=exit::SIGNAL + 64;
/// Signals by which MPI's launchers end the ranks that are left.
const OF_LAUNCHERS: [u8; 2] = [exit::SIGNAL + 15, exit::SIGNAL + 9];

/// See the module.
pub struct End {
    /// The exit code.
    pub code: u8,
    cause: Option<Cause>,
    /// The rank of this host that was seen to end first.
    gone: Option<usize>,
    /// The signal that ended MPI's launcher itself.
    launcher: Option<i32>,
}

impl End {
    /// From what is known: the code and the signal of MPI's launcher, its banners, the rank that was seen to be gone, and the word that
    /// ranks of this host have left.
    pub fn of(
        job: &Job,
        code: u8,
        launcher: Option<i32>,
        banners: &Banners,
        gone: Option<usize>,
        folder: &Folder,
    ) -> End {
        let mut end = End {
            code,
            cause: banners.cause.clone(),
            gone,
            launcher,
        };
        // Where a rank of another host failed, those of this one were ended for it. Open MPI ends with the code of the first.
        let is_first = |own: &u8| match job.mpirun.flavour {
            _ if job.is_here => true,
            Flavour::OpenMpi => *own == code,
            Flavour::Mpich => !OF_LAUNCHERS.contains(own),
        };
        if let Some(first) = folder.first_end().filter(|first| is_first(&first.code)) {
            let (rank, host) = (first.rank, first.host);
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

    /// Which rank ended how, in one sentence; `None` where a rank has said it.
    pub fn message(&self, job: &Job, folder: &Folder, ours: bool) -> Option<String> {
        if ours && folder.has_error() {
            return None;
        }
        let launcher = &job.mpirun.program;
        if let Some(signal) = self.launcher {
            return Some(format!(
                "{launcher} was ended by signal {signal}, and its ranks with it"
            ));
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
            None => {
                let how = match self.code {
                    code if SIGNALS.contains(&code) => format!("was ended by signal {}", signal(code - exit::SIGNAL)),
                    code => format!("ended with exit code {code}"),
                };
                match &self.gone {
                    Some(rank) => (rank, format!("rank {rank}{} {how}", host(*rank))),
                    None => {
                        return Some(match SIGNALS.contains(&self.code) {
                            true => format!("a rank {how}; {launcher} does not say which, and ended the others too"),
                            false => format!("{launcher} {how} and does not say which rank, if one, was the cause"),
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
}

/// A signal with its name: `9 (SIGKILL)`.
fn signal(number: u8) -> String {
    let name = signal_hook::low_level::signal_name(i32::from(number));
    name.map_or(number.to_string(), |name| format!("{number} ({name})"))
}
