//! `runner watch`: the current state of a run or sweep, in a few lines above its curves.

use std::path::{Path, PathBuf};

use super::{
    ReportError,
    best::{self, BestSetting},
    comparison::Comparison,
    configurations::{FINISHED, STOPPED},
    find::{Found, find_one, latest},
    grouping::grouped,
    live,
    plot::{PlotRequest, Style, plot},
    run::{PLANNED, REPEAT, RUNNING, Run, UNFINISHED},
    setting_name::named,
    sweep,
    text::status_in_words,
};
use crate::{files::Row, spec::duration, units};

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
    pub fn now(path: &str, is_live: impl Fn(&Path) -> bool) -> Result<Self, ReportError> {
        live::begin_moment();
        let folder = latest(path)?;
        let name = folder.display().to_string();
        let is_over = !is_live(&folder);
        let mut fault = None;
        let (mut lines, mut trials) = (vec![name.clone()], Vec::new());
        match find_one(&name)? {
            Found::Run(folder) => lines.push(progress(&Run::read_or_report(&folder, &mut fault), is_over)),
            Found::Sweep(folder) => {
                let comparison = Comparison::from_runs(sweep::read(&folder, &mut fault)?);
                let runs = &comparison.runs;
                trials = states(runs);
                lines.push(sweep_progress(runs, "trial", is_over));
                let so_far = if is_over { "" } else { " so far" };
                let best = BestSetting::new(&comparison);
                lines.extend(best.map(|best| format!("best{so_far}: {}", best.words)));
                let running = runs.iter().filter(|run| run.status == RUNNING).take(MOST_TRIALS);
                lines.extend(running.map(|run| format!("  {}: {}", trial_name(run), progress(run, false))));
            }
        }
        lines.extend(fault.map(|e| e.to_string()));
        Ok(Self { lines, trials, is_over, folder })
    }

    /// The curves of a metric, as [`plot`] draws them, or a message on why there are none.
    pub fn curves(&self, metric: Option<&str>, style: Style) -> String {
        let paths = [self.folder.display().to_string()];
        let why = |e: ReportError| match e.hint() {
            Some(hint) => format!("{e}; {hint}\n"),
            None => format!("{e}\n"),
        };
        plot(&PlotRequest { paths: &paths, metric, style }).map_or_else(why, |(text, _)| text)
    }
}

/// The number of runs in each state.
fn states(runs: &[Run]) -> Vec<(String, usize)> {
    let states = grouped(runs.iter().map(|run| (status_in_words(run), ())));
    states.into_iter().map(|(status, runs)| (status.to_owned(), runs.len())).collect()
}

/// `6 trials: 2 running, 4 planned, about 40 s left`; a single one is called `thing`.
pub(super) fn sweep_progress(runs: &[Run], thing: &str, is_over: bool) -> String {
    let counts: Vec<_> =
        states(runs).into_iter().map(|(status, count)| format!("{count} {status}")).collect();
    let left = seconds_left(runs).filter(|left| !is_over && *left > 0.0);
    let left = left.map(|left| format!(", about {} left", units::seconds(left))).unwrap_or_default();
    format!("{}: {}{left}", units::counted(runs.len() as u64, thing), counts.join(", "))
}

/// `#3 lr 0.03`.
fn trial_name(run: &Run) -> String {
    let axes = run.axes.iter().filter(|(key, _)| key != REPEAT);
    let (keys, values): (Vec<String>, Vec<&str>) =
        axes.map(|(key, value)| (key.clone(), value.as_str())).unzip();
    let number = run.trial.map(|number| format!("#{number}")).unwrap_or_default();
    format!("{number}{}", named(&keys, values.into_iter()))
}

