//! Chat templates: the renderings of Python's `transformers` (`reference/make_chat.py`), answers told apart, templates that never end.

use serde_json::Value;
use std::fs;
use std::path::Path;
use unisono_data::{ChatTemplate, HfTokenizer, Message, Tokenizer};

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, Some("<s>".into()), Some("</s>".into()), None).expect("a template")
}

fn named(name: &str) -> ChatTemplate {
    let file = format!("tests/reference/chat/{name}.jinja");
    template(&fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect("a file"))
}

fn say(contents: &[&str]) -> Vec<Message> {
    let roles = ["user", "assistant"].into_iter().cycle();
    roles
        .zip(contents)
        .map(|(role, content)| Message::new(role, *content))
        .collect()
}

#[test]
fn renderings_are_those_of_transformers() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/chat.json");
    let values: Value = serde_json::from_str(&fs::read_to_string(file).expect("a file")).expect("JSON");
    let values = values.as_object().expect("an object");
    assert_eq!(values.len(), 8);
    for (name, rows) in values {
        let template = named(name);
        for row in rows.as_array().expect("a list") {
            let text = |value: &Value| value.as_str().expect("a text").to_string();
            let messages: Vec<Message> = row["messages"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|message| Message::new(text(&message["role"]), text(&message["content"])))
                .collect();
            let prompt = row["add_generation_prompt"] == true;
            let rendered = template.render(&messages, prompt);
            match row["error"].as_str() {
                None => assert_eq!(
                    rendered.as_deref(),
                    Ok(text(&row["text"]).as_str()),
                    "{name} {messages:?}"
                ),
                Some(error) => {
                    let ours = rendered.expect_err("must be refused").to_string();
                    assert_eq!(ours, format!("the chat template fails at line 1: {error}"), "{name}");
                }
            }
        }
    }
}

#[test]
fn answers_are_told_apart() {
    let parts = |name: &str, contents: &[&str]| {
        let rendered = named(name).render_for_training(&say(contents)).expect("renders");
        let answers = rendered.answers.iter();
        answers
            .map(|answer| rendered.text[answer.clone()].to_string())
            .collect::<Vec<_>>()
    };
    let talk = ["Hello", "Hi there!", "And?", "Bye"];
    assert_eq!(parts("llama3", &talk), ["Hi there!<|eot_id|>", "Bye<|eot_id|>"]);
    assert_eq!(parts("qwen2", &talk), ["Hi there!<|im_end|>\n", "Bye<|im_end|>\n"]);
    assert_eq!(parts("smollm", &talk), ["Hi there!<|im_end|>\n", "Bye<|im_end|>\n"]);
    assert_eq!(parts("zephyr", &talk), ["Hi there!</s>\n", "Bye</s>\n"]);
    assert_eq!(parts("mistral", &talk), ["Hi there!</s>", "Bye</s>"]);
    assert_eq!(
        parts("qwen3", &talk[..2]),
        ["<think>\n\n</think>\n\nHi there!<|im_end|>\n"]
    );
    // What the user says after the last answer is left out.
    let rendered = named("mistral")
        .render_for_training(&say(&["a", "b", "c"]))
        .expect("renders");
    assert_eq!(rendered.text, "<s>[INST] a [/INST]b</s>");
}

#[test]
fn a_template_that_changes_what_it_wrote_is_refused() {
    // Qwen3's takes the reasoning out of earlier answers.
    let error = named("qwen3")
        .render_for_training(&say(&["a", "b", "c", "d"]))
        .expect_err("must be refused");
    assert!(
        error
            .to_string()
            .contains("writes earlier messages differently once message 4 (assistant) is there"),
        "{error}"
    );
    let error = template("{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}")
        .render_for_training(&say(&["a", "b"]))
        .expect_err("must be refused");
    assert!(
        error
            .to_string()
            .contains("writes the prompt differently once message 2 (assistant) is there"),
        "{error}"
    );
    let error = named("qwen2")
        .render_for_training(&say(&["a"]))
        .expect_err("must be refused");
    assert!(
        error.to_string().contains("no message has the role assistant"),
        "{error}"
    );
}

