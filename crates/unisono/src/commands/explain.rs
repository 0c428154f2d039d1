//! `unisono explain`: a collective step by step, and what it costs.

use super::{DONE, descriptors};
use crate::context::Context;
use crate::exit::Failure;
use clap::{Args, ValueEnum};
use serde_json::json;
use unisono_mesh::descriptor::{Block, Checked};
use unisono_mesh::schedule::{
    Algorithm, Collective, Group, Question, Reduction, Schedule, Topology, check_links, explain,
};

/// The largest payload that can be asked about: 1 PiB.
const MAX_BYTES: u64 = 1 << 50;

/// Options of `explain`.
#[derive(Args)]
pub struct ExplainArgs {
    /// Which collective
    #[arg(value_enum)]
    pub collective: CollectiveName,
    /// Rows and columns of the mesh [default: the descriptor's]
    #[arg(short, long, value_name = "RxC", value_parser = rows_and_columns, required_unless_present = "mesh_graph_descriptor")]
    pub mesh: Option<[usize; 2]>,
    /// The devices that meet: 0 those of a column, 1 those of a row [default: all]
    #[arg(long, value_name = "0|1")]
    pub cluster_axis: Option<usize>,
    /// How a line of devices is joined [default: the descriptor's, or ring]
    #[arg(long, value_enum)]
    pub topology: Option<TopologyName>,
    /// Who sends what to whom
    #[arg(long, value_enum, default_value = "canonical")]
    pub algorithm: AlgorithmName,
    /// The payload: bytes, or with KiB, MiB, GiB
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = bytes)]
    pub bytes: u64,
    /// Parallel links between neighbours
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub links: usize,
    /// What an all-reduce does [default: sum]
    #[arg(long, value_enum)]
    pub reduction: Option<ReductionName>,
    /// The device that has or gets everything, in broadcast, gather and scatter [default: 0]
    #[arg(long, value_name = "DEVICE")]
    pub root: Option<usize>,
    /// The sender, in point-to-point [default: 0]
    #[arg(long, value_name = "DEVICE")]
    pub from: Option<usize>,
    /// The receiver, in point-to-point [default: the last device]
    #[arg(long, value_name = "DEVICE")]
    pub to: Option<usize>,
    /// Places, in shift; negative ones go back [default: 1]
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    pub by: Option<isize>,
    /// A mesh graph descriptor, a file or the name of a built-in one: its links, channels and bandwidths
    #[arg(long, value_name = "FILE|NAME")]
    pub mesh_graph_descriptor: Option<String>,
}

/// The collectives' names.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)] // The names say what they are.
pub enum CollectiveName {
    AllGather,
    ReduceScatter,
    AllReduce,
    Broadcast,
    AllBroadcast,
    AllToAll,
    Gather,
    Scatter,
    #[value(alias = "send", alias = "receive")]
    PointToPoint,
    #[value(alias = "ring-shift")]
    Shift,
    Barrier,
}

/// How a line is joined.
#[derive(Clone, Copy, ValueEnum)]
pub enum TopologyName {
    /// The ends are joined too.
    Ring,
    /// They are not.
    Linear,
}

/// The algorithms' names.
#[derive(Clone, Copy, ValueEnum)]
pub enum AlgorithmName {
    /// What unisono does: the fewest bytes at the busiest link that leave sums in the canonical order
    Canonical,
    /// The textbook's ring, one way round
    Ring,
    /// A binomial tree
    Tree,
    /// Everything to device 0 and back
    Server,
    /// Everyone to everyone
    Naive,
}

/// What an all-reduce does.
#[derive(Clone, Copy, ValueEnum)]
#[allow(missing_docs)] // The names say what they are.
pub enum ReductionName {
    Sum,
    Mean,
    Max,
    Min,
}

/// The most devices that are explained.
const MOST_DEVICES: usize = 4096;

