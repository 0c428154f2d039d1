//! What generation does to get its texts: how much goes through the model, how caches grow, how data-parallel positions share
//! requests, what a conversation computes again. The texts are the same whatever it does.

mod generate_support;

use generate_support::{DTYPES, POSITIONS, Spy, ids, llama, model, model_in, requests};
use std::ops::ControlFlow;
use unisono_kernels::philox::Stream;
use unisono_nn::LanguageModel;
use unisono_tensor::Dtype;
use unisono_train::generate::{
    Batching, Decoder, Event, Finish, Output, Request, Sampling, Session, Work, generate_events, generate_with,
};

/// Requests of so many new tokens behind prompts of so many.
fn of_lengths(lengths: &[(usize, usize)]) -> Vec<Request> {
    let request = |(index, (prompt, new)): (usize, &(usize, usize))| Request {
        prompt_ids: ids(*prompt, 50 + index as u64),
        max_new_tokens: *new,
        sampling: Sampling {
            seed: index as u64,
            ..Sampling::default()
        },
        ..Request::default()
    };
    lengths.iter().enumerate().map(request).collect()
}

fn all(model: &dyn LanguageModel, requests: &[Request], batching: &Batching) -> Vec<Output> {
    generate_with(model, requests, batching, &mut |_, _| ControlFlow::Continue(())).unwrap()
}

#[test]
fn caches_grow_with_use_and_change_no_bit() {
    for dtype in DTYPES {
        for axes in [&[][..], &[("tp", 2)], &[("dp", 2)]] {
            let model = llama(dtype, axes);
            let tokens = ids(300, 1);
            let mut grown = Decoder::new(&model, 2, 300).unwrap();
            assert_eq!(grown.capacity(), 0, "nothing is taken before it is needed");
            let mut at_once = Decoder::new(&model, 2, 300).unwrap();
            // A neighbour is moved along.
            let _ = grown.append(1, &tokens[7..40], 512).unwrap();
            let mut capacities = Vec::new();
            for (index, id) in tokens.iter().enumerate() {
                let logits = grown.append(0, &[*id], 1).unwrap();
                capacities.push(grown.capacity());
                if [63, 64, 65, 128, 129, 255, 256, 299].contains(&index) {
                    at_once.truncate(0, 0);
                    let expected = at_once.append(0, &tokens[..=index], 512).unwrap().wait().unwrap();
                    assert!(logits.wait().unwrap() == expected, "{index}, {axes:?}, {dtype:?}");
                }
            }
            capacities.dedup();
            assert_eq!(capacities, [64, 128, 256, 300]);
            let neighbour = grown.append(1, &[3], 1).unwrap().wait().unwrap();
            at_once.truncate(1, 0);
            let prompt = [&tokens[7..40], &[3]].concat();
            assert!(at_once.append(1, &prompt, 512).unwrap().wait().unwrap() == neighbour);
        }
    }
}

#[test]
fn a_short_text_takes_little_memory() {
    let model = llama(Dtype::F32, &[]);
    let runtime = model.device().runtime().clone();
    runtime.reset_report();
    let before = runtime.report().memory.current;
    let mut decoder = Decoder::new(&model, 1, 300).unwrap();
    let _ = decoder.append(0, &ids(20, 1), 512).unwrap().wait().unwrap();
    // Keys and values of 2 blocks, 4 groups of 8 elements in f32, for 64 tokens, not 300.
    let cache = 2 * 2 * 4 * 8 * 4 * 64;
    let taken = runtime.report().memory.current - before;
    assert!(
        (cache..2 * cache).contains(&taken),
        "{taken} bytes for a cache of {cache}"
    );
}

#[test]
fn rows_of_requests_that_are_over_cost_nothing() {
    let model = model(&[]);
    let spy = Spy::of(&model);
    // Prompts of one token go through the model with the first step.
    let requests = of_lengths(&[(1, 3), (1, 9), (1, 1), (1, 6)]);
    let outputs = all(&spy, &requests, &Batching::default());
    let steps = spy.take();
    let rows: Vec<usize> = steps.iter().map(|[rows, _]| *rows).collect();
    assert_eq!(rows, [4, 3, 3, 2, 2, 2, 1, 1, 1], "rows of each step");
    let one_lane = Batching {
        sequences: 1,
        ..Batching::default()
    };
    assert_eq!(all(&model, &requests, &one_lane), outputs);
}

