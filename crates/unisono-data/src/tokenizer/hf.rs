//! A `tokenizer.json` of Hugging Face, through the `tokenizers` crate.

use super::pieces::Pieces;
use super::settings::Settings;
use crate::{DataError, json};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use tokenizers::normalizers::Precompiled;
use tokenizers::{ModelWrapper, Tokenizer as Library};

/// Largest `tokenizer.json` that is read: those of vocabularies of a quarter of a million tokens have 35 MB.
pub(super) const MOST_BYTES: u64 = 512 << 20;

/// Tokens that end a text in well-known vocabularies, for a `tokenizer.json` without files that name one.
const USUAL_EOS: [&str; 5] = ["</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", "<|im_end|>"];

/// A `tokenizer.json` and what the files beside it say of it. Cheap to clone.
///
/// Truncation and padding that the file asks for are left out, as in `transformers`, and so is a BPE's dropout: the same text has the
/// same tokens each time.
#[derive(Clone)]
pub struct HfTokenizer {
    shared: Arc<Shared>,
}

struct Shared {
    library: Library,
    json: String,
    companions: Vec<(String, Vec<u8>)>,
    pieces: Pieces,
    vocab_size: usize,
    special: HashSet<u32>,
    /// Ids that stand before every prompt.
    prefix: Vec<u32>,
    bos: Option<u32>,
    eos_ids: Vec<u32>,
    pad: Option<u32>,
    templates: Vec<(String, String)>,
}

/// Whether a text is meant as a `tokenizer.json` of Hugging Face, and not as one of ours.
pub(super) fn is_hf(json: &str) -> bool {
    #[derive(Deserialize)]
    struct Head {
        model: Option<IgnoredAny>,
        #[serde(rename = "type")]
        kind: Option<IgnoredAny>,
    }
    // A broken file is one of theirs where it names what only theirs has; reading it in earnest says what is wrong.
    match serde_json::from_str::<Head>(json) {
        Ok(head) => head.model.is_some() && head.kind.is_none(),
        Err(_) => json.contains("\"model\"") || json.contains("\"added_tokens\""),
    }
}

impl HfTokenizer {
    /// Reads a tokenizer of which the text is there, and the files beside it.
    pub(super) fn load(json: String, file: &Path) -> Result<Self, DataError> {
        let settings = Settings::read(file)?;
        Self::build(json, &file.display().to_string(), settings)
    }

    /// A tokenizer from the text of its `tokenizer.json`, its [`companions`](Self::companions) by name and the text of the model's
    /// `config.json`; `place` names the first in errors.
    ///
    /// # Errors
    /// [`DataError::Tokenizer`].
    pub fn new(
        json: String,
        place: &str,
        companions: Vec<(String, Vec<u8>)>,
        model_config: Option<&[u8]>,
    ) -> Result<Self, DataError> {
        let settings = Settings::of(companions, model_config, Path::new(place))?;
        Self::build(json, place, settings)
    }

    fn build(json: String, place: &str, settings: Settings) -> Result<Self, DataError> {
        let refused = |problem: String| DataError::Tokenizer {
            place: place.to_string(),
            problem,
        };
        let looked_at = serde_json::from_str::<Looked>(&json);
        let looked_at = looked_at.map_err(|error| refused(json::plain(error)))?;
        check_precompiled(&looked_at.normalizer).map_err(refused)?;
        let mut library =
            guarded(|| Library::from_bytes(json.as_bytes())).map_err(|problem| refused(json::plain(problem)))?;
        check_added(&library, looked_at.added_tokens).map_err(refused)?;
        // Both would silently change what a text's tokens are.
        library
            .with_truncation(None)
            .map_err(|error| refused(error.to_string()))?;
        library.with_padding(None);
        if let ModelWrapper::BPE(bpe) = library.get_model()
            && bpe.dropout.is_some()
        {
            let mut bpe = bpe.clone();
            bpe.dropout = None;
            library.with_model(bpe);
        }
        let decoder = serde_json::to_value(library.get_decoder()).map_err(|error| refused(error.to_string()))?;
        let pieces = Pieces::new(&decoder).map_err(refused)?;
        let Some(most) = library.get_vocab(true).into_values().max() else {
            return Err(refused("its vocabulary is empty".to_string()));
        };
        let added = library.get_added_tokens_decoder();
        let special = added.iter().filter(|(_, token)| token.special).map(|(id, _)| *id);
        let mut shared = Shared {
            special: special.collect(),
            library,
            json,
            companions: Vec::new(),
            pieces,
            vocab_size: most as usize + 1,
            prefix: Vec::new(),
            bos: None,
            eos_ids: Vec::new(),
            pad: None,
            templates: Vec::new(),
        };
        shared.set(settings).map_err(refused)?;
        Ok(HfTokenizer {
            shared: Arc::new(shared),
        })
    }

