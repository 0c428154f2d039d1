//! What the files beside a `tokenizer.json` say: which tokens begin and end a text, and the chat template.

use crate::DataError;
use crate::files::read_regular;
use crate::json;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Files that belong to the tokenizer and are copied with it.
const COMPANIONS: [&str; 4] = [
    CONFIG,
    "special_tokens_map.json",
    "generation_config.json",
    CHAT_TEMPLATE,
];
const CONFIG: &str = "tokenizer_config.json";
const CHAT_TEMPLATE: &str = "chat_template.jinja";
/// The model's own configuration, which belongs to the model and is only read.
const MODEL_CONFIG: &str = "config.json";
/// Largest size of one of these files: real ones are below a megabyte.
const MOST_BYTES: u64 = 16 << 20;

/// What the files say, before it is looked up in the vocabulary. Tokens are spelt out.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) bos: Option<String>,
    pub(super) eos: Option<String>,
    pub(super) pad: Option<String>,
    /// Ids of `generation_config.json`, else of `config.json`.
    pub(super) bos_id: Option<u32>,
    pub(super) eos_ids: Vec<u32>,
    pub(super) pad_id: Option<u32>,
    pub(super) add_bos: Option<bool>,
    /// Named chat templates; the only or usual one is `default`.
    pub(super) templates: Vec<(String, String)>,
    /// The files that belong to the tokenizer: name and contents.
    pub(super) companions: Vec<(String, Vec<u8>)>,
}

/// The tokenizer's file in a directory.
pub(super) fn in_directory(directory: &Path) -> Result<PathBuf, DataError> {
    let file = directory.join("tokenizer.json");
    if file.exists() {
        return Ok(file);
    }
    let other = ["tokenizer.model", "vocab.json", "spiece.model", "vocab.txt"];
    let found = other.into_iter().find(|name| directory.join(name).exists());
    let problem = match found {
        Some(name) => format!(
            "it has {name} but no tokenizer.json; make one with Python's transformers: \
             AutoTokenizer.from_pretrained({:?}).save_pretrained({:?})",
            directory.display(),
            directory.display()
        ),
        None => "it has no tokenizer.json".to_string(),
    };
    Err(DataError::Tokenizer {
        place: directory.display().to_string(),
        problem,
    })
}

/// Refuses a file before it is read where it is far larger than any of its kind.
pub(super) fn check_size(path: &Path, most: u64) -> Result<(), DataError> {
    // Whatever cannot be looked at is told when it is read.
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.len() > most => Err(DataError::Tokenizer {
            place: path.display().to_string(),
            problem: format!(
                "it has {} bytes, and at most {most} are read; is it another file?",
                metadata.len()
            ),
        }),
        _ => Ok(()),
    }
}

impl Settings {
    /// Reads the files that are there beside a `tokenizer.json`.
    pub(super) fn read(beside: &Path) -> Result<Settings, DataError> {
        let mut companions = Vec::new();
        for name in COMPANIONS {
            if let Some(bytes) = read(&beside.with_file_name(name))? {
                companions.push((name.to_string(), bytes));
            }
        }
        let model_config = read(&beside.with_file_name(MODEL_CONFIG))?;
        Settings::of(companions, model_config.as_deref(), beside)
    }

    /// What these files say; errors name them as if they stood beside a file.
    pub(super) fn of(
        companions: Vec<(String, Vec<u8>)>,
        model_config: Option<&[u8]>,
        beside: &Path,
    ) -> Result<Settings, DataError> {
        let place = |name: &str| beside.with_file_name(name).display().to_string();
        let mut settings = Settings::default();
        for (name, bytes) in &companions {
            let text = str::from_utf8(bytes).map_err(|error| DataError::Tokenizer {
                place: place(name),
                problem: format!("byte {} is no part of a character", error.valid_up_to()),
            })?;
            if name == CHAT_TEMPLATE {
                settings.templates.retain(|(name, _)| name != "default");
                settings.templates.push(("default".to_string(), text.to_string()));
                continue;
            }
            let value = object(text, &place(name))?;
            match name.as_str() {
                "generation_config.json" => settings.ids(&value, &place(name))?,
                _ => settings.tokens(&value, &place(name))?,
            }
        }
        if let Some(bytes) = model_config {
            let mut model = Settings::default();
            model.ids(
                &object(&String::from_utf8_lossy(bytes), &place(MODEL_CONFIG))?,
                &place(MODEL_CONFIG),
            )?;
            settings.bos_id = settings.bos_id.or(model.bos_id);
            settings.pad_id = settings.pad_id.or(model.pad_id);
            if settings.eos_ids.is_empty() {
                settings.eos_ids = model.eos_ids;
            }
        }
        settings.companions = companions;
        Ok(settings)
    }

