//! Ctrl-C and SIGTERM: the first one asks the run to stop after its step, the second one ends the process at once.

use crate::exit::{Failure, SIGNAL};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whether a signal has come.
#[derive(Clone, Default)]
pub struct Signals {
    which: Arc<AtomicUsize>,
}

impl Signals {
    /// Catches both signals from now on.
    ///
    /// # Errors
    /// A system that refuses.
    #[cfg(unix)]
    pub fn catch() -> Result<Signals, Failure> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        use std::sync::atomic::AtomicBool;
        let signals = Signals::default();
        let asked = Arc::new(AtomicBool::new(false));
        let catch = |signal: i32| {
            // The order matters: at the first signal the flag is still down when the exit looks at it.
            signal_hook::flag::register_conditional_shutdown(signal, i32::from(SIGNAL) + signal, asked.clone())?;
            signal_hook::flag::register(signal, asked.clone())?;
            signal_hook::flag::register_usize(signal, signals.which.clone(), signal as usize)
        };
        for signal in [SIGINT, SIGTERM] {
            catch(signal).map_err(|error| Failure::running(format!("signals cannot be caught: {error}")))?;
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
