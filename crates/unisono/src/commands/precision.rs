//! What a model in Hugging Face's files is multiplied in: the kind of number, and the order of its products.

use crate::exit::Failure;
use clap::Args;
use unisono_kernels::bf16_order::Bf16Order;
use unisono_tensor::Dtype;

/// The numbers of a model of `--model`.
#[derive(Args)]
pub struct PrecisionArgs {
    /// What the weights of --model are kept and multiplied in [default: as the files have them]
    #[arg(long, value_name = "f32|bf16", value_parser = kind)]
    pub dtype: Option<Dtype>,
    /// In which order products of bf16 add up for --model: pairs, or tiles, for CPUs with AMX [default: pairs]
    #[arg(long, value_name = "pairs|tiles", value_parser = order)]
    pub bf16_order: Option<Bf16Order>,
}

impl PrecisionArgs {
    /// Both, for a model whose files have `stored`.
    ///
    /// # Errors
    /// An order for a model that is not multiplied in bf16.
    pub fn of_files(&self, stored: Dtype) -> Result<(Dtype, Bf16Order), Failure> {
        let dtype = self.dtype.unwrap_or(stored);
        match self.bf16_order {
            Some(order) if dtype != Dtype::Bf16 => Err(Failure::input(format!(
                "--bf16-order {} is for products of bf16, and this model is multiplied in {}: leave it out, or give --dtype bf16 too",
                order.name(),
                dtype.name()
            ))),
            order => Ok((dtype, order.unwrap_or_default())),
        }
    }
}

/// A kind of number.
fn kind(text: &str) -> Result<Dtype, String> {
    match text {
        "f32" | "float32" => Ok(Dtype::F32),
        "bf16" | "bfloat16" => Ok(Dtype::Bf16),
        _ => Err("f32 or bf16 is needed".into()),
    }
}

/// An order of products of bf16.
pub fn order(text: &str) -> Result<Bf16Order, String> {
    let named = Bf16Order::ALL.into_iter().find(|order| order.name() == text);
    named.ok_or_else(|| "pairs or tiles is needed".into())
}
