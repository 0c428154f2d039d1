//! `unisono data`: what is in a file of examples, and every problem by its line.

use crate::cli::{DataCheckArgs, DataCommand};
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::Out;
use crate::output::numbers::grouped;
use serde_json::json;
use unisono_data::examples::Report;
use unisono_data::{Examples, Template, Tokenizer};

/// Most lines that a remark lists; problems are all told.
const SHOWN: usize = 20;

/// See the module.
///
/// # Errors
/// A file that cannot be read, a tokenizer or template that there is not.
pub fn run(command: &DataCommand, context: &Context) -> Result<u8, Failure> {
    match command {
        DataCommand::Check(args) => check(args, context),
    }
}

fn check(args: &DataCheckArgs, context: &Context) -> Result<u8, Failure> {
    let out = &context.out;
    let tokenizer = args.tokenizer.as_deref().map(Tokenizer::load).transpose()?;
    let template = Template::parse(&args.template)?;
    let longest = args.max_length.unwrap_or(usize::MAX);
    let (_, report) = Examples::check(&args.file, tokenizer.as_ref(), &template, longest)?;
    let unit = if tokenizer.is_some() { "tokens" } else { "bytes" };
    let obstacle = report.obstacle();
    tell(&report, unit, out);
    for problem in &report.problems {
        out.result(format!("{}:{}: {}", args.file.display(), problem.line, problem.problem));
    }
    match &obstacle {
        None => out.result("nothing is in the way of training on it"),
        // The lines have been listed one by one.
        Some(_) if !report.problems.is_empty() => {
            let lines = if report.problems.len() == 1 { "line" } else { "lines" };
            out.result(format!(
                "{} {lines} cannot be used",
                grouped(report.problems.len() as u64)
            ));
        }
        Some(problem) => out.result(format!("{} {problem}", args.file.display())),
    }
    out.json(&json!({
        "file": args.file.display().to_string(),
        "template": template.text(),
        "unit": unit,
        "usable": obstacle.is_none(),
        "report": report,
    }));
    Ok(match obstacle {
        None => exit::OK,
        Some(_) => exit::INPUT,
    })
}

fn tell(report: &Report, unit: &str, out: &Out) {
    let forms: Vec<String> = report
        .forms
        .iter()
        .map(|(form, count)| format!("{} {}", grouped(*count as u64), form.name()))
        .collect();
    out.result(format!("examples      {}", grouped(report.examples as u64)));
    out.result(format!("fields        {}", forms.join(", ")));
    if report.forms.len() > 1 {
        out.result("              the file mixes forms");
    }
    if let Some(lengths) = report.lengths {
        out.result(format!(
            "length        {} to {} {unit}, median {}, 95 of 100 at most {}",
            grouped(lengths.min as u64),
            grouped(lengths.max as u64),
            grouped(lengths.median as u64),
            grouped(lengths.p95 as u64)
        ));
    }
    out.result(format!(
        "{unit:<12}  {}, of which {} are targets",
        grouped(report.tokens),
        grouped(report.targets)
    ));
    let duplicates: Vec<usize> = report.duplicates.iter().map(|duplicate| duplicate.line).collect();
    for (what, lines) in [
        ("truncated", &report.truncated),
        ("all masked", &report.all_masked),
        ("empty answer", &report.empty_answers),
        ("duplicates", &duplicates),
    ] {
        if !lines.is_empty() {
            out.result(format!("{what:<12}  {}", listed(lines)));
        }
    }
    if report.bom {
        out.say("it begins with a byte order mark, which is passed over");
    }
    for (count, one, many) in [
        (report.crlf, "line ends in CRLF", "lines end in CRLF"),
        (report.blank, "line is blank", "lines are blank"),
    ] {
        if count > 0 {
            let what = if count == 1 { one } else { many };
            out.say(format!("{} {what}, which is passed over", grouped(count as u64)));
        }
    }
}

/// `2: lines 3, 9`.
fn listed(lines: &[usize]) -> String {
    let shown: Vec<String> = lines.iter().take(SHOWN).map(usize::to_string).collect();
    let more = if lines.len() > SHOWN { ", …" } else { "" };
    let word = if lines.len() == 1 { "line" } else { "lines" };
    format!("{}: {word} {}{more}", grouped(lines.len() as u64), shown.join(", "))
}