    /// `tokenizer_config.json`, then `special_tokens_map.json` for what the first leaves out.
    fn tokens(&mut self, value: &Value, place: &str) -> Result<(), DataError> {
        for (key, into) in [
            ("bos_token", &mut self.bos),
            ("eos_token", &mut self.eos),
            ("pad_token", &mut self.pad),
        ] {
            let token = match &value[key] {
                Value::Object(token) => token.get("content").unwrap_or(&Value::Null),
                token => token,
            };
            match token {
                Value::Null => {}
                Value::String(token) => {
                    into.get_or_insert_with(|| token.clone());
                }
                _ => return Err(wrong(place, key, "a token", token)),
            }
        }
        match &value["add_bos_token"] {
            Value::Null => {}
            Value::Bool(add) => self.add_bos = Some(*add),
            other => return Err(wrong(place, "add_bos_token", "true or false", other)),
        }
        match &value["chat_template"] {
            Value::Null => {}
            Value::String(template) => self.templates.push(("default".to_string(), template.clone())),
            Value::Array(list) => {
                for one in list {
                    let (Some(name), Some(template)) = (one["name"].as_str(), one["template"].as_str()) else {
                        return Err(wrong(place, "chat_template", "a list of name and template", one));
                    };
                    self.templates.push((name.to_string(), template.to_string()));
                }
            }
            other => return Err(wrong(place, "chat_template", "a text", other)),
        }
        Ok(())
    }

    /// `generation_config.json` and `config.json`. The latter may hold these keys of its text model in `text_config`, which is not
    /// looked at: such models are of other kinds.
    fn ids(&mut self, value: &Value, place: &str) -> Result<(), DataError> {
        let id = |key: &str, value: &Value| {
            let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
            id.ok_or_else(|| wrong(place, key, "a token id", value))
        };
        for (key, into) in [("bos_token_id", &mut self.bos_id), ("pad_token_id", &mut self.pad_id)] {
            // −1 has stood for "none" in some files.
            if !value[key].is_null() && value[key] != -1 && !value[key].is_array() {
                *into = Some(id(key, &value[key])?);
            }
        }
        self.eos_ids = match &value["eos_token_id"] {
            Value::Null => Vec::new(),
            Value::Array(list) => list
                .iter()
                .map(|one| id("eos_token_id", one))
                .collect::<Result<_, _>>()?,
            one if *one == -1 => Vec::new(),
            one => vec![id("eos_token_id", one)?],
        };
        Ok(())
    }
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, DataError> {
    if !path.exists() {
        return Ok(None);
    }
    check_size(path, MOST_BYTES)?;
    read_regular(path).map(Some)
}

fn object(text: &str, place: &str) -> Result<Value, DataError> {
    let problem = match serde_json::from_str::<Value>(text.trim_start_matches('\u{feff}')) {
        Ok(value) if value.is_object() => return Ok(value),
        Ok(_) => "it must hold a JSON object".to_string(),
        Err(error) => json::plain(error),
    };
    Err(DataError::Tokenizer {
        place: place.to_string(),
        problem,
    })
}

fn wrong(place: &str, key: &str, rule: &str, found: &Value) -> DataError {
    let mut found = found.to_string();
    if let Some((cut, _)) = found.char_indices().nth(80) {
        found.truncate(cut);
        found.push('…');
    }
    DataError::Tokenizer {
        place: place.to_string(),
        problem: format!("{key} must be {rule}, but is {found}"),
    }
}
