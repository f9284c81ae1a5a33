//! `runner predict` and `runner evaluate`: apply a run's model to new rows.

use std::{io::ErrorKind, path::Path};

use super::{
    args::{
        CategoryRule, DecisionOptions, EvaluateOptions, MarkOptions, ModelOptions, ModelsOptions,
        PredictOptions,
    },
    runs,
};
use crate::{
    data::{Input, RowOptions},
    predict::{
        Decision, DecisionRequest, EvaluateRequest, EvaluatedRows, Models, PredictError, PredictedRows,
        Predictor, WhichWeights, evaluate as evaluated, predict as predicted,
    },
    run::{Exit, print, print_json, print_stderr, refuse, warn},
};

/// Prints predictions, or writes them to a file.
pub fn predict(options: &PredictOptions) -> Result<Exit, Exit> {
    let models = models(&options.models);
    let predictor = open(&options.model, models, options.quiet).map_err(report)?;
    let input = options.data.as_deref().map(|path| input(path, models)).transpose().map_err(report)?;
    let row_options =
        RowOptions { keep: options.keep.clone(), ..row_options(options.unknown_category, &options.marks) };
    let rows = match &input {
        Some(input) => PredictedRows::New(input, &row_options),
        None => PredictedRows::OutOfFold,
    };
    let to = (options.out.as_deref(), options.force);
    let decision = Decision::new(predictor.first(), &request(&options.decision, false)).map_err(report)?;
    if !options.quiet {
        print_stderr(&decision.text);
    }
    let predicted = predicted(&predictor, rows, decision.rule, to, &mut warn);
    predicted.map(|()| Exit::Done).map_err(report)
}

/// Prints metrics.
pub fn evaluate(options: &EvaluateOptions) -> Result<Exit, Exit> {
    let models = models(&options.models);
    let predictor = open(&options.model, models, options.quiet).map_err(report)?;
    let input = options.data.as_deref().map(|path| input(path, models)).transpose().map_err(report)?;
    let rows = match &input {
        Some(input) => EvaluatedRows::New(input),
        None if options.models.out_of_fold => EvaluatedRows::OutOfFold,
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
    let evaluation = evaluated(&predictor, &request, &mut warn).map_err(report)?;
    Ok(match options.json {
        true => print_json(&evaluation.json(&predictor)),
        false => print(&evaluation.table()),
    })
}

fn models(options: &ModelsOptions) -> Models {
    match (options.ensemble, options.out_of_fold) {
        (true, _) => Models::Ensemble,
        (_, true) => Models::OutOfFold,
        _ => Models::One,
    }
}

/// The models; says which they are, unless it is to be quiet.
pub(super) fn open(
    options: &ModelOptions,
    models: Models,
    is_quiet: bool,
) -> Result<Predictor, PredictError> {
    let which = if options.last { WhichWeights::Last } else { WhichWeights::Best };
    let predictor = Predictor::open(&options.run, which, models)?;
    if !is_quiet {
        print_stderr(&predictor.described());
    }
    predictor.lacks().into_iter().for_each(warn);
    Ok(predictor)
}

fn request(options: &DecisionOptions, table: bool) -> DecisionRequest<'_> {
    DecisionRequest { threshold: options.threshold, positive: options.positive.as_deref(), table }
}

fn row_options(unknown_category: CategoryRule, marks: &MarkOptions) -> RowOptions {
    let takes_unknown = unknown_category == CategoryRule::Ignore;
    RowOptions { takes_unknown, keep: Vec::new(), marks: marks.marks() }
}

fn input(path: &Path, models: Models) -> Result<Input, PredictError> {
    let input = if path == Path::new("-") { Input::StandardInput } else { Input::File(path.to_owned()) };
    Ok(if models == Models::One { input } else { input.for_several()? })
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
