//! `unisono bench`: how fast the kernels are at training shapes, against the multiply-add peak of the same moment.
//!
//! Each repetition throws the operands out of the caches, issues the kernel's commands as a training step does, and waits for
//! their end; the peak is measured before and after it. Shown are medians: by the clock, and the share of the peak by the CPU
//! time of all threads as well, which other programs on the machine disturb less.

use super::{DONE, setup};
use crate::cli::BenchArgs;
use crate::context::Context;
use crate::exit::Failure;
use crate::machine;
use crate::output::numbers::counted;
use serde::Serialize;
use serde_json::json;
use std::time::Instant;
use unisono_kernels::gemm::Activation;
use unisono_kernels::gemm::peak::fma_peak;
use unisono_kernels::isa::Isa;
use unisono_kernels::order::Units;
use unisono_nn::optimizers::{AdamW, AdamWConfig};
use unisono_nn::parameter::{Parameters, whole};
use unisono_nn::{GradientNorm, Optimizer};
use unisono_runtime::machine::cores;
use unisono_runtime::ops::SumShare;
use unisono_runtime::ops::fill::Fill;
use unisono_runtime::ops::matmul::{MatMul, Matrix};
use unisono_tensor::ops::attention::AttentionSpec;
use unisono_tensor::{Kind, Mesh, MeshDevice, Options, Result, Tensor};

/// Seconds that each look at the peak takes.
const PEAK_SECONDS: f64 = 0.01;
/// Numbers that are written between repetitions: more than the caches hold.
const FLUSH: usize = 24 << 20;
/// Bytes that the kernels and their operands may take.
const MEMORY: u64 = 2 << 30;
/// From so many operations a byte on, arithmetic is the limit and not the memory.
const ARITHMETIC: f64 = 4.0;

