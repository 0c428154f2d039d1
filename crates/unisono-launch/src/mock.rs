//! Described clusters in place of real ones (`--mock-cluster-rank-binding`): a file for each rank.

use crate::paths;
use crate::request::Caller;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use unisono_train::config::yaml::{self, Content, Node, Origin, shortened};
use unisono_train::config::{Findings, read_text};

/// The key of the file.
const KEY: &str = "rank_to_cluster_mock_cluster_desc";

/// Reads the file that `path` names: a map from ranks to files, or itself the descriptor of rank 0.
/// `None`: something is wrong, and `findings` says what.
pub(crate) fn read(path: &str, caller: &Caller, findings: &mut Findings) -> Option<BTreeMap<usize, PathBuf>> {
    let what = "--mock-cluster-rank-binding";
    let path = paths::file(path, what, None, false, caller, None, findings)?;
    let shown = paths::shown(&path, caller);
    let text = read_text(&path, &shown, None, findings)?;
    let before = findings.problems.len();
    // A cluster's own descriptor may hold what a mapping cannot: then it is rank 0's.
    if !text.contains(KEY) {
        return Some(BTreeMap::from([(0, path)]));
    }
    let root = yaml::parse(&text, &Origin::File(&shown), findings)?;
    let Content::Map(entries) = &root.content else {
        return Some(BTreeMap::from([(0, path)]));
    };
    let Some(entry) = entries.iter().find(|entry| entry.key == KEY) else {
        return Some(BTreeMap::from([(0, path)]));
    };
    let ranks = ranks(&entry.value, path.parent(), caller, findings);
    Some(ranks).filter(|_| findings.problems.len() == before)
}

fn ranks(node: &Node, folder: Option<&Path>, caller: &Caller, findings: &mut Findings) -> BTreeMap<usize, PathBuf> {
    let mut ranks = BTreeMap::new();
    let Content::Map(entries) = &node.content else {
        let message = format!(
            "{KEY} is {}: a map is needed, from each rank to its file (0: cluster.yaml)",
            node.shown()
        );
        findings.problem(Some(node.place.clone()), message);
        return ranks;
    };
    if entries.is_empty() {
        findings.problem(
            Some(node.place.clone()),
            format!("{KEY} names no rank: at least one is needed"),
        );
    }
    for entry in entries {
        let Ok(rank) = entry.key.parse::<usize>() else {
            let message = format!(
                "\"{}\" is no rank: a whole number of at least 0 is needed",
                shortened(&entry.key)
            );
            findings.problem(Some(entry.key_place.clone()), message);
            continue;
        };
        let Content::Scalar { text, .. } = &entry.value.content else {
            let message = format!("rank {rank} has {}: a path is needed", entry.value.shown());
            findings.problem(Some(entry.value.place.clone()), message);
            continue;
        };
        let what = "the mock cluster's descriptor";
        let place = Some(&entry.value.place);
        let file = paths::file(text, what, folder, false, caller, place, findings);
        ranks.extend(file.map(|file| (rank, file)));
    }
    ranks
}

/// The ranks that have a file must be exactly 0 to `total` − 1.
pub(crate) fn check(mock: &BTreeMap<usize, PathBuf>, path: &str, total: usize, findings: &mut Findings) {
    if mock.keys().copied().eq(0..total) {
        return;
    }
    let ranks: Vec<String> = mock.keys().map(usize::to_string).collect();
    findings.problem(
        None,
        format!(
            "--mock-cluster-rank-binding {path} has files for the ranks {}, and the job has the ranks 0 to {}: each \
             needs one",
            ranks.join(", "),
            total.saturating_sub(1)
        ),
    );
}
