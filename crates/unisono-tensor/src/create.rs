//! Making tensors.

use crate::error::TensorError;
use crate::runs::for_each_run;
use crate::tensor::{Dtype, Meta, Tensor};
use crate::{MeshDevice, Result, Rows};
use std::sync::Arc;
use unisono_mesh::Placement;
use unisono_runtime::ops::cast::Cast;
use unisono_runtime::ops::fill::Fill;
use unisono_runtime::ops::random::{Distribution, FillRandom};
use unisono_runtime::ops::{Region, RegionDim};
use unisono_runtime::{HostData, Kind};

impl MeshDevice {
    /// A replicated tensor from values in row-major order.
    ///
    /// # Errors
    /// Another number of values than the shape has elements.
    pub fn tensor(&self, values: &[f32], shape: &[usize]) -> Result<Tensor> {
        expect_len("tensor", values.len(), shape)?;
        let t = Tensor::activation(self, Meta::replicated(self, Dtype::F32, shape))?;
        self.runtime().upload(t.buffer(), values.to_vec())?;
        Ok(t)
    }

    /// A replicated tensor of integers.
    ///
    /// # Errors
    /// Another number of values than the shape has elements.
    pub fn tensor_u32(&self, values: &[u32], shape: &[usize]) -> Result<Tensor> {
        expect_len("tensor_u32", values.len(), shape)?;
        let t = Tensor::empty(self, Meta::replicated(self, Dtype::U32, shape), Kind::Data)?;
        self.runtime().upload(t.buffer(), values.to_vec())?;
        Ok(t)
    }

    /// A tensor that is cut along mesh axes: `cuts` pairs the name of an axis with the dimension that it cuts.
    ///
    /// # Errors
    /// A number of values that does not fit the shape, an unknown axis, or a dimension that its axis does not divide.
    pub fn sharded(&self, values: &[f32], shape: &[usize], cuts: &[(&str, usize)]) -> Result<Tensor> {
        expect_len("sharded", values.len(), shape)?;
        let meta = self.cut("sharded", Dtype::F32, shape, cuts)?;
        let t = Tensor::activation(self, meta)?;
        t.upload_global(values)?;
        Ok(t)
    }

    /// A batch of samples, dealt out along axis `dp` in its first dimension, as one micro-batch that is the whole step.
    ///
    /// # Errors
    /// A number of samples that the axis does not divide.
    pub fn batch(&self, values: &[f32], shape: &[usize]) -> Result<Tensor> {
        expect_len("batch", values.len(), shape)?;
        let t = Tensor::empty(self, self.batch_meta(Dtype::F32, shape, None)?, Kind::Data)?;
        t.upload_global(values)?;
        Ok(t)
    }

    /// A batch of integers; see [`MeshDevice::batch`].
    ///
    /// # Errors
    /// A number of samples that the axis does not divide.
    pub fn batch_u32(&self, values: &[u32], shape: &[usize]) -> Result<Tensor> {
        expect_len("batch_u32", values.len(), shape)?;
        let t = Tensor::empty(self, self.batch_meta(Dtype::U32, shape, None)?, Kind::Data)?;
        t.upload_global_u32(values)?;
        Ok(t)
    }

    /// A micro-batch of integers within an optimizer step of `rows.total` sequences: `values` are the sequences of this
    /// micro-batch, device after device.
    ///
    /// # Errors
    /// Another number of values than the shape has elements.
    pub fn micro_batch_u32(&self, values: &[u32], shape: &[usize], rows: Rows) -> Result<Tensor> {
        expect_len("micro_batch_u32", values.len(), shape)?;
        let t = Tensor::empty(self, self.batch_meta(Dtype::U32, shape, Some(rows))?, Kind::Data)?;
        t.upload_global_u32(values)?;
        Ok(t)
    }

    /// A micro-batch of samples; see [`MeshDevice::micro_batch_u32`].
    ///
    /// # Errors
    /// Another number of values than the shape has elements.
    pub fn micro_batch(&self, values: &[f32], shape: &[usize], rows: Rows) -> Result<Tensor> {
        expect_len("micro_batch", values.len(), shape)?;
        let t = Tensor::empty(self, self.batch_meta(Dtype::F32, shape, Some(rows))?, Kind::Data)?;
        t.upload_global(values)?;
        Ok(t)
    }

