//! `adapter_config.json`: from PEFT's keys to [`Adapters`].

use super::TENSORS;
use crate::adapters::is_end;
use crate::hub::json::{Keys, read_text, shown};
use crate::hub::{HubError, Result};
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use unisono_nn::adapters::Adapters;
use unisono_nn::models::LlamaConfig;
use unisono_nn::parameter::Table;

/// The name of the file.
pub const CONFIG: &str = "adapter_config.json";

/// What `adapter_config.json` says.
#[derive(Clone, Debug, PartialEq)]
pub struct PeftConfig {
    /// `r`: inner dimension of the adapters.
    pub rank: usize,
    /// `lora_alpha`: the product is multiplied by `alpha / r`.
    pub alpha: f64,
    /// `use_rslora`: or by `alpha / √r`.
    pub rank_stabilised: bool,
    /// `lora_dropout`.
    pub dropout: f64,
    /// `target_modules`: which layers are adapted.
    pub targets: Targets,
    /// `exclude_modules`: which of these are not.
    pub excluded: Option<Targets>,
    /// `layers_to_transform`: only those of these blocks are; none means all.
    pub blocks: Option<Vec<usize>>,
    /// `modules_to_save`: modules of the model that were trained and are stored as well.
    pub modules_to_save: Vec<String>,
    /// `bias`: which biases of the model were trained and are stored as well.
    pub biases: TrainedBiases,
    /// `base_model_name_or_path`.
    pub base: Option<String>,
}

/// Layers by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Those that equal one of these or end in it.
    Names(Vec<String>),
    /// Those that this regular expression matches whole.
    Pattern(String),
}

/// Which biases of the model were trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainedBiases {
    /// None.
    None,
    /// All.
    All,
    /// Those of the adapted layers.
    Adapted,
}

/// Keys that switch on a kind of adapter that is not built, wherever they are neither false nor empty.
const NOT_BUILT: [(&str, &str); 16] = [
    ("use_dora", "DoRA's magnitudes"),
    ("use_qalora", "QALoRA"),
    ("use_bdlora", "block-diagonal LoRA"),
    ("lora_bias", "biases of adapters"),
    ("fan_in_fan_out", "adapters of layers whose weights lie [in, out]"),
    ("rank_pattern", "other ranks for some layers"),
    ("alpha_pattern", "another alpha for some layers"),
    ("layer_replication", "replicated layers"),
    ("trainable_token_indices", "single trained tokens"),
    ("target_parameters", "adapters of parameters that are no layers"),
    ("alora_invocation_tokens", "activated LoRA"),
    ("arrow_config", "routing between adapters"),
    ("kasa_config", "KaSA"),
    ("monteclora_config", "MonteCLoRA"),
    ("velora_config", "VeLoRA"),
    ("loftq_config", "adapters of a quantised model"),
];

/// Initialisations that leave the model's own weights as they are.
const PLAIN_STARTS: [&str; 4] = ["gaussian", "orthogonal", "eva", "true"];

/// Reads the configuration in an adapter's directory.
///
/// # Errors
/// [`HubError::Config`] with everything that is wrong or not built; a directory without the file.
pub(super) fn read(directory: &Path) -> Result<PeftConfig> {
    let path = directory.join(CONFIG);
    if !path.exists() {
        return Err(HubError::unusable(
            directory,
            match directory.join("config.json").exists() {
                true => format!("it has no {CONFIG}: it is a whole model and no adapter"),
                false => format!("it has no {CONFIG}: name the directory of an adapter in PEFT's format"),
            },
        ));
    }
    parse(&path, &read_text(&path)?)
}

