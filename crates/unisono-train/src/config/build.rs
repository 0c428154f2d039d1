//! From values to the typed configuration: defaults that depend on other keys, and words that pick a variant.

use super::device::{DeviceConfig, MultihostConfig};
use super::error::Findings;
use super::files::Finder;
use super::lora::lora;
use super::model::model;
use super::schedule;
use super::types::*;
use super::values::Values;
use std::path::{Path, PathBuf};

/// Extensions of files that hold tokens, not text.
const TOKEN_FILES: &[&str] = &["yaml", "yml", "csv", "bin", "idx"];
/// Optimizer steps where neither `max_steps` nor `num_epochs` is given: tt-train's Python default.
const DEFAULT_STEPS: u64 = 1000;

/// Builds the configuration; what cannot be built is reported and replaced by the default.
pub(super) fn run_config(
    values: &Values,
    finder: &Finder<'_>,
    check_files: bool,
    findings: &mut Findings,
) -> RunConfig {
    let files = Files {
        values,
        finder,
        check_files,
    };
    let model_path = files.model("transformer_config.model_path", findings);
    let model = model(values, model_path.as_deref(), check_files, findings);
    let mut device = device(values);
    let multihost = multihost(values, findings);
    if let Some(multihost) = &multihost {
        share_among_workers(&mut device, multihost, values, findings);
    }
    RunConfig {
        training: training(&files, &model, model_path, findings),
        optimizer: optimizer(values, findings),
        scheduler: schedule::scheduler(values, findings),
        lora: lora(&files, &model, findings),
        device,
        eval: eval(values),
        multihost,
        model,
    }
}

fn training(
    files: &Files<'_>,
    model: &ModelConfig,
    model_path: Option<PathBuf>,
    findings: &mut Findings,
) -> TrainingConfig {
    let Files {
        values,
        finder,
        check_files,
    } = *files;
    let batch_size: usize = values.int("training_config.batch_size");
    let epochs_rule = values.given("training_config.num_epochs");
    let steps = values
        .maybe_int("training_config.max_steps")
        .or((!epochs_rule).then_some(DEFAULT_STEPS));
    let data_path = data_path(values, model, finder, check_files, findings);
    let tokenizer_path = files
        .model("training_config.tokenizer_path", findings)
        .or_else(|| model_path.clone());
    let checkpoint_dir = values.word("training_config.checkpoint_dir");
    let checkpoint_dir = finder.expanded(&checkpoint_dir).unwrap_or_else(|message| {
        let key = "training_config.checkpoint_dir";
        findings.problem(values.place(key), format!("{key}: {message}"));
        checkpoint_dir
    });
    TrainingConfig {
        project_name: values.word("training_config.project_name"),
        seed: values.int("training_config.seed"),
        model_save_interval: values.int("training_config.model_save_interval"),
        batch_size,
        validation_batch_size: values
            .maybe_int("training_config.validation_batch_size")
            .unwrap_or((batch_size / 2).max(1)),
        num_epochs: values.int("training_config.num_epochs"),
        max_steps: steps,
        gradient_accumulation_steps: values.int("training_config.gradient_accumulation_steps"),
        tokenizer_type: tokenizer(values, model, &data_path, tokenizer_path.is_some(), findings),
        tokenizer_path,
        model_path,
        validation_data_path: files.data("training_config.validation_data_path", findings),
        template: values.text("training_config.template"),
        validation_samples: values.int("training_config.validation_samples"),
        data_path,
        validation_fraction: values.real("training_config.validation_fraction"),
        dtype: match values.word("training_config.dtype").as_str() {
            "bf16" => Dtype::Bf16,
            _ => Dtype::F32,
        },
        bf16_order: match values.word("training_config.bf16_order").as_str() {
            "tiles" => Bf16Order::Tiles,
            _ => Bf16Order::Pairs,
        },
        eval_every: values.int("training_config.eval_every"),
        eval_batches: values.maybe_int("training_config.eval_batches"),
        checkpoint_dir,
        keep_last: values.int("training_config.keep_last"),
        keep_best: values.flag("training_config.keep_best"),
        use_clip_grad_norm: values.flag("training_config.use_clip_grad_norm"),
        clip_grad_norm_max_norm: values.real("training_config.clip_grad_norm_max_norm"),
        log_every: values.int("training_config.log_every"),
        progress: match values.word("training_config.progress").as_str() {
            "bar" => Progress::Bar,
            "lines" => Progress::Lines,
            "off" => Progress::Off,
            _ => Progress::Auto,
        },
        verify_every: values.int("training_config.verify_every"),
        num_samples: values.int("training_config.num_samples"),
        noise: values.real("training_config.noise"),
    }
}

