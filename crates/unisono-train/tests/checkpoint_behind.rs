//! Checkpoints written behind the run: the bytes, errors and pointers of those that are written at once, whatever the run
//! does meanwhile.

mod checkpoint_support;

use checkpoint_support::{Run, contents, names};
use std::path::Path;
use unisono_nn::Model;
use unisono_tensor::{MeshDevice, Options};
use unisono_train::checkpoint::{Checkpoints, Keep, Writer, load};
use unisono_train::config::{Environment, load_text};
use unisono_train::dataset::Dataset;
use unisono_train::plan::check;
use unisono_train::run::{Ending, Summary};
use unisono_train::{Event, Tracker, TrainError};

const KEEP: Keep = Keep { last: 2, best: true };

/// Every file of all checkpoints, and what points at them, by path, with its contents.
fn everything(store: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for name in names(store) {
        let path = store.join(&name);
        match path.is_dir() {
            true => all.extend(
                contents(&path)
                    .into_iter()
                    .map(|(file, bytes)| (format!("{name}/{file}"), bytes)),
            ),
            false => all.push((name, std::fs::read(&path).expect("a pointer"))),
        }
    }
    all
}

/// The steps that follow do not reach it, on any mesh: replicated and cut, padded (65 entries in 4 units) and whole. The second
/// and the third use the first one's memory.
#[test]
fn it_holds_what_was_there_when_it_began() {
    for axes in [&[][..], &[("dp", 2)], &[("tp", 2)], &[("dp", 2), ("tp", 2)]] {
        let directory = tempfile::tempdir().expect("a directory");
        let (at_once, behind) = (directory.path().join("at-once"), directory.path().join("behind"));
        let mut run = Run::new(axes, 1);
        let mut writer = Writer::new(Checkpoints::new(&behind));
        for step in [1, 3, 4] {
            run.train(step);
            let expected = run.save_to(&Checkpoints::new(&at_once), KEEP).expect("it is saved");
            writer.start(&run.live(), KEEP).expect("it begins");
            run.train(step + 1);
            let saved = writer.wait().expect("it is saved").expect("it was begun");
            assert_eq!((saved.step, saved.deleted.len()), (step, expected.deleted.len()));
            assert!(everything(&behind) == everything(&at_once), "{axes:?}, step {step}");
        }
        assert_eq!(
            names(&behind),
            ["best", "latest", "step-00000003", "step-00000004"],
            "{axes:?}"
        );
        assert_eq!(writer.wait().expect("nothing fails at rest"), None);
    }
}

/// What must not be saved is refused in the same words as at once; after that the writer works as before.
#[test]
fn refusals_are_those_of_a_checkpoint_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Checkpoints::new(directory.path());
    let mut writer = Writer::new(store.clone());
    let mut run = Run::new(&[("dp", 2)], 1);
    run.train(1);
    run.save_to(&store, KEEP).expect("it is saved");
    run.train(2);

    let table = &run.model.parameters()[1];
    let good = table.tensor.to_vec().expect("values");
    let mut values = good.clone();
    values[40] = f32::NAN;
    table.tensor.upload_global(&values).expect("it is copied");
    let words = run.save_to(&store, KEEP).expect_err("it is not finite").to_string();
    writer.start(&run.live(), KEEP).expect("copies are equal");
    let error = writer.wait().expect_err("it is not finite").to_string();
    assert!(error == words && error.contains("holds NaN at element 40"), "{error}");

    let two = [good.clone(), values].map(Into::into).to_vec();
    run.device
        .runtime()
        .upload(table.tensor.buffer(), unisono_runtime::HostData::F32PerDevice(two))
        .expect("it is copied");
    let words = run.save_to(&store, KEEP).expect_err("copies differ").to_string();
    let error = writer.start(&run.live(), KEEP).expect_err("copies differ").to_string();
    assert!(error == words && error.contains("on devices 0 and 1"), "{error}");
    assert_eq!(writer.wait().expect("nothing was begun"), None);
    assert_eq!(names(directory.path()), ["best", "latest", "step-00000001"]);

    table.tensor.upload_global(&good).expect("it is copied");
    writer.start(&run.live(), KEEP).expect("it begins");
    // Dropped, it waits.
    drop(writer);
    assert_eq!(store.newest().expect("it is good").manifest().state.step, 2);
}