/// See the module.
///
/// # Errors
/// [`Failure`] with exit code 2: a mesh, device, algorithm or number of links that there is not; a descriptor that cannot be
/// read or is wrong.
pub fn run(args: &ExplainArgs, context: &Context) -> Result<u8, Failure> {
    let out = &context.out;
    check_options(args)?;
    let load = |name: &String| descriptors::load(name, context);
    let described = args.mesh_graph_descriptor.as_ref().map(load).transpose()?;
    let machine = described.as_ref().map(only_mesh).transpose()?;
    let mesh = match (args.mesh, machine) {
        (Some(mesh), _) => mesh,
        (None, Some(machine)) => match *machine.shape.sizes() {
            [devices] => [1, devices],
            [rows, cols] => [rows, cols],
            _ => {
                return Err(Failure::input(format!(
                    "{} has more than two dimensions; give --mesh",
                    machine.shape
                )));
            }
        },
        (None, None) => return Err(Failure::input("give --mesh or --mesh-graph-descriptor")),
    };
    let topology = args.topology.map(|topology| match topology {
        TopologyName::Ring => Topology::Ring,
        TopologyName::Linear => Topology::Linear,
    });
    let devices = mesh.iter().fold(1usize, |all, size| all.saturating_mul(*size));
    if devices > MOST_DEVICES {
        return Err(Failure::input(format!(
            "--mesh has {devices} devices; up to {MOST_DEVICES} are explained: what holds for more is in the closed forms"
        )));
    }
    let group = Group::of(mesh, args.cluster_axis, topology, machine).map_err(Failure::input)?;
    if let Some(channels) = group.channels {
        check_links(args.links, channels).map_err(Failure::input)?;
    }
    for note in &group.notes {
        out.note(note);
    }
    let question = Question {
        collective: collective(args, group.fabric.num_devices()),
        algorithm: match args.algorithm {
            AlgorithmName::Canonical => Algorithm::Canonical,
            AlgorithmName::Ring => Algorithm::Ring,
            AlgorithmName::Tree => Algorithm::Tree,
            AlgorithmName::Server => Algorithm::Server,
            AlgorithmName::Naive => Algorithm::Naive,
        },
        fabric: group.fabric,
        bytes: args.bytes,
        num_links: args.links,
        model: group.model,
    };
    let text = explain(&question).map_err(Failure::input)?;
    out.result(text.trim_end());
    if out.is_json() {
        out.json(&as_json(&question, &group.notes)?);
    }
    DONE
}

/// Refuses options that say nothing about the collective.
fn check_options(args: &ExplainArgs) -> Result<(), Failure> {
    use CollectiveName::{AllReduce, Broadcast, Gather, PointToPoint, Scatter, Shift};
    let options: [(&str, bool, &[CollectiveName]); 5] = [
        ("--reduction", args.reduction.is_some(), &[AllReduce]),
        ("--root", args.root.is_some(), &[Broadcast, Gather, Scatter]),
        ("--from", args.from.is_some(), &[PointToPoint]),
        ("--to", args.to.is_some(), &[PointToPoint]),
        ("--by", args.by.is_some(), &[Shift]),
    ];
    let name = |collective: &CollectiveName| {
        let value = collective.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    };
    for (option, given, of) in options {
        if given && !of.contains(&args.collective) {
            let of: Vec<String> = of.iter().map(name).collect();
            return Err(Failure::input(format!(
                "{option} is not for {}, but for {}: leave it out",
                name(&args.collective),
                of.join(", ")
            )));
        }
    }
    Ok(())
}

fn collective(args: &ExplainArgs, devices: usize) -> Collective {
    let root = args.root.unwrap_or(0);
    match args.collective {
        CollectiveName::AllGather => Collective::AllGather,
        CollectiveName::ReduceScatter => Collective::ReduceScatter,
        CollectiveName::AllReduce => Collective::AllReduce(match args.reduction.unwrap_or(ReductionName::Sum) {
            ReductionName::Sum => Reduction::Sum,
            ReductionName::Mean => Reduction::Mean,
            ReductionName::Max => Reduction::Max,
            ReductionName::Min => Reduction::Min,
        }),
        CollectiveName::Broadcast => Collective::Broadcast { root },
        CollectiveName::AllBroadcast => Collective::AllBroadcast,
        CollectiveName::AllToAll => Collective::AllToAll,
        CollectiveName::Gather => Collective::Gather { root },
        CollectiveName::Scatter => Collective::Scatter { root },
        CollectiveName::PointToPoint => Collective::PointToPoint {
            from: args.from.unwrap_or(0),
            to: args.to.unwrap_or(devices - 1),
        },
        CollectiveName::Shift => Collective::Shift {
            by: args.by.unwrap_or(1),
        },
        CollectiveName::Barrier => Collective::Barrier,
    }
}

