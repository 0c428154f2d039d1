//! N-dimensional grids without names: shapes, coordinates, inclusive ranges, and the row-major rule.

use crate::MeshError;
use std::fmt;

/// The most devices that a mesh may have. A larger one is taken for a slip, and refused before anything is allocated
/// per device.
pub const MAX_DEVICES: usize = 65_536;

/// The sizes of a grid, outermost axis first. Every size is at least 1; their product is at most [`MAX_DEVICES`].
///
/// Device ids are row-major: the last axis moves fastest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MeshShape {
    sizes: Vec<usize>,
}

/// A place in a grid: one index per axis, outermost first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MeshCoordinate(
    /// The index on each axis.
    pub Vec<usize>,
);

/// A box of coordinates, both corners inclusive.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MeshCoordinateRange {
    start: MeshCoordinate,
    end: MeshCoordinate,
}

impl MeshShape {
    /// A grid of these sizes, outermost axis first.
    ///
    /// # Errors
    /// [`MeshError::EmptyShape`], [`MeshError::ZeroAxis`] or [`MeshError::TooManyDevices`].
    pub fn new(sizes: &[usize]) -> Result<Self, MeshError> {
        let mesh = || Numbers('[', sizes, ']').to_string();
        if sizes.is_empty() {
            return Err(MeshError::EmptyShape);
        }
        if let Some(axis) = sizes.iter().position(|size| *size == 0) {
            return Err(MeshError::ZeroAxis {
                axis: axis.to_string(),
                mesh: mesh(),
            });
        }
        checked_volume(sizes, mesh)?;
        Ok(Self { sizes: sizes.to_vec() })
    }

    /// The size of each axis, outermost first.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// The number of axes.
    pub fn num_axes(&self) -> usize {
        self.sizes.len()
    }

    /// The number of devices: the product of the sizes.
    pub fn num_devices(&self) -> usize {
        self.sizes.iter().product()
    }

    /// True when at most one axis is larger than 1.
    pub fn is_line(&self) -> bool {
        self.sizes.iter().filter(|size| **size > 1).count() <= 1
    }

    /// The distance in device ids between neighbours on each axis.
    pub fn strides(&self) -> Vec<usize> {
        row_major_strides(&self.sizes)
    }

    /// The device id at a coordinate.
    ///
    /// # Errors
    /// [`MeshError::CoordinateAxes`] or [`MeshError::CoordinateOutside`].
    pub fn device(&self, coordinate: &MeshCoordinate) -> Result<usize, MeshError> {
        self.check(coordinate)?;
        Ok(self
            .sizes
            .iter()
            .zip(&coordinate.0)
            .fold(0, |id, (size, index)| id * size + index))
    }

    /// The coordinate of a device id.
    ///
    /// # Errors
    /// [`MeshError::DeviceOutside`].
    pub fn coordinate(&self, device: usize) -> Result<MeshCoordinate, MeshError> {
        if device >= self.num_devices() {
            return Err(MeshError::DeviceOutside {
                device,
                mesh: self.to_string(),
                last: self.num_devices() - 1, // at least one device: no size is 0
            });
        }
        let strides = self.strides();
        Ok(MeshCoordinate(
            self.sizes
                .iter()
                .zip(strides)
                .map(|(size, stride)| device / stride % size)
                .collect(),
        ))
    }

    /// The range of all coordinates.
    pub fn range(&self) -> MeshCoordinateRange {
        MeshCoordinateRange {
            start: MeshCoordinate(vec![0; self.num_axes()]),
            end: MeshCoordinate(self.sizes.iter().map(|size| size - 1).collect()),
        }
    }

    /// All coordinates in device order.
    pub fn coordinates(&self) -> impl Iterator<Item = MeshCoordinate> {
        self.range().into_coordinates()
    }

    /// The device ids of a range, in row-major order.
    ///
    /// # Errors
    /// As [`device`](Self::device), for either corner.
    pub fn devices_in(&self, range: &MeshCoordinateRange) -> Result<Vec<usize>, MeshError> {
        self.check(&range.start)?;
        self.check(&range.end)?;
        range
            .clone()
            .into_coordinates()
            .map(|coordinate| self.device(&coordinate))
            .collect()
    }

