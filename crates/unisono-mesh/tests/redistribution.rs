//! Plans from one placement to another: the cheapest, in words, and every error.

use unisono_mesh::{Layout, Mesh, Move, Placement, Redistribution};

use Placement::{Partial, Replicate, Shard};

fn mesh(sizes: &[usize]) -> Mesh {
    Mesh::grid(sizes).expect("a mesh")
}

fn plan(sizes: &[usize], shape: &[usize], from: &[Placement], to: &[Placement]) -> Redistribution {
    let layout = Layout {
        shape,
        placements: from,
        element: 4,
        addends: 4,
    };
    Redistribution::plan(&mesh(sizes), &layout, to).expect("a plan")
}

fn moves(plan: &Redistribution) -> Vec<(Move, usize)> {
    plan.steps.iter().map(|step| (step.what, step.axis)).collect()
}

#[test]
fn one_axis_takes_one_step_of_the_textbook_size() {
    // 64 elements, 256 bytes, over 4 devices.
    let cases = [
        (Shard(0), Replicate, Move::AllGather, 192),
        (Replicate, Shard(1), Move::Slice, 0),
        (Shard(0), Shard(1), Move::AllToAll, 48),
        (Partial, Replicate, Move::AllReduce, 384),
        (Partial, Shard(0), Move::ReduceScatter, 192),
    ];
    for (from, to, what, bytes) in cases {
        let plan = plan(&[4], &[8, 8], &[from], &[to]);
        assert_eq!((moves(&plan), plan.bytes()), (vec![(what, 0)], bytes), "{from} to {to}");
    }
    for same in [Replicate, Shard(1), Partial] {
        assert!(plan(&[4], &[8, 8], &[same], &[same]).steps.is_empty());
    }
}

#[test]
fn several_axes_are_taken_in_the_cheapest_order() {
    // The sum first in parts, since the aim is cut; the other axis is cut for nothing.
    let p = plan(&[2, 4], &[8, 8], &[Replicate, Partial], &[Shard(0), Shard(1)]);
    assert_eq!(moves(&p), [(Move::ReduceScatter, 1), (Move::Slice, 0)]);
    assert_eq!(p.bytes(), 192);
    // To gather first would send 3 · 64. Exchanged into another dim (48), the dim is free to be cut by the other axis, and half as
    // much is left to gather (96).
    let p = plan(&[2, 4], &[8, 8], &[Replicate, Shard(0)], &[Shard(0), Replicate]);
    assert_eq!(moves(&p), [(Move::AllToAll, 1), (Move::Slice, 0), (Move::AllGather, 1)]);
    assert_eq!(p.bytes(), 144);
    // In the same way a sum is completed in parts, and only what is kept is gathered: 32 + 16 bytes, where an all-reduce sends 64.
    let p = plan(&[2, 2], &[4, 4], &[Replicate, Partial], &[Shard(0), Replicate]);
    assert_eq!(
        moves(&p),
        [(Move::ReduceScatter, 1), (Move::Slice, 0), (Move::AllGather, 1)]
    );
    assert_eq!(p.bytes(), 48);
    // Two axes change places. With a third dim, each part moves aside and none is gathered.
    let swap = plan(&[2, 2], &[4, 4], &[Shard(0), Shard(1)], &[Shard(1), Shard(0)]);
    let aside = plan(&[2, 2], &[4, 4, 4], &[Shard(0), Shard(1)], &[Shard(1), Shard(0)]);
    assert_eq!((swap.bytes(), swap.steps.len()), (32, 3));
    assert_eq!(aside.bytes(), 3 * 32);
    assert!(aside.steps.iter().all(|step| step.what == Move::AllToAll));
    // A dim that does not divide is no way around.
    let odd = plan(&[2, 2], &[4, 4, 3], &[Shard(0), Shard(1)], &[Shard(1), Shard(0)]);
    assert!(odd.steps.iter().any(|step| step.what == Move::AllGather));
}

#[test]
fn axes_that_stay_and_axes_of_one_device_are_left_alone() {
    let p = plan(
        &[2, 1, 2],
        &[4, 4],
        &[Shard(0), Shard(1), Replicate],
        &[Shard(0), Replicate, Shard(1)],
    );
    assert_eq!(moves(&p), [(Move::Slice, 2)]);
    let p = plan(
        &[2, 1, 2],
        &[4, 4],
        &[Shard(0), Replicate, Replicate],
        &[Shard(0), Shard(0), Replicate],
    );
    assert!(p.steps.is_empty());
}

