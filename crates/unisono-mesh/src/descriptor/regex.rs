//! Regular expressions for pinnings: full matches of short decimal numbers, in time linear in pattern and number.
//!
//! Known: literals, `.`, classes `[0-9]` and `[^…]`, `\d`, groups `( )` and `(?: )`, `|`, `*`, `+`, `?`, `{m}`,
//! `{m,}`, `{m,n}`, and `^` and `$` at the ends. Method: Thompson, *Regular Expression Search Algorithm* (1968).

use std::iter::Peekable;
use std::str::Chars;

/// The most states of one pattern; a longer one is refused.
const MAX_STATES: usize = 200;
/// The deepest nesting of groups.
const MAX_GROUPS: usize = 50;

/// A pattern that has been understood.
#[derive(Debug, Clone)]
pub(crate) struct Regex {
    states: Vec<State>,
    start: usize,
    steps: usize,
}

#[derive(Debug, Clone)]
enum State {
    /// One character of the set, or outside of it, then the next state.
    Take {
        set: Vec<(char, char)>,
        negated: bool,
        next: usize,
    },
    Split(usize, usize),
    Accept,
}

#[derive(Debug, Clone)]
enum Node {
    Empty,
    Set(Vec<(char, char)>, bool),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    /// At least and at most how often; `None` has no end.
    Repeat(Box<Node>, usize, Option<usize>),
}

impl Regex {
    /// Understands a pattern, or says what is wrong with it.
    pub(crate) fn new(pattern: &str) -> Result<Self, String> {
        let bare = pattern.strip_prefix('^').unwrap_or(pattern);
        let bare = bare
            .strip_suffix('$')
            .filter(|rest| !rest.ends_with('\\'))
            .unwrap_or(bare);
        let mut parser = Parser {
            chars: bare.chars().peekable(),
            groups: 0,
        };
        let node = parser.choice()?;
        if let Some(left) = parser.chars.next() {
            return Err(format!("{left:?} closes nothing"));
        }
        let mut regex = Regex {
            states: vec![State::Accept],
            start: 0,
            steps: 0,
        };
        regex.start = regex.build(&node, 0)?;
        Ok(regex)
    }

    /// States for `node` that lead to `next`; the first of them.
    fn build(&mut self, node: &Node, next: usize) -> Result<usize, String> {
        // Repetitions of nothing make no states, but they would take time.
        self.steps += 1;
        if self.steps > 100 * MAX_STATES {
            return Err("its repetitions are nested too deep".to_owned());
        }
        match node {
            Node::Empty => Ok(next),
            Node::Set(set, negated) => self.push(State::Take {
                set: set.clone(),
                negated: *negated,
                next,
            }),
            Node::Sequence(parts) => parts.iter().rev().try_fold(next, |next, part| self.build(part, next)),
            Node::Choice(parts) => {
                let mut starts = Vec::new();
                for part in parts {
                    starts.push(self.build(part, next)?);
                }
                let last = starts.pop().unwrap_or(next);
                starts
                    .into_iter()
                    .rev()
                    .try_fold(last, |rest, start| self.push(State::Split(start, rest)))
            }
            Node::Repeat(inner, least, most) => {
                let mut start = next;
                match most {
                    None => {
                        let looped = self.push(State::Split(next, next))?;
                        let body = self.build(inner, looped)?;
                        self.states[looped] = State::Split(body, next);
                        start = looped;
                    }
                    Some(most) => {
                        for _ in *least..*most {
                            let body = self.build(inner, start)?;
                            start = self.push(State::Split(body, next))?;
                        }
                    }
                }
                (0..*least).try_fold(start, |next, _| self.build(inner, next))
            }
        }
    }

    fn push(&mut self, state: State) -> Result<usize, String> {
        if self.states.len() >= MAX_STATES {
            return Err(format!("it needs more than {MAX_STATES} states"));
        }
        self.states.push(state);
        Ok(self.states.len() - 1)
    }

    /// True when the whole text matches.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let mut now = vec![false; self.states.len()];
        self.reach(&mut now, self.start);
        for c in text.chars() {
            let mut then = vec![false; self.states.len()];
            for (state, _) in self.states.iter().zip(&now).filter(|(_, on)| **on) {
                if let State::Take { set, negated, next } = state
                    && set.iter().any(|(from, to)| (*from..=*to).contains(&c)) != *negated
                {
                    self.reach(&mut then, *next);
                }
            }
            now = then;
        }
        now[0]
    }

    /// Marks a state and those that it leads to without a character.
    fn reach(&self, marks: &mut [bool], from: usize) {
        let mut open = vec![from];
        while let Some(state) = open.pop() {
            if std::mem::replace(&mut marks[state], true) {
                continue;
            }
            if let State::Split(a, b) = self.states[state] {
                open.extend([a, b]);
            }
        }
    }
}

struct Parser<'a> {
    chars: Peekable<Chars<'a>>,
    groups: usize,
}

