//! `unisono bench`: how fast the kernels are at training shapes, against what this machine could do at the same moment.
//!
//! Each repetition throws the operands out of the caches, issues the kernel's commands as a training step does, and waits for
//! their end. A kernel's share is that of the roof over it: its operations at the measured multiply-add rate, or its bytes at
//! the measured rate of reading or copying, whichever takes longer (Williams, Waterman, Patterson, *Roofline*, 2009). Shown are
//! medians: by the clock, and where arithmetic is the roof by the CPU time of all threads as well, which other programs on the
//! machine disturb less.

mod collectives;
mod decoding;
mod kernels;
mod memory;

use super::{DONE, setup};
use crate::cli::BenchArgs;
use crate::context::Context;
use crate::exit::Failure;
use crate::machine;
use crate::output::numbers::counted;
use decoding::{Generation, generates, generations};
use kernels::{Kernel, MAKERS};
use memory::{Memory, Pass};
use serde::Serialize;
use serde_json::json;
use std::cell::OnceCell;
use std::time::Instant;
use unisono_kernels::bf16_order::Bf16Order;
use unisono_kernels::gemm::bf16_instruction;
use unisono_kernels::gemm::peak::{bf16_peak, fma_peak};
use unisono_runtime::machine::cores;
use unisono_tensor::{Dtype, Mesh, MeshDevice, Options, Result};

/// The filter that means the devices' collectives, which processes measure together.
pub const COLLECTIVES: &str = collectives::NAME;

/// Repetitions of a kernel, unless said otherwise.
const REPETITIONS: u16 = 5;
/// Seconds that each look at the peak takes.
const PEAK_SECONDS: f64 = 0.01;
/// Looks at the machine before the first kernel, of which the median is told.
const LOOKS: usize = 9;
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
    /// The median of the roof, where arithmetic is it…
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_gflops: Option<f64>,
    /// …and where memory is.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_gbytes_per_s: Option<f64>,
    share_of_peak: f64,
    /// The same, in the time that the threads had a core (or spun for work).
    share_by_cpu_time: f64,
}

/// Kernels on so many threads, and what they are measured against.
struct Bench<'a> {
    device: &'a MeshDevice,
    context: &'a Context,
    /// Of products of bf16.
    order: Bf16Order,
    threads: usize,
    repetitions: u16,
    /// Made, and the machine measured, with the first kernel: a filter that leaves nothing is told before anything else is.
    memory: OnceCell<Memory>,
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
    let repetitions = args.repetitions.unwrap_or(REPETITIONS);
    if filter == collectives::NAME {
        if args.repetitions.is_some() {
            return Err(Failure::input(
                "--repetitions is for kernels: a collective is measured as often as its size allows; leave it out",
            ));
        }
        if args.bf16_order.is_some() {
            return Err(Failure::input(
                "--bf16-order is for kernels: collectives add what they are given in the order of their devices; leave it out",
            ));
        }
        return collectives::run(args, context);
    }
    let order = args.bf16_order.unwrap_or_default();
    let (mut rows, mut machines) = (Vec::new(), Vec::new());
    for threads in threads {
        let options = Options {
            workers: Some(threads),
            memory_limit: Some(MEMORY),
            isa: Some(context.isa),
            bf16_order: order,
            ..Options::default()
        };
        let device = setup::alone(Mesh::one(), options)?;
        let bench = Bench {
            device: &device,
            context,
            order,
            threads,
            repetitions,
            memory: OnceCell::new(),
            machine: OnceCell::new(),
        };
        for make in MAKERS {
            for kernel in make(&device, filter)? {
                rows.push(bench.measure(kernel)?);
            }
        }
        if generates(filter) {
            // The machine is described before the first measurement.
            bench.machine()?;
            for generation in generations(&device, filter, usize::from(repetitions))? {
                rows.push(bench.generation(generation)?);
            }
        }
        machines.extend(bench.machine.into_inner());
    }
    if rows.is_empty() {
        return Err(Failure::input(format!(
            "no kernel's name contains {filter:?}: try matmul, one row, attention, norm, gelu, softmax, add, adamw, \
             decode, prompt, f32 or bf16, or collectives for the devices' own"
        )));
    }
    out.json(&json!({
        "cpu": processor(),
        "isa": context.isa.name(),
        "bf16_order": order.name(),
        "machine": machines,
        "kernels": rows,
    }));
    DONE
}

