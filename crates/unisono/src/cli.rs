//! Options and arguments.

use crate::commands::LoraCommand;
use crate::exit;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::path::PathBuf;
use unisono_kernels::isa::Isa;

/// Most threads that can be asked for, as `device_config.workers`.
const MAX_WORKERS: usize = 1024;

/// Train and run transformers on a mesh of devices, with the same bits on every mesh.
#[derive(Parser)]
#[command(name = "unisono", about, after_help = exit::HELP, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Options that all commands share.
    #[command(flatten)]
    pub common: Common,
}

/// Options that all commands share.
#[derive(Args)]
pub struct Common {
    /// Say nothing but results, warnings and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Write the result as JSON on standard output
    #[arg(long, global = true)]
    pub json: bool,
    /// Say more; twice for everything (as UNISONO_LOG=debug and trace)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Train a model; without -c the small character GPT on the built-in corpus
    Train(TrainArgs),
    /// Print the plan of a run, or everything that is wrong with it; nothing is run
    Check(CheckArgs),
    /// Write text with a trained model
    Generate(GenerateArgs),
    /// Measure a trained model's loss, perplexity and bits per character
    Eval(EvalArgs),
    /// Compare two runs bit by bit; exit code 3 where they differ
    Diff(DiffArgs),
    /// Write a trained model's weights as safetensors, for PyTorch and Hugging Face
    Export(ExportArgs),
    /// Show what a model's files hold and what would become of them; no weights are read
    Inspect(InspectArgs),
    /// Work with adapters (LoRA)
    Lora {
        /// What to do with them.
        #[command(subcommand)]
        command: LoraCommand,
    },
    /// Write a commented run.yaml to begin with
    Init(InitArgs),
    /// Show what this machine has: cores, caches, instruction sets, memory
    Devices,
    /// Print a JSON schema of run.yaml, for editors
    Schema,
    /// Measure the kernels against the multiply-add peak of this machine
    Bench(BenchArgs),
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
}

/// Options of `train`.
#[derive(Args)]
pub struct TrainArgs {
    /// The run's configuration [default: the preset char-gpt]
    #[arg(short, long, value_name = "YAML", conflicts_with = "resume")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub changes: Changes,
    /// Data to train on: --set training_config.data_path=FILE
    #[arg(long, value_name = "FILE")]
    pub train_data: Option<String>,
    /// Examples to validate on: --set training_config.validation_data_path=FILE
    #[arg(long, value_name = "FILE")]
    pub val_data: Option<String>,
    /// The model to start from: --set transformer_config.model_path=DIR|ORG/NAME
    #[arg(long, value_name = "DIR|ORG/NAME", visible_alias = "weights-path")]
    pub model_name: Option<String>,
    /// Folder of the run [default: runs/PROJECT_NAME, or the next free runs/PROJECT_NAME-N]
    #[arg(
        short,
        long,
        value_name = "DIR",
        conflicts_with = "resume",
        visible_alias = "output-dir"
    )]
    pub out: Option<PathBuf>,
    /// Go on with a run (a folder, one of its checkpoints, or `latest`), on the same or another mesh
    #[arg(long, value_name = "DIR|latest", conflicts_with = "fresh")]
    pub resume: Option<PathBuf>,
    /// Delete the run in the folder first, and begin at step 0
    #[arg(long)]
    pub fresh: bool,
    /// Compare the copies of replicated tensors each N steps
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u64>)]
    pub verify: Option<u64>,
}

/// Changes to a configuration from the command line.
#[derive(Args, Default)]
pub struct Changes {
    /// Change a key of the configuration: --set training_config.max_steps=200
    #[arg(short, long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// The mesh, in place of device_config: --mesh dp=2,tp=2
    #[arg(short, long, value_name = "AXES")]
    pub mesh: Option<String>,
    /// Worker threads [default: one a core]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub workers: Option<usize>,
}

/// Options of `check`.
#[derive(Args)]
pub struct CheckArgs {
    /// The run's configuration [default: the preset char-gpt]
    #[arg(short, long, value_name = "YAML")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub changes: Changes,
    /// Also list the keys that differ from another run's (a folder or a YAML file)
    #[arg(long, value_name = "RUN|YAML")]
    pub against: Option<PathBuf>,
}

/// A trained model and where to run it.
#[derive(Args)]
pub struct RunArgs {
    /// The run: a folder, one of its checkpoints, or `latest`
    #[arg(long, value_name = "DIR")]
    pub run: PathBuf,
    #[command(flatten)]
    pub changes: Changes,
}

/// Options of `generate`.
#[derive(Args)]
pub struct GenerateArgs {
    #[command(flatten)]
    pub run: RunArgs,
    /// The text to go on from
    #[arg(
        long,
        conflicts_with = "prompt_ids",
        required_unless_present = "prompt_ids",
        allow_hyphen_values = true
    )]
    pub prompt: Option<String>,
    /// The tokens to go on from: 1,2,3
    #[arg(long, value_name = "IDS", value_delimiter = ',', allow_negative_numbers = true, value_parser = whole::<u32>)]
    pub prompt_ids: Option<Vec<u32>>,
    /// Tokens to write [default: 300, as far as the model has positions for them]
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub max_new_tokens: Option<usize>,
    /// Divides the logits; 0 takes the likeliest token [default: eval_config]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub temperature: Option<f64>,
    /// Draw from the K likeliest tokens; 0 and -1 mean all [default: eval_config]
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = top_k)]
    pub top_k: Option<usize>,
    /// Draw from the likeliest tokens up to this probability [default: eval_config]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub top_p: Option<f64>,
    /// Makes tokens that are there already less likely [default: eval_config]
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    pub repetition_penalty: Option<f64>,
    /// Seed of the draws [default: the run's]
    #[arg(long, allow_negative_numbers = true, value_parser = whole::<u64>)]
    pub seed: Option<u64>,
}

