//! What a run logged beyond its summary: the last values in the columns of `metrics.csv`.

use std::{collections::BTreeMap, path::Path};

use super::{ReportError, live};
use crate::files::{
    Ends,
    csv_lines::{find_columns, is_validation, scan_with},
};

/// Values of whole validations and of training steps, by the names used in options.
const NAMES: [&str; 13] = [
    "validation.mae",
    "validation.rmse",
    "validation.r2",
    "validation.f1",
    "validation.f1_weighted",
    "validation.precision",
    "validation.recall",
    "validation.auc",
    "validation.average_precision",
    "train.accuracy",
    "train.grad_norm",
    "train.param_norm",
    "train.lr",
];

/// Metrics of numbers: each of several targets has its own, such as `validation.mae_price`.
const OF_TARGETS: [&str; 3] = ["mae", "rmse", "r2"];

/// Values by name.
pub(super) type Logged = BTreeMap<String, String>;

/// Whether this is the name of something that runs may log.
pub(super) fn is_name(name: &str) -> bool {
    NAMES.contains(&name) || of_target(name).is_some()
}

/// The metric and the target of a name such as `validation.mae_price`.
pub(super) fn of_target(name: &str) -> Option<(&'static str, &str)> {
    column_of_target(name.strip_prefix("validation.")?)
}

fn column_of_target(column: &str) -> Option<(&'static str, &str)> {
    OF_TARGETS.into_iter().find_map(|metric| Some((metric, column.strip_prefix(metric)?.strip_prefix('_')?)))
}

/// The column of an export with this metric of the validation at the best epoch.
pub(super) fn best_column(metric: &str) -> String {
    format!("best_validation_{metric}")
}

/// Suffixes of figures for which more is better; for all others, less is.
const MORE: [&str; 9] =
    ["accuracy", "per_s", "r2", "f1", "f1_weighted", "precision", "recall", "auc", "gb_per_s"];

/// The same where less is better. Of others, such as norms and numbers of epochs, neither side is better.
const LESS: [&str; 8] = ["loss", "mae", "rmse", "_s", "share", "bytes", "energy_j", "syncs"];

/// Whether it is known which values of the figure are better.
pub(super) fn has_direction(name: &str) -> bool {
    let metric = metric_of(name);
    more_is_better(name) || metric.starts_with("bytes_") || LESS.iter().any(|ending| metric.ends_with(ending))
}

/// Whether a larger value of the figure is better.
pub(super) fn more_is_better(name: &str) -> bool {
    MORE.iter().any(|ending| metric_of(name).ends_with(ending))
}

/// The metric by which the values of a name or a column are read: of one target, that of all.
pub(super) fn metric_of(name: &str) -> &str {
    let column = name.strip_prefix("validation.").unwrap_or(name);
    column_of_target(column).map_or(name, |(metric, _)| metric)
}

/// Which of the names above are declared by `logging.metrics`, given as in the spec: `["loss", "mae"]`.
pub(super) fn names(metrics: &str) -> impl Iterator<Item = &'static str> + use<'_> {
    NAMES.into_iter().filter(move |name| is_listed(metrics, name))
}

/// Whether `logging.metrics` declares what is called so.
pub(super) fn is_listed(metrics: &str, name: &str) -> bool {
    let metric = metric_of(name).split('.').next_back().unwrap_or(name);
    metrics.trim_matches(['[', ']']).split(", ").any(|listed| listed.trim_matches('"') == metric)
}

/// Reads the values of the last validation, and the means of the last epoch's training rows.
pub(super) fn read(path: &Path) -> Result<Logged, ReportError> {
    let file = live::metrics(path)?;
    let of_metric = |(name, ends): (&str, &Ends)| {
        let validation = ends.validation.clone().filter(|cell| !cell.is_empty());
        let validation = validation.map(|cell| (format!("validation.{name}"), cell));
        let train = ends.epoch_mean().map(|mean| (format!("train.{name}"), mean.to_string()));
        [validation, train].into_iter().flatten()
    };
    Ok(file.all_ends().flat_map(of_metric).collect())
}

/// Reads the validation at this step: its cells by column.
pub(super) fn read_validation(path: &Path, step: &str) -> Result<Logged, ReportError> {
    let mut found = Logged::new();
    let header = |columns: &csv::StringRecord| {
        let names: Vec<String> = columns.iter().map(str::to_owned).collect();
        Ok((find_columns(columns, ["step", "split"])?, names))
    };
    scan_with("validation", path, header, |([at, split], names), cells| {
        if &cells[*at] == step.as_bytes() && is_validation(&cells[*split])? {
            let known = names.iter().zip(cells).filter(|(_, cell)| !cell.is_empty());
            let text = |cell: &[u8]| String::from_utf8_lossy(cell).into_owned();
            found = known.map(|(name, cell)| (name.clone(), text(cell))).collect();
        }
        Ok(())
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{files::Leaves, report::run::Run};

    /// A sweep of regressions would read all its files for accuracies.
    #[test]
    fn a_metric_that_was_not_logged_is_not_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let rows =
            "step,epoch,split,loss,f1,accuracy\n1,1,validation,0.2,0.5,0.75\n2,2,validation,0.3,0.25,0.5\n";
        std::fs::write(folder.path().join("metrics.csv"), rows).unwrap();
        let leaves = |cells: &[(&'static str, &'static str)]| Leaves::from_cells(cells.iter().copied());
        let run = Run {
            folder: Some(folder.path().to_owned()),
            has_metrics: true,
            figures: leaves(&[("best_step", "1"), ("steps", "2"), ("best_value", "0.2")]),
            spec: Some(leaves(&[("logging.metrics", "[\"loss\", \"f1\"]")])),
            ..Run::default()
        };
        assert_eq!(run.learned("validation.accuracy"), None);
        assert!(run.best_row.get().is_none());
        assert_eq!(run.learned("validation.f1"), Some("0.5"));
    }

    /// Whatever a target is called, its metric decides.
    #[test]
    fn a_metric_of_one_target_is_read_as_that_of_all() {
        let names = [
            "validation.mae_accuracy",
            "r2_price",
            "validation.rmse_time_s",
            "validation.f1_weighted",
            "train_s",
        ];
        assert_eq!(names.map(metric_of), ["mae", "r2", "rmse", "validation.f1_weighted", "train_s"]);
        assert_eq!(of_target("validation.mae_a_b"), Some(("mae", "a_b")));
        assert_eq!([of_target("mae_a"), of_target("validation.mae"), of_target("train.mae_a")], [None; 3]);
        assert!(
            is_listed("[\"loss\", \"mae\"]", "validation.mae_y")
                && !is_listed("[\"r2\"]", "validation.mae_y")
        );
    }
}
