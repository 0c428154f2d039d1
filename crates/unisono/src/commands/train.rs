//! `unisono train`: from a configuration, or a run to go on with, to a trained model in its folder.

use super::sample::{self, Sample};
use super::setup;
use super::system::System;
use super::trained::sampling;
use crate::cli::TrainArgs;
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::launched;
use crate::machine::LoadProbe;
use crate::output::header::Header;
use crate::output::numbers::grouped;
use crate::output::progress::Progress;
use crate::output::summary::Report;
use crate::ranks::Ranks;
use crate::runs::{self, Named};
use crate::signals::Signals;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use unisono_kernels::gemm::peak::fma_peak;
use unisono_runtime::machine::cores;
use unisono_train::checkpoint::{self, Checkpoint, CheckpointError};
use unisono_train::config::{Loaded, RunConfig, differing_keys, keys_and_values};
use unisono_train::dataset::Dataset;
use unisono_train::run::{Ending, Run};

/// Seconds that the multiply-add peak is measured for, at the end of a run.
const PEAK_SECONDS: f64 = 0.2;
/// Characters of the sample that are shown.
const SHOWN: usize = 400;

/// Keys of the configuration by the names that tt-train's multi-device fine-tuning lesson gives them.
#[derive(Args)]
pub struct LessonArgs {
    /// Data to train on: --set training_config.data_path=FILE
    #[arg(long, value_name = "FILE")]
    pub train_data: Option<String>,
    /// Examples to validate on: --set training_config.validation_data_path=FILE
    #[arg(long, value_name = "FILE")]
    pub val_data: Option<String>,
    /// The model to start from: --set transformer_config.model_path=DIR|ORG/NAME
    #[arg(long, value_name = "DIR|ORG/NAME", visible_alias = "weights-path")]
    pub model_name: Option<String>,
}

/// See the module.
///
/// # Errors
/// Wrong input (nothing was run), or what failed while running.
pub fn run(args: &TrainArgs, context: &Context) -> Result<u8, Failure> {
    let out = &context.out;
    let probe = LoadProbe::start();
    let start = Start::of(args, context)?;
    let idle = match (&context.ranks, &start.loaded.config.multihost) {
        (Some(ranks), Some(multihost)) => ranks.limit(multihost.num_workers)?,
        _ => 0,
    };
    let (plan, dataset) = setup::plan(&start.loaded, context)?;
    let trigram = dataset.trigram_loss()?;
    let checkpoint = start.resume.as_ref().map(|named| start.checkpoint(named, context));
    let checkpoint = checkpoint.transpose()?;
    let directory = start.directory(args, context)?;
    let config = start.loaded.config;
    agree(&config, &dataset, checkpoint.as_ref(), context)?;
    // All have looked for a folder by now, and none takes the trial for something of somebody's.
    if takes_folder(context) {
        runs::check_writable(&directory)?;
    }
    let is_text = !matches!(dataset, Dataset::Regression(_));
    if let Some(ranks) = context.ranks.as_ref().filter(|_| idle > 0) {
        out.note(format!(
            "{idle} of {} processes carry nothing: aggregation and optimizer are the workers' own here",
            ranks.size()
        ));
        if ranks.is_idle() {
            // The others choose a folder, which all hear of, and train; this one waits for their end.
            ranks.folder_of_first(&directory)?;
            ranks.come_together("a look at the run's folder")?;
            return Ok(exit::OK);
        }
    }

    let system = System::of(&plan.mesh, plan.machine.as_ref(), context)?;
    let processes = system.processes.size();
    let header = Header {
        config: &config,
        plan: &plan,
        dataset: &dataset,
        isa: context.isa,
        workers: setup::workers(&config) * processes,
        cores: context.ranks.as_ref().map_or_else(cores, Ranks::cores),
        others: probe.others(),
        processes: context.ranks.as_ref().and_then(Ranks::describe),
        mesh_flag: args.changes.mesh.as_deref(),
        trigram,
    };
    out.say(format!("unisono {}", crate::cli::version()));
    header.print(out);
    let plan_json = header.json();

    let device = setup::open(system, &config, context)?;
    let (directory, _lock) = take_folder(&directory, args, &start.resume, context)?;
    let signals = Signals::catch()?;
    launched::tell_run(&directory, &context.environment);
    let (mut run, notes) = Run::open(&device, config, plan, dataset, &directory, checkpoint.as_ref())?;
    notes.iter().for_each(|note| out.warn(note));
    out.say(format!("{} {}", out.bold("run       "), whereabouts(&run, &directory)));
    // Its files are mapped into memory; the run has what it needs of them.
    drop(checkpoint);

    let (config, state) = (&run.config, &run.state);
    let mut progress = Progress::new(out, config, state.step, run.plan.steps, state.tokens);
    if is_text {
        progress = progress.of_text(trigram);
    }
    let result = run.train(&mut [&mut progress], &|| signals.code().is_some());
    progress.finish();
    let summary = result?;

    let is_first = context.ranks.as_ref().is_none_or(|ranks| ranks.rank() == 0);
    let peak = (!out.is_quiet() && is_first).then(|| {
        // Of all processes, as far as they are alike.
        processes as f64 * fma_peak(context.isa, device.runtime().workers(), PEAK_SECONDS)
    });
    let report = Report {
        summary: &summary,
        plan: &run.plan,
        peak,
        trigram,
        is_text,
        resume: launched::resume_line(&directory, &context.environment),
    };
    report.print(out);
    let sample = match summary.ending {
        // What all processes do, all must do: whether some of them print plays no part.
        Ending::Done(_) if !out.is_quiet() || context.ranks.is_some() => sample(&run, context)?,
        _ => None,
    };
    out.json(
        &json!({"run": directory.display().to_string(), "plan": plan_json, "result": report.json(), "sample": sample}),
    );
    Ok(match (summary.ending, signals.code()) {
        (Ending::Stopped, Some(code)) => code,
        _ => exit::OK,
    })
}

