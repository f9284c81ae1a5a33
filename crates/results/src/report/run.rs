//! A run, read from its folder.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use super::{
    ReportError, live,
    logged::{self, Logged, more_is_better},
    parallel, tags,
};
use crate::{
    event::Status,
    files::{FileError, LAYERS, Leaves, NO_METRIC, csv_file},
    record::{RunLock, damage},
};
pub(super) use crate::{
    record::RUNNING,
    run::{FOLD, REPEAT, mean, varies_setting},
};

/// A row of a comparison: a run, or a trial of a sweep that was not run.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    /// The folder's path as found; for a trial without a folder, the sweep's folder and the trial's number.
    pub(super) path: String,
    /// The folder, if it is readable.
    pub(super) folder: Option<PathBuf>,
    /// The sweep's folder, for a trial.
    pub(super) sweep: Option<Arc<str>>,
    /// Its number in the sweep.
    pub(super) trial: Option<usize>,
    /// Where values are tables, these are their short names.
    pub(super) axes: Vec<(String, String)>,
    /// The axes that have short names, with their values as in `sweep.csv`.
    pub(super) tables: Vec<(String, String)>,
    /// Its layers in words, where they are compared as one.
    pub(super) layers: Option<Arc<str>>,
    /// [`Run::architecture`], made on first use.
    pub(super) in_words: OnceLock<Option<String>>,
    /// The status in `summary.csv` or `sweep.csv`, or `unfinished`.
    pub(super) status: String,
    pub(super) reason: String,
    /// Tags that `runner tag` gave it or its sweep.
    pub(super) tags: Vec<String>,
    /// Why its tags, or those of its sweep, cannot be read.
    pub(super) tags_fault: Option<String>,
    /// The folder of the equal trial that was run instead.
    pub(super) twin: Option<PathBuf>,
    /// Non-empty cells of `summary.csv`.
    pub(super) figures: Leaves,
    /// `spec.toml`.
    pub(super) spec: Option<Leaves>,
    /// `environment.toml`.
    pub(super) environment: Option<Leaves>,
    /// Whether there is a `metrics.csv`, which may be large and is read only for its curve.
    pub(super) has_metrics: bool,
    /// What `metrics.csv` has beyond the summary; read on first use.
    pub(super) logged: OnceLock<Logged>,
    /// The validation at its best step, by metric; read on first use.
    pub(super) best_row: OnceLock<Logged>,
    /// Whether `metrics.csv` ends with an incomplete line, if it was read.
    pub(super) torn: bool,
}

const METRICS: &str = "metrics.csv";

/// Figures that tell what was learned.
pub(super) const LEARNED: [&str; 3] = ["validation.loss", "validation.accuracy", "train.loss"];

/// Status of a run that has not ended and in which no process is at work: it was killed.
pub(super) const UNFINISHED: &str = "unfinished";

/// Status of a trial that equals another and was not run.
pub(super) const SAME_AS: &str = "same_as";

/// Status of a trial that has not begun.
pub(super) const PLANNED: &str = "planned";

/// Status of a trial whose folder was removed.
pub(super) const DELETED: &str = "deleted";

/// Status of a run whose files cannot be read.
pub(super) const DAMAGED: &str = "damaged";

/// How a run ended: the status in its summary, or `unfinished`.
pub fn run_status(folder: &Path) -> String {
    Run::read_or_report(folder, &mut None).status
}

/// The digest of a run's data, if known.
pub fn run_digest(folder: &Path) -> Option<String> {
    Run::read_or_report(folder, &mut None).digest().map(str::to_owned)
}

impl Run {
    /// Reads a run folder. An unreadable one becomes a damaged row, and `fault` keeps the first error.
    pub(super) fn read_or_report(folder: &Path, fault: &mut Option<ReportError>) -> Self {
        Self::read(folder).unwrap_or_else(|e| Self::damaged(folder.display().to_string(), e, fault))
    }

    /// Reads folders in order.
    pub(super) fn read_all(folders: &[PathBuf], fault: &mut Option<ReportError>) -> Vec<Self> {
        let read = parallel::map(folders, |folder| Self::read(folder)).into_iter().zip(folders);
        read.map(|(run, folder)| {
            run.unwrap_or_else(|e| Self::damaged(folder.display().to_string(), e, fault))
        })
        .collect()
    }

