//! `unisono chat`: a conversation on the terminal, or with a user's message a line from a pipe; with `--json` an object an answer.

use super::generate::tell_rates;
use super::requests::chosen;
use super::writer::{Template, Writer};
use super::{DONE, given};
use crate::cli::ChatArgs;
use crate::context::Context;
use crate::exit::Failure;
use crate::launched;
use crate::signals::Interrupts;
use serde_json::json;
use std::io::{BufRead, IsTerminal};
use std::ops::ControlFlow;
use unisono_data::{Message, Tokenizer};
use unisono_train::generate::{Batching, End, Finish, Request, Sampling, Session, StopTexts, Work, answer_text};

/// What can be said besides messages.
const HELP: &str = "/reset begins anew, /quit (or the end of the input) ends";
/// What else, to a single process: of several, all must do the same, and the first alone hears it.
const INTERRUPT: &str = "; Ctrl-C ends an answer";

/// See the module.
///
/// # Errors
/// A name that is no run and no model, a model without a chat template.
pub fn run(args: &ChatArgs, context: &Context) -> Result<u8, Failure> {
    let template = Template::named(args.template.as_deref())?;
    given::model(&args.model)?;
    given::sampling(&args.model.changes, &args.sampling)?;
    let writer = Writer::load(&args.model, context)?;
    let tokenizer = writer.tokenizer()?;
    writer.check_template(template)?;
    let sampling = chosen(writer.sampling, &args.sampling);
    sampling.check().map_err(Failure::input)?;
    let mut stops = args.sampling.stop.clone();
    stops.extend(template.stop().map(String::from));
    let batching = Batching {
        vocabulary: writer.vocabulary(),
        ..Batching::default()
    };
    let mut chat = Chat {
        template,
        writer: &writer,
        tokenizer,
        session: Session::new(writer.model(), batching)?,
        sampling,
        stops: StopTexts::new(stops).map_err(Failure::input)?,
        max_new_tokens: args.sampling.max_new_tokens,
        system: args.system.clone(),
        messages: Vec::new(),
        work: Work::default(),
        answers: 0,
        interrupts: context.ranks.is_none().then(Interrupts::catch).transpose()?,
        context,
    };
    chat.reset();
    let is_terminal = std::io::stdin().is_terminal() || launched::has_terminal(&context.environment);
    if is_terminal {
        let interrupt = if context.ranks.is_none() { INTERRUPT } else { "" };
        context.out.say(format!("{HELP}{interrupt}"));
    }
    while let Some(line) = heard(is_terminal, context)? {
        let Ok(text) = std::str::from_utf8(&line) else {
            return Err(Failure::input("a message on standard input is not UTF-8 text"));
        };
        match text.trim() {
            "" => {}
            "/quit" | "/exit" => break,
            "/reset" => chat.reset(),
            text if text.starts_with('/') => context.out.note(format!("{text} is no command: {HELP}")),
            text => chat.turn(text)?,
        }
    }
    tell_rates(&chat.work, chat.answers, context);
    DONE
}

/// The next line of the user's, with its end; none where no more come, or where nobody reads the answers. Of several processes the first
/// has it.
fn heard(is_terminal: bool, context: &Context) -> Result<Option<Vec<u8>>, Failure> {
    let read = || {
        if context.out.is_broken() {
            return Ok(None);
        }
        if is_terminal {
            context.out.piece("> ");
        }
        let mut line = Vec::new();
        match std::io::stdin().lock().read_until(b'\n', &mut line) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(line)),
            Err(error) => Err(Failure::input(format!("standard input cannot be read: {error}"))),
        }
    };
    match &context.ranks {
        None => read(),
        Some(ranks) => {
            let own = if ranks.rank() == 0 { read()? } else { None };
            ranks.of_user("the next message of the user", &own)
        }
    }
}

/// A conversation.
struct Chat<'a> {
    template: Template,
    writer: &'a Writer,
    tokenizer: &'a Tokenizer,
    session: Session<'a>,
    sampling: Sampling,
    stops: StopTexts,
    max_new_tokens: Option<usize>,
    system: Option<String>,
    messages: Vec<Message>,
    work: Work,
    answers: usize,
    interrupts: Option<Interrupts>,
    context: &'a Context,
}

impl Chat<'_> {
    /// Forgets all messages.
    fn reset(&mut self) {
        self.messages.clear();
        self.messages
            .extend(self.system.clone().map(|text| Message::new("system", text)));
        self.session.clear();
    }

    /// A message and its answer.
    fn turn(&mut self, text: &str) -> Result<(), Failure> {
        let out = &self.context.out;
        self.messages.push(Message::new("user", text));
        let ids = self
            .writer
            .conversation(self.template, &self.messages)
            .map_err(Failure::input)?;
        let positions = self.writer.model().max_sequence_length();
        // A word of an answer at least must have room.
        if ids.len() >= positions {
            self.messages.pop();
            out.note(format!(
                "with this message the conversation has {} tokens, and the model has positions for {positions}: the message was \
                 left out; /reset begins anew, or say it in fewer words",
                ids.len()
            ));
            return Ok(());
        }
        out.debug(format!(
            "{} tokens, of which {} are in the cache already",
            ids.len(),
            self.session.known(&ids)
        ));
        let request = Request {
            max_new_tokens: self.writer.new_tokens(self.max_new_tokens, ids.len()),
            prompt_ids: ids,
            sampling: self.sampling,
            stop_ids: self.writer.eos_ids.clone(),
            logprobs: None,
        };
        let interrupts = self.interrupts.as_ref();
        let _busy = interrupts.map(Interrupts::busy);
        let mut begun = false;
        let (answer, work) = answer_text(&mut self.session, self.tokenizer, &request, &self.stops, &mut |piece| {
            // A tokenizer that writes a word's leading space with the word begins the answer with one.
            let piece = if begun { piece } else { piece.trim_start() };
            begun |= !piece.is_empty();
            out.piece(piece);
            match interrupts.is_some_and(|interrupts| interrupts.asked() || out.is_broken()) {
                true => ControlFlow::Break(End::All),
                false => ControlFlow::Continue(()),
            }
        })?;
        out.piece("\n");
        out.json(&json!({
            "text": answer.text.trim(),
            "ids": answer.ids,
            "finish": answer.finish.word(),
            "finish_reason": answer.finish.to_string(),
        }));
        match &answer.finish {
            Finish::Context { .. } => out.note(format!("the answer ends here: {}; /reset begins anew", answer.finish)),
            Finish::Length => out.note(format!(
                "the answer ends here: it has {} tokens, as many as --max-new-tokens allows",
                answer.ids.len()
            )),
            Finish::Cancelled => out.note("the answer was ended"),
            Finish::Stop(_) | Finish::StopText(_) => {}
        }
        self.work.add(&work);
        self.answers += 1;
        self.messages.push(Message::new("assistant", answer.text.trim()));
        Ok(())
    }
}