    /// A micro-batch of which only the shape is known: what the null backend is given.
    ///
    /// # Errors
    /// A number of samples that the axis does not divide.
    pub fn empty_micro_batch(&self, dtype: Dtype, shape: &[usize], rows: Rows) -> Result<Tensor> {
        Tensor::empty(self, self.batch_meta(dtype, shape, Some(rows))?, Kind::Data)
    }

    /// Every element the same.
    ///
    /// # Errors
    /// Too little memory.
    pub fn full(&self, value: f32, shape: &[usize]) -> Result<Tensor> {
        let t = Tensor::activation(self, Meta::replicated(self, Dtype::F32, shape))?;
        self.runtime().issue(Fill { to: t.buffer(), value })?;
        Ok(t)
    }

    /// Zeros.
    ///
    /// # Errors
    /// Too little memory.
    pub fn zeros(&self, shape: &[usize]) -> Result<Tensor> {
        self.full(0.0, shape)
    }

    /// Ones.
    ///
    /// # Errors
    /// Too little memory.
    pub fn ones(&self, shape: &[usize]) -> Result<Tensor> {
        self.full(1.0, shape)
    }

    /// 0, 1, …, n − 1.
    ///
    /// # Errors
    /// Too little memory.
    pub fn arange(&self, n: usize) -> Result<Tensor> {
        let values: Vec<f32> = (0..n).map(|i| i as f32).collect();
        self.tensor(&values, &[n])
    }

    /// Ones on and below the diagonal, zeros above it.
    ///
    /// # Errors
    /// Too little memory.
    pub fn tril(&self, n: usize) -> Result<Tensor> {
        let values: Vec<f32> = (0..n * n).map(|i| if i % n <= i / n { 1.0 } else { 0.0 }).collect();
        self.tensor(&values, &[n, n])
    }

    /// Uniform random numbers in [0, 1), keyed by the seed, `site` and the element.
    ///
    /// # Errors
    /// Too little memory.
    pub fn rand(&self, shape: &[usize], site: u32) -> Result<Tensor> {
        self.random(shape, &[], site, Distribution::Uniform { low: 0.0, high: 1.0 })
    }

    /// Standard normal random numbers, keyed by the seed, `site` and the element.
    ///
    /// # Errors
    /// Too little memory.
    pub fn randn(&self, shape: &[usize], site: u32) -> Result<Tensor> {
        self.random(shape, &[], site, Distribution::Normal { mean: 0.0, std: 1.0 })
    }

    /// Random numbers of a tensor that may be cut: each device draws its own elements, and all meshes draw the same ones.
    ///
    /// # Errors
    /// An unknown axis, or a dimension that its axis does not divide.
    pub fn random(
        &self,
        shape: &[usize],
        cuts: &[(&str, usize)],
        site: u32,
        distribution: Distribution,
    ) -> Result<Tensor> {
        let t = Tensor::activation(self, self.cut("random", Dtype::F32, shape, cuts)?)?;
        let region = t.region("random")?;
        self.runtime().issue(FillRandom {
            to: t.buffer(),
            region,
            stream: self.stream(site, false),
            distribution,
        })?;
        Ok(t)
    }

    /// Metadata of a tensor that is cut along mesh axes.
    fn cut(&self, op: &'static str, dtype: Dtype, shape: &[usize], cuts: &[(&str, usize)]) -> Result<Meta> {
        let mut meta = Meta::replicated(self, dtype, shape);
        for (name, dim) in cuts {
            let Some(axis) = self.axis(name) else {
                // An axis of one device cuts nothing; a name that the mesh lacks is refused unless it is a common one.
                if !["dp", "tp", "pp"].contains(name) {
                    self.mesh().axis(name)?;
                }
                continue;
            };
            let size = meta.local.get(*dim).copied().unwrap_or(0);
            if *dim >= shape.len() || !size.is_multiple_of(axis.size) {
                return Err(TensorError::Argument {
                    op,
                    what: format!(
                        "dimension {dim} of shape {shape:?} over the {} devices of axis `{name}`; it must exist and be a \
                         multiple of them",
                        axis.size
                    ),
                });
            }
            if let Placement::Shard(first) = meta.placements[axis.index] {
                return Err(TensorError::Argument {
                    op,
                    what: format!(
                        "axis `{name}` for dimensions {first} and {dim} of {shape:?}; an axis cuts one dimension"
                    ),
                });
            }
            let cut = |placement: &Placement| placement.sharded_dim() == Some(*dim);
            if let Some(other) = meta.placements.iter().position(cut) {
                return Err(crate::ops::comm::cut_twice(
                    op,
                    shape,
                    *dim,
                    &self.axis_name(other),
                    name,
                ));
            }
            meta.local[*dim] /= axis.size;
            meta.placements[axis.index] = Placement::Shard(*dim);
            meta.units[*dim] = axis.size;
        }
        Ok(meta)
    }