/// Hears of a run, and does something at a checkpoint.
struct Ears<'a> {
    saved: Vec<u64>,
    at_saved: &'a dyn Fn(u64, &Path),
}

impl Tracker for Ears<'_> {
    fn event(&mut self, event: &Event<'_>) -> Result<(), String> {
        if let Event::Saved { step, path } = event {
            self.saved.push(*step);
            (self.at_saved)(*step, path);
        }
        Ok(())
    }
}

/// Trains a linear model for `steps` steps with a checkpoint each second one; stops when `stop` says so.
fn train(
    folder: &Path,
    steps: u64,
    ears: &mut Ears<'_>,
    stop: &dyn Fn() -> bool,
) -> (u64, Result<Summary, TrainError>) {
    let yaml = format!(
        "
training_config:
  {{batch_size: 8, max_steps: {steps}, num_samples: 100, eval_every: 0, model_save_interval: 2, keep_last: 100}}
transformer_config: {{model_type: linear, input_features: 3, output_features: 2}}
"
    );
    let loaded = load_text("run.yaml", &yaml, &[], &Environment::of_process()).unwrap_or_else(|e| panic!("{e}"));
    let dataset = Dataset::load(&loaded.config);
    let plan = check(&loaded, &dataset).unwrap_or_else(|problems| panic!("{}", problems[0]));
    let device = MeshDevice::open(plan.mesh.clone(), Options::default()).expect("devices open");
    let dataset = dataset.expect("the plan has seen it");
    let (mut run, _) =
        unisono_train::run::Run::open(&device, loaded.config, plan, dataset, folder, None).expect("the run opens");
    let summary = run.train(&mut [ears], stop);
    (run.state.step, summary)
}

/// Whoever is told of a checkpoint finds it there, and hears of each once: also of the one that a stop or the run's end has
/// waited for.
#[test]
fn it_is_told_of_when_it_is_there() {
    let is_there = |step, path: &Path| assert_eq!(load(path).expect("it is good").manifest().state.step, step);
    for (stop_at, steps) in [(u64::MAX, vec![2, 4, 6]), (3, vec![2, 3]), (4, vec![2, 4])] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ears = Ears {
            saved: Vec::new(),
            at_saved: &is_there,
        };
        let asked = std::cell::Cell::new(0);
        let stop = || {
            asked.set(asked.get() + 1);
            asked.get() == stop_at
        };
        let (_, summary) = train(folder.path(), 6, &mut ears, &stop);
        let summary = summary.expect("the run trains");
        assert_eq!(ears.saved, steps, "stopped at {stop_at}");
        let store = Checkpoints::new(folder.path().join("checkpoints"));
        let newest = store.find().expect("it is read").complete.remove(0);
        assert_eq!(summary.checkpoint, Some(newest.path));
        assert_eq!(Some(&newest.step), steps.last());
        assert_eq!(summary.ending == Ending::Stopped, stop_at < 6);
    }
}

/// A disk that refuses a checkpoint behind the run ends the run, with the words of the disk.
#[test]
fn a_refusal_behind_the_run_ends_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (checkpoints, away) = (folder.path().join("checkpoints"), folder.path().join("away"));
    let put_away = |step, _: &Path| {
        if step == 2 {
            std::fs::rename(&checkpoints, &away).expect("it is moved");
            std::fs::write(&checkpoints, "in the way").expect("it is written");
        }
    };
    let mut ears = Ears {
        saved: Vec::new(),
        at_saved: &put_away,
    };
    let (step, summary) = train(folder.path(), 1_000_000, &mut ears, &|| false);
    let error = summary.expect_err("a file is in the way").to_string();
    assert!(
        error.starts_with("cannot write ") && error.contains("checkpoints"),
        "{error}"
    );
    assert!(step < 1_000_000 && ears.saved == [2], "{step} {:?}", ears.saved);
    let first = load(&away.join("step-00000002")).expect("the one before is good");
    assert_eq!(first.manifest().state.step, 2);
}
