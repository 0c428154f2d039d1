//! How fast devices meet, in one process or each in one of its own (under `mpirun` or `unisono run`): all-reduce and all-gather of few bytes and of many, over 2, 4 and 8 devices of one process,
//! or a device for each of several.
//!
//! A sample begins when the devices have nothing to do and are awake, and ends when the host knows that all have the result. That is
//! what a process of Gloo or MPI measures between two barriers. An all-reduce works in place, as theirs do; the size of an
//! all-gather is that of its result, of which each device brings 4 bytes at least.

use super::{median, processor};
use crate::cli::BenchArgs;
use crate::commands::{DONE, setup};
use crate::context::Context;
use crate::exit::Failure;
use serde::Serialize;
use serde_json::json;
use std::time::Instant;
use unisono_mesh::MeshView;
use unisono_runtime::ops::all_reduce::{AllReduce, Reduction};
use unisono_runtime::ops::exchange::Barrier;
use unisono_runtime::ops::fill::Fill;
use unisono_runtime::ops::gather::AllGather;
use unisono_runtime::{BufferRef, Command, Kind, Runtime};
use unisono_tensor::{Mesh, Options, Result};

/// The name by which `unisono bench` knows them.
pub const NAME: &str = "collectives";
/// Devices that meet.
const DEVICES: [usize; 3] = [2, 4, 8];
/// Bytes of each result, and samples.
const SIZES: [(usize, usize); 4] = [(4, 2000), (64 << 10, 500), (1 << 20, 100), (42_000_000, 11)];

/// One line of the result.
#[derive(Serialize)]
struct Row {
    collective: &'static str,
    devices: usize,
    bytes: usize,
    microseconds: f64,
    least_microseconds: f64,
    gbytes_per_s: f64,
}

/// See the module.
///
/// # Errors
/// Too little memory.
pub fn run(args: &BenchArgs, context: &Context) -> std::result::Result<u8, Failure> {
    let out = &context.out;
    let workers = args.threads.unwrap_or_else(unisono_runtime::machine::cores);
    out.say(format!(
        "{}, {workers} workers, medians; devices awake, a result of so many bytes on each",
        processor()
    ));
    let of = if context.ranks.is_some() {
        "processes"
    } else {
        "devices"
    };
    let mut rows = Vec::new();
    let groups = match &context.ranks {
        Some(ranks) => vec![ranks.size()],
        None => DEVICES.to_vec(),
    };
    for devices in groups {
        let options = Options {
            workers: Some(workers),
            isa: Some(context.isa),
            ..Options::default()
        };
        let mesh = Mesh::new(&[("dp", devices)]).map_err(Failure::input)?;
        let device = match &context.ranks {
            Some(ranks) => {
                let processes = ranks.processes(&mesh, None)?;
                setup::opened(MeshView::whole(mesh), processes, options, context)?
            }
            None => setup::alone(mesh, options)?,
        };
        for (bytes, samples) in SIZES {
            for collective in ["all-reduce", "all-gather"] {
                let row = measure(device.runtime(), collective, bytes, samples, context)?;
                out.result(format!(
                    "  {collective} over {devices} {of}, {:>10} B {:>12.1} µs (least {:.1}) {:>8.2} GB/s",
                    row.bytes, row.microseconds, row.least_microseconds, row.gbytes_per_s
                ));
                rows.push(row);
            }
        }
    }
    out.json(&json!({
        "cpu": processor(),
        "isa": context.isa.name(),
        "workers": workers,
        "collectives": rows,
    }));
    DONE
}

fn measure(
    runtime: &Runtime,
    collective: &'static str,
    bytes: usize,
    samples: usize,
    context: &Context,
) -> std::result::Result<Row, Failure> {
    let axis = runtime.mesh().axis_at(0).map_err(Failure::running)?;
    let elements = match collective {
        // Its parts are equal.
        "all-gather" => (bytes / 4).next_multiple_of(axis.size),
        _ => bytes / 4,
    };
    let alloc = |len: usize| runtime.alloc(len, Kind::Data).map_err(Failure::running);
    let whole = alloc(elements)?;
    let part = alloc(elements.div_ceil(axis.size))?;
    for buffer in [whole.r(), part.r()] {
        let fill = Fill { to: buffer, value: 1.0 };
        runtime.issue(fill).map_err(Failure::running)?;
    }
    let command = || -> Command {
        match collective {
            "all-reduce" => AllReduce {
                axis,
                reduction: Reduction::Sum { units: axis.size },
                from: whole.r(),
                slot: elements,
                len: elements,
                to: whole.r(),
            }
            .into(),
            _ => AllGather {
                axis,
                root: None,
                outer: 1,
                inner: elements / axis.size,
                from: part.r(),
                to: whole.r(),
            }
            .into(),
        }
    };
    let seconds = samples_of(runtime, whole.r(), &command, samples)?;
    // What the slowest process saw.
    let seconds = match &context.ranks {
        Some(ranks) => ranks.largest(&seconds)?,
        None => seconds,
    };
    let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let middle = median(seconds);
    Ok(Row {
        collective,
        devices: axis.size,
        bytes,
        microseconds: 1e6 * middle,
        least_microseconds: 1e6 * least,
        gbytes_per_s: 4.0 * elements as f64 / middle / 1e9,
    })
}

/// Seconds of each sample.
fn samples_of(runtime: &Runtime, whole: BufferRef, command: &dyn Fn() -> Command, samples: usize) -> Result<Vec<f64>> {
    let mut seconds = Vec::with_capacity(samples);
    for sample in 0..samples + samples / 10 + 2 {
        runtime.issue(Fill { to: whole, value: 1.0 })?;
        if runtime.processes().size() > 1 {
            runtime.issue(Barrier {
                axis: runtime.mesh().all(),
            })?;
        }
        runtime.sync()?;
        let start = Instant::now();
        runtime.issue(command())?;
        runtime.sync()?;
        if sample >= samples / 10 + 2 {
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    Ok(seconds)
}
