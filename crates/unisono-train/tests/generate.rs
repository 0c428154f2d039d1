//! Generation gives the same bits alone or in a batch, on any mesh, however the prompt is cut; and says what is wrong.

mod generate_support;

use generate_support::{DTYPES, POSITIONS, config, ids, model, model_in, model_of, requests};
use std::ops::ControlFlow;
use unisono_data::Tokenizer;
use unisono_kernels::isa::Isa;
use unisono_nn::models::{Gpt, GptConfig, Positions};
use unisono_nn::{LanguageModel, Model};
use unisono_tensor::Dtype;
use unisono_train::generate::{
    Batching, Decoder, End, Finish, GenerateError, Output, Request, Sampling, TextRequest, generate, generate_text,
    generate_with,
};

fn all(model: &Gpt, requests: &[Request]) -> Vec<Output> {
    generate(model, requests, &mut |_, _| ControlFlow::Continue(())).unwrap()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|l| l.to_bits()).collect()
}

/// Logits after the last of `ids`, appended in `chunks`.
fn logits_after(model: &Gpt, ids: &[u32], chunk: usize) -> Vec<u32> {
    let mut decoder = Decoder::new(model, 1, POSITIONS).unwrap();
    bits(&decoder.append(0, ids, chunk).unwrap().wait().unwrap())
}

#[test]
fn logits_do_not_depend_on_how_the_prompt_is_cut_or_on_the_cache() {
    for (dtype, axes) in DTYPES
        .iter()
        .flat_map(|dtype| [(*dtype, &[][..]), (*dtype, &[("tp", 2)])])
    {
        let model = model_in(dtype, axes);
        let device = model.device();
        // Across the attention's blocks of 64 keys, and at odd places.
        for len in [1, 2, 17, 64, 65, 96] {
            let ids = ids(len, 8);
            let whole = logits_after(&model, &ids, usize::MAX);
            for chunk in [1, 3, 16, 64] {
                assert!(
                    logits_after(&model, &ids, chunk) == whole,
                    "{len} tokens in chunks of {chunk}, mesh {axes:?}, {dtype:?}"
                );
            }
            // The training forward pass, which has no cache.
            model.set_training(false);
            let forward = device.no_grad(|| {
                let features = model.forward(&device.tensor_u32(&ids, &[1, len]).unwrap()).unwrap();
                model.logits(&features).unwrap().to_vec().unwrap()
            });
            let last = &forward[(len - 1) * forward.len() / len..];
            assert!(
                bits(last) == whole,
                "{len} tokens without a cache, mesh {axes:?}, {dtype:?}"
            );
        }
    }
}

#[test]
fn logits_do_not_depend_on_the_other_sequences() {
    DTYPES.into_iter().for_each(alone_and_together);
}

fn alone_and_together(dtype: Dtype) {
    let model = model_in(dtype, &[]);
    let prompts: Vec<Vec<u32>> = [5, 1, 40, 64, 12].iter().map(|len| ids(*len, *len as u64)).collect();
    let mut together = Decoder::new(&model, 5, POSITIONS).unwrap();
    for (index, prompt) in prompts.iter().enumerate() {
        together.append(index, prompt, 16).unwrap().wait().unwrap();
    }
    // Every other step leaves out sequences 1 and 3.
    let steps: Vec<[Option<u32>; 5]> = (0..10u32)
        .map(|t| [0, 1, 2, 3, 4].map(|s| (s % 2 == 0 || t % 2 == 0).then_some((7 * t + s) % 65)))
        .collect();
    let mut found: Vec<Vec<Vec<u32>>> = vec![Vec::new(); 5];
    for step in &steps {
        let logits = together.step(step).unwrap().wait().unwrap();
        let row = logits.len() / 5;
        for s in (0..5).filter(|s| step[*s].is_some()) {
            found[s].push(bits(&logits[s * row..(s + 1) * row]));
        }
    }
    for (s, prompt) in prompts.iter().enumerate() {
        let mut alone = Decoder::new(&model, 1, POSITIONS).unwrap();
        alone.append(0, prompt, 512).unwrap().wait().unwrap();
        let mut expected = Vec::new();
        for id in steps.iter().filter_map(|step| step[s]) {
            expected.push(bits(&alone.append(0, &[id], 1).unwrap().wait().unwrap()));
        }
        assert!(found[s] == expected, "sequence {s}, {dtype:?}");
    }
}

#[test]
fn every_mesh_gives_the_same_text() {
    DTYPES.into_iter().for_each(same_text_on_every_mesh);
}