impl Parser<'_> {
    fn choice(&mut self) -> Result<Node, String> {
        let mut parts = vec![self.sequence()?];
        while self.chars.next_if_eq(&'|').is_some() {
            parts.push(self.sequence()?);
        }
        Ok(Node::Choice(parts))
    }

    fn sequence(&mut self) -> Result<Node, String> {
        let mut parts = Vec::new();
        while let Some(c) = self.chars.peek().copied().filter(|c| !matches!(c, '|' | ')')) {
            self.chars.next();
            let atom = match c {
                '(' => self.group()?,
                '[' => self.class()?,
                '.' => Node::Set(Vec::new(), true),
                '\\' => self.escape()?,
                '*' | '+' | '?' | '{' => return Err(format!("{c:?} repeats nothing")),
                '^' | '$' => {
                    return Err(format!(
                        "{c:?} stands inside; a pattern matches the whole number anyway"
                    ));
                }
                _ => Node::Set(vec![(c, c)], false),
            };
            parts.push(self.repeated(atom)?);
        }
        Ok(match parts.len() {
            0 => Node::Empty,
            _ => Node::Sequence(parts),
        })
    }

    fn repeated(&mut self, atom: Node) -> Result<Node, String> {
        let (least, most) = match self.chars.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => return self.counted(atom),
            _ => return Ok(atom),
        };
        self.chars.next();
        self.chars.next_if_eq(&'?'); // a lazy repetition matches the same whole texts
        Ok(Node::Repeat(Box::new(atom), least, most))
    }

    fn counted(&mut self, atom: Node) -> Result<Node, String> {
        let fault = || "{ } is not of the form {m}, {m,} or {m,n}".to_owned();
        let inner: String = self.chars.by_ref().skip(1).take_while(|c| *c != '}').collect();
        let count = |text: &str| {
            text.parse::<usize>()
                .ok()
                .filter(|n| *n <= MAX_STATES)
                .ok_or_else(fault)
        };
        let (least, most) = match inner.split_once(',') {
            None => (count(&inner)?, Some(count(&inner)?)),
            Some((least, "")) => (count(least)?, None),
            Some((least, most)) => (count(least)?, Some(count(most)?)),
        };
        if most.is_some_and(|most| most < least) {
            return Err(fault());
        }
        Ok(Node::Repeat(Box::new(atom), least, most))
    }

    fn group(&mut self) -> Result<Node, String> {
        self.groups += 1;
        if self.groups > MAX_GROUPS {
            return Err(format!("groups are nested more than {MAX_GROUPS} deep"));
        }
        if self.chars.next_if_eq(&'?').is_some() && self.chars.next() != Some(':') {
            return Err("only groups ( ) and (?: ) are known".to_owned());
        }
        let node = self.choice()?;
        if self.chars.next() != Some(')') {
            return Err("a '(' is not closed".to_owned());
        }
        self.groups -= 1;
        Ok(node)
    }

    fn escape(&mut self) -> Result<Node, String> {
        match self.chars.next() {
            Some('d') => Ok(Node::Set(vec![('0', '9')], false)),
            Some('D') => Ok(Node::Set(vec![('0', '9')], true)),
            Some(c) if !c.is_alphanumeric() => Ok(Node::Set(vec![(c, c)], false)),
            Some(c) => Err(format!("the escape \\{c} is not known; \\d is")),
            None => Err("it ends with a backslash".to_owned()),
        }
    }

    fn class(&mut self) -> Result<Node, String> {
        let negated = self.chars.next_if_eq(&'^').is_some();
        let mut set = Vec::new();
        loop {
            let from = match self.chars.next() {
                None => return Err("a '[' is not closed".to_owned()),
                Some(']') if !set.is_empty() => return Ok(Node::Set(set, negated)),
                Some(']') => return Err("[ ] is empty".to_owned()),
                Some('\\') => match self.chars.next() {
                    Some('d') => {
                        set.push(('0', '9'));
                        continue;
                    }
                    Some(c) if !c.is_alphanumeric() => c,
                    _ => return Err("unknown escape inside [ ]".to_owned()),
                },
                Some(c) => c,
            };
            let mut ahead = self.chars.clone();
            if ahead.next() == Some('-') && ahead.peek().is_some_and(|c| *c != ']') {
                self.chars.next();
                let to = self.chars.next().unwrap_or(from);
                if to < from {
                    return Err(format!("the range {from}-{to} in [ ] is inverted"));
                }
                set.push((from, to));
            } else {
                set.push((from, from));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers below 200 that a pattern matches.
    fn matching(pattern: &str) -> Vec<u32> {
        let regex = Regex::new(pattern).expect("the pattern is right");
        (0..200).filter(|n| regex.matches(&n.to_string())).collect()
    }

    #[test]
    fn whole_numbers_match_or_do_not() {
        assert_eq!(matching("7"), [7]);
        assert_eq!(matching("^1[0-2]$"), [10, 11, 12]);
        assert_eq!(matching("(1|2)?[35]"), [3, 5, 13, 15, 23, 25]);
        assert_eq!(matching("9{2}|1{1,2}"), [1, 11, 99]);
        assert_eq!(matching("19\\d"), (190..200).collect::<Vec<_>>());
        assert_eq!(matching(".*").len(), 200);
        assert_eq!(matching("1+"), [1, 11, 111]);
        assert_eq!(matching("[^0-8]+"), [9, 99]);
        assert_eq!(matching("x*"), [0u32; 0]);
        assert_eq!(matching("(?:10){1,}"), [10]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for pattern in [
            "[0-",
            "(1",
            "1)",
            "*",
            "[9-0]",
            "1{2,1}",
            "\\w",
            "(?=1)",
            "1{9999}",
            "(1{99}){99}",
            "(((){99}){99}){99}",
            "[]",
            "1\\",
        ] {
            assert!(Regex::new(pattern).is_err(), "{pattern}");
        }
        assert!(Regex::new(&"(".repeat(1000)).is_err());
    }

    #[test]
    fn nested_repetition_takes_linear_time() {
        let regex = Regex::new("(((1*)*)*)*2").expect("the pattern is right");
        assert!(!regex.matches(&"1".repeat(500)));
    }
}
