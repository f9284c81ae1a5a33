//! `--resume RUN` and `--resume auto`: which run goes on, and whether its spec lets it.

use std::path::{Path, PathBuf};

use super::args::{AUTO, StartOptions};
use crate::{
    record::{RunDir, has_checkpoints},
    report::{find_run, run_status},
    run::{Exit, print, print_error, refuse},
    spec::{self, Loaded, Spec},
    units,
};

/// What the command line asks for.
pub enum Resume {
    No,
    /// The newest run of the spec, if it can go on.
    Auto,
    /// The run of this folder.
    Run(PathBuf),
}

/// What is done.
pub enum Choice {
    Begin,
    GoOn(RunDir),
}

/// A finished run's status in its summary.
const FINISHED: &str = "finished";

impl Resume {
    /// # Errors
    /// The path leads to no run; the error has been printed.
    pub fn new(options: &StartOptions) -> Result<Self, Exit> {
        match options.resume.as_deref() {
            None => Ok(Self::No),
            Some(AUTO) => Ok(Self::Auto),
            Some(path) => find_run(path).map(Self::Run).map_err(|e| {
                print_error(&e, e.hint());
                Exit::Refused
            }),
        }
    }

    /// Finds the run that goes on.
    ///
    /// # Errors
    /// None can, or there is nothing to do; this has been printed.
    pub fn choose(&self, loaded: &Loaded, runs_dir: &Path) -> Result<Choice, Exit> {
        let refuse_all = |message: String, hint| {
            print_error(message, Some(hint));
            Err(Exit::Refused)
        };
        if matches!(self, Self::No) {
            return Ok(Choice::Begin);
        }
        let trial = match loaded {
            Loaded::Train(experiment) if !experiment.is_sweep() => experiment.trials.first(),
            Loaded::Train(_) => {
                return refuse_all(
                    "a sweep cannot go on in this version".to_owned(),
                    "name the folder of one of its trials",
                );
            }
            Loaded::Lab(_) => {
                return refuse_all(
                    "only a training can go on: others have no checkpoints".to_owned(),
                    "run the spec again, without `--resume`",
                );
            }
        };
        let Some(spec) = trial.map(|trial| &trial.spec) else { return Ok(Choice::Begin) };
        match self {
            Self::Run(folder) => {
                allowed(folder, spec).map(|()| Choice::GoOn(RunDir::existing(folder.clone())))
            }
            _ => newest(spec, runs_dir),
        }
    }
}

/// The newest run of a spec, unless it is finished or has no checkpoint.
fn newest(spec: &Spec, runs_dir: &Path) -> Result<Choice, Exit> {
    let Some(folder) = RunDir::newest(runs_dir, &spec.name, &spec.hash8()) else { return Ok(Choice::Begin) };
    if run_status(folder.path()) == FINISHED {
        let told =
            print(&format!("`{}` has finished; there is nothing to go on with\n", folder.path().display()));
        return Err(told);
    }
    Ok(if has_checkpoints(folder.path()) { Choice::GoOn(folder) } else { Choice::Begin })
}

/// Keys that may change when a run goes on: how long it lasts, what is recorded, where it runs.
const MAY_CHANGE: [&str; 14] = [
    "description",
    "devices.num_gpus",
    "devices.use",
    "devices.on_missing",
    "devices.engine",
    "trainer.max_epochs",
    "trainer.max_steps",
    "trainer.max_time",
    "trainer.early_stopping",
    "trainer.restore_best",
    "checkpoint",
    "logging.flush_every",
    "logging.trace",
    "logging.system_every_s",
];

/// The length of a schedule, which may be named so that it stays when the run gets longer.
const LENGTHS: [&str; 2] = ["t_max", "total_steps"];

/// Whether a run of the old spec may go on with the new one.
fn allowed(folder: &Path, new: &Spec) -> Result<(), Exit> {
    let old = spec::load(&folder.join("spec.toml"), &[]).map_err(|failure| refuse(&failure))?;
    let Some(old) = old.trials.first() else { return Ok(()) };
    let changes = old.spec.changes(new);
    if changes.is_empty() && run_status(folder) == FINISHED {
        let hint = "for more of it, name a larger `trainer.max_epochs` or `trainer.max_steps` after it";
        print_error(format!("`{}` has finished", folder.display()), Some(hint));
        return Err(Exit::Refused);
    }
    let may_change = |key: &str| {
        let below =
            |may: &&str| key.strip_prefix(*may).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let is_length = key.starts_with("schedule.") && LENGTHS.iter().any(|length| key.ends_with(length));
        is_length || MAY_CHANGE.iter().any(|may| below(&may))
    };
    let refused: Vec<_> = changes.iter().filter(|change| !may_change(&change.0)).collect();
    let Some((key, was, is)) = refused.first() else { return Ok(()) };
    let others = match refused.len() - 1 {
        0 => String::new(),
        more => format!(" ({} besides)", units::counted(more as u64, "key")),
    };
    let [was, is] = [was, is].map(|value| value.as_deref().unwrap_or("absent"));
    print_error(
        format!("`{key}` cannot change when a run goes on: it was {was}, and would be {is}{others}"),
        Some(
            "only the run's length, devices, checkpoints and logging blocks may; run the spec anew for the rest",
        ),
    );
    Err(Exit::Refused)
}

/// `--virtual-gpus` of the run that goes on.
pub fn virtual_gpus_of(folder: &RunDir) -> Option<u32> {
    let text = std::fs::read_to_string(folder.file("environment.toml")).ok()?;
    let table: toml::Table = toml::from_str(&text).ok()?;
    u32::try_from(table.get("host")?.get("virtual_gpus")?.as_integer()?).ok()
}