    /// The row of an unreadable folder.
    pub(super) fn damaged(path: String, error: ReportError, fault: &mut Option<ReportError>) -> Self {
        let mut run = Self { path, ..Self::default() };
        run.report_damage(error, fault);
        run
    }

    /// Marks the run as damaged: if one part is unreadable, the rest is not trusted either.
    pub(super) fn report_damage(&mut self, error: ReportError, fault: &mut Option<ReportError>) {
        (self.status, self.reason) = (DAMAGED.to_owned(), error.to_string());
        (self.folder, self.has_metrics, self.figures) = (None, false, Leaves::default());
        fault.get_or_insert(error);
    }

    /// Marks a trial as deleted, which its sweep lists with this status.
    pub(super) fn report_deleted(&mut self, listed: &str) {
        (self.status, self.reason) = (DELETED.to_owned(), format!("was {listed}, and its folder is gone"));
    }

    pub(super) fn read(folder: &Path) -> Result<Self, ReportError> {
        let spec = Leaves::read(&folder.join("spec.toml"))?;
        let summary = match csv_file::read(&folder.join("summary.csv")) {
            Err(FileError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
            summary => Some(summary?),
        };
        let has_metrics = folder.join(METRICS).exists();
        let (tags, tags_fault) = tags::words_or_fault(folder);
        if spec.is_none() || (summary.is_none() && !has_metrics) {
            let no_run = || ReportError::NoRun(folder.display().to_string());
            return Err(fs::read_dir(folder).err().map_or_else(no_run, |e| ReportError::read(folder, e)));
        }
        let mut run = Self {
            path: folder.display().to_string(),
            folder: Some(folder.to_owned()),
            spec,
            has_metrics,
            environment: Leaves::read(&folder.join("environment.toml"))?,
            tags,
            tags_fault,
            ..Self::default()
        };
        if let Some((file, row)) = summary.as_ref().and_then(|file| Some((file, file.rows.first()?))) {
            let cells = || file.columns.iter().zip(row.iter());
            // The row of a run that has not ended has no figures: `report_unfinished` reads them from other files.
            if !cells().any(|cell| cell == ("status", RUNNING)) {
                run.take_figures(cells());
            }
        }
        let known = |column| run.figures.get(column).map(str::to_owned);
        match known("status") {
            Some(status) => (run.status, run.reason) = (status, known("reason").unwrap_or_default()),
            None => run.report_unfinished()?,
        }
        if run.status == Status::Finished.name()
            && let Some(what) = damage(folder, |figure| run.figure(figure))
        {
            return Err(ReportError::Damaged(what));
        }
        Ok(run)
    }

    /// Adds the cells of a summary, by column.
    pub(super) fn take_figures<'a>(&mut self, cells: impl Iterator<Item = (&'a str, &'a str)>) {
        let known = std::mem::take(&mut self.figures);
        let mut all: Vec<(&str, &str)> = known.iter().collect();
        cells.for_each(|cell| all.push(cell));
        self.figures = Leaves::from_cells(all.into_iter());
    }

    /// Adds what is known without a summary.
    fn report_unfinished(&mut self) -> Result<(), ReportError> {
        let lives = self.folder.as_deref().is_some_and(RunLock::is_held);
        (self.status, self.reason) = match lives {
            true => (RUNNING.to_owned(), String::new()),
            false => (UNFINISHED.to_owned(), "killed: no process is at work on it".to_owned()),
        };
        let mut known = Vec::new();
        if let Some(metrics) = self.metrics() {
            let file = live::metrics(&metrics)?;
            if let Some(row) = file.last {
                known.extend([("steps", row.step.to_string()), ("epochs", row.epoch.to_string())]);
            }
            if let Some(ends) = file.ends("loss") {
                known.extend(ends.train.map(|loss| ("final_train_loss", loss.to_string())));
                known.extend(ends.epoch_mean().map(|loss| ("epoch_train_loss", loss.to_string())));
                known.extend(ends.validation.clone().map(|loss| ("final_validation_loss", loss)));
            }
            let metric = self.monitor().trim_start_matches("validation.");
            if let Some(best) = file.best(metric, more_is_better(metric)) {
                known.extend([("best_value", best.text.clone()), ("best_epoch", best.epoch.to_string())]);
                known.push(("best_step", best.step.to_string()));
            }
        }
        known.extend(self.fact("devices.requested").map(|text| ("devices_requested", text.to_owned())));
        known.extend(self.fact("devices.virtual").map(|text| ("virtual", text.to_owned())));
        // Writes `["gpu:0", "gpu:1"]` as `gpu:0;gpu:1`.
        let names = |text: &str| text.trim_matches(['[', ']']).replace('"', "").replace(", ", ";");
        known.extend(self.fact("devices.used").map(|text| ("devices_used", names(text))));
        known.extend(self.setting("name").map(|name| ("name", name.to_owned())));
        self.take_figures(known.iter().map(|(column, cell)| (*column, cell.as_str())));
        Ok(())
    }

