//! Leaves of the graph: parameters, and the accumulators of their gradients.
//!
//! The gradient of a weight is a sum over the tokens of the whole optimizer step. Each *use* of a weight has an accumulator
//! of its own: a stack of partial sums (slots) on every device that micro-batch after micro-batch is pushed on. When all
//! are in, [`sync_gradients`] finishes the sum over the devices and adds the uses in a fixed order.

use crate::autograd::add;
use crate::error::TensorError;
use crate::tensor::{Dtype, Meta, Tensor};
use crate::{MeshDevice, Result, Rows};
use std::cell::RefCell;
use std::rc::Rc;
use unisono_runtime::ops::SumShare;
use unisono_runtime::ops::all_reduce::{AllReduce, Reduction};
use unisono_runtime::ops::bucket::Bucket;
use unisono_runtime::ops::elementwise::{Binary, Combine, Operand};
use unisono_runtime::ops::reduce::Move;
use unisono_runtime::{Buffer, BufferRef, Kind};

/// What makes a tensor a leaf: its name, and its gradient.
pub(crate) struct Leaf {
    pub id: u64,
    name: RefCell<String>,
    uses: RefCell<Vec<Use>>,
    /// Complete gradients from operations that do not sum over the batch.
    plain: RefCell<Option<Tensor>>,
    /// The gradient after [`sync_gradients`].
    ready: RefCell<Option<Tensor>>,
    /// The same values in another kind; see [`Tensor::keep_copy`].
    pub copy: RefCell<Option<Tensor>>,
}

/// The accumulator of one use.
struct Use {
    op: &'static str,
    index: usize,
    memory: Rc<Buffer>,
    slots: usize,
    rows: Rows,
    /// Sequences of each device's share that were pushed.
    done: usize,
    /// When the last of them was: greater is later.
    last: u64,
}

impl Use {
    /// Moves what was pushed to memory for `slots` slots of `size` elements.
    fn grow(&mut self, device: &MeshDevice, slots: usize, size: usize) -> Result<()> {
        let memory = Rc::new(device.runtime().alloc(slots * size, Kind::Gradient)?);
        device.runtime().issue(Move {
            from: self.memory.r(),
            to: memory.r().part(0, self.memory.len),
        })?;
        self.memory = memory;
        self.slots = slots;
        Ok(())
    }
}

/// Where a command is to push a weight's gradient.
pub(crate) struct Target {
    pub buffer: BufferRef,
    pub slot: usize,
    pub sum: SumShare,
}

impl Tensor {
    /// Makes this tensor a leaf whose gradient backward passes collect.
    ///
    /// # Errors
    /// A tensor that is the result of a recorded operation, or a partial sum.
    pub fn requires_grad(self) -> Result<Tensor> {
        self.complete("requires_grad", "the tensor")?;
        if self.inner.node.is_some() {
            return Err(TensorError::Gradient(
                "requires_grad() on a result of other tensors: detach() it first to make it a leaf".into(),
            ));
        }
        let device = self.device().clone();
        let mut tensor = self.detach();
        if let Some(inner) = Rc::get_mut(&mut tensor.inner) {
            inner.leaf = Some(Rc::new(Leaf {
                id: device.next_id(),
                name: RefCell::new(String::new()),
                uses: RefCell::default(),
                plain: RefCell::default(),
                ready: RefCell::default(),
                copy: RefCell::default(),
            }));
        }
        Ok(tensor)
    }

    /// Names a leaf, for messages.
    pub fn set_name(&self, name: &str) {
        if let Some(leaf) = &self.inner.leaf {
            *leaf.name.borrow_mut() = name.to_owned();
        }
    }

    /// The gradient of a leaf, complete and the same for every mesh; `None` where no backward pass reached it since
    /// [`Tensor::zero_grad`].
    ///
    /// # Errors
    /// A gradient over the batch whose sum is not complete: micro-batches are missing.
    pub fn grad(&self) -> Result<Option<Tensor>> {
        if self.inner.leaf.is_none() {
            return Ok(None);
        }
        sync_gradients(&[self])?;
        Ok(self.inner.leaf.as_ref().and_then(|leaf| leaf.ready.borrow().clone()))
    }

