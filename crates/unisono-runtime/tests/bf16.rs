//! Operations on bf16 buffers give what they give on f32 buffers of the same numbers, rounded once: through offsets, tiles and
//! groups of devices. The kernels beneath have tests of their own.
#![allow(missing_docs)]

mod common;

use common::open;
use unisono_kernels::copy::Strided;
use unisono_kernels::element::Bf16;
use unisono_kernels::order::Units;
use unisono_kernels::philox::Stream;
use unisono_runtime::ops::all_reduce::{AllReduce, Reduction};
use unisono_runtime::ops::cache::{CacheAppend, Fused};
use unisono_runtime::ops::copy::Copy;
use unisono_runtime::ops::digest::Digest;
use unisono_runtime::ops::dropout::Dropout;
use unisono_runtime::ops::elementwise::{Binary, Combine, Map, MapGrad, Operand, Unary};
use unisono_runtime::ops::embedding::{Lookup, LookupGrad};
use unisono_runtime::ops::fill::Fill;
use unisono_runtime::ops::gather::{AllGather, Broadcast, SelectRows, TakePart};
use unisono_runtime::ops::norm::{Norm, NormGrad, NormParamGrad};
use unisono_runtime::ops::optimizer::{AdamW, AdamWStep, Sgd, SgdStep};
use unisono_runtime::ops::reduce::{ColumnSums, Move};
use unisono_runtime::ops::{Region, SumShare};
use unisono_runtime::{Buffer, Command, Dtype, HostData, Kind, Runtime};

/// Rows and columns: more than a tile, an odd number of elements.
const ROWS: usize = 257;
const COLS: usize = 129;

fn rounded(x: &[f32]) -> Vec<f32> {
    x.iter().map(|x| Bf16::from_f32(*x).to_f32()).collect()
}

/// Numbers of bf16 in −2..2.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut x = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let next = |_| {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Bf16::from_f32((x >> 8) as f32 / 4_194_304.0 - 2.0).to_f32()
    };
    (0..count).map(next).collect()
}

fn issue(runtime: &Runtime, command: impl Into<Command>) {
    runtime.issue(command).expect("no failure");
}

fn empty(runtime: &Runtime, dtype: Dtype, len: usize) -> Buffer {
    runtime.alloc_as(dtype, len, Kind::Activation).expect("memory")
}

/// A buffer with other numbers on each device.
fn filled(runtime: &Runtime, dtype: Dtype, len: usize, seed: u32) -> Buffer {
    let buffer = empty(runtime, dtype, len);
    let devices = runtime.mesh().num_devices() as u32;
    let values = (0..devices).map(|d| numbers(len, seed + 100 * d).into()).collect();
    runtime
        .upload(buffer.r(), HostData::F32PerDevice(values))
        .expect("no failure");
    buffer
}

fn words(runtime: &Runtime, words: Vec<u32>) -> Buffer {
    let buffer = empty(runtime, Dtype::U32, words.len());
    runtime.upload(buffer.r(), words).expect("no failure");
    buffer
}

/// Runs `program` on f32 and on bf16 buffers; what it returns must be equal, that in bf16 rounded, on each device.
#[track_caller]
fn compare(axes: &[(&str, usize)], program: impl Fn(&Runtime, Dtype) -> Vec<Buffer>) {
    let results = [Dtype::F32, Dtype::Bf16].map(|dtype| {
        let runtime = open(axes, 2);
        let buffers = program(&runtime, dtype);
        let devices = 0..runtime.mesh().num_devices();
        let read = |buffer: &Buffer| {
            let read = |device| runtime.read_f32(buffer.r(), device).expect("no failure");
            (buffer.r().dtype, devices.clone().map(read).collect::<Vec<_>>())
        };
        buffers.iter().map(read).collect::<Vec<_>>()
    });
    let [wide, half] = results;
    assert!(half.iter().any(|(_, values)| values[0].iter().any(|x| *x != 0.0)));
    for (i, ((_, wide), (dtype, half))) in wide.iter().zip(&half).enumerate() {
        for (device, (wide, half)) in wide.iter().zip(half).enumerate() {
            let want = match dtype {
                Dtype::Bf16 => rounded(wide),
                _ => wide.clone(),
            };
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert!(bits(half) == bits(&want), "result {i} on device {device}");
        }
    }
}

