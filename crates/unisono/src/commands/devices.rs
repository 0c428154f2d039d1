//! `unisono devices`: what this machine has.

use super::DONE;
use crate::context::Context;
use crate::exit::Failure;
use crate::machine;
use crate::output::numbers::{bytes, counted};
use serde_json::json;
use unisono_kernels::bf16_order::Bf16Order;
use unisono_kernels::gemm::bf16_instruction;
use unisono_kernels::isa::Isa;
use unisono_runtime::machine as runtime;
use unisono_runtime::transport::Mpi;

/// See the module.
///
/// # Errors
/// None; what cannot be written is told by the caller.
pub fn run(context: &Context) -> Result<u8, Failure> {
    let out = &context.out;
    let unknown = || "not known".to_string();
    let (cores, processors, quota) = (runtime::cores(), machine::processors(), machine::cpu_quota());
    let caches = machine::caches();
    let sets: Vec<&str> = Isa::available().into_iter().map(Isa::name).collect();
    let (memory, limit) = (machine::memory(), machine::memory_limit());
    let mut rows = vec![("processor", machine::processor().unwrap_or_else(unknown))];
    let of = processors.map_or_else(String::new, |n| format!(" of {n}"));
    let quota_words = quota.map_or_else(String::new, |quota| {
        format!(", by the control group's quota of {quota:.1}")
    });
    rows.push((
        "cores",
        format!("{cores}{of} may be used{quota_words}: so many workers"),
    ));
    for cache in &caches {
        let shared = match cache.shared_by {
            1 => String::new(),
            n => format!(", shared by {}", counted(n, "logical core")),
        };
        rows.push((
            "cache",
            format!(
                "L{} {} {}{shared}",
                cache.level,
                cache.kind.to_lowercase(),
                bytes(cache.bytes)
            ),
        ));
    }
    rows.push((
        "isa",
        format!(
            "{}; used: {} (UNISONO_ISA chooses another; the results are equal)",
            sets.join(", "),
            context.isa.name()
        ),
    ));
    let [pairs, tiles] = Bf16Order::ALL.map(|order| bf16_instruction(order, context.isa));
    rows.push(("bf16", format!("products in pairs: {pairs}; in tiles: {tiles}")));
    rows.push((
        "memory",
        memory.map_or_else(unknown, |(total, free)| {
            format!("{}, {} free", bytes(total), bytes(free))
        }),
    ));
    if let Some(limit) = limit {
        rows.push(("limit", format!("{} by the control group", bytes(limit))));
    }
    // What several processes would talk through; one needs none.
    let mpi = Mpi::found(&context.environment.variables);
    rows.push((
        "mpi",
        match &mpi {
            Ok(found) => {
                let found = found
                    .iter()
                    .map(|found| format!("{} ({})", found.version, found.library));
                found.collect::<Vec<_>>().join(", else ")
            }
            Err(absent) => absent.to_string(),
        },
    ));
    for (name, text) in rows {
        out.result(format!("{} {text}", out.bold(&format!("{name:10}"))));
    }
    out.json(&json!({
        "processor": machine::processor(),
        "cores": cores,
        "processors": processors,
        "cpu_quota": quota,
        "caches": caches,
        "instruction_sets": sets,
        "isa": context.isa.name(),
        "bf16": {"pairs": pairs, "tiles": tiles},
        "memory": memory.map(|(total, _)| total),
        "memory_available": memory.map(|(_, free)| free),
        "memory_limit": limit,
        "mpi": mpi.unwrap_or_default().iter().map(|found| json!({"version": found.version, "library": found.library})).collect::<Vec<_>>(),
    }));
    DONE
}
