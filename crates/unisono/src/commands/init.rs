//! `unisono init`: a commented `run.yaml` to begin with.

use super::DONE;
use super::setup::write_new;
use crate::cli::InitArgs;
use crate::context::Context;
use crate::exit::Failure;
use serde_json::json;
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
    write_new(&args.file, text)?;
    context.out.say(format!(
        "wrote {shown} (preset {}); next: unisono check -c {shown}, unisono train -c {shown}",
        args.preset
    ));
    context
        .out
        .json(&json!({"file": args.file.display().to_string(), "preset": args.preset}));
    DONE
}
