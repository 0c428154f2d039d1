//! A grid of logical devices whose axes have names.

use crate::near::hint;
use crate::shape::{MAX_DEVICES, checked_volume, row_major_strides};
use crate::{MeshCoordinate, MeshError, MeshShape};

/// One named axis of a [`Mesh`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Axis {
    /// The name, for example `dp`.
    pub name: String,
    /// The number of devices on it, at least 1.
    pub size: usize,
}

/// Where an axis lies in its mesh; what code keeps after asking for an axis by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AxisHandle {
    /// Place of the axis among the mesh's axes, outermost 0.
    pub index: usize,
    /// Number of devices on the axis.
    pub size: usize,
    /// Distance in device ids between neighbours on the axis.
    pub stride: usize,
}

/// A grid of logical devices with named axes, row-major: the last axis moves fastest.
///
/// A mesh without axes has one device. A name that a mesh does not have counts as an axis of size 1
/// for [`axis_size`](Self::axis_size), [`position`](Self::position) and [`group`](Self::group), so that a model written for
/// `tp` runs where there is none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mesh {
    axes: Vec<Axis>,
    strides: Vec<usize>,
    physical: Vec<usize>,
}

/// What a name would mean that a mesh may have one day.
const NOT_BUILT: [(&str, &str); 5] = [
    ("pp", "pipeline parallel"),
    ("cp", "context parallel"),
    ("fsdp", "fully sharded data parallel"),
    ("sp", "sequence parallel"),
    ("ep", "expert parallel"),
];

impl Mesh {
    /// A mesh of named axes, outermost first; no axes make a mesh of one device.
    ///
    /// # Errors
    /// [`MeshError::BadAxisName`], [`MeshError::DuplicateAxis`], [`MeshError::ZeroAxis`] or
    /// [`MeshError::TooManyDevices`].
    pub fn new<N: AsRef<str>>(axes: &[(N, usize)]) -> Result<Self, MeshError> {
        let sizes: Vec<usize> = axes.iter().map(|(_, size)| *size).collect();
        Self::with_physical_shape(axes, &sizes)
    }

    /// One device, no axes.
    pub fn one() -> Self {
        Self {
            axes: Vec::new(),
            strides: Vec::new(),
            physical: Vec::new(),
        }
    }

    /// A grid whose axes are called `axis0`, `axis1`, … outermost first: for programs that speak of axes by number.
    ///
    /// # Errors
    /// As [`MeshShape::new`].
    pub fn grid(sizes: &[usize]) -> Result<Self, MeshError> {
        MeshShape::new(sizes)?;
        let axes: Vec<(String, usize)> = sizes
            .iter()
            .enumerate()
            .map(|(axis, size)| (format!("axis{axis}"), *size))
            .collect();
        Self::new(&axes)
    }

    /// A mesh whose configured shape differs from its logical axes; the caller vouches for equal volumes.
    pub(crate) fn with_physical_shape<N: AsRef<str>>(
        axes: &[(N, usize)],
        physical: &[usize],
    ) -> Result<Self, MeshError> {
        let mesh = || {
            let parts: Vec<String> = axes
                .iter()
                .map(|(name, size)| format!("{}={size}", name.as_ref()))
                .collect();
            format!("{:?}", parts.join(","))
        };
        for (i, (name, size)) in axes.iter().enumerate() {
            let name = name.as_ref();
            if !is_axis_name(name) {
                return Err(MeshError::BadAxisName { name: name.to_string() });
            }
            if axes[..i].iter().any(|(other, _)| other.as_ref() == name) {
                return Err(MeshError::DuplicateAxis {
                    name: name.to_string(),
                    mesh: mesh(),
                });
            }
            if *size == 0 {
                return Err(MeshError::ZeroAxis {
                    axis: name.to_string(),
                    mesh: mesh(),
                });
            }
        }
        let sizes: Vec<usize> = axes.iter().map(|(_, size)| *size).collect();
        checked_volume(&sizes, mesh)?;
        Ok(Self {
            axes: axes
                .iter()
                .map(|(name, size)| Axis {
                    name: name.as_ref().to_string(),
                    size: *size,
                })
                .collect(),
            strides: row_major_strides(&sizes),
            physical: physical.to_vec(),
        })
    }