#[test]
fn functions_of_elements() {
    let len = ROWS * COLS;
    compare(&[("dp", 2)], |runtime, dtype| {
        let (a, b) = (filled(runtime, dtype, len, 1), filled(runtime, dtype, len, 2));
        let row = filled(runtime, dtype, COLS, 3);
        let scalar = filled(runtime, Dtype::F32, 1, 4);
        let result = |issued: &dyn Fn(&Buffer)| {
            let to = empty(runtime, dtype, len);
            issued(&to);
            to
        };
        let combine = |b: Operand, swapped: bool| {
            result(&|to| {
                let (f, a, to) = (Binary::Sub, a.r(), to.r());
                issue(runtime, Combine { f, a, b, swapped, to });
            })
        };
        vec![
            result(&|to| {
                let (f, x, to) = (Unary::GeluTanh, a.r(), to.r());
                issue(runtime, Map { f, x, to });
            }),
            result(&|to| {
                let (f, x, dy, to) = (Unary::GeluTanh, a.r(), b.r(), to.r());
                issue(runtime, MapGrad { f, x, dy, to });
            }),
            combine(Operand::Buffer(b.r()), false),
            combine(Operand::Buffer(row.r()), true),
            combine(Operand::Value(0.1003), false),
            combine(Operand::Scalar(scalar.r()), true),
            result(&|to| {
                let stream = Stream {
                    seed: 1,
                    site: 2,
                    step: 3,
                };
                let (region, p) = (Region::whole(len), 0.25);
                let (x, residual, to) = (a.r(), Some(b.r()), to.r());
                issue(
                    runtime,
                    Dropout {
                        x,
                        residual,
                        to,
                        region,
                        stream,
                        p,
                    },
                );
            }),
        ]
    });
}

#[test]
fn norms_and_sums_over_tokens() {
    let len = ROWS * COLS;
    compare(&[("dp", 2)], |runtime, dtype| {
        let (x, dy) = (filled(runtime, dtype, len, 1), filled(runtime, dtype, len, 2));
        let (y, dx) = (empty(runtime, dtype, len), empty(runtime, dtype, len));
        let wide = |len: usize| empty(runtime, Dtype::F32, len);
        let gamma = filled(runtime, Dtype::F32, COLS, 3);
        let (mean, rstd, dgamma, dbeta, sums) = (wide(ROWS), wide(ROWS), wide(COLS), wide(COLS), wide(COLS));
        issue(
            runtime,
            Norm {
                x: x.r(),
                cols: COLS,
                gamma: Some(gamma.r()),
                beta: None,
                eps: 1e-5,
                y: y.r(),
                mean: Some(mean.r()),
                rstd: rstd.r(),
            },
        );
        issue(
            runtime,
            NormGrad {
                x: x.r(),
                cols: COLS,
                dy: dy.r(),
                gamma: Some(gamma.r()),
                mean: Some(mean.r()),
                rstd: rstd.r(),
                dx: dx.r(),
            },
        );
        let sum = SumShare::whole(Units::whole(ROWS));
        issue(
            runtime,
            NormParamGrad {
                x: x.r(),
                cols: COLS,
                dy: dy.r(),
                mean: Some(mean.r()),
                rstd: rstd.r(),
                sum,
                dgamma: Some(dgamma.r()),
                dbeta: Some(dbeta.r()),
                slot: COLS,
            },
        );
        issue(
            runtime,
            ColumnSums {
                x: x.r(),
                cols: COLS,
                sum,
                to: sums.r(),
                slot: COLS,
            },
        );
        vec![y, dx, mean, rstd, dgamma, dbeta, sums]
    });
}

