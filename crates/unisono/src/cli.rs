//! Options and arguments.

use crate::commands::{
    ExplainArgs, ExportArgs, LessonArgs, LoraCommand, MeshCommand, PrecisionArgs, TopoArgs, bf16_order as order,
};
use crate::{exit, ranks};
use clap::{ArgGroup, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use std::path::PathBuf;
use unisono_kernels::bf16_order::Bf16Order;
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
#[derive(Args, Clone, Copy)]
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
    /// Start a program as several processes (tt-run)
    Run(Box<crate::commands::RunArgs>),
    /// Print the plan of a run, or everything that is wrong with it; nothing is run
    Check(CheckArgs),
    /// Write text with a trained model or one in Hugging Face's files
    Generate(GenerateArgs),
    /// Talk with a model, a message a line
    Chat(ChatArgs),
    /// Measure a model's loss, perplexity and bits per character
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
    /// Tell a collective step by step: who sends what to whom, and what it costs
    Explain(ExplainArgs),
    /// Work with mesh graph descriptors, the files that say what a machine is made of
    Mesh {
        /// What to do with them.
        #[command(subcommand)]
        command: MeshCommand,
    },
    /// Show which device is how near to which, of this machine or a described one
    Topo(TopoArgs),
    /// Print a JSON schema of run.yaml, for editors
    Schema,
    /// Measure the kernels against the multiply-add peak of this machine
    Bench(BenchArgs),
    /// Train a tokenizer, or turn text into ids and back
    Tokenizer {
        /// What to do with it.
        #[command(subcommand)]
        command: TokenizerCommand,
    },
    /// Look at training data
    Data {
        /// What to do with it.
        #[command(subcommand)]
        command: DataCommand,
    },
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
    #[command(flatten)]
    pub lesson: LessonArgs,
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

/// A model and where to run it.
#[derive(Args)]
#[command(group = ArgGroup::new("source").required(true).args(["run", "model"]))]
pub struct ModelArgs {
    /// A run of unisono's: a folder, one of its checkpoints, or `latest`
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present = "model",
        conflicts_with = "model"
    )]
    pub run: Option<PathBuf>,
    /// A model in Hugging Face's files: a folder, or org/name in the local cache
    #[arg(long, value_name = "DIR|ORG/NAME")]
    pub model: Option<String>,
    /// An adapter (LoRA) in PEFT's files, for --model: a folder, or org/name in the local cache
    #[arg(long, value_name = "DIR|ORG/NAME")]
    pub adapter: Option<String>,
    #[command(flatten)]
    pub precision: PrecisionArgs,
    #[command(flatten)]
    pub changes: Changes,
}

/// How tokens are chosen.
#[derive(Args)]
pub struct SamplingArgs {
    /// Tokens to write [default: 300, as far as the model has positions for them]
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub max_new_tokens: Option<usize>,
    /// Divides the logits; 0 takes the likeliest token [default: eval_config, or 1]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub temperature: Option<f64>,
    /// Draw from the K likeliest tokens; 0 and -1 mean all [default: eval_config, or all]
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = top_k)]
    pub top_k: Option<usize>,
    /// Draw from the likeliest tokens up to this probability [default: eval_config, or 1]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub top_p: Option<f64>,
    /// Draw from tokens of at least this share of the likeliest one's probability [default: 0]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub min_p: Option<f64>,
    /// Makes tokens that are there already less likely [default: eval_config, or 1]
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    pub repetition_penalty: Option<f64>,
    /// Seed of the draws [default: the run's, or 0]
    #[arg(long, allow_negative_numbers = true, value_parser = whole::<u64>)]
    pub seed: Option<u64>,
    /// End a text where the model writes this; may be given again
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub stop: Vec<String>,
}

/// Options of `generate`.
#[derive(Args)]
pub struct GenerateArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub prompts: PromptArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Log-probabilities of the tokens, and of the N likeliest at each place; needs --json or --jsonl
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub logprobs: Option<usize>,
    /// Most sequences at once
    #[arg(long, value_name = "N", default_value = "32", allow_negative_numbers = true, value_parser = threads)]
    pub batch: usize,
    /// Write a JSON object a prompt, a line each
    #[arg(long, conflicts_with = "json")]
    pub jsonl: bool,
}

/// What to go on from.
#[derive(Args)]
#[group(required = true, multiple = true)]
pub struct PromptArgs {
    /// A text to go on from; may be given again
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Vec<String>,
    /// A file whose whole text is a prompt; may be given again
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Vec<PathBuf>,
    /// Tokens to go on from: 1,2,3
    #[arg(long, value_name = "IDS", value_delimiter = ',', conflicts_with_all = ["prompt", "prompt_file", "input"], allow_negative_numbers = true, value_parser = whole::<u32>)]
    pub prompt_ids: Option<Vec<u32>>,
    /// Prompts as JSON lines, `-` for standard input: {"prompt": …}, {"prompt_ids": …} or {"messages": …}, and settings of their own
    #[arg(long, value_name = "FILE|-")]
    pub input: Option<PathBuf>,
}

/// Options of `chat`.
#[derive(Args)]
pub struct ChatArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub system: Option<String>,
    /// How messages become a prompt [default: the tokenizer's chat template]
    #[arg(long, value_name = "question-answer")]
    pub template: Option<String>,
}

