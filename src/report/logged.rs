//! What a run logged beyond its summary: the end of the columns of `metrics.csv`.

use std::{collections::BTreeMap, path::Path};

use super::{ReportError, csv_file};

/// Values of whole validations and of training steps, by the names that options take.
const NAMES: [&str; 11] = [
    "validation.mae",
    "validation.rmse",
    "validation.r2",
    "validation.f1",
    "validation.precision",
    "validation.recall",
    "validation.auc",
    "train.accuracy",
    "train.grad_norm",
    "train.param_norm",
    "train.lr",
];

/// Values by name.
pub(super) type Logged = BTreeMap<String, String>;

/// The names among those above that `logging.metrics` declares, which is written as in the spec: `["loss", "mae"]`.
pub(super) fn names(metrics: &str) -> impl Iterator<Item = &'static str> + use<'_> {
    NAMES.into_iter().filter(move |name| is_listed(metrics, name))
}

fn is_listed(metrics: &str, name: &str) -> bool {
    let metric = name.split('.').next_back().unwrap_or(name);
    metrics.trim_matches(['[', ']']).split(", ").any(|listed| listed.trim_matches('"') == metric)
}

/// Reads the last validation, and of training rows the mean of the last epoch.
pub(super) fn read(path: &Path) -> Result<Logged, ReportError> {
    let mut validation = csv::StringRecord::new();
    let mut epoch = String::new();
    let mut sums: Vec<Mean> = Vec::new();
    let mut found = None;
    let (columns, _) = csv_file::scan(
        path,
        |_| Ok(()),
        |columns, row| {
            let [of_epoch, split, rows] = match found {
                Some(places) => places,
                None => *found.insert(csv_file::find_columns(columns, ["epoch", "split", "rows"])?),
            };
            if &row[split] != "train" {
                validation = row.clone();
                return Ok(());
            }
            if row[of_epoch] != epoch {
                row[of_epoch].clone_into(&mut epoch);
                sums = vec![Mean::default(); columns.len()];
            }
            let rows = row[rows].parse().unwrap_or(0.0);
            row.iter().zip(&mut sums).for_each(|(cell, sum)| sum.add(cell, rows));
            Ok(())
        },
    )?;
    let last = columns.iter().zip(&validation).filter(|(_, cell)| !cell.is_empty());
    let last = last.map(|(column, cell)| (format!("validation.{column}"), cell.to_owned()));
    let means = columns.iter().zip(&sums).filter(|(_, sum)| sum.rows > 0.0);
    let means = means.map(|(column, sum)| (format!("train.{column}"), (sum.sum / sum.rows).to_string()));
    Ok(last.chain(means).collect())
}

/// A mean over rows.
#[derive(Clone, Default)]
struct Mean {
    sum: f64,
    rows: f64,
}

impl Mean {
    fn add(&mut self, cell: &str, rows: f64) {
        if let Ok(value) = cell.parse::<f64>() {
            self.sum += value * rows;
            self.rows += rows;
        }
    }
}
