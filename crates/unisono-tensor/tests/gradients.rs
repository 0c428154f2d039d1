//! The gradient of every operation against finite differences.
//!
//! How they are compared stands in `common/slopes.rs`.

mod common;

use common::slopes::{Input, any, check, check_with, off_zero, positive};
use common::{Draw, open};
use std::rc::Rc;
use unisono_tensor::ops::attention::AttentionSpec;
use unisono_tensor::ops::matmul::Activation;
use unisono_tensor::recompute::recompute;
use unisono_tensor::{ReduceType, Result, Tensor, Unary};

/// A control: gradients that are wrong in one factor are found.
#[test]
fn a_wrong_gradient_is_found() {
    let found = check_with(
        "scale_gradient",
        &[any(1, &[3])],
        &|_, t| t[0].scale_gradient(1.01),
        false,
    );
    assert!(found.is_err_and(|text| text.contains("the gradient says")));
}

#[test]
fn arithmetic_with_every_form_of_broadcasting() {
    type Op = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let ops: [(&str, Op); 4] = [
        ("add", Tensor::add),
        ("sub", Tensor::sub),
        ("mul", Tensor::mul),
        ("div", Tensor::div),
    ];
    let forms: [(&[usize], &[usize]); 12] = [
        (&[2, 3], &[2, 3]),
        (&[2, 2, 3], &[3]),
        (&[3], &[2, 2, 3]),
        (&[2, 2, 3], &[2, 3]),
        (&[2, 3], &[1]),
        (&[2, 3], &[]),
        (&[], &[2, 3]),
        (&[2, 3], &[2, 1]),
        (&[2, 1], &[2, 3]),
        (&[2, 1, 3], &[1, 2, 1]),
        (&[2, 3], &[1, 3]),
        (&[1, 2, 3], &[2, 2, 3]),
    ];
    for (name, op) in ops {
        for (a, b) in forms {
            check(
                &format!("{name} {a:?} {b:?}"),
                &[positive(1, a), positive(2, b)],
                &|_, t| op(&t[0], &t[1]),
            );
        }
    }
}

#[test]
fn scalars() {
    check("add_scalar", &[any(1, &[2, 3])], &|_, t| t[0].add_scalar(0.7));
    check("mul_scalar", &[any(1, &[2, 3])], &|_, t| t[0].mul_scalar(-1.3));
}

#[test]
fn functions() {
    for f in Unary::ALL {
        let input = match f {
            Unary::Ln | Unary::Sqrt | Unary::Rsqrt => positive(1, &[3, 5]),
            Unary::Relu | Unary::Abs => off_zero(1, &[3, 5]),
            _ => any(1, &[3, 5]),
        };
        check(&format!("{f:?}"), &[input], &|_, t| t[0].map(f));
    }
    check("relu", &[off_zero(1, &[7])], &|_, t| t[0].relu());
    check("gelu", &[any(1, &[7])], &|_, t| t[0].gelu());
    check("silu", &[any(1, &[7])], &|_, t| t[0].silu());
}

#[test]
fn products() {
    check("matmul 2-D", &[any(1, &[3, 4]), any(2, &[4, 5])], &|_, t| {
        t[0].matmul(&t[1])
    });
    check(
        "matmul 3-D times one",
        &[any(1, &[2, 3, 4]), any(2, &[4, 5])],
        &|_, t| t[0].matmul(&t[1]),
    );
    check("matmul batched", &[any(1, &[2, 3, 4]), any(2, &[2, 4, 5])], &|_, t| {
        t[0].matmul(&t[1])
    });
    check(
        "matmul batched 4-D",
        &[any(1, &[2, 2, 3, 2]), any(2, &[2, 2, 2, 3])],
        &|_, t| t[0].matmul(&t[1]),
    );
    for activation in [
        Activation::None,
        Activation::Relu,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Silu,
    ] {
        check(
            &format!("linear, bias, {activation:?}"),
            // Wide enough apart that no pre-activation crosses zero.
            &[any(1, &[2, 3]), any(2, &[3, 4]), off_zero(7, &[4])],
            &|_, t| t[0].linear(&t[1], Some(&t[2].mul_scalar(5.0)?), activation),
        );
        check(
            &format!("linear, {activation:?}"),
            &[positive(1, &[2, 2, 3]), positive(2, &[3, 4])],
            &|_, t| t[0].linear(&t[1], None, activation),
        );
    }
}

