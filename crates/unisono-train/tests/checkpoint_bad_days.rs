//! Damage, kills, full disks and rotation: a good checkpoint always remains. FAULTS 17, 31, 38.

mod checkpoint_support;

use checkpoint_support::{Run, contents, names};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use unisono_train::checkpoint::{
    Checkpoint, CheckpointError, Checkpoints, Cleaned, Holds, Keep, Writer, load, load_parameters,
};

const PLAIN: Keep = Keep { last: 2, best: false };

/// Two checkpoints, of steps 1 and 2.
fn two(directory: &Path) -> Checkpoints {
    let store = Checkpoints::new(directory);
    let mut run = Run::new(&[("tp", 2)], 1);
    for step in 1..=2 {
        run.train(step);
        run.save_to(&store, PLAIN).expect("it is saved");
    }
    store
}

/// Changes a file of the newest checkpoint and says what loading answers.
fn damaged(file: &str, change: impl FnOnce(&mut Vec<u8>)) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = two(directory.path());
    let path = directory.path().join("step-00000002").join(file);
    let mut bytes = std::fs::read(&path).expect("a file");
    change(&mut bytes);
    std::fs::write(&path, bytes).expect("it is written");
    let error = store.newest().expect_err("it is damaged");
    let by_path = load(&directory.path().join("step-00000002")).expect_err("it is damaged");
    assert_eq!(error, by_path);
    let text = error
        .to_string()
        .replace(&directory.path().display().to_string(), "RUN");
    (directory, text)
}

const OFFER: &str = "; the checkpoint before it, RUN/step-00000001, is good: resume with --resume RUN/step-00000001";

#[test]
fn a_file_that_was_cut_short_is_named_and_the_one_before_offered() {
    let mut size = 0;
    let (_directory, text) = damaged("optimizer.safetensors", |bytes| {
        size = bytes.len();
        bytes.truncate(size - 100);
    });
    let expected = format!(
        "RUN/step-00000002/optimizer.safetensors is damaged: it has {} bytes, {size} were written{OFFER}",
        size - 100
    );
    assert_eq!(text, expected);
}

#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    let (_directory, text) = damaged("model.safetensors", |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
    });
    assert!(
        text.starts_with("RUN/step-00000002/model.safetensors is damaged: its ") && text.ends_with(OFFER),
        "{text}"
    );
    // Any byte of the manifest: its hash's name and digits, its punctuation, a digit of the state.
    for place in [3, 20, 78, 100, 130, 200, 300] {
        let (_directory, text) = damaged("manifest.json", |bytes| bytes[place] ^= 0x01);
        assert!(
            text.starts_with("RUN/step-00000002/manifest.json is damaged: ") && text.ends_with(OFFER),
            "byte {place}: {text}"
        );
    }
}

#[test]
fn a_missing_file_is_named_and_damage_to_all_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = two(directory.path());
    std::fs::remove_file(directory.path().join("step-00000002/model.safetensors")).expect("it is removed");
    let text = store.newest().expect_err("it is damaged").to_string();
    assert!(
        text.contains("step-00000002/model.safetensors is damaged: it is missing; the checkpoint before it"),
        "{text}"
    );
    std::fs::write(directory.path().join("step-00000001/model.safetensors"), b"?").expect("it is written");
    let text = store.newest().expect_err("it is damaged").to_string();
    assert!(
        text.contains("it is missing; no older checkpoint beside it is good: put the file back from a copy"),
        "{text}"
    );
}

#[test]
fn parameters_are_loaded_whatever_the_optimizers_files_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = two(directory.path());
    let newest = directory.path().join("step-00000002");
    let whole = load_parameters(&newest).expect("it is good");
    assert!(whole.manifest().tensors.iter().all(|row| row.kind == Holds::Parameter));
    std::fs::write(newest.join("optimizer.safetensors"), b"?").expect("it is written");
    load(&newest).expect_err("it is damaged");
    let damaged = store.newest_parameters().expect("the parameters are good");
    for row in &whole.manifest().tensors {
        let bytes = |checkpoint: &Checkpoint| {
            checkpoint
                .bytes(Holds::Parameter, &row.name)
                .expect("it is held")
                .to_vec()
        };
        assert_eq!(bytes(&whole), bytes(&damaged), "{}", row.name);
    }
    std::fs::remove_file(newest.join("optimizer.safetensors")).expect("it is removed");
    load_parameters(&newest).expect("the parameters are good");
    // The model's own file is looked at as ever.
    std::fs::write(newest.join("model.safetensors"), b"?").expect("it is written");
    let text = store.newest_parameters().expect_err("it is damaged").to_string();
    assert!(
        text.contains("step-00000002/model.safetensors is damaged: it has 1 bytes"),
        "{text}"
    );
}

