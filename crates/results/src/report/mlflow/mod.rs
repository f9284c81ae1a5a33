//! `runner export --mlflow`: writes a run, or a sweep and its trials, in MLflow's folder format (a "file
//! store").
//!
//! ```text
//! DIR/EXPERIMENT/RUN/meta.yaml, params/KEY, metrics/KEY, tags/KEY, artifacts/
//! ```
//!
//! For MLflow, a run exists once its `meta.yaml` does: those of all runs are written last, and a sweep's
//! after its trials'. A run's id is derived from its folder's path.

mod files;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use chrono::DateTime;
use csv::StringRecord;
use serde_json::json;

use self::files::{Folder, digest};
use super::{
    ReportError,
    find::{Found, find_one},
    logged::best_column,
    run::Run,
    sweep,
};
use crate::files::{Leaves, NO_METRIC, csv_lines};

/// Columns of `summary.csv` that are text, though some may look like numbers.
const WORDS: [&str; 10] = [
    "run",
    "name",
    "status",
    "devices_requested",
    "devices_used",
    "virtual",
    "scaling",
    "precision",
    "engine",
    "data_digest",
];

/// Writes the only run or sweep that `path` names into the file store `to`, which is created if missing.
/// Returns the number of runs written: one per trial, and one for the sweep that contains them.
///
/// # Errors
/// There is not one, it cannot be read or written, or the store has it.
pub fn write_mlflow(path: &str, to: &Path) -> Result<usize, ReportError> {
    let mut fault = None;
    let (runs, sweep) = match find_one(path)? {
        Found::Run(folder) => (vec![Run::read_or_report(&folder, &mut fault)], None),
        Found::Sweep(folder) => (sweep::read(&folder, &mut fault)?, Some(folder)),
    };
    // Trials that were not run have nothing to export.
    let runs: Vec<(&Run, &Path)> =
        runs.iter().filter_map(|run| Some((run, run.folder.as_deref()?))).collect();
    if let Some(fault) = fault.filter(|_| runs.is_empty()) {
        return Err(fault);
    }
    if let Some(fault) = runs.iter().find_map(|(run, _)| run.tags_fault.clone()) {
        return Err(ReportError::Damaged(fault));
    }
    let name = runs.iter().find_map(|(run, _)| run.axis("name")).unwrap_or("runs");
    let parent = match &sweep {
        Some(folder) => Some(Entry::of_sweep(folder, &runs.iter().map(|(run, _)| *run).collect::<Vec<_>>())?),
        None => None,
    };
    let parent_id = parent.as_ref().map(|entry| entry.id.clone());
    let of_run = |(run, folder): &(&Run, &Path)| Entry::of_run(run, folder, parent_id.as_deref());
    let experiment = Experiment::find(to, name)?;
    // One by one, since a sweep may have 100,000 of them.
    let each = |what: &dyn Fn(Entry) -> Result<(), ReportError>| {
        runs.iter().map(of_run).chain(parent.clone().map(Ok)).try_for_each(|entry| what(entry?))
    };
    each(&|entry| experiment.check_is_new(&entry))?;
    each(&|entry| experiment.write(entry))?;
    // Write `meta.yaml` last, so that a failed export can be repeated.
    each(&|entry| experiment.complete(&entry))?;
    Ok(runs.len() + usize::from(parent.is_some()))
}

/// What MLflow stores of a run.
#[derive(Clone)]
struct Entry {
    id: String,
    name: String,
    folder: PathBuf,
    /// Milliseconds since 1970.
    start: i64,
    end: Option<i64>,
    status: u8,
    params: BTreeMap<String, String>,
    /// Lines of time, value and step, by name; those of curves are in this file.
    metrics: BTreeMap<String, String>,
    curves: Option<PathBuf>,
    tags: BTreeMap<String, String>,
}

