//! The graph of operations and the backward pass through it.
//!
//! Every result of an operation that a gradient may flow through holds a node: its inputs and a closure that turns
//! the result's gradient into the inputs' gradients. The graph is freed as its tensors are dropped.

use crate::error::TensorError;
use crate::leaf::Leaf;
use crate::tensor::{Dtype, Meta, Tensor};
use crate::{MeshDevice, Result, Rows};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use unisono_mesh::Placement;
use unisono_runtime::ops::elementwise::{Binary, Combine, Operand};
use unisono_runtime::ops::fill::Fill;

/// Turns the gradient of a result into the gradients of the inputs, `None` where an input has none (or where it was added
/// to a leaf's accumulator at once).
pub type Backward = Rc<dyn Fn(&Tensor) -> Result<Vec<Option<Tensor>>>>;

/// Where a gradient goes on.
pub(crate) struct Edge {
    node: Option<Rc<Node>>,
    leaf: Option<Rc<Leaf>>,
    /// What the input's elements are (once it is complete), and so its gradient's.
    dtype: Dtype,
}

/// One operation of the graph.
pub(crate) struct Node {
    pub id: u64,
    pub name: &'static str,
    /// Where the inputs' gradients go. Edges keep the graph, not the inputs' values.
    pub inputs: Vec<Edge>,
    /// Gone once the backward pass went through it.
    pub backward: RefCell<Option<Backward>>,
    /// Whether the operation takes a gradient that is still a partial sum (only communication does).
    pub takes_partial: bool,
    /// Whether the operation can only be the root of a backward pass.
    pub root_only: bool,
    /// How dimension 0 of the result lies in the step's batch; its gradient lies so too.
    pub rows: Option<Rows>,
}

impl Drop for Node {
    /// Frees what led here without recursion: a graph may be deeper than the stack.
    fn drop(&mut self) {
        let mut edges = std::mem::take(&mut self.inputs);
        while let Some(edge) = edges.pop() {
            if let Some(mut node) = edge.node.and_then(Rc::into_inner) {
                edges.append(&mut node.inputs);
            }
        }
    }
}

impl Tensor {
    /// Gives `output` its place in the graph, if gradients are recorded and an input wants one.
    pub(crate) fn record(
        self,
        name: &'static str,
        inputs: &[&Tensor],
        backward: impl Fn(&Tensor) -> Result<Vec<Option<Tensor>>> + 'static,
    ) -> Tensor {
        self.record_node(name, inputs, false, false, backward)
    }

    /// As [`Tensor::record`], for operations that are special in the backward pass.
    pub(crate) fn record_node(
        self,
        name: &'static str,
        inputs: &[&Tensor],
        takes_partial: bool,
        root_only: bool,
        backward: impl Fn(&Tensor) -> Result<Vec<Option<Tensor>>> + 'static,
    ) -> Tensor {
        let device = self.device().clone();
        if !device.grad_enabled() || !inputs.iter().any(|input| input.needs_grad()) {
            return self;
        }
        let node = Node {
            id: device.next_id(),
            name,
            inputs: inputs
                .iter()
                .map(|t| Edge {
                    node: t.inner.node.clone(),
                    leaf: t.inner.leaf.clone(),
                    dtype: t.meta().complete_dtype(),
                })
                .collect(),
            backward: RefCell::new(Some(Rc::new(backward))),
            takes_partial,
            root_only,
            rows: self.meta().rows,
        };
        let mut tensor = self.detach();
        let inner = Rc::get_mut(&mut tensor.inner);
        match inner {
            Some(inner) => inner.node = Some(Rc::new(node)),
            None => unreachable!("bug in unisono: a tensor just made has one handle"),
        }
        tensor
    }

    /// Backward pass from this tensor, whose gradient is taken as 1 for every element. The gradients of the leaves that
    /// take part are added to what they have, and the values that the operations saved are freed.
    ///
    /// # Errors
    /// A tensor outside any graph, a graph that was freed by an earlier backward pass, a gradient that is a partial sum
    /// where the graph needs a complete one, or what the operations say.
    pub fn backward(&self) -> Result<()> {
        self.backward_from_ones(false)
    }

    /// As [`Tensor::backward`], but what the operations saved is kept, so that another backward pass can follow. Its
    /// gradients of tensors are added to the first one's; those of weights, which are sums over the step's batch, need a
    /// [`Tensor::zero_grad`] in between.
    ///
    /// # Errors
    /// As [`Tensor::backward`], and a fused loss, which has made its gradients in the forward pass and keeps nothing.
    pub fn backward_retain(&self) -> Result<()> {
        if self.inner.node.as_ref().is_some_and(|node| node.root_only) {
            return Err(TensorError::Gradient(
                "a fused loss makes its gradients in the forward pass, once: use cross_entropy on logits where several \
                 backward passes are wanted"
                    .into(),
            ));
        }
        self.backward_from_ones(true)
    }

