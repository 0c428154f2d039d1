//! `unisono mesh list`: the built-in descriptors.

use crate::commands::{DONE, descriptors};
use crate::context::Context;
use crate::exit::Failure;
use clap::Args;
use serde_json::json;
use unisono_mesh::descriptor::{BUILTINS, Builtin, Checked};

/// Options of `mesh list`.
#[derive(Args)]
pub struct ListArgs {
    /// Print the text of this one, to begin a file of your own with
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

/// See the module.
///
/// # Errors
/// A name that there is not.
pub fn run(args: &ListArgs, context: &Context) -> Result<u8, Failure> {
    let out = &context.out;
    if let Some(name) = &args.name {
        let text = match name.as_str() {
            descriptors::THIS_MACHINE => descriptors::this_machine_text(),
            name => Builtin::named(name).map_err(Failure::input)?.text.to_owned(),
        };
        out.piece(&text);
        out.json(&json!({"name": name, "descriptor": text}));
        return DONE;
    }
    let this = descriptors::this_machine();
    let built_in = BUILTINS
        .into_iter()
        .map(|builtin| (builtin.name, builtin.about(), builtin.checked()));
    let mut rows = Vec::new();
    let about = "This machine: its cores, a row for each NUMA node.".to_owned();
    for (name, about, checked) in built_in.chain([(descriptors::THIS_MACHINE, about, this)]) {
        let block = &checked.machine.blocks[0];
        let arch = block.arch.name();
        out.result(format!(
            "{} {:7} {arch:11} {about}",
            out.bold(&format!("{name:18}")),
            dims(&checked)
        ));
        rows.push(json!({
            "name": name,
            "dims": block.shape.sizes(),
            "arch": arch,
            "hosts": checked.machine.hosts().len(),
            "about": about,
        }));
    }
    out.json(&rows);
    DONE
}

/// The shape of the only mesh, for example `4×8`.
fn dims(checked: &Checked) -> String {
    let sizes = checked.machine.blocks[0].shape.sizes().iter();
    sizes.map(usize::to_string).collect::<Vec<_>>().join("×")
}