#[test]
fn waiting_requests_take_the_room_of_those_that_are_over() {
    let model = model(&[]);
    let spy = Spy::of(&model);
    let requests = of_lengths(&[(1, 2), (1, 5), (1, 3), (1, 2)]);
    let two = Batching {
        sequences: 2,
        ..Batching::default()
    };
    let outputs = all(&spy, &requests, &two);
    assert_eq!(spy.take(), [[2, 1], [2, 1], [2, 1], [2, 1], [2, 1], [1, 1], [1, 1]]);
    assert_eq!(all(&model, &requests, &Batching::default()), outputs);
}

#[test]
fn replicas_share_the_requests() {
    let requests = of_lengths(&[(20, 8), (33, 8), (7, 8), (20, 8)]);
    let alone = all(&model(&[]), &requests, &Batching::default());
    for (axes, rows) in [(&[("dp", 2)][..], 2), (&[("dp", 4)], 1), (&[("dp", 2), ("tp", 2)], 2)] {
        let model = model(axes);
        let spy = Spy::of(&model);
        assert_eq!(all(&spy, &requests, &Batching::default()), alone, "{axes:?}");
        let passes = spy.take();
        let steps: Vec<_> = passes.iter().filter(|[_, tokens]| *tokens == 1).collect();
        // The prompts give the first tokens.
        assert_eq!(steps.len(), 7, "{axes:?}");
        assert!(steps.iter().all(|[r, _]| *r == rows), "{axes:?}: {steps:?}");
        // Prompts in the same slot of different positions go together, each pass as far as the shortest that is left.
        let prompts: Vec<usize> = passes.iter().map(|[_, tokens]| *tokens).filter(|t| *t > 1).collect();
        let expected: &[usize] = if rows == 2 { &[20, 13, 7, 13] } else { &[7, 13, 13] };
        assert_eq!(prompts, expected, "{axes:?}");
    }
}

#[test]
fn a_gap_on_one_replica_leaves_the_others_alone() {
    // Slot 0 of position 0 is free while position 1 still works there; both have a sequence in slot 1.
    let requests = of_lengths(&[(5, 2), (9, 20), (7, 15), (3, 15)]);
    let alone = all(&model(&[]), &requests, &Batching::default());
    let model = model(&[("dp", 2)]);
    let spy = Spy::of(&model);
    assert_eq!(all(&spy, &requests, &Batching::default()), alone);
    let steps = spy.take();
    assert_eq!(steps.last(), Some(&[1, 1]), "the last steps are of one row");
}

#[test]
fn more_replicas_than_requests_leave_some_idle() {
    let requests = of_lengths(&[(70, 20)]);
    let alone = all(&model(&[]), &requests, &Batching::default());
    assert_eq!(all(&model(&[("dp", 4)]), &requests, &Batching::default()), alone);
}

/// Whole numbers drawn from a seed.
struct Draw(Stream, u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.1 += 1;
        self.0.word(self.1) as usize % n
    }
}

