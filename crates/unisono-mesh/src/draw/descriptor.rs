//! The machine that a descriptor describes: its meshes, hosts, devices and links.

use super::grid::{Grid, lay_out, ranges};
use super::{Block as Part, Drawing, GraphEdge, Links, TableCell, counted};
use crate::descriptor::{Block, Connection, DimType, Endpoint, Link, LinkRate, LinkRole, Machine};
use std::collections::{BTreeMap, HashMap};

/// The width of a device's cell where there is room, in characters.
const CELL: usize = 12;
/// Descriptors of meshes that are drawn before some are left out.
const MAX_MESHES: usize = 8;
/// Meshes and connections that are drawn as a graph; more of them are only counted.
const MAX_NODES: usize = 256;
const MAX_EDGES: usize = 2048;
/// Express links, hosts and pinnings of a mesh that are named before some are left out.
const MAX_NAMED: usize = 16;

/// A machine as a drawing: what there is of everything in numbers, each mesh descriptor once with its hosts (parted by heavy lines,
/// a colour each) and its rings (arrows at the ends), and how meshes are connected. Ids of devices are those inside of their mesh.
/// No table is wider than `width` characters; large meshes are summarised.
pub fn show(machine: &Machine, width: usize) -> Drawing {
    let mut drawing = Drawing::default();
    for line in totals(machine) {
        drawing.line(line);
    }
    // Meshes of one descriptor are alike.
    let mut kinds: Vec<(&Block, Vec<&Block>)> = Vec::new();
    let mut known: HashMap<(bool, &str), usize> = HashMap::new();
    for block in &machine.blocks {
        let kind = *known.entry((block.is_switch, &block.name)).or_insert_with(|| {
            kinds.push((block, Vec::new()));
            kinds.len() - 1
        });
        kinds[kind].1.push(block);
    }
    for (block, alike) in kinds.iter().take(MAX_MESHES) {
        drawing.line("");
        mesh(machine, block, alike, width, &mut drawing);
    }
    if kinds.len() > MAX_MESHES {
        drawing.line(format!(
            "… and {}",
            counted(kinds.len() - MAX_MESHES, "more mesh descriptor")
        ));
    }
    if !machine.connections.is_empty() {
        drawing.line("");
        connections(machine, &mut drawing);
    } else if machine.blocks.len() > 1 {
        drawing.line("Nothing connects the meshes.");
    }
    drawing
}

/// What there is of everything, in numbers.
fn totals(machine: &Machine) -> Vec<String> {
    let meshes: usize = machine.meshes().count();
    let switches = machine.switches().count();
    let hosts: usize = machine.meshes().map(|block| block.hosts.num_devices()).sum();
    let mut first = vec![
        plural(meshes, "mesh", "meshes"),
        counted(machine.num_devices(), "device"),
        counted(hosts, "host"),
    ];
    if switches > 0 {
        first.push(format!(
            "{} of {}",
            plural(switches, "switch", "switches"),
            counted(machine.num_switch_devices(), "chip")
        ));
    }
    let inside = machine.blocks.iter().flat_map(|block| &block.links);
    let inside = inside.fold((0, 0u64), |(links, channels), link| {
        (links + 1, channels + u64::from(link.channels))
    });
    let between: u64 = machine.connections.iter().map(|c| u64::from(c.channels)).sum();
    let mut second = format!(
        "{} inside of meshes with {}",
        counted(inside.0, "link"),
        channels(inside.1)
    );
    if !machine.connections.is_empty() {
        second += &format!(
            ", {} between meshes with {}",
            counted(machine.connections.len(), "connection"),
            channels(between)
        );
    }
    vec![first.join(", "), second]
}

/// One descriptor's mesh and what is to be said of it; `alike` are all meshes of the descriptor.
fn mesh(machine: &Machine, block: &Block, alike: &[&Block], width: usize, drawing: &mut Drawing) {
    let ids: Vec<usize> = alike.iter().map(|block| block.id as usize).collect();
    let (one, many) = if block.is_switch {
        ("switch", "switches")
    } else {
        ("mesh", "meshes")
    };
    let sizes: Vec<String> = block.shape.sizes().iter().map(usize::to_string).collect();
    let title = format!(
        "{} ({} {}): {} {}",
        block.name,
        if ids.len() == 1 { one } else { many },
        ranges(&ids),
        sizes.join("×"),
        block.arch.name()
    );
    let several = block.hosts.num_devices() > 1;
    let host = |device| several.then(|| block.host_of(device));
    let extent = block.host_extent();
    let last_two = |of: &[usize]| match of {
        [] => (1, 1),
        [columns] => (1, *columns),
        [.., rows, columns] => (*rows, *columns),
    };
    let ring = |from_last: usize| {
        let dim = block.dim_types.len().checked_sub(from_last);
        dim.is_some_and(|dim| block.dim_types[dim] == DimType::Ring)
    };
    let roomy = |device: usize| {
        let place = block.shape.coordinate(device).map(|c| c.to_string());
        let mut lines = vec![format!("D{device}"), place.unwrap_or_default()];
        lines.extend(host(device).map(|host| format!("host {host}")));
        TableCell {
            lines,
            colour: host(device),
        }
    };
    let short = |device: usize| TableCell {
        lines: vec![device.to_string()],
        colour: host(device),
    };
    let grid = Grid {
        title: &title,
        sizes: block.shape.sizes(),
        roomy: &roomy,
        short: &short,
        cell: CELL,
        blocks: Some(last_two(&extent)),
        links: Some(Links {
            ring_rows: ring(2),
            ring_columns: ring(1),
        }),
    };
    lay_out(&grid, width, drawing);
    for line in sentences(machine, block, alike) {
        drawing.line(format!("  {line}"));
    }
}