    fn batch_meta(&self, dtype: Dtype, shape: &[usize], rows: Option<Rows>) -> Result<Meta> {
        let mut meta = self.cut("batch", dtype, shape, &[("dp", 0)])?;
        if let Some(first) = meta.units.first_mut() {
            *first = 1;
        }
        let axis = self.axis("dp");
        meta.rows = Some(rows.unwrap_or_else(|| Rows::whole(shape.first().copied().unwrap_or(1), axis)));
        Ok(meta)
    }

    /// A parameter: its padded shape, the axis that cuts a dimension, the units of each dimension, and how it is filled.
    /// Elements beyond `valid` (by dimension) are zero.
    ///
    /// # Errors
    /// Units that the axis does not divide, or too little memory.
    pub fn parameter(&self, name: &str, spec: &ParameterSpec) -> Result<Tensor> {
        let t = self.filled(name, spec)?.requires_grad()?;
        t.set_name(name);
        Ok(t)
    }

    /// A parameter that is not trained: values in `dtype` and nothing else, no leaf and no gradient.
    ///
    /// # Errors
    /// As [`MeshDevice::parameter`].
    pub fn constant(&self, name: &str, spec: &ParameterSpec, dtype: Dtype) -> Result<Tensor> {
        if dtype == Dtype::F32 {
            return self.filled(name, spec);
        }
        let meta = self.parameter_meta(name, spec, dtype)?;
        let t = Tensor::empty(self, meta, Kind::Parameter)?;
        if spec.init != Init::Later {
            self.runtime().issue(Cast {
                from: self.filled(name, spec)?.buffer(),
                to: t.buffer(),
            })?;
        }
        Ok(t)
    }

    fn parameter_meta(&self, name: &str, spec: &ParameterSpec, dtype: Dtype) -> Result<Meta> {
        if spec.dims.len() > 3 {
            return Err(TensorError::Argument {
                op: "parameter",
                what: format!("`{name}` has {} dimensions; up to 3 are built", spec.dims.len()),
            });
        }
        let mut meta = Meta::replicated(self, dtype, &spec.padded());
        for (dim, d) in spec.dims.iter().enumerate() {
            meta.units[dim] = d.units;
            if let Some(axis) = d.axis.and_then(|name| self.axis(name)) {
                if !d.units.is_multiple_of(axis.size) {
                    return Err(TensorError::Argument {
                        op: "parameter",
                        what: format!(
                            "dimension {dim} of `{name}` has {} units, which {} devices cannot share evenly",
                            d.units, axis.size
                        ),
                    });
                }
                meta.local[dim] /= axis.size;
                meta.placements[axis.index] = Placement::Shard(dim);
            }
        }
        Ok(meta)
    }

    /// A tensor in f32 as `spec` says.
    fn filled(&self, name: &str, spec: &ParameterSpec) -> Result<Tensor> {
        let t = Tensor::empty(self, self.parameter_meta(name, spec, Dtype::F32)?, Kind::Parameter)?;
        let command = |value: f32| Fill { to: t.buffer(), value };
        match spec.init {
            Init::Later => {}
            Init::Zeros => self.runtime().issue(command(0.0))?,
            Init::Ones => self.runtime().issue(command(1.0))?,
            Init::Normal { std, site } => {
                self.fill_random(&t, spec, site, Distribution::Normal { mean: 0.0, std })?;
            }
            Init::Uniform { bound, site } => {
                self.fill_random(
                    &t,
                    spec,
                    site,
                    Distribution::Uniform {
                        low: -bound,
                        high: bound,
                    },
                )?;
            }
        }
        Ok(t)
    }

    fn fill_random(&self, t: &Tensor, spec: &ParameterSpec, site: u32, distribution: Distribution) -> Result<()> {
        let mut dims = [RegionDim::whole(1); 3];
        let missing = 3usize.saturating_sub(spec.dims.len());
        for (dim, d) in spec.dims.iter().enumerate() {
            let axis = t.meta().axis_of(self, dim);
            let local = t.local_shape()[dim];
            dims[missing + dim] = RegionDim {
                local,
                global: local * axis.map_or(1, |axis| axis.size),
                valid: d.len,
                base: 0,
                step: local,
                axis,
            };
        }
        let stream = self.stream(site, false);
        self.runtime().issue(FillRandom {
            to: t.buffer(),
            region: Region { dims },
            stream,
            distribution,
        })?;
        Ok(())
    }
}