/// Options of `eval`.
#[derive(Args)]
pub struct EvalArgs {
    #[command(flatten)]
    pub run: RunArgs,
    /// Text (or tokens, for a run on tokens) to measure on [default: the run's validation part]
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
}

/// Options of `diff`.
#[derive(Args)]
pub struct DiffArgs {
    /// A run's folder
    pub a: PathBuf,
    /// Another run's folder
    pub b: PathBuf,
    /// A file with a prompt a line: both runs' answers are shown
    #[arg(long, value_name = "FILE")]
    pub prompts: Option<PathBuf>,
}

/// Options of `export`.
#[derive(Args)]
pub struct ExportArgs {
    /// The run: a folder, one of its checkpoints, or `latest`
    #[arg(long, value_name = "DIR")]
    pub run: PathBuf,
    /// The file to write; for --format hf the directory
    #[arg(short, long, value_name = "FILE.safetensors|DIR")]
    pub out: PathBuf,
    /// A single file of weights, or a directory that transformers loads
    #[arg(long, value_enum, default_value = "file")]
    pub format: ExportFormat,
    /// What the weights become; only for --format hf
    #[arg(long, value_enum, default_value = "f32")]
    pub dtype: ExportDtype,
    /// A file of weights is at most so large; only for --format hf
    #[arg(long, value_name = "BYTES", default_value_t = 5_000_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub shard_bytes: u64,
}

/// What `export` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// One safetensors file, with config.json and tokenizer.json beside it
    File,
    /// A directory that transformers loads as it is
    Hf,
}

/// What exported weights become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportDtype {
    /// As they are
    F32,
    /// Rounded to nearest even
    Bf16,
}

/// Options of `inspect`.
#[derive(Args)]
pub struct InspectArgs {
    /// A model's directory, org/name of a model in Hugging Face's cache, a run's folder or a safetensors file
    #[arg(value_name = "PATH|ORG/NAME")]
    pub path: String,
}

/// Options of `init`.
#[derive(Args)]
pub struct InitArgs {
    /// char-gpt, nanogpt, gpt2, simple-gpt or linear
    #[arg(long, default_value = "char-gpt")]
    pub preset: String,
    /// The file to write; it must not exist yet
    #[arg(default_value = "run.yaml")]
    pub file: PathBuf,
}

/// Options of `bench`.
#[derive(Args)]
pub struct BenchArgs {
    /// Measure only the kernels whose name contains this
    pub filter: Option<String>,
    /// Threads: 1 and all cores are measured if not given
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = threads)]
    pub threads: Option<usize>,
    /// Repetitions; the median is shown
    #[arg(long, value_name = "N", default_value_t = 5, allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..))]
    pub repetitions: u16,
}

/// A whole number that is not negative.
fn whole<N: TryFrom<i128>>(text: &str) -> Result<N, String> {
    let number = text.parse::<i128>().ok().and_then(|number| N::try_from(number).ok());
    let most = (1u128 << (8 * size_of::<N>())).wrapping_sub(1);
    number.ok_or_else(|| format!("a whole number from 0 to {most} is needed"))
}

/// As `eval_config.top_k`: 0 and -1 are all tokens.
fn top_k(text: &str) -> Result<usize, String> {
    match text {
        "-1" => Ok(0),
        _ => whole(text).map_err(|rule| format!("{rule}, or -1 for all tokens")),
    }
}

/// Threads of the kernels.
fn threads(text: &str) -> Result<usize, String> {
    match whole(text) {
        Ok(threads @ 1..=MAX_WORKERS) => Ok(threads),
        _ => Err(format!("a whole number from 1 to {MAX_WORKERS} is needed")),
    }
}

/// Parses the command line; help, version and wrong options end the process.
pub fn parse() -> Cli {
    let matches = command().get_matches();
    match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    }
}

/// The command line's definition, complete with the version.
pub fn command() -> clap::Command {
    Cli::command().version(version())
}

/// `0.1.0 (commit 0123456789ab, avx512)`; a `UNISONO_ISA` that means nothing is told there.
pub fn version() -> String {
    let commit = match env!("UNISONO_COMMIT") {
        "" => String::new(),
        commit => format!("commit {commit}, "),
    };
    let isa = match std::env::var("UNISONO_ISA") {
        Ok(name) if !name.is_empty() => {
            Isa::named(&name).map_or_else(|problem| problem.to_string(), |isa| isa.name().into())
        }
        _ => Isa::detect().name().into(),
    };
    format!("{} ({commit}{isa})", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_options_fit_together() {
        super::command().debug_assert();
    }
}
