//! The table of a model's parameters.

use unisono_tensor::create::{Init, ParameterDim, ParameterSpec};
use unisono_tensor::{Dtype, MeshDevice, Result, Tensor};

/// First random site of parameters; dropout sites lie below.
const PARAMETER_SITES: u32 = 0x8000_0000;

/// How a parameter is stored in other people's files, beside its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// As here.
    Same,
    /// The last dimension is (group, [q…, k, v], d) here and (q of all heads, k of all groups, v of all groups) there.
    FusedQkv {
        /// Key/value groups.
        groups: usize,
        /// Query heads of a group.
        heads_per_group: usize,
        /// Elements of a head.
        head_dim: usize,
    },
}

/// One row of the table.
#[derive(Clone)]
pub struct Parameter {
    /// Name in checkpoints: Hugging Face's name of the same parameter.
    pub name: String,
    /// The values.
    pub tensor: Tensor,
    /// Real shape, units, axes and first values.
    pub spec: ParameterSpec,
    /// Whether weight decay applies: to matrices and tables, not to norms and biases.
    pub decay: bool,
    /// How others store it.
    pub foreign: Foreign,
}

impl Parameter {
    /// Elements that are real.
    pub fn num_elements(&self) -> usize {
        self.spec.dims.iter().map(|d| d.len).product()
    }

    /// Whether its rows (its first of two dimensions) may be cut over devices, on this mesh or another.
    pub fn rows_can_be_cut(&self) -> bool {
        self.spec.dims.len() > 1 && self.spec.dims[0].axis.is_some()
    }
}

/// The table under construction.
pub struct Parameters {
    device: MeshDevice,
    /// What activations are, and the copies of matrices and tables that they meet.
    dtype: Dtype,
    rows: Vec<Parameter>,
}

/// A dimension that is never cut.
pub fn whole(len: usize) -> ParameterDim {
    ParameterDim {
        len,
        units: 1,
        axis: None,
    }
}

/// A dimension of `units` units that axis `tp` may cut.
pub fn cut(len: usize, units: usize) -> ParameterDim {
    ParameterDim {
        len,
        units,
        axis: Some("tp"),
    }
}

impl Parameters {
    /// An empty table on a mesh, for activations in f32.
    pub fn new(device: &MeshDevice) -> Parameters {
        Parameters::with_dtype(device, Dtype::F32)
    }

    /// An empty table on a mesh, for activations in `dtype`: in bf16, matrices and tables keep a rounded copy beside their f32
    /// values ([`Tensor::keep_copy`]).
    pub fn with_dtype(device: &MeshDevice, dtype: Dtype) -> Parameters {
        Parameters {
            device: device.clone(),
            dtype,
            rows: Vec::new(),
        }
    }

    /// A weight that begins as N(0, `std`); decayed.
    ///
    /// # Errors
    /// Units that the mesh does not divide, or too little memory.
    pub fn normal(&mut self, name: &str, dims: Vec<ParameterDim>, std: f32) -> Result<Tensor> {
        let init = Init::Normal { std, site: self.site() };
        self.add(name, ParameterSpec { dims, init }, true)
    }

    /// A weight that begins uniform in ±`bound`; decayed.
    ///
    /// # Errors
    /// As [`Parameters::normal`].
    pub fn uniform(&mut self, name: &str, dims: Vec<ParameterDim>, bound: f32, decay: bool) -> Result<Tensor> {
        let init = Init::Uniform {
            bound,
            site: self.site(),
        };
        self.add(name, ParameterSpec { dims, init }, decay)
    }

    /// A bias, zero at first; not decayed.
    ///
    /// # Errors
    /// As [`Parameters::normal`].
    pub fn zeros(&mut self, name: &str, dims: Vec<ParameterDim>) -> Result<Tensor> {
        self.add(
            name,
            ParameterSpec {
                dims,
                init: Init::Zeros,
            },
            false,
        )
    }

    /// A gain, one at first; not decayed.
    ///
    /// # Errors
    /// As [`Parameters::normal`].
    pub fn ones(&mut self, name: &str, dims: Vec<ParameterDim>) -> Result<Tensor> {
        self.add(name, ParameterSpec { dims, init: Init::Ones }, false)
    }

    /// Any parameter.
    ///
    /// # Errors
    /// As [`Parameters::normal`].
    pub fn add(&mut self, name: &str, spec: ParameterSpec, decay: bool) -> Result<Tensor> {
        let tensor = self.device.parameter(name, &spec)?;
        if spec.dims.len() > 1 {
            tensor.keep_copy(self.dtype)?;
        }
        self.rows.push(Parameter {
            name: name.into(),
            tensor: tensor.clone(),
            spec,
            decay,
            foreign: Foreign::Same,
        });
        Ok(tensor)
    }

    /// Says how others store the `count` parameters added last.
    pub fn stored_last(&mut self, count: usize, foreign: Foreign) {
        for row in self.rows.iter_mut().rev().take(count) {
            row.foreign = foreign;
        }
    }

    /// The devices that the parameters live on.
    pub fn device(&self) -> &MeshDevice {
        &self.device
    }

    /// What activations are.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The finished table.
    pub fn finish(self) -> Vec<Parameter> {
        self.rows
    }

    /// Each parameter draws from a site of its own, by its place in the table.
    fn site(&self) -> u32 {
        PARAMETER_SITES + self.rows.len() as u32
    }
}