    fn check(&self, coordinate: &MeshCoordinate) -> Result<(), MeshError> {
        if coordinate.0.len() != self.sizes.len() {
            return Err(MeshError::CoordinateAxes {
                coordinate: coordinate.to_string(),
                given: coordinate.0.len(),
                mesh: self.to_string(),
                expected: self.sizes.len(),
            });
        }
        match self
            .sizes
            .iter()
            .zip(&coordinate.0)
            .position(|(size, index)| index >= size)
        {
            Some(axis) => Err(MeshError::CoordinateOutside {
                coordinate: coordinate.to_string(),
                mesh: self.to_string(),
                axis,
                last: self.sizes[axis] - 1,
            }),
            None => Ok(()),
        }
    }
}

impl MeshCoordinateRange {
    /// The box from `start` to `end`, both inclusive.
    ///
    /// # Errors
    /// [`MeshError::CoordinateAxes`] when the corners differ in axes, [`MeshError::ReversedRange`] when `end` lies before
    /// `start` on some axis.
    pub fn new(start: MeshCoordinate, end: MeshCoordinate) -> Result<Self, MeshError> {
        if start.0.len() != end.0.len() {
            return Err(MeshError::CoordinateAxes {
                coordinate: end.to_string(),
                given: end.0.len(),
                mesh: format!("range from {start}"),
                expected: start.0.len(),
            });
        }
        match start.0.iter().zip(&end.0).position(|(first, last)| last < first) {
            Some(axis) => Err(MeshError::ReversedRange {
                start: start.to_string(),
                end: end.to_string(),
                axis,
            }),
            None => Ok(Self { start, end }),
        }
    }

    /// The first coordinate.
    pub fn start(&self) -> &MeshCoordinate {
        &self.start
    }

    /// The last coordinate, itself in the range.
    pub fn end(&self) -> &MeshCoordinate {
        &self.end
    }

    /// The extent on each axis.
    pub fn sizes(&self) -> Vec<usize> {
        self.start
            .0
            .iter()
            .zip(&self.end.0)
            .map(|(first, last)| last - first + 1)
            .collect()
    }

    /// True when the coordinate lies in the box. A coordinate with another number of axes does not.
    pub fn contains(&self, coordinate: &MeshCoordinate) -> bool {
        coordinate.0.len() == self.start.0.len()
            && coordinate
                .0
                .iter()
                .zip(self.start.0.iter().zip(&self.end.0))
                .all(|(index, (first, last))| first <= index && index <= last)
    }

    /// The coordinates of the box in row-major order.
    pub fn into_coordinates(self) -> impl Iterator<Item = MeshCoordinate> {
        let mut next = Some(self.start.clone());
        std::iter::from_fn(move || {
            let current = next.take()?;
            let mut following = current.clone();
            for axis in (0..following.0.len()).rev() {
                if following.0[axis] < self.end.0[axis] {
                    following.0[axis] += 1;
                    next = Some(following);
                    break;
                }
                following.0[axis] = self.start.0[axis];
            }
            Some(current)
        })
    }
}

impl fmt::Display for MeshShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Numbers('[', &self.sizes, ']').fmt(f)
    }
}

impl fmt::Display for MeshCoordinate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Numbers('(', &self.0, ')').fmt(f)
    }
}

/// Numbers between brackets, as YAML writes a list.
struct Numbers<'a>(char, &'a [usize], char);

impl fmt::Display for Numbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items: Vec<String> = self.1.iter().map(usize::to_string).collect();
        write!(f, "{}{}{}", self.0, items.join(", "), self.2)
    }
}

/// Row-major strides of a grid.
pub(crate) fn row_major_strides(sizes: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; sizes.len()];
    for axis in (1..sizes.len()).rev() {
        strides[axis - 1] = strides[axis] * sizes[axis];
    }
    strides
}

/// The product of the sizes, or an error where it is above [`MAX_DEVICES`].
pub(crate) fn checked_volume(sizes: &[usize], mesh: impl Fn() -> String) -> Result<usize, MeshError> {
    sizes
        .iter()
        .try_fold(1usize, |volume, size| {
            volume.checked_mul(*size).filter(|v| *v <= MAX_DEVICES)
        })
        .ok_or_else(|| MeshError::TooManyDevices {
            mesh: mesh(),
            limit: MAX_DEVICES,
        })
}