#[test]
fn another_format_is_told_by_its_version() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = two(directory.path());
    let path = directory.path().join("step-00000002/manifest.json");
    std::fs::write(&path, r#"{"format": 7, "unisono": "3.1.0", "layers": []}"#).expect("it is written");
    let text = store.newest().expect_err("it is of another format").to_string();
    assert!(
        text.contains("step-00000002 has checkpoint format 7, written by unisono 3.1.0; this is unisono "),
        "{text}"
    );
    assert!(
        text.contains("which reads format 1: use the version that wrote it"),
        "{text}"
    );
}

#[test]
fn what_is_no_checkpoint_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let says = |path: &Path, text: &str| {
        let error = load(path).expect_err("there is nothing to load").to_string();
        assert!(error.contains(text), "{error}");
    };
    says(
        &here.join("nowhere"),
        "nowhere is no checkpoint: there is no such directory",
    );
    std::fs::write(here.join("file"), "").expect("it is written");
    says(
        &here.join("file"),
        "file is no checkpoint: it is a file; name the run's directory",
    );
    says(
        here,
        "holds no complete checkpoint; train without --resume to begin at step 0",
    );
    let half = here.join("checkpoints/step-00000009");
    std::fs::create_dir_all(&half).expect("it is made");
    std::fs::write(half.join("model.safetensors"), "").expect("it is written");
    says(&half, "it has no manifest.json, so it was not written to its end");
    says(
        here,
        "checkpoints/step-00000009 has no manifest.json and was passed over",
    );
}

#[test]
fn half_written_directories_are_passed_over_and_cleaned() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let store = two(here);
    let half = here.join(".unisono-tmp-new-77-0");
    std::fs::create_dir(&half).expect("it is made");
    std::fs::write(half.join(".unisono-tmp-77-3-model.safetensors"), "half").expect("it is written");
    std::fs::write(here.join(".unisono-tmp-77-4-latest"), "step-0").expect("it is written");
    let listing = store.find().expect("it is read");
    assert_eq!(
        listing.complete.iter().map(|found| found.step).collect::<Vec<_>>(),
        [2, 1]
    );
    assert_eq!(listing.ignored.len(), 2, "{:?}", listing.ignored);
    assert_eq!(store.newest().expect("it is good").manifest().state.step, 2);
    let cleaned = store.clean().expect("it is cleaned");
    assert_eq!(cleaned.removed.len(), 2, "{cleaned:?}");
    assert_eq!(names(here), ["latest", "step-00000001", "step-00000002"]);
    // Killed between taking the old one's name away and giving it to the new one.
    std::fs::rename(
        here.join("step-00000002"),
        here.join(".unisono-tmp-replaced-step-00000002"),
    )
    .expect("it is renamed");
    let cleaned = store.clean().expect("it is cleaned");
    let expected = Cleaned {
        removed: Vec::new(),
        recovered: vec!["step-00000002".to_string()],
    };
    assert_eq!(cleaned, expected);
    assert_eq!(store.newest().expect("it is good").manifest().state.step, 2);
    // Nothing to do where there is nothing.
    assert_eq!(
        Checkpoints::new(here.join("none")).clean().expect("nothing"),
        Cleaned::default()
    );
}

#[test]
fn rotation_keeps_the_last_and_the_best() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let store = Checkpoints::new(here);
    let mut run = Run::new(&[], 1);
    let mut deleted = Vec::new();
    for step in 1..=6 {
        run.train(step);
        let keep = Keep {
            last: 2,
            best: step == 1 || step == 3,
        };
        deleted.extend(run.save_to(&store, keep).expect("it is saved").deleted);
    }
    assert_eq!(
        names(here),
        ["best", "latest", "step-00000003", "step-00000005", "step-00000006"]
    );
    let text = |name: &str| std::fs::read_to_string(here.join(name)).expect("a pointer");
    assert_eq!(
        (text("best").as_str(), text("latest").as_str()),
        ("step-00000003\n", "step-00000006\n")
    );
    assert_eq!(deleted.len(), 3);
    assert_eq!(store.best().expect("it is read").map(|found| found.step), Some(3));
    // The same step again replaces it.
    let keep = Keep { last: 2, best: true };
    let saved = run.save_to(&store, keep).expect("it is saved");
    assert!(load(&saved.path).expect("it is good").manifest().best);
    assert_eq!(names(here), ["best", "latest", "step-00000005", "step-00000006"]);
    // Back to step 5: what came after is gone, and the best with it.
    assert_eq!(store.rewind(5).expect("it goes back"), [here.join("step-00000006")]);
    assert_eq!(names(here), ["latest", "step-00000005"]);
    assert_eq!(text("latest"), "step-00000005\n");
}

/// How the child saves: at once, or behind the steps that follow.
const WAYS: [&str; 2] = ["at once", "behind"];

