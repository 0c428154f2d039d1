//! Messages from one device to another, received later in the program.

use super::Along;
use crate::device::Ends;
use crate::error::TensorError;
use crate::tensor::Tensor;
use crate::{MeshDevice, Result};
use unisono_mesh::MeshCoordinate;
use unisono_runtime::ops::exchange::PointToPoint;

/// Sends the shard of one device to another: a copy into memory of the receiver, after which `x` may change. It waits there until
/// [`receive`] takes it; messages with the same ends and tag come in the order in which they were sent.
///
/// # Errors
/// A coordinate outside the mesh, or a partial sum.
pub fn send(x: &Tensor, sender: &MeshCoordinate, receiver: &MeshCoordinate, tag: u64) -> Result<()> {
    let op = "send";
    super::complete(op, x)?;
    let device = x.device();
    let shape = device.mesh().shape();
    let (source, target) = (shape.device(sender)?, shape.device(receiver)?);
    let y = Tensor::activation(device, x.meta().clone())?;
    let command = PointToPoint {
        axis: device.mesh().all(),
        source,
        target,
        from: x.buffer(),
        to: y.buffer(),
    };
    Along::ALL.issue(op, device, command)?;
    device.post(ends(device, source, target, tag), &y);
    Ok(())
}

/// Takes the oldest message that was sent from one device to another with this tag: a tensor whose shard on the receiver is what was
/// sent. (All other devices hold their own shard of what was sent.)
///
/// # Errors
/// No such message: everything that a receive could wait for is issued before it, so waiting would never end. The error lists what
/// is there.
pub fn receive(device: &MeshDevice, sender: &MeshCoordinate, receiver: &MeshCoordinate, tag: u64) -> Result<Tensor> {
    let shape = device.mesh().shape();
    let (source, target) = (shape.device(sender)?, shape.device(receiver)?);
    device
        .take_post(ends(device, source, target, tag))
        .ok_or_else(|| TensorError::Argument {
            op: "receive",
            what: format!(
                "no message with tag {tag} from {sender} to {receiver} has been sent, and a receive would wait for ever; {}: send \
                 before you receive",
                device.waiting_posts()
            ),
        })
}

/// The devices of the system behind two places, and the tag.
fn ends(device: &MeshDevice, source: usize, target: usize, tag: u64) -> Ends {
    let devices = device.view().devices();
    (devices[source], devices[target], tag)
}
