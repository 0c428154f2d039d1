//! What every command is given: where its output goes, the environment, the instruction set.

use crate::cli::Common;
use crate::exit::Failure;
use crate::output::{Level, Out};
use crate::ranks::{self, Ranks};
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
    /// The processes of this run, where there are several and the command is one that they run together.
    pub ranks: Option<Ranks>,
}

impl Context {
    /// From the options that all commands share and the process's environment; `together` joins the other processes of the run.
    ///
    /// # Errors
    /// A variable of unisono's own with a value that means nothing, or processes that cannot join.
    pub fn new(common: &Common, together: bool) -> Result<Context, Failure> {
        let environment = Environment::of_process();
        let level = Level::of(common, &environment.variables).map_err(Failure::input)?;
        let color = environment.variables.get("NO_COLOR").is_none_or(String::is_empty);
        let isa = match environment.variables.get("UNISONO_ISA").map(String::as_str) {
            None | Some("") => Isa::detect(),
            Some(name) => Isa::named(name).map_err(Failure::input)?,
        };
        let ranks = if together { Ranks::join(&environment)? } else { None };
        let prints = match &ranks {
            Some(ranks) => ranks::prints(ranks.rank(), &environment.variables)?,
            None => true,
        };
        let out = Out::new(level, common.quiet, common.json, color);
        Ok(Context {
            out: if prints { out } else { out.silenced() },
            ranks,
            environment,
            isa,
        })
    }
}
