//! Generation: keys and values of earlier tokens, and attention over them.

use super::attention::{AttentionSpec, Separate, fused_shape, narrowed, output_layout};
use super::shape::plan;
use crate::Result;
use crate::error::TensorError;
use crate::tensor::{Dtype, Meta, Tensor};
use std::ops::Range;
use unisono_runtime::BufferRef;
use unisono_runtime::ops::attention::{Attention, Heads, Layout, Shape};
use unisono_runtime::ops::cache::CacheAppend;
use unisono_runtime::ops::copy::Copy;

/// Keys and values of earlier tokens, of one layer.
pub struct KvCache {
    keys: Tensor,
    values: Tensor,
    capacity: usize,
}

/// Where new tokens stand in their sequences, and which of them ask: all, or each sequence's last one, after which alone a
/// prompt's logits are wanted. Those that do not ask still give their keys and values.
pub struct Places {
    /// Positions of all new tokens, [batch, tokens]: each sequence's follow each other.
    pub all: Tensor,
    /// Of those that ask, [batch, 1] or `all`.
    pub asking: Tensor,
    /// Of each sequence's first one, [batch, 1]: so many tokens are in the cache.
    first: Tensor,
    /// Of the first that asks.
    first_asking: Tensor,
}

impl Places {
    /// All tokens ask, which stand at `positions` [batch, tokens].
    ///
    /// # Errors
    /// No tokens, another shape, or too little memory.
    pub fn all(positions: &Tensor) -> Result<Places> {
        let first = column(positions, |_| 0)?;
        Ok(Places {
            all: positions.clone(),
            asking: positions.clone(),
            first_asking: first.clone(),
            first,
        })
    }

    /// The same tokens, of which each sequence's last asks.
    ///
    /// # Errors
    /// Too little memory.
    pub fn last(&self) -> Result<Places> {
        let last = column(&self.all, |tokens| tokens - 1)?;
        Ok(Places {
            all: self.all.clone(),
            asking: last.clone(),
            first: self.first.clone(),
            first_asking: last,
        })
    }

    /// Of features [batch, tokens, width] those of the tokens that ask.
    ///
    /// # Errors
    /// Fewer tokens than ask, or too little memory.
    pub fn asking_of(&self, x: &Tensor) -> Result<Tensor> {
        let asking = self.asking.local_shape()[1];
        match *x.local_shape() {
            [_, tokens, _] if tokens == asking => Ok(x.clone()),
            [_, tokens, _] if tokens > asking => x.slice(1, tokens - asking..tokens),
            _ => Err(TensorError::Shape {
                op: "features",
                found: format!("{:?}, of which {asking} tokens ask", x.shape()),
                rule: "[batch, tokens, width], of all new tokens".into(),
            }),
        }
    }
}

/// One column of positions [batch, tokens]: of how many tokens, `of` is told.
fn column(positions: &Tensor, of: fn(usize) -> usize) -> Result<Tensor> {
    match *positions.local_shape() {
        [_, 1] => Ok(positions.clone()),
        [_, tokens] if tokens > 1 => positions.slice(1, of(tokens)..of(tokens) + 1),
        _ => Err(TensorError::Shape {
            op: "positions",
            found: format!("{:?}", positions.shape()),
            rule: "[batch, tokens], of at least one token".into(),
        }),
    }
}