    fn backward_from_ones(&self, retain: bool) -> Result<()> {
        if !self.needs_grad() {
            return Err(TensorError::Gradient(format!(
                "backward() on {self:?}, which no gradient leads to: no tensor with requires_grad() takes part in it, or it \
                 was computed under no_grad"
            )));
        }
        self.complete("backward", "the loss")?;
        let seed = Tensor::activation(self.device(), self.meta().clone())?;
        self.device().runtime().issue(Fill {
            to: seed.buffer(),
            value: 1.0,
        })?;
        self.backward_from(&seed, retain)
    }

    /// Backward pass with a given gradient of this tensor.
    ///
    /// # Errors
    /// As [`Tensor::backward`], and a gradient of another shape.
    pub fn backward_with(&self, gradient: &Tensor) -> Result<()> {
        crate::ops::same_device("backward", self, gradient)?;
        if gradient.local_shape() != self.local_shape() {
            return Err(TensorError::Shape {
                op: "backward",
                found: format!(
                    "a gradient of shape {:?} for a tensor of shape {:?}",
                    gradient.shape(),
                    self.shape()
                ),
                rule: "both must be the same".into(),
            });
        }
        if self.inner.node.as_ref().is_some_and(|node| node.root_only) {
            return Err(TensorError::Gradient(
                "a fused loss can only be the root of backward(), with a gradient of 1; use cross_entropy on logits where \
                 the loss is processed further"
                    .into(),
            ));
        }
        self.backward_from(gradient, false)
    }

    fn backward_from(&self, seed: &Tensor, retain: bool) -> Result<()> {
        let device = self.device().clone();
        let result = device.with_grad(false, || {
            let seed = seed.to_dtype(self.meta().complete_dtype())?;
            run(&device, self, &seed, retain)
        });
        device.set_uses(Default::default());
        result
    }
}

fn run(device: &MeshDevice, root: &Tensor, seed: &Tensor, retain: bool) -> Result<()> {
    let Some(node) = &root.inner.node else {
        return root.inner.leaf.as_ref().map_or(Ok(()), |leaf| leaf.add(seed));
    };
    // Nodes by age, youngest first: a node runs after everything that used its result.
    let mut pending: BTreeMap<u64, (Rc<Node>, Tensor)> = BTreeMap::new();
    pending.insert(node.id, (node.clone(), seed.clone()));
    let root_id = node.id;
    while let Some((id, (node, mut gradient))) = pending.pop_last() {
        check_gradient(device, &node, &gradient)?;
        if gradient.meta().rows != node.rows {
            let rows = node.rows;
            gradient = gradient.reinterpret(Meta {
                rows,
                ..gradient.meta().clone()
            });
        }
        if node.root_only && id != root_id {
            return Err(TensorError::Gradient(format!(
                "{} can only be the root of backward(): call backward() on its result, not on something made from it",
                node.name
            )));
        }
        let backward = match retain {
            true => node.backward.borrow().clone(),
            false => node.backward.borrow_mut().take(),
        };
        let backward = backward.ok_or_else(|| {
            TensorError::Gradient(format!(
                "backward() through {} a second time: its saved values were freed by the first pass; run the forward pass \
                 again, or make the first pass with backward_retain()",
                node.name
            ))
        })?;
        let gradients = backward(&gradient)?;
        drop((backward, gradient));
        for (input, gradient) in node.inputs.iter().zip(gradients) {
            let Some(mut gradient) = gradient else { continue };
            // A sum is rounded once, when it is complete and before it meets another gradient.
            if gradient.meta().partial.is_none() {
                gradient = gradient.to_dtype(input.dtype)?;
            }
            if let Some(leaf) = &input.leaf {
                leaf.add(&gradient)?;
            } else if let Some(before) = &input.node {
                let sum = match pending.remove(&before.id) {
                    Some((_, sum)) => add(&sum, &gradient)?,
                    None => gradient,
                };
                pending.insert(before.id, (before.clone(), sum));
            }
        }
    }
    Ok(())
}

/// Gradients of one tensor from two uses: a new tensor, since either may be in use elsewhere.
pub(crate) fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.complete("backward", "the gradient of a tensor used twice")?;
    b.complete("backward", "the gradient of a tensor used twice")?;
    let sum = Tensor::activation(a.device(), a.meta().clone())?;
    let command = Combine {
        f: Binary::Add,
        a: a.buffer(),
        b: Operand::Buffer(b.buffer()),
        swapped: false,
        to: sum.buffer(),
    };
    a.device().runtime().issue(command)?;
    Ok(sum)
}

fn check_gradient(device: &MeshDevice, node: &Node, gradient: &Tensor) -> Result<()> {
    let partial = gradient.placements().iter().position(|p| *p == Placement::Partial);
    match partial {
        Some(index) if !node.takes_partial => Err(TensorError::Partial {
            op: node.name,
            what: format!(
                "in the backward pass, the gradient of its result {:?}",
                gradient.shape()
            ),
            axis: device.axis_name(index),
            hint: if node.name == "all_gather" {
                ", or say that its gradient is not replicated: all_gather(.., false) reduces and scatters it"
            } else {
                ", or pass the tensor through broadcast() before it meets sharded weights: its backward is that all_reduce"
            },
        }),
        _ => Ok(()),
    }
}
