//! The header of a run: everything about it before its first step.

use super::Out;
use super::numbers::{bytes, counted, grouped};
use crate::machine;
use serde_json::{Value, json};
use unisono_kernels::bf16_order::Bf16Order;
use unisono_kernels::gemm::bf16_instruction;
use unisono_kernels::isa::Isa;
use unisono_tensor::Dtype;
use unisono_train::Plan;
use unisono_train::config::{OptimizerConfig, OptimizerRule, RunConfig, SchedulerConfig};
use unisono_train::dataset::Dataset;
use unisono_train::plan::EndRule;

/// What a header is made of.
pub struct Header<'a> {
    /// The configuration.
    pub config: &'a RunConfig,
    /// The plan.
    pub plan: &'a Plan,
    /// The data.
    pub dataset: &'a Dataset,
    /// The instruction set.
    pub isa: Isa,
    /// Worker threads.
    pub workers: usize,
    /// Cores that this process may use.
    pub cores: usize,
    /// Cores that other processes keep busy, where that is known.
    pub others: Option<f64>,
    /// The processes that carry the devices, in words, where there are several.
    pub processes: Option<String>,
    /// `--mesh` as given, in place of `device_config`.
    pub mesh_flag: Option<&'a str>,
    /// Loss of the trigram model on the validation part, nats a token.
    pub trigram: Option<f64>,
}