fn same_text_on_every_mesh(dtype: Dtype) {
    let requests = requests();
    let expected = all(&model_in(dtype, &[]), &requests);
    assert_eq!(
        expected.iter().map(|o| o.ids.len()).collect::<Vec<_>>(),
        [20, 12, 31, 1, 24]
    );
    let distinct = |o: &Output| o.ids.iter().collect::<std::collections::BTreeSet<_>>().len();
    assert!(
        distinct(&expected[2]) > 5,
        "the test's texts are too dull: {expected:?}"
    );
    let meshes: [&[(&str, usize)]; 6] = [
        &[("tp", 2)],
        &[("tp", 4)],
        &[("dp", 2)],
        &[("dp", 2), ("tp", 2)],
        &[("tp", 2), ("dp", 2)],
        &[("dp", 1), ("tp", 4)],
    ];
    for axes in meshes {
        let model = model_in(dtype, axes);
        assert_eq!(all(&model, &requests), expected, "mesh {axes:?}, a batch of 5");
        for (request, expected) in requests.iter().zip(&expected) {
            let alone = all(&model, std::slice::from_ref(request));
            assert_eq!(alone, std::slice::from_ref(expected), "mesh {axes:?}, alone");
        }
    }
    for (workers, isa) in [
        (2, Isa::detect()),
        (3, Isa::Portable),
        (1, Isa::Avx2.min(Isa::detect())),
    ] {
        let model = model_of(GptConfig { dtype, ..config() }, &[("tp", 2)], workers, isa);
        assert_eq!(all(&model, &requests), expected, "{workers} workers, {isa:?}");
    }
}

#[test]
fn untied_fixed_positions_and_no_biases_too() {
    let config = GptConfig {
        weight_tying: false,
        positions: Positions::Fixed,
        bias: false,
        num_groups: 2,
        ..config()
    };
    let expected = all(&model_of(config.clone(), &[], 1, Isa::detect()), &requests());
    for axes in [&[("tp", 2)][..], &[("dp", 2), ("tp", 2)]] {
        let model = model_of(config.clone(), axes, 2, Isa::detect());
        assert_eq!(all(&model, &requests()), expected, "mesh {axes:?}");
    }
}

#[test]
fn a_second_call_is_like_the_first_of_a_fresh_process() {
    let used = model(&[]);
    let requests = requests();
    all(&used, &requests);
    let short = &requests[2..3];
    assert_eq!(all(&used, short), all(&model(&[]), short));
    assert_eq!(all(&used, &requests), all(&model(&[]), &requests));
}

#[test]
fn requests_that_wait_for_room_are_not_changed_by_it() {
    let model = model(&[]);
    let requests: Vec<Request> = requests().into_iter().chain(requests()).collect();
    let mut order = Vec::new();
    let mut run = |sequences, prompt_chunk| {
        let batching = Batching {
            sequences,
            prompt_chunk,
            vocabulary: None,
        };
        generate_with(&model, &requests, &batching, &mut |request, _| {
            order.push(request);
            ControlFlow::Continue(())
        })
        .unwrap()
    };
    let expected = run(32, 512);
    assert_eq!(run(1, 512), expected);
    assert_eq!(run(2, 1), expected);
    assert_eq!(run(3, 7), expected);
    assert_eq!(order.len(), 4 * 2 * (20 + 12 + 31 + 1 + 24));
}

#[test]
fn tokens_are_shown_as_they_come_and_a_caller_can_end_one_or_all() {
    let model = model(&[]);
    let requests = requests();
    let expected = all(&model, &requests);
    let mut shown = vec![Vec::new(); 5];
    let outputs = generate(&model, &requests, &mut |request, id| {
        shown[request].push(id);
        match (request, shown[request].len()) {
            (2, 3) => ControlFlow::Break(End::Request),
            _ => ControlFlow::Continue(()),
        }
    })
    .unwrap();
    for (i, output) in outputs.iter().enumerate() {
        assert_eq!(shown[i], output.ids);
        match i {
            2 => {
                assert_eq!(output.finish, Finish::Cancelled);
                assert_eq!(output.ids, expected[2].ids[..3]);
            }
            _ => assert_eq!(*output, expected[i]),
        }
    }
    let mut count = 0;
    let outputs = generate(&model, &requests, &mut |_, _| {
        count += 1;
        match count {
            12 => ControlFlow::Break(End::All),
            _ => ControlFlow::Continue(()),
        }
    })
    .unwrap();
    assert_eq!(count, 12);
    assert_eq!(outputs.iter().map(|o| o.ids.len()).sum::<usize>(), 12);
    assert_eq!(outputs[0].finish, Finish::Cancelled);
    assert_eq!(outputs[3].finish, Finish::Length);
}

#[test]
fn stop_tokens_end_the_text_and_are_not_part_of_it() {
    let model = model(&[]);
    let mut request = requests().swap_remove(2);
    let free = all(&model, std::slice::from_ref(&request)).swap_remove(0);
    let stop = free.ids[9];
    let first = free.ids.iter().position(|id| *id == stop).unwrap();
    request.stop_ids = vec![64, stop];
    let output = all(&model, &[request]).swap_remove(0);
    assert!(output.finish == Finish::Stop(stop) || free.ids[..first].contains(&64));
    assert_eq!(output.ids, free.ids[..output.ids.len()]);
    assert!(output.ids.len() <= first);
}

