//! The devices of a descriptor in pairs: what joins neighbours, and how many links lie between the others.

use super::{MAX_NAMES, Matrix};
use crate::descriptor::{Connection, LinkKind, LinkRate, Machine};
use crate::draw::rate;
use std::collections::{BTreeMap, VecDeque};

/// The matrix of a described machine's devices (of the first 64; a switch's chips are not among them). A code is `X` for the same
/// device; kind and channels for neighbours, such as `ETH×2`; the number of links on the shortest way for others; `M1`, `M2` … where
/// the way goes through that many connections of meshes that leave open which devices they join; `-` where there is no way.
pub fn of_descriptor(machine: &Machine) -> Matrix {
    let net = Net::of(machine);
    let mut matrix = Matrix {
        headings: ["Mesh", "Host", "Coordinate"].map(String::from).to_vec(),
        ..Matrix::default()
    };
    let mut legend: BTreeMap<String, String> = BTreeMap::new();
    let (mut hops, mut open, mut none) = (false, false, false);
    let devices = machine.num_devices();
    let shown = devices.min(MAX_NAMES);
    let mut between: BTreeMap<usize, Vec<Option<usize>>> = BTreeMap::new();
    for device in 0..shown {
        let links = net.distances(device);
        let block = net.block_of(device);
        let meshes = between.entry(block).or_insert_with(|| net.mesh_distances(block));
        let codes = (0..shown).map(|other| {
            if device == other {
                return "X".to_string();
            }
            match (net.neighbour(device, other), links[other], meshes[net.block_of(other)]) {
                (Some((kind, channels)), ..) => {
                    let code = format!("{}×{channels}", short(kind.kind));
                    let meaning = format!("neighbours, {}: {}", channels_of(channels), rate(&kind, channels));
                    legend.entry(code.clone()).or_insert(meaning);
                    code
                }
                (None, Some(distance), _) => {
                    hops = true;
                    distance.to_string()
                }
                (None, None, Some(distance)) => {
                    open = true;
                    format!("M{distance}")
                }
                (None, None, None) => {
                    none = true;
                    "-".to_string()
                }
            }
        });
        matrix.codes.push(codes.collect());
    }
    for block in machine.meshes() {
        for device in 0..block.num_devices() {
            matrix.names.push(format!("D{}", block.first_device + device));
            if matrix.affinity.len() < MAX_NAMES {
                let coordinate = block.shape.coordinate(device).map(|c| c.to_string());
                matrix.affinity.push(vec![
                    format!("{}[{}]", block.name, block.id),
                    block.host_of(device).to_string(),
                    coordinate.unwrap_or_default(),
                ]);
            }
        }
    }
    matrix.legend.push(("X".to_string(), "the same".to_string()));
    matrix.legend.extend(legend);
    let more = [
        (hops, "2, 3 …", "links on the shortest way"),
        (
            open,
            "M1, M2 …",
            "connections between meshes on the way; which devices they join is left open",
        ),
        (none, "-", "no way"),
    ];
    let more = more.iter().filter(|(there, ..)| *there);
    matrix
        .legend
        .extend(more.map(|(_, code, meaning)| (code.to_string(), meaning.to_string())));
    matrix
}

fn channels_of(number: u32) -> String {
    crate::draw::counted(number as usize, "channel")
}

/// A kind of link in a few letters.
fn short(kind: LinkKind) -> &'static str {
    match kind {
        LinkKind::Pcie3x16 => "PCIE3",
        LinkKind::Pcie4x16 => "PCIE4",
        LinkKind::Pcie5x16 => "PCIE5",
        LinkKind::NvLink2 => "NV2",
        LinkKind::NvLink3 => "NV3",
        LinkKind::NvLink4 => "NV4",
        LinkKind::Ethernet => "ETH",
        LinkKind::Memory => "MEM",
    }
}

/// A machine's links by device, switches' chips included: ways may go through them.
struct Net<'a> {
    machine: &'a Machine,
    /// For each device its neighbours, and over what.
    links: Vec<Vec<(usize, LinkRate, u32)>>,
    /// For each block the connections that leave devices open: which, and on which side it is.
    open: Vec<Vec<(usize, bool)>>,
    /// Connections that leave devices open, with the blocks on both sides.
    sides: Vec<[Vec<usize>; 2]>,
}

