//! Random programs over several views of one system, run and interpreted at once.
//!
//! The interpreter carries out each command in program order, on a device at a time, on arrays of its own. A captured command is
//! kept and interpreted whenever its trace is executed.

use super::{Draw, Mix, members, mix};
use std::collections::{HashMap, HashSet};
use unisono_runtime::{Buffer, BufferRef, Group, HostData, Kind, Pending, Runtime, Trace};

/// A live buffer.
struct Live {
    buffer: Buffer,
    /// The view that it was allocated on, by number.
    view: usize,
    /// Whether it holds what the interpreter knows: not so for a result of a trace that has not been executed.
    defined: bool,
}

/// A command as the interpreter sees it: buffers by id, parts by first element.
#[derive(Clone)]
struct Step {
    view: usize,
    out: (u64, usize, usize),
    ins: Vec<u64>,
    update: bool,
    salt: u32,
    group: Option<Group>,
}

/// A trace, and what its execution does.
struct Captured {
    trace: Trace,
    steps: Vec<Step>,
    /// Buffers made inside, with their view and length.
    own: Vec<(u64, usize, usize)>,
    /// Buffers of the program that it uses.
    foreign: HashSet<u64>,
}

/// What has been captured so far: commands, and buffers made inside as in [`Captured`].
#[derive(Default)]
struct Open {
    steps: Vec<Step>,
    own: Vec<(u64, usize, usize)>,
}

/// How a program is to be.
#[derive(Clone, Copy)]
pub struct Style {
    /// Whether some commands take long.
    pub slow: bool,
    /// Whether parts are captured and replayed.
    pub traces: bool,
}

/// A program being written, run and interpreted at once.
pub struct Program {
    views: Vec<Runtime>,
    draw: Draw,
    style: Style,
    live: Vec<Live>,
    /// Elements by buffer and device of the system; nothing on devices that have no part in the buffer.
    values: HashMap<u64, Vec<Vec<u32>>>,
    pending: Vec<(Pending, Vec<u32>)>,
    capture: Option<Open>,
    traces: Vec<Captured>,
    /// How often a trace was executed, and how often that was refused because a buffer was gone.
    pub executed: usize,
    pub refused: usize,
}

impl Program {
    pub fn new(views: Vec<Runtime>, draw: Draw, style: Style) -> Program {
        Program {
            views,
            draw,
            style,
            live: Vec::new(),
            values: HashMap::new(),
            pending: Vec::new(),
            capture: None,
            traces: Vec::new(),
            executed: 0,
            refused: 0,
        }
    }

    pub fn step(&mut self) {
        if self.style.traces && self.draw.below(6) == 0 {
            return self.trace_step();
        }
        match self.draw.below(17) {
            0 | 1 => self.upload(),
            2 if self.live.len() > 3 => self.drop_one(),
            3 => self.read_later(),
            4 if self.draw.below(8) == 0 => self.any_view().sync().expect("no failure"),
            5..=8 => self.fresh(),
            9 => self.refresh(),
            _ => self.update(),
        }
    }

    fn trace_step(&mut self) {
        match self.draw.below(8) {
            0 | 1 if self.traces.len() < 4 => self.capture(),
            2 if !self.traces.is_empty() && self.draw.below(3) == 0 => {
                let victim = self.draw.below(self.traces.len());
                let gone = self.traces.swap_remove(victim);
                if self.draw.below(2) == 0 {
                    gone.trace.release();
                }
                self.forget(gone);
            }
            _ if !self.traces.is_empty() => self.execute(),
            _ => self.capture(),
        }
    }

    fn any_view(&mut self) -> Runtime {
        let view = self.draw.below(self.views.len());
        self.views[view].clone()
    }

    fn devices(&self, view: usize) -> &[usize] {
        self.views[view].view().devices()
    }

    /// Whether all devices of a view have a part in a buffer of another.
    fn reaches(&self, buffers: usize, view: usize) -> bool {
        self.views[view].view().is_of(self.views[buffers].view())
    }