/// The time until all trials have ended, if they take as long as those that finished, or before any has, as those that run will
/// by their pace. Unknown where a sweep stops some early, and while none runs: how many run side by side is seen from those that do.
fn seconds_left(runs: &[Run]) -> Option<f64> {
    if runs.iter().any(|run| [STOPPED, "waiting"].contains(&&*run.status)) {
        return None;
    }
    let finished = runs.iter().filter(|run| run.status == FINISHED);
    let times: Vec<f64> = finished.filter_map(|run| run.number("wall_s")).collect();
    let running: Vec<&Run> = runs.iter().filter(|run| run.status == RUNNING).collect();
    let paces: Vec<Option<TimeLeft>> = running.iter().map(|run| TimeLeft::from_run(run)).collect();
    let by_pace = times.is_empty();
    let whole = |pace: &TimeLeft| Some(pace.elapsed_s + pace.left_s?);
    let times = if by_pace { paces.iter().flatten().filter_map(whole).collect() } else { times };
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let left = |pace: &Option<TimeLeft>| {
        let own = pace.as_ref().and_then(|pace| pace.left_s).filter(|_| by_pace);
        own.unwrap_or(mean - pace.as_ref().map_or(0.0, |pace| pace.elapsed_s)).max(0.0)
    };
    let each: Vec<f64> = paces.iter().map(left).collect();
    let planned = runs.iter().filter(|run| run.status == PLANNED).count() as f64;
    let shared = (each.iter().sum::<f64>() + planned * mean) / running.len() as f64;
    let left = each.into_iter().fold(shared, f64::max);
    (!times.is_empty() && !running.is_empty()).then_some(left)
}

/// How far a training is by its `metrics.csv`.
struct TimeLeft {
    last: Row,
    elapsed_s: f64,
    /// Until whichever of its limits comes first ends it.
    left_s: Option<f64>,
}

impl TimeLeft {
    fn from_run(run: &Run) -> Option<Self> {
        let file = live::metrics(&run.metrics()?).ok()?;
        let (last, elapsed_s) = (file.last?, file.elapsed_s().filter(|&s| s > 0.0)?);
        let limit = |key: &str| run.axis(key).and_then(|text| text.parse::<f64>().ok());
        let ends_epoch = last.is_validation && run.axis("trainer.validate_every_steps").is_none();
        let epochs = last.epoch as f64 - if ends_epoch { 0.0 } else { 1.0 };
        let rest = |planned: Option<f64>, done: f64| {
            planned.filter(|_| done > 0.0).map(|planned| elapsed_s / done * (planned - done))
        };
        let most = run.axis("trainer.max_time").and_then(duration::parse);
        let left = [
            rest(limit("trainer.max_epochs"), epochs),
            rest(limit("trainer.max_steps"), last.step as f64),
            most.map(|most| most.as_secs_f64() - elapsed_s),
        ];
        Some(Self { last, elapsed_s, left_s: left.into_iter().flatten().reduce(f64::min) })
    }
}

