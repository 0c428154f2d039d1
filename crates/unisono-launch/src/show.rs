//! A drawing of which rank, on which host, owns which devices.

use crate::job::{Job, Rank};
use crate::paths;
use crate::request::Caller;
use unisono_mesh::Mesh;
use unisono_mesh::draw::{Block, Cell, Drawing, mesh_device};

/// Draws the job at most `width` characters wide. `mesh` is that of the program, where it is known: without bindings its
/// devices are shared out in order.
pub fn drawing(job: &Job, mesh: Option<&Mesh>, caller: &Caller, width: usize) -> Drawing {
    let mut drawing = Drawing::default();
    let host = |rank: &Rank| rank.host.clone().unwrap_or_else(|| caller.hostname.clone());
    for rank in &job.ranks {
        let mut line = format!("rank {} on {}", rank.rank, host(rank));
        if let Some(slot) = &rank.slot {
            line += &format!(" slot {slot}");
        }
        if let Some(mesh) = rank.mesh_id {
            line += &format!(": mesh {mesh}");
        }
        if let Some(process) = rank.mesh_host_rank {
            line += &format!(", process {process}");
        }
        if let Some(subcontext) = rank.subcontext {
            line += &format!(" of sub-context {}", subcontext.id);
        }
        if let Some(devices) = rank.environment.get("TT_VISIBLE_DEVICES") {
            line += &format!(", TT_VISIBLE_DEVICES {devices}");
        }
        drawing.blocks.push(Block::Line(line));
    }
    let cell = |device: usize, rank: Option<&Rank>| Cell {
        id: Some(device),
        local: None,
        annotation: rank
            .map(|rank| format!("rank {} on {}", rank.rank, host(rank)))
            .into_iter()
            .collect(),
        colour: rank.map(|rank| rank.rank),
    };
    // Each sub-context has its own ranks on the meshes of its descriptor.
    let mut contexts = Vec::new();
    for rank in &job.ranks {
        let context = (rank.subcontext.map(|part| part.id), rank.descriptor.as_deref());
        if !contexts.contains(&context) {
            contexts.push(context);
        }
    }
    for (subcontext, path) in contexts {
        let Some((path, machine)) = path.and_then(|path| job.machines.get_key_value(path)) else {
            continue;
        };
        let name = paths::shown(path, caller);
        for block in machine.meshes() {
            let title = match subcontext {
                Some(id) => format!("sub-context {id}, mesh {} of {name}", block.id),
                None => format!("mesh {} of {name}", block.id),
            };
            drawing.blocks.extend([Block::Line(String::new()), Block::Line(title)]);
            let owner = |device: usize| {
                let process = Some(block.host_of(device) as u32);
                let mut ranks = job
                    .ranks
                    .iter()
                    .filter(|rank| rank.subcontext.map(|part| part.id) == subcontext);
                ranks.find(|rank| rank.mesh_id == Some(block.id) && rank.mesh_host_rank == process)
            };
            let cells: Vec<Cell> = (0..block.num_devices())
                .map(|device| cell(device, owner(device)))
                .collect();
            drawing.blocks.extend(mesh_device(&block.shape, &cells, width).blocks);
        }
    }
    if let (Some(mesh), true) = (mesh, job.machines.is_empty()) {
        let (devices, ranks) = (mesh.num_devices(), job.ranks.len());
        // In runs as equal as can be, the longer ones first.
        let (each, longer) = (devices / ranks, devices % ranks);
        let owner = |device: usize| {
            let in_longer = longer * (each + 1);
            job.ranks.get(match device < in_longer {
                true => device / (each + 1),
                false => longer + (device - in_longer) / each.max(1),
            })
        };
        let cells: Vec<Cell> = (0..devices).map(|device| cell(device, owner(device))).collect();
        drawing.blocks.push(Block::Line(String::new()));
        drawing.blocks.extend(mesh_device(&mesh.shape(), &cells, width).blocks);
    }
    drawing
}