    /// A view on which a buffer may be used.
    fn view_for(&mut self, index: usize) -> usize {
        let on = self.live[index].view;
        let fit: Vec<usize> = (0..self.views.len()).filter(|view| self.reaches(on, *view)).collect();
        fit[self.draw.below(fit.len())]
    }

    fn len(&mut self) -> usize {
        // Small and large blocks, so that both kinds of holes are reused.
        [1, 16, 100, 1000, 9000][self.draw.below(5)]
    }

    /// A new buffer, undefined yet, by its place among the live ones.
    fn alloc(&mut self, view: usize, len: usize, kind: Kind) -> usize {
        let buffer = self.views[view].alloc(len, kind).expect("memory");
        let blank = self.blank(view, len);
        self.values.insert(buffer.id, blank);
        if let Some(open) = &mut self.capture {
            open.own.push((buffer.id, view, len));
        }
        self.live.push(Live {
            buffer,
            view,
            defined: true,
        });
        self.live.len() - 1
    }

    fn blank(&self, view: usize, len: usize) -> Vec<Vec<u32>> {
        let system = self.views[0].view().num_devices();
        let mut blank = vec![Vec::new(); system];
        for device in self.devices(view) {
            blank[*device] = vec![0; len];
        }
        blank
    }

    fn upload(&mut self) {
        let (view, len) = (self.draw.below(self.views.len()), self.len());
        let index = self.alloc(view, len, Kind::Data);
        self.fill(index, view);
    }

    /// A live buffer gets other values from the host.
    fn refresh(&mut self) {
        if let Some(index) = self.one_defined() {
            let view = self.view_for(index);
            self.fill(index, view);
        }
    }

    fn fill(&mut self, index: usize, view: usize) {
        let buffer = self.live[index].buffer.r();
        let draw = &mut self.draw;
        let mut array = |salt: usize| -> Vec<u32> {
            let start = draw.below(1 << 20) + salt;
            (0..buffer.len).map(|i| mix(start as u32, i as u32)).collect()
        };
        let devices = self.views[view].view().devices().to_vec();
        let same = array(0);
        let each: Vec<Vec<u32>> = (0..devices.len()).map(&mut array).collect();
        let floats = |array: &[u32]| -> Vec<f32> { array.iter().map(|bits| f32::from_bits(*bits)).collect() };
        let bytes = |array: &[u32]| -> Vec<u8> { array.iter().flat_map(|bits| bits.to_ne_bytes()).collect() };
        let everywhere = vec![same.clone(); devices.len()];
        let (data, expected) = match self.draw.below(6) {
            0 => (HostData::F32(floats(&same).into()), everywhere),
            1 => (HostData::U32(same.into()), everywhere),
            2 => (HostData::Bytes(bytes(&same).into()), everywhere),
            3 => {
                let arrays = each.iter().map(|array| floats(array).into()).collect();
                (HostData::F32PerDevice(arrays), each)
            }
            4 => {
                let arrays = each.iter().map(|array| bytes(array).into()).collect();
                (HostData::BytesPerDevice(arrays), each)
            }
            _ => {
                let arrays = each.iter().map(|array| array.clone().into()).collect();
                (HostData::U32PerDevice(arrays), each)
            }
        };
        self.views[view].upload(buffer, data).expect("lengths agree");
        let values = self.values.get_mut(&buffer.id).expect("it lives");
        for (device, expected) in devices.into_iter().zip(expected) {
            values[device] = expected;
        }
    }

    fn drop_one(&mut self) {
        let victim = self.draw.below(self.live.len());
        // A buffer from before a capture that is freed inside it is an error, which other tests are for.
        if let Some(open) = &self.capture
            && open.own.iter().all(|(id, ..)| *id != self.live[victim].buffer.id)
        {
            return;
        }
        let gone = self.live.swap_remove(victim).buffer;
        let traced = self.traces.iter().any(|captured| captured.owns(gone.id));
        if !traced && self.capture.is_none() {
            self.values.remove(&gone.id);
        }
    }

    fn one_defined(&mut self) -> Option<usize> {
        let defined: Vec<usize> = (0..self.live.len()).filter(|index| self.live[*index].defined).collect();
        (!defined.is_empty()).then(|| defined[self.draw.below(defined.len())])
    }

