//! A line of JSON that asks `generate` for a text, and what is wrong with one in the words of whoever wrote it.

use serde::Deserialize;
use serde_json::value::RawValue;
use unisono_data::{Message, json};

/// What a line asks for. Nothing where it says nothing.
#[derive(Default)]
pub struct Line {
    /// A text to go on from.
    pub prompt: Option<String>,
    /// Tokens to go on from.
    pub prompt_ids: Option<Vec<u32>>,
    /// A conversation to go on with.
    pub messages: Option<Vec<Message>>,
    /// Most new tokens.
    pub max_new_tokens: Option<usize>,
    /// See [`Sampling`](unisono_train::generate::Sampling), as the following.
    pub temperature: Option<f64>,
    /// 0 and −1 are all tokens.
    pub top_k: Option<i64>,
    /// Up to this probability.
    pub top_p: Option<f64>,
    /// From this share of the likeliest.
    pub min_p: Option<f64>,
    /// Of tokens that are there.
    pub repetition_penalty: Option<f64>,
    /// Of the draws.
    pub seed: Option<u64>,
    /// Texts that end it.
    pub stop: Option<Vec<String>>,
    /// Log-probabilities, and of how many of the likeliest.
    pub logprobs: Option<usize>,
}

/// The same, unread. What is `null` is not there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_ids: Option<&'a RawValue>,
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    #[serde(borrow)]
    max_new_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    temperature: Option<&'a RawValue>,
    #[serde(borrow)]
    top_k: Option<&'a RawValue>,
    #[serde(borrow)]
    top_p: Option<&'a RawValue>,
    #[serde(borrow)]
    min_p: Option<&'a RawValue>,
    #[serde(borrow)]
    repetition_penalty: Option<&'a RawValue>,
    #[serde(borrow)]
    seed: Option<&'a RawValue>,
    #[serde(borrow)]
    stop: Option<&'a RawValue>,
    #[serde(borrow)]
    logprobs: Option<&'a RawValue>,
}

/// A message of a conversation, unread.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said<'a> {
    #[serde(borrow)]
    role: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

impl Line {
    /// A prompt without settings of its own.
    pub fn of_text(prompt: String) -> Line {
        Line {
            prompt: Some(prompt),
            ..Line::default()
        }
    }

    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it, as a clause, with the column where that is known.
    pub fn parse(line: &str) -> Result<Line, String> {
        let first = line.trim_start().chars().next();
        if let Some(first) = first.filter(|first| *first != '{') {
            return Err(format!(
                "a request is a JSON object, {{\"prompt\": …}}, and this line begins with {first:?}"
            ));
        }
        let fields: Fields = serde_json::from_str(line).map_err(|error| json::problem_in_line(&error, line))?;
        let at = Reader { line };
        Ok(Line {
            prompt: at.maybe("prompt", fields.prompt, Reader::text)?,
            prompt_ids: at.maybe("prompt_ids", fields.prompt_ids, |at, name, raw| {
                at.list(name, raw, Reader::whole)
            })?,
            messages: at.maybe("messages", fields.messages, |at, name, raw| {
                at.list(name, raw, Reader::message)
            })?,
            max_new_tokens: at.maybe("max_new_tokens", fields.max_new_tokens, Reader::whole)?,
            temperature: at.maybe("temperature", fields.temperature, Reader::number)?,
            top_k: at.maybe("top_k", fields.top_k, Reader::top_k)?,
            top_p: at.maybe("top_p", fields.top_p, Reader::number)?,
            min_p: at.maybe("min_p", fields.min_p, Reader::number)?,
            repetition_penalty: at.maybe("repetition_penalty", fields.repetition_penalty, Reader::number)?,
            seed: at.maybe("seed", fields.seed, Reader::whole)?,
            stop: at.maybe("stop", fields.stop, Reader::stops)?,
            logprobs: at.maybe("logprobs", fields.logprobs, Reader::whole)?,
        })
    }
}

/// Reads values out of a line, and knows where they stand in it.
#[derive(Clone, Copy)]
struct Reader<'a> {
    line: &'a str,
}

/// Reads a value of the name.
type Read<'a, T> = fn(&Reader<'a>, &str, &'a RawValue) -> Result<T, String>;

impl<'a> Reader<'a> {
    fn maybe<T>(&self, name: &str, value: Option<&'a RawValue>, read: Read<'a, T>) -> Result<Option<T>, String> {
        value.map(|value| read(self, name, value)).transpose()
    }

    /// `column 9: seed is -4; RULE`.
    fn wrong(&self, name: &str, value: &RawValue, rule: &str) -> String {
        // The value is a part of the line.
        let at = (value.get().as_ptr() as usize).saturating_sub(self.line.as_ptr() as usize);
        let column = self.line.get(..at).map_or(0, |before| before.chars().count()) + 1;
        let mut shown: String = value.get().chars().take(40).collect();
        if shown.len() < value.get().len() {
            shown.push('…');
        }
        format!("column {column}: {name} is {shown}; {rule}")
    }

    fn text(&self, name: &str, value: &'a RawValue) -> Result<String, String> {
        // An escape that stands for no character is no text either.
        serde_json::from_str(value.get()).map_err(|_| self.wrong(name, value, "a text in quotation marks is needed"))
    }

    fn number(&self, name: &str, value: &'a RawValue) -> Result<f64, String> {
        let number = serde_json::from_str(value.get()).ok();
        number.ok_or_else(|| self.wrong(name, value, "a number is needed"))
    }

