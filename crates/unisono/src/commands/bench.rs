//! `unisono bench`: how fast the kernels are at training shapes, against what this machine could do at the same moment.
//!
//! Each repetition throws the operands out of the caches, issues the kernel's commands as a training step does, and waits for
//! their end. A kernel's share is that of the roof over it: its operations at the measured multiply-add rate, or its bytes at
//! the measured rate of reading or copying, whichever takes longer (Williams, Waterman, Patterson, *Roofline*, 2009). Shown are
//! medians: by the clock, and where arithmetic is the roof by the CPU time of all threads as well, which other programs on the
//! machine disturb less.

mod kernels;

use super::{DONE, setup};
use crate::cli::BenchArgs;
use crate::context::Context;
use crate::exit::Failure;
use crate::machine;
use crate::output::numbers::counted;
use kernels::{Kernel, MAKERS};
use serde::Serialize;
use serde_json::json;
use std::time::Instant;
use unisono_kernels::bandwidth::{Bandwidth, bandwidth};
use unisono_kernels::gemm::peak::{bf16_peak, fma_peak};
use unisono_kernels::isa::Isa;
use unisono_runtime::machine::cores;
use unisono_runtime::ops::fill::Fill;
use unisono_tensor::{Dtype, Kind, Mesh, MeshDevice, Options, Result};

/// Seconds that each look at the peak takes.
const PEAK_SECONDS: f64 = 0.01;
/// Numbers that are written between repetitions, and read and copied to measure memory: more than the caches hold.
const FLUSH: usize = 24 << 20;
/// Passes over memory to measure it.
const MEMORY_PASSES: usize = 7;
/// Bytes that the kernels and their operands may take.
const MEMORY: u64 = 2 << 30;

/// One line of the result.
#[derive(Serialize)]
struct Row {
    kernel: String,
    threads: usize,
    milliseconds: f64,
    gflops: f64,
    gbytes_per_s: f64,
    /// What limits it: `arithmetic`, `reading` or `copying`.
    roof: &'static str,
    /// GFLOP/s where arithmetic is the roof, else GB/s.
    peak: f64,
    share_of_peak: f64,
    /// The same, in the time that the threads had a core (or spun for work).
    share_by_cpu_time: f64,
}

/// What is measured against.
struct Bench<'a> {
    device: &'a MeshDevice,
    isa: Isa,
    threads: usize,
    repetitions: u16,
    memory: Bandwidth,
    clear: &'a dyn Fn() -> std::result::Result<(), unisono_runtime::RuntimeError>,
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
    let processor = machine::processor().unwrap_or_else(|| "unknown processor".to_string());
    let filter = args.filter.as_deref().unwrap_or_default();
    let (mut rows, mut machines) = (Vec::new(), Vec::new());
    for threads in threads {
        let options = Options {
            workers: Some(threads),
            memory_limit: Some(MEMORY),
            isa: Some(context.isa),
            ..Options::default()
        };
        let device = setup::opened(Mesh::one(), options)?;
        let flush = device
            .runtime()
            .alloc(FLUSH, Kind::Activation)
            .map_err(unisono_tensor::TensorError::from)?;
        let clear = || {
            device.runtime().issue(Fill {
                to: flush.r(),
                value: 0.0,
            })
        };
        let mut bench: Option<Bench<'_>> = None;
        for make in MAKERS {
            for kernel in make(&device, filter)? {
                // A filter that leaves nothing is told before anything else is.
                if rows.is_empty() {
                    out.say(format!(
                        "{}, {}, median of {}, operands cold; peaks are measured around each repetition",
                        processor,
                        context.isa.name(),
                        args.repetitions
                    ));
                }
                let bench = bench.get_or_insert_with(|| {
                    let memory = bandwidth(context.isa, threads, FLUSH, MEMORY_PASSES);
                    let row = Machine {
                        threads,
                        f32_gflops: fma_peak(context.isa, threads, PEAK_SECONDS),
                        bf16_gflops: bf16_peak(context.isa, threads, PEAK_SECONDS),
                        read_gbytes_per_s: memory.read / 1e9,
                        copy_gbytes_per_s: memory.copy / 1e9,
                    };
                    out.result(row.describe());
                    machines.push(row);
                    Bench {
                        device: &device,
                        isa: context.isa,
                        threads,
                        repetitions: args.repetitions,
                        memory,
                        clear: &clear,
                    }
                });
                let row = bench.measure(kernel)?;
                out.result(row.describe());
                rows.push(row);
            }
        }
    }
    if rows.is_empty() {
        return Err(Failure::input(format!(
            "no kernel's name contains {filter:?}: try matmul, decode, attention, norm, gelu, softmax, adamw, f32 or bf16"
        )));
    }
    out.json(&json!({
        "cpu": processor,
        "isa": context.isa.name(),
        "machine": machines,
        "kernels": rows,
    }));
    DONE
}

