//! A run: its folder and its position. The loop over optimizer steps is in `run/session.rs`.

mod answers;
mod bitmap;
mod clock;
mod curves;
mod outputs;
mod session;
mod summary;
mod told;
mod validations;

pub use summary::{Ending, Summary};

use crate::checkpoint::{Checkpoint, Checkpoints, State};
use crate::config::{RunConfig, to_yaml};
use crate::dataset::Dataset;
use crate::error::{Result, TrainError};
use crate::evaluate::{Evaluation, evaluate};
use crate::metrics::{MetricsFile, Tracker};
use crate::plan::Plan;
use crate::start::{load_adapter, load_base};
use crate::step::Trainer;
use answers::Answers;
use session::Session;
use std::io::Write;
use std::path::{Path, PathBuf};
use unisono_data::files::{atomic_write, remove_temporaries};
use unisono_tensor::{Dtype, MeshDevice};
use validations::Validations;

/// A run that is ready to train.
pub struct Run {
    /// Its configuration.
    pub config: RunConfig,
    /// Its plan.
    pub plan: Plan,
    /// Its data.
    pub dataset: Dataset,
    /// Model, optimizer, devices.
    pub trainer: Trainer,
    /// Its folder.
    pub directory: PathBuf,
    /// How far it has come.
    pub state: State,
    checkpoints: Checkpoints,
    metrics: MetricsFile,
    validations: Validations,
    answers: Answers,
    data_digest: String,
    warned: bool,
    /// Whether this process writes the run's files; of several the first does.
    writes: bool,
}

impl Run {
    /// Opens devices, model and folder. With a checkpoint the run goes on from there, on whatever mesh the plan has;
    /// sentences that the user must see are returned beside it.
    ///
    /// # Errors
    /// A folder that cannot be written, a checkpoint of another model or other data, too little memory, devices that add products of
    /// bf16 in another order than the configuration says.
    pub fn open(
        device: &MeshDevice,
        config: RunConfig,
        plan: Plan,
        dataset: Dataset,
        directory: &Path,
        resume: Option<&Checkpoint>,
    ) -> Result<(Run, Vec<String>)> {
        let (asked, order) = (config.training.bf16_order, device.runtime().bf16_order());
        if config.training.dtype == Dtype::Bf16 && asked != order {
            return Err(TrainError::Refused(format!(
                "training_config.bf16_order is {}, and the devices were opened for {}: open them with Options::bf16_order as the \
                 configuration has it",
                asked.name(),
                order.name()
            )));
        }
        let trainer = Trainer::new(device, &config, &plan.spec, plan.batch, plan.steps)?;
        // A checkpoint holds what was trained: all of the model, or its adapters.
        if resume.is_none() || config.lora.is_some() {
            load_base(&trainer.model, &config, &plan.spec)?;
        }
        if resume.is_none() {
            load_adapter(&trainer.model, &config, &plan.spec)?;
        }
        let data_digest = dataset.digest();
        let mut state = State {
            seed: config.training.seed,
            ..State::default()
        };
        let mut notes = dataset.notes().to_vec();
        if let Some(checkpoint) = resume {
            let manifest = checkpoint.manifest();
            if manifest.data_digest != data_digest {
                return Err(TrainError::Refused(format!(
                    "{} was trained on other data (hash {}… there, {}… here): a run can only go on with its own data; start a \
                     new run with --fresh or another --out",
                    checkpoint.path().display(),
                    short(&manifest.data_digest),
                    short(&data_digest)
                )));
            }
            let model = trainer.model.as_model();
            let restored = checkpoint.restore(model.parameters(), trainer.optimizer.as_ref())?;
            notes.extend(restored.warnings);
            state = manifest.state.clone();
            if state.step >= plan.steps {
                notes.push(format!(
                    "the checkpoint is at step {} and the run has {} steps: nothing is left to do; raise \
                     training_config.max_steps to go on",
                    state.step, plan.steps
                ));
            }
        }
        let checkpoints = Checkpoints::new(directory.join(&config.training.checkpoint_dir));
        let writes = trainer.device.runtime().processes().rank() == 0;
        if writes {
            let removed = prepare_folder(directory, &checkpoints, &state, resume.is_none())?;
            if !removed.is_empty() {
                let names: Vec<String> = removed.iter().map(|path| path.display().to_string()).collect();
                notes.push(format!(
                    "the run goes on from step {}: the checkpoints of later steps were removed ({})",
                    state.step,
                    names.join(", ")
                ));
            }
            write_beginnings(directory, &config, &dataset)?;
        }
        let metrics = directory.join("metrics.jsonl");
        let (metrics, note) = match writes {
            true => MetricsFile::open(&metrics, state.step)?,
            false => (MetricsFile::of_another(&metrics), None),
        };
        notes.extend(note);
        let (validations, note) = Validations::open(directory, state.step, writes);
        notes.extend(note);
        let (answers, note) = Answers::open(directory, state.step, writes);
        notes.extend(note);
        let directory = directory.to_owned();
        let run = Run {
            config,
            plan,
            dataset,
            trainer,
            directory,
            state,
            checkpoints,
            metrics,
            validations,
            answers,
            data_digest,
            warned: false,
            writes,
        };
        Ok((run, notes))
    }