    /// The path of its `metrics.csv`, if it has one.
    pub(super) fn metrics(&self) -> Option<PathBuf> {
        self.folder.as_ref().filter(|_| self.has_metrics).map(|folder| folder.join(METRICS))
    }

    pub(super) fn figure(&self, column: &str) -> Option<&str> {
        self.figures.get(column)
    }

    pub(super) fn number(&self, column: &str) -> Option<f64> {
        self.figure(column)?.parse().ok()
    }

    /// A fact of its environment.
    pub(super) fn fact(&self, key: &str) -> Option<&str> {
        self.environment.as_ref()?.get(key)
    }

    /// A setting of its spec.
    pub(super) fn setting(&self, key: &str) -> Option<&str> {
        self.spec.as_ref()?.get(key)
    }

    pub(super) fn environment_number(&self, key: &str) -> Option<f64> {
        self.fact(key)?.parse().ok()
    }

    /// The digest of its data; a run of the lab has none.
    pub(super) fn digest(&self) -> Option<&str> {
        self.figure("data_digest").or_else(|| self.fact("data.digest"))
    }

    /// The digest by which its rows are known; none where each seed draws others.
    pub(super) fn rows_digest(&self) -> Option<&str> {
        self.digest().filter(|_| !self.draws_rows())
    }

    /// Whether the digest of its data is of samples of large files, so that other rows may have the same.
    pub(super) fn is_sampled(&self) -> bool {
        self.fact("data.sampled") == Some("true")
    }

    /// Whether its rows are drawn anew for each seed.
    pub(super) fn draws_rows(&self) -> bool {
        self.spec.iter().flat_map(Leaves::keys).any(|key| key.starts_with("data.synthetic_"))
    }

    /// The devices that trained: `gpu:0 gpu:1`.
    pub(super) fn devices(&self) -> String {
        self.figure("devices_used").unwrap_or_default().replace(';', " ")
    }

    /// Whether its devices are virtual, so that its times are meaningless.
    pub(super) fn is_virtual(&self) -> bool {
        self.figure("virtual") == Some("true")
    }

    pub(super) fn kind(&self) -> &str {
        self.setting("kind").unwrap_or("train")
    }

    /// Whether its training losses are means of epochs.
    pub(super) fn has_epoch_means(&self) -> bool {
        self.axis("logging.policy") == Some("per_epoch")
    }

    /// Whether it is the final model of another run, which no validation ranks.
    pub(super) fn is_final_model(&self) -> bool {
        self.axis("final_model") == Some("true") && self.figure("best_value").is_none()
    }

    /// The metric it is judged by.
    pub(super) fn monitor(&self) -> &str {
        self.axis("trainer.monitor").unwrap_or("validation.loss")
    }

    /// A learned figure: of a validation the value at its best epoch, if it has one, otherwise the last value.
    pub(super) fn learned(&self, name: &str) -> Option<&str> {
        self.best_monitored(name).or_else(|| self.at_best(name)).or_else(|| self.learned_last(name))
    }

    /// Whether it has this learned figure. Does not look for the best epoch in `metrics.csv`.
    pub(super) fn has_learned(&self, name: &str) -> bool {
        self.best_monitored(name).or_else(|| self.learned_last(name)).is_some()
    }

