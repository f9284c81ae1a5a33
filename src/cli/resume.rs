//! `--resume RUN` and `--resume auto`: which run goes on, and whether its spec lets it.

use std::path::{Path, PathBuf};

use super::args::{AUTO, StartOptions};
use crate::{
    record::RunDir,
    report::{Found, find_one},
    run::{Exit, Resume, print_error, refuse, refused_changes, waits_at_rung},
    spec::{self, Loaded, Spec},
};

/// What the command line asks for.
///
/// # Errors
/// The path leads to no run; the error has been printed.
pub fn requested(options: &StartOptions) -> Result<Resume, Exit> {
    let is_run = options.resume.as_deref().is_some_and(|run| run != AUTO);
    if let Some(spec) = options.run.words.iter().find(|word| is_run && word.ends_with(".toml")) {
        print_error("a run goes on by its own spec", Some(&format!("leave `{spec}` out")));
        return Err(Exit::Refused);
    }
    match options.resume.as_deref() {
        None => Ok(Resume::No),
        Some(AUTO) => Ok(Resume::Auto),
        // Also one that lost its table.
        Some(path) if Path::new(path).join("sweep.toml").is_file() => {
            Ok(Resume::Sweep(RunDir::existing(named(path.into()))))
        }
        Some(path) => match find_one(path) {
            Ok(Found::Run(folder)) => Ok(Resume::Run(RunDir::existing(named(folder)))),
            Ok(Found::Sweep(folder)) => Ok(Resume::Sweep(RunDir::existing(named(folder)))),
            Err(e) => {
                print_error(&e, e.hint());
                Err(Exit::Refused)
            }
        },
    }
}

/// A folder that is called by a name, not by dots.
fn named(folder: PathBuf) -> PathBuf {
    let is_named = folder.file_name().is_some();
    if is_named { folder } else { folder.canonicalize().unwrap_or(folder) }
}

/// The overrides of a run that goes on. Other devices may not have the engine that its spec names: the plan picks one.
pub fn overrides(words: &[String]) -> Vec<String> {
    let sets = |key: &str| words.iter().any(|word| word.split_once('=').is_some_and(|(own, _)| own == key));
    let others = ["devices.num_gpus", "devices.use", "devices.on_missing"].into_iter().any(sets);
    let engine = (others && !sets("devices.engine")).then(|| "devices.engine=auto".to_owned());
    words.iter().cloned().chain(engine).collect()
}

/// Whether what was read may go on.
///
/// # Errors
/// The error has been printed.
pub fn check(options: &StartOptions, resume: &Resume, loaded: &Loaded) -> Result<(), Exit> {
    let is_sweep = match loaded {
        Loaded::Train(experiment) => experiment.is_sweep(),
        Loaded::Lab(experiment) => experiment.is_sweep(),
    };
    let (message, hint) = match (resume, loaded) {
        _ if options.launch.launcher.is_some() && !is_sweep => (
            "`--launcher` takes a sweep, and this is one run",
            "give a key several values, or submit a script of your own with `runner run SPEC.toml --resume auto`",
        ),
        (Resume::Sweep(_), _) if !options.run.words.is_empty() => {
            ("a sweep goes on as it was begun", "leave the overrides out, or run the spec anew")
        }
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
    print_error(message, Some(hint));
    Err(Exit::Refused)
}

/// Whether a run may go on with the new spec.
fn allowed(folder: &RunDir, new: &Spec) -> Result<(), Exit> {
    let old = spec::load(&folder.file("spec.toml"), &[]).map_err(|failure| refuse(&failure))?;
    let Some(old) = old.trials.first() else { return Ok(()) };
    if old.spec.changes(new).is_empty() && folder.has_finished() {
        let hint = "for more of it, name a larger `trainer.max_epochs`, `max_steps` or `max_time` after it; after early stopping, a larger `trainer.early_stopping.patience`";
        print_error(format!("`{}` has finished", folder.path().display()), Some(hint));
        return Err(Exit::Refused);
    }
    let Some(changes) = refused_changes(&old.spec, new) else { return Ok(()) };
    print_error(
        format!("a run cannot go on with other values: {changes}"),
        Some(
            "only the run's length, devices, checkpoints, logging blocks and the data's paths may change; run the spec anew for the rest",
        ),
    );
    Err(Exit::Refused)
}

/// `--virtual-gpus` of what goes on.
pub fn virtual_gpus(resume: &Resume) -> Option<u32> {
    match resume {
        Resume::Run(folder) => virtual_gpus_of(folder),
        Resume::Sweep(folder) => folder.trials().values().find_map(virtual_gpus_of),
        Resume::No | Resume::Auto => None,
    }
}

fn virtual_gpus_of(folder: &RunDir) -> Option<u32> {
    let text = crate::host::read_text(&folder.file("environment.toml")).ok()?;
    let table: toml::Table = toml::from_str(&text).ok()?;
    u32::try_from(table.get("host")?.get("virtual_gpus")?.as_integer()?).ok()
}
