//! Attention over fused or separate queries, keys and values.

use crate::Result;
use crate::error::TensorError;
use crate::ops::shape::uncut;
use crate::tensor::{Dtype, Meta, Tensor};
use std::ops::Range;
use unisono_mesh::Placement;
use unisono_runtime::ops::attention::{Attention, AttentionGrad, Heads, Layout, Shape};
use unisono_runtime::ops::cache::{CacheAppend, Fused};

/// Heads of an attention, over all devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    /// Query heads.
    pub num_heads: usize,
    /// Key/value groups; as many as heads in plain multi-head attention.
    pub num_groups: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Whether a token sees only itself and earlier ones.
    pub causal: bool,
}

impl AttentionSpec {
    /// Factor of the scores.
    fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }
}

/// Keys and values of earlier tokens, of one layer.
pub struct KvCache {
    keys: Tensor,
    values: Tensor,
    capacity: usize,
}

impl Tensor {
    /// Attention over a fused projection [batch, tokens, groups · (heads per group + 2) · d], whose features are
    /// (group, [q…, k, v], d); the result is [batch, tokens, heads · d]. Along a mesh axis it may be cut in the batch or,
    /// by whole groups, in the features.
    ///
    /// `mask` holds one byte a (query, key), packed into u32 elements: [tokens, tokens] or [batch, tokens, tokens], 0 where
    /// a key is not seen.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn attention(&self, spec: &AttentionSpec, mask: Option<&Tensor>) -> Result<Tensor> {
        let op = "attention";
        let (batch, tokens, fused) = fused_shape(op, self, spec)?;
        let (mask, mask_batch) = match mask {
            None => (None, 0),
            Some(mask) => {
                mask.expect_dtype(op, Dtype::U32)?;
                let bytes = 4 * mask.meta().len();
                if bytes < tokens * tokens || mask.rank() == 3 && bytes < batch * tokens * tokens {
                    return Err(TensorError::Shape {
                        op,
                        found: format!("a mask of {bytes} bytes for {batch} sequences of {tokens} tokens"),
                        rule: "a mask has one byte a (query, key): [tokens, tokens] or [batch, tokens, tokens]".into(),
                    });
                }
                check_mask(op, self, mask)?;
                (Some(mask.detach()), if mask.rank() == 3 { tokens * tokens } else { 0 })
            }
        };
        let width = fused.groups * fused.heads_per_group * fused.head_dim;
        let y = Tensor::activation(self.device(), narrowed(self, width))?;
        let heads = batch * fused.groups * fused.heads_per_group * tokens;
        let lse = Tensor::activation(self.device(), Meta::replicated(self.device(), Dtype::F32, &[heads]))?;
        let x = self.detach();
        let part = |offset: usize, head: usize| Heads {
            buffer: x
                .buffer()
                .part(offset * fused.head_dim, x.meta().len() - offset * fused.head_dim),
            layout: Layout {
                batch: tokens * fused.token(),
                token: fused.token(),
                group: fused.group(),
                head,
            },
        };
        let forward = Attention {
            shape: Shape {
                batch,
                groups: fused.groups,
                heads_per_group: fused.heads_per_group,
                head_dim: fused.head_dim,
                queries: tokens,
                keys: tokens,
                causal: spec.causal,
                scale: spec.scale(),
            },
            q: part(0, fused.head_dim),
            k: part(fused.heads_per_group, 0),
            v: part(fused.heads_per_group + 1, 0),
            first_query: None,
            mask: mask.as_ref().map(Tensor::buffer),
            mask_batch,
            out: Heads {
                buffer: y.buffer(),
                layout: output_layout(&fused, tokens),
            },
            lse: Some(lse.buffer()),
        };
        self.device().runtime().issue(forward.clone())?;
        let out = y.detach();
        Ok(y.record(op, &[self], move |dy| {
            // Everything that the command reads is kept until it is issued.
            let _saved = (&out, &mask);
            let dx = Tensor::activation(dy.device(), x.meta().clone())?;
            let part = |offset: usize| {
                dx.buffer()
                    .part(offset * fused.head_dim, dx.meta().len() - offset * fused.head_dim)
            };
            dy.device().runtime().issue(AttentionGrad {
                forward: forward.clone(),
                lse: lse.buffer(),
                d_out: dy.buffer(),
                dq: part(0),
                dk: part(fused.heads_per_group),
                dv: part(fused.heads_per_group + 1),
            })?;
            Ok(vec![Some(dx)])
        }))
    }

    /// Attention over separate queries [batch, tokens, heads · d], keys and values [batch, keys, groups · d].
    ///
    /// # Errors
    /// Shapes or placements that do not fit.
    pub fn attention_qkv(&self, keys: &Tensor, values: &Tensor, spec: &AttentionSpec) -> Result<Tensor> {
        let op = "attention";
        for t in [self, keys, values] {
            t.complete(op, "an input")?;
            t.expect_float(op)?;
            self.expect_same_dtype(op, t)?;
            if t.rank() == 3 {
                uncut(op, t, 1)?;
            }
        }
        let fail = |rule: &str| TensorError::Shape {
            op,
            found: format!(
                "queries {:?}, keys {:?}, values {:?}",
                self.shape(),
                keys.shape(),
                values.shape()
            ),
            rule: rule.into(),
        };
        let (&[batch, queries, q_width], &[kb, tokens, k_width]) = (self.local_shape(), keys.local_shape()) else {
            return Err(fail("each has three dimensions: batch, tokens, features"));
        };
        let d = spec.head_dim.max(1);
        let (heads, groups) = (q_width / d, k_width / d);
        let fits = kb == batch
            && keys.local_shape() == values.local_shape()
            && self.placements() == keys.placements()
            && keys.placements() == values.placements()
            && groups > 0
            && heads * d == q_width
            && groups * d == k_width
            && heads.is_multiple_of(groups)
            && heads / groups == spec.num_heads / spec.num_groups.max(1);
        if !fits {
            return Err(fail(
                "features must be whole heads, placements alike, and heads a multiple of groups",
            ));
        }
        let per_group = heads / groups;
        let layout = |width: usize, tokens: usize, group: usize| Layout {
            batch: tokens * width,
            token: width,
            group,
            head: d,
        };
        let y = Tensor::activation(self.device(), self.meta().clone())?;
        let rows = batch * heads * queries;
        let lse = Tensor::activation(self.device(), Meta::replicated(self.device(), Dtype::F32, &[rows]))?;
        let forward = Attention {
            shape: Shape {
                batch,
                groups,
                heads_per_group: per_group,
                head_dim: d,
                queries,
                keys: tokens,
                causal: spec.causal,
                scale: spec.scale(),
            },
            q: Heads {
                buffer: self.buffer(),
                layout: layout(q_width, queries, per_group * d),
            },
            k: Heads {
                buffer: keys.buffer(),
                layout: layout(k_width, tokens, d),
            },
            v: Heads {
                buffer: values.buffer(),
                layout: layout(k_width, tokens, d),
            },
            first_query: None,
            mask: None,
            mask_batch: 0,
            out: Heads {
                buffer: y.buffer(),
                layout: layout(q_width, queries, per_group * d),
            },
            lse: Some(lse.buffer()),
        };
        self.device().runtime().issue(forward.clone())?;
        let saved = (self.detach(), keys.detach(), values.detach(), y.detach());
        Ok(y.record(op, &[self, keys, values], move |dy| {
            let (q, k, v, _out) = &saved;
            let like = |t: &Tensor| Tensor::activation(dy.device(), t.meta().clone());
            let (dq, dk, dv) = (like(q)?, like(k)?, like(v)?);
            dy.device().runtime().issue(AttentionGrad {
                forward: forward.clone(),
                lse: lse.buffer(),
                d_out: dy.buffer(),
                dq: dq.buffer(),
                dk: dk.buffer(),
                dv: dv.buffer(),
            })?;
            Ok(vec![Some(dq), Some(dk), Some(dv)])
        }))
    }

    /// Attention of new tokens over themselves and what `cache` holds; their keys and values are appended to it.
    /// `positions` `[batch]` says how many tokens each sequence has in the cache. Gradients do not flow through.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn cached_attention(&self, spec: &AttentionSpec, cache: &KvCache, positions: &Tensor) -> Result<Tensor> {
        let op = "cached_attention";
        let (batch, tokens, fused) = fused_shape(op, self, spec)?;
        positions.expect_dtype(op, Dtype::U32)?;
        if positions.meta().len() != batch || cache.keys.local_shape()[0] != batch {
            return Err(TensorError::Shape {
                op,
                found: format!(
                    "{batch} sequences, {} positions, a cache for {}",
                    positions.meta().len(),
                    cache.keys.local_shape()[0]
                ),
                rule: "there must be as many of each".into(),
            });
        }
        self.expect_same_dtype(op, &cache.keys)?;
        let runtime = self.device().runtime();
        runtime.issue(CacheAppend {
            fused: self.buffer(),
            layout: fused,
            tokens,
            positions: positions.buffer(),
            capacity: cache.capacity,
            keys: cache.keys.buffer(),
            values: cache.values.buffer(),
        })?;
        let width = fused.groups * fused.heads_per_group * fused.head_dim;
        let y = Tensor::activation(self.device(), narrowed(self, width))?;
        let group = cache.capacity * fused.head_dim;
        let cached = Layout {
            batch: fused.groups * group,
            token: fused.head_dim,
            group,
            head: 0,
        };
        runtime.issue(Attention {
            shape: Shape {
                batch,
                groups: fused.groups,
                heads_per_group: fused.heads_per_group,
                head_dim: fused.head_dim,
                queries: tokens,
                keys: cache.capacity,
                causal: true,
                scale: spec.scale(),
            },
            q: Heads {
                buffer: self.buffer(),
                layout: Layout {
                    batch: tokens * fused.token(),
                    token: fused.token(),
                    group: fused.group(),
                    head: fused.head_dim,
                },
            },
            k: Heads {
                buffer: cache.keys.buffer(),
                layout: cached,
            },
            v: Heads {
                buffer: cache.values.buffer(),
                layout: cached,
            },
            first_query: Some(positions.buffer()),
            mask: None,
            mask_batch: 0,
            out: Heads {
                buffer: y.buffer(),
                layout: output_layout(&fused, tokens),
            },
            lse: None,
        })?;
        Ok(y)
    }
}

