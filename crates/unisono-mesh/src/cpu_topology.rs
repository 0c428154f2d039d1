//! This machine as Linux describes it: sockets, NUMA nodes, cores and the caches that they share.

use crate::draw::{counted, ranges};
use crate::topology::{MAX_NAMES, Matrix};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Where Linux keeps its description.
pub const SYSTEM: &str = "/sys/devices/system";

/// The processors that may be used, and where they lie.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuTopology {
    /// The logical processors, ascending.
    pub processors: Vec<Processor>,
    /// The NUMA nodes that have memory or one of the processors, ascending. Empty where the system does not say.
    pub nodes: Vec<NumaNode>,
}

/// A logical processor. What the system does not say is `None` or empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Processor {
    /// Its number.
    pub id: usize,
    /// The socket (physical package) that it is in.
    pub socket: Option<usize>,
    /// The NUMA node whose memory is nearest.
    pub node: Option<usize>,
    /// The logical processors of its core, itself among them.
    pub siblings: Vec<usize>,
    /// Its caches, lowest level first.
    pub caches: Vec<Cache>,
}

/// A cache, and who shares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// 1, 2, 3.
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Size in bytes.
    pub bytes: Option<u64>,
    /// The logical processors that share it.
    pub processors: Vec<usize>,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaNode {
    /// Its number.
    pub id: usize,
    /// All its processors, also those that may not be used.
    pub processors: Vec<usize>,
    /// Its memory in bytes.
    pub memory: Option<u64>,
}

/// Numbers of processors and nodes are below this; larger ones are taken for garbage.
const MAX_NUMBER: usize = 65_536;
/// A file of the description is read up to here.
const MAX_BYTES: u64 = 1 << 20;

impl CpuTopology {
    /// Reads the description below `system` ([`SYSTEM`]; tests have trees of their own). `allowed` are the processors that this
    /// process may use; none means all that are online. Files that are missing or garbled cost detail, nothing else.
    pub fn read(system: &Path, allowed: &[usize]) -> CpuTopology {
        let cpus = system.join("cpu");
        let online = list(&cpus.join("online")).unwrap_or_else(|| present(&cpus));
        let mut ids: Vec<usize> = match (allowed, online.as_slice()) {
            ([], online) => online.to_vec(),
            (allowed, []) => allowed.to_vec(),
            (allowed, online) => {
                let is_online = |id: &usize| online.binary_search(id).is_ok();
                allowed.iter().copied().filter(is_online).collect()
            }
        };
        ids.sort_unstable();
        ids.dedup();
        let nodes = nodes(&system.join("node"), &ids);
        let processors = ids.iter().map(|id| processor(&cpus, *id, &nodes)).collect();
        CpuTopology { processors, nodes }
    }

    /// The cores, each as its processors among those that may be used.
    pub fn cores(&self) -> Vec<Vec<usize>> {
        self.groups(|processor| processor.siblings.first().copied().or(Some(processor.id)))
            .into_values()
            .collect()
    }

    /// The sockets and their processors among those that may be used; empty where the system does not say.
    pub fn sockets(&self) -> BTreeMap<usize, Vec<usize>> {
        self.groups(|processor| processor.socket)
    }

