//! What is wrong with a JSON text, in the words of whoever wrote it: the parsers' own name types of their programs.

/// Whole numbers, as programs name them.
const WHOLE: [&str; 10] = ["u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "isize"];
/// Parts of a `tokenizer.json`, as the library's types name them.
const PARTS: [(&str, &str); 5] = [
    ("Model", "model"),
    ("Normalizer", "normalizer"),
    ("PreTokenizer", "pre_tokenizer"),
    ("PostProcessor", "post_processor"),
    ("Decoder", "decoder"),
];

/// A parser's error, or its message, in plain words; its place stands behind in brackets.
pub fn plain(error: impl std::fmt::Display) -> String {
    let message = error.to_string();
    match message.rsplit_once(" at line ") {
        None => words(&message),
        Some((problem, place)) => format!("{} (line {})", words(problem), place.replace(" column", ", column")),
    }
}

/// The error of a single line in plain words, after its column, counted in characters from 1.
pub fn problem_in_line(error: &serde_json::Error, line: &str) -> String {
    // The parser counts bytes, and names the last that it read.
    let bytes = error.column().saturating_sub(1);
    let before = line.char_indices().take_while(|(at, _)| *at < bytes).count();
    let message = error.to_string();
    let problem = message.split(" at line ").next().unwrap_or_default();
    format!("column {}: {}", before + 1, words(problem))
}

/// A message without its place. What says what to look for stays as it is (``expected `:` ``, `trailing comma`).
fn words(problem: &str) -> String {
    // Before it may stand what of the text is meant.
    if let Some(at) = problem.find("EOF while parsing") {
        let whose = &problem[..at];
        return format!("{whose}it ends before its JSON does: a quotation mark, bracket or brace is not closed");
    }
    if let Some(name) = problem.strip_prefix("data did not match any variant of untagged enum ") {
        let part = PARTS.iter().find(|(kind, _)| name.starts_with(kind));
        return format!(
            "its {} is of no kind that is known",
            part.map_or("value", |(_, part)| part)
        );
    }
    match problem {
        "expected ident" => {
            return "a word stands there that is neither true, false nor null, and not in quotation marks".into();
        }
        "expected value" => {
            return "a value is missing there: a text in quotation marks, a number, true, false, null, […] or {…}"
                .into();
        }
        "trailing characters" => return "something follows the end of the JSON".into(),
        "key must be a string" => return "a name in quotation marks is needed there".into(),
        _ => {}
    }
    let Some((found, expected)) = problem.split_once(", expected ") else {
        return problem.into();
    };
    let found = match found {
        "invalid type: sequence" => "invalid type: list",
        "invalid type: map" => "invalid type: object",
        found => found,
    };
    if let Some(count) = expected.strip_prefix("a tuple of size ") {
        return format!("{found}, expected a list of {count}");
    }
    let expected = match expected {
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        number if WHOLE.contains(&number) && number.starts_with('u') => "a whole number that is not negative",
        number if WHOLE.contains(&number) => "a whole number",
        kind if ["struct ", "internally tagged enum ", "adjacently tagged enum ", "enum "]
            .iter()
            .any(|word| kind.starts_with(word)) =>
        {
            "an object"
        }
        expected => expected,
    };
    format!("{found}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_characters_and_words_are_plain() {
        for (line, told) in [
            ("not json", "column 2: a word stands there"),
            ("{\"ä\": }", "column 7: a value is missing there"),
            ("{\"ä\": 1} x", "column 10: something follows the end"),
            ("{\"a\": 1, b}", "column 10: a name in quotation marks"),
            ("{\"a\": [1", "it ends before its JSON does"),
            ("{\"a\": 1,}", "trailing comma"),
        ] {
            let error = serde_json::from_str::<serde_json::Value>(line).expect_err(line);
            let problem = problem_in_line(&error, line);
            assert!(problem.contains(told), "{line}: {problem}");
        }
    }

    #[test]
    fn no_type_of_a_program_is_named() {
        for (message, told) in [
            (
                "invalid type: integer `5`, expected internally tagged enum Stored at line 1 column 1",
                "invalid type: integer `5`, expected an object (line 1, column 1)",
            ),
            (
                "data did not match any variant of untagged enum PreTokenizerUntagged at line 2 column 95",
                "its pre_tokenizer is of no kind that is known (line 2, column 95)",
            ),
            (
                "invalid length 0, expected struct Line with 12 elements",
                "invalid length 0, expected an object",
            ),
            (
                "invalid value: integer `-1`, expected u32",
                "invalid value: integer `-1`, expected a whole number that is not negative",
            ),
            (
                "invalid type: sequence, expected a map",
                "invalid type: list, expected an object",
            ),
            (
                "missing field `type` at line 1 column 2",
                "missing field `type` (line 1, column 2)",
            ),
        ] {
            assert_eq!(plain(message), told);
        }
    }
}