#[test]
fn products_with_transposed_weights() {
    check(
        "linear_transposed, bias",
        &[any(1, &[2, 2, 3]), any(2, &[4, 3]), any(3, &[4])],
        &|_, t| t[0].linear_transposed(&t[1], Some(&t[2])),
    );
    check("linear_transposed", &[any(1, &[5, 3]), any(2, &[4, 3])], &|_, t| {
        t[0].linear_transposed(&t[1], None)
    });
    check(
        "linear_onto",
        &[any(1, &[2, 2, 3]), any(2, &[3, 4]), any(3, &[4]), any(4, &[2, 2, 4])],
        &|_, t| t[0].linear_onto(&t[1], Some(&t[2]), &t[3]),
    );
}

#[test]
fn rotary_positions_and_gates() {
    let x = || any(1, &[2, 3, 2 * 6]);
    check("rope", &[x()], &|device, t| {
        t[0].rope(6, &device.tensor(&[1.0, 0.3, 0.05], &[3])?, None)
    });
    check("rope, positions", &[x()], &|device, t| {
        let positions = device.tensor_u32(&[5, 6, 7, 0, 1, 100], &[2, 3])?;
        t[0].rope(6, &device.tensor(&[1.0, 0.3, 0.05], &[3])?, Some(&positions))
    });
    check("swiglu", &[any(1, &[3, 7]), any(2, &[3, 7])], &|_, t| {
        t[0].swiglu(&t[1])
    });
}

#[test]
fn softmax_and_norms() {
    check("softmax", &[any(1, &[3, 5])], &|_, t| t[0].softmax());
    check("log_softmax", &[any(1, &[3, 5])], &|_, t| t[0].log_softmax());
    let x = || any(1, &[2, 3, 5]);
    check("layer_norm", &[x(), positive(2, &[5]), any(3, &[5])], &|_, t| {
        t[0].layer_norm(Some(&t[1]), Some(&t[2]), 1e-2)
    });
    check("layer_norm, gain", &[x(), positive(2, &[5])], &|_, t| {
        t[0].layer_norm(Some(&t[1]), None, 1e-2)
    });
    check("layer_norm, offset", &[x(), any(3, &[5])], &|_, t| {
        t[0].layer_norm(None, Some(&t[1]), 1e-2)
    });
    check("layer_norm, plain", &[x()], &|_, t| t[0].layer_norm(None, None, 1e-2));
    check("rms_norm", &[x(), positive(2, &[5])], &|_, t| {
        t[0].rms_norm(Some(&t[1]), 1e-2)
    });
    check("rms_norm, plain", &[x()], &|_, t| t[0].rms_norm(None, 1e-2));
    check("head_norm", &[any(1, &[2, 3, 10]), positive(2, &[5])], &|_, t| {
        t[0].head_norm(5, &t[1], 1e-2)
    });
}

#[test]
fn sums_and_means() {
    check("sum", &[any(1, &[3, 4])], &|_, t| t[0].sum());
    check("mean", &[any(1, &[3, 4])], &|_, t| t[0].mean());
    check("mean of a scalar", &[any(1, &[])], &|_, t| t[0].mean());
    for dim in 0..3 {
        check(&format!("sum_dim {dim}"), &[any(1, &[2, 3, 4])], &|_, t| {
            t[0].sum_dim(dim)
        });
        check(&format!("mean_dim {dim}"), &[any(1, &[2, 3, 4])], &|_, t| {
            t[0].mean_dim(dim)
        });
    }
}

#[test]
fn shapes() {
    let x = || any(1, &[2, 3, 4]);
    check("reshape", &[x()], &|_, t| t[0].reshape(&[4, 6]));
    check("reshape to more", &[x()], &|_, t| t[0].reshape(&[2, 3, 2, 2]));
    check("permute", &[x()], &|_, t| t[0].permute(&[2, 0, 1]));
    check("transpose", &[x()], &|_, t| t[0].transpose(0, 2));
    for dim in 0..3 {
        check(&format!("slice {dim}"), &[x()], &|_, t| t[0].slice(dim, 1..2));
        let mut other = vec![2, 3, 4];
        other[dim] = 2;
        check(&format!("concat {dim}"), &[x(), any(2, &other)], &|_, t| {
            Tensor::concat(&[&t[0], &t[1], &t[0]], dim)
        });
    }
    check("split_heads", &[x()], &|_, t| t[0].split_heads(2));
    check("merge_heads", &[any(1, &[2, 2, 3, 2])], &|_, t| t[0].merge_heads());
    check("add_rows", &[x(), any(2, &[5, 4])], &|_, t| t[0].add_rows(&t[1]));
}

