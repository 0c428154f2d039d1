//! A run: its folder, its position, and the loop over optimizer steps.

use crate::checkpoint::{Checkpoint, Checkpoints, Keep, Snapshot, State, config_digest, verify_replicas};
use crate::config::{RunConfig, to_yaml};
use crate::dataset::Dataset;
use crate::error::{Result, TrainError};
use crate::evaluate::{Evaluation, evaluate};
use crate::metrics::{Event, Memory, MetricsFile, Record, Seconds, Tracker};
use crate::plan::{EndRule, Plan};
use crate::step::{StepResult, Trainer};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;
use unisono_data::files::{atomic_write, remove_temporaries};
use unisono_tensor::{MeshDevice, Phase};

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
    data_digest: String,
    warned: bool,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// All steps are done.
    Done(EndRule),
    /// It was asked to stop; it can be resumed.
    Stopped,
}

/// What a run gave.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Why it ended.
    pub ending: Ending,
    /// Optimizer steps done, over all sessions.
    pub steps: u64,
    /// The last step's loss.
    pub loss: Option<f32>,
    /// The last validation.
    pub validation: Option<Evaluation>,
    /// Seconds of this session on the clock, from the first step on.
    pub seconds: f64,
    /// Seconds of these on the clock that went to validations, checkpoints and comparisons of replicas.
    pub aside_seconds: f64,
    /// Seconds of the workers by phase, divided by their number.
    pub phases: Vec<(&'static str, f64)>,
    /// Tokens (targets) a second of this session.
    pub tokens_per_s: f64,
    /// Optimizer steps a second of this session.
    pub steps_per_s: f64,
    /// Floating-point operations a second of training, as the field counts them.
    pub flops_per_s: f64,
    /// Most bytes in use at once on a device.
    pub memory_peak: u64,
    /// The last checkpoint.
    pub checkpoint: Option<PathBuf>,
    /// Sentences on trackers that failed.
    pub notes: Vec<String>,
}