    /// Forgets the gradient and gives its memory back: the forward pass needs it for activations.
    pub fn zero_grad(&self) {
        if let Some(leaf) = &self.inner.leaf {
            leaf.ready.borrow_mut().take();
            leaf.plain.borrow_mut().take();
            leaf.uses.borrow_mut().clear();
        }
    }

    /// Takes the complete gradient of a leaf that is not a weight (the input of a recomputed block).
    pub(crate) fn take_grad(&self) -> Option<Tensor> {
        self.inner.leaf.as_ref().and_then(|leaf| leaf.plain.borrow_mut().take())
    }

    /// Bytes that the gradient's accumulators hold on each device.
    pub fn grad_bytes(&self) -> usize {
        self.inner
            .leaf
            .as_ref()
            .map_or(0, |leaf| leaf.uses.borrow().iter().map(|u| 4 * u.memory.len).sum())
    }
}

/// Which use of a weight an operation is; see [`Tensor::use_key`].
pub(crate) type UseKey = (&'static str, usize);

/// The gradient of a weight while an operation's backward pass computes it: an accumulator of a leaf, or a tensor of its own.
pub(crate) struct WeightGrad {
    pub target: Target,
    fresh: Option<(Tensor, Rows)>,
}

impl WeightGrad {
    /// Where the gradient of `weight` over `rows` goes, each sequence of which has `len` rows of addends; `step` sequences
    /// are pushed at a time.
    pub fn open(weight: &Tensor, key: UseKey, rows: &Rows, len: usize, step: usize) -> Result<WeightGrad> {
        if let Some(leaf) = &weight.inner.leaf {
            return Ok(WeightGrad {
                target: leaf.target(weight, key, rows, len, step)?,
                fresh: None,
            });
        }
        if !rows.is_whole() {
            return Err(TensorError::Gradient(format!(
                "the weight {weight:?} is made from other tensors, so its gradient must be complete in one micro-batch, but \
                 this one holds {} of {} sequences: make it a leaf with requires_grad(), or run without accumulation",
                rows.count,
                rows.per_position()
            )));
        }
        let meta = Meta {
            rows: None,
            dtype: Dtype::F32,
            ..weight.meta().clone()
        };
        let size = meta.len();
        let slots = weight.device().slots(rows, step);
        let memory = Rc::new(weight.device().runtime().alloc(slots * size, Kind::Activation)?);
        let buffer = memory.r();
        let tensor = Tensor::view(weight.device(), memory, buffer, meta);
        Ok(WeightGrad {
            target: Target {
                buffer,
                slot: size,
                sum: rows.sum(len),
            },
            fresh: Some((tensor, *rows)),
        })
    }

    /// The gradient to hand on, if it did not go to a leaf.
    pub fn finish(self) -> Result<Option<Tensor>> {
        let Some((tensor, rows)) = self.fresh else {
            return Ok(None);
        };
        let size = tensor.meta().len();
        let first = self.target.buffer.part(0, size);
        if let Some(axis) = rows.axis {
            // Beside the backward pass that still runs: each sum waits for the commands that add to it, and for no others.
            tensor.device().runtime().issue_transfer(AllReduce {
                axis,
                reduction: Reduction::Sum { units: rows.total },
                from: self.target.buffer,
                slot: size,
                len: size,
                to: first,
            })?;
        }
        Ok(Some(Tensor::view(
            tensor.device(),
            tensor.inner.memory.clone(),
            first,
            tensor.meta().clone(),
        )))
    }
}

impl Tensor {
    /// Which use of this weight `op` makes now: a weight used twice (tied embeddings) has an accumulator for each.
    pub(crate) fn use_key(&self, op: &'static str) -> UseKey {
        (
            op,
            self.inner
                .leaf
                .as_ref()
                .map_or(0, |leaf| self.device().next_use(leaf.id, op)),
        )
    }
}

impl Leaf {
    /// Adds a complete gradient.
    pub fn add(&self, gradient: &Tensor) -> Result<()> {
        let mut plain = self.plain.borrow_mut();
        let sum = match plain.take() {
            Some(sum) => add(&sum, gradient)?,
            None => gradient.clone(),
        };
        *plain = Some(sum);
        self.ready.borrow_mut().take();
        Ok(())
    }

    /// The accumulator for use `index` of `op`, with room for `rows` pushed `step` sequences at a time, each of which has
    /// `len` rows of addends. The push is counted as made.
    pub fn target(&self, weight: &Tensor, (op, index): UseKey, rows: &Rows, len: usize, step: usize) -> Result<Target> {
        let size = weight.meta().len();
        let mut uses = self.uses.borrow_mut();
        let at = match uses.iter().position(|u| u.op == op && u.index == index) {
            Some(at) => at,
            None => {
                uses.push(self.open(weight.device(), op, index, rows, step, size)?);
                uses.len() - 1
            }
        };
        let accumulator = &mut uses[at];
        let fits = |accumulator: &Use| {
            accumulator.rows == Rows { skip: 0, ..*rows } && accumulator.slots >= weight.device().slots(rows, step)
        };
        if accumulator.done == 0 && !fits(accumulator) {
            *accumulator = self.open(weight.device(), op, index, rows, step, size)?;
        }
        if accumulator.done > 0 && accumulator.rows.total != rows.total {
            return Err(TensorError::Gradient(format!(
                "the gradient of {} holds micro-batches of a step of {} sequences, and the micro-batch now belongs to one of \
                 {}: zero_grad() must stand before a new step",
                self.name(),
                accumulator.rows.total,
                rows.total
            )));
        }
        if accumulator.done != rows.skip || accumulator.rows.total != rows.total || accumulator.rows.axis != rows.axis {
            return Err(TensorError::Gradient(format!(
                "the gradient of {} holds {} of the {} sequences that each device owns in this step, and the micro-batch now \
                 begins at sequence {}: micro-batches must follow each other, and zero_grad() must stand before a new step",
                self.name(),
                accumulator.done,
                accumulator.rows.per_position(),
                rows.skip
            )));
        }
        let needed = rows.slots_after(rows.skip + rows.count);
        if needed > accumulator.slots {
            // Micro-batches of different sizes: the stack gets higher than the first one's size foretold.
            accumulator.grow(weight.device(), needed, size)?;
        }
        accumulator.done += rows.count;
        accumulator.last = weight.device().next_id();
        self.ready.borrow_mut().take();
        Ok(Target {
            buffer: accumulator.memory.r(),
            slot: size,
            sum: rows.sum(len),
        })
    }

    fn open(
        &self,
        device: &MeshDevice,
        op: &'static str,
        index: usize,
        rows: &Rows,
        step: usize,
        size: usize,
    ) -> Result<Use> {
        let slots = device.slots(rows, step);
        let memory = Rc::new(device.runtime().alloc(slots * size, Kind::Gradient)?);
        Ok(Use {
            op,
            index,
            memory,
            slots,
            rows: Rows { skip: 0, ..*rows },
            done: 0,
            last: 0,
        })
    }

    fn name(&self) -> String {
        let name = self.name.borrow();
        if name.is_empty() {
            "a tensor".into()
        } else {
            format!("`{name}`")
        }
    }
}

/// Completes the gradients of `leaves`: sums over the batch are finished over the devices that share it, and the uses of a
/// tied weight are added in the order in which the model uses it. Nothing is divided by anything.
///
/// # Errors
/// A sum to which micro-batches are missing.
pub fn sync_gradients(leaves: &[&Tensor]) -> Result<()> {
    let open = |tensor: &&&Tensor| {
        tensor
            .inner
            .leaf
            .as_ref()
            .is_some_and(|leaf| leaf.ready.borrow().is_none())
    };
    let leaves: Vec<&Tensor> = leaves.iter().filter(open).copied().collect();
    sum_over_devices(&leaves)?;
    for tensor in leaves {
        let Some(leaf) = &tensor.inner.leaf else { continue };
        let mut total: Option<Tensor> = None;
        let mut uses = leaf.uses.borrow_mut();
        uses.sort_by_key(|u| (u.op, u.index));
        for accumulator in uses.iter().filter(|u| u.done > 0) {
            let sum = first_slot(tensor, accumulator);
            total = Some(match total {
                Some(total) => add_in_place(total, &sum)?,
                None => sum,
            });
        }
        if let Some(plain) = leaf.plain.borrow().as_ref() {
            total = Some(match total {
                Some(total) => add_in_place(total, plain)?,
                None => plain.clone(),
            });
        }
        *leaf.ready.borrow_mut() = total;
    }
    Ok(())
}

/// Bytes of sums that devices finish together: large enough that the way to other processes is seldom gone, small enough that the
/// first sums are under way while the backward pass still runs.
const BUCKET: u64 = 16 << 20;

/// Finishes the accumulators of `leaves` over the devices, bucket by bucket, beside the backward pass that still runs: a bucket waits for
/// the commands that add to it, and for no others. What the backward pass pushed on last comes last.
fn sum_over_devices(leaves: &[&Tensor]) -> Result<()> {
    let mut sums: Vec<(u64, AllReduce)> = Vec::new();
    for tensor in leaves {
        let Some(leaf) = &tensor.inner.leaf else { continue };
        for accumulator in leaf.uses.borrow().iter().filter(|u| u.done > 0) {
            let sum = unfinished(tensor, leaf, accumulator)?;
            sums.extend(sum.map(|sum| (accumulator.last, sum)));
        }
    }
    sums.sort_by_key(|(last, _)| *last);
    let Some(runtime) = leaves.first().map(|tensor| tensor.device().runtime()) else {
        return Ok(());
    };
    let mut rest = sums.into_iter().map(|(_, sum)| sum).peekable();
    while let Some(first) = rest.next() {
        let (axis, mut bytes) = (first.axis, first.from.bytes());
        let mut bucket = vec![first];
        while let Some(next) = rest.next_if(|next| bytes < BUCKET && next.axis == axis) {
            bytes += next.from.bytes();
            bucket.push(next);
        }
        match bucket.len() {
            1 => runtime.issue_transfer(bucket.remove(0))?,
            _ => runtime.issue_transfer(Bucket { parts: bucket.into() })?,
        }
    }
    Ok(())
}

/// What is left to add over the devices of an accumulator; nothing where each has the whole batch.
fn unfinished(tensor: &Tensor, leaf: &Leaf, accumulator: &Use) -> Result<Option<AllReduce>> {
    let rows = accumulator.rows;
    if accumulator.done != rows.per_position() {
        return Err(TensorError::Gradient(format!(
            "the gradient of {} holds {} of the {} sequences that each device owns in this step: run the remaining \
             micro-batches before the gradient is used",
            leaf.name(),
            accumulator.done,
            rows.per_position()
        )));
    }
    let (size, whole) = (tensor.meta().len(), accumulator.memory.r());
    Ok(rows.axis.map(|axis| AllReduce {
        axis,
        reduction: Reduction::Sum { units: rows.total },
        from: whole,
        slot: size,
        len: size,
        to: whole.part(0, size),
    }))
}

/// The sum that an accumulator holds once it is finished.
fn first_slot(tensor: &Tensor, accumulator: &Use) -> Tensor {
    let first = accumulator.memory.r().part(0, tensor.meta().len());
    let meta = Meta {
        rows: None,
        dtype: Dtype::F32,
        ..tensor.meta().clone()
    };
    Tensor::view(tensor.device(), accumulator.memory.clone(), first, meta)
}

/// `a += b`; `a` is an accumulator's own slot or a sum just made.
fn add_in_place(a: Tensor, b: &Tensor) -> Result<Tensor> {
    a.device().runtime().issue(Combine {
        f: Binary::Add,
        a: a.buffer(),
        b: Operand::Buffer(b.buffer()),
        swapped: false,
        to: a.buffer(),
    })?;
    Ok(a)
}