    fn best_monitored(&self, name: &str) -> Option<&str> {
        self.figure("best_value").filter(|_| self.monitor() == name)
    }

    /// A figure of validations at the best epoch of another, which it monitors.
    pub(super) fn at_best(&self, name: &str) -> Option<&str> {
        let metric = name.strip_prefix("validation.").filter(|_| self.monitor() != name)?;
        let best_step = self.figure("best_step")?;
        if self.figure("steps") == Some(best_step) {
            return self.learned_last(name);
        }
        // The file may be long: it is not read for what it cannot have.
        let row = if metric == "loss" || self.logs(name) { self.best_row() } else { None };
        row?.get(metric).map(String::as_str)
    }

    /// The whole validation at its best epoch, by metric: `loss`, `f1`, `mae_price`; empty if it has none. Reads `metrics.csv`,
    /// which alone has it.
    pub(super) fn best_validation(&self) -> Logged {
        let Some(value) = self.figure("best_value") else { return Logged::new() };
        let is_metric = |(name, _): &(&String, &String)| !NO_METRIC.contains(&name.as_str());
        let row = self.best_row().into_iter().flatten().filter(is_metric);
        let mut best: Logged = row.map(|(name, cell)| (name.clone(), cell.clone())).collect();
        best.extend(self.monitor().strip_prefix("validation.").map(|own| (own.to_owned(), value.to_owned())));
        best
    }

    fn best_row(&self) -> Option<&Logged> {
        let (metrics, step) = (self.metrics()?, self.figure("best_step")?);
        Some(self.best_row.get_or_init(|| logged::read_validation(&metrics, step).unwrap_or_default()))
    }

    /// A learned figure in its last epoch.
    pub(super) fn learned_last(&self, name: &str) -> Option<&str> {
        match name {
            "validation.loss" => self.figure("final_validation_loss"),
            "validation.accuracy" => self.figure("final_validation_accuracy"),
            "train.loss" => self.figure("epoch_train_loss"),
            _ if logged::is_name(name) && self.logs(name) => self.logged().get(name).map(String::as_str),
            _ => None,
        }
    }

    /// Names of what it logged beyond its summary, without those of single targets. Reads no file.
    pub(super) fn logged_names(&self) -> impl Iterator<Item = &'static str> + use<'_> {
        logged::names(self.axis("logging.metrics").unwrap_or_default())
    }

    fn logs(&self, name: &str) -> bool {
        logged::is_listed(self.axis("logging.metrics").unwrap_or_default(), name)
    }

    /// Names of the metrics of single targets.
    pub(super) fn names_of_targets(&self) -> impl Iterator<Item = &str> {
        let can_be =
            self.logs("validation.mae") || self.logs("validation.rmse") || self.logs("validation.r2");
        let logged = can_be.then(|| self.logged().keys()).into_iter().flatten();
        logged.map(String::as_str).filter(|name| logged::of_target(name).is_some())
    }

    /// A file that cannot be read counts as empty.
    fn logged(&self) -> &Logged {
        let read = || self.metrics().and_then(|path| logged::read(&path).ok()).unwrap_or_default();
        self.logged.get_or_init(read)
    }

    /// The number of this repeat within its sweep.
    pub(super) fn repeat(&self) -> Option<&str> {
        value_of(&self.axes, REPEAT)
    }

    /// The value of an axis, as in `sweep.csv`.
    pub(super) fn written(&self, key: &str) -> Option<&str> {
        self.table(key).or_else(|| self.axis(key))
    }

    /// The value of an axis that has a short name, as in `sweep.csv`.
    pub(super) fn table(&self, key: &str) -> Option<&str> {
        value_of(&self.tables, key)
    }

    /// The value of an axis, from the sweep or else from the spec.
    pub(super) fn axis(&self, key: &str) -> Option<&str> {
        let layers = || self.layers.as_deref().filter(|_| key == LAYERS);
        value_of(&self.axes, key).or_else(|| self.setting(key)).or_else(layers)
    }
}

fn value_of<'a>(axes: &'a [(String, String)], key: &str) -> Option<&'a str> {
    axes.iter().find(|(axis, _)| axis == key).map(|(_, value)| value.as_str())
}
