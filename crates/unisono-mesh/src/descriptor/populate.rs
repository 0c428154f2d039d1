//! Population: the instances that a descriptor makes, beginning with the top-level one.

use super::connect;
use super::links;
use super::machine::{Block, Instance, Machine};
use super::report::{Position, Problems};
use super::schema::*;
use crate::draw::counted;
use crate::near::hint;
use crate::{MAX_DEVICES, MeshShape};
use std::collections::HashMap;
use std::sync::Arc;

/// Graphs inside of graphs, at most.
const MAX_DEPTH: usize = 64;
/// Links and connections of a machine, at most.
pub(crate) const MAX_LINKS: usize = 1 << 20;

/// Which descriptor an instance comes from.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    Mesh(usize),
    Switch(usize),
    Graph(usize),
}

/// A machine in the making.
pub(crate) struct Builder<'d> {
    pub descriptor: &'d Descriptor,
    pub problems: Problems,
    pub warnings: Problems,
    pub instances: Vec<Instance>,
    /// Beside each instance, its descriptor.
    pub sources: Vec<Source>,
    /// Beside each instance, its children by id.
    pub children: Vec<HashMap<i32, usize>>,
    names: [HashMap<&'d str, usize>; 3],
    devices: usize,
    /// What is left of [`MAX_LINKS`].
    pub links_left: usize,
    /// A limit has been passed, so that nothing more is made.
    pub full: bool,
}

/// Makes the machine of a descriptor that has passed the stages before; its problems where there are any, and warnings.
pub(crate) fn populate(descriptor: &Descriptor) -> (Result<Machine, Problems>, Problems) {
    let mut b = Builder {
        descriptor,
        problems: Problems::default(),
        warnings: Problems::default(),
        instances: Vec::new(),
        sources: Vec::new(),
        children: Vec::new(),
        names: [
            descriptor
                .meshes
                .iter()
                .enumerate()
                .map(|(i, mesh)| (mesh.name(), i))
                .collect(),
            descriptor
                .switches
                .iter()
                .enumerate()
                .map(|(i, switch)| (switch.name(), i))
                .collect(),
            descriptor
                .graphs
                .iter()
                .enumerate()
                .map(|(i, graph)| (graph.name(), i))
                .collect(),
        ],
        devices: 0,
        links_left: MAX_LINKS,
        full: false,
    };
    if let Some(top) = &descriptor.top {
        b.instance(top, &|| "top_level_instance".to_owned(), None, 0);
    }
    let blocks = if b.problems.is_empty() { b.blocks() } else { Vec::new() };
    let connections = if b.full {
        Vec::new()
    } else {
        connect::connections(&mut b)
    };
    let pins = if b.problems.is_empty() {
        connect::pins(&mut b, &blocks)
    } else {
        Vec::new()
    };
    b.unused();
    let made = if b.problems.is_empty() {
        Ok(Machine {
            instances: b.instances,
            blocks,
            connections,
            pins,
        })
    } else {
        Err(b.problems)
    };
    (made, b.warnings)
}

impl<'d> Builder<'d> {
    /// Makes the instance that `node` refers to, and all below it. Its index, or `None` after a problem.
    fn instance(
        &mut self,
        node: &'d NodeRef,
        path: &dyn Fn() -> String,
        parent: Option<usize>,
        depth: usize,
    ) -> Option<usize> {
        if self.full {
            return None;
        }
        let Some(target) = &node.target else {
            self.problems.add(node.at, path(), || {
                "the node is neither a mesh nor a switch nor a graph".to_owned()
            });
            return None;
        };
        let kind = target.kind;
        let Ok(id) = u32::try_from(target.id) else {
            self.problems.add(
                target.at,
                format!("{}.{}.{}_id", path(), kind.name(), kind.name()),
                || format!("the id {} is below 0", target.id),
            );
            return None;
        };
        let Some(source) = self.lookup(target) else {
            self.unknown_descriptor(target, path());
            return None;
        };
        if self.instances.len() >= MAX_DEVICES {
            return self.stop(target.at, path(), || {
                format!("the machine has more than {MAX_DEVICES} instances")
            });
        }
        let (name, label) = match source {
            Source::Mesh(i) => (self.descriptor.meshes[i].name(), "MESH"),
            Source::Switch(i) => (self.descriptor.switches[i].name(), "SWITCH"),
            Source::Graph(i) => (self.descriptor.graphs[i].name(), self.descriptor.graphs[i].kind()),
        };
        let index = self.instances.len();
        if let Source::Graph(_) = source {
            let mut above = parent;
            while let Some(i) = above {
                if &*self.instances[i].label == label {
                    self.problems.add(target.at, path(), || {
                        format!("the graph {name:?} is a {label:?} inside of a {label:?}; a type may not hold itself")
                    });
                    return None;
                }
                above = self.instances[i].parent;
            }
            if depth > MAX_DEPTH {
                return self.stop(target.at, path(), || {
                    format!("graphs are nested more than {MAX_DEPTH} deep")
                });
            }
        }
        self.instances.push(Instance {
            kind,
            descriptor: Arc::from(name),
            label: Arc::from(label),
            id,
            parent,
            children: Vec::new(),
            block: None,
        });
        self.sources.push(source);
        self.children.push(HashMap::new());
        match source {
            Source::Mesh(i) => self.count(&self.descriptor.meshes[i], i, target.at, path),
            Source::Switch(i) => self.count(&self.descriptor.switches[i], i, target.at, path),
            Source::Graph(i) => self.graph(index, i, depth),
        }
        Some(index)
    }

