//! Every illegal use of a partial sum or of placements that do not fit is an error that names the tensor, the axis and the
//! call that helps. The texts are golden: reviewing a message is reviewing a diff of `placement_errors.golden`.

mod common;

use common::{golden, open, text, values};
use std::fmt::Write;
use unisono_tensor::ops::attention::AttentionSpec;
use unisono_tensor::ops::matmul::Activation;
use unisono_tensor::{MeshDevice, ReduceType, Result, Tensor, Unary};

/// A partial sum [2, 8] over `tp`.
fn partial(device: &MeshDevice) -> Result<Tensor> {
    let x = device.sharded(&values(1, 16), &[2, 8], &[("tp", 1)])?;
    let w = device.sharded(&values(2, 64), &[8, 8], &[("tp", 0)])?.requires_grad()?;
    x.linear(&w, None, Activation::None)
}

#[test]
fn a_partial_sum_can_only_be_moved_or_reduced() -> Result<()> {
    let device = open(&[("dp", 2), ("tp", 2)]);
    let p = partial(&device)?;
    let whole = device.tensor(&values(3, 16), &[2, 8])?;
    let square = device.tensor(&values(3, 64), &[8, 8])?.requires_grad()?;
    let row = device.tensor(&values(3, 8), &[8])?.requires_grad()?;
    let ids = device.tensor_u32(&[1, 2], &[2])?;
    let spec = AttentionSpec {
        num_heads: 2,
        num_groups: 2,
        head_dim: 2,
        causal: true,
    };
    let cases: Vec<(&str, String)> = vec![
        ("p + x", text(p.add(&whole))),
        ("x + p", text(whole.add(&p))),
        ("p − p", text(p.sub(&p))),
        ("p · x", text(p.mul(&whole))),
        ("p / x", text(p.div(&whole))),
        ("p + 1", text(p.add_scalar(1.0))),
        ("2 p", text(p.mul_scalar(2.0))),
        ("scale_gradient(p)", text(p.scale_gradient(2.0))),
        ("exp(p)", text(p.map(Unary::Exp))),
        ("relu(p)", text(p.relu())),
        ("p · w", text(p.linear(&square, None, Activation::None))),
        ("p wᵀ", text(device.no_grad(|| p.logits(&square)))),
        ("matmul(p, w)", text(p.matmul(&square))),
        ("softmax(p)", text(p.softmax())),
        ("log_softmax(p)", text(p.log_softmax())),
        ("layer_norm(p)", text(p.layer_norm(Some(&row), None, 1e-5))),
        ("rms_norm(p)", text(p.rms_norm(Some(&row), 1e-5))),
        ("sum(p)", text(p.sum())),
        ("mean(p)", text(p.mean())),
        ("sum_dim(p)", text(p.sum_dim(1))),
        ("argmax(p)", text(p.argmax())),
        ("dropout(p)", text(p.dropout(0.1, 0))),
        ("dropout_add(x, p)", text(whole.dropout_add(&p, 0.1, 0))),
        ("reshape(p)", text(p.reshape(&[16]))),
        ("permute(p)", text(p.permute(&[1, 0]))),
        ("slice(p)", text(p.slice(1, 0..2))),
        ("concat(p)", text(Tensor::concat(&[&p, &p], 0))),
        ("embedding(p)", text(p.embedding(&ids))),
        ("cross_entropy(p)", text(p.cross_entropy(&ids, 8, ReduceType::Mean))),
        ("nll_loss(p)", text(p.nll_loss(&ids, ReduceType::Mean))),
        ("mse_loss(p)", text(p.mse_loss(&whole, ReduceType::Mean))),
        ("attention(p)", text(p.attention(&spec, None))),
        ("attention_qkv(p)", text(p.attention_qkv(&p, &p, &spec))),
        ("requires_grad(p)", text(p.detach().requires_grad())),
        ("backward(p)", text(p.backward())),
        ("to_vec(p)", text(p.to_vec())),
        ("item(p)", text(p.item())),
        ("empty_like(p)", text(p.empty_like())),
        ("broadcast(p)", text(p.broadcast("tp"))),
        ("scatter(p)", text(p.scatter("tp", 0))),
        ("all_gather(p)", text(p.all_gather("tp", 0, true))),
        ("broadcast_from(p)", text(p.broadcast_from("dp", 0))),
        ("all_reduce(p) over dp", text(p.all_reduce("dp"))),
    ];
    report("partial_errors.golden", cases);
    Ok(())
}

