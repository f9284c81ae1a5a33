//! What a forecast takes as given: which trials are known, how many run at a time, and where.

use std::{path::Path, time::Duration};

use super::{
    args::{CheckOptions, Jobs, RunOptions},
    run::jobs_at_once,
};
use crate::{
    plan::{Machine, Trial},
    run::{Placement, Prepared},
    spec::{Experiment, GpuSharing},
};

/// Where and how trials would run.
pub struct Conditions<'a> {
    pub runs_dir: &'a Path,
    /// Trials at a time.
    pub jobs: usize,
    /// Which trials share a GPU.
    pub share: GpuSharing,
    /// Trials that a sampler draws later: they count as the mean of the others.
    pub undrawn: usize,
    /// Whether steps and the disk are timed.
    pub measures: bool,
    /// Whether it is a sweep, and whether that stops trials early.
    pub is_sweep: bool,
    pub stops_early: bool,
    pub machine: &'a Machine,
    /// How long reading and planning took.
    pub planned: Duration,
}

/// Threads of each of a sweep's trials on a machine with this many cores, some of them side by side by `jobs`.
pub fn threads_of_each(options: &RunOptions, jobs: Option<Jobs>, trials: usize, cores: usize) -> usize {
    let jobs = jobs.map_or(1, |jobs| jobs.count(cores)).clamp(1, trials.max(1));
    (options.threads_of(cores) / jobs).max(1)
}

/// Trials with their numbers.
pub type Numbered<'a> = Vec<(usize, &'a Trial)>;

impl<'a> Conditions<'a> {
    /// The trials that are known and run, and the circumstances of all.
    pub fn new<'t>(
        CheckOptions { run: options, jobs, .. }: &'a CheckOptions,
        experiment: &Experiment,
        prepared: &'t [Prepared<Trial>],
        (machine, planned): (&'a Machine, Duration),
    ) -> (Numbered<'t>, Self) {
        let runs = prepared.iter().enumerate().filter_map(|(index, own)| match own {
            Prepared::Run(planned) => Some((index, &**planned)),
            _ => None,
        });
        // What a sampler draws later is not known yet.
        let (trials, undrawn): (Numbered<'t>, Vec<_>) =
            runs.partition(|(index, _)| *index < experiment.known);
        let placement = Placement::new(prepared, machine, experiment.share);
        let conditions = Self {
            runs_dir: &options.runs_dir,
            jobs: jobs
                .map_or(1, |jobs| jobs_at_once(jobs, placement.as_ref(), machine))
                .min(trials.len() + undrawn.len()),
            share: experiment.share,
            undrawn: undrawn.len(),
            measures: !options.quiet && machine.described.is_none(),
            is_sweep: experiment.is_sweep(),
            stops_early: experiment.stop.is_some(),
            machine,
            planned: if machine.described.is_none() { planned } else { Duration::ZERO },
        };
        (trials, conditions)
    }
}
