//! Lists the runs and sweeps of a folder, one per line.

mod table;

use std::path::PathBuf;

use serde_json::json;

use super::{
    ReportError,
    comparison::Comparison,
    configurations::FINISHED,
    filter::Filter,
    find::{self, Found},
    grouping::{distinct, grouped},
    key::{BEST, Key},
    logged::more_is_better,
    order::Direction,
    run::{FOLD, PLANNED, Run, UNFINISHED},
    sweep,
    text::status_in_words,
};
use crate::{
    record::has_checkpoints,
    run::{SEEDS, SeedsAndFold, missing_folds},
    units,
};

/// Stands for a metric where trials are judged by different ones.
const SEVERAL: &str = "several metrics";

/// How the names of losses end.
const LOSS: &str = ".loss";

/// A column that only sweeps have.
const TRIALS: &str = "trials";

/// A run, or a sweep with its trials.
pub(super) struct Entry {
    pub(super) folder: PathBuf,
    pub(super) runs: Vec<Run>,
    is_sweep: bool,
    /// The best of its runs, and the value of their setting.
    judged: (usize, Option<f64>),
    /// On how many folds of all that setting finished, if others are missing.
    folds: Option<[usize; 2]>,
    /// What the ranking of its settings leaves open, as `compare` says it, and which tags cannot be read.
    caveats: Vec<String>,
    /// The kinds of losses of its runs: `mse`.
    losses: Vec<String>,
}

impl Entry {
    /// `None` if there is no run.
    fn new((found, runs): (Found, Vec<Run>)) -> Option<Self> {
        let is_sweep = matches!(found, Found::Sweep(_));
        let (Found::Run(folder) | Found::Sweep(folder)) = found;
        let with_spec = runs.iter().filter(|run| run.spec.is_some());
        let losses = distinct(with_spec.map(Run::loss));
        let mut entry =
            Self { folder, runs, is_sweep, judged: (0, None), folds: None, caveats: Vec::new(), losses };
        if !entry.runs.is_empty() && entry.monitor().is_some() {
            entry.judged = entry.ranked().unwrap_or_else(|| entry.best_so_far());
        }
        let tags_faults = distinct(entry.runs.iter().filter_map(|run| run.tags_fault.clone()));
        entry.caveats.extend(tags_faults);
        Some(entry).filter(|entry| !entry.runs.is_empty())
    }

    /// The run that represents it: the best if all monitor the same metric, otherwise the first.
    pub(super) fn best(&self) -> &Run {
        &self.runs[self.judged.0]
    }

    /// As `compare` ranks the runs of a sweep, by the mean over seeds: no value where they are of several tasks; `None` where it
    /// ranks none.
    fn ranked(&mut self) -> Option<(usize, Option<f64>)> {
        if !self.is_sweep {
            return None;
        }
        let comparison = Comparison::from_runs(std::mem::take(&mut self.runs));
        let ranking = comparison.only_ranking();
        let metric = comparison.ranked_by(None).ok().flatten();
        let are_apart = ranking.is_none() && comparison.task_difference(metric.as_ref()).is_some();
        let caveats = ranking.as_ref().map(|ranking| comparison.caveats_of(ranking)).unwrap_or_default();
        self.runs = comparison.runs;
        if are_apart {
            return Some((0, None));
        }
        let best = ranking?.settings.into_iter().next()?;
        self.caveats = caveats;
        // Trials that were not run are known by the axes of the sweep alone.
        let of: Vec<SeedsAndFold> = self.runs.iter().map(swept_seeds).collect();
        let finished = best.places.iter().map(|&place| &of[place]);
        self.folds = missing_folds(finished, &of.iter().cloned().collect());
        Some((best.places[0], Some(best.value)))
    }

    fn best_so_far(&self) -> (usize, Option<f64>) {
        let has_finished = self.runs.iter().any(|run| run.status == FINISHED && cost(run).is_finite());
        let counts = |run: &Run| !has_finished || run.status == FINISHED;
        let counted = self.runs.iter().enumerate().filter(|(_, run)| counts(run));
        let best = counted.min_by(|a, b| cost(a.1).total_cmp(&cost(b.1)));
        let value = |run: &Run| run.learned(run.monitor())?.parse().ok();
        best.map_or((0, None), |(place, run)| (place, value(run)))
    }

    /// The metric its runs are judged by; `None` if they differ.
    pub(super) fn monitor(&self) -> Option<&str> {
        let mut judged = self.runs.iter().filter(|run| run.learned(run.monitor()).is_some());
        let monitor = judged.next().unwrap_or(&self.runs[0]).monitor();
        judged.all(|run| run.monitor() == monitor).then_some(monitor)
    }

