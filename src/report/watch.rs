//! `runner watch`: the current state of a run or sweep, in a few lines above its curves.

use std::path::{Path, PathBuf};

use super::{
    ReportError,
    find::{Found, find_one},
    grouping::grouped,
    listing::latest,
    live,
    metrics_file::Row,
    plot::{PlotRequest, Style, plot},
    run::{RUNNING, Run, UNFINISHED},
    sweep,
    text::status_in_words,
};
use crate::{spec::duration, units};

/// Maximum running trials listed one by one.
const MOST_TRIALS: usize = 6;

/// What `watch` shows at a given moment.
pub struct Moment {
    /// Lines about the run or the sweep.
    pub lines: Vec<String>,
    /// Number of a sweep's trials in each state.
    pub trials: Vec<(String, usize)>,
    /// Whether no process is at work there.
    pub is_over: bool,
    /// The folder of the run or sweep.
    pub folder: PathBuf,
}

impl Moment {
    /// Reads the newest run or sweep that `path` names. `is_live` tells whether a process is at work in a
    /// folder.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn now(path: &str, is_live: impl Fn(&Path) -> bool) -> Result<Self, ReportError> {
        let folder = latest(path)?;
        let name = folder.display().to_string();
        let is_over = !is_live(&folder);
        let mut fault = None;
        let (mut lines, mut trials) = (vec![name.clone()], Vec::new());
        match find_one(&name)? {
            Found::Run(folder) => lines.push(progress(&Run::read_or_report(&folder, &mut fault), is_over)),
            Found::Sweep(folder) => {
                let runs = sweep::read(&folder, &mut fault)?;
                let counts = grouped(runs.iter().map(|run| (status_in_words(run), ())));
                trials = counts.iter().map(|(status, runs)| ((*status).to_owned(), runs.len())).collect();
                let counts: Vec<_> =
                    counts.iter().map(|(status, runs)| format!("{} {status}", runs.len())).collect();
                lines.push(format!("{}: {}", units::counted(runs.len() as u64, "trial"), counts.join(", ")));
                for run in runs.iter().filter(|run| run.status == RUNNING).take(MOST_TRIALS) {
                    let values: Vec<&str> = run.axes.iter().map(|(_, value)| value.as_str()).collect();
                    let number = run.trial.map(|number| format!("#{number} ")).unwrap_or_default();
                    lines.push(format!("  {number}{}  {}", values.join(" "), progress(run, false)));
                }
            }
        }
        lines.extend(fault.map(|e| e.to_string()));
        lines.extend(live::sampled());
        Ok(Self { lines, trials, is_over, folder })
    }

    /// The curves of a metric, or a message on why there are none.
    pub fn curves(&self, metric: &str, style: Style) -> String {
        let paths = [self.folder.display().to_string()];
        plot(&PlotRequest { paths: &paths, metric, style }).unwrap_or_else(|e| format!("{e}\n"))
    }
}

/// `epoch 3 of 20, step 54, 1.2 k steps/s, about 8 s left; validation loss 0.0246, best 0.0217 in epoch 2`.
fn progress(run: &Run, is_over: bool) -> String {
    let mut parts = Vec::new();
    let limit = |key: &str| run.axis(key).and_then(|text| text.parse::<f64>().ok());
    let planned = limit("trainer.max_epochs");
    let metrics = run.metrics.as_deref().and_then(|path| live::metrics(path).ok());
    if let Some(figure) = run.figure("epochs") {
        let planned =
            planned.map(|epochs| format!(" of {}", units::count(epochs as u64))).unwrap_or_default();
        parts.push(format!("epoch {figure}{planned}"));
    }
    if let Some((Row { step, epoch, is_validation, .. }, elapsed_s)) =
        metrics.and_then(|file| Some((file.last?, file.elapsed_s().filter(|&s| s > 0.0)?)))
    {
        parts.push(format!("step {}", units::count(step)));
        parts.push(format!("{} steps/s", units::rate(step as f64 / elapsed_s)));
        let epochs = epoch as f64 - if is_validation { 0.0 } else { 1.0 };
        let rest = |planned: Option<f64>, done: f64| {
            planned.filter(|_| done > 0.0).map(|planned| elapsed_s / done * (planned - done))
        };
        let most = run.axis("trainer.max_time").and_then(duration::parse);
        let left = [
            rest(planned, epochs),
            rest(limit("trainer.max_steps"), step as f64),
            most.map(|most| most.as_secs_f64() - elapsed_s),
        ];
        // Whichever of these comes first ends it.
        let left = left.into_iter().flatten().reduce(f64::min);
        if let Some(left) = left.filter(|left| !is_over && *left > 0.0) {
            parts.push(format!("about {} left", units::seconds(left)));
        }
    }
    if let Some(value) = run.learned(run.monitor()) {
        let value = value.parse().map_or_else(|_| value.to_owned(), units::number);
        let epoch = run.figure("best_epoch").map(|epoch| format!(" in epoch {epoch}")).unwrap_or_default();
        parts.push(format!("best {} {value}{epoch}", run.monitor().replace('.', " ")));
    }
    match (is_over, run.status.as_str()) {
        (false, _) => {}
        (true, UNFINISHED) => parts.insert(0, "no process is at work".to_owned()),
        (true, status) => parts.insert(0, status.to_owned()),
    }
    if parts.is_empty() { "no rows yet".to_owned() } else { parts.join(", ") }
}
