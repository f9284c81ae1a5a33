//! One process of several that a launcher has started: it joins the others, and leaves them at the end.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use super::args::StartOptions;
use crate::{
    collective::{CollectiveError, ProcessGroup},
    host::{self, Launched},
    run::{self, Exit, Resume, held_output, hold_output, print_error},
    spec::{Devices, Loaded},
    train::StopFlag,
};

/// The processes that were started with this one. Trials of a sweep that goes on are claimed by each process alone.
///
/// # Errors
/// They cannot find each other; the error has been printed.
pub fn join(
    start: &StartOptions,
    resume: &Resume,
    stop: &StopFlag,
) -> Result<Option<Arc<ProcessGroup>>, Exit> {
    if matches!(resume, Resume::Sweep(_)) || start.launch.launcher.is_some() || start.launch.slurm_task {
        return Ok(None);
    }
    let Some(launched) = Launched::here() else { return Ok(None) };
    let joined = if matches!(resume, Resume::No | Resume::Auto) && start.run.spec() == Path::new("-") {
        Err("standard input is rank 0's alone: give the spec as a file that all ranks can read".to_owned())
    } else {
        ProcessGroup::join(launched, &stop.number)
    };
    let world = joined.map_err(|why| {
        print_error(format!("`rank:{}@{}`: {why}", launched.rank, host::name()), None);
        Exit::Refused
    })?;
    if world.rank() > 0 {
        hold_output();
        // Rank 0 learns of a signal, and ends the job.
        stop.is_begun.store(true, Ordering::Relaxed);
    }
    Ok(Some(world))
}

/// Has the trial train over the hosts that the launcher started.
///
/// # Errors
/// Only one training does that; the error has been printed.
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
    print_error(message, Some(hint));
    Err(Exit::Refused)
}

/// Another rank than the first ends as `served` says: in order, or with an error of its own.
pub fn ended(world: &ProcessGroup, served: Result<(), CollectiveError>) -> Exit {
    let Err(e) = served else { return Exit::Done };
    held_output();
    print_error(format!("`{}`: {e}", world.name_of(world.rank())), None);
    Exit::Failed
}

/// Leaves the job. Another rank than the first that did not serve tells why.
pub fn leave(world: &Arc<ProcessGroup>, exit: Exit) -> Exit {
    let is_told = exit == Exit::Done || world.rank() == 0 || world.lost().is_some();
    let exit = if is_told { exit } else { ended(world, run::decline(world, &held_output())) };
    run::leave(world, exit)
}
