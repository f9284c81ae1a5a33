//! `runner refit RUN`: the final model of a run or sweep, trained on the rows that validated, too. It derives overrides of the run's
//! spec; the rest is a run like any other.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Instant,
};

use super::{
    args::{AUTO, CheckOptions, RefitOptions, StartOptions},
    check::check_read,
    hosts,
    run::run_read,
    runs,
};
use crate::{
    data::digest_of_files,
    host::escape_line,
    predict::moved_source,
    record::command_line,
    report::{
        BestRun, find_best_run, latest, rate_falls, run_digest, run_numbers, run_status, steps_per_epoch,
    },
    run::{Exit, print_stderr, refuse, warn},
    spec::{self, Data, Length, Loaded, Refit, Spec, ValidateEvery},
};

/// Runs the command.
pub fn refit(options: &RefitOptions, begun: Instant) -> Result<Exit, Exit> {
    check_arguments(options)?;
    let best = find_best_run(&options.run).map_err(runs::refuse)?;
    let path = best.folder.join("spec.toml");
    let spec = spec_of(&path)?;
    let given = spec::with_full_paths(&options.start.run.words);
    let recorded = run_digest(&best.folder);
    let moved = moved_source(&spec.data.source, &best.folder, recorded.as_deref());
    let ends = ends(&best.folders);
    let mut refit = Refit {
        spec: &spec,
        moved: moved.as_ref(),
        length: length(&spec, &ends),
        steps_per_epoch: steps_per_epoch(&best.folder),
        falls: &rate_falls(&best.folder),
        tests: options.all,
        validates: false,
        infers: false,
        given: &given,
    };
    check_finished(&best.folder, &refit)?;
    let source = moved.as_ref().unwrap_or(&spec.data.source);
    let are_given = source.files_by_key().iter().any(|(key, _)| refit.is_given(key));
    let own = (!are_given).then(|| digest_of_files(source, source.files()));
    refit.infers = own.iter().flatten().any(|found| recorded.as_ref().is_some_and(|known| known != found));
    let mut read = read(&path, &refit, options)?;
    if first(&read.1).is_some_and(|spec| spec.data.has_validation()) {
        refit.validates = true;
        read = self::read(&path, &refit, options)?;
    }
    refit.check_plateau().map_err(|[message, hint]| Exit::refused(message, Some(&hint)))?;
    let (words, loaded) = read;
    let Some(last) = first(&loaded) else {
        return Err(Exit::refused("`refit` trains a model, and `kind` is another", None));
    };
    let is_told = !(options.start.run.quiet || options.start.json || hosts::is_other_rank());
    let found = own.unwrap_or_else(|| digest_of_files(&last.data.source, last.data.source.files()));
    check_data(&spec.data, &last.data, (found, recorded), &best.folder)?;
    let words: Vec<String> = [path.to_string_lossy().into_owned()].into_iter().chain(words).collect();
    let command = ["runner".to_owned()].into_iter().chain(words.iter().cloned());
    if is_told {
        let summary = summary(&best, &refit, last, ends.len());
        print_stderr(&format!("{summary}the same as: {}\n", escape_line(&command_line(command.clone()))));
    }
    let command: Vec<OsString> = command.map(OsString::from).collect();
    let mut start = options.start.clone();
    start.run.words = words;
    if options.check {
        return check_read(&check_options(start), &loaded);
    }
    let next = (is_told && !loaded.is_sweep() && start.launch.launcher.is_none())
        .then(|| (start.run.runs_dir.join(last.name.as_str()), has_test_rows(last)));
    let exit = run_read(&start, &command, begun, Some(loaded))?;
    if let (Exit::Done, Some((runs, tests))) = (&exit, next) {
        print_next(&runs, tests);
    }
    Ok(exit)
}

fn check_options(StartOptions { run, jobs, .. }: StartOptions) -> CheckOptions {
    CheckOptions { run, jobs, advise: false, spec: false, hosts: None, link: None, on: Vec::new() }
}

fn has_test_rows(spec: &Spec) -> bool {
    spec.data.split.as_ref().is_some_and(|split| split.test > 0.0)
}

/// What the newest of these runs is for: its test, or predictions.
fn print_next(runs: &Path, tests: bool) {
    let Ok(run) = latest(&runs.to_string_lossy()) else { return };
    let run = run.to_string_lossy();
    let words = if tests { vec!["evaluate", &run] } else { vec!["predict", &run, "DATA"] };
    let command = command_line(["runner"].into_iter().chain(words));
    print_stderr(&format!("next: {}\n", escape_line(&command)));
}

fn check_arguments(options: &RefitOptions) -> Result<(), Exit> {
    let start = &options.start;
    if start.resume.as_ref().is_some_and(|run| run != AUTO) {
        let hint = "`runner run --resume RUN` goes on with one that `refit` began";
        return Err(Exit::refused("`refit` begins a run, and `--resume` names another", Some(hint)));
    }
    if let Some(other) = start.run.words.iter().find(|word| Path::new(word).exists()) {
        let hint = "name one: a sweep, whose best setting it takes, or the folder of a trial";
        return Err(Exit::refused(
            format!("`refit` takes one run or sweep: `{}` is another", escape_line(other)),
            Some(hint),
        ));
    }
    Ok(())
}

