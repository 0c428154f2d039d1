//! A schedule in words: who sends which chunk to whom, what everyone holds then, and what it costs.

use super::simulate::origin;
use super::words::{numbers, ranges, seconds, size};
use super::{Algorithm, ClosedForm, Collective, Fabric, Holdings, LinkModel, Part, Schedule, Send, Traffic, traffic};
use crate::MeshError;
use std::fmt::Write;
use std::ops::Range;

/// The largest group whose steps are told one by one; of larger ones only the sums.
const MAX_TOLD: usize = 16;

/// What is to be explained.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The collective.
    pub collective: Collective,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The group.
    pub fabric: Fabric,
    /// The payload in bytes.
    pub bytes: u64,
    /// Parallel links.
    pub num_links: usize,
    /// What a link costs, where it is known.
    pub model: Option<LinkModel>,
}

impl Question {
    /// What the collective costs by another algorithm, or this one.
    ///
    /// # Errors
    /// Those of [`traffic`].
    pub fn traffic(&self, algorithm: Algorithm) -> Result<Traffic, MeshError> {
        traffic(&self.collective, &self.fabric, algorithm, self.bytes, self.num_links)
    }

    /// The schedule, message by message.
    ///
    /// # Errors
    /// Those of [`Schedule::new`].
    pub fn schedule(&self) -> Result<Schedule, MeshError> {
        Schedule::new(
            self.collective,
            &self.fabric,
            self.algorithm,
            self.bytes,
            self.num_links,
        )
    }
}

/// The text of `unisono explain`: for up to 16 devices step by step who sends what to whom and what each device holds after
/// it; for all groups messages, bytes in all and at the busiest link, the closed form, the other algorithms beside it, and the
/// time where the links' costs are known.
///
/// # Errors
/// Those of [`Collective::check`]; [`MeshError::TooManyLinks`] for `num_links` 0.
pub fn explain(question: &Question) -> Result<String, MeshError> {
    let n = question.fabric.num_devices();
    let counted = question.traffic(question.algorithm)?;
    let mut text = String::new();
    let line = &mut text;
    put(
        line,
        &format!(
            "{}, {}, on {}",
            question.collective,
            question.algorithm,
            question.fabric.describe()
        ),
    );
    if n == 1 {
        put(line, "One device: nothing to do.");
        return Ok(text);
    }
    if question.collective != Collective::Barrier {
        put(
            line,
            &format!("Payload: {}, {}.", size(question.bytes), question.collective.payload()),
        );
    }
    if n <= MAX_TOLD {
        let schedule = question.schedule()?;
        put(line, &legend(&schedule));
        steps(line, &schedule);
    } else {
        put(
            line,
            &format!("The steps are told for up to {MAX_TOLD} devices; here are the sums."),
        );
    }
    put(line, "");
    sums(line, question, &counted);
    others(line, question)?;
    Ok(text)
}