impl Run {
    /// Opens devices, model and folder. With a checkpoint the run goes on from there, on whatever mesh the plan has;
    /// sentences that the user must see are returned beside it.
    ///
    /// # Errors
    /// A folder that cannot be written, a checkpoint of another model or other data, too little memory.
    pub fn open(
        device: &MeshDevice,
        config: RunConfig,
        plan: Plan,
        dataset: Dataset,
        directory: &Path,
        resume: Option<&Checkpoint>,
    ) -> Result<(Run, Vec<String>)> {
        let trainer = Trainer::new(device, &config, &plan.spec, plan.batch, plan.steps)?;
        let data_digest = dataset.digest();
        let mut state = State {
            seed: config.training.seed,
            ..State::default()
        };
        let mut notes = Vec::new();
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
            notes = checkpoint
                .restore(model.parameters(), trainer.optimizer.as_ref())?
                .warnings;
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
        create_folder(directory)?;
        if resume.is_none()
            && let Some(found) = checkpoints.find()?.complete.first()
        {
            return Err(TrainError::Refused(format!(
                "{} belongs to a run already, whose checkpoints a new run would replace: go on with it (--resume), start anew \
                 (--fresh), or name another training_config.checkpoint_dir or --out",
                found.path.display()
            )));
        }
        checkpoints.clean()?;
        // A process that was killed may have left half a file beside the checkpoints too.
        remove_temporaries(directory)?;
        let removed = checkpoints.rewind(state.step)?;
        if !removed.is_empty() {
            let names: Vec<String> = removed.iter().map(|path| path.display().to_string()).collect();
            notes.push(format!(
                "the run goes on from step {}: the checkpoints of later steps were removed ({})",
                state.step,
                names.join(", ")
            ));
        }
        atomic_write(&directory.join("config.yaml"), |file| {
            file.write_all(to_yaml(&config).as_bytes())
        })?;
        if let Some(tokenizer) = dataset.tokenizer() {
            tokenizer.save(&directory.join("tokenizer.json"))?;
        }
        let (metrics, note) = MetricsFile::open(&directory.join("metrics.jsonl"), state.step)?;
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
            data_digest,
            warned: false,
        };
        Ok((run, notes))
    }

    /// Trains to the end of the plan, or until `stop` says so. `trackers` hear of everything; one that fails is told of
    /// once and does not end the run.
    ///
    /// # Errors
    /// A loss that is no number, data that cannot be read, a checkpoint that cannot be written, a failed command.
    pub fn train(&mut self, trackers: &mut [&mut dyn Tracker], stop: &dyn Fn() -> bool) -> Result<Summary> {
        let mut told = Told {
            notes: Vec::new(),
            failed: vec![false; trackers.len()],
            metrics_failed: false,
        };
        let device = self.trainer.device.clone();
        let (first, total) = (self.state.step, self.plan.steps);
        let effective = self.plan.batch.effective();
        let mut batches = self.dataset.steps(
            self.config.training.seed,
            effective,
            self.state.samples,
            self.plan.last_sample,
        )?;
        device.runtime().sync().map_err(unisono_tensor::TensorError::from)?;
        device.runtime().reset_report();
        let start = Instant::now();
        let mut clock = Clock {
            last: start,
            busy: [0.0; 5],
        };
        let first_tokens = self.state.tokens;
        let mut loss = None;
        let mut validation = None;
        let mut checkpoint = None;
        let mut pending: Option<(StepResult, usize)> = None;
        let mut stopped = false;
        let mut aside_seconds = 0.0;

        while self.state.step < total && !stopped {
            let data = batches.next_step()?;
            let step = self.state.step;
            let result = self.trainer.step(step, &data)?;
            self.state.step += 1;
            self.state.samples += effective as u64;
            // A step's numbers are read while the next one runs.
            if let Some((result, targets)) = pending.replace((result, data.num_targets)) {
                loss = Some(self.finish(result, targets, &mut clock, &mut told, trackers)?);
            }
            stopped = stop();
            let done = self.state.step;
            let last = done == total || stopped;
            let evaluates = done == total || due(done, self.config.training.eval_every);
            let saves = last || due(done, self.config.training.model_save_interval);
            let verifies = due(done, self.config.training.verify_every);
            if !(evaluates || saves || verifies) {
                continue;
            }
            if let Some((result, targets)) = pending.take() {
                loss = Some(self.finish(result, targets, &mut clock, &mut told, trackers)?);
            }
            let aside = Instant::now();
            if verifies {
                let parameters = self.trainer.model.as_model().parameters();
                verify_replicas(parameters, self.trainer.optimizer.as_ref(), done)?;
            }
            if evaluates && let Some(evaluation) = self.evaluate()? {
                validation = Some(evaluation);
                self.state.validation_loss = Some(evaluation.loss);
                self.tell(&Event::Evaluated { step: done, evaluation }, &mut told, trackers);
            }
            if saves {
                let path = self.save(evaluates, &mut told, trackers)?;
                self.tell(
                    &Event::Saved {
                        step: done,
                        path: &path,
                    },
                    &mut told,
                    trackers,
                );
                checkpoint = Some(path);
            }
            clock.last = Instant::now();
            aside_seconds += (clock.last - aside).as_secs_f64();
        }

        let seconds = start.elapsed().as_secs_f64();
        let report = device.runtime().report();
        let workers = device.runtime().workers().max(1) as f64;
        let steps = (self.state.step - first) as f64;
        Ok(Summary {
            ending: if self.state.step >= total {
                Ending::Done(self.plan.end)
            } else {
                Ending::Stopped
            },
            steps: self.state.step,
            loss,
            validation,
            seconds,
            aside_seconds,
            phases: PHASES
                .iter()
                .map(|phase| (phase.name(), report.phase(*phase).busy.as_secs_f64() / workers))
                .collect(),
            tokens_per_s: (self.state.tokens - first_tokens) as f64 / seconds,
            steps_per_s: steps / seconds,
            flops_per_s: steps * self.plan.flops_per_step / seconds,
            memory_peak: report.memory.peak,
            checkpoint,
            notes: told.notes,
        })
    }

    /// The loss over the validation part, `None` where there is none.
    ///
    /// # Errors
    /// Data that cannot be read, or a failed command.
    pub fn evaluate(&self) -> Result<Option<Evaluation>> {
        let sequences = self.plan.validation_batch;
        let t = &self.config.training;
        let limit = t
            .eval_batches
            .map(|batches| batches.saturating_mul(t.validation_batch_size));
        match self.dataset.validation(sequences, limit)? {
            None => Ok(None),
            Some(validation) => {
                let model = self.trainer.model.as_model();
                evaluate(&self.trainer.device, model, &validation, sequences).map(Some)
            }
        }
    }

    /// Writes a checkpoint of the position that the run is at; it can be the best one only if this very position was
    /// evaluated.
    fn save(&mut self, evaluated: bool, told: &mut Told, trackers: &mut [&mut dyn Tracker]) -> Result<PathBuf> {
        self.trainer.device.runtime().set_phase(Phase::Checkpoint);
        let best = match (self.state.validation_loss, self.state.best_loss) {
            (Some(loss), Some(best)) => evaluated && loss < best,
            (loss, None) => evaluated && loss.is_some(),
            (None, _) => false,
        };
        if best {
            self.state.best_loss = self.state.validation_loss;
        }
        let t = &self.config.training;
        let saved = self.checkpoints.save(
            &Snapshot {
                state: &self.state,
                parameters: self.trainer.model.as_model().parameters(),
                optimizer: self.trainer.optimizer.as_ref(),
                config_digest: &config_digest(&self.config),
                data_digest: &self.data_digest,
            },
            Keep {
                last: t.keep_last.max(1),
                best: best && t.keep_best,
            },
        )?;
        self.trainer.device.runtime().set_phase(Phase::Other);
        for note in &saved.notes {
            self.tell(&Event::Warning(note), told, trackers);
        }
        Ok(saved.path)
    }

    /// Reads what a step gave, and tells.
    fn finish(
        &mut self,
        result: StepResult,
        targets: usize,
        clock: &mut Clock,
        told: &mut Told,
        trackers: &mut [&mut dyn Tracker],
    ) -> Result<f32> {
        let step = result.step + 1;
        let control = match result.control {
            Some(pending) => pending.wait().map_err(unisono_tensor::TensorError::from)?,
            None => Vec::new(),
        };
        let &[grad_norm, _, go, loss] = control.as_slice() else {
            return Err(TrainError::Refused("the null backend trains nothing".into()));
        };
        if go == 0.0 {
            let (what, value) = if loss.is_finite() {
                ("gradient norm", grad_norm)
            } else {
                ("loss", loss)
            };
            let kept = match self.checkpoints.find()?.complete.first() {
                Some(found) => format!(
                    "the last checkpoint, of step {}, is {}",
                    found.step,
                    found.path.display()
                ),
                None => "there is no checkpoint yet".into(),
            };
            return Err(TrainError::NotFinite {
                step,
                what,
                value,
                lr: result.lr,
                kept,
            });
        }
        if targets == 0 && !self.warned {
            self.warned = true;
            let text =
                format!("step {step}: every target of the batch is masked; such a step changes nothing but decay");
            self.tell(&Event::Warning(&text), told, trackers);
        }
        self.state.tokens += targets as u64;
        let seconds = clock.tick(&self.trainer.device);
        let memory = self.trainer.device.runtime().report().memory;
        let effective = self.plan.batch.effective();
        // Samples beyond the last epoch are absent from a short last batch.
        let position = self.state.samples - (self.state.step - step) * effective as u64;
        let sequences = position.min(self.plan.last_sample);
        let present = sequences - (position - effective as u64).min(sequences);
        let record = Record {
            step,
            loss,
            lr: result.lr,
            grad_norm,
            sequences,
            tokens: self.state.tokens,
            samples_per_s: present as f64 / seconds.total,
            tokens_per_s: targets as f64 / seconds.total,
            seconds,
            memory: Memory {
                current: memory.current,
                peak: memory.peak,
            },
        };
        self.tell(&Event::Step(&record), told, trackers);
        Ok(loss)
    }

    /// Tells the metrics file and every tracker; failures are told once each.
    fn tell(&mut self, event: &Event<'_>, told: &mut Told, trackers: &mut [&mut dyn Tracker]) {
        let mut complaints = Vec::new();
        if !told.metrics_failed
            && let Err(what) = self.metrics.event(event)
        {
            told.metrics_failed = true;
            complaints.push(format!(
                "metrics.jsonl can no longer be written ({what}); the run goes on without it"
            ));
        }
        for (index, tracker) in trackers.iter_mut().enumerate() {
            if !told.failed[index]
                && let Err(what) = tracker.event(event)
            {
                told.failed[index] = true;
                complaints.push(format!("a tracker failed ({what}); the run goes on without it"));
            }
        }
        for complaint in complaints {
            for (index, tracker) in trackers.iter_mut().enumerate() {
                if !told.failed[index] && tracker.event(&Event::Warning(&complaint)).is_err() {
                    told.failed[index] = true;
                }
            }
            told.notes.push(complaint);
        }
    }
}

