//! `runner refit RUN`: the final model of a run or sweep, trained on the rows that validated, too. It derives overrides of the run's
//! spec; the rest is a run like any other.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Instant,
};

use super::{
    args::{AUTO, RefitOptions, RunOptions},
    hosts,
    machine::machine_for,
    run::run,
    runs,
};
use crate::{
    data::digest_of_files,
    host::escape_line,
    plan::Trial,
    record::command_line,
    report::{BestRun, find_best_run, run_digest, run_numbers, run_status},
    run::{Datasets, Exit, first_run, prepare, print_stderr, refuse},
    spec::{self, Interval, Length, Loaded, Refit, Spec},
};

/// Runs the command.
pub fn refit(options: &RefitOptions, begun: Instant) -> Result<Exit, Exit> {
    if options.start.resume.as_ref().is_some_and(|run| run != AUTO) {
        let hint = "`runner run --resume RUN` goes on with one that `refit` began";
        return Err(Exit::refused("`refit` begins a run, and `--resume` names another", Some(hint)));
    }
    let best = find_best_run(&options.run).map_err(runs::refuse)?;
    let (spec, path) = spec_of(&best)?;
    let given = &options.start.run.words;
    let ends = ends(&best.folders);
    let refit = Refit { length: length(&spec, &ends), spec: &spec, tests: options.all, given };
    let mut words = refit.overrides().map_err(|[message, hint]| Exit::refused(message, Some(&hint)))?;
    words.extend(given.iter().cloned());
    check_data(&refit, &best.folder, (&path, &words))?;
    words.extend(schedule(&refit, ends.first(), (&path, &words), &options.start.run));
    let words: Vec<String> = [path.to_string_lossy().into_owned()].into_iter().chain(words).collect();
    let mut start = options.start.clone();
    start.run.words = words.clone();
    let command = ["runner".to_owned()].into_iter().chain(words);
    if !(start.run.quiet || start.json || hosts::is_other_rank()) {
        let command = escape_line(&command_line(command.clone())).into_owned();
        print_stderr(&format!("{}the same as: {command}\n", summary(&best, &refit, ends.len())));
    }
    let command: Vec<OsString> = command.map(OsString::from).collect();
    run(&start, &command, begun)
}

/// The spec of a training that has finished, and its path.
fn spec_of(best: &BestRun) -> Result<(Spec, PathBuf), Exit> {
    let (folder, status) = (best.folder.display(), run_status(&best.folder));
    if status != "finished" {
        let hint = "a final model trains as long as was best in the whole run: finish it with `runner run --resume RUN`";
        return Err(Exit::refused(format!("`{folder}` has not finished: it is `{status}`"), Some(hint)));
    }
    let path = best.folder.join("spec.toml");
    match spec::read(&path, &[]).map_err(|failure| refuse(&failure))? {
        Loaded::Train(experiment) => match experiment.trials.into_iter().next() {
            Some(trial) => Ok((trial.spec, path)),
            None => Err(Exit::refused(format!("`{}` has no trial", path.display()), None)),
        },
        Loaded::Lab(_) => Err(Exit::refused(format!("`{folder}` trained no model"), None)),
    }
}

/// Other data than those of the run are warned of, and refused if test rows stay apart: others may be drawn for the test now, so
/// that those on which the model was chosen are among them.
fn check_data(refit: &Refit<'_>, folder: &Path, (path, words): (&Path, &[String])) -> Result<(), Exit> {
    // What cannot be read is reported by the run.
    let Ok(Loaded::Train(experiment)) = spec::read(path, words) else { return Ok(()) };
    let Some(data) = experiment.trials.first().map(|trial| &trial.spec.data) else { return Ok(()) };
    let (files, own) = (data.source.files(), refit.spec.data.source.files());
    let found = digest_of_files(&data.source, files.iter().copied());
    let (Some(found), Some(recorded)) = (found, run_digest(folder)) else { return Ok(()) };
    if files.is_empty() || files.len() != own.len() || found == recorded {
        return Ok(());
    }
    let what = format!("the data are not those that `{}` was trained on", folder.display());
    if data.split.as_ref().is_some_and(|split| split.test > 0.0) {
        let hint = "rows that chose the model may be among the test rows now: sweep the new data, or train on all rows by `--all`";
        return Err(Exit::refused(
            format!("{what}: their digest is {found}, and was {recorded}"),
            Some(hint),
        ));
    }
    print_stderr(&format!("warning: {}\n", escape_line(&what)));
    Ok(())
}

