//! What every command is given: where its output goes, the environment, the instruction set.

use crate::cli::Common;
use crate::exit::Failure;
use crate::output::{Level, Out};
use unisono_kernels::isa::Isa;
use unisono_train::config::Environment;

/// See the module.
pub struct Context {
    /// Where output goes.
    pub out: Out,
    /// Variables and working folder.
    pub environment: Environment,
    /// The instruction set of the kernels.
    pub isa: Isa,
}

impl Context {
    /// From the options that all commands share and the process's environment.
    ///
    /// # Errors
    /// A variable of unisono's own with a value that means nothing.
    pub fn new(common: &Common) -> Result<Context, Failure> {
        let environment = Environment::of_process();
        let level = Level::of(common, &environment.variables).map_err(Failure::input)?;
        let color = environment.variables.get("NO_COLOR").is_none_or(String::is_empty);
        let isa = match environment.variables.get("UNISONO_ISA").map(String::as_str) {
            None | Some("") => Isa::detect(),
            Some(name) => Isa::named(name).map_err(Failure::input)?,
        };
        Ok(Context {
            out: Out::new(level, common.quiet, common.json, color),
            environment,
            isa,
        })
    }
}