    fn graph(&mut self, index: usize, descriptor: usize, depth: usize) {
        let graph = &self.descriptor.graphs[descriptor];
        let mut kind_of_graphs: Option<&str> = None;
        for (i, node) in graph.instances.iter().enumerate() {
            let path = || format!("graph_descriptors[{descriptor}].instances[{i}]");
            if let Some(target) = &node.target {
                if let Some(first) = self.children[index].get(&target.id) {
                    let first = self.instances[*first].kind.name();
                    self.problems.add(target.at, path(), || {
                        format!(
                            "the id {} is taken by a {first} of this graph already; meshes, switches and graphs share their ids",
                            target.id
                        )
                    });
                    continue;
                }
                if let Some(Source::Graph(g)) = self.lookup(target) {
                    let kind = self.descriptor.graphs[g].kind();
                    let expected = *kind_of_graphs.get_or_insert(kind);
                    if kind != expected {
                        self.problems.add(target.at, path(), || {
                            format!("a graph of type {kind:?} beside one of type {expected:?}; the graphs inside of one graph have one type")
                        });
                        continue;
                    }
                }
            }
            if let Some(child) = self.instance(node, &path, Some(index), depth + 1) {
                self.instances[index].children.push(child);
                // The instance is there, so its target is.
                let id = node.target.as_ref().map_or(0, |target| target.id);
                self.children[index].insert(id, child);
            }
        }
    }

    /// The descriptor that a reference names.
    fn lookup(&self, target: &Target) -> Option<Source> {
        let (names, source): (_, fn(usize) -> Source) = match target.kind {
            RefKind::Mesh => (&self.names[0], Source::Mesh),
            RefKind::Switch => (&self.names[1], Source::Switch),
            RefKind::Graph => (&self.names[2], Source::Graph),
        };
        names.get(&*target.descriptor).copied().map(source)
    }

    fn unknown_descriptor(&mut self, target: &Target, path: String) {
        let d = self.descriptor;
        let kind = target.kind.name();
        self.problems
            .add(target.at, format!("{path}.{kind}.{kind}_descriptor"), || {
                let name = super::lex::shortened(&target.descriptor);
                // In the order of the text, and not more than a person would look through.
                let near = match target.kind {
                    RefKind::Mesh => hint(&name, d.meshes.iter().map(MeshDescriptor::name).take(1000)),
                    RefKind::Switch => hint(&name, d.switches.iter().map(MeshDescriptor::name).take(1000)),
                    RefKind::Graph => hint(&name, d.graphs.iter().map(GraphDescriptor::name).take(1000)),
                };
                format!("there is no {kind} descriptor {name:?}{near}")
            });
    }

    /// Counts devices and links of a mesh before they are made.
    fn count(&mut self, mesh: &MeshDescriptor, entry: usize, at: Position, path: &dyn Fn() -> String) {
        let dims = mesh.dims.len();
        let arch = mesh.arch.map(|arch| arch.value);
        if dims != 2 && matches!(arch, Some(Architecture::WormholeB0 | Architecture::Blackhole)) {
            let at = mesh.device_topology.unwrap_or(mesh.at);
            let kind = if mesh.is_switch { "switch" } else { "mesh" };
            let field = format!("{kind}_descriptors[{entry}].device_topology.dims");
            self.problems.add(at, field, || {
                format!(
                    "{} in {:?}; links are laid for exactly 2, for example dims: [1, 8]",
                    counted(dims, "dimension"),
                    mesh.name()
                )
            });
            return;
        }
        let Some(shape) = shape_of(&mesh.dims) else {
            return; // an earlier stage has told of it
        };
        self.devices += shape.num_devices();
        if self.devices > MAX_DEVICES {
            self.stop(at, path(), || {
                format!("the machine has more than {MAX_DEVICES} devices, the most that unisono drives")
            });
            return;
        }
        let links = links::count(mesh, &shape);
        if links > self.links_left {
            self.stop(at, path(), || format!("the machine has more than {MAX_LINKS} links"));
            return;
        }
        self.links_left -= links;
    }