/// One dimension of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterDim {
    /// Elements that are real.
    pub len: usize,
    /// Units that sums over the dimension are grouped by; the stored length is `units · ceil(len / units)`.
    pub units: usize,
    /// Name of the mesh axis that cuts the dimension, where the mesh has it.
    pub axis: Option<&'static str>,
}

/// How a parameter begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Not at all: values are uploaded before the first use.
    Later,
    /// Zeros.
    Zeros,
    /// Ones.
    Ones,
    /// Normal with mean 0, keyed by `site`.
    Normal {
        /// Standard deviation.
        std: f32,
        /// Random site; no two parameters share one.
        site: u32,
    },
    /// Uniform in ±bound, keyed by `site`.
    Uniform {
        /// Bound.
        bound: f32,
        /// Random site; no two parameters share one.
        site: u32,
    },
}

/// What a parameter is, before it is on a mesh. At most three dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterSpec {
    /// The dimensions.
    pub dims: Vec<ParameterDim>,
    /// The first values.
    pub init: Init,
}

impl ParameterSpec {
    /// Shape with padding.
    pub fn padded(&self) -> Vec<usize> {
        self.dims
            .iter()
            .map(|d| d.len.div_ceil(d.units.max(1)) * d.units.max(1))
            .collect()
    }

    /// Shape without padding.
    pub fn shape(&self) -> Vec<usize> {
        self.dims.iter().map(|d| d.len).collect()
    }
}

impl Tensor {
    /// Zeros in the shape and placement of this tensor, counted as `kind` in the memory report.
    ///
    /// # Errors
    /// Too little memory.
    pub fn zeros_like(&self, kind: Kind) -> Result<Tensor> {
        let t = Tensor::empty(self.device(), self.meta().clone(), kind)?;
        self.device().runtime().issue(Fill {
            to: t.buffer(),
            value: 0.0,
        })?;
        Ok(t)
    }

    /// Copies values in row-major order of the whole tensor to the shards.
    ///
    /// # Errors
    /// Another number of values than the whole tensor has.
    pub fn upload_global(&self, values: &[f32]) -> Result<()> {
        expect_len("upload", values.len(), &self.shape())?;
        let data = match self.is_cut() {
            false => HostData::F32(Arc::from(values)),
            true => HostData::F32PerDevice(self.shards(values)),
        };
        self.device().runtime().upload(self.buffer(), data)?;
        self.renew_copy()
    }

    /// Copies integers in row-major order of the whole tensor to the shards.
    ///
    /// # Errors
    /// Another number of values than the whole tensor has.
    pub fn upload_global_u32(&self, values: &[u32]) -> Result<()> {
        expect_len("upload", values.len(), &self.shape())?;
        let data = match self.is_cut() {
            false => HostData::U32(Arc::from(values)),
            true => HostData::U32PerDevice(self.shards(values)),
        };
        Ok(self.device().runtime().upload(self.buffer(), data)?)
    }

    fn is_cut(&self) -> bool {
        self.placements().iter().any(|p| p.sharded_dim().is_some())
    }

    /// Each device's shard of a whole tensor; devices that hold the same shard share it.
    fn shards<T: Copy>(&self, values: &[T]) -> Vec<Arc<[T]>> {
        let mut made: Vec<(Vec<usize>, Arc<[T]>)> = Vec::new();
        (0..self.device().mesh().num_devices())
            .map(|device| {
                let start = self.start(device);
                if let Some((_, shard)) = made.iter().find(|(at, _)| *at == start) {
                    return shard.clone();
                }
                let mut shard = Vec::with_capacity(self.meta().len());
                for_each_run(&self.shape(), self.local_shape(), &start, &mut |at, _, len| {
                    shard.extend_from_slice(&values[at..at + len]);
                });
                let shard: Arc<[T]> = shard.into();
                made.push((start, shard.clone()));
                shard
            })
            .collect()
    }
}

fn expect_len(op: &'static str, given: usize, shape: &[usize]) -> Result<()> {
    let expected: usize = shape.iter().product();
    if given == expected {
        return Ok(());
    }
    Err(TensorError::Argument {
        op,
        what: format!("{given} values for shape {shape:?}, which has {expected} elements"),
    })
}