impl Entry {
    fn new(folder: &Path, tags: &[String]) -> Result<Self, ReportError> {
        let path = folder.canonicalize().map_err(|e| ReportError::read(folder, e))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut own = BTreeMap::new();
        own.insert("mlflow.runName".to_owned(), name.clone());
        own.insert("mlflow.source.type".to_owned(), "LOCAL".to_owned());
        if !tags.is_empty() {
            own.insert("tags".to_owned(), tags.join(" "));
        }
        Ok(Self {
            id: digest(&path.to_string_lossy())[..32].to_owned(),
            name,
            folder: folder.to_owned(),
            start: 0,
            end: None,
            status: status(""),
            params: BTreeMap::new(),
            metrics: BTreeMap::new(),
            curves: None,
            tags: own,
        })
    }

    fn of_run(run: &Run, folder: &Path, parent: Option<&str>) -> Result<Self, ReportError> {
        let mut entry = Self::new(folder, &run.tags)?;
        (entry.start, entry.end, entry.status) = (started(run), ended(run), status(&run.status));
        let spec = run.spec.iter().flat_map(Leaves::iter);
        entry.params = spec.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        // A parameter must be a single line.
        entry.params.values_mut().for_each(|value| *value = value.replace('\n', " "));
        entry.curves = run.metrics();
        let at = entry.end.unwrap_or(entry.start);
        let step = run.figure("steps").unwrap_or("0");
        for (column, cell) in run.figures.iter() {
            if WORDS.contains(&column) {
                entry.tags.insert(column.to_owned(), cell.to_owned());
            } else if cell.parse::<f64>().is_ok() {
                entry.metrics.insert(column.to_owned(), format!("{at} {cell} {step}\n"));
            }
        }
        let best_step = run.figure("best_step").unwrap_or(step);
        let best = run.best_validation().into_iter();
        let best = best.map(|(metric, cell)| (best_column(&metric), format!("{at} {cell} {best_step}\n")));
        entry.metrics.extend(best);
        entry.tags.insert("status".to_owned(), run.status.clone());
        let known = |key: &str| run.fact(key).map(str::to_owned);
        let description = run.axis("description").filter(|text| !text.is_empty()).map(str::to_owned);
        let more = [
            ("mlflow.parentRunId", parent.map(str::to_owned)),
            ("mlflow.note.content", description),
            ("mlflow.source.name", known("command")),
            ("mlflow.source.git.commit", known("git.commit")),
        ];
        entry.tags.extend(more.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        Ok(entry)
    }

    /// The parent run of the trials: it lasts from the first start to the last end.
    fn of_sweep(folder: &Path, trials: &[&Run]) -> Result<Self, ReportError> {
        let mut entry = Self::new(folder, &super::tags(folder)?)?;
        entry.start = trials.iter().map(|run| started(run)).min().unwrap_or_default();
        let ends: Option<Vec<i64>> = trials.iter().map(|run| ended(run)).collect();
        entry.end = ends.and_then(|ends| ends.into_iter().max());
        entry.status = trials.iter().map(|run| status(&run.status)).max().unwrap_or_default();
        if entry.end.is_none() {
            entry.status = status("");
        }
        Ok(entry)
    }
}

/// MLflow's status numbers: scheduled, finished, failed, killed, running.
fn status(status: &str) -> u8 {
    match status {
        "waiting" => 2,
        "finished" => 3,
        "failed" | "diverged" => 4,
        "interrupted" | "stopped" => 5,
        _ => 1,
    }
}

fn started(run: &Run) -> i64 {
    let text = run.fact("started");
    let time = text.and_then(|text| DateTime::parse_from_rfc3339(text).ok());
    time.map_or(0, |time| time.timestamp_millis())
}

fn ended(run: &Run) -> Option<i64> {
    Some(started(run) + milliseconds(run.number("wall_s")?))
}

fn milliseconds(seconds: f64) -> i64 {
    (seconds * 1e3) as i64
}

/// The curves of `metrics.csv` as lines for MLflow: `train.loss`, `validation.loss` and so on.
fn curves(path: &Path, start: i64) -> Result<BTreeMap<String, String>, ReportError> {
    let mut curves: BTreeMap<String, String> = BTreeMap::new();
    let header = |columns: &StringRecord| {
        let metrics = columns.iter().enumerate().filter(|(_, column)| !NO_METRIC.contains(column));
        let metrics: Vec<(usize, String)> = metrics.map(|(place, name)| (place, name.to_owned())).collect();
        Ok((csv_lines::find_columns(columns, ["step", "split", "elapsed_s"])?, metrics))
    };
    csv_lines::scan(path, header, |(places, metrics), cells| {
        let [step, split, elapsed] = places.map(|place| String::from_utf8_lossy(&cells[place]));
        let time = start + milliseconds(elapsed.parse().unwrap_or_default());
        for (place, column) in metrics.iter().filter(|(place, _)| !cells[*place].is_empty()) {
            let lines = curves.entry(format!("{split}.{column}")).or_default();
            lines.push_str(&format!("{time} {} {step}\n", String::from_utf8_lossy(&cells[*place])));
        }
        Ok(())
    })?;
    Ok(curves)
}

/// A named MLflow experiment: a folder of runs.
struct Experiment {
    id: String,
    folder: Folder,
}

impl Experiment {
    /// Finds the experiment with that name, or creates it.
    fn find(store: &Path, name: &str) -> Result<Self, ReportError> {
        let store = Folder::store(store)?;
        if let Some(id) = store.folder_named(name)? {
            return Ok(Self { folder: store.folder(&id)?, id });
        }
        // MLflow's own ids are numbers of eighteen digits too.
        let number = u64::from_str_radix(&digest(name)[..16], 16).unwrap_or_default();
        let id = (100_000_000_000_000_000 + number % 900_000_000_000_000_000).to_string();
        let folder = store.folder(&id)?;
        let meta = json!({
            "artifact_location": folder.address(), "experiment_id": id, "lifecycle_stage": "active", "name": name,
        });
        folder.complete(&format!("{meta:#}\n"))?;
        Ok(Self { id, folder })
    }