    /// Tells of a limit that has been passed, and makes nothing more.
    pub(crate) fn stop(&mut self, at: Position, path: String, text: impl FnOnce() -> String) -> Option<usize> {
        self.problems.add(at, path, text);
        self.full = true;
        None
    }

    /// The meshes and then the switches, with their devices and links.
    fn blocks(&mut self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut first_device = 0;
        for switches in [false, true] {
            for index in 0..self.instances.len() {
                let mesh = match (self.sources[index], switches) {
                    (Source::Mesh(i), false) => &self.descriptor.meshes[i],
                    (Source::Switch(i), true) => &self.descriptor.switches[i],
                    _ => continue,
                };
                let block = self.block(index, mesh, first_device);
                first_device += block.num_devices();
                self.instances[index].block = Some(blocks.len());
                blocks.push(block);
            }
        }
        blocks
    }

    fn block(&self, index: usize, mesh: &MeshDescriptor, first_device: usize) -> Block {
        // All of this was checked in the stages before.
        let shape = shape_of(&mesh.dims).expect("bug in unisono: a shape that was checked");
        let arch = mesh
            .arch
            .expect("bug in unisono: an architecture that was checked")
            .value;
        let hosts = match mesh.is_switch {
            true => MeshShape::new(&vec![1; shape.num_axes()]).ok(),
            false => shape_of(&mesh.host_dims),
        };
        let channels = channel_count(mesh.channels.as_ref());
        // The newest version takes RELAXED for meshes; for switches all take STRICT.
        let default = if mesh.is_switch {
            Policy::Strict
        } else {
            Policy::Relaxed
        };
        Block {
            instance: index,
            is_switch: mesh.is_switch,
            name: self.instances[index].descriptor.clone(),
            id: self.instances[index].id,
            arch,
            dim_types: links::dim_types(mesh, &shape),
            hosts: hosts.expect("bug in unisono: a grid of hosts that was checked"),
            channels,
            policy: mesh
                .channels
                .as_ref()
                .and_then(|channels| channels.policy)
                .unwrap_or(default),
            first_device,
            links: links::links(mesh, arch, &shape, channels),
            device: mesh.device,
            shape,
        }
    }

    /// Warns of descriptors that nothing instantiates.
    fn unused(&mut self) {
        if !self.problems.is_empty() {
            return;
        }
        let d = self.descriptor;
        let mut used = [
            vec![false; d.meshes.len()],
            vec![false; d.switches.len()],
            vec![false; d.graphs.len()],
        ];
        for source in &self.sources {
            match source {
                Source::Mesh(i) => used[0][*i] = true,
                Source::Switch(i) => used[1][*i] = true,
                Source::Graph(i) => used[2][*i] = true,
            }
        }
        let meshes = d
            .meshes
            .iter()
            .zip(&used[0])
            .map(|(mesh, used)| ("mesh", mesh.at, mesh.name(), used));
        let switches = d
            .switches
            .iter()
            .zip(&used[1])
            .map(|(switch, used)| ("switch", switch.at, switch.name(), used));
        let graphs = d
            .graphs
            .iter()
            .zip(&used[2])
            .map(|(graph, used)| ("graph", graph.at, graph.name(), used));
        for (kind, at, name, _) in meshes.chain(switches).chain(graphs).filter(|entry| !entry.3) {
            self.warnings.add(at, format!("{kind}_descriptors"), || {
                format!("the {kind} {name:?} is not part of the machine")
            });
        }
    }
}

/// The number of channels that was checked to be above 0.
pub(crate) fn channel_count(channels: Option<&Channels>) -> u32 {
    channels
        .and_then(|channels| channels.count)
        .and_then(|count| u32::try_from(count.value).ok())
        .unwrap_or(1)
}

/// Dims as a shape, where they are one.
fn shape_of(dims: &[super::report::At<i32>]) -> Option<MeshShape> {
    let sizes: Option<Vec<usize>> = dims.iter().map(|dim| usize::try_from(dim.value).ok()).collect();
    MeshShape::new(&sizes?).ok()
}
