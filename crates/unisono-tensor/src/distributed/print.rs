//! A distributed array in text: what each device holds.

use super::DistributedHostTensor;
use crate::HostTensor;
use crate::host_tensor::print_array;
use std::ops::Range;
use unisono_mesh::{Distribution, Placement};

/// Places whose values are printed; of more, the first and last three are.
const PLACES: usize = 16;
/// Places at either end that are printed of many.
const EDGE: usize = 3;

impl std::fmt::Display for DistributedHostTensor {
    /// Each device's slice and values, elided; then shape, kind and placements.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids = self.distribution.devices();
        write!(
            f,
            "{}",
            per_device(&self.distribution, ids, &|place| Some(&self.shards[place]))
        )?;
        write!(
            f,
            "shape {:?}, {}, {}",
            self.shape(),
            self.dtype().name(),
            placements(&self.distribution)
        )
    }
}

/// The placements and what they are over: `[Shard(0), Replicate] over [2, 4]`.
pub(crate) fn placements(distribution: &Distribution) -> String {
    let words: Vec<String> = distribution.placements().iter().map(Placement::to_string).collect();
    format!("[{}] over {}", words.join(", "), distribution.shape())
}

/// A slice as NumPy writes it, `:` for whole dims: `[0:2, :]`.
pub fn slice_text(ranges: &[Range<usize>], shape: &[usize]) -> String {
    let words: Vec<String> = ranges
        .iter()
        .zip(shape)
        .map(|(range, size)| match range.len() == *size {
            true => ":".to_string(),
            false => format!("{}:{}", range.start, range.end),
        })
        .collect();
    format!("[{}]", words.join(", "))
}

/// One paragraph a place; copies refer to the device that is shown first.
pub(crate) fn per_device<'a>(
    distribution: &Distribution,
    ids: &[usize],
    shard: &dyn Fn(usize) -> Option<&'a HostTensor>,
) -> String {
    let places = distribution.num_places();
    let coordinates = distribution.coordinates();
    let mut text = String::new();
    for place in 0..places {
        if places > PLACES && (EDGE..places - EDGE).contains(&place) {
            if place == EDGE {
                text += &format!("… {} more devices\n", places - 2 * EDGE);
            }
            continue;
        }
        let slice = slice_text(&distribution.ranges(place), distribution.global_shape());
        text += &format!("device {} {}: {slice}", ids[place], coordinates[place]);
        let source = distribution.source(place);
        match shard(source) {
            _ if source < place => text += &format!(", as on device {}\n", ids[source]),
            Some(shard) => text += &format!("\n  {}\n", print_array(shard, 2)),
            None => text.push('\n'),
        }
    }
    text
}