    /// Reads the text of the `--mesh` flag, such as `dp=2,tp=2`. Blanks are allowed; whatever the order in the text,
    /// the mesh has `dp` outside and `tp` inside.
    ///
    /// # Errors
    /// [`MeshError::EmptySpec`], [`MeshError::BadSpec`], [`MeshError::BadSize`], [`MeshError::ZeroAxis`],
    /// [`MeshError::DuplicateAxis`], [`MeshError::TooManyDevices`], [`MeshError::UnknownStrategy`] and, for `pp`, `cp`,
    /// `fsdp`, `sp` and `ep`, [`MeshError::NotBuilt`].
    pub fn parse(text: &str) -> Result<Self, MeshError> {
        const KNOWN: [&str; 2] = ["dp", "tp"];
        let whole = || text.to_string();
        if text.trim().is_empty() {
            return Err(MeshError::EmptySpec { text: whole() });
        }
        let mut axes: Vec<(&str, usize)> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let Some((name, size)) = part.split_once('=').map(|(n, s)| (n.trim(), s.trim())) else {
                return Err(MeshError::BadSpec {
                    part: part.to_string(),
                    text: whole(),
                });
            };
            if let Some((_, meaning)) = NOT_BUILT.iter().find(|(known, _)| *known == name) {
                return Err(MeshError::NotBuilt {
                    name: name.to_string(),
                    meaning: (*meaning).to_string(),
                    text: whole(),
                });
            }
            if !KNOWN.contains(&name) {
                return Err(MeshError::UnknownStrategy {
                    name: name.to_string(),
                    text: whole(),
                    hint: hint(name, KNOWN),
                });
            }
            // Zero is a size all the same: Mesh::new refuses it in words of its own.
            let size: usize =
                size.parse()
                    .ok()
                    .filter(|size| *size <= MAX_DEVICES)
                    .ok_or_else(|| MeshError::BadSize {
                        size: size.to_string(),
                        text: whole(),
                        name: name.to_string(),
                        limit: MAX_DEVICES,
                    })?;
            axes.push((name, size));
        }
        axes.sort_by_key(|(name, _)| KNOWN.iter().position(|known| known == name));
        Self::new(&axes)
    }

    /// The axes, outermost first.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The number of devices, at least 1.
    pub fn num_devices(&self) -> usize {
        self.axes.iter().map(|axis| axis.size).product()
    }

    /// The shape as the user configured it (`mesh_shape`), for display. Its volume is
    /// [`num_devices`](Self::num_devices); it may have other axes than the mesh. Empty for [`Mesh::one`].
    pub fn physical_shape(&self) -> &[usize] {
        &self.physical
    }

    /// The logical grid without names; `[1]` for a mesh without axes.
    pub fn shape(&self) -> MeshShape {
        let mut sizes: Vec<usize> = self.axes.iter().map(|axis| axis.size).collect();
        if sizes.is_empty() {
            sizes.push(1);
        }
        MeshShape::new(&sizes).expect("bug in unisono: a mesh has checked its sizes when it was made")
    }

    /// The axis of a name.
    ///
    /// # Errors
    /// [`MeshError::UnknownAxis`], which lists the axes there are and the nearest name.
    pub fn axis(&self, name: &str) -> Result<AxisHandle, MeshError> {
        self.find(name).ok_or_else(|| {
            let names: Vec<&str> = self.axes.iter().map(|axis| axis.name.as_str()).collect();
            let known = match names.len() {
                0 => "it has no axes".to_string(),
                1 => format!("its only axis is {}", names[0]),
                _ => format!("its axes are {}", names.join(", ")),
            };
            MeshError::UnknownAxis {
                name: name.to_string(),
                mesh: self.describe(),
                known,
                hint: hint(name, names),
            }
        })
    }

    /// The axis with this index, outermost 0.
    ///
    /// # Errors
    /// [`MeshError::NoAxis`].
    pub fn axis_at(&self, index: usize) -> Result<AxisHandle, MeshError> {
        match self.axes.get(index) {
            Some(axis) => Ok(AxisHandle {
                index,
                size: axis.size,
                stride: self.strides[index],
            }),
            None => Err(MeshError::NoAxis {
                index,
                mesh: self.describe(),
                axes: self.axes.len(),
            }),
        }
    }

    /// All devices as one axis, row-major. Its index is the number of axes, which no axis of the mesh has.
    pub fn all(&self) -> AxisHandle {
        AxisHandle {
            index: self.axes.len(),
            size: self.num_devices(),
            stride: 1,
        }
    }

    /// The number of devices on an axis; 1 when the mesh has no such axis.
    pub fn axis_size(&self, name: &str) -> usize {
        self.find(name).map_or(1, |axis| axis.size)
    }

    /// The index of a device on an axis; 0 when the mesh has no such axis. For a device outside the mesh the value means
    /// nothing, but it is below the axis size.
    pub fn position(&self, device: usize, name: &str) -> usize {
        self.find(name).map_or(0, |axis| device / axis.stride % axis.size)
    }

    /// The devices that differ from this one only on the axis, in axis order, itself among them; just the device when the
    /// mesh has no such axis.
    pub fn group(&self, device: usize, name: &str) -> Vec<usize> {
        let Some(axis) = self.find(name) else {
            return vec![device];
        };
        let first = device - self.position(device, name) * axis.stride;
        (0..axis.size).map(|i| first + i * axis.stride).collect()
    }

    /// All groups of an axis: each device is in exactly one. The groups are in order of their first device.
    pub fn groups(&self, name: &str) -> Vec<Vec<usize>> {
        (0..self.num_devices())
            .filter(|device| self.position(*device, name) == 0)
            .map(|device| self.group(device, name))
            .collect()
    }

    /// The coordinate of a device, one index per axis.
    ///
    /// # Errors
    /// [`MeshError::DeviceOutside`].
    pub fn coordinate(&self, device: usize) -> Result<MeshCoordinate, MeshError> {
        self.shape().coordinate(device)
    }

    /// The device at a coordinate, one index per axis (one, 0, for a mesh without axes).
    ///
    /// # Errors
    /// [`MeshError::CoordinateAxes`] or [`MeshError::CoordinateOutside`].
    pub fn device(&self, coordinate: &MeshCoordinate) -> Result<usize, MeshError> {
        self.shape().device(coordinate)
    }

    /// The mesh in words for a header: `2×4 = 8 devices (dp 2, tp 4)`, `8 devices (dp 8)`, `1 device`.
    pub fn describe(&self) -> String {
        let devices = self.num_devices();
        let mut text = String::new();
        if self.physical.len() > 1 && devices > 1 {
            let sizes: Vec<String> = self.physical.iter().map(usize::to_string).collect();
            text = format!("{} = ", sizes.join("×"));
        }
        text += &format!("{devices} {}", if devices == 1 { "device" } else { "devices" });
        if devices > 1 {
            let axes: Vec<String> = self
                .axes
                .iter()
                .map(|axis| format!("{} {}", axis.name, axis.size))
                .collect();
            text += &format!(" ({})", axes.join(", "));
        }
        text
    }

    fn find(&self, name: &str) -> Option<AxisHandle> {
        let index = self.axes.iter().position(|axis| axis.name == name)?;
        Some(AxisHandle {
            index,
            size: self.axes[index].size,
            stride: self.strides[index],
        })
    }
}

fn is_axis_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