impl<'a> Net<'a> {
    fn of(machine: &'a Machine) -> Net<'a> {
        let devices = machine.num_devices() + machine.num_switch_devices();
        let mut net = Net {
            machine,
            links: vec![Vec::new(); devices],
            open: vec![Vec::new(); machine.blocks.len()],
            sides: Vec::new(),
        };
        for block in &machine.blocks {
            for link in &block.links {
                let (a, b) = (block.first_device + link.a, block.first_device + link.b);
                net.join(a, b, link.rate, link.channels);
            }
        }
        for connection in &machine.connections {
            match net.exact(connection) {
                Some((a, b)) => net.join(a, b, connection.rate, connection.channels),
                None => {
                    let sides = [connection.a.instance, connection.b.instance].map(|end| net.blocks_below(end));
                    let index = net.sides.len();
                    for (side, blocks) in sides.iter().enumerate() {
                        for block in blocks {
                            net.open[*block].push((index, side == 1));
                        }
                    }
                    net.sides.push(sides);
                }
            }
        }
        net
    }

    fn join(&mut self, a: usize, b: usize, rate: LinkRate, channels: u32) {
        for (from, to) in [(a, b), (b, a)] {
            self.links[from].push((to, rate, channels));
        }
    }

    /// The global ids of both devices of a connection, where it names them.
    fn exact(&self, connection: &Connection) -> Option<(usize, usize)> {
        let global = |instance: usize, device: Option<usize>| {
            let block = self.machine.instances[instance].block?;
            Some(self.machine.blocks[block].first_device + device?)
        };
        let a = global(connection.a.instance, connection.a.device)?;
        Some((a, global(connection.b.instance, connection.b.device)?))
    }

    /// The meshes and switches of an instance, itself or below it.
    fn blocks_below(&self, instance: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let mut open = vec![instance];
        while let Some(index) = open.pop() {
            let instance = &self.machine.instances[index];
            found.extend(instance.block);
            open.extend(&instance.children);
        }
        found
    }

    fn block_of(&self, device: usize) -> usize {
        // Blocks lie in the order of their first devices.
        self.machine
            .blocks
            .partition_point(|block| block.first_device <= device)
            .saturating_sub(1)
    }

    /// The link between two devices; several of one kind count together.
    fn neighbour(&self, a: usize, b: usize) -> Option<(LinkRate, u32)> {
        let mut links = self.links[a].iter().filter(|(to, ..)| *to == b);
        let (_, rate, first) = links.next()?;
        let others = links.filter(|(_, other, _)| other == rate);
        Some((
            *rate,
            others.fold(*first, |sum, (_, _, channels)| sum.saturating_add(*channels)),
        ))
    }

    /// Links on the shortest way to each device.
    fn distances(&self, from: usize) -> Vec<Option<usize>> {
        let mut distances = vec![None; self.links.len()];
        distances[from] = Some(0);
        let mut queue = VecDeque::from([(from, 0)]);
        while let Some((device, distance)) = queue.pop_front() {
            for (to, ..) in &self.links[device] {
                if distances[*to].is_none() {
                    distances[*to] = Some(distance + 1);
                    queue.push_back((*to, distance + 1));
                }
            }
        }
        distances
    }

    /// Connections that leave devices open on the shortest way to each block; those that name devices count too, as a way through
    /// meshes takes either.
    fn mesh_distances(&self, from: usize) -> Vec<Option<usize>> {
        let mut distances = vec![None; self.open.len()];
        let mut used = vec![[false; 2]; self.sides.len()];
        distances[from] = Some(0);
        let mut queue = VecDeque::from([(from, 0)]);
        while let Some((block, distance)) = queue.pop_front() {
            let exact = self.machine.connections_of(self.machine.blocks[block].instance);
            let exact = exact.filter_map(|connection| self.exact(connection));
            let mut next: Vec<usize> = exact.flat_map(|(a, b)| [self.block_of(a), self.block_of(b)]).collect();
            for (index, second) in &self.open[block] {
                let side = usize::from(!*second);
                if !used[*index][side] {
                    used[*index][side] = true;
                    next.extend(&self.sides[*index][side]);
                }
            }
            for to in next {
                if distances[to].is_none() {
                    distances[to] = Some(distance + 1);
                    queue.push_back((to, distance + 1));
                }
            }
        }
        distances
    }
}
