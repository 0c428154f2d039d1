//! Token ids written as text: tt-train's YAML, or a bare list. Read by hand, since such files run to hundreds of megabytes.

/// The ids and the vocabulary size that the text states.
pub(super) type Parsed = (Vec<u32>, Option<usize>);

/// Parses a YAML mapping with `tokens` and `tokenizer_vocab_size`, or a bare list of ids. The error says what stands where.
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, String> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut scanner = Scanner { bytes, at: 0 };
    scanner.skip_blank();
    let parsed = match scanner.peek() {
        None => return Err("it is empty".to_string()),
        Some(b'0'..=b'9' | b'[') => (scanner.flow(None)?, None),
        Some(b'-') if !bytes[scanner.at..].starts_with(b"---") => (scanner.block()?, None),
        Some(_) => scanner.mapping()?,
    };
    if parsed.0.is_empty() {
        return Err("it holds no token ids".to_string());
    }
    Ok(parsed)
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    /// A mapping, one key a line. Keys other than the two are passed over with their line, and with the indented lines
    /// below it.
    fn mapping(&mut self) -> Result<Parsed, String> {
        let (mut tokens, mut vocab_size) = (None, None);
        loop {
            self.skip_blank();
            let start = self.at;
            let line = self.rest_of_line();
            if line.is_empty() && start >= self.bytes.len() {
                break;
            }
            if line.starts_with(b"---") || line.starts_with(b"...") {
                self.at += line.len();
                continue;
            }
            let Some(colon) = line.iter().position(|byte| *byte == b':') else {
                return Err(self.unexpected("a key such as tokens: or a token id"));
            };
            let key = line[..colon].trim_ascii().trim_ascii_start();
            match key {
                b"tokens" => {
                    self.at += colon + 1;
                    if tokens.is_some() {
                        return Err(self.problem_at(start, "the key tokens is given twice"));
                    }
                    self.skip_blank();
                    tokens = Some(match self.peek() {
                        Some(b'-') => self.block()?,
                        Some(b'[') => self.flow(None)?,
                        _ => return Err(self.unexpected("a list such as [1, 2, 3]")),
                    });
                }
                b"tokenizer_vocab_size" => {
                    self.at += colon + 1;
                    if vocab_size.is_some() {
                        return Err(self.problem_at(start, "the key tokenizer_vocab_size is given twice"));
                    }
                    self.skip_spaces();
                    let size = self.number("the vocabulary size")?;
                    vocab_size = Some(usize::try_from(size).unwrap_or(usize::MAX));
                }
                _ => {
                    self.at += line.len();
                    while matches!(self.peek_after_newline(), Some(b' ' | b'\t' | b'-')) {
                        self.at += 1;
                        self.at += self.rest_of_line().len();
                    }
                }
            }
        }
        match tokens {
            Some(tokens) => Ok((tokens, vocab_size)),
            None => Err("it has no key tokens: with a list of ids, such as tokens: [1, 2, 3]".to_string()),
        }
    }

    /// Ids between separators, in brackets or up to the end.
    fn flow(&mut self, mut ids: Option<Vec<u32>>) -> Result<Vec<u32>, String> {
        let ids = ids.get_or_insert_with(|| Vec::with_capacity((self.bytes.len() - self.at) / 5));
        let bracket = self.peek() == Some(b'[');
        let start = self.at;
        self.at += usize::from(bracket);
        loop {
            self.skip_separators();
            match self.peek() {
                Some(b']') if bracket => {
                    self.at += 1;
                    break;
                }
                None if bracket => return Err(self.problem_at(start, "the list beginning here has no closing ]")),
                None => break,
                Some(_) => ids.push(self.id()?),
            }
        }
        Ok(std::mem::take(ids))
    }

    /// Ids one a line after `- `.
    fn block(&mut self) -> Result<Vec<u32>, String> {
        let mut ids = Vec::with_capacity((self.bytes.len() - self.at) / 6);
        while self.peek() == Some(b'-') && !self.bytes[self.at..].starts_with(b"---") {
            self.at += 1;
            self.skip_spaces();
            ids.push(self.id()?);
            self.skip_blank();
        }
        Ok(ids)
    }

    fn id(&mut self) -> Result<u32, String> {
        let start = self.at;
        let number = self.number("a token id")?;
        u32::try_from(number)
            .map_err(|_| self.problem_at(start, &format!("{number} is no token id; ids go from 0 to 4294967295")))
    }

    /// A run of digits that is followed by a separator.
    fn number(&mut self, what: &str) -> Result<u64, String> {
        let start = self.at;
        let mut number = 0u64;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            number = number.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
            self.at += 1;
        }
        let ends = matches!(
            self.peek(),
            None | Some(b' ' | b'\t' | b'\r' | b'\n' | b',' | b';' | b']' | b'#')
        );
        if self.at == start || !ends {
            self.at = start;
            return Err(self.unexpected(what));
        }
        Ok(number)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn peek_after_newline(&self) -> Option<u8> {
        (self.peek() == Some(b'\n'))
            .then(|| self.bytes.get(self.at + 1).copied())
            .flatten()
    }

    /// The bytes up to the end of the line, without it.
    fn rest_of_line(&self) -> &[u8] {
        let rest = &self.bytes[self.at.min(self.bytes.len())..];
        &rest[..rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())]
    }

    fn skip_while(&mut self, skip: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&skip) {
            self.at += 1;
        }
    }

    fn skip_spaces(&mut self) {
        self.skip_while(|byte| byte == b' ' || byte == b'\t');
    }

    /// Blanks, line ends and comments.
    fn skip_blank(&mut self) {
        loop {
            self.skip_while(|byte| byte.is_ascii_whitespace());
            if self.peek() != Some(b'#') {
                return;
            }
            self.skip_while(|byte| byte != b'\n');
        }
    }

    /// As [`skip_blank`](Self::skip_blank), and commas and semicolons.
    fn skip_separators(&mut self) {
        loop {
            self.skip_while(|byte| byte.is_ascii_whitespace() || byte == b',' || byte == b';');
            if self.peek() != Some(b'#') {
                return;
            }
            self.skip_while(|byte| byte != b'\n');
        }
    }

    fn unexpected(&self, wanted: &str) -> String {
        let found: Vec<u8> = self.bytes[self.at.min(self.bytes.len())..]
            .iter()
            .copied()
            .take_while(|byte| !byte.is_ascii_whitespace() && *byte != b',')
            .take(24)
            .collect();
        let found = match found.is_empty() {
            true => "nothing".to_string(),
            false => format!("{:?}", String::from_utf8_lossy(&found)),
        };
        self.problem_at(self.at, &format!("found {found} where {wanted} should stand"))
    }

    fn problem_at(&self, at: usize, problem: &str) -> String {
        let before = &self.bytes[..at.min(self.bytes.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let column = 1 + before.iter().rev().take_while(|byte| **byte != b'\n').count();
        format!("line {line}, column {column}: {problem}")
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn yaml_and_lists_of_every_style_give_the_same_ids() {
        let same = [
            "tokens: [1, 20, 300]\ntokenizer_vocab_size: 301\n",
            "tokenizer_vocab_size: 301 # of gpt2\ntokens:\n  [1, 20,\n   300]\n",
            "---\ntokenizer_vocab_size: 301\r\ntokens:\r\n- 1\r\n- 20\r\n- 300\r\n",
            "tokens:\n  - 1\n  - 20 # twenty\n  - 300\ntokenizer_vocab_size: 301",
            "note: anything: [at all]\nnested:\n  - a\n  b: c\ntokens : [1,20,300]\ntokenizer_vocab_size: 301\n...\n",
        ];
        for text in same {
            assert_eq!(parse(text.as_bytes()), Ok((vec![1, 20, 300], Some(301))), "{text}");
        }
        for text in [
            "1,20,300",
            "1 20 300\n",
            "1\n20\n300\n",
            "\u{feff}1; 20;\t300",
            "[1, 20, 300]",
            "# ids\n- 1\n- 20\n- 300",
        ] {
            assert_eq!(parse(text.as_bytes()), Ok((vec![1, 20, 300], None)), "{text}");
        }
    }

    #[test]
    fn problems_name_line_and_column() {
        let cases = [
            ("", "it is empty"),
            ("  \n# nothing\n", "it is empty"),
            ("tokens: []", "it holds no token ids"),
            (
                "1, 2\n3, x4",
                "line 2, column 4: found \"x4\" where a token id should stand",
            ),
            ("1, -2", "line 1, column 4: found \"-2\" where a token id should stand"),
            (
                "1, 2.5",
                "line 1, column 4: found \"2.5\" where a token id should stand",
            ),
            (
                "tokens: [1, 2",
                "line 1, column 9: the list beginning here has no closing ]",
            ),
            (
                "tokens: 1",
                "line 1, column 9: found \"1\" where a list such as [1, 2, 3] should stand",
            ),
            (
                "tokens: [1]\ntokens: [2]",
                "line 2, column 1: the key tokens is given twice",
            ),
            (
                "tokenizer_vocab_size: 5\n",
                "it has no key tokens: with a list of ids, such as tokens: [1, 2, 3]",
            ),
            (
                "tokens: [4294967296]",
                "line 1, column 10: 4294967296 is no token id; ids go from 0 to 4294967295",
            ),
            (
                "hello",
                "line 1, column 1: found \"hello\" where a key such as tokens: or a token id should stand",
            ),
            (
                "tokens: [1]\n9",
                "line 2, column 1: found \"9\" where a key such as tokens: or a token id should stand",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text.as_bytes()).expect_err(text), expected, "{text:?}");
        }
    }
}