#[test]
fn lookups_and_dropout() {
    check("embedding", &[any(1, &[5, 3])], &|device, t| {
        t[0].embedding(&device.tensor_u32(&[4, 0, 0, 2, u32::MAX, 4], &[2, 3])?)
    });
    check("dropout", &[any(1, &[4, 6])], &|_, t| t[0].dropout(0.4, 3));
    check("dropout_add", &[any(1, &[4, 6]), any(2, &[4, 6])], &|_, t| {
        t[0].dropout_add(&t[1], 0.4, 3)
    });
    check("dropout_add, p 0", &[any(1, &[4, 6]), any(2, &[4, 6])], &|_, t| {
        t[0].dropout_add(&t[1], 0.0, 3)
    });
}

fn spec(num_heads: usize, num_groups: usize, causal: bool) -> AttentionSpec {
    AttentionSpec {
        num_heads,
        num_groups,
        head_dim: 3,
        causal,
    }
}

#[test]
fn attention() {
    for (heads, groups) in [(2, 2), (4, 2), (3, 1)] {
        for causal in [true, false] {
            let spec = spec(heads, groups, causal);
            let width = (heads + 2 * groups) * 3;
            check(
                &format!("attention {heads}/{groups}, causal {causal}"),
                &[any(1, &[2, 4, width])],
                &|_, t| t[0].attention(&spec, None),
            );
            check(
                &format!("attention_qkv {heads}/{groups}, causal {causal}"),
                &[
                    any(1, &[2, 4, heads * 3]),
                    any(2, &[2, 4, groups * 3]),
                    any(3, &[2, 4, groups * 3]),
                ],
                &|_, t| t[0].attention_qkv(&t[1], &t[2], &spec),
            );
            // One byte a (query, key): the same for both sequences, and one for each.
            let bytes = |i: u32| 0x0100_0001 | (0x0001_0100 << (i % 2)) | 1 << (8 * (i % 4));
            for batch in [1, 2] {
                check(
                    &format!("attention {heads}/{groups}, causal {causal}, {batch} masks"),
                    &[any(1, &[2, 4, width])],
                    &|device, t| {
                        let words: Vec<u32> = (0..4 * batch).map(bytes).collect();
                        let shape: &[usize] = if batch == 1 { &[4, 1] } else { &[2, 4, 1] };
                        let mask = device.tensor_u32(&words, shape)?;
                        t[0].attention(&spec, Some(&mask))
                    },
                );
            }
        }
    }
}

/// More queries than keys, and the other way, without a causal mask.
#[test]
fn cross_attention() {
    let spec = spec(2, 2, false);
    for (queries, keys) in [(2, 5), (5, 2)] {
        check(
            &format!("attention_qkv {queries} queries, {keys} keys"),
            &[any(1, &[2, queries, 6]), any(2, &[2, keys, 6]), any(3, &[2, keys, 6])],
            &|_, t| t[0].attention_qkv(&t[1], &t[2], &spec),
        );
    }
}

const REDUCTIONS: [ReduceType; 4] = [
    ReduceType::Mean,
    ReduceType::MeanOver(3),
    ReduceType::Sum,
    ReduceType::None,
];

