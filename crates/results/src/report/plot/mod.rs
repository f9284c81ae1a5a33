//! `runner plot`: draws curves of runs in the terminal.

mod canvas;
mod chart;

use std::path::{Path, PathBuf};

use super::{
    ReportError,
    find::{find, is_sweep, run_folders},
    grouping::distinct,
    live,
    logged::more_is_better,
    parallel,
    run::Run,
    tasks::Tasks,
};
use crate::{
    files::{Leaves, MetricCurves, Series},
    spec::{Monitor, nearest},
    units,
};
pub use chart::Style;
use chart::draw;
pub(super) use chart::{Axis, is_log, shortened, tick_label};

/// More curves than this cannot be distinguished.
const MOST_RUNS: usize = 8;

/// How many runs are read before the best of them are chosen.
const AT_ONCE: usize = 1000;

const SPLITS: [&str; 2] = ["train", "validation"];

/// The options of a plot.
pub struct PlotRequest<'a> {
    /// Paths as for `compare`.
    pub paths: &'a [String],
    /// A column of `metrics.csv`, or one with its split: `loss`, `train.loss`, `validation.accuracy`; without it the metric that
    /// several runs monitor, else the loss.
    pub metric: Option<&'a str>,
    /// Size and look.
    pub style: Style,
}

/// Draws a metric over the steps: both splits of a single run, or one curve for each of several runs. And says which paths hold
/// no run.
pub fn plot(request: &PlotRequest<'_>) -> Result<(String, Vec<ReportError>), ReportError> {
    let (found, foreign) = find(request.paths)?;
    let folders = run_folders(found)?;
    let metric = request.metric.map_or_else(|| monitored(&folders), str::to_owned);
    let (split, column) = match metric.split_once('.') {
        Some((split @ ("train" | "validation"), column)) => (Some(split), column),
        _ => (None, &*metric),
    };
    let Read { mut runs, with_values, with_split } = Read::new(&folders, column)?;
    if runs.is_empty() {
        return Err(without_values(metric, &folders));
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
        let split = split.unwrap_or(if with_split[1] > 0 { "validation" } else { "train" });
        title.push(format!("{split} {column}"));
        let with_it = with_split[usize::from(split == "validation")];
        if with_it < with_values {
            let without = (with_values - with_it) as u64;
            title.push(format!("{} without it", units::counted(without, "run")));
        }
        if with_it > MOST_RUNS {
            let which = if more_is_better(column) { "highest" } else { "lowest" };
            let with_it = units::count(with_it as u64);
            title.push(format!("the {MOST_RUNS} of {with_it} runs with the {which} value"));
        }
        keep_best(&mut runs, &[split], column);
        title.extend(apart(&runs, column));
        let one = |run: Curves| match split {
            "train" => run.train.named(run.name),
            _ => run.validation.named(run.name),
        };
        runs.into_iter().map(one).filter(|series| !series.is_empty()).collect()
    };
    if curves.is_empty() {
        return Err(without_values(metric, &folders));
    }
    Ok((draw(&title.join("; "), &curves, &request.style, more_is_better(column)), foreign))
}

/// That runs learn several tasks, whose values of this metric are not comparable.
fn apart(curves: &[Curves], column: &str) -> Option<String> {
    let folders: Vec<PathBuf> = curves.iter().map(|run| run.folder.clone()).collect();
    let runs = Run::read_all(&folders, &mut None);
    if column == "loss" { Tasks::new(&runs).apart() } else { Tasks::of_rows(&runs).apart() }
}

/// No run has values of a metric; perhaps of one that is called nearly so.
fn without_values(metric: String, folders: &[PathBuf]) -> ReportError {
    if !folders.iter().any(|folder| folder.join("metrics.csv").exists()) {
        let hint = Some("what trains nothing has no curves: `runner report` draws its times".to_owned());
        return ReportError::NoValues { metric, runs: folders.len(), hint };
    }
    let curves = folders.first().and_then(|folder| live::curves(&folder.join("metrics.csv")).ok());
    let of_splits = |(name, splits): MetricCurves| {
        let has_values = SPLITS.into_iter().zip(splits).filter(|(_, series)| !series.is_empty());
        has_values.map(|(split, _)| format!("{split}.{name}")).collect::<Vec<_>>()
    };
    let names: Vec<String> = curves.into_iter().flatten().flat_map(of_splits).collect();
    let words = names.iter().flat_map(|name| [&name[..], name.split_once('.').map_or(name, |(_, own)| own)]);
    let hint = nearest(&metric, words).map(|near| format!("did you mean `{near}`?"));
    ReportError::NoValues { metric, runs: folders.len(), hint }
}

/// The curves that may be drawn, in the order of their runs.
#[derive(Default)]
struct Read {
    runs: Vec<Curves>,
    with_values: usize,
    /// Those that have values of each of [`SPLITS`].
    with_split: [usize; 2],
}

impl Read {
    /// Of many runs only the best are in memory.
    fn new(folders: &[PathBuf], column: &str) -> Result<Self, ReportError> {
        let mut read = Self::default();
        for folders in folders.chunks(AT_ONCE) {
            for run in parallel::map(folders, |folder| Curves::read(folder, column)) {
                let run = run?;
                let has = SPLITS.map(|split| !run.series(split).is_empty());
                read.with_split.iter_mut().zip(has).for_each(|(count, has)| *count += usize::from(has));
                if has.contains(&true) {
                    read.with_values += 1;
                    read.runs.push(run);
                }
            }
            keep_best(&mut read.runs, &SPLITS, column);
        }
        Ok(read)
    }
}

/// Drops all runs but those with the best values in one of the splits.
fn keep_best(runs: &mut Vec<Curves>, splits: &[&str], column: &str) {
    let mut is_kept = vec![false; runs.len()];
    for split in splits {
        let cost = |run: &Curves| {
            let series = run.series(split);
            let is_more = more_is_better(column);
            let best = if is_more { series.highest() } else { series.lowest() };
            best.map_or(f64::INFINITY, |(_, value)| if is_more { -value } else { value })
        };
        let has_it = |(_, run): &(usize, &Curves)| !run.series(split).is_empty();
        let costs = runs.iter().enumerate().filter(has_it).map(|(place, run)| (place, cost(run)));
        let mut costs: Vec<(usize, f64)> = costs.collect();
        costs.sort_by(|a, b| a.1.total_cmp(&b.1));
        costs.iter().take(MOST_RUNS).for_each(|(place, _)| is_kept[*place] = true);
    }
    let mut is_kept = is_kept.into_iter();
    runs.retain(|_| is_kept.next() == Some(true));
}

/// The metric that several runs monitor; the loss where they monitor that, or different ones, or there is one run, of which both
/// losses are drawn.
fn monitored(folders: &[PathBuf]) -> String {
    let of_run = |folder: &PathBuf| {
        let spec = Leaves::read(&folder.join("spec.toml")).ok()??;
        spec.get("trainer.monitor").map(str::to_owned)
    };
    match &distinct(parallel::map(folders, of_run))[..] {
        [Some(monitor)] if folders.len() > 1 && monitor != Monitor::LOSS.name() => monitor.clone(),
        _ => "loss".to_owned(),
    }
}

/// A run's values of one metric.
#[derive(Default)]
struct Curves {
    folder: PathBuf,
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
        Ok(Self { folder: folder.to_owned(), name, train, validation, means })
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
}