    /// The ids of a text.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let encoding = guarded(|| self.shared.library.encode_fast(text, false));
        encoding
            .map(|encoding| encoding.get_ids().to_vec())
            .map_err(|problem| DataError::Encode { problem })
    }

    /// The ids of a text that goes on from another: without the blank that some tokenizers put before a text.
    pub(super) fn encode_continuation(&self, text: &str) -> Result<Vec<u32>, DataError> {
        // No token joins a line's end and what follows it in the vocabularies that put blanks before texts.
        const ANCHOR: &str = "\n";
        let (anchor, whole) = (self.encode(ANCHOR)?, self.encode(&format!("{ANCHOR}{text}"))?);
        match whole.strip_prefix(anchor.as_slice()) {
            Some(rest) if !anchor.is_empty() => Ok(rest.to_vec()),
            _ => self.encode(text),
        }
    }

    /// Puts before a text's ids what the tokenizer puts before each text (BOS), unless they begin with it.
    pub(super) fn with_prefix(&self, ids: Vec<u32>) -> Vec<u32> {
        let prefix = &self.shared.prefix;
        match prefix.is_empty() || ids.starts_with(prefix) {
            true => ids,
            false => prefix.iter().copied().chain(ids).collect(),
        }
    }

    pub(super) fn pieces(&self) -> &Pieces {
        &self.shared.pieces
    }

    /// The name of the model in the file.
    pub fn model(&self) -> &'static str {
        match self.shared.library.get_model() {
            ModelWrapper::BPE(_) => "BPE",
            ModelWrapper::WordPiece(_) => "WordPiece",
            ModelWrapper::WordLevel(_) => "WordLevel",
            ModelWrapper::Unigram(_) => "Unigram",
        }
    }

    /// The largest id and one.
    pub fn vocab_size(&self) -> usize {
        self.shared.vocab_size
    }

    /// The id that begins a text, where there is one.
    pub fn bos(&self) -> Option<u32> {
        self.shared.bos
    }

    /// The ids that end a text: the tokenizer's `eos_token`, then those of `generation_config.json` (else of `config.json`).
    pub fn eos_ids(&self) -> &[u32] {
        &self.shared.eos_ids
    }

    /// The id that fills up short rows in other programs.
    pub fn pad(&self) -> Option<u32> {
        self.shared.pad
    }

    /// The ids that stand before every prompt: BOS where the tokenizer adds one, else none.
    pub fn prefix(&self) -> &[u32] {
        &self.shared.prefix
    }

    /// The id of a token, spelt as in the vocabulary.
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.shared.library.token_to_id(token)
    }

    /// The token of an id, spelt as in the vocabulary.
    pub fn token_of(&self, id: u32) -> Option<String> {
        self.shared.library.id_to_token(id)
    }

    /// Whether a token is special: no part of ordinary text.
    pub fn is_special(&self, id: u32) -> bool {
        self.shared.special.contains(&id)
    }

    /// A chat template by name; the only one that most tokenizers have is `default`.
    pub fn chat_template(&self, name: &str) -> Option<&str> {
        let mut templates = self.shared.templates.iter();
        templates.find(|(one, _)| one == name).map(|(_, text)| text.as_str())
    }

    /// The names of the chat templates.
    pub fn chat_template_names(&self) -> impl Iterator<Item = &str> {
        self.shared.templates.iter().map(|(name, _)| name.as_str())
    }

    /// The text of `tokenizer.json`, as it was read.
    pub fn json(&self) -> &str {
        &self.shared.json
    }

    /// The small files that belong to it, by name: `tokenizer_config.json`, `special_tokens_map.json`, `generation_config.json`,
    /// `chat_template.jinja`, those that there are.
    pub fn companions(&self) -> &[(String, Vec<u8>)] {
        &self.shared.companions
    }
}

