//! The character GPT as a program: configuration, plan, training with a tracker of one's own, text.
//!
//! `cargo run --release --example char_gpt`

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use unisono::prelude::*;

/// Prints a line each hundred steps.
struct Lines;

impl Tracker for Lines {
    fn event(&mut self, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Step(record) if record.step % 100 == 0 => {
                // Text always has targets, and so a loss.
                println!("step {:4}  loss {:.4}", record.step, record.loss.unwrap_or(f32::NAN))
            }
            Event::Evaluated { step, evaluation } => println!("step {step:4}  validation {:.4}", evaluation.loss),
            _ => {}
        }
        Ok(())
    }
}

/// Trains the preset with some keys changed, in a folder, and lets it write; the last loss and the text.
pub fn train(changes: &[&str], folder: &Path) -> Result<(f32, String), Box<dyn Error>> {
    let yaml = preset("char-gpt").ok_or("the preset comes with the library")?;
    let changes: Vec<String> = changes.iter().map(|change| change.to_string()).collect();
    let loaded = load_text("char-gpt", yaml, &changes, &Environment::of_process())?;
    let dataset = Dataset::load(&loaded.config);
    // Everything that is wrong with a run is known here, at once.
    let plan = check(&loaded, &dataset).map_err(|problems| problems[0].to_string())?;
    println!("{}: {} parameters", plan.mesh.describe(), plan.num_parameters);

    let device = MeshDevice::open(plan.mesh.clone(), Options::default())?;
    let (mut run, _) = Run::open(&device, loaded.config, plan, dataset?, folder, None)?;
    let summary = run.train(&mut [&mut Lines], &|| false)?;

    let model = run.trainer.model.as_language_model().ok_or("the preset is a GPT")?;
    let tokenizer = run.dataset.tokenizer().ok_or("the preset trains on text")?;
    let request = TextRequest {
        prompt: "Once ".into(),
        max_new_tokens: 100,
        sampling: Sampling {
            temperature: 0.8,
            ..Sampling::default()
        },
    };
    let outputs = generate_text(model, tokenizer, &[request], &mut |_, _| ControlFlow::Continue(()))?;
    Ok((summary.loss.unwrap_or(f32::NAN), outputs[0].text.clone()))
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn Error>> {
    // Another mesh is another word, and no other loss: device_config.enable_ddp=true, device_config.mesh_shape=[2].
    let (loss, text) = train(&["training_config.max_steps=300"], Path::new("runs/char-gpt-example"))?;
    println!("last loss {loss:.4}\nOnce {text}");
    Ok(())
}