#[test]
fn the_models_positions_end_the_text_in_words() {
    let model = model(&[]);
    let request = |len: usize, max_new_tokens| Request {
        prompt_ids: ids(len, 1),
        max_new_tokens,
        ..Request::default()
    };
    let requests = [
        request(90, 1000),
        request(96, usize::MAX),
        request(96, 1),
        request(95, 2),
        request(3, 0),
    ];
    let outputs = all(&model, &requests);
    let full = Finish::Context { positions: POSITIONS };
    assert_eq!(outputs.iter().map(|o| o.ids.len()).collect::<Vec<_>>(), [7, 1, 1, 2, 0]);
    assert_eq!(
        outputs.iter().map(|o| o.finish.clone()).collect::<Vec<_>>(),
        [
            full.clone(),
            full.clone(),
            Finish::Length,
            Finish::Length,
            Finish::Length
        ]
    );
    assert_eq!(
        full.to_string(),
        "the 96 positions of the model (max_sequence_length) are taken, so it ends before max_new_tokens"
    );
    assert_eq!(all(&model, &[]), []);
    assert_eq!(all(&model, &requests[4..]).len(), 1);
}

#[test]
fn padding_of_the_vocabulary_is_never_drawn() {
    // 65 entries in 4 units are stored as 68; at this temperature the padding's logits of 0 would win often.
    let model = model(&[]);
    let request = |vocabulary: u32, seed: u64| Request {
        prompt_ids: ids(1, 1).iter().map(|id| id % vocabulary).collect(),
        max_new_tokens: 95,
        sampling: Sampling {
            temperature: 1e6,
            seed,
            ..Sampling::default()
        },
        ..Request::default()
    };
    for vocabulary in [65, 5] {
        let batching = Batching {
            vocabulary: Some(vocabulary),
            ..Batching::default()
        };
        let requests: Vec<Request> = (0..10).map(|seed| request(vocabulary as u32, seed)).collect();
        let outputs = generate_with(&model, &requests, &batching, &mut |_, _| ControlFlow::Continue(())).unwrap();
        let ids: Vec<u32> = outputs.into_iter().flat_map(|o| o.ids).collect();
        assert!(ids.iter().all(|id| (*id as usize) < vocabulary));
        assert!(
            (0..vocabulary as u32).all(|id| ids.contains(&id)),
            "not every token was drawn"
        );
    }
}

#[test]
fn what_is_wrong_with_a_request_is_said_before_anything_runs() {
    let model = model(&[]);
    let good = requests().swap_remove(0);
    let mut shown = 0;
    let mut told = |requests: &[Request], vocabulary: Option<usize>| {
        let batching = Batching {
            vocabulary,
            ..Batching::default()
        };
        let result = generate_with(&model, requests, &batching, &mut |_, _| {
            shown += 1;
            ControlFlow::Continue(())
        });
        result.expect_err("it cannot be met").to_string()
    };
    let with = |prompt_ids: Vec<u32>| Request {
        prompt_ids,
        ..good.clone()
    };
    assert_eq!(
        told(&[with(vec![])], None),
        "the prompt is empty; a model continues what is there, so at least one token is needed: a line break, or the first \
         word of a sentence, will do"
    );
    assert_eq!(
        told(&[good.clone(), with(vec![3, 64, 65])], None),
        "prompt 2 of 2 has the token id 65 at place 2 (counted from 0); this vocabulary has the ids 0 to 64"
    );
    assert_eq!(
        told(&[with(vec![9, 10])], Some(10)),
        "the prompt has the token id 10 at place 1 (counted from 0); this vocabulary has the ids 0 to 9"
    );
    assert_eq!(
        told(&[with(ids(97, 1))], None),
        "the prompt has 97 tokens, and this model has positions for 96 (max_sequence_length): shorten it to its last 96 \
         tokens, or fewer to leave room for new ones"
    );
    let sampling = Sampling {
        temperature: -0.5,
        ..Sampling::default()
    };
    assert_eq!(
        told(
            &[Request {
                sampling,
                ..good.clone()
            }],
            None
        ),
        "the sampling of the prompt: temperature is -0.5; it must be a number of at least 0: 0 takes the likeliest token, 1 \
         draws from the model's distribution as it is"
    );
    assert_eq!(
        told(std::slice::from_ref(&good), Some(66)),
        "the tokenizer has 66 tokens and the model knows 65: they do not belong together. Use the tokenizer that the model \
         was trained with"
    );
    assert_eq!(shown, 0);
}

