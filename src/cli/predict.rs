//! `runner predict` and `runner evaluate`: apply a run's model to new rows.

use std::{io::ErrorKind, path::Path};

use super::{
    args::{CategoryRule, DecisionOptions, EvaluateOptions, MarkOptions, ModelOptions, PredictOptions},
    runs,
};
use crate::{
    data::{Input, RowOptions},
    host::escape_line,
    predict::{
        Decision, DecisionRequest, EvaluateRequest, EvaluatedRows, PredictError, Trained, WhichWeights,
        evaluate as evaluated, predict as predicted,
    },
    run::{Exit, print, print_json, print_stderr, refuse, warn},
};

/// Prints predictions, or writes them to a file.
pub fn predict(options: &PredictOptions) -> Result<Exit, Exit> {
    let trained = open(&options.model, options.quiet).map_err(report)?;
    let rows =
        RowOptions { keep: options.keep.clone(), ..row_options(options.unknown_category, &options.marks) };
    let to = (options.out.as_deref(), options.force);
    let decision = Decision::new(&trained, &request(&options.decision, false)).map_err(report)?;
    if !options.quiet {
        print_stderr(&decision.text);
    }
    let predicted = predicted(&trained, &input(&options.data), &rows, decision.rule, to, &mut warn);
    predicted.map(|()| Exit::Done).map_err(report)
}

/// Prints metrics.
pub fn evaluate(options: &EvaluateOptions) -> Result<Exit, Exit> {
    let trained = open(&options.model, options.quiet).map_err(report)?;
    let input = options.data.as_deref().map(input);
    let rows = match &input {
        Some(input) => EvaluatedRows::New(input),
        None if options.validation => EvaluatedRows::Validation,
        None => EvaluatedRows::Test,
    };
    let request = EvaluateRequest {
        rows,
        options: &row_options(options.unknown_category, &options.marks),
        labels: options.labels.as_deref(),
        decision: request(&options.decision, options.thresholds),
        importance: options.importance,
    };
    let evaluation = evaluated(&trained, &request, &mut warn).map_err(report)?;
    Ok(match options.json {
        true => print_json(&evaluation.json(&trained)),
        false => print(&evaluation.table()),
    })
}

/// The model; says which it is, unless it is to be quiet.
pub(super) fn open(options: &ModelOptions, is_quiet: bool) -> Result<Trained, PredictError> {
    let which = if options.last { WhichWeights::Last } else { WhichWeights::Best };
    let trained = Trained::open(&options.run, which)?;
    if is_quiet {
        return Ok(trained);
    }
    let run = trained.chosen().map(|words| format!("run: {}\n", escape_line(&words))).unwrap_or_default();
    print_stderr(&format!("{run}weights: {}\n", trained.described()));
    Ok(trained)
}

fn request(options: &DecisionOptions, table: bool) -> DecisionRequest<'_> {
    DecisionRequest { threshold: options.threshold, positive: options.positive.as_deref(), table }
}

fn row_options(unknown_category: CategoryRule, marks: &MarkOptions) -> RowOptions {
    let takes_unknown = unknown_category == CategoryRule::Ignore;
    RowOptions { takes_unknown, keep: Vec::new(), marks: marks.marks() }
}

fn input(path: &Path) -> Input {
    if path == Path::new("-") { Input::StandardInput } else { Input::File(path.to_owned()) }
}

pub(super) fn report(error: PredictError) -> Exit {
    let error = match error {
        PredictError::Report(error) => return runs::refuse(error),
        other => other,
    };
    match &error {
        PredictError::Input(failure) => refuse(failure),
        // The reader of the predictions has closed the pipe.
        PredictError::Write { source, .. } if source.kind() == ErrorKind::BrokenPipe => Exit::Done,
        PredictError::Write { .. } | PredictError::Device(_) => Exit::failed(&error, error.hint()),
        _ => Exit::refused(&error, error.hint()),
    }
}