/// What a table of devices does not say.
fn sentences(machine: &Machine, block: &Block, alike: &[&Block]) -> Vec<String> {
    let mut lines = Vec::new();
    let dims = block.shape.sizes().iter().zip(&block.dim_types).enumerate();
    let last = block.dim_types.len() - 1;
    let dims = dims.map(|(dim, (size, kind))| match kind {
        DimType::Line => format!("dim {dim}: LINE of {size}"),
        DimType::Ring => {
            let arrows = match last - dim {
                0 => "⇄ joins the ends",
                1 => "⇅ joins the ends",
                _ => "the ends are joined",
            };
            format!("dim {dim}: RING of {size} ({arrows})")
        }
    });
    let fabric = block
        .fabric_type()
        .map_or_else(String::new, |kind| format!("; {}", kind.name()));
    lines.push(dims.collect::<Vec<_>>().join(", ") + &fabric);
    lines.extend(link_lines(block));
    if block.hosts.num_devices() > 1 {
        let grid: Vec<String> = block.hosts.sizes().iter().map(usize::to_string).collect();
        let mut owned: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for device in 0..block.num_devices() {
            owned.entry(block.host_of(device)).or_default().push(device);
        }
        lines.push(format!(
            "{} as {}, {} each",
            counted(block.hosts.num_devices(), "host"),
            grid.join("×"),
            counted(block.num_devices() / block.hosts.num_devices(), "device")
        ));
        for (host, devices) in owned.iter().take(MAX_NAMED) {
            lines.push(format!("  host {host}: devices {}", ranges(devices)));
        }
        if owned.len() > MAX_NAMED {
            lines.push(format!("  … and {}", counted(owned.len() - MAX_NAMED, "more host")));
        }
    }
    if let Some(device) = &block.device {
        let memory = device.memory_gib.map(|gib| format!("{gib} GiB of memory"));
        let peak = device.peak_tflops.map(|peak| format!("{peak} TFLOP/s at peak"));
        let parts: Vec<String> = memory.into_iter().chain(peak).collect();
        if !parts.is_empty() {
            lines.push(format!("each device: {}", parts.join(", ")));
        }
    }
    let pins = machine.pins.iter().filter_map(|pin| {
        let of = &machine.blocks[pin.block];
        alike.iter().any(|other| std::ptr::eq(*other, of)).then_some((pin, of))
    });
    let pins: Vec<String> = pins
        .map(|(pin, of)| {
            let mesh = match alike.len() {
                1 => String::new(),
                _ => format!("mesh {}: ", of.id),
            };
            let word = if pin.devices.len() == 1 { "device" } else { "devices" };
            let place = match &*pin.positions {
                [(trays, locations)] => format!("tray {}, location {}", many(trays), many(locations)),
                positions => counted(positions.len(), "position"),
            };
            format!("{mesh}{word} {} pinned to {place}", ranges(&pin.devices))
        })
        .collect();
    lines.extend(pins.iter().take(MAX_NAMED).cloned());
    if pins.len() > MAX_NAMED {
        lines.push(format!("… and {}", counted(pins.len() - MAX_NAMED, "more pinning")));
    }
    lines
}

/// The links of a mesh by why they are there and what they are.
fn link_lines(block: &Block) -> Vec<String> {
    let mut groups: Vec<(bool, &Link, usize, Vec<String>)> = Vec::new();
    for link in &block.links {
        let grid = matches!(link.role, LinkRole::Neighbour | LinkRole::Wrap);
        let alike = |known: &Link| known.rate == link.rate && known.channels == link.channels;
        let found = groups
            .iter_mut()
            .find(|(of_grid, known, ..)| *of_grid == grid && alike(known) && (grid || known.role == link.role));
        let group = match found {
            Some(group) => group,
            None => {
                groups.push((grid, link, 0, Vec::new()));
                groups.last_mut().expect("one was pushed")
            }
        };
        group.2 += 1;
        if !grid && group.3.len() < MAX_NAMED {
            group.3.push(format!("{}-{}", link.a, link.b));
        }
    }
    let policy = block.policy.name();
    let described = groups.into_iter().map(|(_, link, count, pairs)| {
        let (noun, named) = match link.role {
            LinkRole::Neighbour | LinkRole::Wrap => ("link", false),
            LinkRole::Express | LinkRole::ExpressPattern => ("express link", true),
            LinkRole::Switched => ("link through a switch", false),
        };
        let count = match noun {
            "link through a switch" => plural(count, noun, "links through a switch"),
            noun => counted(count, noun),
        };
        let named = match (named, pairs.len()) {
            (true, MAX_NAMED..) => format!(": {}, …", pairs.join(", ")),
            (true, _) => format!(": {}", pairs.join(", ")),
            (false, _) => String::new(),
        };
        let channels = channels(u64::from(link.channels));
        format!(
            "{count} of {channels} each, {policy}, {}{named}",
            rate(&link.rate, link.channels)
        )
    });
    described.collect()
}