/// Where a run was best, or ended if it had no validation.
struct End {
    epoch: f64,
    step: f64,
    is_best: bool,
    /// Whether its best weights are the last.
    is_last: bool,
}

fn ends(folders: &[PathBuf]) -> Vec<End> {
    let end = |folder: &PathBuf| {
        let [epoch, step, epochs, steps] =
            run_numbers(folder, ["best_epoch", "best_step", "epochs", "steps"]);
        let is_best = epoch.is_some() && step.is_some();
        let (epoch, step) = if is_best { (epoch?, step?) } else { (epochs?, steps?) };
        Some(End { epoch, step, is_best, is_last: Some(step) == steps })
    };
    folders.iter().filter_map(end).collect()
}

/// Epochs, unless the run was to end at a step, or at a time that came before its end of an epoch.
fn length(spec: &Spec, ends: &[End]) -> Length {
    let trainer = &spec.trainer;
    let mean = |of: fn(&End) -> f64| {
        let sum: f64 = ends.iter().map(of).sum();
        (sum / ends.len() as f64).round().max(1.0) as u64
    };
    let is_timed = trainer.max_time.is_some() && ends.iter().any(|end| end.is_last);
    match ends.iter().any(|end| end.is_best) {
        true if trainer.max_steps.is_some() || is_timed => Length::Steps(mean(|end| end.step)),
        true => Length::Epochs(mean(|end| end.epoch)),
        false if is_timed => Length::Steps(mean(|end| end.step)),
        false => Length::OfSpec,
    }
}

/// A schedule as long as the run stays as long: in epochs, which have more steps now. If an override says how long the model trains,
/// the schedule follows it.
fn schedule(
    refit: &Refit<'_>,
    end: Option<&End>,
    (path, words): (&Path, &[String]),
    options: &RunOptions,
) -> Option<String> {
    let (schedule, trainer) = (&refit.spec.schedule, &refit.spec.trainer);
    let per_epoch = end.map(|end| end.step / end.epoch).filter(|steps| steps.fract() == 0.0)? as u64;
    let total = match schedule.interval {
        Interval::Epoch => trainer.max_epochs,
        Interval::Step if trainer.max_steps.is_some() => trainer.max_steps?,
        Interval::Step => per_epoch.saturating_mul(trainer.max_epochs),
    };
    let (key, before) = schedule.length_of_run(total).filter(|(key, _)| !refit.is_given(key))?;
    let deleted = format!("~{key}");
    if refit.has_given_length() {
        return Some(deleted);
    }
    if schedule.interval == Interval::Epoch || trainer.max_steps.is_some() {
        return None;
    }
    // What cannot be read or planned is reported by the run.
    let words: Vec<String> = words.iter().cloned().chain([deleted]).collect();
    let Ok(Loaded::Train(experiment)) = spec::read(path, &words) else { return None };
    let machine = machine_for(options.virtual_gpus, &experiment);
    let mut datasets = Datasets::new(&machine);
    let planned = prepare::<Trial>(&experiment, &mut datasets, &machine, options.thread_count()).ok()?;
    let (_, trial) = first_run(&planned)?;
    let length = trial.steps_per_epoch.saturating_mul(trainer.max_epochs).saturating_sub(before);
    Some(format!("{key}={length}"))
}

/// What is trained, and how long.
fn summary(best: &BestRun, refit: &Refit<'_>, runs: usize) -> String {
    let folder = best.folder.to_string_lossy();
    let run = match &best.setting {
        Some(setting) => format!("{folder}, the best trial: {setting}"),
        None => folder.into_owned(),
    };
    let tests = refit.spec.data.split.as_ref().is_some_and(|split| split.test > 0.0);
    let rows = match tests && !refit.tests {
        _ if refit.is_given("data") => "",
        true => "rows: all but the test rows\n",
        false => "rows: all\n",
    };
    let is_last_fold = refit.spec.data.has_folds_in_order();
    let best = match refit.length {
        Length::OfSpec => "",
        _ if is_last_fold => ", after which the last fold was best: those before it train on fewer rows",
        _ if runs > 1 => ", the mean of those after which its runs were best",
        _ => ", after which the run was best",
    };
    let length = match refit.has_given_length() {
        true => String::new(),
        false => format!("length: {}{best}\n", refit.length),
    };
    format!("run: {}\n{rows}{length}", escape_line(&run))
}