/// The answer as data; the steps for groups whose messages are listed.
fn as_json(question: &Question, notes: &[String]) -> Result<serde_json::Value, Failure> {
    let counted = question.traffic(question.algorithm).map_err(Failure::input)?;
    let schedule = question.schedule().ok();
    let steps = schedule.as_ref().map(|schedule| {
        schedule
            .steps
            .iter()
            .map(|step| step_as_json(schedule, step))
            .collect::<Vec<_>>()
    });
    Ok(json!({
        "collective": question.collective.to_string(),
        "algorithm": question.algorithm.name(),
        "fabric": question.fabric.describe(),
        "devices": question.fabric.num_devices(),
        "bytes": question.bytes,
        "links": question.num_links,
        "steps": counted.steps,
        "messages": counted.messages,
        "bytes_over_links": counted.bytes,
        "busiest_link_bytes": counted.busiest_link_bytes,
        "own_bytes": counted.own_bytes,
        "canonical": schedule.as_ref().map(Schedule::is_canonical),
        "seconds": question.model.and_then(|model| schedule.as_ref().map(|schedule| schedule.time(&model))),
        "schedule": steps,
        "notes": notes,
    }))
}

fn step_as_json(schedule: &Schedule, step: &unisono_mesh::schedule::Step) -> serde_json::Value {
    let sends: Vec<serde_json::Value> = step
        .sends
        .iter()
        .map(|send| {
            let parts: Vec<serde_json::Value> = send
                .parts
                .iter()
                .map(|part| {
                    let devices: Vec<usize> = part.combines.iter().cloned().flatten().collect();
                    json!({"chunk": part.chunk, "combines": devices})
                })
                .collect();
            json!({"from": send.from, "to": send.to, "via": send.via, "bytes": schedule.bytes_of(send), "parts": parts})
        })
        .collect();
    json!({"what": step.what, "sends": sends})
}

/// The one mesh of a descriptor.
fn only_mesh(described: &Checked) -> Result<&Block, Failure> {
    let meshes: Vec<&Block> = described.machine.meshes().collect();
    match meshes.as_slice() {
        [mesh] => Ok(mesh),
        _ => Err(Failure::input(format!(
            "{} describes {} meshes; explain needs a descriptor of one",
            described.file,
            meshes.len()
        ))),
    }
}

/// `2x4`: rows and columns.
fn rows_and_columns(text: &str) -> Result<[usize; 2], String> {
    let number = |text: &str| text.trim().parse::<usize>().ok();
    text.split_once(['x', 'X', '×', ','])
        .and_then(|(rows, cols)| Some([number(rows)?, number(cols)?]))
        .ok_or_else(|| "rows and columns are needed, for example 1x4".to_owned())
}

/// A number of bytes: `65536`, `64KiB`, `4MiB`, `1.5GiB`.
fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1u64,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err("a number of bytes is needed, for example 65536, 64KiB or 4MiB".to_owned()),
    };
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(unit),
        // A fraction of a unit, rounded down to whole bytes; what is too large saturates and is refused below.
        Err(_) => number.parse::<f64>().ok().map(|number| (number * unit as f64) as u64),
    };
    match bytes {
        Some(bytes) if bytes <= MAX_BYTES => Ok(bytes),
        Some(_) => Err(format!("at most {MAX_BYTES} bytes (1 PiB) can be asked about")),
        None => Err("a number of bytes is needed, for example 65536, 64KiB or 4MiB".to_owned()),
    }
}
