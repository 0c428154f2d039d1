//! Protobuf text format, first half: characters to tokens.

use super::report::Position;

/// A word of the text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token<'a> {
    /// A name or an enum word.
    Word(&'a str),
    /// A whole number without its sign, which is a symbol.
    Whole(u64),
    /// Any other number, also a whole one that is too large for 64 bits.
    Real(f64),
    /// One string in quotes, unescaped.
    Text(Vec<u8>),
    /// A bracket or sign.
    Symbol(char),
    /// What is no token, in words.
    Bad(String),
    /// The end of the text.
    End,
}

/// Reads tokens from the front of a text, once, in linear time.
pub(crate) struct Lexer<'a> {
    text: &'a [u8],
    next: usize,
    line: u32,
    /// Where the line begins, moved on by the bytes that continue a character, so that columns count characters.
    line_start: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        let next = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Self {
            text,
            next,
            line: 1,
            line_start: next,
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.next).copied()
    }

    fn position(&self) -> Position {
        let column = u32::try_from(self.next - self.line_start).unwrap_or(u32::MAX);
        Position {
            line: self.line,
            column: column.saturating_add(1),
        }
    }

    fn bump(&mut self) {
        let byte = self.text[self.next];
        self.next += 1;
        if byte == b'\n' {
            self.line = self.line.saturating_add(1);
            self.line_start = self.next;
        } else if byte & 0xc0 == 0x80 && self.line_start < self.next {
            self.line_start += 1;
        }
    }

    /// The next token and where it begins.
    pub(crate) fn token(&mut self) -> (Token<'a>, Position) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => self.bump(),
                b'#' => {
                    while self.peek().is_some_and(|byte| byte != b'\n') {
                        self.bump();
                    }
                }
                _ => break,
            }
        }
        let at = self.position();
        let Some(byte) = self.peek() else {
            return (Token::End, at);
        };
        let digit_follows = self.text.get(self.next + 1).is_some_and(u8::is_ascii_digit);
        let token = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                Token::Word(self.run(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
            }
            b'0'..=b'9' => self.number(),
            b'.' if digit_follows => self.number(),
            b'"' | b'\'' => self.string(byte),
            b'{' | b'}' | b'<' | b'>' | b'[' | b']' | b':' | b',' | b';' | b'-' | b'.' | b'/' => {
                self.bump();
                Token::Symbol(char::from(byte))
            }
            _ => self.unknown(),
        };
        (token, at)
    }

    /// The bytes from here while they are `taken`; all of them are ASCII.
    fn run(&mut self, taken: impl Fn(u8) -> bool) -> &'a str {
        let from = self.next;
        while self.peek().is_some_and(&taken) {
            self.bump();
        }
        // Only ASCII is taken, so this is text.
        std::str::from_utf8(&self.text[from..self.next]).unwrap_or_default()
    }

    fn number(&mut self) -> Token<'a> {
        let from = self.next;
        let hex = self.text[from..].starts_with(b"0x") || self.text[from..].starts_with(b"0X");
        let mut before = 0;
        while let Some(byte) = self.peek() {
            let exponent = !hex && matches!(before, b'e' | b'E') && matches!(byte, b'+' | b'-');
            if !(byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.' || exponent) {
                break;
            }
            before = byte;
            self.bump();
        }
        let raw = std::str::from_utf8(&self.text[from..self.next]).unwrap_or_default();
        number(raw).unwrap_or_else(|| Token::Bad(format!("{:?} is no number", shortened(raw))))
    }

    fn string(&mut self, quote: u8) -> Token<'a> {
        self.bump();
        let mut bytes = Vec::new();
        let mut fault = None;
        loop {
            match self.peek() {
                None | Some(b'\n') => {
                    return Token::Bad(format!("the string is not closed by {} on its line", char::from(quote)));
                }
                Some(byte) if byte == quote => {
                    self.bump();
                    return fault.map_or(Token::Text(bytes), Token::Bad);
                }
                Some(b'\\') => {
                    self.bump();
                    if let Err(what) = self.escape(&mut bytes) {
                        fault.get_or_insert(what);
                    }
                }
                Some(byte) => {
                    bytes.push(byte);
                    self.bump();
                }
            }
        }
    }

    /// What follows a backslash.
    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<(), String> {
        let Some(byte) = self.peek().filter(|byte| *byte != b'\n') else {
            return Err("a backslash ends the line inside a string".to_owned());
        };
        if let b'0'..=b'7' = byte {
            let code = self.digits(8, 3);
            let code = u8::try_from(code).map_err(|_| format!("the escape \\{code:o} in a string is above \\377"))?;
            bytes.push(code);
            return Ok(());
        }
        self.bump();
        let plain = match byte {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'v' => 11,
            b'\\' | b'\'' | b'"' | b'?' => byte,
            b'x' | b'X' if self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) => {
                u8::try_from(self.digits(16, 2)).unwrap_or(0) // two hexadecimal digits fit
            }
            b'u' | b'U' => {
                let wanted = if byte == b'u' { 4 } else { 8 };
                let from = self.next;
                let code = self.digits(16, wanted);
                let Some(character) = char::from_u32(code).filter(|_| self.next - from == wanted) else {
                    return Err(format!(
                        "\\{} in a string needs {wanted} hexadecimal digits of a character",
                        char::from(byte)
                    ));
                };
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => {
                return Err(format!(
                    "unknown escape \\{} in a string",
                    char::from(byte).escape_default()
                ));
            }
        };
        bytes.push(plain);
        Ok(())
    }

    /// At most `most` (≤ 8) digits of base `base`.
    fn digits(&mut self, base: u32, most: usize) -> u32 {
        let mut code = 0u32;
        for _ in 0..most {
            let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(base)) else {
                break;
            };
            code = code.wrapping_mul(base) | digit;
            self.bump();
        }
        code
    }

    /// A character that begins no token. A run of bytes above ASCII is one fault.
    fn unknown(&mut self) -> Token<'a> {
        let from = self.next;
        self.bump();
        if !self.text[from].is_ascii() {
            while self.peek().is_some_and(|byte| !byte.is_ascii()) {
                self.bump();
            }
        }
        let raw = String::from_utf8_lossy(&self.text[from..self.next.min(from + 64)]);
        Token::Bad(format!("{:?} is no part of protobuf text format", shortened(&raw)))
    }
}

/// The first characters of a text.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A number without a sign: decimal, octal with a leading 0, hexadecimal, or a float with an optional `f`.
fn number(raw: &str) -> Option<Token<'static>> {
    let whole = |digits: &str, base: u32| {
        if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(base)) {
            return None;
        }
        Some(match u64::from_str_radix(digits, base) {
            Ok(value) => Token::Whole(value),
            Err(_) => Token::Real(f64::INFINITY), // too large for every field
        })
    };
    if let Some(digits) = raw.strip_prefix("0x").or_else(|| raw.strip_prefix("0X")) {
        return whole(digits, 16);
    }
    if raw.len() > 1 && raw.starts_with('0') && raw.bytes().all(|byte| byte.is_ascii_digit()) {
        return whole(&raw[1..], 8);
    }
    if let Some(token) = whole(raw, 10) {
        return Some(token);
    }
    let bare = raw.strip_suffix(['f', 'F']).unwrap_or(raw);
    let numeric = bare
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    bare.parse().ok().filter(|_| numeric).map(Token::Real)
}
