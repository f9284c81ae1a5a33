//! One of several processes started by a launcher: joins the others, and leaves them at the end.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::args::StartOptions;
use crate::{
    collective::{CollectiveError, ProcessGroup},
    host::{self, Launched, Launcher},
    run::{self, Exit, Resume, held_output, hold_output},
    spec::{Devices, Loaded},
    train::StopFlag,
};

/// Joins the processes started together with this one. When a sweep is resumed, each process claims trials on
/// its own instead.
///
/// # Errors
/// The processes cannot find each other; the error was printed.
pub fn join(
    start: &StartOptions,
    resume: &Resume,
    stop: &StopFlag,
) -> Result<Option<Arc<ProcessGroup>>, Exit> {
    if matches!(resume, Resume::Sweep(_)) || start.launch.launcher.is_some() || start.launch.slurm_task {
        return Ok(None);
    }
    let Some(launched) = Launched::here() else { return Ok(None) };
    if matches!(resume, Resume::No | Resume::Auto) && start.run.spec() == Path::new("-") {
        let why = "standard input is rank 0's alone: give the spec as a file that all ranks can read";
        return Err(cannot_join(launched, why));
    }
    let world = join_group(launched, &stop.number)?;
    if world.rank() > 0 {
        hold_output();
        // Rank 0 is informed about a signal, and ends the job.
        stop.is_begun.store(true, Ordering::Relaxed);
    }
    Ok(Some(world))
}

/// Joins the processes started together with this one.
pub fn join_group(launched: Launched, signal: &Arc<AtomicUsize>) -> Result<Arc<ProcessGroup>, Exit> {
    ProcessGroup::join(launched, signal).map_err(|why| cannot_join(launched, &why))
}

fn cannot_join(launched: Launched, why: &str) -> Exit {
    Exit::refused(format!("`rank:{}@{}`: {why}", launched.rank, host::name()), None)
}

/// Makes the trial train over the hosts that the launcher started.
///
/// # Errors
/// Only a single training run can do that; the error was printed.
pub fn settle(world: Option<&Arc<ProcessGroup>>, loaded: &mut Loaded) -> Result<(), Exit> {
    let Some(world) = world else { return Ok(()) };
    let (message, hint) = match loaded {
        Loaded::Train(experiment)
            if experiment.trials.iter().any(|trial| trial.spec.devices.is_more_than_one_each()) =>
        {
            let [message, hint] = Devices::ONE_EACH;
            (message, hint)
        }
        Loaded::Train(experiment) if !experiment.is_sweep() => {
            for trial in &mut experiment.trials {
                trial.spec.devices.hosts.get_or_insert(world.size() as u32);
            }
            return Ok(());
        }
        Loaded::Train(_) => (
            "the trials of a sweep do not train over hosts in this version",
            "begin the sweep by one process; `srun runner run --resume SWEEP` then has many take its trials, \
             and `--launcher slurm` submits it",
        ),
        Loaded::Lab(_) => ("only a training runs over hosts: this measures one", "start one process"),
    };
    Err(Exit::refused(message, Some(hint)))
}

/// Whether MPI's launcher started this process as a rank other than 0.
pub fn is_other_rank() -> bool {
    Launched::here().is_some_and(|launched| launched.rank > 0 && launched.by != Launcher::Torch)
}

/// Exit code of a rank other than 0, after serving: success, or an error of its own.
pub fn ended(world: &ProcessGroup, served: Result<(), CollectiveError>) -> Exit {
    let Err(e) = served else { return Exit::Done };
    held_output();
    Exit::failed(format!("`{}`: {e}", world.name_of(world.rank())), None)
}

/// Leaves the job. A rank other than 0 that did not serve tells rank 0 why.
pub fn leave(world: &Arc<ProcessGroup>, exit: Exit) -> Exit {
    let is_told = exit == Exit::Done || world.rank() == 0 || world.lost().is_some();
    let exit = if is_told { exit } else { ended(world, run::decline(world, &held_output())) };
    run::leave(world, exit)
}
