//! YAML as a tree whose every key and value knows its line and column.
//!
//! The events come from `granit-parser` (the parser beneath `serde-saphyr`); this file builds the tree and refuses
//! what a configuration has no use for: duplicate keys, tags, merge keys, several documents, and aliases that expand
//! without end.

use super::error::{Findings, Place};
use granit_parser::{Event, Parser, ScalarStyle};
use std::collections::HashMap;
use std::sync::Arc;

/// Most values in one file, aliases expanded: far more than any configuration has.
const MAX_NODES: usize = 10_000;
/// Deepest nesting: the table of keys knows four levels.
const MAX_DEPTH: usize = 64;

/// A value with its place.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it is.
    pub content: Content,
    /// Where it was written.
    pub place: Place,
}

/// The three kinds of values.
#[derive(Clone, Debug)]
pub enum Content {
    /// Text as written; `plain` without quotes.
    Scalar {
        /// The text, quotes removed.
        text: String,
        /// Whether it stood without quotes.
        plain: bool,
    },
    /// `[a, b]` or lines with dashes.
    List(Vec<Node>),
    /// `key: value` lines.
    Map(Vec<Entry>),
}

/// One line of a map.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key's text.
    pub key: String,
    /// Where the key was written.
    pub key_place: Place,
    /// What stands behind the colon.
    pub value: Node,
}

impl Node {
    /// Whether nothing stands here (`key:`, `~` or `null`).
    pub fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar { text, plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// The value in a few words, for messages.
    pub fn shown(&self) -> String {
        match &self.content {
            _ if self.is_null() => "nothing".to_string(),
            Content::Scalar { text, .. } => format!("\"{}\"", shortened(text)),
            Content::List(items) => format!("a list of {}", counted(items.len(), "value")),
            Content::Map(entries) => format!("a map of {}", counted(entries.len(), "key")),
        }
    }
}

/// "1 key", "2 keys".
pub fn counted(n: usize, noun: &str) -> String {
    if n == 1 {
        format!("1 {noun}")
    } else {
        format!("{n} {noun}s")
    }
}

/// Text for a message: one line, at most 60 characters.
pub fn shortened(text: &str) -> String {
    let line: String = text
        .chars()
        .take(60)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.chars().count() > 60 {
        format!("{line}…")
    } else {
        line
    }
}

/// Where the text being parsed stands.
pub enum Origin<'a> {
    /// In this file.
    File(&'a str),
    /// After `--set`; this is the whole text.
    Override(&'a str),
    /// In the table of keys: a default.
    Table,
}

/// Parses one document. `None`: it is empty, or so broken that nothing can be read; then `findings` says why.
pub fn parse(text: &str, origin: &Origin<'_>, findings: &mut Findings) -> Option<Node> {
    let mut builder = Builder {
        origin: match origin {
            Origin::File(file) => Place::whole_file(file),
            Origin::Override(text) => Place::Override(Arc::from(*text)),
            Origin::Table => Place::whole_file("the table of keys"),
        },
        open: Vec::new(),
        anchors: HashMap::new(),
        nodes: 0,
        root: None,
        findings,
    };
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = match event {
            Ok(pair) => pair,
            Err(error) => {
                let place = builder.place(error.marker().line(), error.marker().col());
                let hint = match error.info() {
                    _ if has_tab_indent(text, error.marker().line()) => {
                        "; this line is indented with a tab, which YAML does not allow: use blanks"
                    }
                    info if info.contains("mapping values") => "; a text that holds a colon and a blank needs quotes",
                    _ => "",
                };
                builder
                    .findings
                    .problem(Some(place), format!("this is not valid YAML: {}{hint}", error.info()));
                return None;
            }
        };
        let place = builder.place(span.start.line(), span.start.col());
        if !builder.event(event, place) {
            return None;
        }
    }
    builder.root
}

/// Whether a line (from 1) begins with a tab among its blanks.
fn has_tab_indent(text: &str, line: usize) -> bool {
    text.lines().nth(line.saturating_sub(1)).is_some_and(|l| {
        let indent: String = l.chars().take_while(|c| c.is_whitespace()).collect();
        indent.contains('\t')
    })
}

/// A list or map that is still open.
struct Open {
    node: Node,
    anchor: usize,
    key: Option<(String, Place)>,
    /// How many nodes had been built before it.
    since: usize,
}

struct Builder<'a> {
    origin: Place,
    open: Vec<Open>,
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
    root: Option<Node>,
    findings: &'a mut Findings,
}

