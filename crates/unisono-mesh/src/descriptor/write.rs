//! Writing a descriptor of one mesh.

use super::schema::{Architecture, DimType, Policy};
use super::{Checked, check};
use crate::MeshError;
use crate::draw::counted;

/// What a new descriptor is to describe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMesh {
    /// Devices along each dimension.
    pub shape: Vec<usize>,
    /// The dimensions that are rings, counted from 0.
    pub rings: Vec<usize>,
    /// Hosts along each dimension; `None` is one host.
    pub hosts: Option<Vec<usize>>,
    /// What the devices are.
    pub arch: Architecture,
    /// Channels of a link.
    pub channels: u32,
    /// What happens where a link has fewer.
    pub policy: Policy,
}

impl NewMesh {
    /// One host, no rings, one channel, `RELAXED`, on `CPU`.
    pub fn new(shape: Vec<usize>) -> Self {
        Self {
            shape,
            rings: Vec::new(),
            hosts: None,
            arch: Architecture::Cpu,
            channels: 1,
            policy: Policy::Relaxed,
        }
    }

    /// The descriptor's text and what [`check()`] says of it.
    ///
    /// # Errors
    /// [`MeshError::NewDescriptor`] for a ring on a dimension that is not there or too short, and for everything that the
    /// check refuses.
    pub fn write(&self) -> Result<(String, Checked), MeshError> {
        let refuse = |problem: String| MeshError::NewDescriptor { problem };
        for ring in &self.rings {
            let Some(size) = self.shape.get(*ring) else {
                return Err(refuse(format!(
                    "there is no dimension {ring} to be a ring: {:?} has {}, counted from 0",
                    self.shape,
                    counted(self.shape.len(), "dimension")
                )));
            };
            if *size < 3 {
                return Err(refuse(format!(
                    "dimension {ring} of {:?} has {}, too few for a ring, which has a link of its own from 3 on; leave the ring out",
                    self.shape,
                    counted(*size, "device")
                )));
            }
        }
        let text = self.text();
        match check("new", text.as_bytes()) {
            Ok(checked) => Ok((text, checked)),
            Err(report) => {
                let problems = report.problems.list().iter();
                let problems: Vec<String> = problems.map(|p| format!("{}: {}", last(&p.field), p.text)).collect();
                Err(refuse(problems.join("; ")))
            }
        }
    }

    fn text(&self) -> String {
        let list = |sizes: &[usize]| {
            let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
            sizes.join(", ")
        };
        let types: Vec<&str> = (0..self.shape.len())
            .map(|dim| {
                if self.rings.contains(&dim) {
                    DimType::Ring
                } else {
                    DimType::Line
                }
                .name()
            })
            .collect();
        let one_host = vec![1; self.shape.len()];
        format!(
            "mesh_descriptors {{\n  name: \"M0\"\n  arch: {}\n  \
             device_topology {{ dims: [{}] dim_types: [{}] }}\n  \
             host_topology {{ dims: [{}] }}\n  \
             channels {{ count: {} policy: {} }}\n}}\n\n\
             top_level_instance {{ mesh {{ mesh_descriptor: \"M0\" mesh_id: 0 }} }}\n",
            self.arch.name(),
            list(&self.shape),
            types.join(", "),
            list(self.hosts.as_deref().unwrap_or(&one_host)),
            self.channels,
            self.policy.name(),
        )
    }
}

/// The field's path without the entry that the caller did not write.
fn last(field: &str) -> &str {
    field.strip_prefix("mesh_descriptors[0].").unwrap_or(field)
}

/// Sizes as `4x8`, `4×8` or `[4, 8]`.
///
/// # Errors
/// [`MeshError::NewDescriptor`] for any other text.
pub fn parse_sizes(text: &str) -> Result<Vec<usize>, MeshError> {
    let bare = text.trim();
    let bare = bare
        .strip_prefix('[')
        .and_then(|bare| bare.strip_suffix(']'))
        .unwrap_or(bare);
    let sizes: Result<Vec<usize>, _> = bare
        .split(['x', '×', 'X', ','])
        .map(|size| size.trim().parse())
        .collect();
    sizes.map_err(|_| MeshError::NewDescriptor {
        problem: format!(
            "{:?} is no shape; write sizes with x between them, for example 4x8",
            super::lex::shortened(text)
        ),
    })
}
