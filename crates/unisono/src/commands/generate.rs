//! `unisono generate`: a model goes on from prompts; a single one is seen as it is written.

use super::given;
use super::requests::{Asked, read};
use super::writer::Writer;
use crate::cli::GenerateArgs;
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::numbers::counted;
use crate::signals::Signals;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use unisono_data::Tokenizer;
use unisono_train::generate::{
    Batching, End, Event, Finish, Request, StopTexts, TextEvent, TextOutput, TokenLogprob, Work, generate_events,
    generate_text_events,
};

/// See the module.
///
/// # Errors
/// A name that is no run and no model, prompts that cannot be gone on from, settings that mean nothing.
pub fn run(args: &GenerateArgs, context: &Context) -> Result<u8, Failure> {
    given::model(&args.model)?;
    given::sampling(&args.model.changes, &args.sampling)?;
    let is_text = !args.jsonl && !context.out.is_json();
    if args.logprobs.is_some() && is_text {
        return Err(Failure::input(
            "--logprobs is written with --json and --jsonl only, and the text has no place for it: add one of them",
        ));
    }
    let writer = Writer::load(&args.model, context)?;
    let asked = read(args, &writer, context)?;
    if is_text && asked.iter().any(|asked| asked.request.logprobs.is_some()) {
        context
            .out
            .note("logprobs of the prompts are left out: they are written with --json and --jsonl only");
    }
    let batching = Batching {
        sequences: args.batch,
        vocabulary: writer.vocabulary(),
        ..Batching::default()
    };
    let mut shown = Shown::new(&asked, &writer, args.jsonl, context);
    // A single text is seen as it is written, and of several processes all must do the same.
    if context.ranks.is_none() && !shown.streams() {
        shown.signals = Some(Signals::catch()?);
    }
    let requests: Vec<Request> = asked.iter().map(|asked| asked.request.clone()).collect();
    let work = match writer.tokenizer() {
        Ok(tokenizer) => {
            let stops: Vec<StopTexts> = asked.iter().map(|asked| asked.stops.clone()).collect();
            let mut on_event = |index: usize, event: TextEvent<'_>| shown.event(index, event);
            generate_text_events(writer.model(), tokenizer, &requests, &stops, &batching, &mut on_event)?.1
        }
        // Without a tokenizer there are only ids.
        Err(_) => {
            let mut on_event = |index: usize, event: Event<'_>| match event {
                Event::Token(id) => shown.id(id),
                Event::Finished { output, seconds } => {
                    let output = TextOutput {
                        text: String::new(),
                        ids: output.ids.clone(),
                        logprobs: output.logprobs.clone(),
                        finish: output.finish.clone(),
                    };
                    let output = &output;
                    shown.event(index, TextEvent::Finished { output, seconds })
                }
            };
            generate_events(writer.model(), &requests, &batching, &mut on_event)?.1
        }
    };
    let stopped = shown.finish();
    tell_rates(&work, asked.len(), context);
    Ok(stopped.unwrap_or(exit::OK))
}

/// How fast it was, prompts and new tokens apart.
pub fn tell_rates(work: &Work, sequences: usize, context: &Context) {
    let mut parts = Vec::new();
    if work.prompt_tokens > 0 {
        parts.push(format!(
            "{} in {:.2} s, {:.1} tokens/s",
            counted(work.prompt_tokens, "prompt token"),
            work.prompt_seconds,
            work.prompt_rate()
        ));
    }
    if work.prompt_tokens + work.new_tokens > 0 {
        let each = match sequences {
            1 => String::new(),
            n => format!(" over {n} prompts"),
        };
        let new = counted(work.new_tokens, "new token");
        parts.push(match work.later_tokens {
            0 => format!("{new}{each}"),
            later => format!(
                "{new}{each}, {later} of them behind the prompts' in {:.2} s, {:.1} tokens/s",
                work.later_seconds,
                work.later_rate()
            ),
        });
    }
    if !parts.is_empty() {
        context.out.note(parts.join("; "));
    }
}

/// What is shown, in the order of the prompts.
struct Shown<'a> {
    asked: &'a [Asked],
    writer: &'a Writer,
    jsonl: bool,
    context: &'a Context,
    /// What may end everything before its end, where that leaves something to write.
    signals: Option<Signals>,
    /// Whether something was written of a single prompt's text.
    begun: bool,
    /// Results that wait for an earlier prompt's.
    waiting: BTreeMap<usize, (TextOutput, f64)>,
    /// The next prompt to show.
    next: usize,
    /// Results for `--json`.
    results: Vec<Value>,
}