    /// Some buffers of at least `len` elements that a command on `view` may read.
    fn inputs(&mut self, view: usize, len: usize) -> Vec<usize> {
        let count = self.draw.below(3);
        let fits = |live: &Live| live.defined && live.buffer.len >= len && self.reaches(live.view, view);
        let fit: Vec<usize> = (0..self.live.len()).filter(|index| fits(&self.live[*index])).collect();
        (0..count.min(fit.len()))
            .map(|_| fit[self.draw.below(fit.len())])
            .collect()
    }

    fn group(&mut self, view: usize) -> Option<Group> {
        let mesh = self.views[view].mesh();
        match self.draw.below(4) {
            0 => Some(Group::All),
            1 if !mesh.axes().is_empty() => {
                let index = self.draw.below(mesh.axes().len());
                Some(Group::Along(mesh.axis_at(index).expect("an axis")))
            }
            _ => None,
        }
    }

    /// A new buffer, written whole.
    fn fresh(&mut self) {
        let (view, len) = (self.draw.below(self.views.len()), self.len());
        let index = self.alloc(view, len, Kind::Activation);
        self.write(index, view, 0, len, false);
    }

    /// A part of a buffer, changed on some of its devices.
    fn update(&mut self) {
        let Some(index) = self.one_defined() else {
            return self.fresh();
        };
        let view = self.view_for(index);
        let len = self.live[index].buffer.len;
        let (from, to) = match self.draw.below(2) {
            0 => (0, len),
            _ => {
                let from = self.draw.below(len);
                (from, from + 1 + self.draw.below(len - from))
            }
        };
        self.write(index, view, from, to - from, true);
    }

    fn write(&mut self, index: usize, view: usize, from: usize, len: usize, update: bool) {
        let out = self.live[index].buffer.part(from, len);
        let inputs: Vec<usize> = self
            .inputs(view, len)
            .into_iter()
            .filter(|input| *input != index)
            .collect();
        let ins: Vec<BufferRef> = inputs
            .iter()
            .map(|input| self.live[*input].buffer.part(0, len))
            .collect();
        let mut op = Mix::new(out, &ins, self.draw.below(1 << 30) as u32);
        op.update = update;
        op.group = self.group(view);
        op.tiles = 1 + self.draw.below(5);
        op.delay = match self.draw.below(8) {
            0 if self.style.slow => self.draw.below(200) as u64,
            _ => 0,
        };
        let step = Step {
            view,
            out: (out.id, from, len),
            ins: ins.iter().map(|buffer| buffer.id).collect(),
            update,
            salt: op.salt,
            group: op.group,
        };
        match &mut self.capture {
            Some(open) => open.steps.push(step),
            None => self.interpret(&step),
        }
        let issued = match self.draw.below(3) {
            0 => self.views[view].issue_transfer(op.command()),
            _ => self.views[view].issue(op.command()),
        };
        issued.expect("no failure");
    }

    fn interpret(&mut self, step: &Step) {
        let view = &self.views[step.view];
        let devices = view.view().devices();
        let (id, from, len) = step.out;
        // Taken out, so that the inputs can be looked at meanwhile: they are other buffers.
        let mut out = self.values.remove(&id).expect("it is known");
        for first in 0..devices.len() {
            let members = members(view.mesh(), step.group, first);
            if members[0] != first {
                continue;
            }
            for i in 0..len {
                let mut h = mix(step.salt, i as u32);
                for place in &members {
                    let device = devices[*place];
                    if step.update {
                        h = mix(h, out[device][from + i]);
                    }
                    for input in &step.ins {
                        h = mix(h, self.values[input][device][i]);
                    }
                }
                for place in &members {
                    // Written only after all members were read, because position i of a member depends on no other.
                    out[devices[*place]][from + i] = h;
                }
            }
        }
        self.values.insert(id, out);
    }