/// Reads the text of such a file; `path` is for messages.
fn parse(path: &Path, text: &str) -> Result<PeftConfig> {
    let keys = Keys::parse(path, text)?;
    match keys.text("peft_type") {
        Some("LORA") => {}
        Some(other) => keys.problem(format!("peft_type is {other}, and LORA is what is built")),
        None => keys.problem("peft_type is missing; \"LORA\" is needed"),
    }
    if let Some(task) = keys.text("task_type").filter(|task| *task != "CAUSAL_LM") {
        keys.problem(format!("task_type is {task}, and CAUSAL_LM is what is built"));
    }
    for (key, what) in NOT_BUILT {
        if let Some(value) = keys.get(key).filter(|value| is_on(value)) {
            keys.problem(format!("{key} is {}: {what} are not built", shown(value)).replace("LoRA are", "LoRA is"));
        }
    }
    if let Some(Value::String(word)) = keys.get("init_lora_weights")
        && !PLAIN_STARTS.contains(&word.as_str())
    {
        keys.problem(format!(
            "init_lora_weights is {word}, which also changes the model's own weights: save the adapter again with \
             path_initial_model_for_weight_conversion, which makes it a plain one"
        ));
    }
    let targets = targets(&keys, "target_modules");
    if targets.is_none() {
        keys.problem("target_modules is missing; a list of names or a regular expression is needed");
    }
    let biases = match keys.text("bias") {
        None | Some("none") => TrainedBiases::None,
        Some("all") => TrainedBiases::All,
        Some("lora_only") => TrainedBiases::Adapted,
        Some(other) => {
            keys.problem(format!("bias is {other}; it is none, all or lora_only"));
            TrainedBiases::None
        }
    };
    let config = PeftConfig {
        rank: keys.size("r", None),
        alpha: f64::from(keys.positive("lora_alpha", 8.0)),
        rank_stabilised: keys.flag("use_rslora", false),
        dropout: keys.get("lora_dropout").and_then(Value::as_f64).unwrap_or(0.0),
        targets: targets.unwrap_or(Targets::Names(Vec::new())),
        excluded: self::targets(&keys, "exclude_modules"),
        blocks: blocks(&keys),
        modules_to_save: names(&keys, "modules_to_save"),
        biases,
        base: keys.text("base_model_name_or_path").map(str::to_owned),
    };
    // Checked beside the value, which keeps its digits.
    keys.probability("lora_dropout", 0.0);
    keys.finish(config)
}

/// Whether a value switches something on.
fn is_on(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(object) => !object.is_empty(),
        _ => true,
    }
}

/// A list of names, or a pattern.
fn targets(keys: &Keys, key: &str) -> Option<Targets> {
    match keys.get(key)? {
        Value::String(pattern) => Some(Targets::Pattern(pattern.clone())),
        _ => Some(Targets::Names(names(keys, key))),
    }
}

fn names(keys: &Keys, key: &str) -> Vec<String> {
    let Some(value) = keys.get(key) else { return Vec::new() };
    let list = value.as_array().map(|list| list.iter().map(Value::as_str).collect());
    match list {
        Some(Some::<Vec<&str>>(list)) => list.into_iter().map(str::to_owned).collect(),
        _ => {
            keys.wrong(key, value, "a list of texts");
            Vec::new()
        }
    }
}

fn blocks(keys: &Keys) -> Option<Vec<usize>> {
    let key = "layers_to_transform";
    let value = keys.get(key)?;
    let number = |value: &Value| value.as_u64().map(|number| number as usize);
    let list = match value {
        Value::Array(list) => list.iter().map(number).collect(),
        single => number(single).map(|block| vec![block]),
    };
    if list.is_none() {
        keys.wrong(key, value, "a list of whole numbers");
    }
    list
}

impl Targets {
    /// Which of `layers` are meant.
    fn of<'a>(&self, layers: &'a [String], key: &str) -> std::result::Result<BTreeSet<&'a String>, String> {
        match self {
            Targets::Pattern(word) if word == "all-linear" => Ok(layers.iter().collect()),
            Targets::Pattern(pattern) => {
                let whole = Regex::new(&format!("^(?:{pattern})$"))
                    .map_err(|error| format!("{key} is no regular expression that is understood here: {error}"))?;
                Ok(layers.iter().filter(|layer| whole.is_match(layer)).collect())
            }
            Targets::Names(names) => Ok(layers
                .iter()
                .filter(|layer| names.iter().any(|name| is_end(layer, name)))
                .collect()),
        }
    }
}

