//! What a run leaves at its end beside checkpoints: the model for other programs.

use super::Run;
use crate::adapters::adapters;
use crate::dataset::Dataset;
use crate::error::Result;
use crate::hub::{self, SaveOptions};
use crate::model::ModelSpec;
use crate::peft;
use crate::shards::real_values;
use crate::start::spec_of_files;
use std::path::{Path, PathBuf};
use unisono_nn::Parameter;

/// The directory's name.
const NAME: &str = "final_model";

/// Whether a run leaves a model for other programs: one on examples, or from a model in Hugging Face's files.
pub(super) fn leaves_model(run: &Run) -> bool {
    let is_language = !matches!(run.plan.spec, ModelSpec::Perceptron(_));
    is_language && (matches!(run.dataset, Dataset::Examples(_)) || run.config.training.model_path.is_some())
}

/// Writes `final_model/`: the whole model in f32 in the format of `transformers`, or its adapter in PEFT's, with the tokenizer.
/// All of it or nothing; one that an earlier end of the run wrote is replaced. Of several processes one writes, and the others give it
/// what they carry.
///
/// # Errors
/// A model that `transformers` cannot express, a directory with other files, whatever the disk says.
pub(super) fn write_model(run: &Run, writes: bool) -> Result<PathBuf> {
    let directory = run.directory.join(NAME);
    let table = run.trainer.model.as_model().table();
    let base = run.config.training.model_path.as_deref();
    let mut options = SaveOptions::default();
    if let Some(tokenizer) = run.dataset.tokenizer() {
        options = options.with_tokenizer(tokenizer);
    }
    let (spec, ids) = spec_of_files(&run.config, &run.plan.spec)?;
    options.ids = ids.unwrap_or(options.ids);
    match &run.config.lora {
        Some(lora) => {
            let adapters = adapters(lora, &run.plan.spec)?;
            let base = base.map(base_name);
            if !writes {
                give(table.all().filter(|parameter| adapters.trains(parameter)))?;
                return Ok(directory);
            }
            peft::save(&directory, &adapters, table, base.as_deref(), &options.files)?;
        }
        None => {
            if !writes {
                give(table.all())?;
                return Ok(directory);
            }
            let parameters: Vec<_> = table.all().collect();
            hub::save(&directory, &spec, &parameters, &options)?;
        }
    }
    Ok(directory)
}

/// Takes part in the reading of parameters that another process writes.
fn give<'a>(parameters: impl Iterator<Item = &'a Parameter>) -> Result<()> {
    for parameter in parameters {
        real_values(&parameter.tensor, &parameter.spec)?;
    }
    Ok(())
}

/// How PEFT names a model: `org/name` if it lies in Hugging Face's cache, otherwise its path.
fn base_name(path: &Path) -> String {
    let mut folders = path.components().rev().map(|part| part.as_os_str().to_string_lossy());
    let snapshot = (folders.next(), folders.next(), folders.next());
    if let (Some(_), Some(snapshots), Some(folder)) = snapshot
        && snapshots == "snapshots"
        && let Some(id) = folder.strip_prefix("models--")
        && let Some((org, name)) = id.split_once("--")
    {
        return format!("{org}/{name}");
    }
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_in_the_cache_has_its_name() {
        let cached = Path::new("/h/hub/models--org--a-name/snapshots/0123");
        assert_eq!(base_name(cached), "org/a-name");
        assert_eq!(base_name(Path::new("/models/base")), "/models/base");
    }
}
