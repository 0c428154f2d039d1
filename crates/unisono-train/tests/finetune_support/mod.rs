//! Runs on eight small examples, and what they leave: what the tests of fine-tuning share.

// Each test uses a part of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use unisono_data::tokenizer::{BpeOptions, train_bpe};
use unisono_tensor::{MeshDevice, Options};
use unisono_train::checkpoint::Checkpoints;
use unisono_train::config::{Environment, load_text};
use unisono_train::dataset::Dataset;
use unisono_train::metrics::{Event, Tracker, read_metrics};
use unisono_train::plan::check;
use unisono_train::run::{Run, Summary};

/// A question with an answer of its own.
pub const PAIRS: [(&str, &str); 8] = [
    ("red", "stop"),
    ("green", "go on"),
    ("sun", "warm"),
    ("moon", "cold"),
    ("cat", "purr"),
    ("dog", "bark"),
    ("bee", "hum"),
    ("owl", "hoot"),
];

fn examples(folder: &Path) -> PathBuf {
    let lines: Vec<String> = PAIRS
        .iter()
        .map(|(prompt, response)| serde_json::json!({"prompt": prompt, "response": response}).to_string())
        .collect();
    let path = folder.join("pairs.jsonl");
    std::fs::write(&path, lines.join("\n") + "\n").expect("written");
    path
}

/// A tokenizer whose padding is its end of text.
fn tokenizer(folder: &Path) -> PathBuf {
    let texts: Vec<String> = PAIRS
        .iter()
        .map(|(a, b)| format!("### Question:\n{a}\n\n### Answer:\n{b}"))
        .collect();
    let options = BpeOptions {
        vocab_size: 300,
        bos: false,
        special_tokens: Vec::new(),
    };
    let tokenizer = train_bpe(&texts, &options).expect("it is trained");
    let directory = folder.join("tokenizer");
    std::fs::create_dir(&directory).expect("made");
    std::fs::write(directory.join("tokenizer.json"), tokenizer.json()).expect("written");
    for (name, bytes) in tokenizer.companions() {
        std::fs::write(directory.join(name), bytes).expect("written");
    }
    directory
}

/// Everything that runs share.
pub struct Setting {
    pub folder: tempfile::TempDir,
    pub data: PathBuf,
    pub tokenizer: PathBuf,
}

/// What is heard of a run.
#[derive(Default)]
pub struct Heard {
    pub warnings: Vec<String>,
    pub validations: Vec<u64>,
}

impl Tracker for Heard {
    fn event(&mut self, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Warning(text) => self.warnings.push((*text).to_string()),
            Event::Evaluated { evaluation, .. } => self.validations.push(evaluation.loss.to_bits()),
            Event::Step(_) | Event::Saved { .. } => {}
        }
        Ok(())
    }
}

/// What a run was.
pub struct Ran {
    pub summary: Summary,
    pub heard: Heard,
    pub notes: Vec<String>,
}

