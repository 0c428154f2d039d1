//! Orders of the places of a grid, and how a requested shape is laid over one.

use crate::{MeshCoordinate, MeshError, MeshShape};

impl MeshShape {
    /// All devices along the zig-zag: the first row left to right, the second right to left, and so on, so that each device is a
    /// neighbour of the one before. With more axes every second block is walked from its end.
    pub fn zigzag(&self) -> Vec<usize> {
        let mut order = vec![0];
        for size in self.sizes().iter().rev() {
            let block = order;
            order = Vec::with_capacity(size * block.len());
            for i in 0..*size {
                let at = |device: &usize| device + i * block.len();
                if i % 2 == 0 {
                    order.extend(block.iter().map(at));
                } else {
                    order.extend(block.iter().rev().map(at));
                }
            }
        }
        order
    }

    /// The devices around the edge of a two-dimensional grid, clockwise from (0, 0). Inner devices are not in it.
    ///
    /// # Errors
    /// [`MeshError::NoRing`] for a grid that is not two-dimensional.
    pub fn ring(&self) -> Result<Vec<usize>, MeshError> {
        let &[rows, cols] = self.sizes() else {
            return Err(MeshError::NoRing { mesh: self.to_string() });
        };
        let mut order: Vec<usize> = (0..cols).collect();
        order.extend((1..rows).map(|row| row * cols + cols - 1));
        if rows > 1 {
            order.extend((0..cols - 1).rev().map(|col| (rows - 1) * cols + col));
        }
        if cols > 1 && rows > 1 {
            order.extend((1..rows - 1).rev().map(|row| row * cols));
        }
        Ok(order)
    }

    /// Lays `request` over this grid: the devices at its places, row-major.
    ///
    /// A line takes the devices of the zig-zag from `offset` on. A grid of as many axes lies at `offset` as it is or, where that
    /// does not fit and both are two-dimensional, turned by a quarter: place (r, c) is then device (c, r).
    ///
    /// # Errors
    /// [`MeshError::DoesNotFit`], which lists shapes that fit.
    pub fn place(&self, request: &MeshShape, offset: Option<&[usize]>) -> Result<Vec<usize>, MeshError> {
        let origin = vec![0; self.num_axes()];
        let offset = offset.unwrap_or(&origin);
        let refuse = |problem: String| MeshError::DoesNotFit {
            request: request.to_string(),
            system: self.to_string(),
            devices: self.num_devices(),
            problem,
            fitting: self.fitting().join(", "),
        };
        if request.num_devices() > self.num_devices() {
            return Err(refuse(format!("it needs {} devices", request.num_devices())));
        }
        if offset.len() != self.num_axes() {
            return Err(refuse(format!(
                "the offset {offset:?} has {} indices, one for each of the {} axes is needed",
                offset.len(),
                self.num_axes()
            )));
        }
        let first = self.device(&MeshCoordinate(offset.to_vec()))?;
        if request.is_line() {
            let zigzag = self.zigzag();
            let start = zigzag.iter().position(|device| *device == first).unwrap_or(0);
            let line = &zigzag[start..];
            return match line.get(..request.num_devices()) {
                Some(devices) => Ok(devices.to_vec()),
                None => Err(refuse(format!(
                    "from the offset {offset:?} on only {} devices are left along the line",
                    line.len()
                ))),
            };
        }
        if request.num_axes() != self.num_axes() {
            return Err(refuse(format!(
                "it has {} axes where the system has {}",
                request.num_axes(),
                self.num_axes()
            )));
        }
        let fits = |sizes: &[usize]| {
            sizes
                .iter()
                .zip(offset)
                .zip(self.sizes())
                .all(|((size, first), whole)| size + first <= *whole)
        };
        let turned: Vec<usize> = request.sizes().iter().rev().copied().collect();
        let is_straight = fits(request.sizes());
        if !is_straight && (request.num_axes() != 2 || !fits(&turned)) {
            return Err(refuse(format!(
                "at offset {offset:?} it sticks out{}",
                if request.num_axes() == 2 {
                    ", turned by a quarter too"
                } else {
                    ""
                }
            )));
        }
        request
            .coordinates()
            .map(|mut at| {
                if !is_straight {
                    at.0.reverse();
                }
                for (index, first) in at.0.iter_mut().zip(offset) {
                    *index += first;
                }
                self.device(&at)
            })
            .collect()
    }

    /// Some shapes that fit: the whole, the whole turned, and the line.
    pub(crate) fn fitting(&self) -> Vec<String> {
        let mut shapes = vec![self.to_string()];
        if let &[rows, cols] = self.sizes()
            && rows != cols
        {
            shapes.push(format!("[{cols}, {rows}]"));
        }
        let line = format!("[1, {}]", self.num_devices());
        if self.num_axes() <= 2 && !shapes.contains(&line) {
            shapes.push(line);
        }
        shapes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(sizes: &[usize]) -> MeshShape {
        MeshShape::new(sizes).expect("a shape")
    }

    #[test]
    fn zigzags_go_to_neighbours_only_and_everywhere() {
        assert_eq!(shape(&[2, 4]).zigzag(), [0, 1, 2, 3, 7, 6, 5, 4]);
        assert_eq!(shape(&[3]).zigzag(), [0, 1, 2]);
        for sizes in [vec![4, 8], vec![3, 2, 4], vec![2, 3, 3], vec![5, 1], vec![2, 2, 2, 2]] {
            let shape = shape(&sizes);
            let order = shape.zigzag();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..shape.num_devices()).collect::<Vec<_>>());
            for pair in order.windows(2) {
                let at = |device| shape.coordinate(device).expect("a device").0;
                let apart: usize = at(pair[0]).iter().zip(at(pair[1])).map(|(a, b)| a.abs_diff(b)).sum();
                assert_eq!(apart, 1, "{sizes:?}: {} to {}", pair[0], pair[1]);
            }
        }
    }

    #[test]
    fn rings_go_round_the_edge() {
        assert_eq!(shape(&[2, 4]).ring().expect("two axes"), [0, 1, 2, 3, 7, 6, 5, 4]);
        assert_eq!(shape(&[3, 3]).ring().expect("two axes"), [0, 1, 2, 5, 8, 7, 6, 3]);
        assert_eq!(shape(&[1, 4]).ring().expect("two axes"), [0, 1, 2, 3]);
        assert_eq!(shape(&[4, 1]).ring().expect("two axes"), [0, 1, 2, 3]);
        assert!(shape(&[4]).ring().is_err());
    }

    #[test]
    fn requests_are_laid_straight_turned_or_along_the_line() {
        let system = shape(&[4, 8]);
        assert_eq!(system.place(&shape(&[1, 32]), None).expect("fits"), system.zigzag());
        let turned = system.place(&shape(&[8, 4]), None).expect("fits turned");
        assert_eq!(turned[..5], [0, 8, 16, 24, 1]);
        assert_eq!(
            system.place(&shape(&[2, 2]), Some(&[1, 2])).expect("fits"),
            [10, 11, 18, 19]
        );
        let error = system.place(&shape(&[3, 9]), None).expect_err("too wide").to_string();
        assert!(error.contains("[4, 8], [8, 4], [1, 32]"), "{error}");
        assert!(system.place(&shape(&[5, 8]), None).is_err());
        assert!(system.place(&shape(&[2, 2, 2]), None).is_err());
        assert!(system.place(&shape(&[1, 4]), Some(&[3, 6])).is_ok());
        assert!(system.place(&shape(&[1, 5]), Some(&[3, 3])).is_err());
    }
}
