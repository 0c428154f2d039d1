//! What this process sends and receives in one place of its command stream.

use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
use std::fmt;
use std::sync::Arc;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// One message of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The other process.
    pub peer: usize,
    /// Whether this process sends; else it receives.
    pub sends: bool,
    /// The device of the system in whose memory the elements lie, at this process. What comes from a device of another process is put
    /// where that device has it: each process keeps address space for every device, and fills what it is sent.
    pub device: usize,
    /// The elements; none where it is enough that the message comes.
    pub buffer: BufferRef,
}

/// The messages of one place of the program, in an order in which the peers have them too. It begins once all devices of this
/// process have come to it, and is over when all messages are; workers do other things meanwhile.
#[derive(Clone)]
pub struct Exchange {
    /// The command that it is for.
    pub what: &'static str,
    /// The messages.
    pub messages: Arc<[Message]>,
    /// What identifies the place in the program.
    pub mark: Mark,
}

/// A place of the program: what processes compare when they meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Commands issued so far.
    pub commands: u64,
    /// The hash of all of them.
    pub hash: u64,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} between processes: {} messages", self.what, self.messages.len())
    }
}

impl Op for Exchange {
    fn name(&self) -> &'static str {
        self.what
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        let sent = self
            .messages
            .iter()
            .filter(|message| message.sends && message.buffer.len > 0);
        sent.for_each(|message| see(message.buffer));
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        let received = self
            .messages
            .iter()
            .filter(|message| !message.sends && message.buffer.len > 0);
        received.for_each(|message| see(message.buffer));
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost::default()
    }

    fn tiles(&self) -> usize {
        1
    }

    fn run(&self, _place: &Place<'_>, _tile: usize, _scratch: &mut Scratch) {
        // Its messages are the wire's.
    }
}