impl Tensor {
    /// Attention of the new tokens that ask over themselves and what `cache` holds; the keys and values of all new ones are
    /// appended to it. Gradients do not flow through.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn cached_attention(&self, spec: &AttentionSpec, cache: &KvCache, at: &Places) -> Result<Tensor> {
        let op = "cached_attention";
        let (batch, tokens, fused) = fused_shape(op, self, spec)?;
        let width = fused.groups * fused.heads_per_group * fused.head_dim;
        let asking = at.asking.local_shape()[1];
        let mut result = narrowed(self, width);
        result.local[1] = asking;
        let mut q = fused.queries(self.buffer(), tokens);
        let skipped = tokens.saturating_sub(asking) * q.layout.token;
        q.buffer = q.buffer.part(skipped, q.buffer.len - skipped);
        let new = New {
            tokens,
            shape: Shape {
                batch,
                groups: fused.groups,
                heads_per_group: fused.heads_per_group,
                head_dim: fused.head_dim,
                queries: asking,
                keys: cache.capacity,
                causal: true,
                scale: spec.scale(),
            },
            q,
            k: fused.keys(self.buffer(), tokens),
            v: fused.values(self.buffer(), tokens),
            out_layout: output_layout(&fused, asking),
        };
        cache.attend(op, self, new, result, at)
    }

    /// As [`Tensor::cached_attention`], from separate queries [batch, asking, heads · d], keys and values
    /// [batch, tokens, groups · d]. Keys go into the cache as they are given: where positions are rotated into them, that was
    /// done before.
    ///
    /// # Errors
    /// Shapes or placements that do not fit.
    pub fn cached_attention_qkv(
        &self,
        keys: &Tensor,
        values: &Tensor,
        spec: &AttentionSpec,
        cache: &KvCache,
        at: &Places,
    ) -> Result<Tensor> {
        let op = "cached_attention";
        let heads = Separate::of(op, [self, keys, values], spec)?;
        let q = heads.queries(self.buffer());
        let new = New {
            tokens: heads.shape.keys,
            shape: Shape {
                keys: cache.capacity,
                causal: true,
                ..heads.shape
            },
            q,
            k: heads.keys(keys.buffer()),
            v: heads.keys(values.buffer()),
            out_layout: q.layout,
        };
        cache.attend(op, self, new, self.meta().clone(), at)
    }
}

/// The heads of new tokens.
struct New {
    /// Tokens of a sequence.
    tokens: usize,
    /// Of the attention: its queries are those of the tokens that ask.
    shape: Shape,
    q: Heads,
    k: Heads,
    v: Heads,
    /// How the result lies.
    out_layout: Layout,
}

impl KvCache {
    /// Appends the keys and values of new tokens and lets the queries of those that ask see all that is there.
    fn attend(&self, op: &'static str, x: &Tensor, new: New, result: Meta, at: &Places) -> Result<Tensor> {
        super::same_device(op, x, &at.all)?;
        super::same_device(op, x, &self.keys)?;
        at.all.expect_dtype(op, Dtype::U32)?;
        let Shape {
            batch,
            groups,
            head_dim,
            queries,
            ..
        } = new.shape;
        let (all, asking) = (at.all.local_shape(), at.asking.local_shape());
        if all != [batch, new.tokens] || asking != [batch, queries] || self.keys.local_shape()[0] != batch {
            return Err(TensorError::Shape {
                op,
                found: format!(
                    "{batch} sequences of {} new tokens, {queries} of them with queries; positions {all:?}, {asking:?} of them \
                     ask; a cache for {} sequences",
                    new.tokens,
                    self.keys.local_shape()[0]
                ),
                rule: "each new token has a position, each that asks has queries, each sequence its part of the cache"
                    .into(),
            });
        }
        if self.keys.local_shape()[1] != groups || self.keys.local_shape()[3] != head_dim {
            return Err(TensorError::Shape {
                op,
                found: format!(
                    "{groups} groups of {head_dim} elements on each device, and a cache for {} of {}",
                    self.keys.local_shape()[1],
                    self.keys.local_shape()[3]
                ),
                rule: "both must be equal: make the cache for this attention and this mesh".into(),
            });
        }
        x.expect_same_dtype(op, &self.keys)?;
        let runtime = x.device().runtime();
        runtime.issue(CacheAppend {
            k: new.k,
            v: new.v,
            groups,
            head_dim,
            tokens: new.tokens,
            positions: at.first.buffer(),
            capacity: self.capacity,
            keys: self.keys.buffer(),
            values: self.values.buffer(),
        })?;
        let y = Tensor::activation(x.device(), result)?;
        let group = self.capacity * head_dim;
        let cached = |buffer: BufferRef| Heads {
            buffer,
            layout: Layout {
                batch: groups * group,
                token: head_dim,
                group,
                head: 0,
            },
        };
        runtime.issue(Attention {
            shape: new.shape,
            q: new.q,
            k: cached(self.keys.buffer()),
            v: cached(self.values.buffer()),
            first_query: Some(at.first_asking.buffer()),
            mask: None,
            mask_batch: 0,
            out: Heads {
                buffer: y.buffer(),
                layout: new.out_layout,
            },
            lse: None,
        })?;
        Ok(y)
    }

