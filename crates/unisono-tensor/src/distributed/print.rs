//! A distributed array in text: what each device holds.

use super::DistributedHostTensor;
use crate::host_tensor::print_array;
use crate::tensor::Tensor;
use crate::{HostTensor, Result};
use std::fmt::{Display, Formatter};
use std::ops::Range;
use unisono_mesh::{Distribution, Placement};

/// Places whose values are printed; of more, the first and last three are.
const PLACES: usize = 16;
/// Places at either end that are printed of many.
const EDGE: usize = 3;

impl Display for DistributedHostTensor {
    /// Each device's slice and values, elided; then shape, kind and placements.
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let distribution = self.distribution();
        let text = per_device(distribution, distribution.devices(), &mut |place| {
            Ok(self.shards()[place].clone())
        });
        write!(f, "{text}shape {:?}, {}, ", self.shape(), self.dtype().name())?;
        write!(f, "{} over {}", words(distribution.placements()), distribution.shape())
    }
}

impl Display for Tensor {
    /// Each device's slice and values, elided; then shape, kind and placements. This waits for the devices, and reads the shards
    /// that are shown; values that cannot be read, as those of a partial sum, are left out, and that is said.
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let values = self.distribution().map(|distribution| {
            per_device(&distribution, &self.device().view().ids(), &mut |place| {
                self.read_shard(place)
            })
        });
        match values {
            Ok(text) => write!(f, "{text}")?,
            Err(error) => writeln!(f, "no values are shown: {error}")?,
        }
        write!(f, "shape {:?}, {}, ", self.shape(), self.dtype().name())?;
        let mesh = self.device().mesh();
        match mesh.axes().is_empty() {
            true => write!(f, "on one device"),
            false => write!(f, "{} over {}", words(self.placements()), mesh.describe()),
        }
    }
}

fn words(placements: &[Placement]) -> String {
    let words: Vec<String> = placements.iter().map(Placement::to_string).collect();
    format!("[{}]", words.join(", "))
}

/// A slice as NumPy writes it, `:` for whole dims: `[0:2, :]`.
fn slice(ranges: &[Range<usize>], shape: &[usize]) -> String {
    let word = |(range, size): (&Range<usize>, &usize)| match range.len() == *size {
        true => ":".to_string(),
        false => format!("{}:{}", range.start, range.end),
    };
    let words: Vec<String> = ranges.iter().zip(shape).map(word).collect();
    format!("[{}]", words.join(", "))
}

/// One paragraph a place; copies refer to the device that holds the part first.
fn per_device(
    distribution: &Distribution,
    ids: &[usize],
    shard: &mut dyn FnMut(usize) -> Result<HostTensor>,
) -> String {
    let places = distribution.num_places();
    let coordinates = distribution.coordinates();
    let is_shown = |place: usize| places <= PLACES || !(EDGE..places - EDGE).contains(&place);
    let mut text = String::new();
    for place in 0..places {
        if !is_shown(place) {
            if place == EDGE {
                text += &format!("… {} more devices\n", places - 2 * EDGE);
            }
            continue;
        }
        let slice = slice(&distribution.ranges(place), distribution.global_shape());
        text += &format!("device {} {}: {slice}", ids[place], coordinates[place]);
        let source = distribution.source(place);
        if source < place && is_shown(source) {
            text += &format!(", as on device {}\n", ids[source]);
            continue;
        }
        match shard(source) {
            Ok(shard) => text += &format!("\n  {}\n", print_array(&shard, 2)),
            Err(error) => {
                text += &format!("\nno values are shown: {error}\n");
                break;
            }
        }
    }
    text
}