#[test]
fn losses() {
    for reduce in REDUCTIONS {
        check(
            &format!("mse {reduce:?}"),
            &[any(1, &[3, 4]), any(2, &[3, 4])],
            &|_, t| t[0].mse_loss(&t[1], reduce),
        );
        check(&format!("nll {reduce:?}"), &[any(1, &[2, 3, 5])], &|device, t| {
            t[0].log_softmax()?
                .nll_loss(&device.tensor_u32(&[0, 4, u32::MAX, 2, 2, 1], &[2, 3])?, reduce)
        });
        // Two of seven columns are padding.
        check(
            &format!("cross_entropy {reduce:?}"),
            &[any(1, &[2, 3, 7])],
            &|device, t| {
                let targets = device.tensor_u32(&[0, 4, u32::MAX, 2, 2, 1], &[2, 3])?;
                t[0].cross_entropy(&targets, 5, reduce)
            },
        );
    }
    let scale = 0.25;
    let fused = check_with(
        "linear_cross_entropy",
        &[any(1, &[2, 3, 4]), any(2, &[7, 4])],
        &|device, t| {
            let targets = device.tensor_u32(&[0, 4, u32::MAX, 2, 2, 1], &[2, 3])?;
            let losses = t[0].linear_cross_entropy(&t[1], &targets, 5, scale)?;
            // The gradient has the scale in it, the losses do not.
            if device.grad_enabled() {
                Ok(losses)
            } else {
                losses.mul_scalar(scale)
            }
        },
        true,
    );
    assert_eq!(fused, Ok(()));
}

/// The fused head is the product and cross_entropy apart, but for the order in which a sequence's losses are added.
#[test]
fn the_fused_head_equals_product_and_loss() -> Result<()> {
    let device = open(&[]);
    let (x, head) = (any(1, &[2, 3, 4]), any(2, &[7, 4]));
    let ids = Draw::new(3).ids(6, 7);
    let leaf = |(shape, values): &Input| device.tensor(values, shape)?.requires_grad();
    let (x1, h1, x2, h2) = (leaf(&x)?, leaf(&head)?, leaf(&x)?, leaf(&head)?);
    let targets = device.tensor_u32(&ids, &[2, 3])?;
    let fused = x1.linear_cross_entropy(&h1, &targets, 7, 0.5)?;
    fused.backward()?;
    let apart = x2
        .matmul(&h2.transpose(0, 1)?)?
        .cross_entropy(&targets, 7, ReduceType::None)?
        .sum_dim(1)?;
    apart.backward_with(&device.full(0.5, &[2])?)?;
    for (a, b) in fused.to_vec()?.iter().zip(apart.to_vec()?) {
        assert!((a - b).abs() < 1e-5, "{a} and {b}");
    }
    let grad = |t: &Tensor| t.grad()?.expect("it takes part").to_vec();
    for (found, expected) in [(&x1, &x2), (&h1, &h2)] {
        for (a, b) in grad(found)?.iter().zip(grad(expected)?) {
            assert!((a - b).abs() < 1e-6, "{a} and {b}");
        }
    }
    Ok(())
}

#[test]
fn recomputed_blocks() {
    check("recompute", &[any(1, &[2, 3]), any(2, &[3, 3])], &|_, t| {
        let w = t[1].clone();
        let block = move |x: &Tensor| x.linear(&w, None, Activation::Gelu)?.dropout(0.2, 1);
        recompute(&recompute(&t[0], Rc::new(block.clone()))?, Rc::new(block))
    });
}

/// `x³` by a command of the test's own.
mod cube {
    use unisono_kernels::scratch::Scratch;
    use unisono_runtime::{BufferRef, Cost, Op, Place};

    #[derive(Debug)]
    pub struct Cube {
        pub x: BufferRef,
        pub to: BufferRef,
    }

    impl Op for Cube {
        fn name(&self) -> &'static str {
            "cube"
        }

        fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
            see(self.x);
        }

        fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
            see(self.to);
        }

        fn cost(&self, _mesh: &unisono_mesh::Mesh) -> Cost {
            Cost::default()
        }

        fn tiles(&self) -> usize {
            1
        }

        fn run(&self, place: &Place<'_>, _tile: usize, _scratch: &mut Scratch) {
            let x = place.f32(self.x);
            for (y, x) in place.write(self.to, 0, self.to.len).iter_mut().zip(x) {
                *y = x * x * x;
            }
        }
    }
}

#[test]
fn an_operation_of_ones_own() {
    check("cube", &[any(1, &[2, 3])], &|device, t| {
        let y = t[0].empty_like()?;
        let (x, to) = (t[0].buffer(), y.buffer());
        device.issue(std::sync::Arc::new(cube::Cube { x, to }))?;
        let x = t[0].detach();
        y.with_backward("cube", &[&t[0]], move |dy| {
            Ok(vec![Some(x.mul(&x)?.mul_scalar(3.0)?.mul(dy)?)])
        })
    });
}