impl<'a> Shown<'a> {
    fn new(asked: &'a [Asked], writer: &'a Writer, jsonl: bool, context: &'a Context) -> Shown<'a> {
        Shown {
            asked,
            writer,
            jsonl,
            context,
            signals: None,
            begun: false,
            waiting: BTreeMap::new(),
            next: 0,
            results: Vec::new(),
        }
    }

    /// Whether a single text is shown as it comes.
    fn streams(&self) -> bool {
        self.asked.len() == 1 && !self.jsonl
    }

    /// Nobody needs a text that nobody reads.
    fn go_on(&self) -> ControlFlow<End> {
        // Of several processes all must do the same, and the others cannot know.
        match (self.context.out.is_broken() && self.context.ranks.is_none()) || self.stopped().is_some() {
            true => ControlFlow::Break(End::All),
            false => ControlFlow::Continue(()),
        }
    }

    /// The exit code of a signal that ended everything.
    fn stopped(&self) -> Option<u8> {
        self.signals.as_ref().and_then(Signals::code)
    }

    fn event(&mut self, index: usize, event: TextEvent<'_>) -> ControlFlow<End> {
        match event {
            TextEvent::Piece(piece) => {
                if self.streams() && self.writes_text(index) {
                    self.begin(index);
                    self.context.out.piece(piece);
                }
            }
            TextEvent::Finished { output, seconds } => {
                self.waiting.insert(index, (output.clone(), seconds));
                while let Some((output, seconds)) = self.waiting.remove(&self.next) {
                    self.show(self.next, &output, seconds);
                    self.next += 1;
                }
            }
        }
        self.go_on()
    }

    /// A token of a model without a tokenizer.
    fn id(&mut self, id: u32) -> ControlFlow<End> {
        if self.streams() {
            let comma = if std::mem::replace(&mut self.begun, true) {
                ","
            } else {
                ""
            };
            self.context.out.piece(&format!("{comma}{id}"));
        }
        self.go_on()
    }

    /// Whether a prompt's continuation is shown as text: one that was given as tokens goes on as tokens.
    fn writes_text(&self, index: usize) -> bool {
        self.asked[index].given.0 != "prompt_ids"
    }

    /// The prompt stands before its continuation.
    fn begin(&mut self, index: usize) {
        if !std::mem::replace(&mut self.begun, true) {
            self.context
                .out
                .piece(self.asked[index].text.as_deref().unwrap_or_default());
        }
    }

    /// A request that is over, all before it having been shown.
    fn show(&mut self, index: usize, output: &TextOutput, seconds: f64) {
        let (out, asked) = (&self.context.out, &self.asked[index]);
        let result = self.result(index, output, seconds);
        if self.jsonl {
            // An object always has a JSON form.
            out.result(result);
            return;
        }
        self.results.push(result);
        let ids = || output.ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        if self.streams() {
            match self.writes_text(index) {
                true => self.begin(index),
                false if !std::mem::replace(&mut self.begun, true) => out.piece(&ids()),
                false => {}
            }
            self.context.out.piece("\n");
        } else {
            let bold = |text: String| out.bold(&text);
            out.result(bold(format!(
                "=== {} of {}, {}",
                index + 1,
                self.asked.len(),
                asked.whose
            )));
            match self.writes_text(index) {
                true => out.result(format!("{}{}", asked.text.as_deref().unwrap_or_default(), output.text)),
                false => out.result(ids()),
            }
        }
        if let Finish::Context { .. } = output.finish {
            let which = match self.asked.len() {
                1 => "the text".to_string(),
                of => format!("text {} of {of}", index + 1),
            };
            self.context.out.note(format!("{which} ends here: {}", output.finish));
        }
    }

    /// A request's result for programs.
    fn result(&self, index: usize, output: &TextOutput, seconds: f64) -> Value {
        let asked = &self.asked[index];
        let mut object = Map::new();
        if self.jsonl {
            object.insert("index".into(), json!(index));
        }
        object.insert(asked.given.0.into(), asked.given.1.clone());
        if self.writer.tokenizer().is_ok() {
            object.insert("text".into(), json!(output.text));
        }
        object.insert("ids".into(), json!(output.ids));
        object.insert("finish".into(), json!(output.finish.word()));
        object.insert("finish_reason".into(), json!(output.finish.to_string()));
        if asked.request.logprobs.is_some() {
            object.insert(
                "logprobs".into(),
                logprobs(&output.ids, &output.logprobs, self.writer.tokenizer().ok()),
            );
        }
        let rate = output.ids.len() as f64 / seconds.max(1e-9);
        object.insert("tokens_per_second".into(), json!((10.0 * rate).round() / 10.0));
        Value::Object(object)
    }

    /// What waits for a prompt that a signal kept from its end, and the result of all for programs. Gives the exit code of the signal.
    fn finish(mut self) -> Option<u8> {
        let stopped = self.stopped().filter(|_| self.next < self.asked.len());
        if stopped.is_some() {
            // In a list for programs a result's place is its prompt's, so that none may be missing before it.
            if !self.context.out.is_json() {
                for (index, (output, seconds)) in std::mem::take(&mut self.waiting) {
                    self.show(index, &output, seconds);
                    self.next += 1;
                }
            }
            self.context.out.note(format!(
                "ended by a signal: {} of {} prompts are answered and written",
                self.next,
                self.asked.len()
            ));
        }
        if self.jsonl {
            return stopped;
        }
        let checkpoint = json!(self.writer.source);
        let mut results = self.results;
        let all = match (self.asked.len(), results.pop()) {
            (1, Some(Value::Object(mut only))) => {
                only.insert("checkpoint".into(), checkpoint);
                Value::Object(only)
            }
            (_, last) => {
                results.extend(last);
                json!({"results": results, "checkpoint": checkpoint})
            }
        };
        self.context.out.json(&all);
        stopped
    }
}

fn logprobs(ids: &[u32], logprobs: &[TokenLogprob], tokenizer: Option<&Tokenizer>) -> Value {
    let one =
        |id: u32, logprob: f32| json!({"id": id, "token": tokenizer.and_then(|t| t.token_of(id)), "logprob": logprob});
    let rows = ids.iter().zip(logprobs).map(|(id, of)| {
        let mut row = one(*id, of.logprob);
        if !of.top.is_empty() {
            row["top"] = of.top.iter().map(|(id, logprob)| one(*id, *logprob)).collect();
        }
        row
    });
    rows.collect()
}