    /// How near the processors at two indices of [`processors`](Self::processors) are, nearest first: `X` the same, `SMT` one core,
    /// `L2` and `L3` (`L1`, `L4`) a cache shared, `NODE` one NUMA node, `SOC` one socket, `SYS` another socket, `?` not known.
    ///
    /// # Panics
    /// Where there is no such index.
    pub fn code(&self, a: usize, b: usize) -> &'static str {
        let (a, b) = (&self.processors[a], &self.processors[b]);
        if a.id == b.id {
            return "X";
        }
        if a.siblings.contains(&b.id) {
            return "SMT";
        }
        let shared = a.caches.iter().find(|cache| cache.processors.contains(&b.id));
        match shared.map(|cache| cache.level) {
            Some(1) => return "L1",
            Some(2) => return "L2",
            Some(3) => return "L3",
            Some(4) => return "L4",
            _ => {}
        }
        match ((a.node, b.node), (a.socket, b.socket)) {
            ((Some(a), Some(b)), _) if a == b => "NODE",
            (_, (Some(a), Some(b))) if a == b => "SOC",
            (_, (Some(_), Some(_))) => "SYS",
            _ => "?",
        }
    }

    /// The machine in lines: sockets, NUMA nodes, cores and processors, then the caches, then each node's memory.
    pub fn describe(&self) -> Vec<String> {
        let ids: Vec<usize> = self.processors.iter().map(|processor| processor.id).collect();
        let listed = |ids: &[usize]| {
            if ids.is_empty() {
                "none".to_string()
            } else {
                ranges(ids)
            }
        };
        let mut parts = Vec::new();
        for (number, noun) in [(self.sockets().len(), "socket"), (self.nodes.len(), "NUMA node")] {
            if number > 0 {
                parts.push(counted(number, noun));
            }
        }
        parts.push(counted(self.cores().len(), "core"));
        parts.push(format!(
            "{} ({})",
            counted(ids.len(), "logical processor"),
            listed(&ids)
        ));
        let mut lines = vec![parts.join(", ")];
        let caches = self.caches();
        if !caches.is_empty() {
            lines.push(format!("caches: {}", caches.join(", ")));
        }
        for node in &self.nodes {
            let memory = match node.memory {
                Some(bytes) => format!(", {} of memory", binary(bytes)),
                None => String::new(),
            };
            lines.push(format!(
                "NUMA node {}: processors {}{memory}",
                node.id,
                listed(&node.processors)
            ));
        }
        lines
    }

    /// `L2 1 MiB × 2`: each kind of cache with its size and number.
    fn caches(&self) -> Vec<String> {
        let mut found: Vec<(String, Vec<&[usize]>)> = Vec::new();
        for cache in self.processors.iter().flat_map(|processor| &processor.caches) {
            let kind = match cache.kind.as_str() {
                "Unified" => String::new(),
                kind => format!(" {}", kind.to_lowercase()),
            };
            let size = cache
                .bytes
                .map_or_else(String::new, |bytes| format!(" {}", binary(bytes)));
            let name = format!("L{}{kind}{size}", cache.level);
            let owner = cache.processors.as_slice();
            match found.iter_mut().find(|(known, _)| *known == name) {
                Some((_, owners)) if owners.contains(&owner) => {}
                Some((_, owners)) => owners.push(owner),
                None => found.push((name, vec![owner])),
            }
        }
        let described = found
            .into_iter()
            .map(|(name, owners)| format!("{name} × {}", owners.len()));
        described.collect()
    }

    /// The matrix of pairs, with the affinity of each row. Where a row for each processor has no room in `width` characters, a row is
    /// a core, else those that share the last cache, a NUMA node, or a socket: the first that fits.
    pub fn matrix(&self, width: usize) -> Matrix {
        let last_cache = |processor: &Processor| {
            let cache = processor.caches.iter().max_by_key(|cache| cache.level);
            cache.and_then(|cache| cache.processors.first().copied())
        };
        let levels = [
            ("CPU", self.groups(|processor| Some(processor.id))),
            ("CORE", self.groups(|processor| processor.siblings.first().copied())),
            ("CACHE", self.groups(last_cache)),
            ("NUMA", self.groups(|processor| processor.node)),
            ("SOCKET", self.groups(|processor| processor.socket)),
        ];
        // A level that does not place every processor would leave some out.
        let all = self.processors.len();
        let whole = levels
            .into_iter()
            .filter(|(_, groups)| groups.values().map(Vec::len).sum::<usize>() == all);
        let whole: Vec<(&str, BTreeMap<usize, Vec<usize>>)> = whole.collect();
        let mut best = None;
        for (index, (kind, groups)) in whole.iter().enumerate() {
            if groups.len() > MAX_NAMES && index + 1 < whole.len() {
                continue;
            }
            let matrix = self.matrix_of(kind, groups);
            let fits = matrix.fits(width);
            best = Some(matrix);
            if fits {
                break;
            }
        }
        best.unwrap_or_default()
    }

    fn matrix_of(&self, kind: &str, groups: &BTreeMap<usize, Vec<usize>>) -> Matrix {
        let index_of = |id: usize| self.processors.iter().position(|processor| processor.id == id);
        let first: Vec<usize> = groups.values().filter_map(|ids| index_of(*ids.first()?)).collect();
        let numbered = matches!(kind, "CPU" | "NUMA" | "SOCKET");
        let names = groups.keys().enumerate().map(|(index, key)| {
            let number = if numbered { *key } else { index };
            format!("{kind}{number}")
        });
        let number = |number: Option<usize>| number.map_or_else(|| "?".to_string(), |number| number.to_string());
        let affinity = groups.values().zip(&first).map(|(ids, first)| {
            let processor = &self.processors[*first];
            vec![ranges(ids), number(processor.node), number(processor.socket)]
        });
        // More are never shown.
        let shown = &first[..first.len().min(MAX_NAMES)];
        let codes: Vec<Vec<String>> = shown
            .iter()
            .map(|a| shown.iter().map(|b| self.code(*a, *b).to_string()).collect())
            .collect();
        let legend = LEGEND
            .iter()
            .filter(|(code, _)| codes.iter().flatten().any(|found| found == code))
            .map(|(code, meaning)| (code.to_string(), meaning.to_string()));
        Matrix {
            names: names.collect(),
            headings: ["CPU affinity", "NUMA affinity", "Socket"].map(String::from).to_vec(),
            affinity: affinity.collect(),
            legend: legend.collect(),
            codes,
        }
    }

    /// Processors by a number that they have in common; those without one are in no group.
    fn groups(&self, key: impl Fn(&Processor) -> Option<usize>) -> BTreeMap<usize, Vec<usize>> {
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for processor in &self.processors {
            if let Some(key) = key(processor) {
                groups.entry(key).or_default().push(processor.id);
            }
        }
        groups
    }
}

