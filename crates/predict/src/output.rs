//! Writes predictions as CSV: a number per target in the units of the training file, or a class and its
//! probabilities.

use std::{
    io::{self, Write},
    iter,
    path::Path,
};

use super::{
    PredictError, Predictor, Trained,
    forward::{Chunk, forward},
    mean::shortest,
    out_of_fold::OutOfFold,
    output_file::OutputFile,
};
use crate::{
    data::{Input, RowOptions, Scale},
    record::Lines,
    spec::Source,
    train::{DecisionRule, softmax},
};

/// Which rows are predicted.
#[derive(Clone, Copy)]
pub enum PredictedRows<'a> {
    New(&'a Input, &'a RowOptions),
    /// Those that the folds of a sweep validated with, each predicted by the models that did not train on it: with its number in the
    /// file and its target.
    OutOfFold,
}

/// Writes a prediction for each row, in the same order, to standard output or to the file `to`. A
/// regular file is replaced only once all predictions are written, and only if it holds earlier ones or with
/// `force`. `rule` says which class is predicted. `warn` receives warnings about the rows.
///
/// # Errors
/// A problem with the rows; complete blocks before it have then been written to standard output. The file
/// holds something else.
pub fn predict(
    predictor: &Predictor,
    rows: PredictedRows<'_>,
    rule: DecisionRule,
    (to, force): (Option<&Path>, bool),
    warn: &mut dyn FnMut(String),
) -> Result<(), PredictError> {
    let table = PredictionTable::new(predictor, rows, rule);
    let own = table.names();
    if let (PredictedRows::New(..), Some(name)) = (rows, table.kept.iter().find(|name| own.contains(name))) {
        return Err(PredictError::KeepsOwnName { name: name.clone() });
    }
    let Some(path) = to.filter(|path| *path != Path::new("-")) else {
        return table.write(rows, &mut io::stdout().lock(), "standard output", warn);
    };
    if path.extension().is_some_and(|ending| ending == "gz") {
        return Err(PredictError::IsPlain { file: path.to_owned() });
    }
    let sources: Vec<Source> = match rows {
        PredictedRows::New(..) => Vec::new(),
        PredictedRows::OutOfFold => predictor.models.iter().map(Trained::source).collect(),
    };
    let given = if let PredictedRows::New(input, _) = rows { Some(input.path()) } else { None };
    let inputs = sources.iter().flat_map(Source::files).chain(given);
    let folders = predictor.models.iter().map(|model| &*model.folder);
    let file = OutputFile::new(path, folders.chain([predictor.folder()]), inputs)?;
    if !force && file.replaces_other(table.header(&table.kept).bytes()) {
        return Err(table.is_other(rows, &file, path)?);
    }
    file.write(|out| table.write(rows, out, &file.name(), warn))
}

/// How predictions are written.
struct PredictionTable<'a> {
    predictor: &'a Predictor,
    /// The names of columns before the predictions.
    kept: Vec<String>,
    /// Whether the targets follow the predictions.
    has_targets: bool,
    classes: Option<Vec<String>>,
    scales: Vec<Scale>,
    rule: DecisionRule,
}

impl<'a> PredictionTable<'a> {
    fn new(predictor: &'a Predictor, rows: PredictedRows<'_>, rule: DecisionRule) -> Self {
        let (kept, has_targets) = match rows {
            PredictedRows::New(_, options) => (options.keep.clone(), false),
            PredictedRows::OutOfFold => (vec!["row".to_owned()], true),
        };
        let data = &predictor.first().data;
        let (classes, scales) = (data.class_names(), data.target_scales());
        Self { predictor, kept, has_targets, classes, scales, rule }
    }

    /// Why a file that holds something else is not replaced.
    fn is_other(
        &self,
        rows: PredictedRows<'_>,
        file: &OutputFile<'_>,
        path: &Path,
    ) -> Result<PredictError, PredictError> {
        if let PredictedRows::New(input, options) = rows
            && !options.keep.is_empty()
        {
            // A column that is not there is the error to begin with.
            self.predictor.first().data.rows(input, options)?.next_block()?;
        }
        let text = |lines: &Lines| String::from_utf8_lossy(lines.bytes()).into_owned();
        let (own, wanted) = (text(&self.header(&[])), text(&self.header(&self.kept)));
        let file_name = path.to_owned();
        Ok(match file.first_line().filter(|line| line.ends_with(&own)) {
            Some(line) => PredictError::KeepsOthers {
                file: file_name,
                found: line.trim_end().to_owned(),
                wanted: wanted.trim_end().to_owned(),
            },
            None => PredictError::IsNoPrediction { file: file_name },
        })
    }

