//! `unisono init`: a commented `run.yaml` to begin with.

use super::DONE;
use crate::cli::InitArgs;
use crate::context::Context;
use crate::exit::Failure;
use serde_json::json;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use unisono_train::config::{PRESETS, preset};

/// See the module.
///
/// # Errors
/// A preset that there is not, or a file that is there already or cannot be written.
pub fn run(args: &InitArgs, context: &Context) -> Result<u8, Failure> {
    let Some(text) = preset(&args.preset) else {
        let known: Vec<String> = PRESETS
            .iter()
            .map(|(name, what, _)| format!("  {name}: {what}"))
            .collect();
        return Err(Failure::input(format!(
            "--preset {}: there is no such preset; the presets are\n{}",
            args.preset,
            known.join("\n")
        )));
    };
    let shown = args.file.display();
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&args.file)
        .and_then(|mut file| {
            let result = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
            if result.is_err() {
                // A file that was new a moment ago: nobody misses its beginning.
                let _ = std::fs::remove_file(&args.file);
            }
            result
        });
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::input(format!(
            "{shown} exists already and is left as it is; name another file"
        )),
        _ => Failure::running(format!("{shown} cannot be written: {error}")),
    })?;
    context.out.say(format!(
        "wrote {shown} (preset {}); next: unisono check -c {shown}, unisono train -c {shown}",
        args.preset
    ));
    context
        .out
        .json(&json!({"file": args.file.display().to_string(), "preset": args.preset}));
    DONE
}