/// Compares what the processes of the run are about to do.
fn agree(
    config: &RunConfig,
    dataset: &Dataset,
    checkpoint: Option<&Checkpoint>,
    context: &Context,
) -> Result<(), Failure> {
    let Some(ranks) = &context.ranks else { return Ok(()) };
    let keys = keys_and_values(config).into_iter();
    let mut facts: Vec<(String, String)> = keys.map(|(key, value)| (format!("values of {key}"), value)).collect();
    facts.push(("data (hash)".to_string(), dataset.digest()));
    let before = checkpoint.map_or_else(|| "none".to_string(), |found| found.path().display().to_string());
    facts.push(("checkpoints to go on from".to_string(), before));
    ranks.agree(facts)
}

/// The run's folder, and the lock on it: the first process takes it for all.
fn take_folder(
    directory: &Path,
    args: &TrainArgs,
    resume: &Option<Named>,
    context: &Context,
) -> Result<(PathBuf, Option<runs::Lock>), Failure> {
    if let (false, Some(ranks)) = (takes_folder(context), &context.ranks) {
        let directory = ranks.folder_of_first(directory)?;
        if !directory.is_dir() {
            return Err(Failure::running(format!(
                "{} does not find the run's folder {}, which rank 0 has made: all processes write into one folder, on a file system \
                 that all hosts share",
                ranks.name(ranks.rank()),
                directory.display()
            )));
        }
        runs::check_writable(&directory)?;
        ranks.come_together("a look at the run's folder")?;
        return Ok((directory, None));
    }
    let (directory, lock) = match args.out.is_none() && resume.is_none() && !args.fresh {
        // Nobody asked for this very folder: where another run took it meanwhile, the next one does as well.
        true => runs::take_next(directory)?,
        false => {
            let lock = runs::take(directory)?;
            (directory.to_owned(), lock)
        }
    };
    if args.fresh {
        runs::clear(&directory, &context.environment)?;
    }
    if let Some(ranks) = &context.ranks {
        ranks.folder_of_first(&directory)?;
        // Not one step is made where one of them cannot write.
        ranks.come_together("a look at the run's folder")?;
    }
    Ok((directory, Some(lock)))
}

/// Whether this process chooses and takes the folder of its run.
fn takes_folder(context: &Context) -> bool {
    let ranks = context.ranks.as_ref();
    ranks.is_none_or(|ranks| ranks.rank() == 0 || ranks.are_apart())
}