#[test]
fn placements_that_do_not_fit() -> Result<()> {
    let device = open(&[("dp", 2), ("tp", 2)]);
    let tensor = |shape: &[usize]| device.tensor(&values(1, shape.iter().product()), shape);
    let cut = |shape: &[usize], axis: &'static str, dim: usize| {
        device.sharded(&values(1, shape.iter().product()), shape, &[(axis, dim)])
    };
    let x = tensor(&[4, 8])?;
    let by_rows = cut(&[4, 8], "tp", 0)?;
    let by_columns = cut(&[4, 8], "tp", 1)?;
    let batch = device.batch(&values(1, 32), &[4, 8])?;
    let w = tensor(&[8, 8])?.requires_grad()?;
    let w0 = cut(&[8, 8], "tp", 0)?.requires_grad()?;
    let w1 = cut(&[8, 8], "tp", 1)?.requires_grad()?;
    let gain = tensor(&[8])?.requires_grad()?;
    let cut_gain = cut(&[16], "tp", 0)?.requires_grad()?;
    let half_bias = tensor(&[4])?.requires_grad()?;
    let sequences = cut(&[2, 4, 8], "tp", 1)?;
    let ids = device.batch_u32(&[1, 2, 3, 0], &[4])?;
    let all_ids = device.tensor_u32(&[1, 2], &[2])?;
    let cut_table = cut(&[8, 4], "tp", 0)?.requires_grad()?;
    let wide_table = cut(&[8, 4], "tp", 1)?;
    let spec = AttentionSpec {
        num_heads: 2,
        num_groups: 2,
        head_dim: 2,
        causal: true,
    };
    let other = open(&[("dp", 2), ("tp", 2)]).tensor(&values(1, 32), &[4, 8])?;
    let none = Activation::None;
    let cases: Vec<(&str, String)> = vec![
        ("replicated + cut", text(x.add(&cut(&[8, 8], "tp", 0)?))),
        ("rows + columns", text(by_rows.add(&cut(&[2, 16], "tp", 1)?))),
        ("other mesh", text(x.add(&other))),
        (
            "cut input, whole weight",
            text(cut(&[4, 16], "tp", 1)?.linear(&w, None, none)),
        ),
        (
            "whole input, row-parallel weight",
            text(tensor(&[4, 4])?.linear(&w0, None, none)),
        ),
        (
            "cut input, column-parallel weight",
            text(cut(&[4, 16], "tp", 1)?.linear(&w1, None, none)),
        ),
        (
            "row-parallel with bias",
            text(by_columns.linear(&w0, Some(&gain), none)),
        ),
        (
            "row-parallel with activation",
            text(by_columns.linear(&w0, None, Activation::Relu)),
        ),
        (
            "replicated bias, column-parallel",
            text(x.linear(&w1, Some(&half_bias), none)),
        ),
        (
            "gradient of a weight by tokens",
            text(sequences.linear(&w, None, none).and_then(|y| y.backward())),
        ),
        (
            "gradient of a norm by tokens",
            text(sequences.layer_norm(Some(&gain), None, 1e-5).and_then(|y| y.backward())),
        ),
        (
            "gradient of a sum by tokens",
            text(sequences.add(&gain).and_then(|y| y.backward())),
        ),
        ("layer_norm of columns", text(by_columns.layer_norm(None, None, 1e-5))),
        (
            "layer_norm with a cut gain",
            text(x.layer_norm(Some(&cut_gain), None, 1e-5)),
        ),
        ("softmax of columns", text(by_columns.softmax())),
        ("argmax of columns", text(by_columns.argmax())),
        ("sum of columns", text(by_columns.sum())),
        ("sum over a cut dimension", text(by_columns.sum_dim(1))),
        ("slice of a cut dimension", text(by_columns.slice(1, 0..2))),
        (
            "concat of a cut dimension",
            text(Tensor::concat(&[&by_columns, &by_columns], 1)),
        ),
        (
            "concat of rows and whole",
            text(Tensor::concat(&[&by_rows, &tensor(&[2, 8])?], 1)),
        ),
        ("reshape through a cut", text(by_columns.reshape(&[16]))),
        ("ids cut like the table", text(cut_table.embedding(&cut_ids(&device)?))),
        ("table cut in its width", text(wide_table.embedding(&all_ids))),
        (
            "targets of another batch",
            text(tensor(&[2, 8])?.cross_entropy(&ids, 8, ReduceType::Sum)),
        ),
        (
            "nll of another batch",
            text(tensor(&[2, 8])?.nll_loss(&ids, ReduceType::Sum)),
        ),
        (
            "nll of cut classes",
            text(by_columns.nll_loss(&device.tensor_u32(&[0; 4], &[4])?, ReduceType::Sum)),
        ),
        (
            "attention over cut tokens",
            text(cut(&[2, 4, 12], "tp", 1)?.attention(&spec, None)),
        ),
        (
            "attention over half a group",
            text(
                tensor(&[2, 4, 6])?
                    .attention(&spec, None)
                    .and(cut(&[2, 4, 6], "tp", 2)?.attention(&spec, None)),
            ),
        ),
        ("attention of batch and whole", text(attention_mixed(&device, &spec))),
        (
            "attention_qkv over cut tokens",
            text(cut(&[2, 4, 4], "tp", 1).and_then(|t| t.attention_qkv(&t, &t, &spec))),
        ),
        ("head and input cut", text(fused_head(&device, 2, 1))),
        ("head by width, input whole", text(fused_head_width(&device))),
        (
            "batched product, different cuts",
            text(cut(&[2, 4, 4], "tp", 0)?.matmul(&tensor(&[1, 4, 4])?)),
        ),
        (
            "batched product, cut rows",
            text(cut(&[2, 4, 4], "tp", 1)?.matmul(&cut(&[2, 2, 4], "tp", 2)?)),
        ),
        ("all_reduce of a whole tensor", text(x.all_reduce("tp"))),
        ("all_reduce of a cut tensor", text(by_rows.all_reduce("tp"))),
        ("reduce_scatter of a whole tensor", text(x.reduce_scatter("tp", 0))),
        ("broadcast of a cut tensor", text(by_rows.broadcast("tp"))),
        ("scatter of a cut tensor", text(by_rows.scatter("tp", 1))),
        ("scatter of 3 rows", text(tensor(&[3, 8])?.scatter("tp", 0))),
        ("scatter of a dimension that is not", text(x.scatter("tp", 2))),
        ("scatter of a batch's rows", text(batch.scatter("tp", 0))),
        ("all_gather of a whole tensor", text(x.all_gather("tp", 0, true))),
        (
            "all_gather of another dimension",
            text(by_rows.all_gather("tp", 1, true)),
        ),
        (
            "dropout_add of batch and whole",
            text(batch.dropout_add(&tensor(&[2, 8])?, 0.1, 0)),
        ),
        (
            "sharded twice in a dimension",
            text(device.sharded(&values(1, 32), &[4, 8], &[("dp", 0), ("tp", 0)])),
        ),
        (
            "sharded twice by an axis",
            text(device.sharded(&values(1, 32), &[4, 8], &[("tp", 0), ("tp", 1)])),
        ),
        (
            "sharded along no axis",
            text(device.sharded(&values(1, 32), &[4, 8], &[("ep", 0)])),
        ),
        (
            "sharded unevenly",
            text(device.sharded(&values(1, 24), &[3, 8], &[("tp", 0)])),
        ),
        ("a batch of 3", text(device.batch(&values(1, 24), &[3, 8]))),
        ("too few values", text(device.tensor(&values(1, 3), &[2, 2]))),
        ("dropout by middle", text(cut(&[2, 2, 4, 2], "tp", 2)?.dropout(0.5, 0))),
        (
            "gradient needs broadcast()",
            text(
                x.mul_scalar(1.0)?
                    .requires_grad()
                    .and_then(|x| x.mul(&x)?.linear(&w1, None, none)?.backward()),
            ),
        ),
        ("replicated gradient is partial", text(needs_partial(&device))),
    ];
    report("placement_errors.golden", cases);
    Ok(())
}

