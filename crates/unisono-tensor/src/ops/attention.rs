//! Attention over fused or separate queries, keys and values.

pub use super::kv_cache::{KvCache, Places};
use crate::Result;
use crate::error::TensorError;
use crate::ops::shape::uncut;
use crate::tensor::{Dtype, Meta, Tensor};
use unisono_mesh::Placement;
use unisono_runtime::BufferRef;
use unisono_runtime::ops::attention::{Attention, AttentionGrad, Heads, Layout, Shape};
use unisono_runtime::ops::cache::Fused;

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
    pub(super) fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }
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
                super::same_device(op, self, mask)?;
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
            q: fused.queries(x.buffer(), tokens),
            k: fused.keys(x.buffer(), tokens),
            v: fused.values(x.buffer(), tokens),
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
            dy.device().runtime().issue(AttentionGrad {
                forward: forward.clone(),
                lse: lse.buffer(),
                d_out: dy.buffer(),
                dq: fused.queries(dx.buffer(), tokens).buffer,
                dk: fused.keys(dx.buffer(), tokens).buffer,
                dv: fused.values(dx.buffer(), tokens).buffer,
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
        let heads = Separate::of(op, [self, keys, values], spec)?;
        let y = Tensor::activation(self.device(), self.meta().clone())?;
        let Shape {
            batch,
            groups,
            heads_per_group,
            queries,
            ..
        } = heads.shape;
        let rows = batch * groups * heads_per_group * queries;
        let lse = Tensor::activation(self.device(), Meta::replicated(self.device(), Dtype::F32, &[rows]))?;
        let forward = Attention {
            shape: heads.shape,
            q: heads.queries(self.buffer()),
            k: heads.keys(keys.buffer()),
            v: heads.keys(values.buffer()),
            first_query: None,
            mask: None,
            mask_batch: 0,
            out: heads.queries(y.buffer()),
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
}

/// How the heads of separate projections lie.
pub(super) struct Separate {
    pub shape: Shape,
}

impl Separate {
    /// Of queries [batch, tokens, heads · d], keys and values [batch, keys, groups · d], placed alike.
    pub fn of(op: &'static str, [queries, keys, values]: [&Tensor; 3], spec: &AttentionSpec) -> Result<Separate> {
        for t in [queries, keys, values] {
            super::same_device(op, queries, t)?;
            t.complete(op, "an input")?;
            t.expect_float(op)?;
            queries.expect_same_dtype(op, t)?;
            if t.rank() == 3 {
                uncut(op, t, 1)?;
            }
        }
        let fail = |rule: &str| TensorError::Shape {
            op,
            found: format!(
                "queries {:?}, keys {:?}, values {:?}",
                queries.shape(),
                keys.shape(),
                values.shape()
            ),
            rule: rule.into(),
        };
        let (&[batch, tokens, q_width], &[k_batch, k_tokens, k_width]) = (queries.local_shape(), keys.local_shape())
        else {
            return Err(fail("each has three dimensions: batch, tokens, features"));
        };
        let d = spec.head_dim.max(1);
        let (heads, groups) = (q_width / d, k_width / d);
        let fits = k_batch == batch
            && keys.local_shape() == values.local_shape()
            && queries.placements() == keys.placements()
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
        Ok(Separate {
            shape: Shape {
                batch,
                groups,
                heads_per_group: heads / groups,
                head_dim: d,
                queries: tokens,
                keys: k_tokens,
                causal: spec.causal,
                scale: spec.scale(),
            },
        })
    }

    /// Query heads, or what is made of them.
    pub fn queries(&self, buffer: BufferRef) -> Heads {
        self.heads(buffer, self.shape.queries, self.shape.heads_per_group)
    }

    /// Keys or values.
    pub fn keys(&self, buffer: BufferRef) -> Heads {
        self.heads(buffer, self.shape.keys, 1)
    }

    fn heads(&self, buffer: BufferRef, tokens: usize, per_group: usize) -> Heads {
        let group = per_group * self.shape.head_dim;
        let token = self.shape.groups * group;
        Heads {
            buffer,
            layout: Layout {
                batch: tokens * token,
                token,
                group,
                head: self.shape.head_dim,
            },
        }
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

pub(super) fn output_layout(fused: &Fused, tokens: usize) -> Layout {
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
pub(super) fn narrowed(x: &Tensor, width: usize) -> Meta {
    let mut meta = x.meta().clone();
    let last = meta.local.len() - 1;
    meta.local[last] = width;
    meta
}

/// Sequences, tokens and the layout of a device's part of a fused projection.
pub(super) fn fused_shape(op: &'static str, x: &Tensor, spec: &AttentionSpec) -> Result<(usize, usize, Fused)> {
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
