//! Views of a system, drawn at random.

use super::Draw;
use unisono_mesh::MeshView;
use unisono_runtime::Runtime;

/// Some views of a system: all of it, boxes that overlap or not, boxes of boxes, lines, picked devices.
pub fn some_views(root: &Runtime, draw: &mut Draw, count: usize) -> Vec<Runtime> {
    let mut views = vec![root.view().clone()];
    while views.len() < count {
        let parent = views[draw.below(views.len())].clone();
        let devices = parent.num_devices();
        let sizes = parent.shape().sizes().to_vec();
        let view = match draw.below(4) {
            0 => parent.reshape(&[devices]).expect("a line"),
            1 => parent.pick(&some_places(draw, devices)).expect("places of the parent"),
            _ => {
                let shape: Vec<usize> = sizes.iter().map(|size| 1 + draw.below(*size)).collect();
                let offset: Vec<usize> = sizes
                    .iter()
                    .zip(&shape)
                    .map(|(all, some)| draw.below(all - some + 1))
                    .collect();
                parent.submesh(&shape, Some(&offset)).expect("a box inside")
            }
        };
        views.push(view);
    }
    let on = |view: MeshView| root.on_view(view).expect("a view of the same system");
    std::iter::once(root.clone())
        .chain(views.into_iter().skip(1).map(on))
        .collect()
}

/// At least one place, in any order.
fn some_places(draw: &mut Draw, devices: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..devices).collect();
    for i in 0..devices {
        places.swap(i, i + draw.below(devices - i));
    }
    places.truncate(1 + draw.below(devices));
    places
}
