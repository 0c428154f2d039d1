//! Ctrl-C, SIGTERM and a closed terminal: the first one asks the run to stop after its step, the second one ends the process
//! at once. A file that would outgrow its limit is a write error like any other.

use crate::exit::{Failure, SIGNAL};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Whether a signal has come.
#[derive(Clone, Default)]
pub struct Signals {
    which: Arc<AtomicUsize>,
}

impl Signals {
    /// Catches these signals from now on.
    ///
    /// # Errors
    /// A system that refuses.
    #[cfg(unix)]
    pub fn catch() -> Result<Signals, Failure> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let signals = Signals::default();
        let asked = Arc::new(AtomicBool::new(false));
        let catch = |signal: i32| {
            // The order matters: at the first signal the flag is still down when the exit looks at it.
            signal_hook::flag::register_conditional_shutdown(signal, i32::from(SIGNAL) + signal, asked.clone())?;
            signal_hook::flag::register(signal, asked.clone())?;
            signal_hook::flag::register_usize(signal, signals.which.clone(), signal as usize)
        };
        // `nohup` lets a program live on without its terminal.
        let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            catch(signal).map_err(refused)?;
        }
        // The launcher asks its ranks to stop in this way, and takes further steps itself.
        if std::env::var_os(crate::launched::FOLDER).is_some() {
            let which = signals.which.clone();
            signal_hook::flag::register_usize(signal_hook::consts::SIGUSR1, which, SIGINT as usize).map_err(refused)?;
        }
        Ok(signals)
    }

    /// Signals are not caught on this system: Ctrl-C ends the process, and the last checkpoint stays good.
    ///
    /// # Errors
    /// None.
    #[cfg(not(unix))]
    pub fn catch() -> Result<Signals, Failure> {
        Ok(Signals::default())
    }

    /// The exit code of the signal that came, if one did.
    pub fn code(&self) -> Option<u8> {
        match self.which.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(SIGNAL + signal as u8),
        }
    }
}

/// Ctrl-C in a conversation: while an answer is written it ends the answer, otherwise the process.
pub struct Interrupts {
    asked: Arc<AtomicBool>,
    idle: Arc<AtomicBool>,
}

/// While this lives an answer is being written.
pub struct Busy<'a>(&'a Interrupts);

impl Interrupts {
    /// Catches Ctrl-C from now on.
    ///
    /// # Errors
    /// A system that refuses.
    pub fn catch() -> Result<Interrupts, Failure> {
        let interrupts = Interrupts {
            asked: Arc::default(),
            idle: Arc::new(AtomicBool::new(true)),
        };
        #[cfg(unix)]
        {
            use signal_hook::consts::SIGINT;
            let shutdown = signal_hook::flag::register_conditional_shutdown(
                SIGINT,
                i32::from(SIGNAL) + SIGINT,
                interrupts.idle.clone(),
            );
            shutdown
                .and_then(|_| signal_hook::flag::register(SIGINT, interrupts.asked.clone()))
                .map_err(refused)?;
        }
        Ok(interrupts)
    }

    /// From now on an answer is written, until the guard goes.
    pub fn busy(&self) -> Busy<'_> {
        self.asked.store(false, Ordering::Relaxed);
        self.idle.store(false, Ordering::Relaxed);
        Busy(self)
    }

    /// Whether Ctrl-C came since the answer began.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.idle.store(true, Ordering::Relaxed);
    }
}

/// Ctrl-C, SIGTERM and a closed terminal at a launcher: each is taken once.
#[cfg(unix)]
pub struct Stops {
    which: Arc<AtomicUsize>,
}

#[cfg(unix)]
impl Stops {
    /// Catches these signals from now on.
    ///
    /// # Errors
    /// A system that refuses.
    pub fn catch() -> Result<Stops, Failure> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let stops = Stops { which: Arc::default() };
        let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            signal_hook::flag::register_usize(signal, stops.which.clone(), signal as usize).map_err(refused)?;
        }
        Ok(stops)
    }

    /// The signal that has come since this was last asked.
    pub fn take(&self) -> Option<u8> {
        match self.which.swap(0, Ordering::Relaxed) {
            0 => None,
            signal => Some(signal as u8),
        }
    }
}

/// Lives on through the signals that MPI's launchers send, which reach a child of this process too. The child has them as this process had.
///
/// # Errors
/// A system that refuses.
#[cfg(unix)]
pub fn outlast() -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
    let all = [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
    for signal in all.into_iter().filter(|signal| !is_ignored(*signal)) {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    Ok(())
}

#[cfg(unix)]
fn refused(error: std::io::Error) -> Failure {
    Failure::running(format!("signals cannot be caught: {error}"))
}

/// Whether this process was started with a signal ignored; where the system does not say, it is taken for ignored.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask & (1 << (signal - 1)) != 0)
}

/// Lets a write beyond `ulimit -f` fail, which is told in words, and not end the process.
#[cfg(unix)]
pub fn let_writes_fail() {
    // Any handler turns the signal into the error; where the system refuses one, all stays as it was.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
}

/// Such a signal is not known on this system.
#[cfg(not(unix))]
pub fn let_writes_fail() {}
