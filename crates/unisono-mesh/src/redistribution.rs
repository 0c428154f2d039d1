//! From one placement of a tensor to another: the sequence of collectives that sends least.

use crate::distribution::refuse;
use crate::draw::counted;
use crate::{Mesh, MeshError, Placement};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// A tensor that is to be placed anew, as far as a plan must know it.
#[derive(Debug, Clone, Copy)]
pub struct Layout<'a> {
    /// The shape of the whole tensor.
    pub shape: &'a [usize],
    /// One placement per axis of the mesh.
    pub placements: &'a [Placement],
    /// Bytes of an element.
    pub element: u64,
    /// Bytes of the addends of an element, for a partial sum.
    pub addends: u64,
}

/// What happens along one axis in a step of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Move {
    /// `Shard` to `Replicate`: every device gets the parts of all.
    AllGather,
    /// `Replicate` to `Shard`: each device keeps its own part. Nothing is sent.
    Slice,
    /// `Shard` of one dim to `Shard` of another: each device sends every other a part of its part.
    AllToAll,
    /// `Partial` to `Replicate`: the sum is completed on every device.
    AllReduce,
    /// `Partial` to `Shard`: each device completes its own part of the sum.
    ReduceScatter,
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedistributionStep {
    /// Index of the mesh axis.
    pub axis: usize,
    /// What happens along it.
    pub what: Move,
    /// The placement along the axis before.
    pub from: Placement,
    /// The placement along the axis after.
    pub to: Placement,
    /// Bytes that each device sends of its own data.
    pub bytes: u64,
}

/// A plan that takes a tensor from one placement to another.
///
/// ```
/// use unisono_mesh::{Layout, Mesh, Placement, Redistribution};
/// let mesh = Mesh::new(&[("dp", 2), ("tp", 4)])?;
/// let rows = [Placement::Replicate, Placement::Shard(0)];
/// let tensor = Layout { shape: &[8, 16], placements: &rows, element: 4, addends: 4 };
/// let plan = Redistribution::plan(&mesh, &tensor, &[Placement::Shard(0), Placement::Shard(1)])?;
/// assert_eq!(
///     plan.sentence(&mesh),
///     "all-to-all along `tp` (Shard(0) to Shard(1)), then each device keeps its own part of dim 0 along `dp` (Replicate to \
///      Shard(0)); each device sends 96 bytes"
/// );
/// # Ok::<(), unisono_mesh::MeshError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Redistribution {
    /// The steps in order; none where nothing is to be done.
    pub steps: Vec<RedistributionStep>,
}

/// Layouts that the search looks at before it takes the plan that always works: gather all, then cut.
const MAX_LAYOUTS: usize = 50_000;

impl Redistribution {
    /// The plan that sends the fewest bytes; of those the one with the fewest steps. Axes whose placement stays are left alone,
    /// and so are axes of one device. At no step do two axes cut one dim.
    ///
    /// # Errors
    /// [`MeshError::Distribution`]: another number of placements than axes, a dim outside the tensor, cut twice, or not a multiple
    /// of its devices; or a partial sum as the aim, unless nothing else changes.
    pub fn plan(mesh: &Mesh, tensor: &Layout<'_>, to: &[Placement]) -> Result<Self, MeshError> {
        let aim = normal(mesh, tensor.shape, to)?;
        let start = normal(mesh, tensor.shape, tensor.placements)?;
        if start == aim {
            return Ok(Self::default());
        }
        if let Some(axis) = aim.iter().position(|placement| placement.is_partial()) {
            return Err(refuse(format!(
                "the aim is Partial along axis `{}`; a tensor becomes a partial sum only by being computed: ask for Replicate or \
                 Shard there",
                mesh.axes()[axis].name
            )));
        }
        let search = Search { mesh, tensor, aim };
        Ok(Self {
            steps: search.cheapest(&start).unwrap_or_else(|| search.by_gathering(&start)),
        })
    }

    /// Bytes that each device sends of its own data, all steps together.
    pub fn bytes(&self) -> u64 {
        self.steps.iter().map(|step| step.bytes).sum()
    }

