//! `unisono check`: the plan of a run, or everything that is wrong with it. Nothing is run.

use super::system::System;
use super::{DONE, setup};
use crate::cli::CheckArgs;
use crate::context::Context;
use crate::exit::Failure;
use crate::machine::LoadProbe;
use crate::output::differences::Differences;
use crate::output::header::Header;
use serde_json::json;
use std::path::Path;
use unisono_mesh::MeshShape;
use unisono_mesh::descriptor::{Wish, select};
use unisono_runtime::machine::cores;
use unisono_train::Plan;
use unisono_train::config::Loaded;

/// See the module.
///
/// # Errors
/// Everything that is wrong with the run.
pub fn run(args: &CheckArgs, context: &Context) -> Result<u8, Failure> {
    let out = &context.out;
    let probe = LoadProbe::start();
    let overrides = setup::overrides(&args.changes, None)?;
    let loaded =
        setup::load(args.config.as_deref(), &overrides, context).map_err(|errors| setup::refused(&errors, context))?;
    setup::tell_notes(&loaded, context);
    let other = args.against.as_deref().map(|path| other(path, context)).transpose()?;
    let (plan, dataset) = setup::plan_elsewhere(&loaded)?;
    System::of(&plan.mesh, plan.machine.as_ref(), context)?;
    let header = Header {
        config: &loaded.config,
        plan: &plan,
        dataset: &dataset,
        isa: context.isa,
        workers: setup::workers(&loaded.config),
        cores: cores(),
        others: probe.others(),
        processes: None,
        mesh_flag: args.changes.mesh.as_deref(),
        trigram: dataset.trigram_loss()?,
    };
    header.print(out);
    if let Some(line) = machine_for(&plan) {
        out.say(line);
    }
    let mut differences = None;
    if let (Some(other), Some(path)) = (other, &args.against) {
        let found = Differences::of(&other.config, &loaded.config);
        let name = match &args.config {
            Some(file) => file.display().to_string(),
            None => "this".into(),
        };
        let lr = other.config.optimizer.rule.lr();
        found.print(out, &path.display().to_string(), &name, lr);
        differences = Some(found);
    }
    out.json(&json!({"plan": header.json(), "differences": differences}));
    DONE
}

/// Where no machine is named: a built-in one that would hold the mesh. Nothing depends on it, since the devices of a CPU take any
/// shape.
fn machine_for(plan: &Plan) -> Option<String> {
    if plan.machine.is_some() || plan.mesh.num_devices() == 1 {
        return None;
    }
    let shape = MeshShape::new(plan.mesh.physical_shape()).ok()?;
    let found = select(&shape, Wish::default()).ok()?;
    Some(format!(
        "machine    none named: {shape} would lie on {}, {} ({} devices); device_config.mesh_graph_descriptor holds a run to a machine",
        found.checked.file,
        found.fit.name(),
        found.checked.machine.num_devices()
    ))
}

/// The configuration to compare with: a run's own, or a YAML file.
fn other(path: &Path, context: &Context) -> Result<Loaded, Failure> {
    match path.is_dir() {
        true => {
            let named = crate::runs::find(path, &context.environment)?;
            setup::load_saved(&named.directory, &[], context)
        }
        false => setup::load(Some(path), &[], context).map_err(|errors| setup::refused(&errors, context)),
    }
}
