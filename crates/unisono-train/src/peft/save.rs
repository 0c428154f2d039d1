//! An adapter as a directory that `peft.PeftModel.from_pretrained` loads.

use super::{CONFIG, PREFIX, TENSORS};
use crate::adapters::is_end;
use crate::hub::{HubError, Result, TOKENIZER_FILES, refuse_to_replace, replace_directory};
use crate::shards::real_values;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use unisono_data::{TensorSpec, atomic_write, write_safetensors};
use unisono_nn::Parameter;
use unisono_nn::adapters::Adapters;
use unisono_nn::parameter::Table;

/// A key of `adapter_config.json` by which a later save knows it for its own. PEFT passes over keys it does not know.
const MARK: &str = "unisono_version";

/// Writes the adapters of a model, and the parameters that were trained beside them, to `directory`: all of it or nothing.
/// `base` is the name or path of the model that they belong to; `files` are put beside, by name. A directory that an earlier
/// save made is replaced. Equal adapters give equal files.
///
/// # Errors
/// Parameters trained beside the adapters that PEFT's format cannot name, a directory with other files, whatever the disk says.
pub fn save(
    directory: &Path,
    adapters: &Adapters,
    table: &Table,
    base: Option<&str>,
    files: &[(String, Vec<u8>)],
) -> Result<Vec<PathBuf>> {
    let beside = Beside::of(adapters, table).map_err(|problem| HubError::unusable(directory, problem))?;
    let config = config_json(adapters, table, &beside, base);
    let parameters: Vec<&Parameter> = table.all().filter(|p| adapters.trains(p)).collect();
    let tensors: Vec<TensorSpec> = parameters
        .iter()
        .map(|p| TensorSpec {
            name: stored_name(&p.name, adapters),
            shape: p.spec.shape(),
        })
        .collect();
    refuse_foreign(directory)?;
    replace_directory(directory, &|temporary| {
        let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
        write_safetensors(&temporary.join(TENSORS), &tensors, &metadata, |i| {
            Ok::<_, HubError>(Cow::Owned(real_values(&parameters[i].tensor, &parameters[i].spec)?))
        })?;
        let mut written = vec![TENSORS.to_string()];
        let config = (CONFIG, config.as_bytes());
        for (name, bytes) in files
            .iter()
            .map(|(name, bytes)| (name.as_str(), &bytes[..]))
            .chain([config])
        {
            atomic_write(&temporary.join(name), |out| out.write_all(bytes))?;
            written.push(name.to_string());
        }
        Ok(written)
    })
}

/// The name of a parameter in the file.
fn stored_name(name: &str, adapters: &Adapters) -> String {
    match name.strip_suffix(".bias") {
        Some(layer) if adapters.layers.contains(layer) => format!("{PREFIX}{layer}.base_layer.bias"),
        _ => format!("{PREFIX}{name}"),
    }
}

/// Refuses a directory with anything that no save has written.
fn refuse_foreign(directory: &Path) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Ok(());
    };
    let mut any = false;
    for entry in entries.flatten() {
        any = true;
        let name = entry.file_name().to_string_lossy().into_owned();
        if ![TENSORS, CONFIG].contains(&name.as_str()) && !TOKENIZER_FILES.contains(&name.as_str()) {
            return Err(HubError::in_the_way(&directory.join(name)));
        }
    }
    let config = directory.join(CONFIG);
    if any && !config.exists() {
        return Err(HubError::in_the_way(directory));
    }
    refuse_to_replace(&config, |text| {
        serde_json::from_str::<Value>(text).is_ok_and(|value| value.get(MARK).is_some())
    })
}

/// How PEFT names what was trained beside the adapters.
struct Beside {
    /// Modules whose parameters were all trained.
    modules: BTreeSet<String>,
    /// `none`, `all` or `lora_only`.
    bias: &'static str,
}

impl Beside {
    fn of(adapters: &Adapters, table: &Table) -> std::result::Result<Beside, String> {
        let owner = |name: &str| name.rsplit_once('.').map_or(name, |(owner, _)| owner).to_string();
        let also = &adapters.also;
        let modules: BTreeSet<String> = also
            .iter()
            .filter(|name| name.ends_with(".weight"))
            .map(|n| owner(n))
            .collect();
        for module in &modules {
            if adapters.layers.contains(module) {
                return Err(format!(
                    "the weight of {module} was trained beside an adapter of the same layer, which PEFT's format cannot say: take it \
                     out of lora_config.trainable_modules or of target_modules"
                ));
            }
            let bias = format!("{module}.bias");
            if table.all().any(|p| p.name == bias) && !also.contains(&bias) {
                return Err(format!(
                    "the weight of {module} was trained and its bias was not, which PEFT's format cannot say: add {bias} to \
                     lora_config.trainable_modules"
                ));
            }
        }
        let biases: BTreeSet<&String> = also.iter().filter(|name| name.ends_with(".bias")).collect();
        let alone: BTreeSet<&String> = biases
            .iter()
            .copied()
            .filter(|bias| !modules.contains(&owner(bias)))
            .collect();
        let all: BTreeSet<&String> = table
            .all()
            .map(|p| &p.name)
            .filter(|name| name.ends_with(".bias"))
            .collect();
        let adapted: BTreeSet<&String> = all
            .iter()
            .copied()
            .filter(|bias| adapters.layers.contains(&owner(bias)))
            .collect();
        let bias = match alone {
            alone if alone.is_empty() => "none",
            _ if biases == all => "all",
            alone if alone == adapted => "lora_only",
            alone => {
                return Err(format!(
                    "{} biases were trained, which are neither all nor those of the adapted layers: PEFT's format cannot say that",
                    alone.len()
                ));
            }
        };
        Ok(Beside { modules, bias })
    }
}

/// The text of `adapter_config.json`.
fn config_json(adapters: &Adapters, table: &Table, beside: &Beside, base: Option<&str>) -> String {
    let modules = match beside.modules.is_empty() {
        true => Value::Null,
        false => json!(beside.modules),
    };
    let value = json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "inference_mode": true,
        "r": adapters.rank,
        "lora_alpha": number(adapters.alpha),
        "lora_dropout": number(adapters.dropout),
        "use_rslora": adapters.rank_stabilised,
        "target_modules": target_modules(&adapters.layers, table),
        "modules_to_save": modules,
        "bias": beside.bias,
        "fan_in_fan_out": false,
        "init_lora_weights": true,
        MARK: env!("CARGO_PKG_VERSION"),
    });
    format!("{value:#}\n")
}

/// The shortest decimal number that is this f32, without a point where it is whole.
fn number(x: f32) -> Value {
    let text = x.to_string();
    serde_json::from_str(&text).unwrap_or_else(|_| json!(x))
}

/// Names that mean these layers and no others: their ends within a block, where every block has the same.
fn target_modules(layers: &BTreeSet<String>, table: &Table) -> BTreeSet<String> {
    let ends: BTreeSet<String> = layers.iter().map(|layer| in_block(layer).to_string()).collect();
    let every = table.all().filter_map(|p| p.name.strip_suffix(".weight"));
    let meant: BTreeSet<String> = every
        .filter(|layer| ends.iter().any(|end| is_end(layer, end)))
        .map(str::to_owned)
        .collect();
    match meant == *layers {
        true => ends,
        false => layers.clone(),
    }
}

/// `self_attn.q_proj` of `model.layers.3.self_attn.q_proj`.
fn in_block(layer: &str) -> &str {
    layer.splitn(4, '.').nth(3).unwrap_or(layer)
}
