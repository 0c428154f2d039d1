//! Models in the files of Hugging Face's `transformers`: a directory with `config.json` and safetensors, read and written.
//!
//! ```text
//! name ─ resolve ─▶ directory ─┬─ config.json ─ read_config ─▶ ModelSpec ─ build ─▶ table of parameters
//!                              └─ *.safetensors ─ WeightSet ──────── load ──────────────┘
//! ```
//!
//! Parameter names and layouts of the Llama family are those of the files, so loading is copying: out of the mapped files into
//! device memory, each device its part. GPT-2's names get a prefix and its fused projection another order of columns
//! (`layout.rs`).

pub mod config;
mod error;
pub mod inspect;
pub(crate) mod json;
mod layout;
mod load;
mod resolve;
mod save;
mod weights;

pub use config::{Described, Ids, read_config};
pub use error::HubError;
pub use load::{Loaded, check, load};
pub use resolve::{expand, resolve};
pub use save::{SaveOptions, TOKENIZER_FILES, save};
pub use weights::WeightSet;

pub(crate) use layout::Permutation;
pub(crate) use load::{copy_stored, on_null_device, stored_dtype};
pub(crate) use resolve::next_variable;
pub(crate) use save::{file_name, refuse_to_replace, replace_directory};

/// Result of everything here that can fail.
pub type Result<T> = std::result::Result<T, HubError>;