    fn check_is_new(&self, entry: &Entry) -> Result<(), ReportError> {
        if !self.folder.has(&format!("{}/meta.yaml", entry.id)) {
            return Ok(());
        }
        let message = format!("`{}` is in the store: its run is `{}`", entry.folder.display(), entry.id);
        let hint = "delete that run in MLflow and run `mlflow gc`, or name another folder";
        Err(ReportError::query(message, Some(hint)))
    }

    /// Writes everything except the file that makes the run visible.
    fn write(&self, entry: Entry) -> Result<(), ReportError> {
        let curves = entry.curves.map(|path| curves(&path, entry.start)).transpose()?;
        let mut metrics = curves.unwrap_or_default();
        metrics.extend(entry.metrics);
        let run = self.folder.folder(&entry.id)?;
        run.folder("params")?.write_values(&entry.params)?;
        run.folder("metrics")?.write_values(&metrics)?;
        run.folder("tags")?.write_values(&entry.tags)?;
        run.folder("artifacts")?.copy_files(&entry.folder)
    }

    fn complete(&self, entry: &Entry) -> Result<(), ReportError> {
        let run = self.folder.folder(&entry.id)?;
        let meta = json!({
            "artifact_uri": run.folder("artifacts")?.address(), "end_time": entry.end, "entry_point_name": "",
            "experiment_id": self.id, "lifecycle_stage": "active", "run_id": entry.id, "run_name": entry.name,
            "run_uuid": entry.id, "source_name": "", "source_type": 4, "source_version": "",
            "start_time": entry.start, "status": entry.status, "tags": [], "user_id": "",
        });
        // JSON is valid YAML.
        run.complete(&format!("{meta:#}\n"))
    }
}