/// Saves checkpoints without end when the test starts this file's program again as a child; does nothing otherwise.
#[test]
fn child_that_saves() {
    let Some(directory) = std::env::var_os("UNISONO_TEST_SAVE_INTO") else {
        return;
    };
    let behind = std::env::var("UNISONO_TEST_SAVE_WAY").is_ok_and(|way| way == WAYS[1]);
    let store = Checkpoints::new(directory);
    store.clean().expect("it is cleaned");
    let mut run = Run::new(&[("dp", 2)], 1);
    if let Ok(checkpoint) = store.newest() {
        let _ = run.restore(&checkpoint);
    }
    let mut writer = Writer::new(store.clone());
    loop {
        let step = run.state.step + 1;
        run.train(step);
        let keep = Keep {
            last: 2,
            best: step.is_multiple_of(3),
        };
        let saved = match behind {
            true => writer
                .wait()
                .and_then(|saved| writer.start(&run.live(), keep).map(|()| saved)),
            false => run.save_to(&store, keep).map(Some),
        };
        match saved {
            Ok(Some(saved)) => println!("SAVED: {}", saved.step),
            Ok(None) => {}
            Err(error) => {
                println!("SAID: {error}");
                return;
            }
        }
    }
}

fn child(directory: &Path, way: &str, before: &str) -> Command {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("{before} exec \"$0\" --exact child_that_saves --nocapture"))
        .arg(program)
        .env("UNISONO_TEST_SAVE_INTO", directory)
        .env("UNISONO_TEST_SAVE_WAY", way)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// kill -9 at twenty moments, in the midst of checkpoints that are written at once and of such that are written behind the
/// steps: a complete checkpoint remains each time, the next start cleans up and goes on, and the end equals a run that nobody
/// killed.
#[test]
fn kills_at_any_moment_leave_a_good_checkpoint() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let store = Checkpoints::new(here);
    let mut last = 0;
    for round in 0..20u64 {
        let way = WAYS[round as usize % 2];
        let mut child = child(here, way, "").spawn().expect("the child starts");
        // Until it has saved something; then a moment that differs from round to round.
        let begun = std::time::Instant::now();
        while store
            .find()
            .expect("it is read")
            .complete
            .first()
            .is_none_or(|found| found.step <= last)
        {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "round {round}: nothing was saved after step {last}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(1_700 * round));
        child.kill().expect("it is killed");
        child.wait().expect("it ends");
        let newest = store.newest().expect("a good checkpoint remains");
        assert!(newest.manifest().state.step > last);
        last = newest.manifest().state.step;
    }
    store.clean().expect("it is cleaned");
    assert!(
        names(here).iter().all(|name| !name.starts_with('.')),
        "{:?}",
        names(here)
    );
    let mut straight = Run::new(&[], 1);
    straight.train(last);
    let straight = straight.save(&here.join("straight"));
    let survivor = contents(store.newest().expect("it is good").path());
    assert_eq!(
        contents(&straight)[1..],
        survivor[1..],
        "after {last} steps and 20 kills"
    );
}

/// A file that may not grow any more, as on a full disk: the older checkpoint stays good and nothing lies about.
#[cfg(unix)]
#[test]
fn a_full_disk_leaves_the_older_checkpoint_and_no_litter() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let store = two(here);
    let before: Vec<_> = ["step-00000001", "step-00000002"]
        .iter()
        .map(|name| contents(&here.join(name)))
        .collect();
    for way in WAYS {
        // Blocks of 512 bytes; the signal that would end the child is ignored, so that the write fails instead.
        let output = child(here, way, "trap '' XFSZ; ulimit -f 60;")
            .stdout(Stdio::piped())
            .output()
            .expect("the child runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            said.contains("SAID: cannot write ") && said.contains("model.safetensors: "),
            "{way}: {said}"
        );
        assert!(!said.contains("SAVED"), "{way}: {said}");
        assert_eq!(names(here), ["latest", "step-00000001", "step-00000002"], "{way}");
        let after: Vec<_> = ["step-00000001", "step-00000002"]
            .iter()
            .map(|name| contents(&here.join(name)))
            .collect();
        assert!(before == after, "{way}");
        store.newest().expect("it is good");
    }
}

#[cfg(unix)]
#[test]
fn a_place_that_cannot_be_written_is_said() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let mut run = Run::new(&[], 1);
    run.train(1);
    std::fs::write(here.join("checkpoints"), "a file").expect("it is written");
    let save = |path: &Path| run.save_to(&Checkpoints::new(path), PLAIN);
    let error = save(&here.join("checkpoints")).expect_err("a file is in the way");
    assert!(matches!(error, CheckpointError::Data(_)), "{error}");
    assert_eq!(names(here), ["checkpoints"]);
    // Permissions do not bind the superuser, under whom the next part shows nothing.
    let locked = here.join("locked");
    std::fs::create_dir(&locked).expect("it is made");
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o555)).expect("it is locked");
    if std::fs::write(locked.join("probe"), "").is_err() {
        let error = save(&locked).expect_err("it is read-only").to_string();
        assert!(
            error.starts_with("cannot write ") && error.ends_with("permission denied; check its owner and mode"),
            "{error}"
        );
        assert!(names(&locked).is_empty());
    }
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o755)).expect("it is unlocked");
}