    /// The plan in words.
    pub fn sentence(&self, mesh: &Mesh) -> String {
        if self.steps.is_empty() {
            return "the tensor lies so already; nothing is sent".to_string();
        }
        let steps: Vec<String> = self.steps.iter().map(|step| step.words(mesh)).collect();
        let sent = match self.bytes() {
            0 => "nothing is sent".to_string(),
            bytes => format!("each device sends {bytes} bytes"),
        };
        format!("{}; {sent}", steps.join(", then "))
    }
}

impl RedistributionStep {
    fn words(&self, mesh: &Mesh) -> String {
        let what = match (self.what, self.to) {
            (Move::Slice, Placement::Shard(dim)) => format!("each device keeps its own part of dim {dim}"),
            (Move::Slice, _) => "each device keeps its own part".to_string(),
            (Move::AllGather, _) => "all-gather".to_string(),
            (Move::AllToAll, _) => "all-to-all".to_string(),
            (Move::AllReduce, _) => "all-reduce".to_string(),
            (Move::ReduceScatter, _) => "reduce-scatter".to_string(),
        };
        let axis = &mesh.axes()[self.axis].name;
        format!("{what} along `{axis}` ({} to {})", self.from, self.to)
    }
}

/// Placements that fit the tensor, those of axes of one device replicated.
fn normal(mesh: &Mesh, shape: &[usize], placements: &[Placement]) -> Result<Vec<Placement>, MeshError> {
    let axes = mesh.axes();
    if placements.len() != axes.len() {
        return Err(refuse(format!(
            "{} for the mesh {}, which has {}; give one placement per axis",
            counted(placements.len(), "placement"),
            mesh.describe(),
            counted(axes.len(), "axis"),
        )));
    }
    let mut normal = Vec::with_capacity(axes.len());
    for (axis, placement) in axes.iter().zip(placements) {
        if axis.size == 1 {
            normal.push(Placement::Replicate);
            continue;
        }
        if let Placement::Shard(dim) = *placement {
            let Some(size) = shape.get(dim) else {
                return Err(refuse(format!(
                    "Shard({dim}) along axis `{}` of a tensor {shape:?}, which has {}",
                    axis.name,
                    counted(shape.len(), "dim")
                )));
            };
            if !size.is_multiple_of(axis.size) {
                return Err(refuse(format!(
                    "dim {dim} of the tensor {shape:?} along axis `{}` of {} devices; a dim that is cut must be a multiple of them",
                    axis.name, axis.size
                )));
            }
            if let Some(other) = normal.iter().position(|p| p == placement) {
                return Err(refuse(format!(
                    "dim {dim} of the tensor {shape:?} is to be cut along axis `{}` and along axis `{}`; one axis can cut a dim",
                    axes[other].name, axis.name
                )));
            }
        }
        normal.push(*placement);
    }
    Ok(normal)
}

struct Search<'a> {
    mesh: &'a Mesh,
    tensor: &'a Layout<'a>,
    aim: Vec<Placement>,
}

/// What a layout was reached by, and at what price: bytes, then steps.
type Reached = HashMap<Vec<Placement>, ((u64, usize), Option<RedistributionStep>)>;

