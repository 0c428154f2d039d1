//! The links inside of one mesh or switch.

use super::express;
use super::extension::LinkRate;
use super::machine::{Link, LinkRole};
use super::schema::{Architecture, DimType, MeshDescriptor};
use crate::MeshShape;

/// The dimension types in effect: padded with LINE, and RING below 3 devices is LINE, which is what the newest version
/// of the original does.
pub(crate) fn dim_types(mesh: &MeshDescriptor, shape: &MeshShape) -> Vec<DimType> {
    let declared = mesh
        .dim_types
        .iter()
        .map(|kind| kind.value)
        .chain(std::iter::repeat(DimType::Line));
    shape
        .sizes()
        .iter()
        .zip(declared)
        .map(|(size, kind)| if *size < 3 { DimType::Line } else { kind })
        .collect()
}

/// How many links [`links`] makes at most, without making them.
pub(crate) fn count(mesh: &MeshDescriptor, shape: &MeshShape) -> usize {
    let devices = shape.num_devices();
    let switched = if is_switched(mesh) { devices * devices / 2 } else { 0 };
    let patterns: usize = mesh.express_links.len().min(devices).saturating_mul(devices);
    (devices * shape.num_axes() + switched + mesh.express_connections.len()).saturating_add(patterns)
}

fn is_switched(mesh: &MeshDescriptor) -> bool {
    mesh.links.iter().any(|block| block.switched)
}

/// All links of a mesh that has been checked.
pub(crate) fn links(mesh: &MeshDescriptor, arch: Architecture, shape: &MeshShape, channels: u32) -> Vec<Link> {
    let types = dim_types(mesh, shape);
    let block = |dim: Option<usize>| {
        let of = |wanted: Option<usize>| {
            mesh.links
                .iter()
                .find(|block| block.dim.map(|dim| dim as usize) == wanted)
        };
        dim.and_then(|dim| of(Some(dim))).or_else(|| of(None))
    };
    // What links along each dimension have, and after these what links along none have.
    let shared = |dim: Option<usize>| {
        let block = block(dim);
        let own = block.and_then(|block| block.channels);
        (LinkRate::new(arch, block), own.unwrap_or(channels))
    };
    let along: Vec<(LinkRate, u32)> = (0..shape.num_axes()).map(|dim| shared(Some(dim))).collect();
    let along_none = shared(None);
    let link = |a, b, dim: Option<usize>, role| {
        let (rate, channels) = dim.map_or(along_none, |dim| along[dim]);
        Link {
            a,
            b,
            dim,
            role,
            channels,
            rate,
        }
    };
    let strides = shape.strides();
    let mut links = Vec::new();
    for device in 0..shape.num_devices() {
        for (dim, (size, stride)) in shape.sizes().iter().zip(&strides).enumerate() {
            let row = device / stride % size;
            if row + 1 < *size {
                links.push(link(device, device + stride, Some(dim), LinkRole::Neighbour));
            } else if types[dim] == DimType::Ring {
                links.push(link(device, device - row * stride, Some(dim), LinkRole::Wrap));
            }
        }
    }
    for express in &mesh.express_connections {
        // The check has seen that both are devices of this mesh.
        if let (Ok(a), Ok(b)) = (usize::try_from(express.src), usize::try_from(express.dst))
            && a != b
        {
            links.push(link(a, b, None, LinkRole::Express));
        }
    }
    for pattern in &mesh.express_links {
        let dim = usize::try_from(pattern.dim).unwrap_or(0);
        let (size, stride) = (shape.sizes()[dim], strides[dim]);
        // The row at the other end of each block, by its first row.
        let mut partner = vec![None; size];
        for (first, last) in express::rows(pattern, size) {
            partner[first] = Some(last);
        }
        for device in 0..shape.num_devices() {
            let row = device / stride % size;
            if let Some(last) = partner[row] {
                let other = device - row * stride + last * stride;
                links.push(link(device, other, Some(dim), LinkRole::ExpressPattern));
            }
        }
    }
    if is_switched(mesh) {
        let joined: std::collections::HashSet<(usize, usize)> = links
            .iter()
            .map(|link| (link.a.min(link.b), link.a.max(link.b)))
            .collect();
        for a in 0..shape.num_devices() {
            for b in a + 1..shape.num_devices() {
                if !joined.contains(&(a, b)) {
                    links.push(link(a, b, None, LinkRole::Switched));
                }
            }
        }
    }
    links
}