    /// Room for `capacity` tokens of each of `batch` sequences (on each device), for the groups that `groups_per_device`
    /// says a device holds; `dtype` is that of the activations.
    ///
    /// # Errors
    /// Too little memory.
    pub fn new(
        device: &crate::MeshDevice,
        spec: &AttentionSpec,
        groups_per_device: usize,
        batch: usize,
        capacity: usize,
        dtype: Dtype,
    ) -> Result<KvCache> {
        let meta = Meta::replicated(device, dtype, &[batch, groups_per_device, capacity, spec.head_dim]);
        let half = || Tensor::empty(device, meta.clone(), unisono_runtime::Kind::Cache);
        Ok(KvCache {
            keys: half()?,
            values: half()?,
            capacity,
        })
    }

    /// The caches of some of the sequences: the same memory. A prompt goes through the cache of one sequence, so that
    /// prompts of different lengths need no padding.
    ///
    /// # Errors
    /// Sequences that there are not.
    pub fn sequences(&self, range: Range<usize>) -> Result<KvCache> {
        let mut local = self.keys.local_shape().to_vec();
        if range.start > range.end || range.end > local[0] {
            return Err(TensorError::Argument {
                op: "cache",
                what: format!("sequences {range:?} of a cache for {}", local[0]),
            });
        }
        let sequence: usize = local[1..].iter().product();
        local[0] = range.len();
        let part = |t: &Tensor| {
            let buffer = t.buffer().part(range.start * sequence, range.len() * sequence);
            let meta = t.meta().with_local(local.clone());
            Tensor::view(t.device(), t.inner.memory.clone(), buffer, meta)
        };
        Ok(KvCache {
            keys: part(&self.keys),
            values: part(&self.values),
            capacity: self.capacity,
        })
    }

    /// The same tokens with room for `capacity` of each sequence: memory of its own, to which the first `used` tokens of every
    /// sequence are copied, on the devices.
    ///
    /// # Errors
    /// Too little memory.
    pub fn with_capacity(&self, capacity: usize, used: usize) -> Result<KvCache> {
        let &[batch, groups, _, head_dim] = self.keys.local_shape() else {
            panic!("bug in unisono: a cache of shape {:?}", self.keys.local_shape());
        };
        let used = used.min(self.capacity).min(capacity);
        let moved = |from: &Tensor| -> Result<Tensor> {
            let meta = from.meta().with_local(vec![batch, groups, capacity, head_dim]);
            let to = Tensor::empty(from.device(), meta, unisono_runtime::Kind::Cache)?;
            let tokens = Tokens {
                runs: batch * groups,
                len: used * head_dim,
                apart: [self.capacity * head_dim, capacity * head_dim],
            };
            tokens.copy(from, from.buffer(), to.buffer())?;
            Ok(to)
        };
        Ok(KvCache {
            keys: moved(&self.keys)?,
            values: moved(&self.values)?,
            capacity,
        })
    }

    /// Copies the first `tokens` tokens of sequence `from` (of each device) over those of sequence `to`.
    ///
    /// # Errors
    /// Sequences that there are not.
    pub fn copy_sequence(&self, from: usize, to: usize, tokens: usize) -> Result<()> {
        if from == to {
            return Ok(());
        }
        let (source, target) = (self.sequences(from..from + 1)?, self.sequences(to..to + 1)?);
        let &[_, groups, _, head_dim] = self.keys.local_shape() else {
            panic!("bug in unisono: a cache of shape {:?}", self.keys.local_shape());
        };
        let tokens = Tokens {
            runs: groups,
            len: tokens.min(self.capacity) * head_dim,
            apart: [self.capacity * head_dim; 2],
        };
        tokens.copy(&self.keys, source.keys.buffer(), target.keys.buffer())?;
        tokens.copy(&self.values, source.values.buffer(), target.values.buffer())
    }

    /// Tokens that there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

/// A copy of the first tokens of every group.
struct Tokens {
    /// Groups, of all sequences.
    runs: usize,
    /// Elements of a group's tokens.
    len: usize,
    /// Elements from one group to the next, in the source and in the target.
    apart: [usize; 2],
}

impl Tokens {
    fn copy(&self, of: &Tensor, from: BufferRef, to: BufferRef) -> Result<()> {
        if self.len == 0 {
            return Ok(());
        }
        let [src, dst] = self.apart;
        let plan = plan("cache", &[self.runs, self.len], &[src, 1], &[dst, 1])?;
        Ok(of.device().runtime().issue(Copy { from, to, plan })?)
    }
}
