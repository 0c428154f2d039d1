//! `unisono bench`: how fast the kernels are at training shapes, against what this machine could do at the same moment.
//!
//! Each repetition throws the operands out of the caches, issues the kernel's commands as a training step does, and waits for
//! their end. A kernel's share is that of the roof over it: its operations at the measured multiply-add rate, or its bytes at
//! the measured rate of reading or copying, whichever takes longer (Williams, Waterman, Patterson, *Roofline*, 2009). Shown are
//! medians: by the clock, and where arithmetic is the roof by the CPU time of all threads as well, which other programs on the
//! machine disturb less.

mod decoding;
mod kernels;

use super::{DONE, setup};
use crate::cli::BenchArgs;
use crate::context::Context;
use crate::exit::Failure;
use crate::machine;
use crate::output::numbers::counted;
use decoding::{Generation, generates, generations};
use kernels::{Kernel, MAKERS};
use serde::Serialize;
use serde_json::json;
use std::cell::OnceCell;
use std::time::Instant;
use unisono_kernels::bandwidth::bandwidth;
use unisono_kernels::gemm::bf16_instruction;
use unisono_kernels::gemm::peak::{bf16_peak, fma_peak};
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
    /// The kind of number that its multiply-adds take.
    dtype: &'static str,
    threads: usize,
    milliseconds: f64,
    gflops: f64,
    gbytes_per_s: f64,
    /// What limits it: `arithmetic`, `reading` or `copying`.
    roof: &'static str,
    peak_gflops: f64,
    peak_gbytes_per_s: f64,
    share_of_peak: f64,
    /// The same, in the time that the threads had a core (or spun for work).
    share_by_cpu_time: f64,
}

