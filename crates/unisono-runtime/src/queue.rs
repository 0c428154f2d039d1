//! The two queues of a device.

/// A device's queues. Each is worked off in order; between them, commands wait only where they use the same memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Queue {
    /// What the model computes.
    #[default]
    Compute = 0,
    /// Copies in and out, reductions of gradients, sends.
    Transfer = 1,
}

impl Queue {
    /// Indices of the queues, in the order in which a worker looks at them: transfers are short and others wait for them.
    pub(crate) const FIRST_TO_LAST: [usize; 2] = [Queue::Transfer as usize, Queue::Compute as usize];

    /// The word for traces.
    pub fn name(self) -> &'static str {
        match self {
            Queue::Compute => "compute",
            Queue::Transfer => "transfer",
        }
    }
}
