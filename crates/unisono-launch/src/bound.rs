//! Ranks that are bound, with what their descriptor says.

use crate::agree;
use crate::binding::Bindings;
use crate::env;
use crate::job::{Draft, Placement, Rank, Subcontext};
use crate::request::{Caller, Request};
use std::collections::BTreeMap;
use std::path::PathBuf;
use unisono_train::config::Findings;

/// Their draft; `mock` has the described clusters of ranks.
pub(crate) fn draft(
    bindings: &Bindings,
    mock: &BTreeMap<usize, PathBuf>,
    request: &Request,
    caller: &Caller,
    findings: &mut Findings,
) -> Draft {
    let machines = agree::machines(bindings, request.skip_mgd_check, caller, findings);
    let host_ranks = agree::host_ranks(bindings, &machines, caller, findings);
    let ranks = bindings.ranks.iter().zip(host_ranks).map(|(binding, mesh_host_rank)| {
        let mock = mock.get(&binding.rank).map(PathBuf::as_path);
        Rank {
            rank: binding.rank,
            host: None,
            slot: None,
            mesh_id: Some(binding.mesh_id),
            mesh_host_rank,
            subcontext: binding.subcontext_id.map(|id| Subcontext {
                id,
                size: binding.subcontext_size,
            }),
            descriptor: Some(binding.descriptor.clone()),
            environment: env::of_rank(binding, bindings, mock, &request.exports, caller),
            words: Vec::new(),
        }
    });
    Draft {
        ranks: ranks.collect(),
        whence: bindings.file.clone(),
        placement: Placement::Here,
        machines,
        files: Vec::new(),
        files_are_current: false,
        keeps_descriptor: false,
    }
}