/// Kernels on so many threads, and what they are measured against.
struct Bench<'a> {
    device: &'a MeshDevice,
    context: &'a Context,
    threads: usize,
    repetitions: u16,
    clear: &'a dyn Fn() -> std::result::Result<(), unisono_runtime::RuntimeError>,
    /// Measured with the first kernel: a filter that leaves nothing is told before anything else is.
    machine: OnceCell<Machine>,
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
        let bench = Bench {
            device: &device,
            context,
            threads,
            repetitions: args.repetitions,
            clear: &clear,
            machine: OnceCell::new(),
        };
        for make in MAKERS {
            for kernel in make(&device, filter)? {
                rows.push(bench.measure(kernel)?);
            }
        }
        if generates(filter) {
            // The machine is described before the first measurement.
            bench.machine();
            for runs in generations(&device, filter, usize::from(args.repetitions))? {
                rows.extend(bench.generation(&runs));
            }
        }
        machines.extend(bench.machine.into_inner());
    }
    if rows.is_empty() {
        return Err(Failure::input(format!(
            "no kernel's name contains {filter:?}: try matmul, one row, attention, norm, gelu, softmax, adamw,\
             decode, prompt, f32 or bf16"
        )));
    }
    out.json(&json!({
        "cpu": processor(),
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
    /// What the machine can do; tells it, too.
    fn machine(&self) -> &Machine {
        self.machine.get_or_init(|| {
            let isa = self.context.isa;
            let memory = bandwidth(isa, self.threads, FLUSH, MEMORY_PASSES);
            let machine = Machine {
                threads: self.threads,
                f32_gflops: fma_peak(isa, self.threads, PEAK_SECONDS),
                bf16_gflops: bf16_peak(isa, self.threads, PEAK_SECONDS),
                read_gbytes_per_s: memory.read / 1e9,
                copy_gbytes_per_s: memory.copy / 1e9,
            };
            let out = &self.context.out;
            out.say(format!(
                "{}, {}, bf16 products {}, median of {}, operands cold; peaks are measured around each repetition",
                processor(),
                isa.name(),
                bf16_instruction(),
                self.repetitions
            ));
            out.result(machine.describe());
            machine
        })
    }

    /// Multiply-adds of this moment, GFLOP/s.
    fn peak(&self, dtype: Dtype) -> f64 {
        match dtype {
            Dtype::Bf16 => bf16_peak(self.context.isa, self.threads, PEAK_SECONDS),
            _ => fma_peak(self.context.isa, self.threads, PEAK_SECONDS),
        }
    }

    fn measure(&self, mut kernel: Kernel) -> Result<Row> {
        let machine = self.machine();
        let runtime = self.device.runtime();
        (kernel.issue)()?;
        runtime.sync()?;
        runtime.reset_report();
        (kernel.issue)()?;
        runtime.sync()?;
        let work = runtime.report().total();
        let (flops, bytes) = (work.flops as f64, work.bytes as f64);
        let (memory, memory_roof) = match kernel.reads_only {
            true => (machine.read_gbytes_per_s, "reading"),
            false => (machine.copy_gbytes_per_s, "copying"),
        };
        let mut samples = Vec::new();
        for _ in 0..self.repetitions {
            (self.clear)()?;
            runtime.sync()?;
            let before = self.peak(kernel.arithmetic);
            let (start, cpu) = (Instant::now(), machine::cpu_seconds());
            (kernel.issue)()?;
            runtime.sync()?;
            let seconds = start.elapsed().as_secs_f64().max(1e-9);
            let cpu = cpu
                .zip(machine::cpu_seconds())
                .map_or(seconds, |(from, to)| (to - from) / self.threads as f64);
            samples.push(Sample {
                seconds,
                cpu,
                peak: before.max(self.peak(kernel.arithmetic)),
            });
        }
        Ok(self.row(
            kernel.name,
            kernel.arithmetic,
            (flops, bytes),
            (memory, memory_roof),
            &samples,
        ))
    }

    fn generation(&self, runs: &[Generation]) -> Option<Row> {
        let first = runs.first()?;
        let machine = self.machine();
        let memory = match first.reads {
            true => (machine.read_gbytes_per_s, "reading"),
            false => (machine.copy_gbytes_per_s, "copying"),
        };
        let peak = self.peak(first.dtype);
        let samples: Vec<Sample> = runs
            .iter()
            .map(|run| Sample {
                seconds: run.seconds,
                cpu: run.seconds,
                peak,
            })
            .collect();
        let work = (first.flops, first.bytes);
        Some(self.row(first.name.clone(), first.dtype, work, memory, &samples))
    }

    /// The medians, told.
    fn row(
        &self,
        kernel: String,
        dtype: Dtype,
        (flops, bytes): (f64, f64),
        (memory, memory_roof): (f64, &'static str),
        samples: &[Sample],
    ) -> Row {
        let of = |value: &dyn Fn(&Sample) -> f64| median(samples.iter().map(value).collect());
        let seconds = of(&|s| s.seconds);
        let peak_gflops = of(&|s| s.peak);
        let by_arithmetic = flops / peak_gflops > bytes / memory;
        // The least time that the work can take, in nanoseconds.
        let least = |s: &Sample| (flops / s.peak).max(bytes / memory);
        let row = Row {
            kernel,
            dtype: dtype.name(),
            threads: self.threads,
            milliseconds: seconds * 1e3,
            gflops: flops / seconds / 1e9,
            gbytes_per_s: bytes / seconds / 1e9,
            roof: if by_arithmetic { "arithmetic" } else { memory_roof },
            peak_gflops,
            peak_gbytes_per_s: memory,
            share_of_peak: of(&|s| least(s) / (1e9 * s.seconds)),
            share_by_cpu_time: of(&|s| least(s) / (1e9 * s.cpu.max(1e-9))),
        };
        self.context.out.result(row.describe());
        row
    }
}

/// One repetition.
struct Sample {
    seconds: f64,
    /// Seconds of the threads, on average.
    cpu: f64,
    /// Multiply-adds of that moment, GFLOP/s.
    peak: f64,
}

fn processor() -> String {
    machine::processor().unwrap_or_else(|| "unknown processor".to_string())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