fn data_path(
    values: &Values,
    model: &ModelConfig,
    finder: &Finder<'_>,
    check_files: bool,
    findings: &mut Findings,
) -> DataPath {
    let key = "training_config.data_path";
    let text = values.word(key);
    let regression = model.language().is_none();
    match text.as_str() {
        "random" => DataPath::Random,
        "built-in" | "builtin" if regression && values.given(key) => {
            let message =
                format!("{key}: the built-in corpus is text, which linear and mlp models do not read; use random");
            findings.problem(values.place(key), message);
            DataPath::Random
        }
        "built-in" | "builtin" if regression => DataPath::Random,
        "built-in" | "builtin" => {
            if !values.given(key) {
                findings.note(
                    None,
                    "training_config.data_path is not given: training on the built-in corpus (tt-train's C++ reads \
                     data/shakespeare.txt)",
                );
            }
            DataPath::BuiltIn
        }
        "" => {
            findings.problem(
                values.place(key),
                format!("{key} is empty: name a file, built-in or random"),
            );
            DataPath::BuiltIn
        }
        _ if regression => {
            let message =
                format!("{key}: reading rows for linear and mlp models from a file is not built yet; use random");
            findings.problem(values.place(key), message);
            DataPath::Random
        }
        path if check_files => match finder.data_file(path) {
            Ok(path) => DataPath::Path(path),
            Err(message) => {
                findings.problem(values.place(key), format!("{key}: {message}"));
                DataPath::Path(path.into())
            }
        },
        path => DataPath::Path(finder.expanded(path).unwrap_or_else(|_| path.to_string()).into()),
    }
}

/// Looks for files that keys name.
pub(super) struct Files<'a> {
    pub(super) values: &'a Values,
    finder: &'a Finder<'a>,
    /// Whether they must exist.
    pub(super) check_files: bool,
}

impl Files<'_> {
    /// The file of a key, found and made absolute.
    fn data(&self, key: &'static str, findings: &mut Findings) -> Option<PathBuf> {
        self.find(key, &|text| self.finder.data_file(text), findings)
    }

    /// The directory (or file) of a model or tokenizer, or one in the local Hugging Face cache.
    pub(super) fn model(&self, key: &'static str, findings: &mut Findings) -> Option<PathBuf> {
        self.find(key, &|text| self.finder.model(text), findings)
    }

    fn find(
        &self,
        key: &'static str,
        find: &dyn Fn(&str) -> Result<PathBuf, String>,
        findings: &mut Findings,
    ) -> Option<PathBuf> {
        let text = self.values.text(key).filter(|text| !text.is_empty())?;
        Some(find(&text).unwrap_or_else(|message| {
            if self.check_files {
                findings.problem(self.values.place(key), format!("{key}: {message}"));
            }
            self.finder.expanded(&text).unwrap_or(text).into()
        }))
    }
}