fn put(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

/// How the steps are written.
fn legend(schedule: &Schedule) -> String {
    let chunk = size(schedule.chunk_bytes);
    let count = schedule.chunks;
    match (&schedule.collective, schedule.collective.reduction()) {
        (Collective::Barrier, _) => "Nothing but the news of who has come is sent.".to_owned(),
        (Collective::AllToAll, _) => format!("Chunks of {chunk}; c2.5 is what device 2 has for device 5."),
        (_, Some(reduction)) => {
            let what = if reduction.is_sum() { "sum" } else { reduction.name() };
            format!(
                "{} of {chunk}; c0[2–3] is the {what} of devices 2 and 3 in chunk 0, c0 alone that of all.",
                chunks(count)
            )
        }
        _ => format!("{} of {chunk}; c0 is chunk 0.", chunks(count)),
    }
}

fn chunks(count: usize) -> String {
    if count == 1 {
        "1 chunk".to_owned()
    } else {
        format!("{count} chunks")
    }
}

/// A table a step: who sends what, and what it holds then.
fn steps(text: &mut String, schedule: &Schedule) {
    let n = schedule.num_devices();
    let mut holds = schedule.holds_first();
    for (i, step) in schedule.steps.iter().enumerate() {
        if let Err(problem) = schedule.advance(&mut holds, i) {
            panic!("bug in unisono: {problem}");
        }
        let rows: Vec<(String, String)> = (0..n)
            .map(|device| {
                let sends: Vec<String> = step
                    .sends
                    .iter()
                    .filter(|send| send.from == device)
                    .map(|send| message(schedule, send))
                    .collect();
                let sends = if sends.is_empty() {
                    "–".to_owned()
                } else {
                    sends.join("; ")
                };
                (sends, held(schedule, i + 1, device, &holds[device]))
            })
            .collect();
        let width = rows
            .iter()
            .map(|(sends, _)| sends.chars().count())
            .max()
            .unwrap_or(0)
            .max(5);
        put(text, "");
        put(
            text,
            &format!("step {} of {}: {}", i + 1, schedule.num_steps(), step.what),
        );
        put(text, &format!("  device  {}  then holds", pad("sends", width)));
        for (device, (sends, holds)) in rows.into_iter().enumerate() {
            put(text, &format!("  {device:>6}  {}  {holds}", pad(&sends, width)));
        }
    }
}

fn pad(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(text.chars().count());
    format!("{text}{}", " ".repeat(missing))
}

/// `c2[0–1] to 3`, `c1 to 3 by 1, 2`.
fn message(schedule: &Schedule, send: &Send) -> String {
    let mut text = if schedule.collective == Collective::Barrier {
        format!(
            "word of {}",
            numbers(send.parts.iter().map(|part| part.chunk).collect())
        )
    } else {
        parts(schedule, &send.parts)
    };
    let _ = write!(text, " to {}", send.to); // writing to a string does not fail
    if !send.via.is_empty() {
        let via: Vec<String> = send.via.iter().map(usize::to_string).collect();
        let _ = write!(text, " via {}", via.join(", "));
    }
    text
}

/// Parts that combine the same devices are written together.
fn parts(schedule: &Schedule, parts: &[Part]) -> String {
    let n = schedule.num_devices();
    let mut groups: Vec<(Vec<Range<usize>>, Vec<usize>)> = Vec::new();
    for part in parts {
        let combines = if part.is_finished(n) {
            Vec::new()
        } else {
            part.combines.clone()
        };
        match groups.iter_mut().find(|(group, _)| *group == combines) {
            Some((_, chunks)) => chunks.push(part.chunk),
            None => groups.push((combines, vec![part.chunk])),
        }
    }
    let texts: Vec<String> = groups
        .into_iter()
        .map(|(combines, chunks)| {
            let chunks = labels(schedule, chunks);
            if combines.is_empty() {
                chunks
            } else {
                format!("{chunks}[{}]", ranges(&combines))
            }
        })
        .collect();
    texts.join(" ")
}

/// `c0–3,5`; in an all-to-all `c2.5`.
fn labels(schedule: &Schedule, chunks: Vec<usize>) -> String {
    if schedule.collective == Collective::AllToAll {
        let n = schedule.num_devices();
        let labels: Vec<String> = chunks
            .iter()
            .map(|chunk| format!("c{}.{}", chunk / n, chunk % n))
            .collect();
        return labels.join(" ");
    }
    format!("c{}", numbers(chunks))
}

/// What a device holds after `steps` steps, as far as it matters still: what is finished, and the partial sums that it will send or
/// finish beyond its own addends.
fn held(schedule: &Schedule, steps: usize, device: usize, holds: &Holdings) -> String {
    let n = schedule.num_devices();
    let finished = holds.finished(n);
    let finishes = |chunk: usize| {
        let first = origin(&schedule.collective, schedule.algorithm, n, chunk);
        first.is_none_or(|first| first == device)
    };
    let needed = |chunk: usize| {
        let sends = schedule.steps[steps..].iter().flat_map(|step| &step.sends);
        let mut mine = sends.filter(|send| send.from == device).flat_map(|send| &send.parts);
        finishes(chunk) || mine.any(|part| part.chunk == chunk && !part.is_finished(n))
    };
    if schedule.collective == Collective::Barrier {
        return format!("word of {}", numbers(finished));
    }
    let mut texts = Vec::new();
    if schedule.collective == Collective::AllToAll {
        let mine: Vec<usize> = finished.iter().copied().filter(|chunk| chunk % n == device).collect();
        texts.push(labels(schedule, mine));
    } else if !finished.is_empty() {
        texts.push(labels(schedule, finished.clone()));
    }
    for (chunk, pieces) in &holds.chunks {
        if finished.contains(chunk) || pieces.len() < 2 || !needed(*chunk) {
            continue;
        }
        let devices = pieces.iter().flatten().cloned().flatten().collect();
        texts.push(format!("c{chunk}[{}]", numbers(devices)));
    }
    if texts.is_empty() {
        "–".to_owned()
    } else {
        texts.join(" ")
    }
}

/// Messages, bytes, closed form, time.
fn sums(text: &mut String, question: &Question, counted: &Traffic) {
    let n = question.fabric.num_devices();
    put(
        text,
        &format!(
            "{}, {}",
            count(counted.steps, "step"),
            count(counted.messages, "message")
        ),
    );
    if question.collective == Collective::Barrier {
        return;
    }
    let listed = question.schedule().ok();
    let forwarded = listed.as_ref().map_or_else(String::new, |listed| {
        format!(", {} of it forwarded", size(listed.bytes_forwarded()))
    });
    put(
        text,
        &format!("over all links       {}{forwarded}", size(counted.bytes)),
    );
    let link = listed
        .as_ref()
        .and_then(Schedule::busiest_link)
        .map_or_else(String::new, |(link, _)| format!(", {} to {}", link.from, link.to));
    let parallel = match question.num_links {
        1 => String::new(),
        links => format!(", each of {links} parallel ones"),
    };
    put(
        text,
        &format!(
            "at the busiest link  {}{link}{parallel}",
            size(counted.busiest_link_bytes)
        ),
    );
    let share = match question.collective {
        Collective::AllReduce(_) if matches!(question.algorithm, Algorithm::Canonical | Algorithm::Ring) => {
            format!(" a device, 2(n−1)/n = {}/{n} of the payload", 2 * (n - 1))
        }
        Collective::AllGather | Collective::ReduceScatter if question.algorithm != Algorithm::Naive => {
            format!(" a device, (n−1)/n = {}/{n} of the payload", n - 1)
        }
        _ => " of the device of which others get most".to_owned(),
    };
    put(
        text,
        &format!("own data             {}{share}", size(counted.own_bytes)),
    );
    if question.algorithm == Algorithm::Canonical
        && let Some(forms) = ClosedForm::of(&question.collective, &question.fabric)
    {
        put(text, "closed form, in chunks:");
        for (what, form) in [
            ("steps", forms.steps),
            ("all links", forms.chunks),
            ("busiest link", forms.busiest),
        ] {
            let value = form.value.to_string();
            let formula = if form.formula == value {
                value
            } else {
                format!("{} = {value}", form.formula)
            };
            put(text, &format!("  {}  {formula}", pad(what, 12)));
        }
    }
    if let Some(listed) = &listed
        && !listed.is_canonical()
    {
        put(
            text,
            "This does not add in the canonical order: the bits of a sum depend on the number of devices.",
        );
    }
}

fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// The collective's algorithms beside one another.
fn others(text: &mut String, question: &Question) -> Result<(), MeshError> {
    let timed = |algorithm: Algorithm| -> Option<f64> {
        let model = question.model?;
        Question {
            algorithm,
            ..question.clone()
        }
        .schedule()
        .ok()
        .map(|schedule| schedule.time(&model))
    };
    if question.collective.algorithms().len() == 1 {
        if let Some(time) = timed(question.algorithm) {
            put(text, &format!("time                 {}", seconds(time)));
        }
        return Ok(());
    }
    let mut rows = vec![
        [
            "algorithm",
            "steps",
            "messages",
            "all links",
            "busiest link",
            "order",
            "time",
        ]
        .map(str::to_owned),
    ];
    for algorithm in question.collective.algorithms() {
        let counted = question.traffic(*algorithm)?;
        let schedule = Question {
            algorithm: *algorithm,
            ..question.clone()
        }
        .schedule()
        .ok();
        let order = schedule.map_or("", |schedule| {
            if schedule.is_canonical() {
                "canonical"
            } else {
                "another"
            }
        });
        rows.push([
            algorithm.name().to_owned(),
            counted.steps.to_string(),
            counted.messages.to_string(),
            size(counted.bytes),
            size(counted.busiest_link_bytes),
            order.to_owned(),
            timed(*algorithm).map_or_else(String::new, seconds),
        ]);
    }
    let reduces = question
        .collective
        .reduction()
        .is_some_and(|reduction| reduction.is_sum());
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let has_times = rows.iter().skip(1).any(|row| !row[6].is_empty());
    put(text, "");
    for row in rows {
        let cells: Vec<String> = (0..row.len())
            .filter(|column| (*column != 5 || reduces) && (*column != 6 || has_times))
            .map(|column| pad(&row[column], widths[column]))
            .collect();
        put(text, &cells.join("  "));
    }
    Ok(())
}