/// What so many threads of the machine can do.
#[derive(Clone, Copy, Serialize)]
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
    fn machine(&self) -> Result<Machine> {
        if let Some(machine) = self.machine.get() {
            return Ok(*machine);
        }
        let isa = self.context.isa;
        let (mut reads, mut copies) = (Vec::new(), Vec::new());
        for _ in 0..LOOKS {
            copies.push(self.memory_rate(Pass::Copy)?);
            reads.push(self.memory_rate(Pass::Read)?);
        }
        let machine = self.machine.get_or_init(|| {
            let machine = Machine {
                threads: self.threads,
                f32_gflops: fma_peak(isa, self.threads, PEAK_SECONDS),
                bf16_gflops: bf16_peak(self.order, isa, self.threads, PEAK_SECONDS),
                read_gbytes_per_s: median(reads),
                copy_gbytes_per_s: median(copies),
            };
            let out = &self.context.out;
            out.say(format!(
                "{}, {}, bf16 products {}, {}, median of {}; kernels with operands cold and peaks of the same moment",
                processor(),
                isa.name(),
                self.order.name(),
                bf16_instruction(self.order, isa),
                self.repetitions
            ));
            out.result(machine.describe());
            machine
        });
        Ok(*machine)
    }

    /// Reading or copying at this moment, GB/s.
    fn memory_rate(&self, pass: Pass) -> Result<f64> {
        let memory = match self.memory.get() {
            Some(memory) => memory,
            None => {
                let memory = Memory::new(self.device)?;
                self.memory.get_or_init(|| memory)
            }
        };
        memory.rate(pass)
    }

    /// Multiply-adds of this moment, GFLOP/s.
    fn peak(&self, dtype: Dtype) -> f64 {
        match dtype {
            Dtype::Bf16 => bf16_peak(self.order, self.context.isa, self.threads, PEAK_SECONDS),
            _ => fma_peak(self.context.isa, self.threads, PEAK_SECONDS),
        }
    }

    fn measure(&self, mut kernel: Kernel) -> Result<Row> {
        self.machine()?;
        let runtime = self.device.runtime();
        (kernel.issue)()?;
        runtime.sync()?;
        runtime.reset_report();
        (kernel.issue)()?;
        runtime.sync()?;
        let work = runtime.report().total();
        let (flops, bytes) = (work.flops as f64, work.bytes as f64);
        let pass = if kernel.reads_only { Pass::Read } else { Pass::Copy };
        let arithmetic = self.by_arithmetic(kernel.arithmetic, pass, (flops, bytes))?;
        let mut samples = Vec::new();
        for _ in 0..self.repetitions {
            // A copy throws the operands out of the caches.
            self.memory_rate(Pass::Copy)?;
            let before = self.roof(arithmetic, kernel.arithmetic, pass)?;
            let (start, cpu) = (Instant::now(), machine::cpu_seconds());
            (kernel.issue)()?;
            runtime.sync()?;
            let seconds = start.elapsed().as_secs_f64().max(1e-9);
            let cpu = cpu
                .zip(machine::cpu_seconds())
                .map_or(seconds, |(from, to)| (to - from) / self.threads as f64);
            let roof = before.max(self.roof(arithmetic, kernel.arithmetic, pass)?);
            samples.push(Sample { seconds, cpu, roof });
        }
        let roof = if arithmetic { "arithmetic" } else { pass.name() };
        Ok(self.row(kernel.name, kernel.arithmetic, (flops, bytes), roof, &samples))
    }

    fn generation(&self, of: Generation) -> Result<Row> {
        let (work, pass) = ((of.flops, of.bytes), Pass::Read);
        let arithmetic = self.by_arithmetic(of.dtype, pass, work)?;
        let looks = (0..LOOKS).map(|_| self.roof(arithmetic, of.dtype, pass));
        let roof = median(looks.collect::<Result<_>>()?);
        let sample = |seconds: f64| Sample {
            seconds,
            cpu: seconds,
            roof,
        };
        let samples: Vec<Sample> = of.seconds.into_iter().map(sample).collect();
        let name = if arithmetic { "arithmetic" } else { pass.name() };
        Ok(self.row(of.name, of.dtype, work, name, &samples))
    }

    /// Whether work of so many operations and bytes is limited by its operations.
    fn by_arithmetic(&self, dtype: Dtype, pass: Pass, (flops, bytes): (f64, f64)) -> Result<bool> {
        let machine = self.machine()?;
        let memory = match pass {
            Pass::Read => machine.read_gbytes_per_s,
            Pass::Copy => machine.copy_gbytes_per_s,
        };
        let arithmetic = match dtype {
            Dtype::Bf16 => machine.bf16_gflops,
            _ => machine.f32_gflops,
        };
        Ok(flops / arithmetic > bytes / memory)
    }

    /// The roof of this moment: GFLOP/s, or GB/s.
    fn roof(&self, arithmetic: bool, dtype: Dtype, pass: Pass) -> Result<f64> {
        match arithmetic {
            true => Ok(self.peak(dtype)),
            false => self.memory_rate(pass),
        }
    }

    /// The medians, told.
    fn row(
        &self,
        kernel: String,
        dtype: Dtype,
        (flops, bytes): (f64, f64),
        roof: &'static str,
        samples: &[Sample],
    ) -> Row {
        let of = |value: &dyn Fn(&Sample) -> f64| median(samples.iter().map(value).collect());
        let seconds = of(&|s| s.seconds);
        let work = if roof == "arithmetic" { flops } else { bytes };
        let peak = of(&|s| s.roof);
        // The least time that the work can take.
        let least = |s: &Sample| work / (1e9 * s.roof);
        let row = Row {
            kernel,
            dtype: dtype.name(),
            threads: self.threads,
            milliseconds: seconds * 1e3,
            gflops: flops / seconds / 1e9,
            gbytes_per_s: bytes / seconds / 1e9,
            roof,
            peak_gflops: (roof == "arithmetic").then_some(peak),
            peak_gbytes_per_s: (roof != "arithmetic").then_some(peak),
            share_of_peak: of(&|s| least(s) / s.seconds),
            share_by_cpu_time: of(&|s| least(s) / s.cpu.max(1e-9)),
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
    /// The roof of that moment, GFLOP/s or GB/s.
    roof: f64,
}

fn processor() -> String {
    machine::processor().unwrap_or_else(|| "unknown processor".to_string())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
