//! The one error type of this crate, and the search for the nearest name that its texts use.

/// What can be wrong with a mesh, a coordinate or an axis. Each text states what was given, the
/// rule, and what would work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MeshError {
    /// A mesh shape without axes.
    #[error("the mesh shape is empty; give one size per axis, for example [1, 1] for one device")]
    EmptyShape,
    /// An axis of size 0. `axis` is its index, or its name where it has one.
    #[error("axis {axis} of the mesh {mesh} has size 0; every axis needs at least 1 device")]
    ZeroAxis {
        /// Index or name of the axis.
        axis: String,
        /// The mesh as it was given.
        mesh: String,
    },
    /// More devices than [`MAX_DEVICES`](crate::MAX_DEVICES).
    #[error("the mesh {mesh} has more than {limit} devices, the most that unisono drives; make an axis smaller")]
    TooManyDevices {
        /// The mesh as it was given.
        mesh: String,
        /// The largest count allowed.
        limit: usize,
    },
    /// A coordinate with another number of axes than the shape.
    #[error("the coordinate {coordinate} has {given} axes but the mesh {mesh} has {expected}; give one index per axis")]
    CoordinateAxes {
        /// The coordinate as given.
        coordinate: String,
        /// Its number of axes.
        given: usize,
        /// The mesh shape.
        mesh: String,
        /// The number of axes of the mesh.
        expected: usize,
    },
    /// A coordinate outside the grid.
    #[error("the coordinate {coordinate} lies outside the mesh {mesh}: axis {axis} goes from 0 to {last}")]
    CoordinateOutside {
        /// The coordinate as given.
        coordinate: String,
        /// The mesh shape.
        mesh: String,
        /// Index of the first axis that is out of range.
        axis: usize,
        /// The largest index of that axis.
        last: usize,
    },
    /// A device id outside the grid.
    #[error("device {device} is not in the mesh {mesh}, whose devices are 0 to {last}")]
    DeviceOutside {
        /// The id as given.
        device: usize,
        /// The mesh shape.
        mesh: String,
        /// The largest device id.
        last: usize,
    },
    /// A range whose end lies before its start on some axis.
    #[error(
        "the range {start} to {end} ends before it starts on axis {axis}; both ends are inclusive, give start ≤ end on every axis"
    )]
    ReversedRange {
        /// First coordinate.
        start: String,
        /// Last coordinate.
        end: String,
        /// Index of the first reversed axis.
        axis: usize,
    },
    /// A value of `TT_VISIBLE_DEVICES` or `UNISONO_VISIBLE_DEVICES` that selects nothing there is.
    #[error("{variable}={value:?}: {problem}")]
    Visible {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The entry at fault, and what would work.
        problem: String,
    },
    /// Two axes of one name.
    #[error("the axis {name:?} is given twice in the mesh {mesh}; give each axis once")]
    DuplicateAxis {
        /// The name.
        name: String,
        /// The mesh as it was given.
        mesh: String,
    },
    /// An axis name that is empty or has characters other than letters, digits and `_`.
    #[error("{name:?} is no axis name; use letters, digits and '_', beginning with a letter, for example \"dp\"")]
    BadAxisName {
        /// The name as given.
        name: String,
    },
    /// An axis that this mesh does not have.
    #[error("the mesh {mesh} has no axis {name:?}; {known}{hint}")]
    UnknownAxis {
        /// The name as given.
        name: String,
        /// The mesh, as [`Mesh::describe`](crate::Mesh::describe) writes it.
        mesh: String,
        /// A clause that lists the axes there are.
        known: String,
        /// A clause with the nearest name, or nothing.
        hint: String,
    },
    /// An axis number that this mesh does not have.
    #[error("axis {index} was asked for; the mesh {mesh} has {axes}, counted from 0")]
    NoAxis {
        /// The number as given.
        index: usize,
        /// The mesh, as [`Mesh::describe`](crate::Mesh::describe) writes it.
        mesh: String,
        /// Number of axes.
        axes: usize,
    },
    /// Ids or places that do not name each device once.
    #[error("the ids {ids} for the mesh {mesh} do not name {devices} devices once each; give {devices} different ones")]
    Ids {
        /// The ids as given.
        ids: String,
        /// The mesh shape.
        mesh: String,
        /// Number of devices.
        devices: usize,
    },
    /// A submesh that its mesh does not have.
    #[error("there is no submesh {shape} at offset {offset} in the mesh {mesh}: {problem}")]
    Submesh {
        /// The shape as given.
        shape: String,
        /// The offset as given.
        offset: String,
        /// The parent's shape.
        mesh: String,
        /// The rule that is broken, and what would work.
        problem: String,
    },
    /// A shape that the devices of a mesh cannot take.
    #[error("the mesh {mesh} of {devices} devices cannot be reshaped to {shape}: {problem}")]
    Reshape {
        /// The shape as given.
        shape: String,
        /// The shape now.
        mesh: String,
        /// Its number of devices.
        devices: usize,
        /// The rule that is broken.
        problem: String,
    },
    /// A shape that a system cannot hold.
    #[error(
        "the mesh {request} does not fit on the system {system} of {devices} devices: {problem}; shapes that fit are {fitting} and smaller ones"
    )]
    DoesNotFit {
        /// The shape as given.
        request: String,
        /// The system's shape.
        system: String,
        /// Its number of devices.
        devices: usize,
        /// The rule that is broken.
        problem: String,
        /// Shapes that fit.
        fitting: String,
    },
    /// A descriptor with problems.
    #[error("{0}")]
    Descriptor(Box<crate::descriptor::Report>),
    /// A descriptor's file that cannot be read.
    #[error("the mesh graph descriptor {file} cannot be read: {reason}")]
    UnreadableDescriptor {
        /// The file as given.
        file: String,
        /// What the system says.
        reason: String,
    },
    /// A name that no built-in descriptor has.
    #[error("there is no built-in descriptor {name:?}; there are {known}{hint}")]
    UnknownDescriptor {
        /// The name as given.
        name: String,
        /// The names that there are.
        known: String,
        /// A clause with the nearest name, or nothing.
        hint: String,
    },
    /// A descriptor that cannot be written as asked.
    #[error("no descriptor can be written for this: {problem}")]
    NewDescriptor {
        /// What was given, the rule, and what would work.
        problem: String,
    },
    /// A mesh that a descriptor cannot hold.
    #[error("{descriptor} does not hold the mesh_shape {request}: {problem}; {mend}")]
    DescriptorDoesNotHold {
        /// The descriptor and what it describes.
        descriptor: String,
        /// The mesh shape as given, and its number of devices in words.
        request: String,
        /// The rule that is broken.
        problem: String,
        /// Shapes that fit, and how to describe another machine.
        mend: String,
    },
    /// A ring was asked of a mesh that has none.
    #[error("the mesh {mesh} has no ring order: that is the edge of a mesh of two axes")]
    NoRing {
        /// The mesh shape.
        mesh: String,
    },
    /// A `--mesh` text that names no mesh at all.
    #[error("the mesh {text:?} is empty; write axes and sizes, for example \"dp=2,tp=2\", or \"dp=1\" for one device")]
    EmptySpec {
        /// The text as given.
        text: String,
    },
    /// A part of a `--mesh` text that is not `name=size`.
    #[error("{part:?} in the mesh {text:?} is not of the form name=size, for example \"dp=2,tp=2\"")]
    BadSpec {
        /// The part at fault.
        part: String,
        /// The whole text.
        text: String,
    },
    /// A size in a `--mesh` text that is no count.
    #[error("{size:?} in the mesh {text:?} is no size; the size of {name} is a whole number from 1 to {limit}")]
    BadSize {
        /// The size as given.
        size: String,
        /// The whole text.
        text: String,
        /// The axis it stands for.
        name: String,
        /// The largest size allowed.
        limit: usize,
    },
    /// An axis in a `--mesh` text that no strategy has.
    #[error(
        "unknown axis {name:?} in the mesh {text:?}; the axes are dp (data parallel) and tp (tensor parallel){hint}"
    )]
    UnknownStrategy {
        /// The name as given.
        name: String,
        /// The whole text.
        text: String,
        /// A clause with the nearest name, or nothing.
        hint: String,
    },
    /// An axis for a kind of parallelism that is not built.
    #[error(
        "the axis {name:?} ({meaning}) in the mesh {text:?} is not built yet; use dp (data parallel) and tp (tensor parallel)"
    )]
    NotBuilt {
        /// The axis.
        name: String,
        /// What the axis would mean.
        meaning: String,
        /// The whole text.
        text: String,
    },
    /// Several devices and nothing to do with them.
    #[error(
        "mesh_shape {mesh} has {devices} devices but no parallelism is enabled; set enable_ddp: true (dp {devices}) or enable_tp: true (tp {devices}), or mesh_shape: [1, 1] for one device"
    )]
    NoStrategy {
        /// The mesh shape.
        mesh: String,
        /// Its number of devices.
        devices: usize,
    },
    /// Strategies and axes that do not match.
    #[error("mesh_shape {mesh} has {problem}; {mend}")]
    AxesDoNotMatch {
        /// The mesh shape.
        mesh: String,
        /// Its axes and strategies, and the rule that they break.
        problem: String,
        /// What would work.
        mend: String,
    },
    /// A cluster axis that a mesh of rows and columns does not have.
    #[error(
        "the cluster axis {axis} is neither 0 (down the rows: the devices of a column) nor 1 (across the columns: those of a row)"
    )]
    ClusterAxis {
        /// The axis given.
        axis: usize,
    },
    /// A mesh that does not lie on the machine of a descriptor.
    #[error(
        "a mesh of {mesh} does not lie on {machine} of {shape}; give one that is no larger, either way round, or 1xN of its devices"
    )]
    NotOnMachine {
        /// The mesh asked for.
        mesh: String,
        /// The mesh descriptor's name.
        machine: String,
        /// Its shape.
        shape: String,
    },
    /// A collective that names a device outside its group.
    #[error("{collective} names device {device} of a group whose devices are 0 to {last}; give one of those")]
    NotInGroup {
        /// The collective's name.
        collective: &'static str,
        /// The device named.
        device: usize,
        /// The last device of the group.
        last: usize,
    },
    /// An algorithm that a collective does not have.
    #[error("{collective} has no {algorithm} algorithm; it has {known}")]
    NoAlgorithm {
        /// The collective's name.
        collective: &'static str,
        /// The algorithm asked for.
        algorithm: &'static str,
        /// Those that there are.
        known: String,
    },
    /// A number of parallel links that a connection does not have.
    #[error("num_links is {asked}, but {channels} channels join neighbouring devices; give 1 to {channels}")]
    TooManyLinks {
        /// Links asked for.
        asked: usize,
        /// Channels of each connection.
        channels: usize,
    },
    /// A group too large for its messages to be listed one by one.
    #[error(
        "a schedule lists every message, for up to {limit} devices, and the group has {devices}; ask for its traffic instead"
    )]
    TooManyToList {
        /// Devices of the group.
        devices: usize,
        /// The most that are listed.
        limit: usize,
    },
    /// A tensor that cannot be dealt out, or parts that cannot be put together, as asked.
    #[error("{what}")]
    Distribution {
        /// The whole sentence.
        what: String,
    },
}