impl Header<'_> {
    /// Prints it.
    pub fn print(&self, out: &Out) {
        for (name, lines) in self.rows() {
            for (i, line) in lines.iter().enumerate() {
                let name = if i == 0 { name } else { "" };
                out.say(format!("{} {line}", out.bold(&format!("{name:10}"))));
            }
        }
        for word in self.words() {
            out.note(word);
        }
    }

    fn rows(&self) -> Vec<(&'static str, Vec<String>)> {
        let (config, plan) = (self.config, self.plan);
        let (batch, training) = (&plan.batch, &config.training);
        let place = match self.mesh_flag {
            Some(flag) => format!(" by --mesh {flag}, in place of device_config"),
            None => String::new(),
        };
        let mut devices = vec![format!(
            "{}{place}; {} on {}",
            plan.mesh.describe(),
            counted(self.workers, "worker"),
            counted(self.cores, "core")
        )];
        if let Some(processes) = &self.processes {
            devices.push(format!("carried by {processes}"));
        }
        if let Some(machine) = &plan.machine {
            let block = &machine.checked.machine.blocks[machine.block];
            devices.push(format!(
                "on {} {} of {}, {}",
                block.name,
                block.shape,
                machine.checked.file,
                machine.fit.name()
            ));
        }
        let mut model = vec![plan.spec.describe()];
        let all = format!("{} parameters", grouped(plan.num_parameters as u64));
        model.push(match &config.lora {
            None => all,
            Some(lora) => format!(
                "{all}, {} of them trained ({:.2} %): adapters of rank {}, alpha {}, the others frozen",
                grouped(plan.num_trained as u64),
                100.0 * plan.num_trained as f64 / plan.num_parameters.max(1) as f64,
                lora.rank,
                lora.alpha
            ),
        });
        if let Some(path) = &training.model_path {
            model.push(format!("weights from {}", path.display()));
        }
        let mut data = vec![self.dataset.describe()];
        if let Some(trigram) = self.trigram {
            data.push(format!(
                "its trigram model: {trigram:.4} nats a token on the validation part"
            ));
        }
        let targets = batch.width;
        let unit = match self.dataset {
            Dataset::Text(_) => ("sequence", "token"),
            Dataset::Examples(_) => ("example", "token"),
            Dataset::Regression(_) => ("sample", "target"),
        };
        let batch = vec![
            format!(
                "{} a micro-step over all devices, {} a device, × {} accumulated",
                counted(batch.batch_size, unit.0),
                grouped(batch.per_device() as u64),
                batch.accumulation
            ),
            format!(
                "= effective batch of {} or {}{} an optimizer step",
                counted(batch.effective(), unit.0),
                match self.dataset {
                    Dataset::Examples(_) => "at most ",
                    Dataset::Text(_) | Dataset::Regression(_) => "",
                },
                counted(batch.effective() * targets, unit.1)
            ),
        ];
        vec![
            ("devices", devices),
            ("model", model),
            ("data", data),
            ("batch", batch),
            (
                "schedule",
                vec![
                    optimizer(&config.optimizer, &config.scheduler),
                    schedule(&config.scheduler),
                    self.length(),
                ],
            ),
            ("seed", vec![training.seed.to_string()]),
            ("precision", vec![self.precision()]),
            ("exact", plan.exactness.clone()),
            ("memory", vec![self.memory()]),
        ]
    }

    fn precision(&self) -> String {
        let isa = self.isa.name();
        match self.config.training.dtype {
            Dtype::Bf16 => format!(
                "bf16 activations and products ({}, {}); f32 weights, sums, norms, softmax, loss and optimizer state; {isa}",
                self.config.training.bf16_order.name(),
                bf16_instruction(self.config.training.bf16_order, self.isa)
            ),
            _ => format!("f32, {isa}"),
        }
    }

    /// The order of products of bf16, where there are any.
    fn bf16_order(&self) -> Option<Bf16Order> {
        let training = &self.config.training;
        (training.dtype == Dtype::Bf16).then_some(training.bf16_order)
    }

    fn length(&self) -> String {
        let plan = self.plan;
        let samples = self.dataset.num_samples().max(1);
        let epochs = plan.steps as f64 * plan.batch.effective() as f64 / samples as f64;
        match plan.end {
            EndRule::MaxSteps => format!(
                "{} ends the run: {}, {epochs:.2} epochs of {}",
                "max_steps",
                counted(plan.steps as usize, "optimizer step"),
                counted(samples as usize, "sample")
            ),
            EndRule::Epochs => format!(
                "num_epochs ends the run: {} of {}, {}",
                counted(self.config.training.num_epochs as usize, "epoch"),
                counted(samples as usize, "sample"),
                counted(plan.steps as usize, "optimizer step")
            ),
        }
    }

    fn memory(&self) -> String {
        let memory = &self.plan.memory;
        let kinds: Vec<String> = memory
            .by_kind
            .iter()
            .map(|(kind, n)| format!("{kind} {}", bytes(*n)))
            .collect();
        let devices = self.plan.mesh.num_devices() as u64;
        let all = match devices {
            1 => String::new(),
            _ => format!(", {} on all {devices}", bytes(memory.peak * devices)),
        };
        format!(
            "{} a device at the predicted peak{all}: {}",
            bytes(memory.peak),
            kinds.join(", ")
        )
    }

    /// Words on how devices, workers and cores fit together.
    fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let devices = self.plan.mesh.num_devices();
        if devices > self.cores {
            words.push(format!(
                "{devices} devices share {}: the losses are the same, and no speed-up is to be expected",
                counted(self.cores, "core")
            ));
        }
        if self.workers < self.cores {
            words.push(format!(
                "{} of {} {} idle: workers is {}",
                self.cores - self.workers,
                counted(self.cores, "core"),
                if self.cores - self.workers == 1 {
                    "stays"
                } else {
                    "stay"
                },
                self.workers
            ));
        } else if self.workers > self.cores {
            words.push(format!(
                "{} workers share {}: more workers than cores cost speed",
                self.workers,
                counted(self.cores, "core")
            ));
        }
        let amx = bf16_instruction(Bf16Order::Tiles, self.isa) == "amx";
        match self.bf16_order() {
            Some(Bf16Order::Pairs) if amx => words.push(
                "this CPU has AMX, which bf16_order: tiles would use: another order of the products, so other last bits".into(),
            ),
            Some(Bf16Order::Tiles) if !amx => {
                let faster = match bf16_instruction(Bf16Order::Pairs, self.isa) {
                    "emulated" => "",
                    _ => "; bf16_order: pairs is faster here",
                };
                let why = match (self.isa, bf16_instruction(Bf16Order::Tiles, Isa::detect())) {
                    (isa, "amx") => format!("{} does without AMX", isa.name()),
                    _ => "there is no AMX here".to_string(),
                };
                words.push(format!("bf16_order: tiles is emulated, as {why}: the same bits{faster}"));
            }
            _ => (),
        }
        if let Some(others) = self.others.filter(|others| *others >= 0.5) {
            words.push(format!(
                "other processes keep {others:.1} of the machine's {} busy: the run is slower by their share",
                counted(machine::processors().unwrap_or(self.cores), "core")
            ));
        }
        words
    }

    /// The same for machines.
    pub fn json(&self) -> Value {
        let plan = self.plan;
        let axes: Vec<Value> = plan
            .mesh
            .axes()
            .iter()
            .map(|axis| json!({"name": axis.name, "size": axis.size}))
            .collect();
        let by_kind: serde_json::Map<String, Value> = plan
            .memory
            .by_kind
            .iter()
            .map(|(kind, n)| (kind.to_string(), json!(n)))
            .collect();
        json!({
            "devices": plan.mesh.num_devices(),
            "axes": axes,
            "workers": self.workers,
            "cores": self.cores,
            "model": plan.spec.describe(),
            "parameters": plan.num_parameters,
            "vocabulary": self.dataset.vocab_size(),
            "data": self.dataset.describe(),
            "samples": self.dataset.num_samples(),
            "trigram_loss": self.trigram,
            "steps": plan.steps,
            "end": plan.end,
            "seed": self.config.training.seed,
            "batch": {
                "size": plan.batch.batch_size,
                "per_device": plan.batch.per_device(),
                "accumulation": plan.batch.accumulation,
                "effective": plan.batch.effective(),
                "targets": plan.batch.effective() * plan.spec.targets_per_sequence(),
            },
            "precision": self.config.training.dtype.name(),
            "bf16_order": self.bf16_order().map(Bf16Order::name),
            "bf16_instruction": self.bf16_order().map(|order| bf16_instruction(order, self.isa)),
            "isa": self.isa.name(),
            "exactness": plan.exactness,
            "memory": {"peak_per_device": plan.memory.peak, "by_kind": by_kind},
            "flops_per_step": plan.flops_per_step,
            "link_bytes_per_step": plan.link_bytes_per_step,
            "commands_per_step": plan.commands_per_step,
            "config": self.config,
        })
    }
}

