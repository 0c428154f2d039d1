//! The guide's tracker: a table of losses for a spreadsheet.
//!
//! `CONTRIBUTING.md` holds this file word by word; the test `the_examples_are_the_files` compares them.

use std::io::Write;
use unisono_tensor::{MeshDevice, Options};
use unisono_train::config::{Environment, load_text};
use unisono_train::dataset::Dataset;
use unisono_train::plan::check;
use unisono_train::run::Run;
use unisono_train::{Event, Tracker};

/// Writes a line a step: `step,loss,lr`; a step without any target has no loss.
struct Table<W: Write>(W);

impl<W: Write> Tracker for Table<W> {
    fn event(&mut self, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Step(step) => {
                let loss = step.loss.map_or_else(String::new, |loss| loss.to_string());
                writeln!(self.0, "{},{loss},{}", step.step, step.lr).map_err(|error| error.to_string())
            }
            Event::Evaluated { .. } | Event::Saved { .. } | Event::Warning(_) => Ok(()),
        }
    }
}

const CONFIG: &str = "
training_config: {batch_size: 8, max_steps: 5, num_samples: 100}
transformer_config: {model_type: linear, input_features: 3, output_features: 2}
";

#[test]
fn it_hears_of_every_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let loaded = load_text("run.yaml", CONFIG, &[], &Environment::of_process()).expect("the configuration is right");
    let dataset = Dataset::load(&loaded.config);
    let plan = check(&loaded, &dataset).expect("the plan is right");
    let device = MeshDevice::open(plan.mesh.clone(), Options::default()).expect("devices");
    let dataset = dataset.expect("the plan has seen it");
    let (mut run, _) = Run::open(&device, loaded.config, plan, dataset, folder.path(), None).expect("the run opens");
    let mut table = Table(Vec::new());
    run.train(&mut [&mut table], &|| false).expect("the run trains");
    let text = String::from_utf8(table.0).expect("text");
    assert_eq!(text.lines().count(), 5);
    assert!(text.starts_with("1,"), "{text}");
}