    fn whole<N: TryFrom<i128>>(&self, name: &str, value: &'a RawValue) -> Result<N, String> {
        let number = value
            .get()
            .parse::<i128>()
            .ok()
            .and_then(|number| N::try_from(number).ok());
        let most = (1u128 << (8 * size_of::<N>())).wrapping_sub(1);
        number.ok_or_else(|| self.wrong(name, value, &format!("a whole number from 0 to {most} is needed")))
    }

    fn top_k(&self, name: &str, value: &'a RawValue) -> Result<i64, String> {
        let number = value.get().parse().ok().filter(|number| *number >= -1);
        number.ok_or_else(|| {
            let rule = "a whole number from 1 is needed, or -1 or 0 for all tokens";
            self.wrong(name, value, rule)
        })
    }

    fn stops(&self, name: &str, value: &'a RawValue) -> Result<Vec<String>, String> {
        match value.get().as_bytes().first() {
            Some(b'"') => Ok(vec![self.text(name, value)?]),
            Some(b'[') => self.list(name, value, Reader::text),
            _ => Err(self.wrong(name, value, "a text, or a list of texts, is needed")),
        }
    }

    fn list<T>(&self, name: &str, value: &'a RawValue, read: Read<'a, T>) -> Result<Vec<T>, String> {
        let values: Vec<&RawValue> =
            serde_json::from_str(value.get()).map_err(|_| self.wrong(name, value, "a list […] is needed"))?;
        let named = |(place, value)| read(self, &format!("{name}[{place}]"), value);
        values.into_iter().enumerate().map(named).collect()
    }

    fn message(&self, name: &str, value: &'a RawValue) -> Result<Message, String> {
        let rule = "an object {\"role\": …, \"content\": …} of two texts is needed";
        let said: Said = match value.get().starts_with('{') {
            true => serde_json::from_str(value.get()).map_err(|_| self.wrong(name, value, rule))?,
            false => return Err(self.wrong(name, value, rule)),
        };
        match (said.role, said.content) {
            (Some(role), Some(content)) => Ok(Message::new(
                self.text(&format!("{name}.role"), role)?,
                self.text(&format!("{name}.content"), content)?,
            )),
            _ => Err(self.wrong(name, value, rule)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_without_words_of_the_program() {
        for (line, told) in [
            (
                r#"{"prompt": "ä", "max_new_tokens": -1}"#,
                "column 35: max_new_tokens is -1; a whole number from 0 to 18446744073709551615 is needed",
            ),
            (
                "[]",
                "a request is a JSON object, {\"prompt\": …}, and this line begins with '['",
            ),
            (
                "5",
                "a request is a JSON object, {\"prompt\": …}, and this line begins with '5'",
            ),
            (
                r#"{"prompt": 5}"#,
                "column 12: prompt is 5; a text in quotation marks is needed",
            ),
            (
                r#"{"prompt": "\ud800"}"#,
                r#"column 12: prompt is "\ud800"; a text in quotation marks is needed"#,
            ),
            (
                r#"{"prompt_ids": [1, -4]}"#,
                "column 20: prompt_ids[1] is -4; a whole number from 0 to 4294967295 is needed",
            ),
            (
                r#"{"prompt_ids": "1"}"#,
                r#"column 16: prompt_ids is "1"; a list […] is needed"#,
            ),
            (
                r#"{"seed": 1e3}"#,
                "column 10: seed is 1e3; a whole number from 0 to 18446744073709551615 is needed",
            ),
            (
                r#"{"temperature": "hot"}"#,
                r#"column 17: temperature is "hot"; a number is needed"#,
            ),
            (
                r#"{"top_k": -2}"#,
                "column 11: top_k is -2; a whole number from 1 is needed, or -1 or 0 for all tokens",
            ),
            (
                r#"{"stop": 5}"#,
                "column 10: stop is 5; a text, or a list of texts, is needed",
            ),
            (
                r#"{"stop": ["a", 5]}"#,
                "column 16: stop[1] is 5; a text in quotation marks is needed",
            ),
            (
                r#"{"messages": [{"role": "user"}]}"#,
                "column 15: messages[0] is {\"role\": \"user\"}; an object {\"role\": …, \"content\": …} of two texts is needed",
            ),
            (
                r#"{"messages": [{"role": "user", "content": 1}]}"#,
                "column 43: messages[0].content is 1; a text in quotation marks is needed",
            ),
            (r#"{"prompt": "x""#, "it ends before its JSON does"),
            (
                r#"{"prompt": "x"} y"#,
                "column 17: something follows the end of the JSON",
            ),
            (r#"{"prompt": "x", "prompt": "y"}"#, "duplicate field `prompt`"),
            (
                r#"{"promt": "x"}"#,
                "unknown field `promt`, expected one of `prompt`, `prompt_ids`",
            ),
        ] {
            let Err(problem) = Line::parse(line) else {
                panic!("{line} is taken");
            };
            assert!(problem.contains(told), "{line}: {problem}");
            for word in [
                "usize", "u32", "u64", "i64", "f64", "struct", "enum", "ident", "sequence",
            ] {
                assert!(
                    !problem.split(|c: char| !c.is_alphanumeric()).any(|w| w == word),
                    "{line}: {problem}"
                );
            }
        }
    }

    #[test]
    fn a_request_is_read() {
        let line = r#"{"prompt_ids": [1, 2], "seed": 18446744073709551615, "top_k": -1, "stop": "a", "temperature": 1, "prompt": null}"#;
        let read = Line::parse(line).unwrap_or_else(|problem| panic!("{problem}"));
        assert_eq!(read.prompt_ids, Some(vec![1, 2]));
        assert_eq!((read.seed, read.top_k), (Some(u64::MAX), Some(-1)));
        assert_eq!(read.stop, Some(vec!["a".to_string()]));
        assert_eq!((read.temperature, read.prompt), (Some(1.0), None));
    }
}
