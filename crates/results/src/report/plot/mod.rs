//! `runner plot`: draws curves of runs in the terminal.

mod canvas;
mod chart;

use std::path::{Path, PathBuf};

use super::{
    ReportError,
    find::{Found, find, folders_in, is_run, is_sweep},
    live,
    run::more_is_better,
    series::Series,
};
use crate::units;
pub use chart::Style;
use chart::draw;
pub(super) use chart::{Axis, is_log, tick_label};

/// More curves than this cannot be distinguished.
const MOST_RUNS: usize = 8;

/// The options of a plot.
pub struct PlotRequest<'a> {
    /// Paths as for `compare`.
    pub paths: &'a [String],
    /// A column of `metrics.csv`, or one with its split: `loss`, `train.loss`, `validation.accuracy`.
    pub metric: &'a str,
    /// Size and look.
    pub style: Style,
}

/// Draws a metric over the steps: both splits of a single run, or one curve for each of several runs.
///
/// # Errors
/// There is no run, its files cannot be read, or no run has a value of the metric.
pub fn plot(request: &PlotRequest<'_>) -> Result<String, ReportError> {
    let (split, column) = match request.metric.split_once('.') {
        Some((split @ ("train" | "validation"), column)) => (Some(split), column),
        _ => (None, request.metric),
    };
    let mut runs = Vec::new();
    for folder in folders(request.paths)? {
        runs.push(Curves::read(&folder, column)?);
    }
    let number = runs.len();
    runs.retain(|run| run.splits().any(|series| !series.is_empty()));
    if runs.is_empty() {
        return Err(ReportError::NoValues { metric: request.metric.to_owned(), runs: number });
    }
    let mut title = Vec::new();
    let curves: Vec<Series> = if let [run] = &mut runs[..] {
        title.push(run.name.clone());
        let wanted = |name: &str| split.is_none_or(|split| split == name);
        let curves = std::mem::take(run).into_curves(column).into_iter();
        curves
            .filter(|(split, series)| wanted(split) && !series.is_empty())
            .map(|(_, series)| series)
            .collect()
    } else {
        let some_validate = runs.iter().any(|run| !run.validation.is_empty());
        let split = split.unwrap_or(if some_validate { "validation" } else { "train" });
        title.push(format!("{split} {column}"));
        let without = runs.iter().filter(|run| run.series(split).is_empty()).count();
        if without > 0 {
            title.push(format!("{} without it", units::counted(without as u64, "run")));
        }
        let one = |run: Curves| match split {
            "train" => run.train.named(run.name),
            _ => run.validation.named(run.name),
        };
        best(runs.into_iter().map(one).filter(|series| !series.is_empty()).collect(), column, &mut title)
    };
    if curves.is_empty() {
        return Err(ReportError::NoValues { metric: request.metric.to_owned(), runs: number });
    }
    let style = Style { linear: request.style.linear || more_is_better(column), ..request.style };
    Ok(draw(&title.join("; "), &curves, &style))
}

/// If there are too many curves, those with the best values, in their original order.
fn best(curves: Vec<Series>, column: &str, title: &mut Vec<String>) -> Vec<Series> {
    if curves.len() <= MOST_RUNS {
        return curves;
    }
    let (sign, which) = if more_is_better(column) { (-1.0, "highest") } else { (1.0, "lowest") };
    title.push(format!("the {MOST_RUNS} of {} runs with the {which} value", curves.len()));
    let mut ranked: Vec<(usize, Series)> = curves.into_iter().enumerate().collect();
    let value = |series: &Series| {
        let best = if sign > 0.0 { series.lowest() } else { series.highest() };
        best.map_or(f64::INFINITY, |(_, value)| sign * value)
    };
    ranked.sort_by(|a, b| value(&a.1).total_cmp(&value(&b.1)));
    ranked.truncate(MOST_RUNS);
    ranked.sort_by_key(|(place, _)| *place);
    ranked.into_iter().map(|(_, series)| series).collect()
}

/// The folders of all runs, including those of sweeps' trials.
fn folders(paths: &[String]) -> Result<Vec<PathBuf>, ReportError> {
    let mut folders = Vec::new();
    for found in find(paths)? {
        match found {
            Found::Run(folder) => folders.push(folder),
            Found::Sweep(folder) => {
                folders.extend(folders_in(&folder)?.into_iter().filter(|trial| is_run(trial)));
            }
        }
    }
    Ok(folders)
}

/// A run's values of one metric.
#[derive(Default)]
struct Curves {
    name: String,
    train: Series,
    validation: Series,
    /// The mean of each training epoch.
    means: Series,
}

impl Curves {
    fn read(folder: &Path, column: &str) -> Result<Self, ReportError> {
        // A trial's folder is named after its values. A run's folder is a time and a hash, in a folder with
        // the run's name.
        let is_trial = folder.parent().is_some_and(is_sweep);
        let parts: Vec<_> = folder.components().map(|part| part.as_os_str().to_string_lossy()).collect();
        let from = parts.len().saturating_sub(if is_trial { 1 } else { 2 });
        let name = parts[from..].join("/");
        let mut read = live::curves(&folder.join("metrics.csv"))?.into_iter();
        let [train, validation, means] =
            read.find(|(name, _)| name == column).map(|(_, splits)| splits).unwrap_or_default();
        Ok(Self { name, train, validation, means })
    }

    /// What is drawn of a run alone, with the split of each.
    fn into_curves(self, column: &str) -> Vec<(&'static str, Series)> {
        let Self { train, validation, means, .. } = self;
        let mut curves = Vec::new();
        if train.hides(&means) {
            let each_step = train.named(format!("train {column}, each step")).pale();
            curves.extend([
                ("train", each_step),
                ("train", means.named(format!("train {column}, mean of each epoch"))),
            ]);
        } else {
            curves.push(("train", train.named(format!("train {column}"))));
        }
        curves.push(("validation", validation.named(format!("validation {column}"))));
        curves
    }

    fn series(&self, split: &str) -> &Series {
        if split == "train" { &self.train } else { &self.validation }
    }

    fn splits(&self) -> impl Iterator<Item = &Series> {
        [&self.train, &self.validation].into_iter()
    }
}