/// The optimizer in words; its learning rate only where the schedule does not bring its own.
fn optimizer(config: &OptimizerConfig, schedule: &SchedulerConfig) -> String {
    let rate = |lr: f64| match schedule {
        SchedulerConfig::WarmupHoldDecay { .. } => String::new(),
        _ => format!(", lr {lr:e}"),
    };
    match &config.rule {
        OptimizerRule::AdamW {
            lr,
            beta1,
            beta2,
            epsilon,
            weight_decay,
        } => format!(
            "AdamW{}, betas {beta1} and {beta2}, epsilon {epsilon:e}, weight decay {weight_decay}",
            rate(*lr)
        ),
        OptimizerRule::Sgd {
            lr,
            momentum,
            dampening,
            weight_decay,
            nesterov,
        } => {
            let nesterov = if *nesterov { ", Nesterov" } else { "" };
            format!(
                "SGD{}, momentum {momentum}, dampening {dampening}{nesterov}, weight decay {weight_decay}",
                rate(*lr)
            )
        }
        OptimizerRule::NoOp => "no optimizer: the weights stay as they are".into(),
    }
}

/// The schedule in words.
pub fn schedule(config: &SchedulerConfig) -> String {
    match config {
        SchedulerConfig::Identity => "constant learning rate".into(),
        SchedulerConfig::WarmupLinear => "warmup_linear: up over the first tenth, then down to 1 %".into(),
        SchedulerConfig::WarmupHoldDecay {
            max_lr,
            min_lr,
            warmup_steps,
            hold_steps,
        } => format!("up to {max_lr:e} in {warmup_steps} steps, {hold_steps} there, then down to {min_lr:e}"),
        SchedulerConfig::Cosine { min_lr, steps } => format!("cosine down to {min_lr:e}{}", over(*steps)),
        SchedulerConfig::Step { step_size, gamma } => format!("times {gamma} each {step_size} steps"),
        SchedulerConfig::Linear {
            start_factor,
            end_factor,
            steps,
        } => {
            format!("linear from {start_factor} to {end_factor} times{}", over(*steps))
        }
        SchedulerConfig::Sequential(phases) => {
            let phases: Vec<String> = phases
                .iter()
                .map(|phase| format!("{}{}", schedule(&phase.schedule), over(phase.steps)))
                .collect();
            phases.join("; then ")
        }
    }
}

fn over(steps: Option<u64>) -> String {
    steps.map_or_else(String::new, |steps| format!(" over {steps} steps"))
}