#[test]
fn drawn_requests_on_drawn_meshes_in_drawn_batches() {
    let meshes: [&[(&str, usize)]; 5] = [
        &[("dp", 2)],
        &[("dp", 3)],
        &[("tp", 2)],
        &[("dp", 2), ("tp", 2)],
        &[("tp", 2), ("dp", 2)],
    ];
    for dtype in DTYPES {
        let one = model_in(dtype, &[]);
        let others: Vec<_> = meshes.iter().map(|axes| model_in(dtype, axes)).collect();
        for case in 0..8 {
            let stream = Stream {
                seed: case,
                site: 1,
                step: 0,
            };
            let mut draw = Draw(stream, 0);
            let requests: Vec<Request> = (0..1 + draw.below(9))
                .map(|index| Request {
                    prompt_ids: ids(1 + draw.below(POSITIONS), 7 * case + index as u64),
                    max_new_tokens: draw.below(20),
                    sampling: Sampling {
                        temperature: [0.0, 0.7, 1.5][draw.below(3)],
                        top_k: [None, Some(9)][draw.below(2)],
                        top_p: [1.0, 0.8][draw.below(2)],
                        min_p: [0.0, 0.05][draw.below(2)],
                        repetition_penalty: [1.0, 1.2][draw.below(2)],
                        seed: index as u64,
                    },
                    stop_ids: vec![draw.below(65) as u32, draw.below(65) as u32],
                    logprobs: [None, Some(2)][draw.below(2)],
                })
                .collect();
            let expected: Vec<Output> = requests
                .iter()
                .flat_map(|request| all(&one, std::slice::from_ref(request), &Batching::default()))
                .collect();
            for (axes, model) in meshes.iter().zip(&others) {
                let batching = Batching {
                    sequences: 1 + draw.below(8),
                    prompt_chunk: 1 + draw.below(80),
                    vocabulary: None,
                };
                assert_eq!(
                    all(model, &requests, &batching),
                    expected,
                    "case {case}, {dtype:?}, {axes:?}, {batching:?}"
                );
            }
        }
    }
}

#[test]
fn log_probabilities_are_those_of_the_model_as_it_is() {
    let model = model(&[]);
    let request = |sampling, logprobs| Request {
        prompt_ids: ids(12, 4),
        max_new_tokens: 15,
        sampling,
        logprobs,
        ..Request::default()
    };
    let odd = Sampling {
        temperature: 0.4,
        top_k: Some(5),
        top_p: 0.9,
        repetition_penalty: 1.4,
        seed: 3,
        ..Sampling::default()
    };
    let requests = [request(odd, Some(65)), request(odd, None), request(odd, Some(0))];
    let outputs = all(&model, &requests, &Batching::default());
    assert_eq!(outputs[0].ids, outputs[1].ids);
    assert!(outputs[1].logprobs.is_empty());
    let mut decoder = Decoder::new(&model, 1, POSITIONS).unwrap();
    let mut logits = decoder.append(0, &requests[0].prompt_ids, 512).unwrap().wait().unwrap();
    for (place, (id, found)) in outputs[0].ids.iter().zip(&outputs[0].logprobs).enumerate() {
        let real: Vec<f64> = logits[..65].iter().map(|logit| f64::from(*logit)).collect();
        let most = real.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total = most + real.iter().map(|logit| (logit - most).exp()).sum::<f64>().ln();
        let near = |id: u32, logprob: f32| {
            let expected = real[id as usize] - total;
            assert!(
                (f64::from(logprob) - expected).abs() < 1e-4,
                "place {place}: {logprob} {expected}"
            );
        };
        near(*id, found.logprob);
        assert_eq!(found.top.len(), 65);
        found.top.iter().for_each(|(id, logprob)| near(*id, *logprob));
        assert!(found.top.windows(2).all(|pair| pair[0].1 >= pair[1].1));
        let own = found.top.iter().find(|(other, _)| other == id);
        assert_eq!(own.map(|(_, logprob)| *logprob), Some(found.logprob));
        assert_eq!(outputs[2].logprobs[place].logprob, found.logprob);
        assert!(outputs[2].logprobs[place].top.is_empty());
        logits = decoder.append(0, &[*id], 1).unwrap().wait().unwrap();
    }
}