impl PeftConfig {
    /// The configuration in an adapter's directory.
    ///
    /// # Errors
    /// [`HubError::Config`] with everything that is wrong or not built; a directory without the file.
    pub fn read(directory: &Path) -> Result<PeftConfig> {
        read(directory)
    }

    /// The layers of a Llama with so many blocks that are adapted.
    ///
    /// # Errors
    /// Clauses: patterns that cannot be understood, or none at all.
    pub fn layers(&self, num_blocks: usize) -> std::result::Result<BTreeSet<String>, String> {
        let block_layers = |block| LlamaConfig::LINEAR_LAYERS.map(|layer| LlamaConfig::layer_name(block, layer));
        let every: Vec<String> = (0..num_blocks).flat_map(block_layers).collect();
        let there: Vec<String> = (0..num_blocks)
            .filter(|block| self.blocks.as_ref().is_none_or(|blocks| blocks.contains(block)))
            .flat_map(block_layers)
            .collect();
        let mut chosen = self.targets.of(&there, "target_modules")?;
        if let Some(excluded) = &self.excluded {
            let excluded = excluded.of(&there, "exclude_modules")?;
            chosen.retain(|layer| !excluded.contains(layer));
        }
        if chosen.is_empty() {
            return Err(format!(
                "target_modules means none of the model's linear layers, for example \"{}\"",
                every.first().map_or("", String::as_str)
            ));
        }
        Ok(chosen.into_iter().cloned().collect())
    }

    /// The adapters beside the layers of a model with this table.
    pub(super) fn adapters(&self, llama: &LlamaConfig, table: &Table, directory: &Path) -> Result<Adapters> {
        let refused = |problem: String| HubError::Config {
            path: directory.join(CONFIG).display().to_string(),
            problems: vec![problem],
        };
        let layers = self.layers(llama.num_blocks).map_err(refused)?;
        let mut also = BTreeSet::new();
        for module in &self.modules_to_save {
            let of_module = |name: &str| {
                let owner = name.rsplit_once('.').map_or(name, |(owner, _)| owner);
                is_end(owner, module)
            };
            let found: Vec<String> = table
                .all()
                .filter(|p| of_module(&p.name))
                .map(|p| p.name.clone())
                .collect();
            if found.is_empty() {
                let hint = match llama.weight_tying && module == "lm_head" {
                    true => ": the model's head is its embedding table, embed_tokens",
                    false => "",
                };
                return Err(refused(format!(
                    "modules_to_save names {module}, which the model does not have{hint}"
                )));
            }
            also.extend(found);
        }
        let is_adapted = |bias: &str| bias.strip_suffix(".bias").is_some_and(|layer| layers.contains(layer));
        let biases = table.all().map(|p| &p.name).filter(|name| name.ends_with(".bias"));
        match self.biases {
            TrainedBiases::None => {}
            TrainedBiases::All => also.extend(biases.cloned()),
            TrainedBiases::Adapted => also.extend(biases.filter(|name| is_adapted(name)).cloned()),
        }
        if let Some(both) = layers.iter().find(|layer| also.contains(&format!("{layer}.weight"))) {
            return Err(refused(format!(
                "{both} is in modules_to_save and in target_modules: a layer is trained or adapted, and {TENSORS} can hold one of \
                 the two"
            )));
        }
        Ok(Adapters {
            rank: self.rank,
            alpha: self.alpha as f32,
            rank_stabilised: self.rank_stabilised,
            dropout: self.dropout as f32,
            layers,
            also,
        })
    }
}