#[test]
fn every_plan_leads_from_its_start_to_its_aim_and_never_cuts_a_dim_twice() {
    let choices = [Replicate, Shard(0), Shard(1), Shard(2), Partial];
    let (sizes, shape) = ([2, 3, 2], [12, 6, 12]);
    let layouts = || {
        (0..125)
            .map(|code| [choices[code % 5], choices[code / 5 % 5], choices[code / 25]])
            .filter(|layout| {
                let unique = |p: &Placement| *p == Replicate || layout.iter().filter(|other| *other == p).count() == 1;
                layout.iter().all(unique)
            })
    };
    let mut tried = 0;
    for from in layouts() {
        for to in layouts().filter(|to| !to.contains(&Partial)) {
            let plan = plan(&sizes, &shape, &from, &to);
            let mut now = from;
            for step in &plan.steps {
                assert_eq!(now[step.axis], step.from);
                let open = now.iter().position(|p| p.is_partial());
                assert!(
                    open.is_none_or(|axis| axis == step.axis),
                    "a partial sum is completed first"
                );
                now[step.axis] = step.to;
                for dim in 0..3 {
                    assert!(now.iter().filter(|p| **p == Shard(dim)).count() <= 1);
                }
            }
            assert_eq!(now, to, "{from:?} to {to:?}");
            // Never dearer than to gather everything.
            let whole = 4 * 12 * 6 * 12;
            assert!(plan.bytes() <= 2 * whole, "{} bytes", plan.bytes());
            tried += 1;
        }
    }
    assert!(tried > 1000, "{tried} plans");
}

#[test]
fn a_mesh_of_many_axes_has_a_plan_at_once() {
    let sizes = [2; 12];
    let shape = [4; 12];
    let from: Vec<Placement> = (0..12).map(Shard).collect();
    let to: Vec<Placement> = (0..12).map(|axis| Shard((axis + 1) % 12)).collect();
    let plan = plan(&sizes, &shape, &from, &to);
    let mut now = from;
    plan.steps.iter().for_each(|step| now[step.axis] = step.to);
    assert_eq!(now, to);
}

#[test]
fn a_plan_reads_as_a_sentence() {
    let mesh = Mesh::new(&[("dp", 2), ("tp", 2)]).expect("a mesh");
    let say = |from: &[Placement], to: &[Placement]| {
        let layout = Layout {
            shape: &[4, 4],
            placements: from,
            element: 4,
            addends: 4,
        };
        Redistribution::plan(&mesh, &layout, to)
            .expect("a plan")
            .sentence(&mesh)
    };
    assert_eq!(
        say(&[Shard(0), Partial], &[Shard(0), Replicate]),
        "all-reduce along `tp` (Partial to Replicate); each device sends 32 bytes"
    );
    assert_eq!(
        say(&[Replicate, Replicate], &[Shard(1), Shard(0)]),
        "each device keeps its own part of dim 1 along `dp` (Replicate to Shard(1)), then each device keeps its own part of dim \
         0 along `tp` (Replicate to Shard(0)); nothing is sent"
    );
    assert_eq!(
        say(&[Shard(0), Replicate], &[Shard(0), Replicate]),
        "the tensor lies so already; nothing is sent"
    );
}

#[test]
fn what_cannot_be_aimed_at_is_refused_in_words() {
    let refused = |shape: &[usize], from: &[Placement], to: &[Placement]| {
        let layout = Layout {
            shape,
            placements: from,
            element: 4,
            addends: 4,
        };
        Redistribution::plan(&mesh(&[2, 4]), &layout, to)
            .expect_err("it must be refused")
            .to_string()
    };
    let whole = [Replicate, Replicate];
    assert_eq!(
        refused(&[8], &whole, &[Replicate]),
        "1 placement for the mesh 2×4 = 8 devices (axis0 2, axis1 4), which has 2 axes; give one placement per axis"
    );
    assert_eq!(
        refused(&[8], &whole, &[Shard(1), Replicate]),
        "Shard(1) along axis `axis0` of a tensor [8], which has 1 dim"
    );
    assert_eq!(
        refused(&[6, 8], &whole, &[Replicate, Shard(0)]),
        "dim 0 of the tensor [6, 8] along axis `axis1` of 4 devices; a dim that is cut must be a multiple of them"
    );
    assert_eq!(
        refused(&[8, 8], &whole, &[Shard(0), Shard(0)]),
        "dim 0 of the tensor [8, 8] is to be cut along axis `axis0` and along axis `axis1`; one axis can cut a dim"
    );
    assert_eq!(
        refused(&[8, 8], &whole, &[Replicate, Partial]),
        "the aim is Partial along axis `axis1`; a tensor becomes a partial sum only by being computed: ask for Replicate or \
         Shard there"
    );
    assert!(refused(&[8, 8], &[Replicate, Partial], &[Shard(0), Partial]).contains("only by being computed"));
}
