//! The devices that a run opens: their ids, links and cores, by the machine's descriptor and the visible devices.

use crate::context::Context;
use crate::exit::Failure;
use crate::output::numbers::counted;
use unisono_mesh::descriptor::{Architecture, DimType, Fit, Selection};
use unisono_mesh::visible::{TT, TT_OLD, UNISONO, Variables, core_shares, visible};
use unisono_mesh::{Mesh, MeshView};
use unisono_runtime::{Processes, machine};
use unisono_tensor::Links;

/// What is opened.
pub struct System {
    /// The mesh with the id of each device.
    pub view: MeshView,
    /// Which process carries which device.
    pub processes: Processes,
    /// What the descriptor says of the links between them.
    pub links: Links,
}

impl System {
    /// The devices of a mesh. On a CPU there is one for each core that this process may use; where `UNISONO_VISIBLE_DEVICES` names
    /// those of this job, the process keeps to their cores from here on.
    ///
    /// # Errors
    /// Variables that name no device, or fewer than the mesh needs.
    pub fn of(mesh: &Mesh, machine: Option<&Selection>, context: &Context) -> Result<System, Failure> {
        let variable = |name: &str| context.environment.variables.get(name).map(String::as_str);
        let variables = Variables {
            unisono: variable(UNISONO),
            tt: variable(TT),
            tt_old: variable(TT_OLD),
        };
        let links = machine.map_or_else(Links::default, |selection| links(mesh, selection));
        let processes = match &context.ranks {
            Some(ranks) => ranks.processes(mesh, machine)?,
            None => Processes::one(),
        };
        let needed = processes.here(mesh.num_devices()).len();
        let devices = machine.map(|selection| selection.devices.clone());
        if variables.unisono.is_none() && variables.tt.is_none() {
            if variables.tt_old.is_some() {
                context
                    .out
                    .warn(format!("{TT_OLD} is set and not read: the name is {TT} now"));
            }
            let ids = devices.unwrap_or_else(|| (0..mesh.num_devices()).collect());
            return Ok(System {
                processes,
                view: MeshView::with_ids(mesh.clone(), ids).map_err(Failure::input)?,
                links,
            });
        }
        let name = if variables.unisono.is_some() { UNISONO } else { TT };
        let boards = match machine {
            Some(selection) => boards(selection),
            None => (0..machine::cores().max(1)).map(|device| vec![device]).collect(),
        };
        let total = boards.iter().map(Vec::len).sum();
        let found = visible(variables, &boards, &[]).map_err(Failure::input)?;
        found.notes.iter().for_each(|note| context.out.warn(note));
        let value = variables.unisono.or(variables.tt).unwrap_or_default();
        let too_few = || {
            Failure::input(format!(
                "the mesh of {} needs {} and {} of {total} are visible: {name} is {value:?}; name more of them there, unset it, \
                 or use a smaller mesh",
                mesh.describe(),
                counted(needed, "device"),
                found.devices.len(),
            ))
        };
        if let (Some(ranks), true) = (&context.ranks, processes.size() > 1) {
            // Ids are those of this host; the devices of others have no names here. Its processes that are shown the same take them in
            // their order.
            let (before, shared) = ranks.that_share(&processes, mesh.num_devices());
            let Some(ids) = found.devices.get(..shared).map(|all| &all[before..before + needed]) else {
                return Err(Failure::input(format!(
                    "the mesh of {} has {shared} of them on the processes of {}, and {} of {total} are visible there: {name} is {value:?}; name more of \
                     them there, give each process its own (env_overrides of rank bindings), or unset it",
                    mesh.describe(),
                    ranks.link().host(),
                    found.devices.len(),
                )));
            };
            let shares = core_shares(&machine::allowed_cpus(), total, ids);
            machine::restrict(&shares.cores.concat());
            return Ok(System {
                processes,
                view: MeshView::whole(mesh.clone()),
                links,
            });
        }
        let ids = match devices {
            // The machine's own order: what the mesh takes of it must be visible.
            Some(devices) => match devices.iter().find(|device| !found.devices.contains(device)) {
                None => devices,
                Some(_) if found.devices.len() < needed => return Err(too_few()),
                Some(hidden) => {
                    return Err(Failure::input(format!(
                        "the mesh of {} takes device {hidden} of the machine, which {name} hides: visible are {:?}; name its board too, or \
                         use a mesh that lies on these",
                        mesh.describe(),
                        found.devices
                    )));
                }
            },
            None => found.devices.get(..needed).ok_or_else(too_few)?.to_vec(),
        };
        let shares = core_shares(&machine::allowed_cpus(), total, &ids);
        if let Some(shared) = &shares.shared {
            context.out.warn(shared);
        }
        machine::restrict(&shares.cores.concat());
        Ok(System {
            processes,
            view: MeshView::with_ids(mesh.clone(), ids).map_err(Failure::input)?,
            links,
        })
    }
}

/// The devices of each board of a machine. Boards of an N300 and a T3000 (Wormhole, up to eight devices) hold two: one with a bus
/// address and one that is reached through it, its neighbour across the shorter axis or, on a line, the device as far from the
/// other end. Of every other machine each device is a board.
fn boards(selection: &Selection) -> Vec<Vec<usize>> {
    let machine = &selection.checked.machine;
    let total = machine.num_devices();
    let block = &machine.blocks[selection.block];
    let sizes = block.shape.sizes();
    let pairs = block.arch == Architecture::WormholeB0 && total <= 8 && total == block.shape.num_devices();
    match *sizes {
        [1, n] | [n, 1] if pairs && n % 2 == 0 => (0..n / 2).map(|i| vec![i, n - 1 - i]).collect(),
        [2, cols] if pairs => (0..cols).map(|i| vec![i, i + cols]).collect(),
        [rows, 2] if pairs => (0..rows).map(|i| vec![2 * i, 2 * i + 1]).collect(),
        _ => (0..total).map(|device| vec![device]).collect(),
    }
}

/// Channels and wraps along the axes of a mesh that lies on a machine.
fn links(mesh: &Mesh, selection: &Selection) -> Links {
    let block = &selection.checked.machine.blocks[selection.block];
    let mut wraps: Vec<bool> = block.dim_types.iter().map(|dim| *dim == DimType::Ring).collect();
    let mut sizes = block.shape.sizes().to_vec();
    if selection.fit == Fit::Turned {
        wraps.reverse();
        sizes.reverse();
    }
    let whole = selection.fit != Fit::Line && sizes == mesh.physical_shape();
    let long: Vec<bool> = sizes
        .iter()
        .zip(wraps)
        .filter(|(size, _)| **size > 1)
        .map(|(_, wrap)| wrap)
        .collect();
    let axes = mesh.axes();
    let rings = match whole && long.len() == axes.iter().filter(|axis| axis.size > 1).count() {
        true => {
            let mut long = long.into_iter();
            axes.iter()
                .map(|axis| axis.size > 1 && long.next().unwrap_or(false))
                .collect()
        }
        false => vec![false; axes.len()],
    };
    Links {
        channels: usize::try_from(block.channels).ok(),
        rings,
    }
}
