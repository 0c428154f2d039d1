//! A tiny GPT and the optimizers against PyTorch, whose values `data/make_reference.py` stored in `data/pytorch_models.json`.

use serde_json::Value;
use unisono_nn::LanguageModel;
use unisono_nn::layers::Activation;
use unisono_nn::models::{Gpt, GptConfig, Positions};
use unisono_nn::optimizers::{AdamW, AdamWConfig, Sgd, SgdConfig};
use unisono_nn::{GradientNorm, Model, Optimizer, Parameter, StepLoss};
use unisono_tensor::create::{Init, ParameterDim, ParameterSpec};
use unisono_tensor::{Dtype, Mesh, MeshDevice, Options, Result, Rows, Tensor};

const HEADS: usize = 2;
const WIDTH: usize = 8;
const VOCABULARY: usize = 13;

fn reference() -> Value {
    serde_json::from_str(include_str!("data/pytorch_models.json")).expect("the file is JSON")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn floats(array: &Value) -> Vec<f32> {
    let values = list(&array["values"]).iter();
    values.map(|v| v.as_f64().expect("a number") as f32).collect()
}

fn integers(array: &Value) -> Vec<u32> {
    let values = list(&array["values"]).iter();
    values.map(|v| v.as_u64().expect("an integer") as u32).collect()
}

fn shape(array: &Value) -> Vec<usize> {
    let sizes = list(&array["shape"]).iter();
    sizes.map(|n| n.as_u64().expect("a size") as usize).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn open(axes: &[(&str, usize)]) -> Result<MeshDevice> {
    let options = Options {
        workers: Some(1),
        memory_limit: Some(64 << 20),
        ..Options::default()
    };
    MeshDevice::open(Mesh::new(axes)?, options)
}

/// The largest difference, relative to the largest element of the reference.
fn error(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let size = expected.iter().fold(1e-3, |a: f32, b| a.max(b.abs()));
    let pairs = found.iter().zip(expected);
    // NaN anywhere must fail, so it is kept.
    pairs.fold(0.0, |worst, (a, b)| {
        let error = (a - b).abs() / size;
        if error > worst || error.is_nan() { error } else { worst }
    })
}

fn config(tied: bool) -> GptConfig {
    GptConfig {
        vocab_size: VOCABULARY,
        max_sequence_length: 8,
        num_blocks: 2,
        num_heads: HEADS,
        num_groups: HEADS,
        embedding_dim: WIDTH,
        intermediate_dim: 4 * WIDTH,
        dropout: 0.0,
        bias: true,
        weight_tying: tied,
        positions: Positions::Trainable,
        activation: Activation::GeluTanh,
        recompute: false,
        dtype: Dtype::F32,
    }
}

/// Our column of `c_attn` for column (q, k or v; head; element) of Hugging Face's: each head's q, k and v lie together here.
fn fused_column(column: usize) -> usize {
    let d = WIDTH / HEADS;
    let (which, head, element) = (column / WIDTH, column % WIDTH / d, column % d);
    (head * 3 + which) * d + element
}

/// Hugging Face's values of a parameter in our layout, padding at the end.
fn imported(parameter: &Parameter, values: &[f32]) -> Vec<f32> {
    let mut ours = values.to_vec();
    if parameter.name.contains("c_attn") {
        for (i, value) in values.iter().enumerate() {
            let columns = 3 * WIDTH;
            ours[i / columns * columns + fused_column(i % columns)] = *value;
        }
    }
    ours.resize(parameter.spec.padded().iter().product(), 0.0);
    ours
}

fn load(model: &Gpt, weights: &Value) -> Result<()> {
    let names: Vec<&String> = weights.as_object().expect("weights by name").keys().collect();
    assert_eq!(names.len(), model.parameters().len(), "{names:?}");
    for parameter in model.parameters() {
        let array = &weights[&parameter.name];
        assert_eq!(shape(array), parameter.spec.shape(), "{}", parameter.name);
        parameter.tensor.upload_global(&imported(parameter, &floats(array)))?;
    }
    Ok(())
}

/// One over the number of targets that are not masked.
fn scale(targets: &[u32]) -> f32 {
    1.0 / targets.iter().filter(|t| **t != u32::MAX).count() as f32
}

fn batch(device: &MeshDevice, array: &Value) -> Result<Tensor> {
    device.batch_u32(&integers(array), &shape(array))
}

#[test]
fn logits_loss_and_gradients_of_a_gpt() -> Result<()> {
    for case in list(&reference()["gpt"]) {
        let tied = case["tied"].as_bool().expect("a flag");
        let device = open(&[])?;
        let model = Gpt::new(&device, config(tied))?;
        load(&model, &case["weights"])?;
        let (ids, targets) = (batch(&device, &case["ids"])?, batch(&device, &case["targets"])?);

        let logits = device.no_grad(|| model.logits(&model.forward(&ids)?))?;
        let stored = logits.shape()[2];
        let real: Vec<f32> = logits
            .to_vec()?
            .chunks(stored)
            .flat_map(|row| row[..VOCABULARY].to_vec())
            .collect();
        let off = error(&real, &floats(&case["logits"]));
        assert!(off < 1e-5, "tied {tied}: logits are off by {off:.2e}");

        let scale = scale(&integers(&case["targets"]));
        let losses = model.losses(&ids, &targets, scale)?;
        losses.backward()?;
        let loss = losses.to_vec()?.iter().map(|l| f64::from(*l)).sum::<f64>() * f64::from(scale);
        let expected = number(&case["loss"]);
        assert!(
            (loss - expected).abs() < 1e-6 * expected,
            "tied {tied}: loss {loss}, expected {expected}"
        );
        for parameter in model.parameters() {
            let name = &parameter.name;
            let gradient = parameter.tensor.grad()?.expect("every parameter takes part").to_vec()?;
            let expected = imported(parameter, &floats(&case["gradients"][name]));
            let off = error(&gradient, &expected);
            assert!(off < 2e-5, "tied {tied}: the gradient of {name} is off by {off:.2e}");
        }
    }
    Ok(())
}

/// The loss of 20 AdamW steps, clipped, from equal weights, follows PyTorch's within 1e-4; on a mesh it is the same to the
/// bit as on one device.
#[test]
fn twenty_steps_of_training() -> Result<()> {
    for case in list(&reference()["gpt"]) {
        let tied = case["tied"].as_bool().expect("a flag");
        let one = curve(case, tied, &[])?;
        for (step, (found, expected)) in one.iter().zip(list(&case["steps"])).enumerate() {
            let (loss, norm) = (number(&expected["loss"]), number(&expected["norm"]));
            assert!(
                (f64::from(found[3]) - loss).abs() < 1e-4,
                "tied {tied}, step {step}: loss {}, expected {loss}",
                found[3]
            );
            assert!(
                (f64::from(found[0]) - norm).abs() < 1e-3 * norm,
                "tied {tied}, step {step}: norm {}, expected {norm}",
                found[0]
            );
        }
        assert_eq!(one, curve(case, tied, &[("dp", 2), ("tp", 2)])?, "tied {tied}");
    }
    Ok(())
}

/// `[norm, scale, go, loss]` by step.
fn curve(case: &Value, tied: bool, axes: &[(&str, usize)]) -> Result<Vec<Vec<f32>>> {
    let device = open(axes)?;
    let model = Gpt::new(&device, config(tied))?;
    load(&model, &case["weights"])?;
    let parameters = model.parameters();
    let mut optimizer = AdamW::new(
        parameters,
        AdamWConfig {
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            weight_decay: 0.1,
            decay_norms_and_biases: false,
        },
    )?;
    let norm = GradientNorm::new(&device, parameters.len(), Some(1.0))?;
    let batches = list(&case["batches"]);
    let mut controls = Vec::new();
    for step in 0..20 {
        let data = &batches[step % batches.len()];
        let (ids, targets) = (batch(&device, &data["ids"])?, batch(&device, &data["targets"])?);
        let scale = scale(&integers(&data["targets"]));
        let losses = model.losses(&ids, &targets, scale)?;
        losses.backward()?;
        let rows = Rows::whole(4, device.axis("dp"));
        let total = StepLoss::new(&device, rows)?;
        total.put(&losses, &rows)?;
        norm.measure(parameters, total.total(scale)?)?;
        optimizer.step(parameters, 3e-3, step as u64, norm.control())?;
        controls.push(device.runtime().read_f32(norm.control(), 0)?);
        for parameter in parameters {
            parameter.tensor.zero_grad();
        }
    }
    Ok(controls)
}

#[test]
fn ten_steps_of_each_optimizer() -> Result<()> {
    for case in list(&reference()["optimizers"]) {
        let device = open(&[])?;
        let parameters: Vec<Parameter> = list(&case["start"])
            .iter()
            .enumerate()
            .map(|(index, start)| parameter(&device, index, start))
            .collect::<Result<_>>()?;
        let settings = &case["settings"];
        let of = |key: &str| number(&settings[key]);
        let mut optimizer: Box<dyn Optimizer> = match case["name"].as_str() {
            Some("sgd") => Box::new(Sgd::new(
                &parameters,
                SgdConfig {
                    momentum: of("momentum"),
                    dampening: of("dampening"),
                    weight_decay: of("weight_decay"),
                    nesterov: settings["nesterov"].as_bool().expect("a flag"),
                    decay_norms_and_biases: false,
                },
            )?),
            _ => Box::new(AdamW::new(
                &parameters,
                AdamWConfig {
                    beta1: of("beta1"),
                    beta2: of("beta2"),
                    epsilon: of("epsilon"),
                    weight_decay: of("weight_decay"),
                    decay_norms_and_biases: false,
                },
            )?),
        };
        let norm = GradientNorm::new(&device, parameters.len(), None)?;
        for (step, gradients) in list(&case["gradients"]).iter().enumerate() {
            for (parameter, gradient) in parameters.iter().zip(list(gradients)) {
                parameter.tensor.zero_grad();
                // The gradient of Σ w·g is g.
                let g = device.tensor(&floats(gradient), &shape(gradient))?;
                parameter.tensor.mul(&g)?.sum()?.backward()?;
            }
            optimizer.step(&parameters, number(&case["lr"]), step as u64, norm.control())?;
        }
        for (parameter, end) in parameters.iter().zip(list(&case["end"])) {
            let off = error(&parameter.tensor.to_vec()?, &floats(end));
            assert!(
                off < 2e-6,
                "{} {settings}: {} is off by {off:.2e}",
                case["name"],
                parameter.name
            );
        }
    }
    Ok(())
}

/// The first parameter is a matrix, which decays, the second a bias, which does not.
fn parameter(device: &MeshDevice, index: usize, start: &Value) -> Result<Parameter> {
    let dims = shape(start).into_iter().map(|len| ParameterDim {
        len,
        units: 1,
        axis: None,
    });
    let spec = ParameterSpec {
        dims: dims.collect(),
        init: Init::Zeros,
    };
    let name = ["weight", "bias"][index];
    let tensor = device.parameter(name, &spec)?;
    tensor.upload_global(&floats(start))?;
    Ok(Parameter {
        name: name.into(),
        tensor,
        spec,
        decay: index == 0,
        foreign: unisono_nn::parameter::Foreign::Same,
    })
}
