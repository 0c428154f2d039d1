//! `unisono mesh new`: writes a descriptor of one mesh.

use crate::commands::DONE;
use crate::commands::setup::write_new;
use crate::context::Context;
use crate::exit::Failure;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use unisono_mesh::descriptor::{Architecture, NewMesh, Policy, parse_sizes};

/// Options of `mesh new`.
#[derive(Args)]
pub struct NewArgs {
    /// Devices along each dimension: 4x8
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    pub shape: Sizes,
    /// A dimension that is closed to a ring, counted from 0; again for another
    #[arg(long, value_name = "DIM")]
    pub ring: Vec<usize>,
    /// Hosts along each dimension: 1x2 [default: one host]
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    pub hosts: Option<Sizes>,
    /// What the devices are: cpu, cuda, wormhole_b0, blackhole
    #[arg(long, value_name = "ARCH", default_value = "cpu", value_parser = arch)]
    pub arch: Architecture,
    /// Lanes of each link
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub channels: u32,
    /// Whether every link must have that many lanes: relaxed, strict
    #[arg(long, value_name = "POLICY", default_value = "relaxed", value_parser = policy)]
    pub policy: Policy,
    /// File to write; never over one [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Devices or hosts along each dimension.
#[derive(Clone, Debug)]
pub struct Sizes(Vec<usize>);

fn sizes(text: &str) -> Result<Sizes, String> {
    let parsed = parse_sizes(text).map_err(|_| "sizes have x between them, for example 4x8".to_owned());
    parsed.map(Sizes)
}

fn arch(text: &str) -> Result<Architecture, String> {
    let wanted = text.to_ascii_uppercase();
    let found = Architecture::ALL.into_iter().find(|arch| arch.name() == wanted);
    found.ok_or_else(|| {
        format!(
            "the architectures are {}",
            Architecture::ALL.map(Architecture::name).join(", ")
        )
    })
}

fn policy(text: &str) -> Result<Policy, String> {
    let policies = [Policy::Relaxed, Policy::Strict];
    let found = policies
        .into_iter()
        .find(|policy| policy.name().eq_ignore_ascii_case(text));
    found.ok_or_else(|| "the policies are relaxed and strict".to_owned())
}

/// See the module.
///
/// # Errors
/// What the check of descriptors refuses, or a file that is there already or cannot be written.
pub fn run(args: &NewArgs, context: &Context) -> Result<u8, Failure> {
    let new = NewMesh {
        shape: args.shape.0.clone(),
        rings: args.ring.clone(),
        hosts: args.hosts.as_ref().map(|hosts| hosts.0.clone()),
        arch: args.arch,
        channels: args.channels,
        policy: args.policy,
    };
    let (text, checked) = new.write().map_err(Failure::input)?;
    match &args.out {
        Some(path) => {
            let shown = path.display();
            write_new(path, &text)?;
            context
                .out
                .say(format!("wrote {shown}; next: unisono mesh show {shown}"));
        }
        None => context.out.piece(&text),
    }
    context.out.json(&json!({
        "descriptor": text,
        "file": args.out,
        "devices": checked.machine.num_devices(),
        "hosts": checked.machine.hosts().len(),
        "compatible": checked.compatibility.is_empty(),
    }));
    DONE
}