/// The spec of a training.
fn spec_of(path: &Path) -> Result<Spec, Exit> {
    match spec::read(path, &[]).map_err(|failure| refuse(&failure))? {
        Loaded::Train(experiment) => match experiment.trials.into_iter().next() {
            Some(trial) => Ok(trial.spec),
            None => Err(Exit::refused(format!("`{}` has no trial", path.display()), None)),
        },
        Loaded::Lab(_) => Err(Exit::refused(format!("`{}` trains no model", path.display()), None)),
    }
}

/// How long was best is known of a run that has finished.
fn check_finished(folder: &Path, refit: &Refit<'_>) -> Result<(), Exit> {
    let status = run_status(folder);
    if status == "finished" || refit.has_given_length() {
        return Ok(());
    }
    let length = "a final model trains as long as was best in the whole run:";
    let say = "say how long: `trainer.max_epochs=20`";
    let (what, hint) = match status.as_str() {
        "damaged" => ("is damaged".to_owned(), format!("{length} that is not known; name another, or {say}")),
        _ => (
            format!("has not finished: it is `{status}`"),
            format!("{length} finish it with `runner run --resume RUN`, or {say}"),
        ),
    };
    Err(Exit::refused(format!("`{}` {what}", folder.display()), Some(&hint)))
}

/// The overrides, and the spec with them.
fn read(path: &Path, refit: &Refit<'_>, options: &RefitOptions) -> Result<(Vec<String>, Loaded), Exit> {
    let mut words = refit.overrides().map_err(|[message, hint]| Exit::refused(message, Some(&hint)))?;
    let derived = words.len();
    words.extend(refit.given().cloned());
    let mut loaded = spec::read_refit(path, &words, derived).map_err(|failure| refuse(&failure))?;
    loaded.add_sbatch(&options.start.launch.sbatch).map_err(|failure| refuse(&failure))?;
    Ok((words, loaded))
}

/// The spec of the first trial.
fn first(loaded: &Loaded) -> Option<&Spec> {
    match loaded {
        Loaded::Train(experiment) => experiment.trials.first().map(|trial| &trial.spec),
        Loaded::Lab(_) => None,
    }
}

/// Other data than those of the run are warned of, and refused if test rows stay apart: others may be drawn for the test now, so
/// that those on which the model was chosen are among them.
fn check_data(
    own: &Data,
    data: &Data,
    (found, recorded): (Option<String>, Option<String>),
    folder: &Path,
) -> Result<(), Exit> {
    let tests = |data: &Data| {
        let split = data.split.as_ref().filter(|split| split.test > 0.0)?;
        Some((split.test, split.seed, split.shuffle, split.stratify))
    };
    let files = data.source.files().len();
    let is_other = |(found, recorded): &(String, String)| {
        files > 0 && files == own.source.files().len() && found != recorded
    };
    if let Some((found, recorded)) = found.zip(recorded).filter(is_other) {
        let what = format!("the data are not those that `{}` was trained on", folder.display());
        if tests(data).is_some() {
            let hint = "rows that chose the model may be among the test rows now: sweep the new data, or train on all rows by `--all`";
            return Err(Exit::refused(
                format!("{what}: their digest is {found}, and was {recorded}"),
                Some(hint),
            ));
        }
        warn(what);
    } else if tests(data).is_some() && tests(data) != tests(own) {
        warn("other rows are for the test than in the run: some of them may have chosen the model");
    }
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

/// The best step may be within an epoch.
fn validates_by_steps(spec: &Spec) -> bool {
    matches!(spec.trainer.validate_every, ValidateEvery::Steps(_))
}

/// Epochs, unless the run was to end at a step, or at a time that came before its end of an epoch, or validated by steps.
fn length(spec: &Spec, ends: &[End]) -> Length {
    let trainer = &spec.trainer;
    let mean = |of: fn(&End) -> f64| {
        let sum: f64 = ends.iter().map(of).sum();
        (sum / ends.len() as f64).round().max(1.0) as u64
    };
    let is_timed = trainer.max_time.is_some() && ends.iter().any(|end| end.is_last);
    match ends.iter().any(|end| end.is_best) {
        true if trainer.max_steps.is_some() || is_timed || validates_by_steps(spec) => {
            Length::Steps(mean(|end| end.step))
        }
        true => Length::Epochs(mean(|end| end.epoch)),
        false if is_timed => Length::Steps(mean(|end| end.step)),
        false => Length::OfSpec,
    }
}

/// What is trained, how long, and which weights count.
fn summary(best: &BestRun, refit: &Refit<'_>, last: &Spec, runs: usize) -> String {
    let folder = best.folder.to_string_lossy();
    let run = match &best.setting {
        Some(setting) => format!("{folder}, the best trial: {setting}"),
        None => folder.into_owned(),
    };
    let tests = has_test_rows(last);
    let rows = match (refit.validates, tests) {
        (false, false) => "all",
        (false, true) => "all but the test rows",
        (true, false) => "all but those that validate",
        (true, true) => "all but those that validate, and the test rows",
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
        false if refit.stops_early() => "length: that of the run, unless it stops early\n".to_owned(),
        false => format!("length: {}{best}\n", refit.length),
    };
    let weights = match refit.validates && last.trainer.validate_every != ValidateEvery::NEVER {
        true => format!(
            "weights: of the {} with the best {}, which may not be the last\n",
            if validates_by_steps(last) { "step" } else { "epoch" },
            last.trainer.monitor.name().replace('.', " ")
        ),
        false => String::new(),
    };
    format!("run: {}\nrows: {rows}\n{length}{weights}", escape_line(&run))
}
