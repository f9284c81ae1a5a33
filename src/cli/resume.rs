//! `--resume RUN` and `--resume auto`: which run to resume, and whether its spec allows that.

use std::path::{Path, PathBuf};

use super::{
    args::{AUTO, StartOptions},
    runs,
};
use crate::{
    host::escape_line,
    predict::moved_source,
    record::{RunDir, SWEEP_FILE, command_line, has_checkpoints},
    report::{Found, find_one},
    run::{
        Exit, Extension, KnownTrials, Resume, is_place_of_data, refuse, refused_changes, waits_at_rung, warn,
    },
    spec::{self, Loaded, Spec},
};

/// What the command line asks to resume.
///
/// # Errors
/// The path leads to no run; the error was printed.
pub fn requested(options: &StartOptions) -> Result<Resume, Exit> {
    let is_run = options.resume.as_deref().is_some_and(|run| run != AUTO);
    if let Some(spec) = options.run.words.iter().find(|word| is_run && word.ends_with(".toml")) {
        return Err(Exit::refused("a run goes on by its own spec", Some(&format!("leave `{spec}` out"))));
    }
    match options.resume.as_deref() {
        None => Ok(Resume::No),
        Some(AUTO) => Ok(Resume::Auto),
        // Also a sweep whose table was lost.
        Some(path) if Path::new(path).join("sweep.toml").is_file() => {
            Ok(Resume::Sweep(RunDir::existing(named(path.into()))))
        }
        Some(path) => match find_one(path) {
            Ok(Found::Run(folder)) => Ok(Resume::Run(RunDir::existing(named(folder)))),
            Ok(Found::Sweep(folder)) => Ok(Resume::Sweep(RunDir::existing(named(folder)))),
            Err(e) => Err(runs::refuse(e)),
        },
    }
}

/// The folder under its own name if the path is `.` or `..`.
fn named(folder: PathBuf) -> PathBuf {
    let is_named = folder.file_name().is_some();
    if is_named { folder } else { folder.canonicalize().unwrap_or(folder) }
}

/// Reads the spec, and what a sweep is given beyond the trials that it has.
///
/// # Errors
/// What is wrong has been printed.
pub fn load(
    options: &StartOptions,
    resume: &Resume,
    path: &Path,
) -> Result<(Loaded, Option<Extension>), Exit> {
    let words = match resume {
        Resume::Sweep(_) | Resume::Run(_) => spec::with_full_paths(&options.run.words),
        Resume::Auto | Resume::No => options.run.words.clone(),
    };
    let read = &|overrides: Vec<String>| {
        let mut loaded = spec::read(path, &overrides).map_err(|failure| refuse(&failure))?;
        loaded.add_sbatch(&options.launch.sbatch).map_err(|failure| refuse(&failure))?;
        Ok(loaded)
    };
    let load = |words: &[String]| match resume {
        Resume::Sweep(folder) => load_sweep(folder, words, read),
        Resume::Run(_) => Ok((read(overrides(words))?, None)),
        Resume::Auto | Resume::No => Ok((read(options.run.overrides())?, None)),
    };
    let found = load(&words)?;
    match resume {
        Resume::Sweep(folder) | Resume::Run(folder) => match places_of_moved(folder, &found.0) {
            places if places.is_empty() => Ok(found),
            places => load(&[words, places].concat()),
        },
        Resume::Auto => {
            warn_of_a_sweep_that_grows(options, &found.0);
            Ok(found)
        }
        Resume::No => Ok(found),
    }
}

/// A sweep is found again by its trials: with more of them a new one begins, and a warning names the newest that could grow.
fn warn_of_a_sweep_that_grows(options: &StartOptions, loaded: &Loaded) {
    let Loaded::Train(experiment) = loaded else { return };
    let Some(first) = experiment.trials.first().filter(|_| experiment.is_sweep()) else { return };
    let (name, tail) = (&first.spec.name, format!("sweep-{}", loaded.hash8()));
    let sweeps = RunDir::sweeps(&options.run.runs_dir, name);
    if sweeps.iter().any(|folder| folder.name().contains(&tail)) {
        return;
    }
    let with = |folder: &RunDir, words: &[String]| spec::read(&folder.file(SWEEP_FILE), words).ok();
    let fits = |folder: &&RunDir| {
        let known = KnownTrials::read(folder).overrides.pop().unwrap_or_default();
        with(folder, &known).is_some_and(|earlier| earlier.extended(loaded.clone()).is_ok())
    };
    let Some(folder) = sweeps.iter().find(fits) else { return };
    let path = folder.path().to_string_lossy();
    let words = spec::with_full_paths(&options.run.overrides());
    let mut why = format!("a new sweep begins, since `{path}` was begun with fewer trials");
    if with(folder, &words).is_some_and(|larger| larger.hash8() == loaded.hash8()) {
        let command = ["runner", "run", "--resume", &path].map(str::to_owned).into_iter().chain(words);
        why += &format!("; `{}` goes on with it", escape_line(&command_line(command)));
    }
    warn(why);
}

/// Where a project was moved with its runs: overrides that name its data at their new place, which are printed.
fn places_of_moved(folder: &RunDir, loaded: &Loaded) -> Vec<String> {
    let Loaded::Train(experiment) = loaded else { return Vec::new() };
    let mut sources = experiment.trials.iter().map(|trial| &trial.spec.data.source);
    let Some(source) = sources.next() else { return Vec::new() };
    if sources.any(|other| other.files() != source.files()) {
        return Vec::new(); // an axis names them
    }
    let digest = folder.data_digest().or_else(|| folder.trials().values().find_map(RunDir::data_digest));
    let Some(moved) = moved_source(source, folder.path(), digest.as_deref()) else { return Vec::new() };
    let files = moved.files_by_key().into_iter().filter(|(_, path)| !source.files().contains(path));
    let places = files.map(|(key, path)| {
        warn(format!("the project was moved: `{key}` is `{}` now", escape_line(&path.to_string_lossy())));
        spec::path_override(key, path)
    });
    places.collect()
}

