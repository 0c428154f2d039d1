//! Stop texts: where one is written the text ends before it, however it falls into tokens.

/// Texts that end a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopTexts(Vec<String>);

impl StopTexts {
    /// Any of `texts`.
    ///
    /// # Errors
    /// An empty one, in a sentence.
    pub fn new(texts: Vec<String>) -> Result<StopTexts, String> {
        match texts.iter().position(String::is_empty) {
            Some(place) => Err(format!(
                "stop text {} of {} is empty, so nothing could be written; leave it out",
                place + 1,
                texts.len()
            )),
            None => Ok(StopTexts(texts)),
        }
    }

    /// The first stop text to be complete in `text`, the longest of those that end together, and where it begins.
    fn find<'a>(&'a self, text: &str) -> Option<(usize, &'a str)> {
        let found = self
            .0
            .iter()
            .filter_map(|stop| Some((text.find(stop.as_str())?, stop.as_str())));
        found.min_by_key(|(at, stop)| (at + stop.len(), *at))
    }

    /// Bytes at the end of `text` that may be the beginning of a stop text.
    fn open(&self, text: &str) -> usize {
        let longest = self.0.iter().map(String::len).max().unwrap_or(0);
        let from = text.len().saturating_sub(longest.saturating_sub(1));
        let starts = text.char_indices().map(|(at, _)| at).filter(|at| *at >= from);
        let begins = |at: &usize| self.0.iter().any(|stop| stop.starts_with(&text[*at..]));
        starts.into_iter().find(begins).map_or(0, |at| text.len() - at)
    }
}

/// Text on its way out: what may be the beginning of a stop text is held back.
#[derive(Clone, Debug, Default)]
pub struct Held {
    stops: StopTexts,
    held: String,
}

impl Held {
    /// Watches for `stops`.
    pub fn new(stops: StopTexts) -> Held {
        Held {
            stops,
            held: String::new(),
        }
    }

    /// Takes a piece; gives the text that can go out, and the stop text that ends it where one is complete.
    pub fn push(&mut self, piece: &str) -> (String, Option<&str>) {
        self.held += piece;
        if let Some((at, stop)) = self.stops.find(&self.held) {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), Some(stop));
        }
        let keep = self.held.split_off(self.held.len() - self.stops.open(&self.held));
        (std::mem::replace(&mut self.held, keep), None)
    }

    /// What was held back, when nothing more comes.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops(texts: &[&str]) -> StopTexts {
        StopTexts::new(texts.iter().map(ToString::to_string).collect()).unwrap()
    }

    /// Text and stop of `text`, pushed in pieces of so many characters; what goes out is checked against what is known then.
    fn pushed(stops: &StopTexts, text: &str, size: usize) -> (String, Option<String>) {
        let mut held = Held::new(stops.clone());
        let mut out = String::new();
        let characters: Vec<char> = text.chars().collect();
        for piece in characters.chunks(size) {
            let (text, stop) = held.push(&piece.iter().collect::<String>());
            let stop = stop.map(String::from);
            out += &text;
            if stop.is_some() {
                return (out, stop);
            }
        }
        out += &held.finish();
        (out, None)
    }

    #[test]
    fn the_text_ends_before_the_stop_however_it_is_cut() {
        let cases: [(&[&str], &str, &str, Option<&str>); 9] = [
            (&["###"], "answer\n### Question", "answer\n", Some("###")),
            (&["###"], "one # and ## two", "one # and ## two", None),
            (&["###"], "ends in ##", "ends in ##", None),
            (&["\n\n", "User:"], "Hi\nUser: x", "Hi\n", Some("User:")),
            (&["\n\n", "User:"], "Hi\n\nUser: x", "Hi", Some("\n\n")),
            (&["bc", "abc d"], "xabc d", "xa", Some("bc")),
            (&["bc", "abc"], "xabc d", "x", Some("abc")),
            (&["aab"], "aaab", "a", Some("aab")),
            (
                &["Grüße", "🦀🦀"],
                "viele Grü und 🦀, 🦀🦀!",
                "viele Grü und 🦀, ",
                Some("🦀🦀"),
            ),
        ];
        for (texts, text, expected, stop) in cases {
            for size in [1, 2, 3, 100] {
                let found = pushed(&stops(texts), text, size);
                assert_eq!(
                    found,
                    (expected.into(), stop.map(String::from)),
                    "{text:?} in pieces of {size}"
                );
            }
        }
    }

    #[test]
    fn only_what_may_become_a_stop_is_held_back() {
        let mut held = Held::new(stops(&["<end>", "<stop>"]));
        assert_eq!(held.push("a <"), ("a ".into(), None));
        assert_eq!(held.push("e"), (String::new(), None));
        assert_eq!(held.push("x<s"), ("<ex".into(), None));
        assert_eq!(held.push("top"), (String::new(), None));
        assert_eq!(held.push("> b"), (String::new(), Some("<stop>")));
        let mut free = Held::new(StopTexts::default());
        assert_eq!(free.push("anything"), ("anything".into(), None));
    }

    #[test]
    fn an_empty_stop_text_is_refused() {
        let error = StopTexts::new(vec!["a".into(), String::new()]).expect_err("it is empty");
        assert!(error.starts_with("stop text 2 of 2 is empty"), "{error}");
    }
}
