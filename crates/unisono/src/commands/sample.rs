//! A piece of text that a freshly trained model writes, and how many of its words the training text knows.

use crate::exit::Failure;
use std::collections::HashSet;
use std::ops::ControlFlow;
use unisono_data::Tokenizer;
use unisono_nn::LanguageModel;
use unisono_train::dataset::TextData;
use unisono_train::generate::{Batching, Request, Sampling, generate_with};

/// Tokens of a sample.
const TOKENS: usize = 1000;
/// Training texts of more tokens are not searched for words.
const MOST_TOKENS: usize = 1 << 24;

/// See the module.
#[derive(Debug, serde::Serialize)]
pub struct Sample {
    /// The text.
    pub text: String,
    /// Whole words in it.
    pub words: usize,
    /// Those among them that stand in the training text; `None` where that was not looked for.
    pub known: Option<usize>,
}

impl Sample {
    /// Share of the words that the training text knows, in percent.
    pub fn share(&self) -> Option<f64> {
        let known = self.known?;
        (self.words > 0).then(|| 100.0 * known as f64 / self.words as f64)
    }
}

/// Lets the model write, from a line break or the first token of the training text on. Where its positions end it goes on
/// from the last half of them.
///
/// # Errors
/// Broken weights, or a failed command.
pub fn write(
    model: &dyn LanguageModel,
    data: &TextData,
    tokenizer: &Tokenizer,
    sampling: Sampling,
) -> Result<Sample, Failure> {
    let first = tokenizer.encode("\n").ok().filter(|ids| ids.len() == 1);
    let mut ids = first.unwrap_or_else(|| data.train.get(0).into_iter().collect());
    let begin = ids.len();
    let keep = (model.max_sequence_length() / 2).max(1);
    let batching = Batching {
        vocabulary: Some(tokenizer.vocab_size()),
        ..Batching::default()
    };
    while ids.len() < begin + TOKENS {
        let request = Request {
            prompt_ids: ids[ids.len().saturating_sub(keep)..].to_vec(),
            max_new_tokens: begin + TOKENS - ids.len(),
            // Draws are keyed by the position in the window: each window has a seed of its own.
            sampling: Sampling {
                seed: sampling.seed.wrapping_add(ids.len() as u64),
                ..sampling
            },
            ..Request::default()
        };
        let outputs = generate_with(model, &[request], &batching, &mut |_, _| ControlFlow::Continue(()))?;
        match outputs.into_iter().next() {
            Some(output) if !output.ids.is_empty() => ids.extend(output.ids),
            _ => break,
        }
    }
    let text = tokenizer.decode(&ids[begin..])?;
    let words = whole_words(&text);
    let known = match data.train.len() <= MOST_TOKENS {
        false => None,
        true => {
            let corpus: Vec<u32> = data.train.iter().chain(data.validation.iter()).collect();
            let corpus = tokenizer.decode(&corpus)?;
            let vocabulary: HashSet<&str> = split(&corpus).collect();
            Some(words.iter().filter(|word| vocabulary.contains(**word)).count())
        }
    };
    Ok(Sample {
        words: words.len(),
        known,
        text,
    })
}

fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
}

/// The words of a text that was cut off: the last one may lack its end.
fn whole_words(text: &str) -> Vec<&str> {
    let mut words: Vec<&str> = split(text).collect();
    if text.ends_with(char::is_alphanumeric) {
        words.pop();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_was_cut_off_does_not_count() {
        assert_eq!(whole_words("The fox, the bo"), ["The", "fox", "the"]);
        assert_eq!(whole_words("The fox."), ["The", "fox"]);
        assert!(whole_words("").is_empty());
    }
}
