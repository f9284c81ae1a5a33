//! What is odd about rows that are evaluated: they trained the model, or lack what the training file has.

use std::path::Path;

use super::{DecisionRequest, Predictor, Trained, intervals::group_name};
use crate::{
    data::{Input, NewRows, digest_of_files},
    host::{escape_line, read_text},
    report::run_digest,
    spec::{Missing, Source},
    train::Scores,
    units,
};

/// What rows that the run did not hold out are, and what a file of arrays cannot have.
pub fn warn_of_new_rows(
    predictor: &Predictor,
    (input, labels): (&Input, Option<&Path>),
    count: usize,
    warn: &mut dyn FnMut(String),
) {
    let trained = predictor.first();
    if is_of_the_run(trained, input, labels) {
        warn(match predictor.is_several() {
            true => {
                let folds = trained.spec.data.folds;
                let way = folds.map(|_| ": `--out-of-fold` takes, for each row, those that were not");
                format!("these rows include those that the models were trained on{}", way.unwrap_or_default())
            }
            false => format!("these rows include those that the run was trained on{}", which(trained, count)),
        });
    }
    if let Some(groups) = array_groups(&trained.spec.data.source).and_then(|_| group_name(trained)) {
        warn(format!(
            "without groups such as those of `{groups}`, intervals take each row as one of its own"
        ));
    }
}

/// What the rows lack that those to train on have, and how many are left out.
pub fn warn_of_rows(trained: &Trained, rows: &NewRows<'_>, warn: &mut dyn FnMut(String)) {
    if let Some((group, false)) = rows.group() {
        let group = group.escape_debug();
        warn(format!(
            "without the column `{group}`, whose rows belong together, intervals take each row as one of its own"
        ));
    }
    if let Some(column) = rows.lacks_weights() {
        warn(format!("without the column `{column}`, which weighs the rows, each counts as 1"));
    }
    if rows.dropped() > 0 {
        let table = trained.spec.data.source.table();
        let fills = table.is_some_and(|(_, table)| table.missing == Missing::Mean);
        let why = match fills {
            true if trained.data.weight().is_some() => "without a target or a weight",
            true => "without a target",
            false => "for missing cells",
        };
        warn(format!("rows left out {why}, as in training: {}", rows.dropped()));
    }
}

/// A threshold that the test rows choose, or that is of the more frequent class.
pub fn warn_of_threshold(
    request: &DecisionRequest<'_>,
    are_test: bool,
    scores: &Scores,
    classes: &[String],
    warn: &mut dyn FnMut(String),
) {
    let DecisionRequest { threshold, positive, table } = *request;
    if table && are_test {
        warn(
            "these are the test rows: choose the threshold on the validation rows, with `--validation`"
                .to_owned(),
        );
    }
    if positive.is_none()
        && (table || threshold.is_some())
        && let (Scores::Classes(all), [first, second]) = (scores, classes)
    {
        let rows = |class: usize| all.counts[2 * class..2 * class + 2].iter().sum::<u64>();
        if rows(0) < rows(1) {
            let [first, second] = [first, second].map(|name| escape_line(name));
            let words = format!("the threshold is of `{second}`, which has more rows than `{first}`");
            warn(format!("{words}: `--positive` names another class"));
        }
    }
}

/// The file of the groups of an array's rows.
fn array_groups(source: &Source) -> Option<&Path> {
    if let Source::Npy(npy) = source { npy.groups.as_deref() } else { None }
}

/// Whether a file is the one that the run was trained on.
fn is_of_the_run(trained: &Trained, input: &Input, labels: Option<&Path>) -> bool {
    let Input::File(path) = input else { return false };
    // The groups of rows count as data of the run, not of new rows.
    let groups = array_groups(&trained.spec.data.source);
    let files = std::iter::once(path.as_path()).chain(labels).chain(groups);
    let digest = digest_of_files(&trained.spec.data.source, files);
    digest.is_some() && digest == run_digest(&trained.folder)
}

/// `: 258 of 344 (the others: 52 validation, 34 test)`, of the rows of the run's own file; nothing if no others are listed.
fn which(trained: &Trained, count: usize) -> String {
    let listed = read_text(&trained.folder.join("rows.csv")).unwrap_or_default();
    let is_of = |line: &&str, part| line.split(',').next() == Some(part);
    let parts = ["validation", "test", "later"]
        .map(|part| (part, listed.lines().filter(|line| is_of(line, part)).count()));
    let held: usize = parts.iter().map(|(_, rows)| rows).sum();
    let Some(trains) = count.checked_sub(held).filter(|_| held > 0) else { return String::new() };
    let counted = |rows: usize| units::count(rows as u64);
    let others = parts.iter().filter(|(_, rows)| *rows > 0);
    let others: Vec<String> = others.map(|(part, rows)| format!("{} {part}", counted(*rows))).collect();
    format!(": {} of {} (the others: {})", counted(trains), counted(count), others.join(", "))
}