fn cut_ids(device: &MeshDevice) -> Result<Tensor> {
    // Ids cut along the table's own axis: on a mesh whose batch axis is called `tp` there is no such batch, so they are
    // gathered from a batch and cut again.
    device
        .batch_u32(&[1, 2, 3, 0], &[4])?
        .all_gather("dp", 0, true)?
        .scatter("tp", 0)
}

fn attention_mixed(device: &MeshDevice, spec: &AttentionSpec) -> Result<Tensor> {
    let q = device.batch(&values(1, 32), &[4, 2, 4])?;
    let k = device.tensor(&values(1, 16), &[2, 2, 4])?;
    q.attention_qkv(&k, &k, spec)
}

/// An input cut in `dim` with a head cut in its rows, along the same axis.
fn fused_head(device: &MeshDevice, batch: usize, dim: usize) -> Result<Tensor> {
    let x = device.sharded(&values(1, batch * 32), &[batch, 4, 8], &[("tp", dim)])?;
    let head = device
        .sharded(&values(1, 80), &[10, 8], &[("tp", 0)])?
        .requires_grad()?;
    let targets = device.tensor_u32(&vec![1; batch * 2], &[batch, 2])?;
    x.linear_cross_entropy(&head, &targets, 10, 1.0)
}

fn fused_head_width(device: &MeshDevice) -> Result<Tensor> {
    let x = device.tensor(&values(1, 32), &[2, 4, 4])?;
    let head = device
        .sharded(&values(1, 80), &[10, 8], &[("tp", 1)])?
        .requires_grad()?;
    let targets = device.tensor_u32(&[1; 8], &[2, 4])?;
    x.linear_cross_entropy(&head, &targets, 10, 1.0)
}

fn needs_partial(device: &MeshDevice) -> Result<()> {
    let x = device.sharded(&values(1, 32), &[4, 8], &[("tp", 0)])?.requires_grad()?;
    let w1 = device.sharded(&values(1, 64), &[8, 8], &[("tp", 1)])?.requires_grad()?;
    x.all_gather("tp", 0, true)?
        .linear(&w1, None, Activation::None)?
        .backward()
}

fn report(name: &str, cases: Vec<(&str, String)>) {
    let mut out = String::new();
    for (case, message) in &cases {
        writeln!(out, "{case}\n    {message}").expect("a string takes everything");
    }
    golden(name, &out);
    let silent: Vec<&str> = cases.iter().filter(|(_, m)| m == "NO ERROR").map(|(c, _)| *c).collect();
    assert!(silent.is_empty(), "no error from: {silent:?}");
}
