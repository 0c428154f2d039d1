//! Training a byte-level BPE, as GPT-2's: a vocabulary of the 256 bytes, to which the commonest pair of neighbours is joined again and again.
//! Source of the algorithm: Sennrich et al., *Neural Machine Translation of Rare Words with Subword Units* (2016), on bytes as in Radford
//! et al., *Language Models are Unsupervised Multitask Learners* (2019); the work is the `tokenizers` crate's.

use super::HfTokenizer;
use super::hf::guarded;
use crate::DataError;
use serde_json::json;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::processors::sequence::Sequence;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, NormalizerWrapper, PostProcessorWrapper, TokenizerBuilder};

/// The token that ends a text.
pub const END_OF_TEXT: &str = "<|endoftext|>";
/// Pieces that long texts are counted in, in bytes.
const PIECE: usize = 1 << 20;

/// What to train.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BpeOptions {
    /// Ids in all: special tokens, the 256 bytes, and as many joined tokens as are left. Fewer come out where the text has no more pairs
    /// that occur twice.
    pub vocab_size: usize,
    /// Whether every text is to begin with [`END_OF_TEXT`] as its BOS.
    pub bos: bool,
    /// Special tokens beside [`END_OF_TEXT`], which is always the first, with id 0.
    pub special_tokens: Vec<String>,
}

/// Trains a tokenizer on texts. The same texts in the same order give the same bytes each time.
///
/// [`Tokenizer::save`](super::Tokenizer::save) writes it as a directory that `transformers.AutoTokenizer` loads: `tokenizer.json` and
/// `tokenizer_config.json`, with [`END_OF_TEXT`] as EOS.
///
/// # Errors
/// [`DataError::Argument`] for a vocabulary that has no room for bytes and special tokens; [`DataError::Tokenizer`] for special tokens that are
/// empty or repeated, and for what the crate says.
pub fn train_bpe(texts: &[String], options: &BpeOptions) -> Result<HfTokenizer, DataError> {
    let special = check(options)?;
    let refused = |problem: String| DataError::Tokenizer {
        place: "the tokenizer to train".to_string(),
        problem,
    };
    let trained = guarded(|| {
        let byte_level = ByteLevel::new(false, false, true);
        let tokens = special.iter().map(|token| AddedToken::from(token.clone(), true));
        let mut trainer = BpeTrainer::builder()
            .show_progress(false)
            .vocab_size(options.vocab_size)
            // A pair that occurs once is no habit of the language.
            .min_frequency(2)
            .special_tokens(tokens.collect())
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .build();
        let mut tokenizer =
            TokenizerBuilder::<BPE, NormalizerWrapper, ByteLevel, PostProcessorWrapper, ByteLevel>::new()
                .with_model(BPE::default())
                .with_normalizer(None)
                .with_pre_tokenizer(Some(byte_level))
                .with_post_processor(Some(PostProcessorWrapper::ByteLevel(byte_level)))
                .with_decoder(Some(byte_level))
                .build()?;
        let pieces: Vec<&str> = texts.iter().flat_map(|text| pieces(text)).collect();
        tokenizer.train(&mut trainer, pieces.into_iter())?;
        if options.bos {
            let id = tokenizer.token_to_id(END_OF_TEXT).unwrap_or(0);
            let template = TemplateProcessing::builder()
                .try_single(format!("{END_OF_TEXT} $A"))?
                .try_pair(format!("{END_OF_TEXT} $A {END_OF_TEXT} $B"))?
                .special_tokens(vec![(END_OF_TEXT, id)])
                .build()?;
            let both = vec![
                PostProcessorWrapper::ByteLevel(byte_level),
                PostProcessorWrapper::Template(template),
            ];
            tokenizer.with_post_processor(Some(PostProcessorWrapper::Sequence(Sequence::new(both))));
        }
        tokenizer.to_string(false)
    });
    let json = trained.map_err(refused)? + "\n";
    let mut config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": false,
        "clean_up_tokenization_spaces": false,
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
    });
    if options.bos {
        config["bos_token"] = json!(END_OF_TEXT);
    }
    let config = format!("{config:#}\n").into_bytes();
    let companions = vec![("tokenizer_config.json".to_string(), config)];
    HfTokenizer::new(json, "the trained tokenizer", companions, None)
}

/// The special tokens, [`END_OF_TEXT`] first.
fn check(options: &BpeOptions) -> Result<Vec<String>, DataError> {
    let mut special = vec![END_OF_TEXT.to_string()];
    for token in &options.special_tokens {
        let problem = match token {
            token if token.is_empty() => "a special token is empty".to_string(),
            token if special.contains(token) => format!("the special token {token:?} is given twice"),
            token => {
                special.push(token.clone());
                continue;
            }
        };
        return Err(DataError::Tokenizer {
            place: "the tokenizer to train".to_string(),
            problem,
        });
    }
    // Ids are 32 bits wide, and nobody has text enough for a hundredth of them.
    const MOST: usize = 1 << 24;
    let least = 256 + special.len();
    if !(least..=MOST).contains(&options.vocab_size) {
        let (count, s) = (special.len(), if special.len() == 1 { "" } else { "s" });
        return Err(DataError::Argument {
            what: "the vocabulary size",
            given: format!(
                "{}, and at least {least} ids are needed: 256 for the bytes and {count} for the special token{s}",
                options.vocab_size
            ),
            rule: "give so many or more, up to 16777216",
        });
    }
    Ok(special)
}

/// A text cut, where it is long, before lines that follow a line's end: no token goes across such a place.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let bytes = rest.as_bytes();
        let cut = (PIECE..bytes.len()).find(|at| bytes[at - 1] == b'\n' && bytes[*at].is_ascii_alphanumeric());
        let (piece, after) = rest.split_at(cut.unwrap_or(bytes.len()));
        rest = after;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_text() {
        let line = "a line, and é more of it\n";
        let text = line.repeat(3 * PIECE / line.len()) + "\n\n  end";
        let cut: Vec<&str> = pieces(&text).collect();
        assert_eq!(cut.concat(), text);
        assert_eq!(cut.len(), 3);
        assert!(
            cut.iter()
                .all(|piece| piece.len() < PIECE + line.len() && piece.starts_with('a'))
        );
        assert_eq!(pieces("").count(), 0);
    }
}