/// Lets a language model write something, and shows the beginning.
fn sample(run: &Run, context: &Context) -> Result<Option<Sample>, Failure> {
    let out = &context.out;
    let (Dataset::Text(data), Some(model)) = (&run.dataset, run.trainer.model.as_language_model()) else {
        return Ok(None);
    };
    let Some(tokenizer) = &data.tokenizer else {
        return Ok(None);
    };
    let sample = sample::write(model, data, tokenizer, sampling(&run.config))?;
    let shown: String = sample.text.trim_start().chars().take(SHOWN).collect();
    for (i, line) in shown.lines().enumerate() {
        let name = if i == 0 { "sample" } else { "" };
        out.say(format!("{} {line}", out.bold(&format!("{name:10}"))));
    }
    if let Some(share) = sample.share() {
        out.say(format!(
            "{:10} {share:.1} % of the {} words in {} such characters are words of the training text",
            "",
            sample.words,
            grouped(sample.text.chars().count() as u64)
        ));
    }
    Ok(Some(sample))
}

/// The configuration of a run, and the run that it goes on with.
pub(super) struct Start {
    pub loaded: Loaded,
    resume: Option<Named>,
}

impl Start {
    /// From the options.
    pub fn of(args: &TrainArgs, context: &Context) -> Result<Start, Failure> {
        let files = [
            (
                "--train-data",
                "training_config.data_path",
                args.lesson.train_data.as_ref(),
            ),
            (
                "--val-data",
                "training_config.validation_data_path",
                args.lesson.val_data.as_ref(),
            ),
            (
                "--model-name",
                "transformer_config.model_path",
                args.lesson.model_name.as_ref(),
            ),
        ];
        let overrides = setup::overrides_with(&args.changes, args.verify, &files)?;
        let Some(name) = &args.resume else {
            let loaded = setup::load(args.config.as_deref(), &overrides, context)
                .map_err(|errors| setup::refused(&errors, context))?;
            setup::tell_notes(&loaded, context);
            return Ok(Start { loaded, resume: None });
        };
        let named = runs::find(name, &context.environment)?;
        let before = setup::load_saved(&named.directory, &[], context)?;
        let loaded = setup::load_saved(&named.directory, &overrides, context)?;
        for d in differing_keys(&before.config, &loaded.config) {
            context.out.note(format!("from here on {}: {} → {}", d.key, d.a, d.b));
        }
        Ok(Start {
            loaded,
            resume: Some(named),
        })
    }

    /// Loads the checkpoint to go on from, every byte of it verified.
    fn checkpoint(&self, named: &Named, context: &Context) -> Result<Checkpoint, Failure> {
        Ok(match &named.checkpoint {
            Some(path) => checkpoint::load(path)?,
            None => {
                let store = runs::checkpoints(&named.directory, &context.environment);
                store.find()?.ignored.iter().for_each(|note| context.out.warn(note));
                store.newest().map_err(|error| match error {
                    CheckpointError::None { .. } if runs::is_taken(&named.directory) => runs::in_use(&named.directory),
                    CheckpointError::None { directory, .. } => Failure::input(format!(
                        "{directory} holds no complete checkpoint to go on from: begin this run anew with \
                         `unisono train -c {0}/config.yaml --out {0} --fresh`",
                        named.directory.display()
                    )),
                    error => error.into(),
                })?
            }
        })
    }

    /// The folder of the run.
    pub fn directory(&self, args: &TrainArgs, context: &Context) -> Result<PathBuf, Failure> {
        match &self.resume {
            Some(named) => Ok(named.directory.clone()),
            None => runs::choose(
                &self.loaded.config.training.project_name,
                args.out.as_deref(),
                args.fresh,
                &context.environment,
            ),
        }
    }
}

/// Where the run lies, and where it goes on.
fn whereabouts(run: &Run, directory: &Path) -> String {
    let state = &run.state;
    match state.step {
        0 => directory.display().to_string(),
        step => format!(
            "{}, from step {step} on: sample {} of the data comes next",
            directory.display(),
            state.samples
        ),
    }
}