    /// Trains to the end of the plan, or until `stop` says so. `trackers` hear of everything; one that fails is told of
    /// once and does not end the run.
    ///
    /// Checkpoints are written behind the run, one at a time; trackers hear of each when it is on the disk. The run's end, a
    /// stop and an error wait for the one that is being written.
    ///
    /// # Errors
    /// A loss that is no number, data that cannot be read, a checkpoint that cannot be written, a failed command.
    pub fn train(&mut self, trackers: &mut [&mut dyn Tracker], stop: &dyn Fn() -> bool) -> Result<Summary> {
        Session::new(self, trackers).train(stop)
    }

    /// Adds sample answers to `validation.txt`, where the run learns from examples.
    fn answer(&mut self, step: u64) -> std::result::Result<(), String> {
        let Dataset::Examples(data) = &self.dataset else {
            return Ok(());
        };
        let trainer = &self.trainer;
        self.answers
            .add(&trainer.device, &trainer.model, &self.config, data, step)
    }

    /// The loss over the validation part, `None` where there is none.
    ///
    /// # Errors
    /// Data that cannot be read, or a failed command.
    pub fn evaluate(&self) -> Result<Option<Evaluation>> {
        let sequences = self.plan.validation_batch;
        match self.dataset.evaluated(&self.config.training, sequences)? {
            None => Ok(None),
            Some(validation) => {
                let model = self.trainer.model.as_model();
                evaluate(&self.trainer.device, model, &validation, sequences).map(Some)
            }
        }
    }
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

/// Makes a run's folder, and takes away what a process that was killed left in it and, on going on, the checkpoints of later steps:
/// those are returned.
fn prepare_folder(directory: &Path, checkpoints: &Checkpoints, state: &State, is_new: bool) -> Result<Vec<PathBuf>> {
    create_folder(directory)?;
    if is_new && let Some(found) = checkpoints.find()?.complete.first() {
        return Err(TrainError::Refused(format!(
            "{} belongs to a run already, whose checkpoints a new run would replace: go on with it (--resume), start anew \
             (--fresh), or name another training_config.checkpoint_dir or --out",
            found.path.display()
        )));
    }
    checkpoints.clean()?;
    // A process that was killed may have left half a file beside the checkpoints too.
    remove_temporaries(directory)?;
    Ok(checkpoints.rewind(state.step)?)
}

/// Writes what a run's folder has from the first step on: the configuration and the tokenizer.
fn write_beginnings(directory: &Path, config: &RunConfig, dataset: &Dataset) -> Result<()> {
    atomic_write(&directory.join("config.yaml"), |file| {
        file.write_all(to_yaml(config).as_bytes())
    })?;
    if let Some(tokenizer) = dataset.tokenizer() {
        tokenizer.save(&directory.join("tokenizer.json"))?;
        for (name, bytes) in tokenizer.companions() {
            atomic_write(&directory.join(name), |file| file.write_all(bytes))?;
        }
    }
    Ok(())
}

fn create_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|error| TrainError::Path {
        path: path.to_owned(),
        what: format!("the run's folder cannot be made: {error}"),
    })
}
