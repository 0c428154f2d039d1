//! `express_links`: additional links along one dimension, from the first to the last row of each block of a pattern.

use super::report::Problems;
use super::schema::{DimType, ExpressLinks, MeshDescriptor};
use crate::draw::counted;
use std::collections::HashMap;

/// Blocks of all patterns of a mesh, at most: more than rows that can be ends.
const MAX_BLOCKS: usize = crate::MAX_DEVICES;

/// The pairs of rows that a pattern joins along a dimension of `extent` devices.
///
/// Block `k` spans the rows `start + k·step` to `start + k·step + step − 1`. With `wrap: LINE` a block that would
/// straddle the end is left out; with `wrap: RING` rows go on at 0, as long as no block would run into the first.
pub(crate) fn rows(links: &ExpressLinks, extent: usize) -> impl Iterator<Item = (usize, usize)> {
    let start = usize::try_from(links.start).unwrap_or(extent);
    let step = usize::try_from(links.step).unwrap_or(0).max(1);
    let end = if links.wrap == Some(DimType::Ring) {
        start + extent
    } else {
        extent
    };
    (0..extent / step)
        .map(move |k| start + k * step)
        .take_while(move |first| first + step <= end)
        .map(move |first| (first % extent, (first + step - 1) % extent))
}

/// The rules of stage C. The mesh's dims are known to be above 0.
pub(crate) fn check(problems: &mut Problems, warnings: &mut Problems, path: &str, mesh: &MeshDescriptor) {
    let mut ends: HashMap<(i32, usize), usize> = HashMap::new();
    let mut blocks = 0usize;
    for (i, links) in mesh.express_links.iter().enumerate() {
        let field = || format!("{path}.express_links[{i}]");
        let extent = usize::try_from(links.dim).ok().and_then(|dim| mesh.dims.get(dim));
        let Some(extent) = extent.and_then(|extent| usize::try_from(extent.value).ok()) else {
            problems.add(links.at, field() + ".dim_idx", || {
                format!(
                    "there is no dimension {}: the mesh has {}, counted from 0",
                    links.dim,
                    counted(mesh.dims.len(), "dimension")
                )
            });
            continue;
        };
        if !usize::try_from(links.start).is_ok_and(|start| start < extent) {
            problems.add(links.at, field() + ".pattern.start", || {
                format!(
                    "there is no row {} in dimension {}, whose rows are 0 to {}",
                    links.start,
                    links.dim,
                    extent - 1
                )
            });
            continue;
        }
        if links.step < 2 {
            problems.add(links.at, field() + ".pattern.step", || {
                format!(
                    "a step of {}; a block has at least 2 rows, whose first and last are joined",
                    links.step
                )
            });
            continue;
        }
        let mut any = false;
        for (first, last) in rows(links, extent) {
            any = true;
            blocks += 1;
            if blocks > MAX_BLOCKS {
                return problems.add(links.at, field(), || {
                    format!("the patterns of this mesh make more than {MAX_BLOCKS} blocks")
                });
            }
            for row in [first, last] {
                if let Some(other) = ends.insert((links.dim, row), i).filter(|other| *other != i) {
                    problems.add(links.at, field(), || {
                        format!("row {row} of dimension {} is an end of express_links[{other}] already; a row has one express link", links.dim)
                    });
                }
            }
        }
        if !any {
            warnings.add(links.at, field(), || {
                format!(
                    "blocks of {} rows from row {} do not fit in the {extent} rows of dimension {}; there are no express links",
                    links.step, links.start, links.dim
                )
            });
        }
    }
}
