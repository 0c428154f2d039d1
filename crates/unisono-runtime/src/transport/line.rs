//! What one thread at a time holds: the transport, and the control messages that are on their way.

use super::control::{self, Control};
use super::error::TransportError;
use super::{Request, Transport};

/// What one thread at a time holds.
pub struct Line {
    /// What carries the messages.
    pub(crate) transport: Box<dyn Transport>,
    /// Control messages to come, one a peer that is listened to.
    pub(super) coming: Vec<(usize, Box<Control>, Request)>,
    /// Control messages that go out.
    pub(super) going: Vec<(Box<Control>, Request)>,
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

    /// Sends a control message.
    pub(super) fn say(&mut self, peer: usize, message: &Control) -> Result<(), TransportError> {
        let message = Box::new(message.clone());
        let bytes = message.bytes();
        // SAFETY: as in `listen`, in `going`.
        let request = unsafe { self.transport.send(peer, control::TAG, bytes.as_ptr(), bytes.len())? };
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
            if !self.transport.test(self.coming[index].2)? {
                index += 1;
                continue;
            }
            let (peer, message, _) = self.coming.swap_remove(index);
            heard(peer, &message);
            self.listen(peer)?;
        }
        Ok(())
    }

    /// Gives up all control messages.
    pub(super) fn leave(&mut self) {
        let coming = std::mem::take(&mut self.coming);
        let going = std::mem::take(&mut self.going);
        let requests = coming.iter().map(|(_, _, request)| *request);
        for request in requests.chain(going.iter().map(|(_, request)| *request)) {
            // Nobody is left to tell.
            let _ = self.transport.cancel(request);
        }
    }
}
