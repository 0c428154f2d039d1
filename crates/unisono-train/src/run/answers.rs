//! Sample answers: what the model says to a few questions at each validation, in `validation.txt`.
//!
//! Nothing of the training depends on them: questions are not drawn but the first of the validation part, and what the model
//! answers is keyed by the run's seed and the position in the text.

use crate::config::RunConfig;
use crate::dataset::ExampleData;
use crate::generate::{Batching, Request, Sampling, generate_with};
use crate::model::LiveModel;
use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use unisono_data::atomic_write;
use unisono_data::files::read_regular;
use unisono_tensor::{MeshDevice, Phase};

/// Tokens of an answer at most.
const MOST_TOKENS: usize = 128;
/// The file's name.
const NAME: &str = "validation.txt";
/// What stands before a step's number. All other lines are empty or begin with blanks.
const STEP: &str = "step ";

/// The file of a run.
pub(super) struct Answers {
    path: PathBuf,
    /// Whether it is written no more.
    failed: bool,
    /// Whether this process writes it.
    writes: bool,
}

impl Answers {
    /// The file in a run's folder, for steps after `step`: answers of later steps, from before a crash, are cut off. A sentence
    /// is returned where that fails. Of several processes only one `writes`; all ask the model.
    pub(super) fn open(directory: &Path, step: u64, writes: bool) -> (Answers, Option<String>) {
        let path = directory.join(NAME);
        let cut = if writes { cut(&path, step) } else { Ok(()) };
        let note = cut.err().map(|what| complaint(&path, &what));
        let answers = Answers {
            failed: note.is_some(),
            path,
            writes,
        };
        (answers, note)
    }

    /// Asks the model, and adds its answers after `step` steps to the file.
    ///
    /// # Errors
    /// In words, the first time something fails; from then on nothing is written.
    pub(super) fn add(
        &mut self,
        device: &MeshDevice,
        model: &LiveModel,
        config: &RunConfig,
        data: &ExampleData,
        step: u64,
    ) -> Result<(), String> {
        let alone = device.runtime().processes().size() == 1;
        if (self.failed && alone) || config.training.validation_samples == 0 {
            return Ok(());
        }
        device.runtime().set_phase(Phase::Evaluation);
        model.as_model().set_training(false);
        let done = answered(model, config, data, step).and_then(|text| match self.writes && !self.failed {
            true => append(&self.path, &text),
            false => Ok(()),
        });
        device.runtime().set_phase(Phase::Other);
        done.map_err(|what| {
            self.failed = true;
            complaint(&self.path, &what)
        })
    }
}

fn complaint(path: &Path, what: &str) -> String {
    format!(
        "sample answers can no longer be written to {} ({what}); the run goes on without them",
        path.display()
    )
}

/// Leaves of the file what belongs to the steps up to `step`.
fn cut(path: &Path, step: u64) -> Result<(), String> {
    if !path.exists() {
        return Ok(());
    }
    let bytes = read_regular(path).map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&bytes);
    let mut kept = String::new();
    for line in text.split_inclusive('\n') {
        let number = line.strip_prefix(STEP).map(|rest| rest.trim().parse::<u64>());
        match number {
            Some(Ok(number)) if number <= step => {}
            // A later step, or half a line: the file ends before it.
            Some(_) => break,
            None => {}
        }
        kept += line;
    }
    if kept.len() == bytes.len() {
        return Ok(());
    }
    let written = atomic_write(path, |file| file.write_all(kept.as_bytes()));
    written.map(drop).map_err(|error| error.to_string())
}

fn append(path: &Path, text: &str) -> Result<(), String> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .create(true)
        .append(true)
        .open(path)
        .map_err(|error| error.to_string())?;
    file.write_all(text.as_bytes()).map_err(|error| error.to_string())
}

/// Questions and answers as they stand in the file.
fn answered(model: &LiveModel, config: &RunConfig, data: &ExampleData, step: u64) -> Result<String, String> {
    let Some(model) = model.as_language_model() else {
        return Err("the model is no language model".into());
    };
    let examples = match data.validation.is_empty() {
        true => &data.train,
        false => &data.validation,
    };
    let asked: Vec<_> = examples.iter().take(config.training.validation_samples).collect();
    let sampling = Sampling {
        temperature: config.eval.temperature as f32,
        top_k: config.eval.top_k,
        top_p: config.eval.top_p as f32,
        repetition_penalty: config.eval.repetition_penalty as f32,
        seed: config.training.seed,
        ..Sampling::default()
    };
    let mut requests = Vec::new();
    // Of each question its request; a prompt that leaves no room for an answer has none.
    let mut places = Vec::new();
    for example in &asked {
        let prompt_ids = data
            .tokenizer
            .encode_prompt(example.prompt)
            .map_err(|error| error.to_string())?;
        let fits = !prompt_ids.is_empty() && prompt_ids.len() <= model.max_sequence_length();
        places.push(fits.then_some(requests.len()));
        if fits {
            requests.push(Request {
                prompt_ids,
                max_new_tokens: MOST_TOKENS,
                sampling,
                stop_ids: data.tokenizer.eos_ids().to_vec(),
                ..Request::default()
            });
        }
    }
    let batching = Batching {
        vocabulary: Some(data.tokenizer.vocab_size().min(model.vocab_size())),
        ..Batching::default()
    };
    let outputs = generate_with(model, &requests, &batching, &mut |_, _| ControlFlow::Continue(()))
        .map_err(|error| error.to_string())?;
    let mut text = format!("{STEP}{step}\n");
    for (number, (example, place)) in asked.iter().zip(places).enumerate() {
        let answer = match place {
            Some(place) => data
                .tokenizer
                .decode_text(&outputs[place].ids)
                .map_err(|error| error.to_string())?,
            None => format!(
                "(none: with its {} positions the model has no room behind the question)",
                model.max_sequence_length()
            ),
        };
        for (word, what) in [
            (format!("question {}", number + 1), example.question),
            ("answer".to_string(), answer.as_str()),
            ("reference answer".to_string(), example.reference),
        ] {
            // Writing to a text cannot fail.
            let _ = writeln!(text, "  {word}");
            for line in what.lines() {
                let _ = writeln!(text, "{}", format!("    {line}").trim_end());
            }
        }
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_steps_and_half_lines_are_cut_off() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(NAME);
        let first = "step 10\n  question 1\n    step 99\n\n";
        let text = format!("{first}step 20\n  question 1\n    a\n\nste");
        for (step, kept) in [(9, ""), (10, first), (19, first), (25, &text[..text.len()])] {
            std::fs::write(&path, &text).expect("written");
            let (answers, note) = Answers::open(folder.path(), step, true);
            assert_eq!((answers.failed, note), (false, None));
            assert_eq!(std::fs::read_to_string(&path).expect("there"), kept, "{step}");
        }
        std::fs::write(&path, format!("{first}step 1")).expect("written");
        Answers::open(folder.path(), 15, true);
        let left = std::fs::read_to_string(&path).expect("there");
        assert!(left.starts_with(first), "{left}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_one_note() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join(NAME)).expect("made");
        let (answers, note) = Answers::open(folder.path(), 3, true);
        assert!(answers.failed && note.is_some_and(|note| note.contains("validation.txt")));
    }
}
