//! How a runtime is opened.

use unisono_kernels::bf16_order::Bf16Order;
use unisono_kernels::isa::Isa;

/// Who consumes the command stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backend {
    /// Computes every command on the cores of this machine.
    #[default]
    Cpu,
    /// Computes nothing and accounts for everything: memory, floating-point operations, bytes.
    Null,
}

/// Settings of a [`crate::Runtime`]; `Options::default()` fits most programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Worker threads, the host thread among them; by default one a core that this process may use (affinity and
    /// control-group quota respected). The null backend has none.
    pub workers: Option<usize>,
    /// Who consumes the commands.
    pub backend: Backend,
    /// Bytes that a device may hold. By default the machine's memory shared out evenly among the devices, and no limit on
    /// the null backend.
    pub memory_limit: Option<u64>,
    /// The instruction set of the kernels; by default the best that this CPU has.
    pub isa: Option<Isa>,
    /// The order in which products of bf16 add up: a choice of arithmetic, which every process of a run must make alike.
    pub bf16_order: Bf16Order,
    /// Commands that the host may be ahead of the slowest device, per queue, before it waits (and works).
    pub queue_depth: usize,
    /// Whether each worker is tied to one core.
    pub pin: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            workers: None,
            backend: Backend::Cpu,
            memory_limit: None,
            isa: None,
            bf16_order: Bf16Order::default(),
            queue_depth: 1024,
            pin: false,
        }
    }
}

impl Options {
    /// The default settings on the null backend.
    pub fn null() -> Options {
        Options {
            backend: Backend::Null,
            ..Options::default()
        }
    }
}