/// What so many threads of the machine can do.
#[derive(Serialize)]
struct Machine {
    threads: usize,
    f32_gflops: f64,
    bf16_gflops: f64,
    read_gbytes_per_s: f64,
    copy_gbytes_per_s: f64,
}

impl Machine {
    fn describe(&self) -> String {
        format!(
            "{}: multiply-adds {:.0} GFLOP/s in f32, {:.0} in bf16; memory reads {:.1} GB/s, copies {:.1} GB/s (both sides)",
            counted(self.threads, "thread"),
            self.f32_gflops,
            self.bf16_gflops,
            self.read_gbytes_per_s,
            self.copy_gbytes_per_s
        )
    }
}

impl Row {
    fn describe(&self) -> String {
        let by_cpu = match self.roof {
            "arithmetic" => format!(" ({:5.1} % by CPU time)", 100.0 * self.share_by_cpu_time),
            _ => String::new(),
        };
        format!(
            "  {:58}{:9.3} ms {:8.1} GFLOP/s {:7.1} GB/s  {:5.1} % of {}{by_cpu}",
            self.kernel,
            self.milliseconds,
            self.gflops,
            self.gbytes_per_s,
            100.0 * self.share_of_peak,
            self.roof
        )
    }
}

impl Bench<'_> {
    fn measure(&self, mut kernel: Kernel) -> Result<Row> {
        let runtime = self.device.runtime();
        (kernel.issue)()?;
        runtime.sync()?;
        runtime.reset_report();
        (kernel.issue)()?;
        runtime.sync()?;
        let work = runtime.report().total();
        let (flops, bytes) = (work.flops as f64, work.bytes as f64);
        let peak = || match kernel.arithmetic {
            Dtype::Bf16 => bf16_peak(self.isa, self.threads, PEAK_SECONDS),
            _ => fma_peak(self.isa, self.threads, PEAK_SECONDS),
        };
        let (memory, memory_roof) = match kernel.reads_only {
            true => (self.memory.read, "reading"),
            false => (self.memory.copy, "copying"),
        };
        let (mut seconds, mut peaks) = (Vec::new(), Vec::new());
        let (mut shares, mut by_cpu) = (Vec::new(), Vec::new());
        let mut roof = memory_roof;
        for _ in 0..self.repetitions {
            (self.clear)()?;
            runtime.sync()?;
            let before = peak();
            let (start, cpu) = (Instant::now(), machine::cpu_seconds());
            (kernel.issue)()?;
            runtime.sync()?;
            let passed = start.elapsed().as_secs_f64().max(1e-9);
            let cpu = cpu
                .zip(machine::cpu_seconds())
                .map_or(passed, |(from, to)| (to - from) / self.threads as f64);
            let peak = before.max(peak());
            let arithmetic = flops / (1e9 * peak);
            let least = arithmetic.max(bytes / memory);
            if arithmetic > bytes / memory {
                roof = "arithmetic";
            }
            shares.push(least / passed);
            by_cpu.push(least / cpu.max(1e-9));
            seconds.push(passed);
            peaks.push(peak);
        }
        let seconds = median(seconds);
        Ok(Row {
            kernel: kernel.name,
            threads: self.threads,
            milliseconds: seconds * 1e3,
            gflops: flops / seconds / 1e9,
            gbytes_per_s: bytes / seconds / 1e9,
            roof,
            peak: match roof {
                "arithmetic" => median(peaks),
                _ => memory / 1e9,
            },
            share_of_peak: median(shares),
            share_by_cpu_time: median(by_cpu),
        })
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