const LEGEND: [(&str, &str); 9] = [
    ("X", "the same"),
    ("SMT", "threads of one core"),
    ("L1", "cores that share a cache of level 1"),
    ("L2", "cores that share a cache of level 2"),
    ("L3", "cores that share a cache of level 3"),
    ("L4", "cores that share a cache of level 4"),
    ("NODE", "cores of one NUMA node without a cache in common"),
    (
        "SOC",
        "cores of one socket, in other NUMA nodes or where nothing nearer is known",
    ),
    ("SYS", "another socket: through the link between sockets"),
];

fn processor(cpus: &Path, id: usize, nodes: &[NumaNode]) -> Processor {
    let at = cpus.join(format!("cpu{id}"));
    let topology = at.join("topology");
    let siblings = list(&topology.join("core_cpus_list")).or_else(|| list(&topology.join("thread_siblings_list")));
    let mut caches: Vec<Cache> = (0..16)
        .filter_map(|index| cache(&at.join(format!("cache/index{index}"))))
        .collect();
    caches.sort_by(|a, b| (a.level, &a.kind).cmp(&(b.level, &b.kind)));
    Processor {
        id,
        socket: number(&topology.join("physical_package_id")),
        node: nodes
            .iter()
            .find(|node| node.processors.contains(&id))
            .map(|node| node.id),
        // A core without this processor would be another one's.
        siblings: siblings.filter(|ids| ids.contains(&id)).unwrap_or_else(|| vec![id]),
        caches,
    }
}

fn cache(at: &Path) -> Option<Cache> {
    Some(Cache {
        level: number(&at.join("level"))?.try_into().ok()?,
        kind: line(&at.join("type"))?,
        bytes: line(&at.join("size")).and_then(|text| size(&text)),
        processors: list(&at.join("shared_cpu_list")).unwrap_or_default(),
    })
}

/// The nodes below a folder that have memory or one of the processors.
fn nodes(folder: &Path, ids: &[usize]) -> Vec<NumaNode> {
    let mut nodes: Vec<NumaNode> = numbered(folder, "node")
        .into_iter()
        .map(|id| {
            let at = folder.join(format!("node{id}"));
            NumaNode {
                id,
                processors: list(&at.join("cpulist")).unwrap_or_default(),
                memory: text(&at.join("meminfo")).and_then(|text| total(&text)),
            }
        })
        .collect();
    nodes
        .retain(|node| node.memory.is_some_and(|bytes| bytes > 0) || ids.iter().any(|id| node.processors.contains(id)));
    nodes
}

/// The processors that have a folder and are not switched off.
fn present(cpus: &Path) -> Vec<usize> {
    let mut ids = numbered(cpus, "cpu");
    ids.retain(|id| number(&cpus.join(format!("cpu{id}/online"))) != Some(0));
    ids
}

/// The numbers of the entries `name0`, `name1` … of a folder, ascending.
fn numbered(folder: &Path, name: &str) -> Vec<usize> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let number = |entry: std::fs::DirEntry| {
        let digits = entry.file_name().to_str()?.strip_prefix(name)?.parse().ok();
        digits.filter(|number| *number < MAX_NUMBER)
    };
    let mut numbers: Vec<usize> = entries.flatten().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

fn text(file: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(file).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}

fn line(file: &Path) -> Option<String> {
    text(file).map(|text| text.trim().to_string())
}

/// A file with one number; also −1, which stands for "not known", is none.
fn number(file: &Path) -> Option<usize> {
    line(file)?.parse().ok().filter(|number| *number < MAX_NUMBER)
}

fn list(file: &Path) -> Option<Vec<usize>> {
    parse_processors(&line(file)?)
}

/// Reads a list of processors as Linux writes it, such as `0-3,8`: ascending, each once. `None` where the text is no such list or
/// has a number of 65,536 or more.
pub fn parse_processors(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MAX_NUMBER || first > last || numbers.len() > MAX_NUMBER {
            return None;
        }
        numbers.extend(first..=last);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Some(numbers)
}

/// `48K` in bytes.
fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.chars().last()? {
        'K' => (&text[..text.len() - 1], 1 << 10),
        'M' => (&text[..text.len() - 1], 1 << 20),
        'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// `Node 0 MemTotal:  24 kB` in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.contains("MemTotal:"))?;
    let kib: u64 = line
        .split("MemTotal:")
        .nth(1)?
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    kib.checked_mul(1024)
}

/// Bytes with a binary unit: `32 KiB`, `31.4 GiB`.
fn binary(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    match value.fract() == 0.0 {
        true => format!("{value} {}", units[unit]),
        false => format!("{value:.1} {}", units[unit]),
    }
}