/// `ethernet: 12.5 GB/s a channel each way, 25 GB/s in all`.
pub(crate) fn rate(rate: &LinkRate, channels: u32) -> String {
    let mut text = rate.kind.name().to_string();
    match (rate.channel_gbps, channels) {
        (Some(gbps), 1) => text += &format!(", {gbps} GB/s each way"),
        (Some(gbps), channels) => {
            text += &format!(", {} GB/s each way ({gbps} a channel)", gbps * f64::from(channels));
        }
        (None, _) => {}
    }
    if let Some(latency) = rate.latency_us {
        text += &format!(", {latency} µs");
    }
    text
}

/// What joins the meshes, the connections of a pair together.
fn connections(machine: &Machine, drawing: &mut Drawing) {
    let mut pairs: BTreeMap<(usize, usize), Vec<&Connection>> = BTreeMap::new();
    for connection in &machine.connections {
        let (a, b) = (connection.a.instance, connection.b.instance);
        pairs.entry((a.min(b), a.max(b))).or_default().push(connection);
    }
    let ends = pairs.keys().flat_map(|(a, b)| [*a, *b]);
    let leaves = machine.blocks.iter().map(|block| block.instance);
    let mut nodes: Vec<usize> = leaves.chain(ends).collect();
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.len() > MAX_NODES || pairs.len() > MAX_EDGES {
        drawing.line(format!(
            "{} between {} of meshes: too many to be drawn",
            counted(machine.connections.len(), "connection"),
            counted(pairs.len(), "pair")
        ));
        return;
    }
    let edges = pairs.iter().filter_map(|((a, b), all)| {
        Some(GraphEdge {
            from: nodes.binary_search(a).ok()?,
            to: nodes.binary_search(b).ok()?,
            label: describe(*a, all),
            short: all.iter().map(|c| u64::from(c.channels)).sum::<u64>().to_string(),
        })
    });
    let edges = edges.collect();
    let name = |instance: &usize| {
        // The top-level graph is in every path and says nothing.
        let path = machine.path(*instance);
        path.split_once('/').map_or(path.clone(), |(_, rest)| rest.to_string())
    };
    drawing.line("Connections, with their channels:");
    drawing.blocks.push(Part::Graph {
        nodes: nodes.iter().map(name).collect(),
        edges,
    });
}

/// `4 × 1 channel STRICT (D1-D1, D2-D2, …), ethernet, …`: the connections of a pair whose first is instance `first`.
fn describe(first: usize, all: &[&Connection]) -> String {
    let device = |end: &Endpoint| {
        end.device
            .map_or_else(|| "any".to_string(), |device| format!("D{device}"))
    };
    let exact: Vec<String> = all
        .iter()
        .filter(|connection| connection.a.device.is_some() || connection.b.device.is_some())
        .map(|connection| match connection.a.instance == first {
            true => format!("{}-{}", device(&connection.a), device(&connection.b)),
            false => format!("{}-{}", device(&connection.b), device(&connection.a)),
        })
        .collect();
    let total: u64 = all.iter().map(|connection| u64::from(connection.channels)).sum();
    // There is a first: pairs come from connections.
    let one = all[0];
    let mut text = match all.len() {
        1 => channels(total),
        number if all.iter().all(|other| other.channels == one.channels) => {
            format!("{number} × {}", channels(u64::from(one.channels)))
        }
        number => format!("{number} connections of {} in all", channels(total)),
    };
    text += &format!(" {}", one.policy.name());
    if !exact.is_empty() {
        let more = if exact.len() > MAX_NAMED { ", …" } else { "" };
        let named: Vec<String> = exact.into_iter().take(MAX_NAMED).collect();
        text += &format!(" ({}{more})", named.join(", "));
    }
    if one.z {
        text += ", direction Z";
    }
    format!("{text}, {}", rate(&one.rate, one.channels))
}

fn channels(number: u64) -> String {
    format!("{number} channel{}", if number == 1 { "" } else { "s" })
}

fn plural(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn many(numbers: &[u32]) -> String {
    let numbers: Vec<usize> = numbers.iter().map(|number| *number as usize).collect();
    ranges(&numbers)
}
