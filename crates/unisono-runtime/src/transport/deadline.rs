//! A call that another process can keep from returning, with an end to the patience.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Does `body`, and meanwhile, if that takes longer than `limit`, `late` on another thread: what cannot be called off can only be left,
/// with the whole process. Without a thread to be had, `body` may take as long as it likes.
pub fn within<T>(limit: Duration, late: impl FnOnce() + Send, body: impl FnOnce() -> T) -> T {
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        let watch = move || {
            if is_done.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                late();
            }
        };
        // It ends by itself; see above where there is none.
        let _ = std::thread::Builder::new()
            .name("unisono deadline".to_string())
            .spawn_scoped(scope, watch);
        let result = body();
        drop(done);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn what_takes_long_is_noticed_and_nothing_else() {
        let noticed = AtomicBool::new(false);
        let late = || noticed.store(true, Ordering::Release);
        assert_eq!(within(Duration::from_secs(3600), late, || 7), 7);
        assert!(!noticed.load(Ordering::Acquire));
        within(Duration::from_millis(1), late, || {
            while !noticed.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        });
    }
}