    /// The cost of its best setting (lower is better); infinite if no run has a value.
    pub(super) fn cost(&self) -> f64 {
        let sign = if more_is_better(self.best().monitor()) { -1.0 } else { 1.0 };
        self.value().filter(|value| !value.is_nan()).map_or(f64::INFINITY, |value| sign * value)
    }

    /// Whether `--resume` can continue it: it was interrupted, or failed, as on a full disk.
    pub(super) fn can_be_resumed(&self) -> bool {
        let is_open = |run: &Run| {
            let is_cut = [UNFINISHED, "interrupted", "waiting", "failed"].contains(&&*run.status);
            (self.is_sweep && run.status == PLANNED)
                || (is_cut && (self.is_sweep || run.folder.as_deref().is_some_and(has_checkpoints)))
        };
        self.runs.iter().any(is_open)
    }

    /// Whether it is the final model of a run, which no validation ranks.
    fn is_final_model(&self) -> bool {
        self.runs.iter().all(Run::is_final_model)
    }

    /// A status that says so of final models.
    fn with_kind(&self, status: String) -> String {
        let models = units::counted(self.runs.len() as u64, "final model");
        match (self.is_final_model(), self.is_sweep) {
            (false, _) => status,
            (true, false) => format!("{status}, final model"),
            (true, true) => {
                match status.strip_prefix(&format!("{} ", units::count(self.runs.len() as u64))) {
                    Some(of_all) => format!("{models} {of_all}"),
                    None => format!("{models}: {status}"),
                }
            }
        }
    }

    /// Why its own tags, or those of a trial, cannot be read.
    pub(super) fn tags_fault(&self) -> Option<&str> {
        self.runs.iter().find_map(|run| run.tags_fault.as_deref())
    }

    /// Its own tags and those of its trials.
    pub(super) fn tags(&self) -> Vec<&str> {
        distinct(self.runs.iter().flat_map(|run| &run.tags).map(String::as_str))
    }

    /// `finished`; `58 finished, 2 diverged` for a sweep.
    pub(super) fn status(&self) -> String {
        if !self.is_sweep {
            return self.runs[0].status.clone();
        }
        let counts = grouped(self.runs.iter().map(|run| (status_in_words(run), ())));
        let counted =
            |(status, runs): &(&str, Vec<()>)| format!("{} {status}", units::count(runs.len() as u64));
        counts.iter().map(counted).collect::<Vec<_>>().join(", ")
    }

    /// `58 of 60 finished` for a sweep of several states.
    fn status_in_short(&self) -> String {
        let status = self.status();
        let finished = self.runs.iter().filter(|run| run.status == FINISHED).count();
        match status.contains(", ") {
            true => format!(
                "{} of {} finished",
                units::count(finished as u64),
                units::count(self.runs.len() as u64)
            ),
            false => status,
        }
    }

    pub(super) fn started(&self) -> &str {
        self.runs.iter().find_map(|run| run.fact("started")).unwrap_or_default()
    }

    pub(super) fn value(&self) -> Option<f64> {
        self.judged.1
    }
}

/// Its values of those axes of its sweep that are seeds, and of the one that is the fold.
fn swept_seeds(run: &Run) -> SeedsAndFold {
    let axes = run.axes.iter().filter(|(axis, _)| SEEDS.contains(&axis.as_str()));
    let (folds, seeds): (Vec<_>, Vec<_>) = axes.partition(|(axis, _)| axis == FOLD);
    [seeds, folds].map(|own| own.into_iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" "))
}

fn cost(run: &Run) -> f64 {
    let value = run.learned(run.monitor()).and_then(|text| text.parse::<f64>().ok());
    let sign = if more_is_better(run.monitor()) { -1.0 } else { 1.0 };
    value.filter(|value| !value.is_nan()).map_or(f64::INFINITY, |value| sign * value)
}

/// The options of `list`.
pub struct ListRequest<'a> {
    /// Paths as for `compare`.
    pub path: &'a str,
    /// Only runs, and sweeps with a trial, that pass this filter.
    pub filter: Option<&'a str>,
    /// A column to sort by; by default the newest come last.
    pub sort: Option<&'a str>,
    /// One JSON array instead of a table.
    pub json: bool,
}

