//! Protobuf text format, second half: tokens to a tree of fields, of any schema.
//!
//! All freedoms of the format: `:` may be left out before a block, blocks stand in `{ }` or `< >`, repeated fields are
//! written one by one or as a list, `,` and `;` may end a field, strings in either quotes are joined where they stand
//! side by side, extensions have their name in brackets. Source: the protobuf text format's language specification.

use super::lex::{Lexer, Token};
use super::report::{Position, Problems};
use std::borrow::Cow;

/// The deepest nesting that is read; the original's parser has the same limit. It bounds the stack.
pub(crate) const MAX_DEPTH: usize = 100;

/// The longest text that is read, in bytes: some hundred times the longest real one. The tree of a text may take fifty
/// times its length.
pub const MAX_BYTES: usize = 4 << 20;

/// A field as it is written.
#[derive(Debug)]
pub(crate) struct Field<'a> {
    /// Its name; of an extension, what stands between the brackets.
    pub name: Cow<'a, str>,
    pub extension: bool,
    pub at: Position,
    /// One item, or those of a list.
    pub items: Vec<Item<'a>>,
    pub list: bool,
}

/// One value.
#[derive(Debug)]
pub(crate) struct Item<'a> {
    pub at: Position,
    pub value: Value<'a>,
}

#[derive(Debug)]
pub(crate) enum Value<'a> {
    Word(&'a str),
    /// A whole number and whether a minus stands before it.
    Whole(bool, u64),
    Real(f64),
    Text(Vec<u8>),
    Block(Vec<Field<'a>>),
}

/// The fields of a text. What is no protobuf text becomes a problem, and reading goes on behind it.
pub(crate) fn parse<'a>(text: &'a [u8], problems: &mut Problems) -> Vec<Field<'a>> {
    if text.len() > MAX_BYTES {
        problems.add(Position { line: 1, column: 1 }, "", || {
            format!(
                "the text has {} bytes; a descriptor has at most {MAX_BYTES}",
                text.len()
            )
        });
        return Vec::new();
    }
    let mut lexer = Lexer::new(text);
    let (now, at) = lexer.token();
    let mut parser = Parser {
        lexer,
        now,
        at,
        problems,
        ended: false,
    };
    parser.fields(None, 0)
}

struct Parser<'a, 'p> {
    lexer: Lexer<'a>,
    now: Token<'a>,
    at: Position,
    problems: &'p mut Problems,
    /// The end inside a block has been told of.
    ended: bool,
}

