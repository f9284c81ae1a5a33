//! `runner compare PATH ...`: runs side by side, the best first.

use super::{
    args::{CompareOptions, ExportFormat},
    runs::refuse,
    terminal::{fit, terminal_width},
};
use crate::{
    report::{Against, Comparison, Format, Question, ReportError, TOP, gate},
    run::{Exit, print, print_bytes, print_json, warn},
};

/// Runs the command.
pub fn compare(options: &CompareOptions) -> Result<Exit, Exit> {
    let compared = match &options.fail_if {
        Some(condition) => held_against(condition, options),
        None => compared(options),
    };
    compared.map_err(refuse)
}

/// `--fail-if`: compares the runs with a baseline or a fixed number.
fn held_against(condition: &str, options: &CompareOptions) -> Result<Exit, ReportError> {
    if options.export.is_some_and(|format| !matches!(format, ExportFormat::Json)) {
        let message = "the result of `--fail-if` is text, or JSON";
        return Err(ReportError::query(message.to_owned(), Some("`--export json`")));
    }
    let read = |paths: &[String]| {
        let runs = Comparison::read(paths, options.filter.as_deref())?;
        // A gate that leaves out what it was given would hold too easily.
        if let Some(why) = runs.foreign().next() {
            return Err(ReportError::Damaged(why.to_owned()));
        }
        Ok(runs)
    };
    let (base, own) = match (&options.baseline, &options.paths[..]) {
        (Some(baseline), own) => (Some(read(std::slice::from_ref(baseline))?), read(own)?),
        (None, [first, rest @ ..]) if !rest.is_empty() => {
            (Some(read(std::slice::from_ref(first))?), read(rest)?)
        }
        (None, own) => (None, read(own)?),
    };
    base.iter().chain([&own]).filter_map(Comparison::cut).for_each(warn);
    let verdict = gate(condition, &own, base.as_ref(), &options.by)?;
    verdict.warnings.iter().for_each(warn);
    let fails = verdict.fails || (options.strict && verdict.is_undecided);
    let printed = match options.export {
        None => print(&verdict.text),
        Some(_) => print_json(&verdict.json),
    };
    Ok(if fails { Exit::Failed } else { Exit::Done }.more_severe(printed))
}

fn compared(options: &CompareOptions) -> Result<Exit, ReportError> {
    let question = Question {
        metric: options.metric.clone(),
        sort: options.sort.clone(),
        // What other programs read is whole, unless they want less.
        top: options.top.unwrap_or(if options.export.is_some() { usize::MAX } else { TOP }),
        by: [&options.by[..], &options.pivot].concat(),
    };
    let mut comparison = Comparison::read(&options.paths, options.filter.as_deref())?;
    if options.detail || options.export.is_some() {
        comparison = comparison.with_curves()?;
    }
    comparison.unread().for_each(|reason| warn(format!("left out: {reason}")));
    comparison.cut().into_iter().for_each(warn);
    if options.quiet {
        return Ok(print(&format!("{}\n", comparison.comparability(options.metric.as_deref()))));
    }
    let is_plain = question.by.is_empty() && !options.times && !options.detail;
    let is_table = options.export.is_none_or(ExportFormat::is_table);
    if let ([first, second], true) =
        (&options.paths[..], is_plain && is_table && comparison.is_of_two_sweeps())
    {
        let read = |path: &String| Comparison::read(std::slice::from_ref(path), options.filter.as_deref());
        let (own, base) = (read(second)?, read(first)?);
        match (Against::new(&own, &base, &question)?, options.export.and_then(ExportFormat::format)) {
            (Ok(against), Some(format)) => {
                against.warnings().chain(&against.lost()).for_each(warn);
                return Ok(print(&against.export(format)));
            }
            (Ok(against), None) => return Ok(print(&fit(&against.text(terminal_width())))),
            (Err(words), _) => warn(format!("{words}: all are ranked together")),
        }
    }
    let is_asked = options.metric.is_some() || !question.by.is_empty();
    let is_times = options.times || (comparison.is_about_times() && !is_asked);
    if let Some(format) = options.export {
        return exported(&comparison, &question, [is_times, !options.pivot.is_empty()], format);
    }
    if !options.pivot.is_empty() {
        return Ok(print(&comparison.pivot(&question, terminal_width())?));
    }
    let mut text = match is_times {
        true => comparison.times(&question, terminal_width())?,
        false => {
            let builds = comparison.builds().map(|words| format!("{words}\n")).unwrap_or_default();
            comparison.answer(&question, terminal_width())? + &builds
        }
    };
    if options.detail {
        text += &comparison.detail();
    }
    Ok(print(&fit(&text)))
}

fn exported(
    comparison: &Comparison,
    question: &Question,
    [is_times, is_pivot]: [bool; 2],
    format: ExportFormat,
) -> Result<Exit, ReportError> {
    // The comparison on the screen already says this in its first line.
    comparison.warning().into_iter().chain(comparison.builds()).for_each(warn);
    let mut is_of_settings = !question.by.is_empty();
    let Some(format) = format.format() else {
        if is_of_settings {
            comparison.caveats(question)?.iter().for_each(warn);
        }
        return Ok(print_bytes(&comparison.export_parquet(question)?));
    };
    let is_table = matches!(format, Format::Md | Format::Latex);
    if is_table && !is_times && !is_of_settings && !comparison.is_single() {
        let (is_ranked, left_out) = comparison.ranked(question)?;
        is_of_settings = is_ranked;
        left_out.iter().filter(|_| is_ranked).for_each(warn);
    }
    if is_of_settings {
        comparison.caveats(question)?.iter().for_each(warn);
    }
    let text = match is_of_settings {
        true => comparison.export_settings(question, is_pivot, format)?,
        false => comparison.export(question, format)?,
    };
    Ok(match format {
        Format::Csv => print_bytes(text.as_bytes()),
        Format::Json => print_json(&text),
        Format::Md | Format::Latex => print(&text),
    })
}
