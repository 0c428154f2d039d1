//! What every command is given: where its output goes, the environment, the instruction set.

use crate::cli::Common;
use crate::exit::Failure;
use crate::output::{Level, Out};
use crate::ranks::Ranks;
use crate::ranks::variables::{self, Prints};
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
    /// The processes of this run, where there are several.
    pub ranks: Option<Ranks>,
}

impl Context {
    /// From the options that all commands share and the process's environment; joins the other processes of the run, if `joins`.
    ///
    /// # Errors
    /// A variable of unisono's own with a value that means nothing, or processes that cannot join.
    pub fn new(common: &Common, joins: bool) -> Result<Context, Failure> {
        let environment = Environment::of_process();
        let level = Level::of(common, &environment.variables).map_err(Failure::input)?;
        let color = environment.variables.get("NO_COLOR").is_none_or(String::is_empty);
        let isa = match environment.variables.get("UNISONO_ISA").map(String::as_str) {
            None | Some("") => Isa::detect(),
            Some(name) => Isa::named(name).map_err(Failure::input)?,
        };
        let ranks = if joins {
            Ranks::join(&environment, common.json)?
        } else {
            None
        };
        let out = Out::new(level, common.quiet, common.json, color);
        let out = match &ranks {
            Some(ranks) => {
                let prints = variables::prints(ranks.rank(), ranks.size(), &environment.variables);
                let prints = ranks.are_one_program().and(prints);
                // From here on all processes end together, with one message.
                match prints.unwrap_or_else(|failure| ranks.farewell(&failure, &out)) {
                    Prints::Alone => out,
                    Prints::Result => out.of_rank(ranks.rank(), true),
                    Prints::Beside => out.of_rank(ranks.rank(), false),
                    Prints::Nothing => out.silenced(),
                }
            }
            None => out,
        };
        Ok(Context {
            out,
            ranks,
            environment,
            isa,
        })
    }
}
