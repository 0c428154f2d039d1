//! The loop over optimizer steps, and what stands beside it: validations, checkpoints, those who are told.

use super::clock::{Clock, PHASES};
use super::told::Told;
use super::{Ending, Run, Summary, curves, outputs};
use crate::checkpoint::{CheckpointError, Checkpoints, Keep, Live, Saved, Writer, config_digest, verify_replicas};
use crate::error::{Result, TrainError};
use crate::evaluate::Evaluation;
use crate::metrics::{Event, Memory, Record, Tracker, read_metrics};
use crate::step::StepResult;
use crate::votes::Votes;
use std::path::PathBuf;
use std::time::Instant;
use unisono_tensor::Phase;

/// One call of [`Run::train`].
pub(super) struct Session<'a, 't> {
    run: &'a mut Run,
    told: Told<'a, 't>,
    clock: Clock,
    writer: Writer,
    /// Of the last step, where it had targets.
    loss: Option<f32>,
    validation: Option<Evaluation>,
    /// The last one on the disk.
    checkpoint: Option<PathBuf>,
    final_model: Option<PathBuf>,
    curves: Vec<PathBuf>,
    aside_seconds: f64,
}

impl<'a, 't> Session<'a, 't> {
    pub(super) fn new(run: &'a mut Run, trackers: &'a mut [&'t mut dyn Tracker]) -> Session<'a, 't> {
        Session {
            writer: Writer::new(run.checkpoints.clone()),
            run,
            told: Told::new(trackers),
            clock: Clock::start(),
            loss: None,
            validation: None,
            checkpoint: None,
            final_model: None,
            curves: Vec::new(),
            aside_seconds: 0.0,
        }
    }

    /// See [`Run::train`].
    pub(super) fn train(mut self, stop: &dyn Fn() -> bool) -> Result<Summary> {
        let runtime = self.run.trainer.device.runtime().clone();
        runtime.sync().map_err(unisono_tensor::TensorError::from)?;
        runtime.reset_report();
        let start = Instant::now();
        self.clock.skip();
        let (first_step, first_tokens) = (self.run.state.step, self.run.state.tokens);
        if let Err(error) = self.steps(stop) {
            self.settle_whatever_happens();
            return Err(error);
        }

        if self.run.state.step >= self.run.plan.steps {
            self.leave()?;
        }
        let seconds = start.elapsed().as_secs_f64();
        let report = runtime.report();
        let workers = runtime.workers().max(1) as f64;
        let (state, plan) = (&self.run.state, &self.run.plan);
        let steps = (state.step - first_step) as f64;
        Ok(Summary {
            ending: match state.step >= plan.steps {
                true => Ending::Done(plan.end),
                false => Ending::Stopped,
            },
            steps: state.step,
            loss: self.loss,
            validation: self.validation,
            seconds,
            aside_seconds: self.aside_seconds,
            phases: PHASES
                .iter()
                .map(|phase| (phase.name(), report.phase(*phase).busy.as_secs_f64() / workers))
                .collect(),
            between_processes: (runtime.processes().size() > 1)
                .then(|| [report.air.total, report.air.exposed].map(|time| time.as_secs_f64())),
            tokens_per_s: (state.tokens - first_tokens) as f64 / seconds,
            steps_per_s: steps / seconds,
            flops_per_s: steps * plan.flops_per_step / seconds,
            memory_peak: report.memory.peak,
            checkpoint: self.checkpoint.take(),
            final_model: self.final_model.take(),
            curves: std::mem::take(&mut self.curves),
            notes: std::mem::take(&mut self.told.notes),
        })
    }

    /// Trains until the steps are done or `stop` says so. The last checkpoint is then on the disk.
    fn steps(&mut self, stop: &dyn Fn() -> bool) -> Result<()> {
        let run = &mut *self.run;
        let (total, effective) = (run.plan.steps, run.plan.batch.effective());
        let (samples, last_sample) = (run.state.samples, run.plan.last_sample);
        let seed = run.config.training.seed;
        let mut batches = run.dataset.steps(seed, effective, samples, last_sample)?;
        let mut pending: Option<(StepResult, usize)> = None;
        let mut stopped = false;
        let mut votes = Votes::new(&run.trainer.device)?;
        while self.run.state.step < total && !stopped {
            let data = batches.next_step()?;
            let step = self.run.state.step;
            if let Some(link) = self.run.trainer.device.runtime().link() {
                link.note_step(step + 1);
            }
            let result = self.run.trainer.step(step, &data)?;
            self.run.state.step += 1;
            self.run.state.samples += effective as u64;
            // A step's numbers are read while the next one runs.
            if let Some((result, targets)) = pending.replace((result, data.num_targets)) {
                self.finish(result, targets)?;
            }
            let written = self.writer.poll();
            self.saved(written)?;
            stopped = votes.count(stop())?;
            let done = self.run.state.step;
            let training = &self.run.config.training;
            let last = done == total || stopped;
            let evaluates = done == total || due(done, training.eval_every);
            let saves = last || due(done, training.model_save_interval);
            let verifies = due(done, training.verify_every);
            if !(evaluates || saves || verifies) {
                continue;
            }
            if let Some((result, targets)) = pending.take() {
                self.finish(result, targets)?;
            }
            let aside = Instant::now();
            // What is saved is compared then.
            if verifies && !saves {
                let trainer = &self.run.trainer;
                verify_replicas(trainer.model.as_model().parameters(), trainer.optimizer.as_ref(), done)?;
            }
            if evaluates && let Some(evaluation) = self.run.evaluate()? {
                self.validation = Some(evaluation);
                self.run.state.validation_loss = Some(evaluation.loss);
                self.tell(&Event::Evaluated { step: done, evaluation });
                if !evaluation.loss.is_finite() {
                    let text = format!(
                        "step {done}: the validation loss is {}, no finite number; a checkpoint of this step is not the best one",
                        evaluation.loss
                    );
                    self.tell(&Event::Warning(&text));
                }
                let written = self.run.validations.add(done, &evaluation);
                self.warn(written);
            }
            if evaluates {
                let answered = self.run.answer(done);
                self.warn(answered);
            }
            if saves {
                self.save(evaluates, last)?;
            }
            self.clock.skip();
            self.aside_seconds += aside.elapsed().as_secs_f64();
        }
        Ok(())
    }

    /// Writes what a finished run leaves for others. All that is needed to write it again is in the last checkpoint, so what
    /// fails is told and no more, but where other processes would be left waiting.
    fn leave(&mut self) -> Result<()> {
        if outputs::leaves_model(self.run) {
            let runtime = self.run.trainer.device.runtime().clone();
            runtime.set_phase(Phase::Checkpoint);
            match outputs::write_model(self.run, self.run.writes) {
                Ok(path) => self.final_model = Some(path),
                Err(error) if runtime.processes().size() > 1 => return Err(error),
                Err(error) => self.warn(Err(format!("final_model was not written: {error}"))),
            }
            runtime.set_phase(Phase::Other);
        }
        if !self.run.writes {
            return Ok(());
        }
        let metrics = self.run.directory.join("metrics.jsonl");
        if self.told.metrics_failed && !metrics.exists() {
            // That was told, with what follows from it.
            return Ok(());
        }
        let records = read_metrics(&metrics).map_err(|error| error.to_string());
        let validations = self.run.validations.read();
        match records.and_then(|records| curves::write(&self.run.directory, &records, &validations)) {
            Ok(paths) => self.curves = paths,
            Err(what) => self.warn(Err(format!("training_curves were not drawn: {what}"))),
        }
        Ok(())
    }

    fn warn(&mut self, done: std::result::Result<(), String>) {
        if let Err(what) = done {
            self.tell(&Event::Warning(&what));
        }
    }

    /// Reads what a step gave, and tells.
    fn finish(&mut self, result: StepResult, targets: usize) -> Result<()> {
        let step = result.step + 1;
        let (control, ended) = match result.control {
            Some(pending) => pending.wait_for_moment().map_err(unisono_tensor::TensorError::from)?,
            None => (Vec::new(), Instant::now()),
        };
        let &[grad_norm, _, go, loss] = control.as_slice() else {
            return Err(TrainError::Refused("the null backend trains nothing".into()));
        };
        if go == 0.0 {
            // The one that is being written may be the last good one.
            self.settle_whatever_happens();
            let (what, value) = match loss.is_finite() {
                true => ("gradient norm", grad_norm),
                false => ("loss", loss),
            };
            return Err(TrainError::NotFinite {
                step,
                what,
                value,
                lr: result.lr,
                kept: kept(&self.run.checkpoints)?,
            });
        }
        if targets == 0 && !self.run.warned {
            self.run.warned = true;
            let text = format!(
                "step {step}: every target of the batch is masked, so there is no loss and the gradient is zero; the optimizer takes the \
                 step all the same: what it keeps of earlier gradients (AdamW's moments, SGD's momentum) and weight decay move the weights"
            );
            self.tell(&Event::Warning(&text));
        }
        let run = &mut *self.run;
        run.state.tokens += targets as u64;
        let seconds = self.clock.tick(&run.trainer.device, ended);
        let memory = run.trainer.device.runtime().report().memory;
        let effective = run.plan.batch.effective();
        // Samples beyond the last epoch are absent from a short last batch.
        let position = run.state.samples - (run.state.step - step) * effective as u64;
        let sequences = position.min(run.plan.last_sample);
        let present = sequences - (position - effective as u64).min(sequences);
        let record = Record {
            step,
            loss: (targets > 0).then_some(loss),
            lr: result.lr,
            grad_norm,
            sequences,
            tokens: run.state.tokens,
            samples_per_s: present as f64 / seconds.total,
            tokens_per_s: targets as f64 / seconds.total,
            seconds,
            memory: Memory {
                current: memory.current,
                peak: memory.peak,
            },
        };
        self.tell(&Event::Step(&record));
        self.loss = record.loss;
        Ok(())
    }

    /// Saves a checkpoint of the position that the run is at; it can be the best one only if this very position was
    /// evaluated. It is written behind the run; the last one, behind which nothing runs, at once.
    fn save(&mut self, evaluated: bool, last: bool) -> Result<()> {
        // One at a time.
        self.settle()?;
        let run = &mut *self.run;
        run.trainer.device.runtime().set_phase(Phase::Checkpoint);
        // Nothing is below a NaN, and an infinity says nothing.
        let loss = run.state.validation_loss.filter(|loss| evaluated && loss.is_finite());
        let best = loss.is_some_and(|loss| run.state.best_loss.is_none_or(|best| loss < best));
        if best {
            run.state.best_loss = loss;
        }
        let training = &run.config.training;
        let keep = Keep {
            last: training.keep_last.max(1),
            best: best && training.keep_best,
        };
        let live = Live {
            state: &run.state,
            parameters: run.trainer.model.as_model().parameters(),
            optimizer: run.trainer.optimizer.as_ref(),
            config_digest: &config_digest(&run.config),
            data_digest: &run.data_digest,
        };
        let written = match last {
            true => run.checkpoints.save(&live, keep).map(Some),
            false => self.writer.start(&live, keep).map(|()| None),
        };
        run.trainer.device.runtime().set_phase(Phase::Other);
        self.saved(written)
    }

    /// Waits for a checkpoint that is being written, where one is.
    fn settle(&mut self) -> Result<()> {
        let written = self.writer.wait();
        self.saved(written)
    }

    /// The same where another error ends the run: one of the disk is told beside it.
    fn settle_whatever_happens(&mut self) {
        if let Err(error) = self.settle() {
            self.tell(&Event::Warning(&format!("the last checkpoint failed as well: {error}")));
        }
    }

    /// Tells of a checkpoint that is on the disk, where one is.
    fn saved(&mut self, written: std::result::Result<Option<Saved>, CheckpointError>) -> Result<()> {
        let Some(saved) = written? else {
            return Ok(());
        };
        for note in &saved.notes {
            self.tell(&Event::Warning(note));
        }
        self.tell(&Event::Saved {
            step: saved.step,
            path: &saved.path,
        });
        self.checkpoint = Some(saved.path);
        Ok(())
    }

    fn tell(&mut self, event: &Event<'_>) {
        self.told.tell(&mut self.run.metrics, event);
    }
}

fn due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}

/// Which checkpoint there is to go back to, in words.
fn kept(checkpoints: &Checkpoints) -> Result<String> {
    Ok(match checkpoints.find()?.complete.first() {
        Some(found) => format!(
            "the last checkpoint, of step {}, is {}",
            found.step,
            found.path.display()
        ),
        None => "there is no checkpoint yet".into(),
    })
}