/// Options of `eval`.
#[derive(Args)]
pub struct EvalArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Text, examples to answer (.jsonl), or tokens for a run on tokens [default: the run's validation part]
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// How examples become texts: a name or a text with {prompt} and {response} [default: the run's, or by the examples' fields]
    #[arg(long, value_name = "TEMPLATE", requires = "data")]
    pub template: Option<String>,
    /// Tokens of a window of text, with --model [default: 1024, or the model's positions]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub context: Option<usize>,
    /// Sequences at once; changes nothing but speed [default: validation_batch_size, or 8]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = threads)]
    pub batch: Option<usize>,
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
    /// Measure only the kernels whose name contains this; `collectives` measures all-reduce and all-gather between devices
    pub filter: Option<String>,
    /// Threads: 1 and all cores are measured if not given
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = threads)]
    pub threads: Option<usize>,
    /// Repetitions of each kernel; the median is shown [default: 5]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..))]
    pub repetitions: Option<u16>,
    /// In which order products of bf16 add up: pairs, or tiles, for CPUs with AMX [default: pairs]
    #[arg(long, value_name = "pairs|tiles", value_parser = order)]
    pub bf16_order: Option<Bf16Order>,
}

/// What `tokenizer` can do.
#[derive(Subcommand)]
pub enum TokenizerCommand {
    /// Train a byte-level BPE and write it as a directory that transformers loads
    Train(TokenizerTrainArgs),
    /// Print the ids of a text, which is standard input if not given
    Encode(TokenizerEncodeArgs),
    /// Print the text of ids, which are read from standard input if not given
    Decode(TokenizerDecodeArgs),
}

/// Options of `tokenizer train`.
#[derive(Args)]
pub struct TokenizerTrainArgs {
    /// Text files, examples as .jsonl, or built-in for the corpus of the program
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    pub data: Vec<PathBuf>,
    /// Ids in all: the special tokens, 256 bytes, and the tokens that are learnt
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub vocab_size: usize,
    /// The directory to write; it must hold no tokenizer yet
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
    /// A special token beside <|endoftext|>, such as <|im_start|>; may be given several times
    #[arg(long, value_name = "TOKEN")]
    pub special: Vec<String>,
    /// Begin every prompt with <|endoftext|> as its BOS
    #[arg(long)]
    pub bos: bool,
}

/// Options of `tokenizer encode`.
#[derive(Args)]
pub struct TokenizerEncodeArgs {
    /// A tokenizer.json, or a directory with one
    #[arg(short, long, value_name = "PATH")]
    pub tokenizer: PathBuf,
    /// Encode as a prompt: with BOS where the tokenizer adds one
    #[arg(long)]
    pub prompt: bool,
    /// The text
    #[arg(allow_hyphen_values = true)]
    pub text: Option<String>,
}

/// Options of `tokenizer decode`.
#[derive(Args)]
pub struct TokenizerDecodeArgs {
    /// A tokenizer.json, or a directory with one
    #[arg(short, long, value_name = "PATH")]
    pub tokenizer: PathBuf,
    /// Leave special tokens out
    #[arg(long)]
    pub skip_special: bool,
    /// The ids: 1,2,3
    #[arg(long, value_name = "IDS", value_delimiter = ',', allow_negative_numbers = true, value_parser = whole::<u32>)]
    pub ids: Option<Vec<u32>>,
}

/// What `data` can do.
#[derive(Subcommand)]
pub enum DataCommand {
    /// Count examples and tokens in a JSONL file and name every problem by its line; exit code 2 if there is one
    Check(DataCheckArgs),
}

/// Options of `data check`.
#[derive(Args)]
pub struct DataCheckArgs {
    /// Examples, one JSON object a line
    pub file: PathBuf,
    /// Count this tokenizer's tokens: a tokenizer.json, or a directory with one [default: bytes]
    #[arg(short, long, value_name = "PATH")]
    pub tokenizer: Option<PathBuf>,
    /// auto, question-answer (or lesson), alpaca, plain, chat, or a text with {prompt} and {response}
    #[arg(long, value_name = "NAME|TEXT", default_value = "auto", allow_hyphen_values = true)]
    pub template: String,
    /// Tokens that an example may have; longer ones are cut at their end [default: any number]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub max_length: Option<usize>,
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

/// Threads of the kernels, or sequences of a batch.
fn threads(text: &str) -> Result<usize, String> {
    match whole(text) {
        Ok(threads @ 1..=MAX_WORKERS) => Ok(threads),
        _ => Err(format!("a whole number from 1 to {MAX_WORKERS} is needed")),
    }
}

/// Parses the command line; help, version and wrong options end the process.
pub fn parse() -> Cli {
    let given = command().try_get_matches();
    let parsed = given.and_then(|given| Cli::from_arg_matches(&given));
    parsed.unwrap_or_else(|error| ranks::refuse(&error, ranks::words_ask_for_json()))
}

/// The command line's definition, complete with the version.
pub fn command() -> clap::Command {
    Cli::command().version(version())
}

/// `0.1.0 (commit 0123456789ab, avx512)`; a `UNISONO_ISA` that means nothing is told there.
pub fn version() -> String {
    let commit = match env!("BUILD_COMMIT") {
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