impl KvCache {
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

    /// Tokens that there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

/// A mask for each sequence lies where the sequence lies, one for all of them on every device.
fn check_mask(op: &'static str, x: &Tensor, mask: &Tensor) -> Result<()> {
    for (index, (px, pm)) in x.placements().iter().zip(mask.placements()).enumerate() {
        let wanted = if *px == Placement::Shard(0) && mask.rank() == 3 {
            *px
        } else {
            Placement::Replicate
        };
        if *pm != wanted {
            return Err(TensorError::Placement {
                op,
                axis: x.device().axis_name(index),
                found: format!(
                    "the projection {:?} is {px} and the mask {:?} is {pm}",
                    x.shape(),
                    mask.shape()
                ),
                rule: format!("the mask must be {wanted}"),
            });
        }
    }
    Ok(())
}

fn output_layout(fused: &Fused, tokens: usize) -> Layout {
    let group = fused.heads_per_group * fused.head_dim;
    let token = fused.groups * group;
    Layout {
        batch: tokens * token,
        token,
        group,
        head: fused.head_dim,
    }
}

/// Metadata of the result: the features shrink to those of the query heads.
fn narrowed(x: &Tensor, width: usize) -> Meta {
    let mut meta = x.meta().clone();
    let last = meta.local.len() - 1;
    meta.local[last] = width;
    meta
}

/// Sequences, tokens and the layout of a device's part of a fused projection.
fn fused_shape(op: &'static str, x: &Tensor, spec: &AttentionSpec) -> Result<(usize, usize, Fused)> {
    x.complete(op, "the projection")?;
    x.expect_float(op)?;
    if x.rank() == 3 {
        uncut(op, x, 1)?;
    }
    let per_group = spec.num_heads / spec.num_groups.max(1);
    let group = (per_group + 2) * spec.head_dim;
    match x.local_shape() {
        &[batch, tokens, features] if group > 0 && features.is_multiple_of(group) && features > 0 => Ok((
            batch,
            tokens,
            Fused {
                groups: features / group,
                heads_per_group: per_group,
                head_dim: spec.head_dim,
            },
        )),
        _ => Err(TensorError::Shape {
            op,
            found: format!("a projection {:?} (a device holds {:?})", x.shape(), x.local_shape()),
            rule: format!(
                "[batch, tokens, features] with whole groups of {group} features on each device: {per_group} query heads, a key \
                 and a value of {} elements each",
                spec.head_dim
            ),
        }),
    }
}
