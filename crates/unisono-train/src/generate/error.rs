//! What can go wrong with generation.

use unisono_data::DataError;
use unisono_tensor::TensorError;

/// Errors of generation. The messages are complete sentences for the user; `whose` names the request.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// A prompt of no tokens.
    #[error(
        "{whose} is empty; a model continues what is there, so at least one token is needed: a line break, or the first word \
         of a sentence, will do"
    )]
    EmptyPrompt {
        /// Which prompt.
        whose: String,
    },
    /// A prompt that the model has no positions for.
    #[error(
        "{whose} has {tokens} tokens, and this model has positions for {positions} (max_sequence_length): shorten it to its last \
         {positions} tokens, or fewer to leave room for new ones"
    )]
    PromptTooLong {
        /// Which prompt.
        whose: String,
        /// Its tokens.
        tokens: usize,
        /// The model's positions.
        positions: usize,
    },
    /// A token id that the vocabulary does not have.
    #[error("{whose} has the token id {id} at place {place} (counted from 0); this vocabulary has the ids 0 to {last}")]
    TokenOutOfRange {
        /// Which prompt.
        whose: String,
        /// The id.
        id: u32,
        /// Its place in the prompt.
        place: usize,
        /// The last valid id.
        last: usize,
    },
    /// Sampling settings that mean nothing.
    #[error("{whose}: {problem}")]
    Sampling {
        /// Which request.
        whose: String,
        /// The setting, the rule, and what would work.
        problem: String,
    },
    /// A prompt that the tokenizer cannot encode.
    #[error("{whose}: {source}")]
    Text {
        /// Which prompt.
        whose: String,
        /// The tokenizer's words.
        source: DataError,
    },
    /// Settings of the whole call that cannot be met.
    #[error("{0}")]
    Setting(String),
    /// Logits that are no numbers.
    #[error(
        "{whose}: after {tokens} tokens, the model's logit of token {id} is {value}; its weights are broken, as after a training \
         run that diverged. Use an earlier checkpoint"
    )]
    NotFinite {
        /// Which request.
        whose: String,
        /// Tokens before.
        tokens: usize,
        /// First token with such a logit.
        id: usize,
        /// The logit.
        value: f32,
    },
    /// From the tensors and devices.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// "the prompt", or which one of several.
pub(crate) fn prompt_of(request: usize, of: usize) -> String {
    if of == 1 {
        "the prompt".into()
    } else {
        format!("prompt {} of {of}", request + 1)
    }
}