    fn read_later(&mut self) {
        let Some(index) = self.one_defined() else {
            return;
        };
        let view = self.view_for(index);
        let place = self.draw.below(self.devices(view).len());
        let device = self.devices(view)[place];
        let buffer = self.live[index].buffer.r();
        let pending = self.views[view].read_later(buffer, place).expect("no failure");
        self.pending.push((pending, self.values[&buffer.id][device].clone()));
        if self.pending.len() > 5 {
            let which = self.draw.below(self.pending.len());
            check(self.pending.swap_remove(which));
        }
    }

    /// Captures some commands, on any views, with buffers made and freed meanwhile.
    fn capture(&mut self) {
        self.any_view().begin_capture().expect("no capture is on");
        self.capture = Some(Open::default());
        for _ in 0..3 + self.draw.below(12) {
            match self.draw.below(5) {
                0 if !self.live.is_empty() => self.drop_one(),
                1 | 2 => self.fresh(),
                _ => self.update(),
            }
        }
        let trace = self.any_view().end_capture().expect("no buffer is gone");
        let Open { steps, own } = self.capture.take().expect("it was on");
        let owns = |id: u64| own.iter().any(|(known, ..)| *known == id);
        // Nothing of it has been run yet.
        for live in self.live.iter_mut().filter(|live| owns(live.buffer.id)) {
            live.defined = false;
        }
        let touched = steps
            .iter()
            .flat_map(|step| step.ins.iter().copied().chain([step.out.0]));
        let foreign: HashSet<u64> = touched.filter(|id| !owns(*id)).collect();
        assert_eq!(trace.num_commands(), steps.len());
        self.traces.push(Captured {
            trace,
            steps,
            own,
            foreign,
        });
    }

    fn execute(&mut self) {
        let which = self.draw.below(self.traces.len());
        let lives = |id: &u64| self.live.iter().any(|live| live.buffer.id == *id);
        if !self.traces[which].foreign.iter().all(lives) {
            let error = self.traces[which].trace.execute().expect_err("a buffer is gone");
            assert!(error.to_string().contains("which has been freed"), "{error}");
            self.refused += 1;
            return;
        }
        // What another trace has yet to compute is no input for this one.
        let ready = |id: &u64| self.live.iter().any(|live| live.buffer.id == *id && live.defined);
        if !self.traces[which].foreign.iter().all(ready) {
            return;
        }
        self.traces[which].trace.execute().expect("all that it uses is there");
        self.executed += 1;
        for (id, view, len) in self.traces[which].own.clone() {
            let blank = self.blank(view, len);
            self.values.insert(id, blank);
        }
        for step in self.traces[which].steps.clone() {
            self.interpret(&step);
        }
        let captured = &self.traces[which];
        for live in self.live.iter_mut().filter(|live| captured.owns(live.buffer.id)) {
            live.defined = true;
        }
    }

    /// A trace is gone; what the program holds of its results stays.
    fn forget(&mut self, gone: Captured) {
        for (id, ..) in &gone.own {
            if self.live.iter().all(|live| live.buffer.id != *id) {
                self.values.remove(id);
            }
        }
    }

    /// Compares everything that lives, on every device.
    pub fn finish(&mut self) {
        self.pending.drain(..).for_each(check);
        for live in self.live.iter().filter(|live| live.defined) {
            let runtime = &self.views[live.view];
            for (place, device) in runtime.view().devices().iter().enumerate() {
                let found = runtime.read_u32(live.buffer.r(), place).expect("no failure");
                assert_same(&found, &self.values[&live.buffer.id][*device], *device);
            }
        }
    }
}

impl Captured {
    fn owns(&self, id: u64) -> bool {
        self.own.iter().any(|(known, ..)| *known == id)
    }
}

fn check((pending, expected): (Pending, Vec<u32>)) {
    assert_same(&pending.wait_u32().expect("no failure"), &expected, 0);
}

fn assert_same(found: &[u32], expected: &[u32], device: usize) {
    assert_eq!(found.len(), expected.len());
    if let Some(i) = (0..found.len()).find(|i| found[*i] != expected[*i]) {
        panic!(
            "device {device}, element {i} of {}: {:#x} found, {:#x} expected",
            found.len(),
            found[i],
            expected[i]
        );
    }
}
