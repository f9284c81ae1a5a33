//! Writes predictions as CSV: a number per target in the units of the training file, or a class and its
//! probabilities.

use std::{
    io::{self, Write},
    iter,
    path::Path,
};

use super::{PredictError, Trained, forward::forward, output_file::OutputFile};
use crate::{
    data::{Input, RowOptions},
    record::Lines,
    train::{DecisionRule, softmax},
};

/// Writes a prediction for each row of `input`, in the same order, to standard output or to the file `to`. A
/// regular file is replaced only once all predictions are written, and only if it holds earlier ones or with
/// `force`. `rule` says which class is predicted. `warn` receives warnings about the rows.
///
/// # Errors
/// A problem with the rows; complete blocks before it have then been written to standard output. The file
/// holds something else.
pub fn predict(
    trained: &Trained,
    input: &Input,
    options: &RowOptions,
    rule: DecisionRule,
    (to, force): (Option<&Path>, bool),
    warn: &mut dyn FnMut(String),
) -> Result<(), PredictError> {
    let own = names(trained);
    if let Some(name) = options.keep.iter().find(|name| own.contains(name)) {
        return Err(PredictError::KeepsOwnName { name: name.clone() });
    }
    let Some(path) = to.filter(|path| *path != Path::new("-")) else {
        return write(trained, (input, options, rule), &mut io::stdout().lock(), "standard output", warn);
    };
    let file = OutputFile::new(path, &trained.folder, input.path())?;
    let mut head = Lines::new();
    header(&mut head, trained, &options.keep);
    if !force && file.replaces_other(head.bytes()) {
        if !options.keep.is_empty() {
            // A column that is not there is the error to begin with.
            trained.data.rows(input, options)?.next_block()?;
        }
        let mut own = Lines::new();
        header(&mut own, trained, &[]);
        let found =
            file.first_line().filter(|line| line.ends_with(&String::from_utf8_lossy(own.bytes())[..]));
        return Err(match found {
            Some(line) => PredictError::KeepsOthers {
                file: path.to_owned(),
                found: line.trim_end().to_owned(),
                wanted: String::from_utf8_lossy(head.bytes()).trim_end().to_owned(),
            },
            None => PredictError::IsNoPrediction { file: path.to_owned() },
        });
    }
    file.write(|out| write(trained, (input, options, rule), out, &file.name(), warn))
}

fn write(
    trained: &Trained,
    (input, options, rule): (&Input, &RowOptions, DecisionRule),
    out: &mut dyn Write,
    name: &str,
    warn: &mut dyn FnMut(String),
) -> Result<(), PredictError> {
    let mut rows = trained.data.rows(input, options)?;
    let classes = trained.data.class_names();
    let mut lines = Lines::new();
    let scales = trained.data.target_scales();
    header(&mut lines, trained, &options.keep);
    let mut flush = |lines: &mut Lines| {
        let written = out.write_all(lines.bytes());
        lines.clear();
        written.map_err(|source| PredictError::Write { to: name.to_owned(), source })
    };
    let mut take = |prediction: &[f32], _: &[f32], kept: &[String]| {
        for (number, row) in prediction.chunks_exact(trained.outputs).enumerate() {
            let each = options.keep.len();
            kept[number * each..(number + 1) * each].iter().for_each(|cell| {
                lines.text(cell);
            });
            match &classes {
                Some(classes) => class_row(&mut lines, classes, rule, row),
                None => row.iter().zip(&scales).for_each(|(y, scale)| {
                    if scale.is_identity() {
                        lines.f32(*y)
                    } else {
                        lines.f64(scale.original((*y).into()))
                    };
                }),
            }
            lines.end();
        }
        flush(&mut lines)
    };
    let (count, _) = forward(trained, &mut rows, &mut |_| {}, warn, &mut take)?;
    if count == 0 {
        warn("no rows to predict".to_owned());
        // The header alone, as of a table without rows.
        take(&[], &[], &[])?;
    }
    Ok(())
}

/// The names of columns that are kept, and of predictions.
fn header(lines: &mut Lines, trained: &Trained, kept: &[String]) {
    kept.iter().chain(&names(trained)).for_each(|name| {
        lines.text(name);
    });
    lines.end();
}

/// The names of columns of predictions.
fn names(trained: &Trained) -> Vec<String> {
    let targets = trained.data.target_names();
    match trained.data.class_names() {
        Some(classes) => {
            iter::once("class".to_owned()).chain(classes.iter().map(|class| format!("p_{class}"))).collect()
        }
        None if targets.is_empty() => vec!["prediction".to_owned()],
        None => targets.iter().map(|target| format!("prediction_{target}")).collect(),
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