#[test]
fn a_conversation_computes_only_what_is_new() {
    for axes in [&[][..], &[("tp", 2)], &[("dp", 2)]] {
        let model = model(axes);
        let spy = Spy::of(&model);
        let mut session = Session::new(&spy, Batching::default()).unwrap();
        let mut conversation = ids(20, 1);
        for turn in 0..3 {
            let request = Request {
                prompt_ids: conversation.clone(),
                max_new_tokens: 6,
                sampling: Sampling {
                    seed: turn,
                    ..Sampling::default()
                },
                ..Request::default()
            };
            spy.take();
            let (output, work) = session.answer(&request, &mut |_, _| ControlFlow::Continue(())).unwrap();
            let through: usize = spy.take().iter().map(|[_, tokens]| tokens).sum();
            // The last token of an answer has not been through the model yet.
            let new = if turn == 0 { 20 } else { 1 + 9 };
            assert_eq!(through, new + 5, "turn {turn}, {axes:?}");
            assert_eq!(work.prompt_tokens, new);
            let fresh = all(&model, &[request], &Batching::default()).swap_remove(0);
            assert_eq!(output, fresh, "turn {turn}, {axes:?}");
            conversation.extend(output.ids);
            conversation.extend(ids(9, 100 + turn));
        }
        // An earlier turn that is written differently afterwards starts over from there.
        conversation[5] ^= 1;
        assert_eq!(session.known(&conversation), 5);
        let request = Request {
            prompt_ids: conversation,
            max_new_tokens: 4,
            ..Request::default()
        };
        let answer = |session: &mut Session<'_>| {
            session
                .answer(&request, &mut |_, _| ControlFlow::Continue(()))
                .unwrap()
                .0
        };
        let fresh = all(&model, std::slice::from_ref(&request), &Batching::default()).swap_remove(0);
        assert_eq!(answer(&mut session), fresh, "{axes:?}");
        session.clear();
        assert_eq!(session.known(&request.prompt_ids), 0);
        assert_eq!(answer(&mut session), fresh, "{axes:?}");
    }
}

#[test]
fn a_conversation_goes_on_after_an_answer_that_was_ended() {
    let model = model(&[]);
    let mut session = Session::new(&model, Batching::default()).unwrap();
    let request = |prompt_ids: Vec<u32>, max_new_tokens| Request {
        prompt_ids,
        max_new_tokens,
        ..Request::default()
    };
    let mut count = 0;
    let first = request(ids(10, 1), 20);
    let (ended, _) = session
        .answer(&first, &mut |_, event| {
            count += usize::from(matches!(event, Event::Token(_)));
            match count {
                4 => ControlFlow::Break(unisono_train::generate::End::All),
                _ => ControlFlow::Continue(()),
            }
        })
        .unwrap();
    assert_eq!((ended.ids.len(), &ended.finish), (4, &Finish::Cancelled));
    let next = request([&first.prompt_ids[..], &ended.ids, &ids(5, 2)].concat(), 8);
    let (output, _) = session.answer(&next, &mut |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(output, all(&model, &[next], &Batching::default()).swap_remove(0));
    // A prompt that does not fit is refused and forgets nothing.
    let known = session.known(&ids(10, 1));
    let error = session.answer(
        &request(ids(POSITIONS + 1, 1), 1),
        &mut |_, _| ControlFlow::Continue(()),
    );
    assert!(error.is_err_and(|error| error.to_string().contains("positions for 96")));
    assert_eq!(session.known(&ids(10, 1)), known);
}

#[test]
fn the_work_is_counted_and_each_end_is_told_once() {
    let model = model(&[]);
    let mut requests = requests();
    requests.push(Request {
        prompt_ids: ids(4, 1),
        max_new_tokens: 0,
        ..Request::default()
    });
    let mut finished = Vec::new();
    let (outputs, work) = generate_events(&model, &requests, &Batching::default(), &mut |request, event| {
        if let Event::Finished { output, seconds } = event {
            assert!(seconds >= 0.0);
            finished.push((request, output.clone()));
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    finished.sort_by_key(|(request, _)| *request);
    let told: Vec<Output> = finished.into_iter().map(|(_, output)| output).collect();
    assert_eq!(told, outputs);
    let Work {
        prompt_tokens,
        new_tokens,
        later_tokens,
        ..
    } = work;
    // The prompt of one token goes with the first step.
    assert_eq!(prompt_tokens, 70 + 7 + 33 + 18);
    assert_eq!(new_tokens, 20 + 12 + 31 + 1 + 24);
    assert_eq!(later_tokens, new_tokens - 4);
    // A token that ends a text is no part of it, and none of the work's.
    requests[0].stop_ids = vec![outputs[0].ids[5]];
    let go_on = &mut |_: usize, _: Event<'_>| ControlFlow::Continue(());
    let (outputs, work) = generate_events(&model, &requests, &Batching::default(), go_on).unwrap();
    assert!(outputs[0].ids.len() < 6 && matches!(outputs[0].finish, Finish::Stop(_)));
    let written: usize = outputs.iter().map(|output| output.ids.len()).sum();
    assert_eq!(work.new_tokens, written);
}