/// Lists runs and sweeps, the newest last, for `width` columns.
pub fn list(request: &ListRequest<'_>, width: usize) -> Result<String, ReportError> {
    let (mut found, mut all) = (read(request.path)?, Vec::new());
    for (own, runs) in &mut found {
        let trials = runs.len().to_string();
        if matches!(own, Found::Sweep(_)) && request.filter.or(request.sort).is_some() {
            runs.iter_mut().for_each(|run| run.take_figures([(TRIALS, trials.as_str())].into_iter()));
        }
    }
    let counts: Vec<usize> = found.iter().map(|(_, runs)| runs.len()).collect();
    found.iter_mut().for_each(|(_, runs)| all.append(runs));
    let filter = request.filter.map(|text| Filter::new(text, &all)).transpose()?;
    let is_kept = |run: &Run| filter.as_ref().is_none_or(|filter| filter.holds(run));
    let count = all.len();
    let sort = request.sort.map(Direction::from_sort);
    let key = sort.map(|(_, word)| Key::new(word, &all));
    let mut all = all.into_iter();
    for ((_, runs), count) in found.iter_mut().zip(counts) {
        let own: Vec<Run> = all.by_ref().take(count).collect();
        // A sweep is listed as a whole: of what it came to, a part says nothing.
        if own.iter().any(is_kept) {
            *runs = own;
        }
    }
    let mut entries: Vec<Entry> = found.into_iter().filter_map(Entry::new).collect();
    if let Some(text) = request.filter.filter(|_| entries.is_empty() && !request.json) {
        return Ok(format!("none of {} has `{text}`\n", units::counted(count as u64, "run")));
    }
    entries.sort_by(|a, b| a.started().cmp(b.started()));
    let sorted_by = sort.map(|(direction, _)| direction).zip(key.transpose()?);
    if let Some((direction, key)) = &sorted_by {
        entries = sorted(entries, *direction, key);
    }
    if request.json {
        let object = |entry: &Entry| {
            json!({
                "path": entry.folder.display().to_string(),
                "started": entry.started(),
                "trials": entry.is_sweep.then_some(entry.runs.len()),
                "status": entry.status(),
                "metric": entry.monitor(),
                "value": entry.value(),
                "folds": entry.folds.map(|[finished, of]| json!({ "finished": finished, "of": of })),
                "caveats": entry.caveats,
                "final_model": entry.is_final_model(),
                "tags": entry.tags(),
            })
        };
        let array = serde_json::Value::Array(entries.iter().map(object).collect());
        return Ok(format!("{array:#}\n"));
    }
    Ok(table::table(&entries, sorted_by.as_ref().map(|(_, key)| key), width))
}

fn sorted(entries: Vec<Entry>, direction: Direction, key: &Key) -> Vec<Entry> {
    let text = |entry: usize| key.value(entries[entry].best()).unwrap_or_default();
    let number = |entry: usize| text(entry).parse().unwrap_or(f64::INFINITY);
    let order = direction.order(entries.len(), number, text);
    let mut unsorted: Vec<_> = entries.into_iter().map(Some).collect();
    let entries: Vec<Entry> = order.into_iter().filter_map(|entry| unsorted[entry].take()).collect();
    // Values of different metrics have no order, nor have losses of different kinds.
    let of = best_of(&entries);
    let group = |entry: &Entry| match key.name() {
        BEST | "best_value" => of(entry),
        name if name.ends_with("loss") => entry.losses.join(", "),
        _ => String::new(),
    };
    let groups = grouped(entries.into_iter().map(|entry| (group(&entry), entry)));
    groups.into_iter().flat_map(|(_, entries)| entries).collect()
}

/// What the best value of each of these is of; a loss with its kind, if there are several: their values are not comparable.
fn best_of(entries: &[Entry]) -> impl Fn(&Entry) -> String + use<> {
    let has_loss =
        |entry: &&Entry| entry.monitor().is_some_and(|own| own.ends_with(LOSS)) && entry.value().is_some();
    let are_several = distinct(entries.iter().filter(has_loss).map(|entry| &entry.losses)).len() > 1;
    move |entry| match (entry.monitor(), entry.value()) {
        (None, _) => SEVERAL.to_owned(),
        (Some(monitor), Some(_)) if are_several && monitor.ends_with(LOSS) => {
            format!("{monitor} ({})", entry.losses.join(", "))
        }
        (Some(monitor), Some(_)) => monitor.to_owned(),
        (Some(_), None) => String::new(),
    }
}

pub(super) fn entries(path: &str) -> Result<Vec<Entry>, ReportError> {
    Ok(read(path)?.into_iter().filter_map(Entry::new).collect())
}

fn read(path: &str) -> Result<Vec<(Found, Vec<Run>)>, ReportError> {
    let (found, _) = find::find(&[path.to_owned()])?;
    let runs = sweep::read_all(&found, &mut None);
    Ok(found.into_iter().zip(runs).collect())
}