#[test]
fn tables() {
    compare(&[("tp", 2)], |runtime, dtype| {
        let axis = Some(runtime.mesh().axis("tp").expect("the axis"));
        let ids = words(runtime, (0..ROWS as u32).map(|t| t * t % 20).collect());
        let table = filled(runtime, dtype, 10 * COLS, 1);
        let (to, grad) = (
            empty(runtime, dtype, ROWS * COLS),
            empty(runtime, Dtype::F32, 10 * COLS),
        );
        issue(
            runtime,
            Lookup {
                table: table.r(),
                cols: COLS,
                axis,
                ids: ids.r(),
                to: to.r(),
            },
        );
        let dy = filled(runtime, dtype, ROWS * COLS, 2);
        issue(
            runtime,
            LookupGrad {
                ids: ids.r(),
                dy: dy.r(),
                cols: COLS,
                rows: 10,
                axis,
                sum: SumShare::whole(Units::whole(ROWS)),
                to: grad.r(),
                slot: 10 * COLS,
            },
        );
        vec![to, grad]
    });
}

#[test]
fn moves() {
    let len = ROWS * COLS;
    compare(&[("dp", 2)], |runtime, dtype| {
        let axis = runtime.mesh().axis("dp").expect("the axis");
        let from = filled(runtime, dtype, len, 1);
        let (source, outer) = (from.r(), ROWS);
        let [moved, copied, sent, chosen, part] =
            [len, len, len, len, outer * 64].map(|len| empty(runtime, dtype, len));
        let gathered = empty(runtime, dtype, 2 * len);
        let set = empty(runtime, dtype, 77);
        issue(
            runtime,
            Move {
                from: source,
                to: moved.r(),
            },
        );
        // A transpose.
        let plan = Strided {
            dims: [1, 1, 1, 1, COLS, ROWS],
            src: [0, 0, 0, 0, 1, COLS],
            dst: [0, 0, 0, 0, ROWS, 1],
            src_offset: 0,
            dst_offset: 0,
        };
        issue(
            runtime,
            Copy {
                from: source,
                to: copied.r(),
                plan,
            },
        );
        issue(
            runtime,
            AllGather {
                axis,
                root: None,
                outer,
                inner: COLS,
                from: source,
                to: gathered.r(),
            },
        );
        issue(
            runtime,
            TakePart {
                axis,
                outer,
                inner: 64,
                // From an odd element on, so that in bf16 it does not begin at a whole word.
                from: source.part(1, outer * 2 * 64),
                to: part.r(),
            },
        );
        issue(
            runtime,
            Broadcast {
                axis,
                root: 1,
                from: source,
                to: sent.r(),
            },
        );
        let ids = words(runtime, (0..ROWS as u32).map(|row| row * 7 % 24).collect());
        issue(
            runtime,
            SelectRows {
                axis,
                shard: 10,
                ids: ids.r(),
                cols: COLS,
                from: source,
                to: chosen.r(),
            },
        );
        issue(
            runtime,
            Fill {
                to: set.r(),
                value: 1.003,
            },
        );
        vec![moved, copied, gathered, part, sent, chosen, set]
    });
}

#[test]
fn a_cache_of_keys_and_values() {
    compare(&[("tp", 2)], |runtime, dtype| {
        let layout = Fused {
            groups: 3,
            heads_per_group: 2,
            head_dim: 5,
        };
        let (sequences, tokens, capacity) = (2, 4, 11);
        let fused = filled(runtime, dtype, sequences * tokens * layout.token(), 1);
        let positions = words(runtime, vec![3, 0]);
        let room = sequences * layout.groups * capacity * layout.head_dim;
        let (keys, values) = (empty(runtime, dtype, room), empty(runtime, dtype, room));
        for cache in [&keys, &values] {
            issue(
                runtime,
                Fill {
                    to: cache.r(),
                    value: 0.0,
                },
            );
        }
        issue(
            runtime,
            CacheAppend {
                k: layout.keys(fused.r(), tokens),
                v: layout.values(fused.r(), tokens),
                groups: layout.groups,
                head_dim: layout.head_dim,
                tokens,
                positions: positions.r(),
                capacity,
                keys: keys.r(),
                values: values.r(),
            },
        );
        vec![keys, values]
    });
}