impl<'a> Parser<'a, '_> {
    /// Takes the token at hand.
    fn take(&mut self) -> Token<'a> {
        let (next, at) = self.lexer.token();
        self.at = at;
        std::mem::replace(&mut self.now, next)
    }

    fn is(&self, symbol: char) -> bool {
        self.now == Token::Symbol(symbol)
    }

    fn eat(&mut self, symbol: char) -> bool {
        let there = self.is(symbol);
        if there {
            self.take();
        }
        there
    }

    /// Tells that something else was expected here.
    fn expected(&mut self, what: &str) {
        if self.ended {
            return;
        }
        let found = match &self.now {
            Token::Word(word) => format!("{:?}", super::lex::shortened(word)),
            Token::Whole(value) => format!("the number {value}"),
            Token::Real(value) => format!("the number {value}"),
            Token::Text(_) => "a string".to_owned(),
            Token::Symbol(symbol) => format!("{symbol:?}"),
            Token::Bad(fault) => {
                let fault = fault.clone();
                return self
                    .problems
                    .add(self.at, "", || format!("expected {what}, but {fault}"));
            }
            Token::End => {
                self.ended = true;
                "the end of the text".to_owned()
            }
        };
        self.problems
            .add(self.at, "", || format!("expected {what}, found {found}"));
    }

    /// Fields up to the end of the block that `closing` closes, or of the text.
    fn fields(&mut self, block: Option<(char, Position)>, depth: usize) -> Vec<Field<'a>> {
        let mut fields = Vec::new();
        loop {
            match (&self.now, block) {
                (Token::End, None) => return fields,
                (Token::End, Some((closing, opened))) => {
                    if !self.ended {
                        self.ended = true;
                        self.problems.add(self.at, "", || {
                            format!("the text ends inside the block that opens at {opened}; expected {closing:?}")
                        });
                    }
                    return fields;
                }
                (Token::Symbol(found @ ('}' | '>')), Some((closing, opened))) => {
                    let found = *found;
                    if found != closing {
                        self.problems.add(self.at, "", || {
                            format!("the block that opens at {opened} is closed by {found:?}; expected {closing:?}")
                        });
                    }
                    self.take();
                    return fields;
                }
                (Token::Symbol(found @ ('}' | '>')), None) => {
                    let found = *found;
                    self.problems.add(self.at, "", || {
                        format!("{found:?} closes nothing: no block is open here")
                    });
                    self.take();
                }
                _ => {
                    match self.field(depth) {
                        Some(field) => fields.push(field),
                        None => self.recover(),
                    }
                    // One separator may end a field.
                    let _ = self.eat(',') || self.eat(';');
                }
            }
        }
    }

    /// Goes on behind a fault: to the next line, separator or end of the block. Blocks and lists on the way are left out.
    fn recover(&mut self) {
        let line = self.at.line;
        let mut open = 0usize;
        loop {
            match &self.now {
                Token::End => return,
                Token::Symbol('{' | '<' | '[') => open += 1,
                Token::Symbol('}' | '>') if open == 0 => return,
                Token::Symbol('}' | '>' | ']') => open = open.saturating_sub(1),
                Token::Symbol(',' | ';') if open == 0 => return,
                _ => {}
            }
            self.take();
            if open == 0 && self.at.line > line {
                return;
            }
        }
    }

    fn field(&mut self, depth: usize) -> Option<Field<'a>> {
        let at = self.at;
        let extension = self.is('[');
        let name = if extension {
            self.take();
            Cow::Owned(self.extension_name()?)
        } else if let Token::Word(word) = self.now {
            self.take();
            Cow::Borrowed(word)
        } else {
            self.expected("a field");
            return None;
        };
        let colon = self.eat(':');
        let mut items = Vec::new();
        let list = self.is('[');
        if list {
            self.list(&mut items, colon, depth)?;
        } else {
            if !colon && !self.is('{') && !self.is('<') {
                let what = format!("':' or a block after {:?}", super::lex::shortened(&name));
                self.expected(&what);
                return None;
            }
            items.push(self.item(depth)?);
        }
        Some(Field {
            name,
            extension,
            at,
            items,
            list,
        })
    }

    /// The name of an extension and its `]`: words with dots and slashes between them.
    fn extension_name(&mut self) -> Option<String> {
        let mut name = String::new();
        loop {
            match self.take_if_name_part() {
                Some(part) => name.push_str(&part),
                None if self.is(']') && !name.is_empty() => {
                    self.take();
                    return Some(name);
                }
                None => {
                    self.expected("the name of an extension and ']'");
                    return None;
                }
            }
        }
    }

    fn take_if_name_part(&mut self) -> Option<Cow<'a, str>> {
        let part = match &self.now {
            Token::Word(word) => Cow::Borrowed(*word),
            Token::Symbol(symbol @ ('.' | '/' | '-')) => Cow::Owned(symbol.to_string()),
            Token::Whole(value) => Cow::Owned(value.to_string()),
            _ => return None,
        };
        self.take();
        Some(part)
    }

    fn list(&mut self, items: &mut Vec<Item<'a>>, colon: bool, depth: usize) -> Option<()> {
        self.take();
        if self.eat(']') {
            return Some(());
        }
        loop {
            if !colon && !self.is('{') && !self.is('<') {
                self.expected("':' before a list of values, or a block");
                return None;
            }
            items.push(self.item(depth)?);
            if self.eat(']') {
                return Some(());
            }
            if !self.eat(',') {
                self.expected("',' or ']' in the list");
                return None;
            }
        }
    }

    fn item(&mut self, depth: usize) -> Option<Item<'a>> {
        let at = self.at;
        let value = match &self.now {
            Token::Symbol(open @ ('{' | '<')) => {
                let closing = if *open == '{' { '}' } else { '>' };
                if depth == MAX_DEPTH {
                    self.problems.add(at, "", || {
                        format!("blocks are nested more than {MAX_DEPTH} deep; no descriptor needs that")
                    });
                    return None;
                }
                self.take();
                Value::Block(self.fields(Some((closing, at)), depth + 1))
            }
            Token::Text(_) => {
                let mut all = Vec::new();
                while let Token::Text(_) = self.now {
                    if let Token::Text(part) = self.take() {
                        all.extend_from_slice(&part);
                    }
                }
                Value::Text(all)
            }
            _ => {
                let minus = self.eat('-');
                let value = match &self.now {
                    Token::Word(word) if !minus => Value::Word(word),
                    Token::Word(word) => match word.to_ascii_lowercase().as_str() {
                        "inf" | "infinity" => Value::Real(f64::NEG_INFINITY),
                        "nan" => Value::Real(f64::NAN),
                        _ => {
                            self.expected("a number after '-'");
                            return None;
                        }
                    },
                    Token::Whole(value) => Value::Whole(minus, *value),
                    Token::Real(value) => Value::Real(if minus { -value } else { *value }),
                    _ => {
                        self.expected("a value");
                        return None;
                    }
                };
                self.take();
                value
            }
        };
        Some(Item { at, value })
    }
}