    fn write(
        &self,
        rows: PredictedRows<'_>,
        out: &mut dyn Write,
        name: &str,
        warn: &mut dyn FnMut(String),
    ) -> Result<(), PredictError> {
        let mut lines = self.header(&self.kept);
        let mut take = |chunk: &Chunk<'_>| {
            self.rows(&mut lines, chunk);
            let written = out.write_all(lines.bytes());
            lines.clear();
            written.map_err(|source| PredictError::Write { to: name.to_owned(), source })
        };
        let count = match rows {
            PredictedRows::New(input, options) => {
                let models = &self.predictor.models;
                let rows = models.iter().map(|model| model.data.rows(input, options));
                let mut rows = rows.collect::<Result<Vec<_>, _>>()?;
                forward(models, &mut rows, &mut |_| {}, warn, &mut take)?.0
            }
            PredictedRows::OutOfFold => {
                let rows = OutOfFold::new(self.predictor, warn)?;
                let numbers: Vec<String> = rows.numbers.iter().map(u32::to_string).collect();
                take(&Chunk { kept: &numbers, ..rows.chunk() })?;
                numbers.len()
            }
        };
        if count == 0 {
            warn("no rows to predict".to_owned());
            // The header alone, as of a table without rows.
            take(&Chunk { outputs: &[], targets: &[], kept: &[], of_models: &[] })?;
        }
        Ok(())
    }

    /// The names of columns: of those that are kept, and of predictions.
    fn header(&self, kept: &[String]) -> Lines {
        let mut lines = Lines::new();
        lines.texts(kept.iter().chain(&self.names()));
        lines.end();
        lines
    }

    /// The names of columns of predictions, and of targets that follow them.
    fn names(&self) -> Vec<String> {
        let targets = self.predictor.first().data.target_names();
        let named = |what: &str| match &targets[..] {
            [] => vec![what.to_owned()],
            targets => targets.iter().map(|target| format!("{what}_{target}")).collect(),
        };
        let mut names = match &self.classes {
            Some(classes) => iter::once("class".to_owned())
                .chain(classes.iter().map(|class| format!("p_{class}")))
                .collect(),
            None => named("prediction"),
        };
        if self.has_targets {
            names.extend(named("actual"));
        }
        names
    }

    fn rows(&self, lines: &mut Lines, chunk: &Chunk<'_>) {
        let data = &self.predictor.first().data;
        let rows = chunk.outputs.chunks_exact(self.predictor.first().outputs);
        let mut targets = chunk.targets.chunks_exact(data.target_width());
        for (number, row) in rows.enumerate() {
            let each = self.kept.len();
            lines.texts(&chunk.kept[number * each..(number + 1) * each]);
            match &self.classes {
                Some(classes) => class_row(lines, classes, self.rule, row),
                None => self.numbers(lines, row),
            }
            match (targets.next().filter(|_| self.has_targets), &self.classes) {
                (Some(actual), Some(classes)) => {
                    lines.text(classes.get(actual[0] as usize).map_or("", String::as_str));
                }
                (Some(actual), None) => actual.iter().zip(&self.scales).for_each(|(y, scale)| {
                    if scale.is_identity() {
                        lines.f32(*y)
                    } else {
                        lines.f64(shortest(scale, *y))
                    };
                }),
                (None, _) => {}
            }
            lines.end();
        }
    }

    /// Numbers in the units of the training file.
    fn numbers(&self, lines: &mut Lines, row: &[f32]) {
        row.iter().zip(&self.scales).for_each(|(y, scale)| {
            if scale.is_identity() {
                lines.f32(*y)
            } else {
                lines.f64(scale.original((*y).into()))
            };
        });
    }
}

/// The class that the rule predicts, and the softmax of all outputs; no class if one of them is not finite.
fn class_row(lines: &mut Lines, classes: &[String], rule: DecisionRule, outputs: &[f32]) {
    if !outputs.iter().all(|y| y.is_finite()) {
        lines.empty();
        outputs.iter().for_each(|_| {
            lines.f32(f32::NAN);
        });
        return;
    }
    lines.text(classes.get(rule.class(outputs)).map_or("", String::as_str));
    softmax(outputs).for_each(|share| {
        lines.f32(share as f32);
    });
}
