//! Scoped defaults: the mapper that host arrays are dealt out by, and the composer that they are put together by.

use crate::MeshDevice;
use std::cell::RefCell;
use unisono_mesh::{ComposerConfig, MapperConfig, MeshView};

/// The defaults in whose scopes the program is, innermost last, each with the mesh that it is for.
#[derive(Default)]
pub(crate) struct Defaults {
    mappers: RefCell<Vec<(MeshView, MapperConfig)>>,
    composers: RefCell<Vec<(MeshView, ComposerConfig)>>,
}

impl MeshDevice {
    /// Runs `body` with a default mapper for this mesh: [`MeshDevice::from_host`], and what loads named parameters with it,
    /// deals arrays out by it. Scopes may be nested; those of other meshes, submeshes of this one among them, are apart.
    ///
    /// ```
    /// use unisono_tensor::{HostTensor, MapperConfig, MeshDevice, Options, Placement};
    /// let device = MeshDevice::open_grid(&[1, 2], Options::default())?;
    /// let x = HostTensor::new(&[1.0f32, 2.0], &[2])?;
    /// let cut = device.with_default_mapper(MapperConfig::shard(0), || device.from_host(&x))?;
    /// assert_eq!(cut.placements()[1], Placement::Shard(0));
    /// assert_eq!(device.from_host(&x)?.placements()[1], Placement::Replicate);
    /// # Ok::<(), unisono_tensor::TensorError>(())
    /// ```
    pub fn with_default_mapper<T>(&self, mapper: MapperConfig, body: impl FnOnce() -> T) -> T {
        in_scope(&self.defaults().mappers, (self.view().clone(), mapper), body)
    }

    /// Runs `body` with a default composer for this mesh, which [`Tensor::to_host`](crate::Tensor::to_host) obeys.
    pub fn with_default_composer<T>(&self, composer: ComposerConfig, body: impl FnOnce() -> T) -> T {
        in_scope(&self.defaults().composers, (self.view().clone(), composer), body)
    }

    pub(crate) fn default_mapper(&self) -> Option<MapperConfig> {
        innermost(&self.defaults().mappers, self.view())
    }

    pub(crate) fn default_composer(&self) -> Option<ComposerConfig> {
        innermost(&self.defaults().composers, self.view())
    }
}

fn in_scope<C, T>(stack: &RefCell<Vec<C>>, entry: C, body: impl FnOnce() -> T) -> T {
    /// Leaves the scope even when `body` unwinds.
    struct Leave<'a, C>(&'a RefCell<Vec<C>>);
    impl<C> Drop for Leave<'_, C> {
        fn drop(&mut self) {
            self.0.borrow_mut().pop();
        }
    }
    stack.borrow_mut().push(entry);
    let _leave = Leave(stack);
    body()
}

fn innermost<C: Clone>(stack: &RefCell<Vec<(MeshView, C)>>, view: &MeshView) -> Option<C> {
    let stack = stack.borrow();
    let found = stack.iter().rev().find(|(of, _)| of == view);
    found.map(|(_, config)| config.clone())
}