/// A product: name, m, k, n, whether A and B are read transposed.
type Shape = (&'static str, usize, usize, usize, bool, bool);

const SHAPES: [Shape; 7] = [
    ("matmul fc forward", 3072, 384, 1536, false, false),
    ("matmul proj forward", 3072, 1536, 384, false, false),
    ("matmul fc weight grad", 384, 3072, 1536, true, false),
    ("matmul fc input grad", 3072, 1536, 384, false, true),
    ("matmul gpt2 fc", 960, 768, 3072, false, false),
    ("matmul gpt2 weight grad", 768, 1024, 3072, true, false),
    ("matmul gpt2 head", 960, 768, 50304, false, false),
];

/// One line of the result.
#[derive(Serialize)]
struct Row {
    kernel: String,
    threads: usize,
    milliseconds: f64,
    gflops: f64,
    gbytes_per_s: f64,
    peak_gflops: f64,
    share_of_peak: f64,
    /// The same, in the time that the threads had a core (or spun for work).
    share_by_cpu_time: f64,
    /// Whether its arithmetic, not its memory, limits it.
    arithmetic: bool,
}

/// Something to measure: its name, and what issues its commands.
struct Kernel {
    name: String,
    issue: Box<dyn FnMut() -> Result<()>>,
}

/// See the module.
///
/// # Errors
/// Too little memory, or a filter that leaves nothing.
pub fn run(args: &BenchArgs, context: &Context) -> std::result::Result<u8, Failure> {
    let out = &context.out;
    let threads = match args.threads {
        Some(threads) => vec![threads],
        None if cores() == 1 => vec![1],
        None => vec![1, cores()],
    };
    if cfg!(debug_assertions) {
        out.warn("this program was built with checks for tests: cargo build --release makes the fast one");
    }
    let mut rows = Vec::new();
    for threads in threads {
        let options = Options {
            workers: Some(threads),
            memory_limit: Some(MEMORY),
            isa: Some(context.isa),
            ..Options::default()
        };
        let device = setup::opened(Mesh::one(), options)?;
        let mut is_first = true;
        let flush = device
            .runtime()
            .alloc(FLUSH, Kind::Activation)
            .map_err(unisono_tensor::TensorError::from)?;
        for make in MAKERS {
            for kernel in make(&device, args.filter.as_deref().unwrap_or_default())? {
                let clear = || {
                    device.runtime().issue(Fill {
                        to: flush.r(),
                        value: 0.0,
                    })
                };
                // A filter that leaves nothing is told before anything else is.
                if rows.is_empty() {
                    out.say(format!(
                        "{}, median of {}, operands cold; the peak is measured around each repetition",
                        context.isa.name(),
                        args.repetitions
                    ));
                }
                if std::mem::take(&mut is_first) {
                    out.result(format!("{}:", counted(threads, "thread")));
                }
                let row = measure(kernel, &device, context.isa, threads, args.repetitions, &clear)?;
                out.result(describe(&row));
                rows.push(row);
            }
        }
    }
    if rows.is_empty() {
        return Err(Failure::input(format!(
            "no kernel's name contains {:?}: try matmul, attention, norm, gelu, softmax or adamw",
            args.filter.as_deref().unwrap_or_default()
        )));
    }
    out.json(&json!({"isa": context.isa.name(), "kernels": rows}));
    DONE
}

fn describe(row: &Row) -> String {
    let speed = format!(
        "{:9.3} ms {:8.1} GFLOP/s {:7.1} GB/s",
        row.milliseconds, row.gflops, row.gbytes_per_s
    );
    let share = match row.arithmetic {
        true => format!(
            "  {:5.1} % of the peak ({:5.1} % by CPU time), {:.0} GFLOP/s",
            100.0 * row.share_of_peak,
            100.0 * row.share_by_cpu_time,
            row.peak_gflops
        ),
        false => String::new(),
    };
    format!("  {:58}{speed}{share}", row.kernel)
}

type Clear<'a> = &'a dyn Fn() -> std::result::Result<(), unisono_runtime::RuntimeError>;

fn measure(
    mut kernel: Kernel,
    device: &MeshDevice,
    isa: Isa,
    threads: usize,
    repetitions: u16,
    clear: Clear<'_>,
) -> Result<Row> {
    let runtime = device.runtime();
    (kernel.issue)()?;
    runtime.sync()?;
    runtime.reset_report();
    (kernel.issue)()?;
    runtime.sync()?;
    let work = runtime.report().total();
    let (mut seconds, mut peaks) = (Vec::new(), Vec::new());
    let (mut shares, mut by_cpu) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        clear()?;
        runtime.sync()?;
        let before = fma_peak(isa, threads, PEAK_SECONDS);
        let (start, cpu) = (Instant::now(), machine::cpu_seconds());
        (kernel.issue)()?;
        runtime.sync()?;
        let passed = start.elapsed().as_secs_f64().max(1e-9);
        let cpu = cpu
            .zip(machine::cpu_seconds())
            .map_or(passed, |(from, to)| (to - from) / threads as f64);
        let peak = before.max(fma_peak(isa, threads, PEAK_SECONDS));
        shares.push(work.flops as f64 / passed / 1e9 / peak);
        by_cpu.push(work.flops as f64 / cpu.max(1e-9) / 1e9 / peak);
        seconds.push(passed);
        peaks.push(peak);
    }
    let seconds = median(seconds);
    Ok(Row {
        kernel: kernel.name,
        threads,
        milliseconds: seconds * 1e3,
        gflops: work.flops as f64 / seconds / 1e9,
        gbytes_per_s: work.bytes as f64 / seconds / 1e9,
        peak_gflops: median(peaks),
        share_of_peak: median(shares),
        share_by_cpu_time: median(by_cpu),
        arithmetic: work.flops as f64 > ARITHMETIC * work.bytes as f64,
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Makes the kernels of a kind whose name contains the filter.
type Maker = fn(&MeshDevice, &str) -> Result<Vec<Kernel>>;

const MAKERS: [Maker; 4] = [products, attention, rows, updates];

fn products(device: &MeshDevice, filter: &str) -> Result<Vec<Kernel>> {
    let mut kernels = Vec::new();
    for (site, (name, m, k, n, a_transposed, b_transposed)) in SHAPES.into_iter().enumerate() {
        let name = format!("{name} {m}x{k}x{n}");
        if !name.contains(filter) {
            continue;
        }
        let device = device.clone();
        // The operands are made when they are needed, and freed with the kernel.
        let mut operands: Option<[Tensor; 3]> = None;
        kernels.push(Kernel {
            name,
            issue: Box::new(move || {
                let [a, b, c] = match &mut operands {
                    Some(operands) => operands,
                    None => operands.insert([
                        device.randn(&[m * k], 2 * site as u32)?,
                        device.randn(&[k * n], 2 * site as u32 + 1)?,
                        device.zeros(&[m * n])?,
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
            let name = format!("attention {name} {batch}x{tokens}, {heads} heads of {head_dim}");
            if !name.contains(filter) {
                continue;
            }
            let spec = AttentionSpec {
                num_heads: heads,
                num_groups: heads,
                head_dim,
                causal: true,
            };
            let x = device.randn(&[batch, tokens, 3 * heads * head_dim], 100)?;
            let x = if backward { x.requires_grad()? } else { x };
            let gradient = device.randn(&[batch, tokens, heads * head_dim], 101)?;
            kernels.push(Kernel {
                name,
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
    Ok(kernels)
}

/// Norms, softmax and activations: one row or element after the other, limited by memory.
fn rows(device: &MeshDevice, filter: &str) -> Result<Vec<Kernel>> {
    type Apply = fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>;
    const OPS: [(&str, Apply); 5] = [
        ("layer_norm", |x, gain, bias| x.layer_norm(Some(gain), Some(bias), 1e-5)),
        ("rms_norm", |x, gain, _| x.rms_norm(Some(gain), 1e-5)),
        ("softmax", |x, _, _| x.softmax()),
        ("gelu", |x, _, _| x.gelu()),
        ("add", |x, _, _| x.add(x)),
    ];
    const ROWS: usize = 3072;
    const WIDTH: usize = 1536;
    let mut kernels = Vec::new();
    for (name, apply) in OPS {
        for backward in [false, true] {
            let name = format!("{name}{} {ROWS}x{WIDTH}", if backward { " and backward" } else { "" });
            if !name.contains(filter) {
                continue;
            }
            let x = device.randn(&[ROWS, WIDTH], 200)?;
            let (gain, bias) = (device.ones(&[WIDTH])?, device.zeros(&[WIDTH])?);
            let [x, gain, bias] = match backward {
                true => [x.requires_grad()?, gain.requires_grad()?, bias.requires_grad()?],
                false => [x, gain, bias],
            };
            let gradient = device.randn(&[ROWS, WIDTH], 201)?;
            kernels.push(Kernel {
                name,
                issue: Box::new(move || {
                    let y = apply(&x, &gain, &bias)?;
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
    Ok(kernels)
}

fn updates(device: &MeshDevice, filter: &str) -> Result<Vec<Kernel>> {
    const SIZE: usize = 10 << 20;
    let name = format!("adamw of {} parameters", SIZE);
    if !name.contains(filter) {
        return Ok(Vec::new());
    }
    let mut table = Parameters::new(device);
    let weight = table.normal("weight", vec![whole(SIZE)], 0.02)?;
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
    Ok(vec![Kernel {
        name,
        issue: Box::new(move || {
            step += 1;
            optimizer.step(&parameters, 1e-4, step, norm.control())
        }),
    }])
}