/// Phases of a step, as the summary lists them.
const PHASES: [Phase; 8] = [
    Phase::Data,
    Phase::Forward,
    Phase::Backward,
    Phase::Communication,
    Phase::Optimizer,
    Phase::Evaluation,
    Phase::Checkpoint,
    Phase::Other,
];

/// Which trackers have failed, and what was said of it.
struct Told {
    notes: Vec<String>,
    failed: Vec<bool>,
    metrics_failed: bool,
}

/// Time between steps, on the clock and of the workers.
struct Clock {
    last: Instant,
    busy: [f64; 5],
}

impl Clock {
    fn tick(&mut self, device: &MeshDevice) -> Seconds {
        let report = device.runtime().report();
        let workers = device.runtime().workers().max(1) as f64;
        let mut passed = [0.0; 5];
        for (i, phase) in PHASES.iter().take(5).enumerate() {
            let busy = report.phase(*phase).busy.as_secs_f64();
            passed[i] = (busy - self.busy[i]) / workers;
            self.busy[i] = busy;
        }
        let now = Instant::now();
        // Two ticks never fall into one nanosecond; the bound keeps rates finite all the same.
        let total = now.duration_since(self.last).as_secs_f64().max(1e-9);
        self.last = now;
        let [data, forward, backward, communication, optimizer] = passed;
        Seconds {
            total,
            data,
            forward,
            backward,
            communication,
            optimizer,
        }
    }
}

fn due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

fn create_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|error| TrainError::Path {
        path: path.to_owned(),
        what: format!("the run's folder cannot be made: {error}"),
    })
}
