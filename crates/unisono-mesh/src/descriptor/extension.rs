//! Extension blocks, which readers that do not know them skip: kinds and rates of links, and what a device has.

use super::report::Position;
use super::schema::Architecture;

/// How devices are joined. Rates are those commonly published, of one channel in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkKind {
    /// PCI Express 3.0 with 16 lanes: 15.75 GB/s.
    Pcie3x16,
    /// PCI Express 4.0 with 16 lanes: 31.5 GB/s.
    Pcie4x16,
    /// PCI Express 5.0 with 16 lanes: 63 GB/s.
    Pcie5x16,
    /// One NVLink of the second generation (V100): 25 GB/s.
    NvLink2,
    /// One NVLink of the third generation (A100): 25 GB/s.
    NvLink3,
    /// One NVLink of the fourth generation (H100): 25 GB/s.
    NvLink4,
    /// An Ethernet channel: 100 Gbit/s on `WORMHOLE_B0` and where nothing else is known, 400 Gbit/s on `BLACKHOLE`.
    Ethernet,
    /// Memory that both devices reach. It has no commonly published rate.
    Memory,
}

impl LinkKind {
    /// All of them.
    pub const ALL: [LinkKind; 8] = [
        LinkKind::Pcie3x16,
        LinkKind::Pcie4x16,
        LinkKind::Pcie5x16,
        LinkKind::NvLink2,
        LinkKind::NvLink3,
        LinkKind::NvLink4,
        LinkKind::Ethernet,
        LinkKind::Memory,
    ];

    /// The word of the text format.
    pub fn name(self) -> &'static str {
        match self {
            LinkKind::Pcie3x16 => "pcie3x16",
            LinkKind::Pcie4x16 => "pcie4x16",
            LinkKind::Pcie5x16 => "pcie5x16",
            LinkKind::NvLink2 => "nvlink2",
            LinkKind::NvLink3 => "nvlink3",
            LinkKind::NvLink4 => "nvlink4",
            LinkKind::Ethernet => "ethernet",
            LinkKind::Memory => "memory",
        }
    }

    /// GB/s (10⁹ bytes) of one channel in one direction, where a rate is commonly published.
    ///
    /// Sources: PCI-SIG's transfer rates of 8, 16 and 32 GT/s with 128b/130b coding on 16 lanes; NVIDIA's data sheets of
    /// V100, A100 and H100 (300, 600 and 900 GB/s in both directions over 6, 12 and 18 links); Tenstorrent's product pages
    /// (Wormhole 100 Gbit/s, Blackhole 400 Gbit/s an Ethernet channel).
    pub fn channel_gbps(self, arch: Architecture) -> Option<f64> {
        match self {
            LinkKind::Pcie3x16 => Some(15.75),
            LinkKind::Pcie4x16 => Some(31.5),
            LinkKind::Pcie5x16 => Some(63.0),
            LinkKind::NvLink2 | LinkKind::NvLink3 | LinkKind::NvLink4 => Some(25.0),
            LinkKind::Ethernet if arch == Architecture::Blackhole => Some(50.0),
            LinkKind::Ethernet => Some(12.5),
            LinkKind::Memory => None,
        }
    }

    /// The kind of the links of an architecture where no block says otherwise.
    pub fn of(arch: Architecture) -> LinkKind {
        match arch {
            Architecture::WormholeB0 | Architecture::Blackhole => LinkKind::Ethernet,
            Architecture::Cpu => LinkKind::Memory,
            Architecture::Cuda => LinkKind::Pcie4x16,
        }
    }
}

/// `[unisono.link] { … }` in a mesh, a switch, a connection or a graph topology.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkBlock {
    /// Where the block stands.
    pub at: Position,
    /// `dim`: the dimension whose links are meant; not given, all.
    pub dim: Option<u32>,
    /// `kind`.
    pub kind: Option<LinkKind>,
    /// `bandwidth_gbps`: GB/s of one channel in one direction. It goes before the kind's own rate.
    pub bandwidth_gbps: Option<f64>,
    /// `latency_us`: microseconds from device to device.
    pub latency_us: Option<f64>,
    /// `channels`: how many such links have, in place of the mesh's `channels.count`.
    pub channels: Option<u32>,
    /// `switched`: the devices of the mesh hang on a switch, so that every pair is one hop apart.
    pub switched: bool,
}

/// `[unisono.device] { … }` in a mesh or a switch: what each of its devices has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceBlock {
    /// `memory_gib`: memory in GiB.
    pub memory_gib: Option<f64>,
    /// `peak_tflops`: 10¹² floating-point operations a second.
    pub peak_tflops: Option<f64>,
}

/// Kind, rate and latency of a link, as blocks and defaults give them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkRate {
    /// The kind.
    pub kind: LinkKind,
    /// GB/s (10⁹ bytes) of one channel in one direction, where it is known.
    pub channel_gbps: Option<f64>,
    /// Microseconds from device to device, where they are given.
    pub latency_us: Option<f64>,
}

impl LinkRate {
    /// What the first block that fits gives, else the architecture's default.
    pub fn new(arch: Architecture, block: Option<&LinkBlock>) -> Self {
        let kind = block.and_then(|block| block.kind).unwrap_or_else(|| LinkKind::of(arch));
        Self {
            kind,
            channel_gbps: block
                .and_then(|block| block.bandwidth_gbps)
                .or_else(|| kind.channel_gbps(arch)),
            latency_us: block.and_then(|block| block.latency_us),
        }
    }
}
