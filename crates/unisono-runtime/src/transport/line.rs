//! What one thread at a time holds: the transport, and the control messages that are on their way.

use super::control::{self, Control};
use super::error::TransportError;
use super::history;
use super::{Request, Transport};

/// What one thread at a time holds.
pub struct Line {
    /// What carries the messages.
    pub(crate) transport: Box<dyn Transport>,
    /// Control messages to come, one a peer that is listened to.
    pub(super) coming: Vec<(usize, Box<Control>, Request)>,
    /// Control messages that go out.
    pub(super) going: Vec<(Box<Control>, Request)>,
    /// Questions to come, one of each peer: the hashes of its program.
    pub(super) asked: Vec<(usize, Vec<u8>, Request)>,
    /// Whether this process gives no signs of life any more, because it takes leave.
    pub(super) quiet: bool,
}

impl Line {
    /// Begins to listen for the next control message of a peer.
    pub(super) fn listen(&mut self, peer: usize) -> Result<(), TransportError> {
        let mut message = Box::new(Control::empty());
        let bytes = message.bytes_mut();
        // SAFETY: the message lies in a box that `coming` keeps until the request is over or cancelled.
        let request = unsafe {
            self.transport
                .receive(peer, control::TAG, bytes.as_mut_ptr(), bytes.len())?
        };
        self.coming.push((peer, message, request));
        Ok(())
    }

    /// Begins to listen for a question of a peer.
    pub(super) fn listen_for_questions(&mut self, peer: usize) -> Result<(), TransportError> {
        let mut bytes = vec![0; history::LEN];
        // SAFETY: the memory of the vector stays where it is, and `asked` keeps it until the request is over or cancelled.
        let request = unsafe {
            self.transport
                .receive(peer, control::ASK, bytes.as_mut_ptr(), bytes.len())?
        };
        self.asked.push((peer, bytes, request));
        Ok(())
    }

    /// A question that has come, and who asks.
    pub(super) fn question(&mut self) -> Result<Option<(usize, Vec<u8>)>, TransportError> {
        for index in 0..self.asked.len() {
            if self.transport.test(self.asked[index].2)? {
                let (peer, bytes, _) = self.asked.swap_remove(index);
                self.listen_for_questions(peer)?;
                return Ok(Some((peer, bytes)));
            }
        }
        Ok(None)
    }

    /// Sends a control message.
    pub(super) fn say(&mut self, peer: usize, message: &Control) -> Result<(), TransportError> {
        self.say_as(control::TAG, peer, message)
    }

    /// Sends a control message with a tag of its own.
    pub(super) fn say_as(&mut self, tag: u32, peer: usize, message: &Control) -> Result<(), TransportError> {
        let message = Box::new(message.clone());
        let bytes = message.bytes();
        // SAFETY: as in `listen`, in `going`.
        let request = unsafe { self.transport.send(peer, tag, bytes.as_ptr(), bytes.len())? };
        self.going.push((message, request));
        Ok(())
    }

    /// Whether no control message is on its way to another process.
    pub(super) fn has_said_all(&self) -> bool {
        self.going.is_empty()
    }

    /// Moves control messages on; `heard` gets those that have come.
    pub(super) fn hear(&mut self, mut heard: impl FnMut(usize, &Control)) -> Result<(), TransportError> {
        let mut index = 0;
        while index < self.going.len() {
            match self.transport.test(self.going[index].1)? {
                true => drop(self.going.swap_remove(index)),
                false => index += 1,
            }
        }
        let mut index = 0;
        while index < self.coming.len() {
            let ended = self.transport.test(self.coming[index].2);
            if let Ok(false) = ended {
                index += 1;
                continue;
            }
            let (peer, message, _) = self.coming.swap_remove(index);
            // Of another length: of a process of another version, which the comparison at the start finds.
            ended?;
            heard(peer, &message);
            self.listen(peer)?;
        }
        Ok(())
    }

    /// Gives up all control messages.
    pub(super) fn leave(&mut self) {
        let coming = std::mem::take(&mut self.coming);
        let going = std::mem::take(&mut self.going);
        let asked = std::mem::take(&mut self.asked);
        let coming = coming.iter().map(|(_, _, request)| *request);
        let asked = asked.iter().map(|(_, _, request)| *request);
        for request in coming.chain(going.iter().map(|(_, request)| *request)).chain(asked) {
            // Nobody is left to tell.
            let _ = self.transport.cancel(request);
        }
    }
}
