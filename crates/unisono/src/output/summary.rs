//! The summary of a run: where the time and the memory went, and how that compares with what was predicted.

use super::Out;
use super::numbers::{bytes, counted, duration, rate};
use super::progress::loss_in_words;
use crate::machine;
use serde_json::{Value, json};
use std::path::PathBuf;
use unisono_train::Plan;
use unisono_train::plan::EndRule;
use unisono_train::run::{Ending, Summary};

/// From this share of the time on communication is said to be much.
const MUCH: f64 = 0.1;
/// Phases that are no part of a step.
const ASIDE: [&str; 2] = ["evaluation", "checkpoint"];

/// What a summary is made of.
pub struct Report<'a> {
    /// What the run gave.
    pub summary: &'a Summary,
    /// Its plan.
    pub plan: &'a Plan,
    /// Multiply-add peak of the workers, GFLOP/s, where it was measured.
    pub peak: Option<f64>,
    /// Loss of the trigram model.
    pub trigram: Option<f64>,
    /// Whether the model is a language model.
    pub is_text: bool,
    /// What to type to go on.
    pub resume: String,
}

impl Report<'_> {
    /// Prints it.
    pub fn print(&self, out: &Out) {
        for (name, text) in self.rows() {
            out.say(format!("{} {text}", out.bold(&format!("{name:10}"))));
        }
        for note in self.words() {
            out.note(note);
        }
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let s = self.summary;
        let steps = counted(s.steps as usize, "optimizer step");
        let mut rows = vec![(
            "end",
            match s.ending {
                Ending::Done(EndRule::MaxSteps) => format!("max_steps: {steps} done"),
                Ending::Done(EndRule::Epochs) => format!("num_epochs: {steps} done"),
                Ending::Stopped => format!("stopped after {steps}; go on with: {}", self.resume),
            },
        )];
        match s.loss {
            Some(loss) => rows.push(("loss", format!("{loss:.6} in the last step"))),
            None if s.steps_per_s > 0.0 => {
                rows.push(("loss", "none in the last step: all its targets are masked".into()))
            }
            // There was no step.
            None => {}
        }
        if let Some(evaluation) = &s.validation {
            rows.push(("validation", loss_in_words(evaluation, self.is_text, self.trigram)));
        }
        let unit = if self.is_text { "tokens/s" } else { "targets/s" };
        rows.push((
            "speed",
            format!(
                "{} in all, {} it/s, {} {unit}{}",
                duration(s.seconds),
                rate(s.steps_per_s),
                rate(s.tokens_per_s),
                self.utilisation()
            ),
        ));
        rows.push(("time", self.time()));
        if let Some([total, exposed]) = s.between_processes {
            let hidden = total - exposed;
            rows.push((
                "messages",
                format!(
                    "between processes under way for {}: {} hidden behind computing ({:.0} %), {} exposed",
                    duration(total),
                    duration(hidden),
                    100.0 * hidden / total.max(1e-9),
                    duration(exposed)
                ),
            ));
        }
        rows.push(("memory", self.memory()));
        if let Some(path) = &s.checkpoint {
            rows.push(("checkpoint", path.display().to_string()));
        }
        if let Some(path) = &s.final_model {
            rows.push(("model", path.display().to_string()));
        }
        if let Some(path) = s.curves.first() {
            rows.push(("curves", path.display().to_string()));
        }
        rows
    }

    /// Share of the workers' multiply-add peak that training used, as the field counts it.
    fn mfu(&self) -> Option<f64> {
        let peak = self.peak? * 1e9;
        let flops = self.summary.flops_per_s * self.summary.seconds;
        (peak > 0.0).then(|| flops / self.training_seconds() / peak)
    }

    /// Seconds of the steps themselves: without evaluation and checkpoints.
    fn training_seconds(&self) -> f64 {
        (self.summary.seconds - self.summary.aside_seconds).max(1e-9)
    }

    fn phase(&self, name: &str) -> f64 {
        self.summary
            .phases
            .iter()
            .find(|(phase, _)| *phase == name)
            .map_or(0.0, |(_, s)| *s)
    }

    fn utilisation(&self) -> String {
        let Some(mfu) = self.mfu() else { return String::new() };
        format!(
            ", {:.1} % of the {} GFLOP/s that the workers' multiply-adds reach (MFU)",
            100.0 * mfu,
            rate(self.peak.unwrap_or(0.0))
        )
    }

    /// Where the time of the steps went, by the workers' own clocks, and the time beside the steps.
    fn time(&self) -> String {
        let total = self.training_seconds();
        let mut busy = 0.0;
        let mut parts: Vec<String> = Vec::new();
        for (name, seconds) in &self.summary.phases {
            if ASIDE.contains(name) {
                continue;
            }
            busy += seconds;
            if *seconds / total >= 0.0005 {
                parts.push(format!("{name} {:.1} %", 100.0 * seconds / total));
            }
        }
        parts.push(format!("waiting {:.1} %", 100.0 * (total - busy).max(0.0) / total));
        format!(
            "{}; {} for validation and checkpoints",
            parts.join(", "),
            duration(self.summary.aside_seconds)
        )
    }

    fn memory(&self) -> String {
        let process = match machine::process_peak() {
            Some(peak) => format!("; the whole process {}", bytes(peak)),
            None => String::new(),
        };
        format!(
            "{} a device at the peak, {} predicted{process}",
            bytes(self.summary.memory_peak),
            bytes(self.plan.memory.peak)
        )
    }

    fn words(&self) -> Vec<String> {
        // Of the time that the workers worked: what other processes take says nothing about the run.
        let phases = self.summary.phases.iter().filter(|(name, _)| !ASIDE.contains(name));
        let busy: f64 = phases.map(|(_, seconds)| seconds).sum();
        let share = self.phase("communication") / busy.max(1e-9);
        let mut words = Vec::new();
        if share > MUCH {
            let tensor_parallel = self.plan.mesh.axis_size("tp") > 1;
            words.push(format!(
                "communication takes {:.0} % of the workers' time: {}",
                100.0 * share,
                match tensor_parallel {
                    true =>
                        "fewer tensor-parallel and more data-parallel devices, or a larger batch_size, bring it down",
                    false =>
                        "fewer devices, or a larger effective batch (with a learning rate that fits it), bring it down",
                }
            ));
        }
        words
    }

    /// The same for machines.
    pub fn json(&self) -> Value {
        let mut summary = self.summary.clone();
        // A path that is no text has no JSON form.
        let lossy = |path: PathBuf| PathBuf::from(path.to_string_lossy().into_owned());
        summary.checkpoint = summary.checkpoint.map(lossy);
        summary.final_model = summary.final_model.map(lossy);
        summary.curves = summary.curves.into_iter().map(lossy).collect();
        json!({
            "summary": summary,
            "mfu": self.mfu(),
            "peak_gflops": self.peak,
            "memory_predicted": self.plan.memory.peak,
            "process_peak": machine::process_peak(),
            "trigram_loss": self.trigram,
        })
    }
}
