//! Shows one run in detail, or what a sweep came to.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{
    ReportError,
    best::BestSetting,
    columns,
    comparison::Comparison,
    export::{json_value, objects},
    find::{self, Found},
    grid,
    grouping::grouped,
    order::Question,
    ranking::Ranking,
    run::{RUNNING, Run, UNFINISHED},
    sweep,
    sweep_end::sweep_end,
    text::status_in_words,
};
use crate::{
    host::escape_line,
    record::{LockOwner, summary_columns},
};

/// A run in figures, with what it ran; of a sweep what it came to, for a terminal of `width` columns.
pub fn show(path: &str, width: u16) -> Result<String, ReportError> {
    let comparison = match find::find_one(path)? {
        Found::Sweep(folder) => return sweep_end(&folder, None, width),
        Found::Run(folder) => of_run(&folder)?,
    };
    let run = &comparison.runs[0];
    let axes: Vec<String> = run
        .axes
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let in_words = |own: LockOwner| format!("{} on {}, last heartbeat {}", own.pid, own.host, own.heartbeat);
    let lines = [
        ("trial", Some(axes.join(" "))),
        ("seed", run.axis("seed").map(str::to_owned)),
        ("started", run.fact("started").map(str::to_owned)),
        ("command", run.fact("command").map(str::to_owned)),
        ("tags", Some(run.tags_fault.clone().unwrap_or_else(|| run.tags.join(" ")))),
        (status_in_words(run), Some(run.reason.clone())),
        ("process", process(run).map(in_words)),
    ];
    let mut text = format!("{}\n", escape_line(&run.path));
    for (name, words) in lines.iter().filter_map(|(name, words)| Some((name, words.as_deref()?))) {
        if !words.is_empty() {
            text += &format!("  {name}: {}\n", escape_line(words));
        }
    }
    Ok(format!("{text}\n{}", grid::side_by_side(&columns::with_best(&comparison))))
}

/// The same as one JSON object, with all figures as in the files; of a sweep its settings, best first, and its trials.
pub fn show_json(path: &str) -> Result<String, ReportError> {
    let object = match find::find_one(path)? {
        Found::Sweep(folder) => json_of_sweep(&folder)?,
        Found::Run(folder) => json_of_run(&of_run(&folder)?.runs[0]),
    };
    Ok(format!("{object:#}\n"))
}

/// A run, with its axes if it is a trial.
fn of_run(folder: &Path) -> Result<Comparison, ReportError> {
    let mut comparison = Comparison::read(&[folder.display().to_string()], None)?;
    // A trial's axes are known to its sweep.
    let sweep =
        folder.parent().filter(|sweep| find::is_sweep(sweep)).map(|sweep| sweep::read(sweep, &mut None));
    if let (Some(Ok(trials)), [own]) = (sweep, &mut comparison.runs[..]) {
        let is_own = |trial: &Run| {
            trial
                .folder
                .as_deref()
                .is_some_and(|trial| trial.ends_with(folder.file_name().unwrap_or_default()))
        };
        let own_trial = trials.into_iter().find(is_own).unwrap_or_default();
        (own.axes, own.tables) = (own_trial.axes, own_trial.tables);
    }
    Ok(comparison)
}

/// The process that is at work on a run, or was when it was killed.
fn process(run: &Run) -> Option<LockOwner> {
    let has_ended = ![RUNNING, UNFINISHED].contains(&&*run.status);
    LockOwner::read(run.folder.as_deref().filter(|_| !has_ended)?)
}

fn json_of_run(run: &Run) -> Value {
    let known = |key: &str, text: Option<&str>| json_value(key, text.unwrap_or_default().to_owned());
    let axes: Map<_, _> =
        run.axes.iter().map(|(key, _)| (key.clone(), known(key, run.written(key)))).collect();
    let figures: Map<_, _> = summary_columns()
        .into_iter()
        .filter(|column| !["status", "reason"].contains(column))
        .map(|column| (column.to_owned(), known(column, run.figure(column))))
        .collect();
    let names: Vec<&str> = run.logged_names().collect();
    let names = names.into_iter().chain(run.names_of_targets());
    let logged: Map<_, _> =
        names.map(|name| (name.to_owned(), known(name, run.learned_last(name)))).collect();
    let validation = run.best_validation().into_iter();
    let best: Map<_, _> = validation
        .map(|(metric, cell)| (format!("validation.{metric}"), known(&metric, Some(&cell))))
        .collect();
    json!({
        "path": run.path,
        "trial": axes,
        "seed": known("seed", run.axis("seed")),
        "started": run.fact("started"),
        "command": run.fact("command"),
        "tags": run.tags,
        "status": run.status,
        "reason": known("reason", Some(&run.reason)),
        "process": process(run),
        "figures": figures,
        "best": best,
        "last": logged,
    })
}

fn json_of_sweep(folder: &Path) -> Result<Value, ReportError> {
    let comparison = Comparison::from_runs(sweep::read(folder, &mut None)?);
    let all = Question { top: usize::MAX, ..Question::default() };
    let rankings = comparison.rankings(&all)?;
    let ranking = |ranking: &Ranking| -> Result<Value, ReportError> {
        let settings = comparison.groups(std::slice::from_ref(ranking), &all)?;
        let caveats = comparison.caveats_of(ranking);
        Ok(
            json!({ "metric": ranking.metric.full_name(), "settings": objects(&settings), "caveats": caveats }),
        )
    };
    let counts = grouped(comparison.runs.iter().map(|run| (run.status.as_str(), ())));
    let counts: Map<_, _> =
        counts.iter().map(|(status, runs)| ((*status).to_owned(), json!(runs.len()))).collect();
    Ok(json!({
        "path": folder.display().to_string(),
        "trials": comparison.runs.len(),
        "status": counts,
        "best": BestSetting::new(&comparison).as_ref().map(BestSetting::json),
        "rankings": rankings.iter().map(ranking).collect::<Result<Vec<_>, ReportError>>()?,
        "runs": objects(&comparison.data()),
    }))
}
