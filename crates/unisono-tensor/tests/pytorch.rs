//! Values and gradients of single operations against PyTorch's, stored in `data/pytorch_operations.json` by
//! `data/make_reference.py`, computed there in f64. They agree within 1e-5 of the largest element.

mod common;

use common::open;
use serde_json::Value;
use unisono_tensor::ops::attention::AttentionSpec;
use unisono_tensor::ops::matmul::Activation;
use unisono_tensor::{MeshDevice, ReduceType, Result, Tensor, Unary};

/// Largest difference, relative to the largest element of the reference.
const TOLERANCE: f32 = 1e-5;

struct Array {
    shape: Vec<usize>,
    values: Vec<f64>,
}

impl Array {
    fn read(value: &Value) -> Array {
        let numbers = |key: &str| value[key].as_array().expect("an array has shape and values").iter();
        Array {
            shape: numbers("shape").map(|n| n.as_u64().expect("a size") as usize).collect(),
            values: numbers("values").map(|n| n.as_f64().expect("a number")).collect(),
        }
    }

    fn floats(&self) -> Vec<f32> {
        self.values.iter().map(|v| *v as f32).collect()
    }

    fn integers(&self) -> Vec<u32> {
        self.values.iter().map(|v| *v as u32).collect()
    }

    fn list(value: &Value) -> Vec<Array> {
        let list = value.as_array().expect("a list of arrays");
        list.iter().map(Array::read).collect()
    }
}

/// The operation of this name.
fn run(device: &MeshDevice, name: &str, t: &[Tensor], ids: Option<&Array>) -> Result<Tensor> {
    let x = &t[0];
    let linear = |activation| x.linear(&t[1], Some(&t[2]), activation);
    let attention = |num_heads, num_groups, head_dim, causal, mask: Option<&Tensor>| {
        let spec = AttentionSpec {
            num_heads,
            num_groups,
            head_dim,
            causal,
        };
        x.attention(&spec, mask)
    };
    let integers = || {
        let ids = ids.expect("the case has ids");
        device.tensor_u32(&ids.integers(), &ids.shape)
    };
    // Five of the six targets are unmasked.
    let reduce = match name.rsplit('_').next() {
        Some("mean") if name.starts_with("mse") => ReduceType::Mean,
        Some("mean") => ReduceType::MeanOver(5),
        Some("sum") => ReduceType::Sum,
        _ => ReduceType::None,
    };
    match name {
        "add" => x.add(&t[1]),
        "sub" => x.sub(&t[1]),
        "mul" => x.mul(&t[1]),
        "div" => x.div(&t[1]),
        "neg" => x.map(Unary::Neg),
        "relu" => x.relu(),
        "gelu" => x.gelu(),
        "gelu_tanh" => x.map(Unary::GeluTanh),
        "silu" => x.silu(),
        "exp" => x.map(Unary::Exp),
        "ln" => x.map(Unary::Ln),
        "tanh" => x.map(Unary::Tanh),
        "sigmoid" => x.map(Unary::Sigmoid),
        "sqrt" => x.map(Unary::Sqrt),
        "rsqrt" => x.map(Unary::Rsqrt),
        "square" => x.map(Unary::Square),
        "abs" => x.map(Unary::Abs),
        "matmul" => x.matmul(&t[1]),
        "linear" => linear(Activation::None),
        "linear_relu" => linear(Activation::Relu),
        "linear_gelu" => linear(Activation::Gelu),
        "linear_gelu_tanh" => linear(Activation::GeluTanh),
        "linear_silu" => linear(Activation::Silu),
        "softmax" => x.softmax(),
        "log_softmax" => x.log_softmax(),
        "layer_norm" => x.layer_norm(Some(&t[1]), Some(&t[2]), 1e-5),
        "rms_norm" => x.rms_norm(Some(&t[1]), 1e-5),
        "sum" => x.sum(),
        "mean" => x.mean(),
        "sum_dim_0" => x.sum_dim(0),
        "mean_dim_1" => x.mean_dim(1),
        "sum_dim_2" => x.sum_dim(2),
        "permute" => x.permute(&[2, 0, 1]),
        "slice" => x.slice(1, 1..3),
        "concat" => Tensor::concat(&[x, &t[1], x], 1),
        "embedding" => x.embedding(&integers()?),
        "attention_4_4_causal" => attention(4, 4, 3, true, None),
        "attention_4_2_causal" => attention(4, 2, 3, true, None),
        "attention_3_1_full" => attention(3, 1, 4, false, None),
        "attention_4_2_masked" => {
            let bytes = ids.expect("the case has a mask").integers();
            let pack = |four: &[u32]| four.iter().rev().fold(0, |word, byte| word << 8 | byte);
            let words: Vec<u32> = bytes.chunks(4).map(pack).collect();
            let mask = device.tensor_u32(&words, &[8, 2])?;
            attention(4, 2, 3, true, Some(&mask))
        }
        _ if name.starts_with("cross_entropy") => x.cross_entropy(&integers()?, 7, reduce),
        _ if name.starts_with("nll") => x.log_softmax()?.nll_loss(&integers()?, reduce),
        _ if name.starts_with("mse") => x.mse_loss(&t[1], reduce),
        _ => panic!("no operation is called {name}"),
    }
}

/// The largest difference, relative to the largest element.
fn error(found: &[f32], expected: &Array) -> f32 {
    let expected = expected.floats();
    assert_eq!(found.len(), expected.len());
    let size = expected.iter().fold(1e-3, |a: f32, b| a.max(b.abs()));
    let pairs = found.iter().zip(&expected);
    // NaN anywhere must fail, so it is kept.
    pairs.fold(0.0, |worst, (a, b)| {
        let error = (a - b).abs() / size;
        if error > worst || error.is_nan() { error } else { worst }
    })
}

#[test]
fn every_operation_agrees_with_pytorch() -> Result<()> {
    let file: Value = serde_json::from_str(include_str!("data/pytorch_operations.json")).expect("the file is JSON");
    let device = open(&[]);
    let cases = file["cases"].as_array().expect("there are cases");
    assert!(cases.len() > 50);
    let mut wrong = Vec::new();
    for case in cases {
        let name = case["name"].as_str().expect("a case has a name");
        let inputs = Array::list(&case["inputs"]);
        let ids = Some(&case["ids"]).filter(|ids| !ids.is_null()).map(Array::read);
        let leaf = |a: &Array| device.tensor(&a.floats(), &a.shape)?.requires_grad();
        let tensors: Vec<Tensor> = inputs.iter().map(leaf).collect::<Result<_>>()?;
        let y = run(&device, name, &tensors, ids.as_ref())?;
        let (expected, seed) = (Array::read(&case["result"]), Array::read(&case["seed"]));
        assert_eq!(y.shape(), expected.shape, "{name}");
        y.backward_with(&device.tensor(&seed.floats(), &seed.shape)?)?;
        let mut compare = |what: String, found: Vec<f32>, expected: &Array| {
            let error = error(&found, expected);
            if error.is_nan() || error > TOLERANCE {
                wrong.push(format!("{name}, {what}: off by {error:.2e}"));
            }
        };
        compare("result".into(), y.to_vec()?, &expected);
        for (index, (tensor, expected)) in tensors.iter().zip(Array::list(&case["gradients"])).enumerate() {
            let gradient = tensor.grad()?.expect("every input takes part").to_vec()?;
            compare(format!("gradient {index}"), gradient, &expected);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