impl Setting {
    pub fn new() -> Setting {
        let folder = tempfile::tempdir().expect("a folder");
        Setting {
            data: examples(folder.path()),
            tokenizer: tokenizer(folder.path()),
            folder,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A run from scratch, or from the model in `base`.
    pub fn yaml(&self, base: Option<&Path>) -> String {
        let model = match base {
            Some(base) => format!("{{model_path: {}}}", base.display()),
            None => "{model_type: llama, num_heads: 4, num_groups: 2, embedding_dim: 32, intermediate_dim: 64, num_blocks: 2, \
                     max_sequence_length: 64, theta: 10000.0}"
                .into(),
        };
        format!(
            "training_config:
  seed: 7
  data_path: {}
  validation_data_path: {}
  tokenizer_type: bpe
  tokenizer_path: {}
  batch_size: 4
  gradient_accumulation_steps: 2
  max_steps: 6
  eval_every: 3
  validation_samples: 2
  model_save_interval: 3
  keep_last: 9
  use_clip_grad_norm: true
  optimizer: {{type: AdamW, lr: 1e-2}}
eval_config: {{temperature: 0.0}}
transformer_config: {model}
",
            self.data.display(),
            self.data.display(),
            self.tokenizer.display()
        )
    }

    pub fn open(&self, yaml: &str, sets: &[&str], name: &str, resume: bool) -> (Run, Vec<String>) {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_string()).collect();
        let loaded = load_text("run.yaml", yaml, &sets, &Environment::of_process()).unwrap_or_else(|e| panic!("{e}"));
        let dataset = Dataset::load(&loaded.config);
        let plan = check(&loaded, &dataset).unwrap_or_else(|problems| panic!("{}", problems[0]));
        let options = Options {
            workers: Some(2),
            memory_limit: Some(256 << 20),
            ..Options::default()
        };
        let device = MeshDevice::open(plan.mesh.clone(), options).expect("devices open");
        let directory = self.path(name);
        let newest = resume.then(|| {
            Checkpoints::new(directory.join("checkpoints"))
                .newest()
                .expect("a checkpoint")
        });
        Run::open(
            &device,
            loaded.config,
            plan,
            dataset.expect("data"),
            &directory,
            newest.as_ref(),
        )
        .expect("it opens")
    }

    pub fn train(&self, yaml: &str, sets: &[&str], name: &str) -> Ran {
        self.train_until(yaml, sets, name, false, u64::MAX)
    }

    /// Trains until so many steps are done in this session.
    pub fn train_until(&self, yaml: &str, sets: &[&str], name: &str, resume: bool, steps: u64) -> Ran {
        let (mut run, notes) = self.open(yaml, sets, name, resume);
        let mut heard = Heard::default();
        let asked = std::cell::Cell::new(0);
        let stop = || {
            asked.set(asked.get() + 1);
            asked.get() >= steps
        };
        let summary = run.train(&mut [&mut heard], &stop).expect("it trains");
        Ran { summary, heard, notes }
    }

    /// A model that has seen the examples a little.
    pub fn base(&self) -> PathBuf {
        self.train(&self.yaml(None), &["training_config.validation_samples=0"], "base");
        self.path("base/final_model")
    }

    /// Losses and norms by their bits.
    pub fn metrics(&self, name: &str) -> Vec<(u64, u32, u32)> {
        let records = read_metrics(&self.path(name).join("metrics.jsonl")).expect("metrics");
        records
            .iter()
            .map(|r| (r.step, r.loss.expect("a loss").to_bits(), r.grad_norm.to_bits()))
            .collect()
    }

    pub fn text(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).expect("it is there")
    }

    /// Hashes of the last checkpoint's files and of the final model's.
    pub fn files(&self, name: &str) -> BTreeMap<String, String> {
        let newest = Checkpoints::new(self.path(name).join("checkpoints"))
            .newest()
            .expect("a checkpoint");
        let mut files = BTreeMap::new();
        for directory in [newest.path(), &self.path(name).join("final_model")] {
            for entry in std::fs::read_dir(directory).expect("a folder").flatten() {
                let file = entry.file_name().to_string_lossy().into_owned();
                // The manifest names the mesh.
                if !file.starts_with("manifest") {
                    let bytes = std::fs::read(entry.path()).expect("it is read");
                    files.insert(file, unisono_data::files::hash_bytes(&bytes));
                }
            }
        }
        files
    }
}

/// Question, answer and reference answer.
pub type Answered = (String, String, String);

/// The blocks of a `validation.txt`: step, and pairs of what is asked and said.
pub fn answers(text: &str) -> Vec<(u64, Vec<Answered>)> {
    let mut steps: Vec<(u64, Vec<Answered>)> = Vec::new();
    let mut word = "";
    for line in text.lines() {
        if let Some(step) = line.strip_prefix("step ") {
            steps.push((step.parse().expect("a step"), Vec::new()));
            continue;
        }
        let (_, asked) = steps.last_mut().expect("a step comes first");
        match line.strip_prefix("    ") {
            Some(text) => {
                let (question, answer, reference) = asked.last_mut().expect("a question comes first");
                match word {
                    "answer" => answer.push_str(text),
                    "reference answer" => reference.push_str(text),
                    _ => question.push_str(text),
                }
            }
            None => {
                word = line.trim();
                if word.starts_with("question") {
                    asked.push(Default::default());
                }
            }
        }
    }
    steps
}
