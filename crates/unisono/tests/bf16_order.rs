//! `bf16_order` from the command line: what is told of it, and that another order is another run.

mod common;

use common::{Sandbox, TINY};

/// A sandbox whose run.yaml asks for bf16 in the order of tiles; wide enough that not all of the difference is rounded away.
fn tiles() -> Sandbox {
    let s = Sandbox::new();
    let tiles = TINY.replace("  seed: 7", "  seed: 7\n  dtype: bf16\n  bf16_order: tiles");
    s.write("run.yaml", &tiles.replace("embedding_dim: 32", "embedding_dim: 128"));
    s
}

#[test]
fn the_header_tells_the_order_and_by_what_it_is_computed() {
    let s = tiles();
    // AMX is used on AVX-512 only, so that this is sure to emulate it.
    let portable = [("UNISONO_ISA", "portable")];
    s.run_with("check -c run.yaml", &portable)
        .ended(0)
        .says(&["bf16 activations and products (tiles, emulated)"])
        .tells(&["bf16_order: tiles is emulated, as ", " AMX", ": the same bits\n"]);
    s.run_with("check -c run.yaml --set training_config.bf16_order=pairs", &portable)
        .ended(0)
        .says(&["bf16 activations and products (pairs, emulated)"]);
    let header = s.run_with("check -c run.yaml --json", &portable).ended(0).json();
    assert_eq!(header["plan"]["bf16_order"], "tiles", "{header}");
    let done = s.run("check -c run.yaml --set training_config.dtype=f32").ended(0);
    assert!(
        !done.out.contains("tiles") && !done.err.contains("tiles"),
        "{}",
        done.err
    );
    s.run("check -c run.yaml --set training_config.bf16_order=rows")
        .ended(2)
        .tells(&["bf16_order", "pairs or tiles"]);
}

#[test]
fn a_run_keeps_its_order_and_another_order_is_another_run() {
    let s = tiles();
    s.run("train -q -c run.yaml --out one").ended(0);
    s.run("train -q -c run.yaml --out four --mesh dp=2,tp=2").ended(0);
    s.run("diff one four").ended(0).says(&["Identical, bit by bit."]);
    s.run("train -q -c run.yaml --out pairs --set training_config.bf16_order=pairs")
        .ended(0);
    s.run("diff one pairs")
        .ended(3)
        .says(&["training_config.bf16_order: tiles in A, pairs in B"]);
    // What takes a run takes its order.
    let loss = |options: &str| s.run(&format!("eval --json {options}")).ended(0).json()["loss"].to_string();
    let own = loss("--run one");
    assert_eq!(loss("--run one --mesh tp=4"), own);
    assert_ne!(loss("--run one --set training_config.bf16_order=pairs"), own);
    s.run("train --resume one --set training_config.max_steps=9 --set training_config.bf16_order=pairs")
        .ended(0)
        .tells(&["from here on training_config.bf16_order: tiles → pairs"]);
    // Files of Hugging Face say nothing of it.
    s.run("export --run four --format hf --out model").ended(0);
    // Long enough that the two orders round something differently.
    let words = |i: usize| ["The ", "fox. ", "hex of ", "ox "][i * i / 3 % 4];
    s.write("text.txt", &(0..600).map(words).collect::<String>());
    s.run("eval --model model --data text.txt --bf16-order tiles")
        .ended(2)
        .tells(&["--bf16-order tiles is for products of bf16, and this model is multiplied in f32"]);
    let of_files = |order: &str| loss(&format!("--model model --data text.txt --dtype bf16 {order}"));
    assert_ne!(of_files("--bf16-order tiles"), of_files(""));
    assert_eq!(of_files("--bf16-order pairs"), of_files(""));
}