#[test]
fn errors_name_the_templates_line() {
    let fails = |source: &str| {
        let made = ChatTemplate::new(source, None, None, None);
        made.and_then(|template| template.render(&say(&["a"]), true))
            .expect_err("must fail")
            .to_string()
    };
    assert!(fails("a\nb\n{% if %}").starts_with("the chat template cannot be parsed at line 3: "));
    assert!(fails("a\n{{ messages[0].content.nonsense() }}").starts_with("the chat template fails at line 2: "));
    assert!(fails("\n\n{{ raise_exception('No, ' ~ 'thanks') }}").ends_with("fails at line 3: No, thanks"));
    assert!(fails("{{ strftime_now('%Q') }}").contains("does not know the directive %Q"));
    assert!(fails(&"x".repeat((1 << 20) + 1)).contains("has 1048577 bytes, and at most 1048576 are read"));
}

#[test]
fn templates_without_end_are_cut_off() {
    for source in [
        "{% for a in range(90000) %}{% for b in range(90000) %}{% for c in range(90000) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% set x %}{% for a in range(90000) %}{{ 'x' * 100000 }}{% endfor %}{% endset %}",
        "{% for a in range(90000) %}{{ 'x' * 100000 }}{% endfor %}",
        "{{ (['a'] * 100000000000) | join }}",
        "{{ (['a'] * 100000000000) | list | length }}",
        "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
        "{{ 'a' * 100000000000 }}",
        "{{ 'aaa'.count('') }}{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
    ] {
        let text = template(source)
            .render(&say(&["a"]), true)
            .expect_err(source)
            .to_string();
        assert!(text.starts_with("the chat template "), "{text}");
    }
    let text = template("{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}")
        .render(&say(&["a"]), true)
        .expect_err("must be stopped")
        .to_string();
    assert_eq!(
        text,
        "the chat template was stopped at line 1: it has not ended after 2000000 steps"
    );
}

#[test]
fn the_clock_stands_still_unless_it_is_set() {
    let source = "{{ strftime_now('%d %b %Y %A %H:%M:%S %j'[:-3]) }}";
    assert_eq!(
        template(source).render(&[], false).as_deref(),
        Ok("26 Jul 2024 Friday 00:00:00")
    );
    for (seconds, text) in [
        (0, "01 Jan 1970 Thursday 00:00:00"),
        (951_827_696, "29 Feb 2000 Tuesday 12:34:56"),
        (4_107_542_399, "28 Feb 2100 Sunday 23:59:59"),
        (4_107_542_400, "01 Mar 2100 Monday 00:00:00"),
    ] {
        assert_eq!(template(source).at(seconds).render(&[], false).as_deref(), Ok(text));
    }
}

#[test]
fn a_tokenizers_template_is_its_default_or_its_only_one() {
    let json =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/byte_level/tokenizer.json"));
    let json = json.expect("a file");
    let rendered = |files: &[(&str, &str)]| {
        let files = files
            .iter()
            .map(|(name, text)| ((*name).to_string(), text.as_bytes().to_vec()))
            .collect();
        let hf = HfTokenizer::new(json.clone(), "here", files, None).expect("a tokenizer");
        ChatTemplate::of(&Tokenizer::Hf(hf))
            .and_then(|template| template.render(&[], false))
            .map_err(|error| error.to_string())
    };
    let config = "tokenizer_config.json";
    assert_eq!(rendered(&[(config, r#"{"chat_template": "{{ bos_token }}one{{ eos_token }}", "bos_token": "<|begin|>", "eos_token": "<|end|>"}"#)]).as_deref(), Ok("<|begin|>one<|end|>"));
    let two = r#"{"chat_template": [{"name": "rag", "template": "R"}, {"name": "default", "template": "D"}]}"#;
    assert_eq!(rendered(&[(config, two)]).as_deref(), Ok("D"));
    assert_eq!(
        rendered(&[(config, two), ("chat_template.jinja", "file")]).as_deref(),
        Ok("file")
    );
    assert_eq!(
        rendered(&[(config, r#"{"chat_template": [{"name": "rag", "template": "R"}]}"#)]).as_deref(),
        Ok("R")
    );
    let none = rendered(&[]).expect_err("there is none");
    assert!(none.contains("is missing: the tokenizer has none"), "{none}");
    let unclear = rendered(&[(config, &two.replace("default", "tool"))]).expect_err("there are two");
    assert!(
        unclear.contains("is ambiguous: the tokenizer has rag, tool and none is named default"),
        "{unclear}"
    );
}