fn tokenizer(
    values: &Values,
    model: &ModelConfig,
    data: &DataPath,
    has_file: bool,
    findings: &mut Findings,
) -> TokenizerType {
    let key = "training_config.tokenizer_type";
    let holds_tokens = |path: &Path| {
        let extension = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
        extension.is_some_and(|e| TOKEN_FILES.contains(&e.as_str()))
    };
    let tokens = match data {
        _ if model.language().is_none() => return TokenizerType::Pretokenised,
        DataPath::Random => return TokenizerType::Pretokenised,
        DataPath::BuiltIn => false,
        DataPath::Path(path) => holds_tokens(path),
    };
    match values.text(key).as_deref() {
        Some("char") => {
            if tokens {
                let message = format!(
                    "{key}: char takes a text, and data_path is a file of tokens by its name; leave tokenizer_type out to take its \
                     tokens as they are, or rename a file that is text to .txt"
                );
                findings.problem(values.place(key), message);
            }
            TokenizerType::Char
        }
        Some("byte") => TokenizerType::Byte,
        Some("pretokenised") => {
            if *data == DataPath::BuiltIn {
                let message = format!("{key}: the built-in corpus is text, not tokens; choose char, byte or bpe");
                findings.problem(values.place(key), message);
            }
            TokenizerType::Pretokenised
        }
        // As in tt-train: bpe with a file of tokens means that these are the tokens.
        _ if tokens => TokenizerType::Pretokenised,
        Some(_) if !has_file => {
            let message = format!(
                "{key}: bpe needs training_config.tokenizer_path, a tokenizer.json (unisono tokenizer train makes one), or a \
                 model_path with one; or choose char or byte, or name a file of tokens ({}) as data_path",
                TOKEN_FILES
                    .iter()
                    .map(|e| format!(".{e}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            );
            findings.problem(values.place(key), message);
            TokenizerType::Char
        }
        Some(_) => TokenizerType::Bpe,
        None if has_file => TokenizerType::Bpe,
        None => TokenizerType::Char,
    }
}

fn optimizer(values: &Values, findings: &mut Findings) -> OptimizerConfig {
    const TYPE: &str = "training_config.optimizer.type";
    let no_op = values.flag("training_config.use_no_op");
    let word = values.word(TYPE);
    if no_op && values.given(TYPE) && word != "NoOp" {
        let message = format!("training_config.use_no_op is true and {TYPE} is {word}: remove one");
        findings.problem(values.place("training_config.use_no_op"), message);
    }
    let word = if no_op { "NoOp" } else { word.as_str() };
    const ADAM: &[&str] = &[
        "training_config.optimizer.beta1",
        "training_config.optimizer.beta2",
        "training_config.optimizer.epsilon",
    ];
    const SGD: &[&str] = &[
        "training_config.optimizer.momentum",
        "training_config.optimizer.dampening",
        "training_config.optimizer.nesterov",
    ];
    const BOTH: &[&str] = &["training_config.optimizer.lr", "training_config.optimizer.weight_decay"];
    let lr = values.real("training_config.optimizer.lr");
    let weight_decay = values.maybe_real("training_config.optimizer.weight_decay");
    let (rule, unused) = match word {
        "SGD" => (
            OptimizerRule::Sgd {
                lr,
                momentum: values.real("training_config.optimizer.momentum"),
                dampening: values.real("training_config.optimizer.dampening"),
                weight_decay: weight_decay.unwrap_or(0.0),
                nesterov: values.flag("training_config.optimizer.nesterov"),
            },
            vec![ADAM],
        ),
        "NoOp" => (OptimizerRule::NoOp, vec![ADAM, SGD, BOTH]),
        _ => (
            OptimizerRule::AdamW {
                lr,
                beta1: values.real("training_config.optimizer.beta1"),
                beta2: values.real("training_config.optimizer.beta2"),
                epsilon: values.real("training_config.optimizer.epsilon"),
                weight_decay: weight_decay.unwrap_or(0.01),
            },
            vec![SGD],
        ),
    };
    for key in unused.into_iter().flatten() {
        if values.given(key) {
            findings.note(
                values.place(key),
                format!("{key} has no meaning for the optimizer {word}"),
            );
        }
    }
    OptimizerConfig {
        rule,
        decay_norms_and_biases: values.flag("training_config.optimizer.decay_norms_and_biases"),
    }
}

fn device(values: &Values) -> DeviceConfig {
    DeviceConfig {
        mesh_shape: values.sizes("device_config.mesh_shape"),
        enable_ddp: values.flag("device_config.enable_ddp"),
        enable_tp: values.flag("device_config.enable_tp"),
        mesh_graph_descriptor: values.text("device_config.mesh_graph_descriptor"),
        memory: values.maybe_int("device_config.memory"),
        workers: values.maybe_int("device_config.workers"),
    }
}

fn multihost(values: &Values, findings: &mut Findings) -> Option<MultihostConfig> {
    const PIPELINE: &str = "multihost_config.pipeline_parallel_config";
    const WORKERS: &str = "multihost_config.num_workers";
    if !values.flag("multihost_config.enabled") {
        let num_workers: usize = values.int(WORKERS);
        if values.given(WORKERS) && num_workers > 1 {
            let message = format!(
                "{WORKERS} is {num_workers} and does not count, since multihost_config.enabled is {}: with enabled: true the run takes \
                 {num_workers} processes that train",
                match values.given("multihost_config.enabled") {
                    true => "false",
                    false => "not given (and false)",
                }
            );
            findings.note(values.place(WORKERS), message);
        }
        return None;
    }
    if let Some(place) = values.ignored(PIPELINE) {
        let message = format!(
            "pipeline parallel over processes is not built yet: remove {PIPELINE} or set multihost_config.enabled to false"
        );
        findings.problem(Some(place), message);
    }
    let num_workers: usize = values.int(WORKERS);
    if num_workers == 0 && values.sound(&[WORKERS]) {
        let place = values.place(WORKERS).or(values.place("multihost_config.enabled"));
        let message =
            format!("{WORKERS} is 0 with multihost_config.enabled: true; give the number of processes that train");
        findings.problem(place, message);
    }
    Some(MultihostConfig { num_workers })
}

/// Workers without a mesh of several devices are data parallel, a device each.
fn share_among_workers(
    device: &mut DeviceConfig,
    multihost: &MultihostConfig,
    values: &Values,
    findings: &mut Findings,
) {
    let workers = multihost.num_workers;
    let alone = device.mesh_shape.iter().product::<usize>() == 1 && !device.enable_ddp && !device.enable_tp;
    if workers > 1 && alone {
        device.mesh_shape = vec![workers, 1];
        device.enable_ddp = true;
        findings.note(
            values.place("multihost_config.num_workers"),
            format!(
                "the {workers} workers are data parallel, a device each (mesh_shape [{workers}, 1]); batch_size is the total over all of \
                 them"
            ),
        );
    }
}

fn eval(values: &Values) -> EvalConfig {
    let top_k: i128 = values.int("eval_config.top_k");
    EvalConfig {
        temperature: values.real("eval_config.temperature"),
        top_k: usize::try_from(top_k).ok().filter(|k| *k > 0),
        top_p: values.real("eval_config.top_p"),
        repetition_penalty: values.real("eval_config.repetition_penalty"),
    }
}
