//! What programs need most: `use unisono::prelude::*;`.

/// A result whose error is that of tensors unless another one is named.
pub type Result<T, E = TensorError> = std::result::Result<T, E>;

// Devices and tensors.
pub use unisono_tensor::{
    Backend, Dtype, Mesh, MeshDevice, Options, Placement, ReduceType, Rows, Tensor, TensorError, sync_gradients,
};

// A mesh by its axes: arrays dealt out over it, collectives, traces.
pub use unisono_tensor::collectives::{self, Along, Gradient, Reduction, Topology};
pub use unisono_tensor::create::{Init, ParameterDim, ParameterSpec};
pub use unisono_tensor::distributed;
pub use unisono_tensor::{
    ComposerConfig, DistributedHostTensor, HostTensor, Links, MapPlacement, MapperConfig, MeshCoordinate, MeshShape,
    Trace, assert_with_pcc, pcc,
};

// A command of one's own.
pub use unisono_kernels::scratch::Scratch;
pub use unisono_runtime::{BufferRef, Cost, Op, Place};

// Modules, models, optimizers.
pub use unisono_nn::layers::{
    Activation, ColumnParallelLinear, Embedding, LayerNorm, Linear, Mlp, Residual, RmsNorm, RowParallelLinear,
    SelfAttention,
};
pub use unisono_nn::models::{Gpt, GptConfig, LanguageModel, Model, Perceptron, PerceptronConfig, Positions};
pub use unisono_nn::optimizers::{AdamW, AdamWConfig, Optimizer, Sgd, SgdConfig};
pub use unisono_nn::parameter::{cut, whole};
pub use unisono_nn::{GradientNorm, Parameter, Parameters, Schedule};

// Data.
pub use unisono_data::{Tokenizer, corpus};

// A run from its configuration on.
pub use unisono_train::config::{Environment, Loaded, RunConfig, load, load_text, preset};
pub use unisono_train::dataset::Dataset;
pub use unisono_train::generate::{Sampling, TextRequest, generate_text};
pub use unisono_train::model::LiveModel;
pub use unisono_train::plan::check;
pub use unisono_train::run::{Run, Summary};
pub use unisono_train::{Event, Plan, Record, Tracker, TrainError};
