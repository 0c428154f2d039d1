//! The transport between threads keeps what the transport promises.

#[path = "common/messages.rs"]
mod messages;

use unisono_runtime::transport::{Memory, Transport};

/// Runs `body` on each process of a world in memory.
fn everywhere(size: usize, body: impl Fn(&mut dyn Transport) + Sync) {
    let body = &body;
    std::thread::scope(|scope| {
        for mut process in Memory::world(size) {
            scope.spawn(move || body(&mut process));
        }
    });
}

#[test]
fn messages_arrive_whole_and_in_order() {
    for size in [1, 2, 3, 4] {
        everywhere(size, messages::all);
    }
}

#[test]
#[should_panic(expected = "rank 1 ends the run with exit code 3")]
fn an_end_of_the_run_is_a_panic() {
    Memory::world(2)[1].abort(3);
}
