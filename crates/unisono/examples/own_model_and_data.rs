//! A model and data of one's own, data parallel: which letter comes next, from the three before it.
//!
//! `cargo run --release --example own_model_and_data`

use unisono::prelude::*;

const TEXT: &str = "she sells sea shells on the sea shore; the shells she sells are sea shells, i am sure. ";
const CONTEXT: usize = 3;
const WIDTH: usize = 16;
const BATCH: usize = 16;

/// A table of letters, the context side by side, one hidden layer. Source: Bengio et al. (2003).
struct NextLetter {
    letters: Embedding,
    hidden: Linear,
    output: Linear,
    vocabulary: usize,
    parameters: Vec<Parameter>,
}

impl NextLetter {
    fn new(device: &MeshDevice, vocabulary: usize) -> Result<Self> {
        let p = &mut Parameters::new(device);
        let letters = Embedding::new(p, "letters", vocabulary, WIDTH, 1)?;
        let hidden = Linear::new(p, "hidden", CONTEXT * WIDTH, 64, true)?;
        let output = Linear::new(p, "output", 64, vocabulary, true)?;
        let parameters = std::mem::replace(p, Parameters::new(device)).finish();
        Ok(NextLetter {
            letters,
            hidden,
            output,
            vocabulary,
            parameters,
        })
    }

    fn loss(&self, contexts: &Tensor, next: &Tensor) -> Result<Tensor> {
        let letters = self.letters.forward(contexts)?; // [batch, context, width]
        let batch = letters.local_shape()[0];
        let flat = letters.reshape(&[batch, CONTEXT * WIDTH])?;
        let hidden = self.hidden.forward(&flat, Activation::GeluTanh)?;
        let logits = self.output.forward(&hidden, Activation::None)?;
        logits.cross_entropy(next, self.vocabulary, ReduceType::Mean)
    }
}

/// Trains for some steps on a mesh; the losses.
pub fn train(mesh: &str, steps: u64) -> Result<Vec<f32>, Box<dyn std::error::Error>> {
    let device = MeshDevice::open(Mesh::parse(mesh)?, Options::default())?;
    device.set_seed(11);
    let tokenizer = Tokenizer::char_from_text(TEXT)?;
    let ids = tokenizer.encode(TEXT)?;
    let model = NextLetter::new(&device, tokenizer.vocab_size())?;
    let weights: Vec<&Tensor> = model.parameters.iter().map(|p| &p.tensor).collect();
    let config = AdamWConfig {
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.01,
        decay_norms_and_biases: false,
    };
    let mut optimizer = AdamW::new(&model.parameters, config)?;
    let norm = GradientNorm::new(&device, weights.len(), None)?;
    let mut losses = Vec::new();
    for step in 0..steps {
        weights.iter().for_each(|weight| weight.zero_grad());
        // The batch of the whole step, whatever the mesh: each device takes its share of the rows.
        let places: Vec<usize> = (0..BATCH)
            .map(|i| (step as usize * BATCH + i) * 7 % (ids.len() - CONTEXT))
            .collect();
        let contexts: Vec<u32> = places.iter().flat_map(|at| ids[*at..at + CONTEXT].to_vec()).collect();
        let next: Vec<u32> = places.iter().map(|at| ids[at + CONTEXT]).collect();
        let contexts = device.batch_u32(&contexts, &[BATCH, CONTEXT])?;
        let loss = model.loss(&contexts, &device.batch_u32(&next, &[BATCH])?)?;
        loss.backward()?;
        sync_gradients(&weights)?;
        norm.measure(&model.parameters, &loss)?;
        optimizer.step(&model.parameters, 3e-3, step, norm.control())?;
        losses.push(loss.item()?);
    }
    Ok(losses)
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (one, four) = (train("dp=1", 300)?, train("dp=4", 300)?);
    println!(
        "first loss {:.4}, last loss {:.4}; on four devices {:.4}",
        one[0], one[299], four[299]
    );
    assert_eq!(one, four, "the bits are the same");
    Ok(())
}
