//! Text or tokens, cut into windows.

use crate::config::{DataPath, RunConfig, TokenizerType};
use crate::error::{Result, TrainError};
use unisono_data::{DataError, Tokenizer, Tokens, Windows, corpus, files, split, text, token_file};

/// Random tokens that `data_path: random` pretends to hold.
const RANDOM_TOKENS: usize = 1 << 24;

/// Text or tokens.
pub struct TextData {
    /// How text becomes tokens; `None` for data that is tokens already.
    pub tokenizer: Option<Tokenizer>,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// Where it came from.
    pub source: String,
    /// Training part.
    pub train: Tokens,
    /// Validation part; may be empty.
    pub validation: Tokens,
    /// Windows of the training part.
    pub windows: Windows,
    /// Hash of the tokens.
    pub digest: String,
}

impl TextData {
    /// Loads what `config` names.
    pub(super) fn load(config: &RunConfig, vocab_size: usize, seq_len: usize) -> Result<TextData> {
        let t = &config.training;
        let (tokenizer, tokens, source) = match (&t.data_path, t.tokenizer_type) {
            (DataPath::Random, _) => (
                None,
                Tokens::random(t.seed, RANDOM_TOKENS, vocab_size)?,
                "random tokens".into(),
            ),
            (DataPath::BuiltIn, kind) => {
                let text = corpus::stories();
                let (tokenizer, tokens) = tokenise(tokenizer_of(config, kind, &text)?, &text, "the built-in corpus")?;
                (Some(tokenizer), tokens, "built-in corpus of stories".into())
            }
            (DataPath::Path(path), TokenizerType::Pretokenised) => (
                None,
                token_file::load_tokens(path, Some(vocab_size))?,
                path.display().to_string(),
            ),
            (DataPath::Path(path), TokenizerType::Byte) => {
                let bytes = text::read_bytes(path)?;
                let ids = bytes.iter().map(|byte| u32::from(*byte)).collect();
                let place = path.display().to_string();
                (Some(Tokenizer::Byte), Tokens::from_vec(ids, 256, &place)?, place)
            }
            (DataPath::Path(path), kind) => {
                let place = path.display().to_string();
                let text = text::read_text(path).map_err(or_bytes)?.text;
                let (tokenizer, tokens) = tokenise(tokenizer_of(config, kind, &text)?, &text, &place)?;
                (Some(tokenizer), tokens, place)
            }
        };
        let vocab_size = tokenizer.as_ref().map_or(tokens.vocab_size(), Tokenizer::vocab_size);
        let digest = match t.data_path {
            DataPath::Random => files::hash_bytes(format!("random {} {vocab_size}", t.seed).as_bytes()),
            _ => {
                let mut bytes = Vec::with_capacity(4 * tokens.len());
                tokens.iter().for_each(|id| bytes.extend_from_slice(&id.to_le_bytes()));
                files::hash_bytes(&bytes)
            }
        };
        let (train, validation) = match t.validation_fraction {
            0.0 => (tokens.clone(), tokens.slice(tokens.len()..tokens.len())),
            fraction => split(&tokens, fraction)?,
        };
        let windows = Windows::new(train.clone(), seq_len)?;
        Ok(TextData {
            tokenizer,
            vocab_size,
            source,
            train,
            validation,
            windows,
            digest,
        })
    }
}

/// Where a text is none, what takes it all the same.
fn or_bytes(error: DataError) -> DataError {
    match error {
        DataError::NotUtf8 {
            path,
            offset,
            byte,
            line,
            hint,
        } => DataError::NotUtf8 {
            path,
            offset,
            byte,
            line,
            hint: format!("{hint}, or use tokenizer_type: byte, which takes any file"),
        },
        error => error,
    }
}

/// The tokenizer of a text: made from it, or the one that the configuration names.
fn tokenizer_of(config: &RunConfig, kind: TokenizerType, text: &str) -> Result<Tokenizer> {
    Ok(match kind {
        TokenizerType::Byte => Tokenizer::Byte,
        TokenizerType::Char | TokenizerType::Pretokenised => Tokenizer::char_from_text(text)?,
        TokenizerType::Bpe => named_tokenizer(config)?,
    })
}

/// The tokenizer that the configuration names.
///
/// # Errors
/// None, or a file that is none.
pub fn named_tokenizer(config: &RunConfig) -> Result<Tokenizer> {
    match &config.training.tokenizer_path {
        Some(path) => Ok(Tokenizer::load(path)?),
        None => Err(TrainError::Refused(
            "tokenizer_type: bpe needs training_config.tokenizer_path, or a model_path that has a tokenizer.json"
                .into(),
        )),
    }
}

fn tokenise(tokenizer: Tokenizer, text: &str, place: &str) -> Result<(Tokenizer, Tokens)> {
    let ids = tokenizer.encode(text)?;
    let tokens = Tokens::from_vec(ids, tokenizer.vocab_size(), place)?;
    Ok((tokenizer, tokens))
}
