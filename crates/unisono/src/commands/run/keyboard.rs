//! What is typed at the launcher's terminal, on its way to the first rank: nothing outside of the terminal's foreground may read from it, and
//! MPI's launcher is outside.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use rustix::time::Timespec;
use std::io::Write;
use std::process::ChildStdin;

/// Longest line of a terminal: a pipe that takes anything takes so much at once.
const LINE: usize = 4096;

/// See the module.
pub struct Keyboard {
    pipe: Option<ChildStdin>,
}

impl Keyboard {
    /// To a process that reads from a pipe; to nobody where there is none.
    pub fn to(pipe: Option<ChildStdin>) -> Keyboard {
        Keyboard { pipe }
    }

    /// Passes on what has been typed, without waiting for more.
    pub fn pass_on(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let stdin = std::io::stdin();
        // Reading in the background would stop the launcher.
        if tcgetpgrp(&stdin).ok() != Some(getpgrp()) {
            return;
        }
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut ends = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(pipe, PollFlags::OUT)];
        let ready = poll(&mut ends, Some(&now)).is_ok_and(|ready| ready > 0);
        let (typed, taken) = (ends[0].revents(), ends[1].revents());
        if !ready || typed.is_empty() || taken.is_empty() {
            return;
        }
        let mut bytes = [0; LINE];
        let passed = match rustix::io::read(&stdin, &mut bytes) {
            Ok(len @ 1..) => pipe.write_all(&bytes[..len]).is_ok(),
            _ => false,
        };
        if !passed {
            // The end of what is typed, or nobody takes it any more.
            self.pipe = None;
        }
    }
}
