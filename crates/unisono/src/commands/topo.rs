//! `unisono topo`: which device is how near to which.

use super::{DONE, descriptors};
use crate::context::Context;
use crate::exit::Failure;
use clap::Args;
use serde_json::json;
use std::collections::BTreeMap;
use unisono_mesh::topology::{Matrix, of_descriptor};

/// Options of `topo`.
#[derive(Args)]
pub struct TopoArgs {
    /// A mesh graph descriptor, a file or the name of a built-in one [default: this machine's processors]
    #[arg(value_name = "FILE|NAME")]
    pub descriptor: Option<String>,
}

/// See the module.
///
/// # Errors
/// A descriptor that cannot be read or is wrong.
pub fn run(args: &TopoArgs, context: &Context) -> Result<u8, Failure> {
    let out = &context.out;
    let width = out.width(&context.environment.variables);
    let (lines, matrix) = match &args.descriptor {
        Some(name) => (Vec::new(), of_descriptor(&descriptors::load(name, context)?.machine)),
        None => {
            let cpus = descriptors::processors();
            (cpus.describe(), cpus.matrix(width))
        }
    };
    for line in &lines {
        out.result(line);
    }
    if !lines.is_empty() {
        out.result("");
    }
    out.piece(&matrix.text(width));
    out.json(&json!({
        "machine": lines,
        "names": matrix.names,
        "codes": matrix.codes,
        "affinity": affinity(&matrix),
        "legend": matrix.legend.iter().cloned().collect::<BTreeMap<String, String>>(),
    }));
    DONE
}

/// What is known of each row, by heading.
fn affinity(matrix: &Matrix) -> Vec<serde_json::Map<String, serde_json::Value>> {
    let row = |values: &Vec<String>| {
        let named = matrix.headings.iter().zip(values);
        named.map(|(heading, value)| (heading.clone(), json!(value))).collect()
    };
    matrix.affinity.iter().map(row).collect()
}
