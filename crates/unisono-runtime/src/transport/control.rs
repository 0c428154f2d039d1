//! Control messages: signs of life and last words, in a fixed form.

use super::link::Doing;

/// The tag of control messages.
pub(super) const TAG: u32 = 0;
/// The tag of host data that is brought together.
pub(super) const GATHER: u32 = 1;
/// The tag of a program's hashes, with which one process asks another where their programs part.
pub(super) const ASK: u32 = super::MAX_TAG - 1;
/// The tag of the answer.
pub(super) const ANSWER: u32 = super::MAX_TAG;
/// The first tag of the program's messages.
pub(crate) const PROGRAM: u32 = 2;

const HOST: usize = 64;
const WHAT: usize = 64;
const TEXT: usize = 3_936;
const HEAD: usize = 32;
const LEN: usize = HEAD + HOST + WHAT + TEXT;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A sign of life.
    Beat,
    /// Last words.
    Failure,
    /// Where two programs part; the number is that of the commands.
    Parting,
}

/// Numbers, then three texts of fixed room, each with its length before it.
#[derive(Clone)]
pub(super) struct Control([u8; LEN]);

impl Control {
    pub(super) fn empty() -> Control {
        Control([0; LEN])
    }

    pub(super) fn new(kind: Kind, code: i32, host: &str, doing: Doing, text: &str) -> Control {
        let mut control = Control::empty();
        control.0[0] = match kind {
            Kind::Beat => 1,
            Kind::Failure => 2,
            Kind::Parting => 3,
        };
        control.0[4..8].copy_from_slice(&code.to_le_bytes());
        control.0[8..16].copy_from_slice(&doing.step.to_le_bytes());
        control.0[16..24].copy_from_slice(&doing.commands.to_le_bytes());
        control.put(HEAD, HOST, host);
        control.put(HEAD + HOST, WHAT, doing.what);
        control.put(HEAD + HOST + WHAT, TEXT, text);
        control
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    pub(super) fn kind(&self) -> Kind {
        match self.0[0] {
            2 => Kind::Failure,
            3 => Kind::Parting,
            _ => Kind::Beat,
        }
    }

    pub(super) fn code(&self) -> i32 {
        i32::from_le_bytes([self.0[4], self.0[5], self.0[6], self.0[7]])
    }

    /// Step and commands.
    pub(super) fn doing(&self) -> (u64, u64) {
        (self.word(8), self.word(16))
    }

    pub(super) fn host(&self) -> String {
        self.get(HEAD, HOST)
    }

    pub(super) fn what(&self) -> String {
        self.get(HEAD + HOST, WHAT)
    }

    pub(super) fn text(&self) -> String {
        self.get(HEAD + HOST + WHAT, TEXT)
    }

    fn word(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[at..at + 8]);
        u64::from_le_bytes(bytes)
    }

    /// A text, cut at a character where the room ends.
    fn put(&mut self, at: usize, room: usize, text: &str) {
        let mut len = text.len().min(room - 2);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        // The room is far below 2^16.
        self.0[at..at + 2].copy_from_slice(&(len as u16).to_le_bytes());
        self.0[at + 2..at + 2 + len].copy_from_slice(&text.as_bytes()[..len]);
    }

    fn get(&self, at: usize, room: usize) -> String {
        let len = usize::from(u16::from_le_bytes([self.0[at], self.0[at + 1]])).min(room - 2);
        String::from_utf8_lossy(&self.0[at + 2..at + 2 + len]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_got() {
        let doing = Doing {
            step: 7,
            commands: u64::MAX,
            what: "all_reduce",
        };
        let control = Control::new(Kind::Failure, -3, "a host", doing, &"ä".repeat(4_000));
        assert_eq!(
            (control.kind(), control.code(), control.doing()),
            (Kind::Failure, -3, (7, u64::MAX))
        );
        assert_eq!(
            (control.host().as_str(), control.what().as_str()),
            ("a host", "all_reduce")
        );
        let text = control.text();
        assert!(
            text.len() < TEXT && text.chars().all(|c| c == 'ä') && text.len() > TEXT - 5,
            "{}",
            text.len()
        );
    }
}
