//! The table of a model's parameters.

use crate::adapters::Adapters;
use std::rc::Rc;
use unisono_tensor::create::{Init, ParameterDim, ParameterSpec};
use unisono_tensor::{Dtype, MeshDevice, Result, Tensor};

/// First random site of parameters; dropout sites lie below.
const PARAMETER_SITES: u32 = 0x8000_0000;
/// First random site of adapters' parameters, so that a model draws the same values with adapters and without.
const ADAPTER_SITES: u32 = 0xC000_0000;

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

    /// Whether it belongs to an adapter and not to the model itself.
    pub fn is_adapter(&self) -> bool {
        self.name.ends_with(".lora_A.weight") || self.name.ends_with(".lora_B.weight")
    }

    /// Whether its rows (its first of two dimensions) may be cut over devices, on this mesh or another.
    pub fn rows_can_be_cut(&self) -> bool {
        self.spec.dims.len() > 1 && self.spec.dims[0].axis.is_some()
    }
}

/// A model's parameters, in an order that depends on its configuration only.
#[derive(Clone, Default)]
pub struct Table {
    /// Those that are trained. They have gradients, optimizer state, and a place in checkpoints.
    pub trainable: Vec<Parameter>,
    /// The others: values and nothing else.
    pub frozen: Vec<Parameter>,
}

impl Table {
    /// All of them: the trainable ones, then the frozen ones.
    pub fn all(&self) -> impl Iterator<Item = &Parameter> {
        self.trainable.iter().chain(&self.frozen)
    }
}

/// What is to become of a model's parameters. By default all are trained and begin with fresh values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Regime {
    /// Whether none are trained: the model only runs. In bf16, matrices and tables are then stored in bf16 alone.
    pub frozen: bool,
    /// Low-rank adapters beside some linear layers. Where there are any, only they are trained (and what they name besides).
    pub adapters: Option<Rc<Adapters>>,
    /// Whether values come from a file, so that drawing first values would be in vain. Adapters draw theirs all the same.
    pub values_come_later: bool,
}

impl Regime {
    /// That of a model which is loaded from a file and only runs.
    pub fn inference() -> Regime {
        Regime {
            frozen: true,
            adapters: None,
            values_come_later: true,
        }
    }
}

/// The table under construction.
pub struct Parameters {
    device: MeshDevice,
    /// What activations are, and the copies of matrices and tables that they meet.
    dtype: Dtype,
    regime: Regime,
    table: Table,
    /// Parameters added so far, adapters' left out, and of adapters.
    counts: (u32, u32),
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
        Parameters::with_regime(device, dtype, Regime::default())
    }

    /// An empty table on a mesh, for activations in `dtype`, whose parameters are kept as `regime` says.
    pub fn with_regime(device: &MeshDevice, dtype: Dtype, regime: Regime) -> Parameters {
        Parameters {
            device: device.clone(),
            dtype,
            regime,
            table: Table::default(),
            counts: (0, 0),
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
    pub fn add(&mut self, name: &str, mut spec: ParameterSpec, decay: bool) -> Result<Tensor> {
        self.counts.0 += 1;
        if self.regime.values_come_later {
            spec.init = Init::Later;
        }
        let among_them = |adapters: &Rc<Adapters>| adapters.also.contains(name);
        let trains = !self.regime.frozen && self.regime.adapters.as_ref().is_none_or(among_them);
        self.push(name, spec, decay, trains)
    }

    /// A parameter of an adapter: uniform in ±`bound`, or zeros for 0; trained unless nothing is.
    ///
    /// # Errors
    /// As [`Parameters::normal`].
    pub fn adapter(&mut self, name: &str, dims: Vec<ParameterDim>, bound: f32) -> Result<Tensor> {
        let site = ADAPTER_SITES + self.counts.1;
        self.counts.1 += 1;
        let init = match bound {
            0.0 => Init::Zeros,
            _ => Init::Uniform { bound, site },
        };
        self.push(name, ParameterSpec { dims, init }, true, !self.regime.frozen)
    }

    fn push(&mut self, name: &str, spec: ParameterSpec, decay: bool, trains: bool) -> Result<Tensor> {
        let matrix = spec.dims.len() > 1;
        let tensor = if trains {
            let tensor = self.device.parameter(name, &spec)?;
            if matrix {
                tensor.keep_copy(self.dtype)?;
            }
            tensor
        } else {
            let dtype = if matrix { self.dtype } else { Dtype::F32 };
            self.device.constant(name, &spec, dtype)?
        };
        let rows = match trains {
            true => &mut self.table.trainable,
            false => &mut self.table.frozen,
        };
        rows.push(Parameter {
            name: name.into(),
            tensor: tensor.clone(),
            spec,
            decay,
            foreign: Foreign::Same,
        });
        Ok(tensor)
    }

    /// Says how others store the parameter `name`, where the table has it.
    pub fn stored(&mut self, name: &str, foreign: Foreign) {
        let table = &mut self.table;
        let rows = table.trainable.iter_mut().chain(&mut table.frozen);
        rows.filter(|row| row.name == name)
            .for_each(|row| row.foreign = foreign);
    }

    /// The adapters that a linear layer of this name gets, where it gets any.
    pub fn adapters_of(&self, layer: &str) -> Option<Rc<Adapters>> {
        self.regime
            .adapters
            .clone()
            .filter(|adapters| adapters.layers.contains(layer))
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
    pub fn table(self) -> Table {
        self.table
    }

    /// The parameters that are trained, for programs that freeze none.
    pub fn finish(self) -> Vec<Parameter> {
        self.table.trainable
    }

    /// Each parameter draws from a site of its own, by its place in the table.
    fn site(&self) -> u32 {
        PARAMETER_SITES + self.counts.0
    }
}
