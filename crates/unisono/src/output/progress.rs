//! How a run is going: a bar on a terminal, plain lines otherwise.

use super::Out;
use super::numbers::{duration, rate};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::Path;
use unisono_train::config::{Progress as Mode, RunConfig};
use unisono_train::evaluate::Evaluation;
use unisono_train::{Event, Record, Tracker};

/// Seconds that the rates on a bar look back at most.
const BAR_SECONDS: f64 = 5.0;

/// Shows what a run tells.
pub struct Progress<'a> {
    out: &'a Out,
    bar: Option<ProgressBar>,
    lines: bool,
    total: u64,
    log_every: u64,
    /// Loss of the trigram model, for text.
    trigram: Option<f64>,
    is_text: bool,
    /// Tokens seen in this run so far.
    tokens: u64,
    since: Since,
}

/// What rates are counted from: the last line, or some seconds ago on a bar.
#[derive(Clone, Copy, Default)]
struct Since {
    steps: u64,
    tokens: u64,
    /// Seconds of the steps themselves, without evaluation and checkpoints.
    seconds: f64,
}

impl<'a> Progress<'a> {
    /// For a run from optimizer step `first` on; `tokens` were seen before.
    pub fn new(out: &'a Out, config: &RunConfig, first: u64, total: u64, tokens: u64) -> Progress<'a> {
        let is_terminal = std::io::stderr().is_terminal();
        let mode = match config.training.progress {
            _ if out.is_quiet() || out.is_json() => Mode::Off,
            Mode::Auto | Mode::Bar if is_terminal && out.draws() => Mode::Bar,
            Mode::Auto | Mode::Bar => Mode::Lines,
            other => other,
        };
        let bar = (mode == Mode::Bar).then(|| {
            let bar = ProgressBar::new(total).with_position(first);
            // A template that is written here is known to be right; were it not, the plain bar would do.
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Progress {
            out,
            bar,
            lines: mode == Mode::Lines,
            total,
            log_every: config.training.log_every.max(1),
            trigram: None,
            is_text: false,
            tokens,
            since: Since::default(),
        }
    }

    /// For text: losses are cross-entropies, and `trigram` is the one to beat.
    pub fn of_text(mut self, trigram: Option<f64>) -> Progress<'a> {
        self.is_text = true;
        self.trigram = trigram;
        self
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.out.say(text)),
            None => self.out.say(text),
        }
    }

    fn step(&mut self, record: &Record) {
        let at = record.step;
        self.since.steps += 1;
        self.since.tokens += record.tokens - self.tokens;
        self.since.seconds += record.seconds.total;
        self.tokens = record.tokens;
        let due = at == 1 || at == self.total || at.is_multiple_of(self.log_every);
        if self.bar.is_none() && !(self.lines && due) {
            return;
        }
        let Since { steps, tokens, seconds } = self.since;
        let steps_per_s = steps as f64 / seconds;
        let left = duration((self.total - at) as f64 / steps_per_s);
        let unit = if self.is_text { "tokens/s" } else { "targets/s" };
        let rates = format!(
            "{} it/s  {} {unit}  ETA {left}",
            rate(steps_per_s),
            rate(tokens as f64 / seconds)
        );
        // Where every target is masked there is none.
        let loss = record.loss.map_or_else(|| "none".into(), |loss| format!("{loss:.4}"));
        match &self.bar {
            Some(bar) => {
                bar.set_position(at);
                bar.set_message(format!("loss {loss}  {rates}"));
                if seconds > BAR_SECONDS {
                    self.since = Since::default();
                }
            }
            None => {
                let width = self.total.to_string().len();
                self.line(&format!(
                    "step {at:width$}/{}  loss {loss}  lr {:.2e}  norm {:.3}  {rates}",
                    self.total, record.lr, record.grad_norm
                ));
                self.since = Since::default();
            }
        }
    }

    fn evaluated(&mut self, step: u64, evaluation: &Evaluation) {
        self.line(&format!(
            "step {step}: validation {}",
            loss_in_words(evaluation, self.is_text, self.trigram)
        ));
    }

    fn saved(&mut self, step: u64, path: &Path) {
        let text = format!("step {step}: checkpoint {}", path.display());
        match &self.bar {
            Some(bar) => bar.suspend(|| self.out.debug(text)),
            None => self.out.debug(text),
        }
    }
}

/// A validation's result in words.
pub fn loss_in_words(evaluation: &Evaluation, is_text: bool, trigram: Option<f64>) -> String {
    let loss = evaluation.loss;
    if !is_text {
        return format!(
            "loss {loss:.6}, the mean squared error of {} targets",
            evaluation.targets
        );
    }
    let trigram = match trigram {
        Some(trigram) => format!("; trigram model {trigram:.4}"),
        None => String::new(),
    };
    format!(
        "loss {loss:.4} (perplexity {:.2}, {:.3} bits a token){trigram}",
        evaluation.perplexity(),
        evaluation.bits()
    )
}

impl Tracker for Progress<'_> {
    fn event(&mut self, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Step(record) => self.step(record),
            Event::Evaluated { step, evaluation } => self.evaluated(*step, evaluation),
            Event::Saved { step, path } => self.saved(*step, path),
            Event::Warning(text) => match &self.bar {
                Some(bar) => bar.suspend(|| self.out.warn(text)),
                None => self.out.warn(text),
            },
        }
        Ok(())
    }
}
