//! Words as a POSIX shell quotes and splits them.

/// A word as it must be written in a shell to mean itself.
pub fn quoted(word: &str) -> String {
    if !word.is_empty() && is_plain(word) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Whether a shell leaves a text as it is. An assignment in front of a command would be taken as one, and so would a tilde: only
/// harmless characters count.
pub(crate) fn is_plain(text: &str) -> bool {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    text.chars().all(harmless)
}

/// Words as one line that a shell takes apart again as they were.
pub(crate) fn joined(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Splits a text into words as a shell would, without expanding anything.
///
/// # Errors
/// A quote that is not closed, or a backslash at the end.
pub fn split(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' | '\r' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some(c) => word.push(c),
                        None => return Err(format!("a ' is not closed in {text}")),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('"') => break,
                        Some('\\') => match chars.next() {
                            Some(c @ ('"' | '\\' | '$' | '`')) => word.push(c),
                            Some('\n') => {}
                            Some(c) => word.extend(['\\', c]),
                            None => return Err(format!("a \" is not closed in {text}")),
                        },
                        Some(c) => word.push(c),
                        None => return Err(format!("a \" is not closed in {text}")),
                    }
                }
            }
            '\\' => match chars.next() {
                Some('\n') => {}
                Some(c) => word.get_or_insert_default().push(c),
                None => return Err(format!("a backslash ends {text}")),
            },
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Whether a variable may be called so: letters, digits and `_`, no digit first.
pub(crate) fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(is_variable_char) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether a character may be in such a name.
pub(crate) fn is_variable_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::{joined, split};

    #[test]
    fn what_is_joined_splits_into_the_same_words() {
        let words = [
            "a b", "", "'", "\"q\"", "x=y", ":", "$HOME", "`id`", "a\nb", "~", "#", "ä", "\\", "*",
        ];
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        assert_eq!(split(&joined(&words)), Ok(words));
    }

    #[test]
    fn quotes_and_backslashes_are_a_shells() {
        let split = |text| split(text).expect("it can be split");
        assert_eq!(
            split(r#"--mca btl "self,tcp"  -x 'A=b c'"#),
            ["--mca", "btl", "self,tcp", "-x", "A=b c"]
        );
        assert_eq!(split(r#"a\ b "c\"d" "\n" ''"#), ["a b", "c\"d", "\\n", ""]);
        assert_eq!(split(" \t "), Vec::<String>::new());
    }

    #[test]
    fn what_is_not_closed_is_an_error() {
        for text in ["'a", "\"a", "\"a\\", "a\\"] {
            assert!(split(text).is_err(), "{text}");
        }
    }
}
