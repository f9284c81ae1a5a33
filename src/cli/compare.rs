//! `runner compare PATH ...`: runs side by side, the best first.

use super::{args::CompareOptions, run::terminal_width};
use crate::{
    report::{Comparison, Question, ReportError},
    run::{Exit, print, print_error, print_stderr},
};

/// Runs the command.
pub fn compare(options: &CompareOptions) -> Exit {
    match compared(options) {
        Ok(text) => print(&text),
        Err(e) => {
            print_error(&e, e.hint());
            Exit::Refused
        }
    }
}

fn compared(options: &CompareOptions) -> Result<String, ReportError> {
    let mut comparison = Comparison::read(&options.paths, options.filter.as_deref())?;
    if options.detail || options.export.is_some() {
        comparison = comparison.with_curves()?;
    }
    for reason in comparison.damaged() {
        print_stderr(&format!("warning: left out: {reason}\n"));
    }
    if options.quiet {
        return Ok(format!("{}\n", comparison.comparability()));
    }
    if let Some(format) = options.export {
        // The comparison on the screen says so in its first line.
        for words in comparison.warning().into_iter().chain(comparison.builds()) {
            print_stderr(&format!("warning: {words}\n"));
        }
        return Ok(comparison.export(format.into()));
    }
    let question = Question {
        metric: options.metric.clone(),
        sort: options.sort.clone(),
        top: options.top,
        by: options.by.clone(),
    };
    let is_asked = options.metric.is_some() || !options.by.is_empty();
    let mut text = match options.times || (comparison.is_about_times() && !is_asked) {
        true => comparison.times(terminal_width()),
        false => {
            let builds = comparison.builds().map(|words| format!("{words}\n")).unwrap_or_default();
            comparison.answer(&question, terminal_width())? + &builds
        }
    };
    if options.detail {
        text += &comparison.detail();
    }
    Ok(text)
}