/// `epoch 3 of 20, step 54, 7976 steps/s, about 8 s left; validation loss 0.0246, best 0.0217 in epoch 2`.
pub(super) fn progress(run: &Run, is_over: bool) -> String {
    let mut parts = Vec::new();
    let count = |figure: &str| figure.parse().map_or_else(|_| figure.to_owned(), units::count);
    if let Some(figure) = run.figure("epochs") {
        let planned = run.axis("trainer.max_epochs").map(|planned| format!(" of {}", count(planned)));
        parts.push(format!("epoch {}{}", count(figure), planned.unwrap_or_default()));
    }
    if let Some(TimeLeft { last: Row { step, .. }, elapsed_s, left_s }) = TimeLeft::from_run(run) {
        parts.push(format!("step {}", units::count(step)));
        // Once the run has ended, without the time of validations, as everywhere else.
        let of_training = run.number("steps_per_s").filter(|_| is_over);
        parts.push(format!("{} steps/s", units::rate(of_training.unwrap_or(step as f64 / elapsed_s))));
        if let Some(left) = left_s.filter(|left| !is_over && *left > 0.0) {
            parts.push(format!("about {} left", units::seconds(left)));
        }
    }
    if let Some(value) = run.learned(run.monitor()) {
        let value = value.parse().map_or_else(|_| value.to_owned(), units::number);
        let place = best::place(run).map(|place| format!(" in {place}")).unwrap_or_default();
        parts.push(format!("best {} {value}{place}", run.monitor().replace('.', " ")));
    }
    match (is_over, run.status.as_str()) {
        (false, _) => {}
        (true, UNFINISHED) => parts.insert(0, "no process is at work".to_owned()),
        (true, status) => parts.insert(0, status.to_owned()),
    }
    if parts.is_empty() { "no rows yet".to_owned() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_tells_its_best_trial_and_the_time_left() {
        let trial = |number: usize, status: &str, figures: &[(&str, &str)]| Run {
            trial: Some(number),
            sweep: Some("S".into()),
            status: status.to_owned(),
            axes: vec![
                ("optimizer.sgd.lr".to_owned(), format!("0.{}", number / 10)),
                (REPEAT.to_owned(), (number % 10).to_string()),
            ],
            spec: Some(
                [("seed", (number % 10).to_string()), ("optimizer.sgd.lr", format!("0.{}", number / 10))]
                    .map(|(key, value)| (key.to_owned(), value))
                    .into_iter()
                    .collect(),
            ),
            figures: figures.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..Run::default()
        };
        let finished = |number, loss, wall_s| {
            trial(number, "finished", &[("best_value", loss), ("best_epoch", "7"), ("wall_s", wall_s)])
        };
        let mut runs = vec![
            finished(10, "0.5", "20"),
            finished(20, "0.25", "40"),
            trial(30, RUNNING, &[("best_value", "0.2"), ("best_epoch", "2")]),
            trial(40, RUNNING, &[]),
            trial(50, PLANNED, &[]),
        ];
        let best = |runs: &[Run]| Some(BestSetting::new(&Comparison::from_runs(runs.to_vec()))?.words);
        assert_eq!(best(&runs).unwrap(), "#20 lr 0.2, validation loss 0.2500 in epoch 7");
        // Three trials of 30 seconds, two at a time.
        assert_eq!(seconds_left(&runs), Some(45.0));
        // Those that ended early say nothing of how long a trial takes.
        runs.extend(["diverged", "failed"].map(|status| trial(50, status, &[("wall_s", "1")])));
        assert_eq!(seconds_left(&runs), Some(45.0));
        // Before any has ended, their pace tells: an epoch of three in 10 s, so each takes 30 s.
        let folder = tempfile::tempdir().unwrap();
        let rows = "step,epoch,split,rows,loss,elapsed_s\n4,1,train,8,0.5,9\n4,1,validation,8,0.5,10\n";
        std::fs::write(folder.path().join("metrics.csv"), rows).unwrap();
        let running = Run {
            folder: Some(folder.path().to_owned()),
            has_metrics: true,
            axes: vec![("trainer.max_epochs".to_owned(), "3".to_owned())],
            ..trial(30, RUNNING, &[])
        };
        let paced = [running.clone(), running, runs[4].clone(), runs[4].clone()];
        assert_eq!(seconds_left(&paced), Some(50.0));
        assert_eq!(
            sweep_progress(&paced, "trial", false),
            "4 trials: 2 running, 2 planned, about 50.0 s left"
        );
        let mut longer = paced[..2].to_vec();
        longer[1].axes[0].1 = "30".to_owned();
        assert_eq!(seconds_left(&longer), Some(290.0), "the longest of those that have begun");
        let planned = [&runs[..2], &runs[4..]].concat();
        assert_eq!(seconds_left(&planned), None, "nobody knows how many will run side by side");
        runs.push(trial(50, STOPPED, &[("wall_s", "1"), ("best_value", "0.1")]));
        assert_eq!(seconds_left(&runs), None, "nobody knows how many will be stopped");
        assert_eq!((best(&runs[3..5]), seconds_left(&runs[2..5])), (None, None));
        // The mean over two seeds, not the luckiest of four trials, nor one that the sweep stopped.
        let seeds = [(10, "0.5"), (11, "0.25"), (20, "0.125"), (21, "0.75")];
        let runs: Vec<Run> = seeds.map(|(number, loss)| finished(number, loss, "2")).to_vec();
        assert_eq!(best(&runs).unwrap(), "#11 lr 0.1, validation loss 0.38 [0.00, 1.96], n 2");
    }
}