impl Builder<'_> {
    fn place(&self, line: usize, column: usize) -> Place {
        match &self.origin {
            Place::File { file, .. } => Place::File {
                file: Arc::clone(file),
                line,
                column: column + 1,
            },
            other => other.clone(),
        }
    }

    /// Takes one event; false: stop reading.
    fn event(&mut self, event: Event<'_>, place: Place) -> bool {
        match event {
            Event::DocumentStart(..) if self.root.is_some() => {
                self.findings.problem(
                    Some(place),
                    "a second document (after ---) begins here: write one document a file",
                );
                false
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.is_some(), &place);
                let content = Content::Scalar {
                    text: text.into_owned(),
                    plain: style == ScalarStyle::Plain,
                };
                let node = Node { content, place };
                if anchor > 0 {
                    self.anchors.insert(anchor, (node.clone(), 1));
                }
                self.add(node, 1)
            }
            Event::SequenceStart(_, anchor, tag) => self.start(Content::List(Vec::new()), anchor, tag.is_some(), place),
            Event::MappingStart(_, anchor, tag) => self.start(Content::Map(Vec::new()), anchor, tag.is_some(), place),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return true };
                if open.anchor > 0 {
                    let size = self.nodes - open.since;
                    self.anchors.insert(open.anchor, (open.node.clone(), size));
                }
                self.add(open.node, 1)
            }
            Event::Alias(id) => match self.anchors.get(&id) {
                Some((node, size)) => {
                    let (node, size) = (node.clone(), *size);
                    self.add(node, size)
                }
                None => {
                    self.findings
                        .problem(Some(place), "this alias stands inside the value that it names");
                    false
                }
            },
            _ => true,
        }
    }

    fn start(&mut self, content: Content, anchor: usize, tagged: bool, place: Place) -> bool {
        self.refuse_tag(tagged, &place);
        self.open.push(Open {
            node: Node { content, place },
            anchor,
            key: None,
            since: self.nodes,
        });
        true
    }

    fn refuse_tag(&mut self, tagged: bool, place: &Place) {
        if tagged {
            self.findings.problem(
                Some(place.clone()),
                "tags (!name) have no meaning in a configuration: write the value without it",
            );
        }
    }

    /// Puts a finished node where it belongs.
    fn add(&mut self, node: Node, size: usize) -> bool {
        self.nodes += size;
        if self.nodes > MAX_NODES {
            let place = node.place;
            self.findings.problem(
                Some(place),
                format!("the file has more than {MAX_NODES} values, aliases expanded: that is no configuration"),
            );
            return false;
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(node);
            return true;
        };
        match &mut parent.node.content {
            Content::List(items) => items.push(node),
            Content::Scalar { .. } => {}
            Content::Map(entries) => match parent.key.take() {
                None => match node.content {
                    Content::Scalar { text, plain } => {
                        if plain && text == "<<" {
                            self.findings.problem(
                                Some(node.place.clone()),
                                "merge keys (<<) are not read: write the keys out",
                            );
                        }
                        parent.key = Some((text, node.place));
                    }
                    _ => {
                        self.findings
                            .problem(Some(node.place.clone()), "a key must be a word, not a list or a map");
                        parent.key = Some(("<<".to_string(), node.place));
                    }
                },
                Some((key, key_place)) => match entries.iter().find(|e| e.key == key) {
                    Some(first) => {
                        let message = format!("{key} is written twice: here and at {}; remove one", first.key_place);
                        self.findings.problem(Some(key_place), message);
                    }
                    // An entry whose key was refused above has been reported already.
                    None if key == "<<" => {}
                    None => entries.push(Entry {
                        key,
                        key_place,
                        value: node,
                    }),
                },
            },
        }
        true
    }
}
