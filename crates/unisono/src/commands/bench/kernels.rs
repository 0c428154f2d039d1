//! The kernels that `unisono bench` measures: those of training and decoding at the shapes of real models, in f32 and bf16.

use unisono_kernels::gemm::Activation;
use unisono_kernels::order::Units;
use unisono_nn::optimizers::{AdamW, AdamWConfig};
use unisono_nn::parameter::{Parameters, whole};
use unisono_nn::{GradientNorm, Optimizer};
use unisono_runtime::ops::SumShare;
use unisono_runtime::ops::matmul::{MatMul, Matrix};
use unisono_tensor::ops::attention::AttentionSpec;
use unisono_tensor::{Dtype, MeshDevice, Result, Tensor};

/// Something to measure: its name, what limits it, and what issues its commands.
pub struct Kernel {
    /// Name, shape and kind of number.
    pub name: String,
    /// The kind of number that its multiply-adds take.
    pub arithmetic: Dtype,
    /// Whether nearly all of its traffic is reading.
    pub reads_only: bool,
    /// Issues the commands once.
    pub issue: Box<dyn FnMut() -> Result<()>>,
}

/// Makes the kernels of a kind whose name contains the filter.
pub type Maker = fn(&MeshDevice, &str) -> Result<Vec<Kernel>>;

/// One for each kind.
pub const MAKERS: [Maker; 4] = [products, attention, rows, updates];

const DTYPES: [Dtype; 2] = [Dtype::F32, Dtype::Bf16];