impl Shared {
    /// Looks up what the settings name. The error is a clause.
    fn set(&mut self, settings: Settings) -> Result<(), String> {
        let find = |token: &Option<String>, key: &str| {
            match token {
            None => Ok(None),
            Some(token) => self.library.token_to_id(token).map(Some).ok_or_else(|| {
                format!("the files beside it name {token:?} as {key}, but it has no such token; they belong to another tokenizer")
            }),
        }
        };
        let known = |id: &u32| self.library.id_to_token(*id).is_some();
        let (before, after) = self.frame()?;
        let bos = find(&settings.bos, "bos_token")?.or(settings.bos_id.filter(known));
        let bos = bos.or(before.first().copied());
        let mut eos_ids: Vec<u32> = find(&settings.eos, "eos_token")?.into_iter().collect();
        for id in settings.eos_ids.iter().filter(|id| known(id)) {
            if !eos_ids.contains(id) {
                eos_ids.push(*id);
            }
        }
        if eos_ids.is_empty() {
            let usual = USUAL_EOS.iter().filter_map(|token| self.library.token_to_id(token));
            eos_ids = after.first().copied().into_iter().chain(usual).take(1).collect();
        }
        // A padding token that the vocabulary lacks is of no use to anyone, but breaks nothing here.
        let pad = settings.pad.and_then(|token| self.library.token_to_id(&token));
        let pad = pad.or(settings.pad_id.filter(known));
        self.prefix = match (settings.add_bos, bos) {
            (Some(true), Some(bos)) if before.is_empty() => vec![bos],
            (Some(false), Some(bos)) if before == [bos] => Vec::new(),
            _ => before,
        };
        (self.bos, self.eos_ids, self.pad) = (bos, eos_ids, pad);
        (self.templates, self.companions) = (settings.templates, settings.companions);
        Ok(())
    }

    /// The ids that the file's post-processor puts before and after a text. The error is a clause.
    fn frame(&self) -> Result<(Vec<u32>, Vec<u32>), String> {
        // A text that the vocabulary cannot encode has nothing to put them around; some other of these has.
        for text in ["a", " ", "0", ""] {
            let encode = |special| guarded(|| self.library.encode_fast(text, special));
            let Ok(plain) = encode(false) else {
                continue;
            };
            let framed = encode(true).map_err(|problem| format!("its post-processor cannot be used: {problem}"))?;
            let (plain, framed) = (plain.get_ids(), framed.get_ids());
            if plain.is_empty() && !text.is_empty() {
                continue;
            }
            if let Some(at) =
                (0..=framed.len() - plain.len().min(framed.len())).find(|at| framed[*at..].starts_with(plain))
            {
                return Ok((framed[..at].to_vec(), framed[at + plain.len()..].to_vec()));
            }
        }
        Ok((Vec::new(), Vec::new()))
    }
}

/// The parts of the file that are looked at apart from the crate.
#[derive(Deserialize)]
struct Looked {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
}

/// Reads the character maps in a normaliser by themselves: where one is broken, the crate panics, with words on the terminal.
fn check_precompiled(normalizer: &Value) -> Result<(), String> {
    if normalizer["type"] == "Precompiled"
        && let Err(error) = Precompiled::deserialize(normalizer)
    {
        return Err(format!("its normalizer's precompiled_charsmap is broken: {error}"));
    }
    let inner = normalizer["normalizers"].as_array();
    inner.into_iter().flatten().try_for_each(check_precompiled)
}

/// Whether the tokens that the file adds to its model have got the ids that it names: the crate gives them others, in the order of the
/// list, where they leave a hole, and weights would then belong to other tokens.
fn check_added(library: &Library, added_tokens: Vec<Added>) -> Result<(), String> {
    for added in added_tokens {
        let has = library.token_to_id(&added.content);
        // An empty token is passed over by the crate, and never found in a text.
        if has != Some(added.id) && !added.content.is_empty() {
            return Err(format!(
                "the added token {:?} has id {} in added_tokens, but gets {} (ids of added tokens must go on from the model's without a hole)",
                added.content,
                added.id,
                has.map_or("none".to_string(), |id| id.to_string())
            ));
        }
    }
    Ok(())
}

/// Calls the crate, which panics on some broken files where it could say so. The error is a clause.
pub(super) fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    // What it was building is dropped, and a finished tokenizer is not changed by encoding.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => {
            let message = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_string())
                .or_else(|| panic.downcast_ref::<String>().cloned());
            Err(format!(
                "the tokenizers library cannot use it ({})",
                message.unwrap_or_else(|| "no reason given".to_string())
            ))
        }
    }
}

impl PartialEq for HfTokenizer {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&self.shared, &other.shared);
        Arc::ptr_eq(a, b)
            || (&a.json, &a.companions, &a.prefix, &a.eos_ids, a.bos, a.pad)
                == (&b.json, &b.companions, &b.prefix, &b.eos_ids, b.bos, b.pad)
    }
}

impl Eq for HfTokenizer {}

impl fmt::Debug for HfTokenizer {
    /// Not the vocabulary: it is megabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HfTokenizer")
            .field("model", &self.model())
            .field("vocab_size", &self.vocab_size())
            .field("bos", &self.bos())
            .field("eos_ids", &self.eos_ids())
            .finish_non_exhaustive()
    }
}