#[test]
fn a_decoder_says_what_it_has_no_room_for() {
    let model = model(&[]);
    let new = |sequences, capacity| Decoder::new(&model, sequences, capacity).map(|_| ());
    for (sequences, capacity) in [(0, 5), (2, 0), (1, 97)] {
        let error = new(sequences, capacity).expect_err("no such room").to_string();
        assert!(
            error.contains(&format!("{sequences} sequences of {capacity} tokens")),
            "{error}"
        );
    }
    let mut decoder = Decoder::new(&model, 2, 4).unwrap();
    assert!(
        decoder
            .append(2, &[1], 9)
            .unwrap_err()
            .to_string()
            .contains("sequence 2 of 2")
    );
    assert!(decoder.append(0, &[], 9).unwrap_err().to_string().contains("no tokens"));
    assert!(decoder.step(&[]).unwrap_err().to_string().contains("no tokens"));
    assert!(decoder.step(&[None, None, None]).is_err());
    let _ = decoder.append(1, &[1, 2, 3], 9).unwrap();
    let error = decoder.append(1, &[4, 5], 9).unwrap_err().to_string();
    assert!(
        error.contains("2 tokens behind the 3 of sequence 1; there is room for 4"),
        "{error}"
    );
    assert_eq!(decoder.lengths(), [0, 3]);
    let _ = decoder.step(&[None, Some(4)]).unwrap();
    assert!(decoder.step(&[Some(1), Some(5)]).is_err());
    assert_eq!(decoder.lengths(), [0, 4]);
}

#[test]
fn broken_weights_are_told_from_text() {
    let model = model(&[]);
    let bias = model.parameters().iter().find(|p| p.name == "ln_f.bias").unwrap();
    let mut values = bias.tensor.to_vec().unwrap();
    values[0] = f32::NAN;
    bias.tensor.upload_global(&values).unwrap();
    let result = generate(&model, &requests()[..1], &mut |_, _| ControlFlow::Continue(()));
    let error = result.expect_err("NaN is no logit");
    assert!(matches!(&error, GenerateError::NotFinite { tokens: 1, id: 0, .. }));
    assert!(
        error
            .to_string()
            .starts_with("the prompt: after 1 tokens, the model's logit of token 0 is NaN;")
    );
}

#[test]
fn memory_is_given_back() {
    let model = model(&[("tp", 2)]);
    let runtime = model.device().runtime().clone();
    let live = || runtime.report().memory.current;
    let before = live();
    all(&model, &requests());
    assert_eq!(live(), before);
}

fn text_request(prompt: &str, seed: u64) -> TextRequest {
    TextRequest {
        prompt: prompt.into(),
        max_new_tokens: 40,
        sampling: Sampling {
            seed,
            ..Sampling::default()
        },
    }
}

#[test]
fn text_streams_in_whole_characters() {
    // Bytes: most draws make no characters, and pieces must never break one.
    let config = GptConfig {
        vocab_size: 256,
        ..config()
    };
    let model = model_of(config, &[], 1, Isa::detect());
    let requests: Vec<TextRequest> = (0..6).map(|seed| text_request("Grüße, ", seed)).collect();
    let mut shown = vec![String::new(); requests.len()];
    let outputs = generate_text(&model, &Tokenizer::Byte, &requests, &mut |request, piece| {
        assert!(!piece.is_empty());
        shown[request] += piece;
        ControlFlow::Continue(())
    })
    .unwrap();
    for (shown, output) in shown.iter().zip(&outputs) {
        assert_eq!(*shown, output.text);
        assert_eq!(output.text, Tokenizer::Byte.decode(&output.ids).unwrap());
        assert_eq!(output.finish, Finish::Length);
    }
    assert_ne!(outputs[0].text, outputs[1].text);
}

#[test]
fn a_character_that_the_model_never_saw_is_named() {
    let tokenizer = Tokenizer::char_from_text("abcdefghij").unwrap();
    let model = model(&[]);
    let told = |prompts: &[&str]| {
        let requests: Vec<TextRequest> = prompts.iter().map(|p| text_request(p, 0)).collect();
        let result = generate_text(&model, &tokenizer, &requests, &mut |_, _| ControlFlow::Continue(()));
        result.map(|outputs| outputs.into_iter().map(|o| o.text).collect::<Vec<_>>())
    };
    let error = told(&["abc", "hello bad"]).expect_err("l is unknown").to_string();
    assert!(error.starts_with("prompt 2 of 2: ") && error.contains("'l'"), "{error}");
    let error = told(&[""]).expect_err("an empty prompt").to_string();
    assert!(error.starts_with("the prompt is empty"), "{error}");
    let texts = told(&["abc", "jihg"]).unwrap();
    assert!(
        texts
            .iter()
            .all(|t| t.chars().count() == 40 && t.chars().all(|c| ('a'..='j').contains(&c)))
    );
}