/// Reads a sweep with the trials that it began with and those that it was given since, and are given by `words`.
fn load_sweep(
    folder: &RunDir,
    words: &[String],
    read: impl Fn(Vec<String>) -> Result<Loaded, Exit>,
) -> Result<(Loaded, Option<Extension>), Exit> {
    let extended = |loaded: Loaded, larger: Loaded| {
        loaded.extended(larger).map_err(|refused| Exit::refused(refused.message, Some(refused.hint)))
    };
    let after = KnownTrials::read(folder);
    // Trials have the same numbers wherever their data are.
    let with_data_at = |places: &[String]| {
        let mut loaded = read(places.to_vec())?;
        for overrides in &after.overrides {
            loaded = extended(loaded, read(spec::replaced(overrides, places))?)?;
        }
        Ok(loaded)
    };
    let of_data = |words: &[String]| -> Vec<String> {
        words.iter().filter(|word| is_place_of_data(word)).cloned().collect()
    };
    let last = after.overrides.last().map_or(&[][..], Vec::as_slice);
    let known = of_data(last);
    let loaded = with_data_at(&known)?;
    if words.is_empty() {
        return Ok((loaded, None));
    }
    let overrides = spec::replaced(last, words);
    let (places, count, earlier) = (of_data(&overrides), loaded.count(), loaded.hash8());
    let larger = extended(with_data_at(&places)?, read(overrides.clone())?)?;
    let is_new = larger.count() > count || places != known;
    let extension = is_new.then_some(Extension { overrides, after, earlier });
    Ok((larger, extension))
}

/// The overrides of a run that goes on. Other devices may not have the engine that its spec names: the plan picks one.
fn overrides(words: &[String]) -> Vec<String> {
    let sets = |key: &str| words.iter().any(|word| word.split_once('=').is_some_and(|(own, _)| own == key));
    let others = ["devices.num_gpus", "devices.use", "devices.on_missing"].into_iter().any(sets);
    let engine = (others && !sets("devices.engine")).then(|| "devices.engine=auto".to_owned());
    words.iter().cloned().chain(engine).collect()
}

/// Checks whether the loaded spec may be resumed.
///
/// # Errors
/// It may not; the error was printed.
pub fn check(options: &StartOptions, resume: &Resume, loaded: &Loaded) -> Result<(), Exit> {
    let (message, hint) = match (resume, loaded) {
        _ if options.launch.launcher.is_some() && !loaded.is_sweep() => (
            "`--launcher` takes a sweep, and this is one run",
            "give a key several values, or submit a script of your own with `runner run SPEC.toml --resume auto`",
        ),
        (Resume::Run(_), Loaded::Train(experiment)) if experiment.is_sweep() => {
            ("a run cannot go on as a sweep", "give each key one value")
        }
        (Resume::Run(folder), _) if waits_at_rung(folder) => (
            "a trial that waits at a rung of successive halving goes on with its sweep",
            "name the folder of the sweep",
        ),
        (Resume::Run(folder), Loaded::Train(experiment)) => {
            return experiment.trials.first().map_or(Ok(()), |trial| allowed(folder, &trial.spec));
        }
        (Resume::Run(_), Loaded::Lab(_)) => (
            "only a training can go on: others have no checkpoints",
            "run the spec again, without `--resume`",
        ),
        _ => return Ok(()),
    };
    Err(Exit::refused(message, Some(hint)))
}

/// Checks whether a run may continue with the new spec.
fn allowed(folder: &RunDir, new: &Spec) -> Result<(), Exit> {
    let old = spec::load(&folder.file("spec.toml"), &[]).map_err(|failure| refuse(&failure))?;
    let Some(old) = old.trials.first() else { return Ok(()) };
    if folder.has_finished() && old.spec.checkpoint.is_none() && !has_checkpoints(folder.path()) {
        let message =
            format!("`{}` has finished, and kept no checkpoint to go on from", folder.path().display());
        return Err(Exit::refused(
            message,
            Some("for more of it, train anew; with a table `[checkpoint]` a run can go on"),
        ));
    }
    if old.spec.changes(new).is_empty() && folder.has_finished() {
        let hint = "for more of it, name a larger `trainer.max_epochs`, `max_steps` or `max_time` after it; after early stopping, a larger `trainer.early_stopping.patience`, or another `stopping_threshold`";
        return Err(Exit::refused(format!("`{}` has finished", folder.path().display()), Some(hint)));
    }
    let Some(changes) = refused_changes(&old.spec, new) else { return Ok(()) };
    Err(Exit::refused(
        format!("a run cannot go on with other values: {changes}"),
        Some(
            "only the run's length, devices, checkpoints, the data's paths and some keys of `[logging]` may change; run the spec anew for the rest",
        ),
    ))
}

/// The `--virtual-gpus` of the run to resume.
pub fn virtual_gpus(resume: &Resume) -> Option<u32> {
    let of =
        |folder: &RunDir| u32::try_from(folder.environment(&["host", "virtual_gpus"])?.as_integer()?).ok();
    match resume {
        Resume::Run(folder) => of(folder),
        Resume::Sweep(folder) => folder.trials().values().find_map(of),
        Resume::No | Resume::Auto => None,
    }
}