impl Search<'_> {
    /// Dijkstra's algorithm over layouts.
    fn cheapest(&self, start: &[Placement]) -> Option<Vec<RedistributionStep>> {
        let mut reached: Reached = HashMap::from([(start.to_vec(), ((0, 0), None))]);
        // The order of entry settles ties, so that equal questions have equal answers.
        let mut entered = vec![start.to_vec()];
        let mut open = BinaryHeap::from([Reverse(((0u64, 0usize), 0usize))]);
        while let Some(Reverse((price, entry))) = open.pop() {
            let layout = entered[entry].clone();
            if layout == self.aim {
                return Some(Self::path(&reached, layout));
            }
            if reached.len() > MAX_LAYOUTS {
                return None;
            }
            if reached.get(&layout).is_some_and(|(best, _)| *best < price) {
                continue;
            }
            for step in self.steps_from(start, &layout) {
                let next_price = (price.0.saturating_add(step.bytes), price.1 + 1);
                let mut next = layout.clone();
                next[step.axis] = step.to;
                if reached.get(&next).is_none_or(|(best, _)| next_price < *best) {
                    reached.insert(next.clone(), (next_price, Some(step)));
                    open.push(Reverse((next_price, entered.len())));
                    entered.push(next);
                }
            }
        }
        None
    }

    fn path(reached: &Reached, mut layout: Vec<Placement>) -> Vec<RedistributionStep> {
        let mut steps = Vec::new();
        while let Some((_, Some(step))) = reached.get(&layout) {
            layout[step.axis] = step.from;
            steps.push(step.clone());
        }
        steps.reverse();
        steps
    }

    /// Every step that may be taken. A partial sum is completed before anything else is moved.
    fn steps_from(&self, start: &[Placement], layout: &[Placement]) -> Vec<RedistributionStep> {
        let mut steps = Vec::new();
        let partial = layout.iter().any(|placement| placement.is_partial());
        for (axis, &from) in layout.iter().enumerate() {
            if start[axis] == self.aim[axis] || partial && !from.is_partial() {
                continue;
            }
            if from != Placement::Replicate {
                steps.extend(self.step(layout, axis, Placement::Replicate));
            }
            for dim in 0..self.tensor.shape.len() {
                steps.extend(self.step(layout, axis, Placement::Shard(dim)));
            }
        }
        steps
    }

    /// The step to `to` along `axis`, if there is one.
    fn step(&self, layout: &[Placement], axis: usize, to: Placement) -> Option<RedistributionStep> {
        let from = layout[axis];
        let size = self.mesh.axes()[axis].size;
        if let Placement::Shard(dim) = to
            && (layout.contains(&to) || !self.tensor.shape[dim].is_multiple_of(size))
        {
            return None;
        }
        let what = match (from, to) {
            (Placement::Shard(_), Placement::Replicate) => Move::AllGather,
            (Placement::Replicate, Placement::Shard(_)) => Move::Slice,
            (Placement::Shard(_), Placement::Shard(_)) => Move::AllToAll,
            (Placement::Partial, Placement::Replicate) => Move::AllReduce,
            (Placement::Partial, Placement::Shard(_)) => Move::ReduceScatter,
            _ => return None,
        };
        let n = size as u64;
        let local = self.local_elements(layout);
        let others = |bytes: u64| bytes / n * (n - 1) + bytes % n * (n - 1) / n;
        let (whole, addends) = (
            local.saturating_mul(self.tensor.element),
            local.saturating_mul(self.tensor.addends),
        );
        let bytes = match what {
            Move::Slice => 0,
            Move::AllGather => whole.saturating_mul(n - 1),
            Move::AllToAll => others(whole),
            Move::ReduceScatter => others(addends),
            Move::AllReduce => others(addends).saturating_add(others(whole)),
        };
        Some(RedistributionStep {
            axis,
            what,
            from,
            to,
            bytes,
        })
    }

    /// Elements of one device's part.
    fn local_elements(&self, layout: &[Placement]) -> u64 {
        let whole = self
            .tensor
            .shape
            .iter()
            .fold(1u64, |n, size| n.saturating_mul(*size as u64));
        let cuts = layout.iter().zip(self.mesh.axes());
        cuts.filter(|(placement, _)| placement.sharded_dim().is_some())
            .fold(whole, |n, (_, axis)| n / axis.size as u64)
    }

    /// Completes and gathers along every axis that changes, then cuts.
    fn by_gathering(&self, start: &[Placement]) -> Vec<RedistributionStep> {
        let mut steps = Vec::new();
        let mut layout = start.to_vec();
        // What is partial comes first: nothing else may be moved before.
        let mut axes: Vec<usize> = (0..start.len())
            .filter(|axis| start[*axis] != self.aim[*axis])
            .collect();
        axes.sort_by_key(|axis| !start[*axis].is_partial());
        let aims = axes.iter().map(|axis| (*axis, Placement::Replicate));
        for (axis, to) in aims.chain(axes.iter().map(|axis| (*axis, self.aim[*axis]))) {
            if let Some(step) = self.step(&layout, axis, to) {
                layout[axis] = to;
                steps.push(step);
            }
        }
        steps
    }
}
