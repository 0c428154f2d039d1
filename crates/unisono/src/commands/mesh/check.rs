//! `unisono mesh check`: whether descriptors are right, and what is wrong with them.

use crate::commands::descriptors;
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::numbers::counted;
use clap::Args;
use serde_json::{Value, json};
use unisono_mesh::MeshError;
use unisono_mesh::descriptor::{Checked, Problems};

/// Options of `mesh check`.
#[derive(Args)]
pub struct CheckArgs {
    /// Descriptors: files, or names of built-in ones
    #[arg(value_name = "FILE|NAME", required = true)]
    pub descriptors: Vec<String>,
}

/// See the module. Every descriptor is looked at; the exit code is that of wrong input if one of them is wrong.
///
/// # Errors
/// None; what is wrong with a descriptor is told with its verdict.
pub fn run(args: &CheckArgs, context: &Context) -> Result<u8, Failure> {
    let out = &context.out;
    let mut code = exit::OK;
    let mut rows = Vec::new();
    for name in &args.descriptors {
        match descriptors::open(name) {
            Ok(checked) => {
                for warning in checked.warnings.list() {
                    out.warn(format!("{name}:{warning}"));
                }
                out.result(verdict(name, &checked));
                for problem in checked.compatibility.list() {
                    out.result(format!("  {name}:{problem}"));
                }
                rows.push(right(name, &checked));
            }
            Err(error) => {
                code = exit::INPUT;
                rows.push(wrong(name, &error));
                // The one JSON object has it in its row.
                if !out.is_json() {
                    out.error(&Failure::input(&error));
                }
            }
        }
    }
    out.json(&json!({"exit_code": code, "descriptors": rows}));
    Ok(code)
}

/// One line: what the descriptor describes, and who takes it.
fn verdict(name: &str, checked: &Checked) -> String {
    let machine = &checked.machine;
    let links: usize = machine.blocks.iter().map(|block| block.links.len()).sum();
    let mut parts = vec![
        several(machine.meshes().count(), "mesh", "meshes"),
        counted(machine.num_devices(), "device"),
        counted(machine.hosts().len(), "host"),
        counted(links, "link"),
    ];
    if machine.switches().next().is_some() {
        parts.insert(1, several(machine.switches().count(), "switch", "switches"));
    }
    if !machine.connections.is_empty() {
        parts.push(counted(machine.connections.len(), "connection"));
    }
    let control_plane = match checked.compatibility.count() {
        0 => "the control plane takes it".to_owned(),
        count => format!("the control plane refuses it for {}", counted(count, "reason")),
    };
    format!("{name}: ok: {}; {control_plane}", parts.join(", "))
}

/// A count with a noun whose plural is no mere s.
fn several(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn list(problems: &Problems) -> Vec<Value> {
    let one = |problem: &unisono_mesh::descriptor::Problem| {
        json!({
            "line": problem.at.line,
            "column": problem.at.column,
            "field": problem.field,
            "message": problem.text,
        })
    };
    problems.list().iter().map(one).collect()
}

fn right(name: &str, checked: &Checked) -> Value {
    let machine = &checked.machine;
    json!({
        "descriptor": name,
        "ok": true,
        "compatible": checked.compatibility.is_empty(),
        "incompatibilities": list(&checked.compatibility),
        "warnings": list(&checked.warnings),
        "meshes": machine.meshes().count(),
        "switches": machine.switches().count(),
        "devices": machine.num_devices(),
        "hosts": machine.hosts().len(),
        "links": machine.blocks.iter().map(|block| block.links.len()).sum::<usize>(),
        "connections": machine.connections.len(),
    })
}

fn wrong(name: &str, error: &MeshError) -> Value {
    match error {
        MeshError::Descriptor(report) => json!({
            "descriptor": name,
            "ok": false,
            "stage": report.stage.name(),
            "problems": list(&report.problems),
            "left_off": report.problems.left_off(),
        }),
        other => json!({"descriptor": name, "ok": false, "error": other.to_string()}),
    }
}