#[test]
fn a_partial_sum_is_finished_into_bf16() {
    let len = ROWS * COLS;
    for (per_device, reduction) in [
        (1, Reduction::Sum { units: 3 }),
        (2, Reduction::Sum { units: 6 }),
        (1, Reduction::Max),
    ] {
        compare(&[("tp", 3)], |runtime, dtype| {
            let from = filled(runtime, Dtype::F32, per_device * len, 1);
            let to = empty(runtime, dtype, len);
            issue(
                runtime,
                AllReduce {
                    axis: runtime.mesh().axis("tp").expect("the axis"),
                    reduction,
                    from: from.r(),
                    slot: len,
                    len,
                    to: to.r(),
                },
            );
            vec![to]
        });
    }
}

#[test]
fn digests_see_every_bit() {
    let runtime = open(&[("dp", 2)], 2);
    let len = ROWS * COLS;
    let x = empty(&runtime, Dtype::Bf16, len);
    let to = empty(&runtime, Dtype::U32, Digest::words(len));
    let mut values = vec![numbers(len, 1); 2];
    let mut digests = |change: Option<usize>| {
        if let Some(at) = change {
            values[1][at] = f32::from_bits(values[1][at].to_bits() ^ 0x1_0000);
        }
        let data = HostData::F32PerDevice(values.iter().map(|x| x[..].into()).collect());
        runtime.upload(x.r(), data).expect("no failure");
        let (x, to) = (x.r(), to.r());
        issue(&runtime, Digest { x, to });
        [0, 1].map(|device| runtime.read_u32(to, device).expect("no failure"))
    };
    let [a, b] = digests(None);
    assert_eq!(a, b);
    let [a, b] = digests(Some(len - 1));
    assert_ne!(a, b);
}

#[test]
fn a_copy_is_written_with_its_parameter_or_not_at_all() {
    let len = ROWS * COLS;
    let runtime = open(&[("dp", 2)], 2);
    let wide = |seed: u32| filled(&runtime, Dtype::F32, len, seed);
    let (p, g, m, v) = (wide(1), wide(2), wide(3), wide(4));
    let (copy, control) = (filled(&runtime, Dtype::Bf16, len, 5), empty(&runtime, Dtype::F32, 4));
    issue(&runtime, Fill { to: v.r(), value: 0.5 });
    let adam = AdamWStep {
        hyper: AdamW {
            lr: 1e-2,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.1,
            bias_correction1: 0.1,
            bias_correction2: 0.05,
            grad_scale: 1.0,
        },
        control: Some(control.r()),
        p: p.r(),
        m: m.r(),
        v: v.r(),
        g: g.r(),
        copy: Some(copy.r()),
    };
    let sgd = SgdStep {
        hyper: Sgd {
            lr: 1e-2,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            grad_scale: 1.0,
            first_step: false,
        },
        control: Some(control.r()),
        p: p.r(),
        momentum: None,
        g: g.r(),
        copy: Some(copy.r()),
    };
    let read = |buffer: &Buffer| [0, 1].map(|device| runtime.read_f32(buffer.r(), device).expect("no failure"));
    let steps: [Command; 2] = [adam.into(), sgd.into()];
    for step in steps {
        for go in [0.0, 1.0] {
            let before = (read(&p), read(&copy));
            runtime
                .upload(control.r(), vec![1.0, 1.0, go, 1.0])
                .expect("no failure");
            runtime.issue(step.clone()).expect("no failure");
            let after = (read(&p), read(&copy));
            if go == 0.0 {
                assert_eq!(before, after);
            } else {
                assert_ne!(before.0, after.0);
                assert_eq!(after.1, after.0.clone().map(|p| rounded(&p)));
            }
        }
    }
}