/// A product: name, m, k, n, whether A and B are read transposed.
type Shape = (&'static str, usize, usize, usize, bool, bool);

/// An odd number of addends has no halves: it is one leaf, added left to right, which shows what the tree costs.
const LONG_SUM: usize = 1535;

const SHAPES: [Shape; 10] = [
    ("matmul fc forward", 3072, 384, 1536, false, false),
    ("matmul proj forward", 3072, 1536, 384, false, false),
    ("matmul one long sum", 3072, LONG_SUM, 384, false, false),
    ("matmul fc weight grad", 384, 3072, 1536, true, false),
    ("matmul fc input grad", 3072, 1536, 384, false, true),
    ("matmul gpt2 fc", 960, 768, 3072, false, false),
    ("matmul gpt2 weight grad", 768, 1024, 3072, true, false),
    ("matmul gpt2 head", 960, 768, 50304, false, false),
    ("one row gpt2 fc", 1, 768, 3072, false, false),
    ("one row gpt2 head", 1, 768, 50304, false, true),
];

fn products(device: &MeshDevice, filter: &str) -> Result<Vec<Kernel>> {
    let mut kernels = Vec::new();
    let shapes = DTYPES
        .iter()
        .flat_map(|dtype| SHAPES.into_iter().map(move |shape| (*dtype, shape)))
        // In bf16 an odd leaf is packed word by word, which would be what is measured.
        .filter(|(dtype, (_, _, k, ..))| *dtype == Dtype::F32 || *k != LONG_SUM);
    for (site, (dtype, (name, m, k, n, a_transposed, b_transposed))) in shapes.enumerate() {
        let name = format!("{name} {m}x{k}x{n} {}", dtype.name());
        if !name.contains(filter) {
            continue;
        }
        let device = device.clone();
        // Sums that go on, and logits, are f32 in bf16 too.
        let result = if a_transposed || n > 50_000 { Dtype::F32 } else { dtype };
        // The operands are made when they are needed, and freed with the kernel.
        let mut operands: Option<[Tensor; 3]> = None;
        kernels.push(Kernel {
            name,
            arithmetic: dtype,
            reads_only: m == 1,
            issue: Box::new(move || {
                let [a, b, c] = match &mut operands {
                    Some(operands) => operands,
                    None => operands.insert([
                        device.randn(&[m * k], 2 * site as u32)?.to_dtype(dtype)?,
                        device.randn(&[k * n], 2 * site as u32 + 1)?.to_dtype(dtype)?,
                        device.zeros(&[m * n])?.to_dtype(result)?,
                    ]),
                };
                let matrix = |t: &Tensor, rows, cols, transposed| match transposed {
                    true => Matrix::transposed(t.buffer(), rows),
                    false => Matrix::rows(t.buffer(), cols),
                };
                Ok(device.runtime().issue(MatMul {
                    batch: 1,
                    m,
                    n,
                    a: matrix(a, m, k, a_transposed),
                    b: matrix(b, k, n, b_transposed),
                    to: c.buffer(),
                    to_batch: 0,
                    slot: m * n,
                    sum: SumShare::whole(Units::whole(k)),
                    bias: None,
                    activation: Activation::None,
                    pre: None,
                    residual: None,
                })?)
            }),
        });
    }
    Ok(kernels)
}

fn attention(device: &MeshDevice, filter: &str) -> Result<Vec<Kernel>> {
    let mut kernels = Vec::new();
    for (name, backward) in [("forward", false), ("forward and backward", true)] {
        for (batch, tokens, heads, head_dim) in [(12, 256, 6, 64), (2, 1024, 12, 64)] {
            for dtype in DTYPES {
                let name = format!(
                    "attention {name} {batch}x{tokens}, {heads} heads of {head_dim} {}",
                    dtype.name()
                );
                if !name.contains(filter) {
                    continue;
                }
                let spec = AttentionSpec {
                    num_heads: heads,
                    num_groups: heads,
                    head_dim,
                    causal: true,
                };
                let x = device
                    .randn(&[batch, tokens, 3 * heads * head_dim], 100)?
                    .to_dtype(dtype)?;
                let x = if backward { x.requires_grad()? } else { x };
                let gradient = device.randn(&[batch, tokens, heads * head_dim], 101)?.to_dtype(dtype)?;
                kernels.push(Kernel {
                    name,
                    // Scores and sums are made of f32 in bf16 too.
                    arithmetic: Dtype::F32,
                    reads_only: false,
                    issue: Box::new(move || {
                        let y = x.attention(&spec, None)?;
                        if backward {
                            x.zero_grad();
                            y.backward_with(&gradient)?;
                        }
                        Ok(())
                    }),
                });
            }
        }
    }
    Ok(kernels)
}

/// Norms, softmax and activations: one row or element after the other.
fn rows(device: &MeshDevice, filter: &str) -> Result<Vec<Kernel>> {
    /// Of the rows, a gain, an offset, and other rows.
    type Apply = fn(&Tensor, &Tensor, &Tensor, &Tensor) -> Result<Tensor>;
    const OPS: [(&str, Apply, bool); 5] = [
        (
            "layer_norm",
            |x, gain, bias, _| x.layer_norm(Some(gain), Some(bias), 1e-5),
            true,
        ),
        ("rms_norm", |x, gain, _, _| x.rms_norm(Some(gain), 1e-5), true),
        ("softmax", |x, _, _, _| x.softmax(), false),
        ("gelu", |x, _, _, _| x.gelu(), true),
        ("add", |x, _, _, other| x.add(other), true),
    ];
    const ROWS: usize = 3072;
    const WIDTH: usize = 1536;
    let mut kernels = Vec::new();
    for (name, apply, in_bf16) in OPS {
        for backward in [false, true] {
            for dtype in DTYPES.into_iter().filter(|dtype| in_bf16 || *dtype == Dtype::F32) {
                let name = format!(
                    "{name}{} {ROWS}x{WIDTH} {}",
                    if backward { " and backward" } else { "" },
                    dtype.name()
                );
                if !name.contains(filter) {
                    continue;
                }
                let x = device.randn(&[ROWS, WIDTH], 200)?.to_dtype(dtype)?;
                let (gain, bias) = (device.ones(&[WIDTH])?, device.zeros(&[WIDTH])?);
                let [x, gain, bias] = match backward {
                    true => [x.requires_grad()?, gain.requires_grad()?, bias.requires_grad()?],
                    false => [x, gain, bias],
                };
                let gradient = device.randn(&[ROWS, WIDTH], 201)?.to_dtype(dtype)?;
                kernels.push(Kernel {
                    name,
                    arithmetic: Dtype::F32,
                    reads_only: false,
                    issue: Box::new(move || {
                        let y = apply(&x, &gain, &bias, &gradient)?;
                        if backward {
                            for leaf in [&x, &gain, &bias] {
                                leaf.zero_grad();
                            }
                            y.backward_with(&gradient)?;
                        }
                        Ok(())
                    }),
                });
            }
        }
    }
    Ok(kernels)
}

fn updates(device: &MeshDevice, filter: &str) -> Result<Vec<Kernel>> {
    const SIZE: usize = 10 << 20;
    let mut kernels = Vec::new();
    for dtype in DTYPES {
        let name = format!("adamw of {SIZE} parameters {}", dtype.name());
        if !name.contains(filter) {
            continue;
        }
        let mut table = Parameters::with_dtype(device, dtype);
        let weight = table.normal("weight", vec![whole(SIZE / 1024), whole(1024)], 0.02)?;
        let parameters = table.finish();
        let config = AdamWConfig {
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-8,
            weight_decay: 0.1,
            decay_norms_and_biases: false,
        };
        let mut optimizer = AdamW::new(&parameters, config)?;
        let norm = GradientNorm::new(device, 1, None)?;
        // Its gradient is its own value.
        weight.mul(&weight)?.sum()?.backward()?;
        norm.measure(&parameters, &device.zeros(&[1])?)?;
        let mut step = 0;
        kernels.push(Kernel {
            name,
            arithmetic: Dtype::F32,
            reads_only: false,
            issue: Box::new(move || {
                step += 1;
                optimizer.step(&parameters, 1e-4, step, norm.control())
            }),
        });
    }
    Ok(kernels)
}
