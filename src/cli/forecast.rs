//! How long a run or a sweep will take on this machine, and how much of the disk: for `runner check`.

use std::{cmp::Reverse, time::Instant};

use super::{
    conditions::Conditions,
    disk::Disk,
    forecast_groups::{Group, LONG, TrialTime, estimate, grouped, measure},
};
use crate::{
    host::escape_line,
    plan::Trial,
    record::{Extent, run_files, too_busy},
    run::{Datasets, Rehearsal, Unmeasured, warn},
    spec::{GpuSharing, Problem},
    units,
};

/// Less time than this, in seconds, is not foretold more closely.
const SHORT_S: f64 = 1.0;

/// A part of the time from which on it is named.
const MUCH: f64 = 0.1;

/// Of more trials than these it hardly matters which ends last.
const MOST_IN_TURN: f64 = 5000.0;

/// Bytes of a row of `sweep.csv`.
const SWEEP_ROW: u64 = 330;

/// What is known before anything runs.
pub struct Forecast {
    /// What was measured of the first trial.
    pub first: Result<Rehearsal, Unmeasured>,
    /// Lines of a page: names and values.
    pub lines: Vec<(&'static str, String)>,
}

/// Foretells planned trials, each with its number.
pub fn forecast(
    trials: &[(usize, &Trial)],
    datasets: &mut Datasets,
    conditions: &Conditions<'_>,
) -> Result<Forecast, Vec<Problem>> {
    let mut groups = grouped(trials.iter().map(|(_, trial)| *trial));
    let mut first = Err(Unmeasured::NotHere);
    let mut others = 0.0;
    if conditions.measures {
        (first, others) = measure(&mut groups, datasets);
    }
    if let Ok(own) = &mut first {
        own.others = others;
    }
    // The page of the first trial says by whom.
    let is_busy = too_busy(others).is_some();
    let is_measured = groups.iter().any(|group| group.is_measured);
    let is_timed = !is_busy && is_measured;
    estimate(&mut groups, conditions.machine);
    let is_here = conditions.machine.described.is_none();
    let mut disk = Disk::from_folder(conditions.runs_dir).filter(|_| is_here);
    let checkpoints = trials.iter().filter(|(_, trial)| trial.spec.checkpoint.is_some());
    let largest = checkpoints.map(|(_, trial)| 4 * trial.saved_numbers()).max();
    if let (Some(disk), Some(bytes), true) = (&mut disk, largest, conditions.measures) {
        disk.measure(bytes);
    }
    let mut lines = Vec::new();
    let basis = match groups.first().filter(|_| !is_measured) {
        Some(group) => format!("by {} rates", group.trial.lower_bound.rates.origin.name()),
        None if is_busy => "on this machine, as others use the cores".to_owned(),
        None => "on this machine".to_owned(),
    };
    let time = time(&groups, disk.as_ref(), conditions, (is_timed, &basis));
    lines.extend(time.map(|words| ("time", words)));
    if let Some(disk) = disk {
        lines.push(("disk", space(&groups, &disk, datasets, (conditions, is_timed))?));
    }
    if conditions.is_sweep {
        lines.extend(memory(trials, conditions).map(|words| ("memory", words)));
    }
    Ok(Forecast { first, lines })
}

/// Seconds until all trials have ended, kind by kind: each begins when the first of those under way ends. Trials on CPUs and on GPUs run
/// beside each other; of those on GPUs, some share one, and some keep it.
fn rounds(groups: &[Group<'_>], times: &[(f64, TrialTime)], conditions: &Conditions<'_>) -> f64 {
    let of = |is_of: &dyn Fn(&Trial) -> bool| {
        let own = || groups.iter().zip(times).filter(|(own, _)| is_of(own.trial));
        let at_a_time = own().map(|(own, _)| at_a_time(own.trial, conditions)).fold(f64::INFINITY, f64::min);
        let (count, sum_s) =
            own().fold((0.0, 0.0), |(count, sum), (_, (n, time))| (count + n, sum + n * time.seconds));
        if count > MOST_IN_TURN || count == 0.0 {
            return sum_s / at_a_time;
        }
        // Where threads outnumber the cores, a place counts in part.
        let mut places: Vec<f64> = vec![0.0; at_a_time.ceil() as usize];
        for (_, (n, time)) in own() {
            for _ in 0..*n as usize {
                let next = places.iter_mut().min_by(|a, b| a.total_cmp(b));
                next.into_iter().for_each(|place| *place += time.seconds);
            }
        }
        places.into_iter().fold(0.0, f64::max).max(sum_s / at_a_time)
    };
    let share = conditions.share;
    let on_cpus = of(&|trial| !trial.engine.is_gpu());
    let on_gpus =
        of(&|trial| trial.engine.is_gpu() && !is_alone(trial, share)) + of(&|trial| is_alone(trial, share));
    let all_s: f64 = times.iter().map(|(count, time)| count * time.seconds).sum();
    on_cpus.max(on_gpus).max(all_s / conditions.jobs.max(1) as f64)
}

/// How many trials like this one make progress at a time: on CPUs as many as there are cores for their threads.
fn at_a_time(trial: &Trial, Conditions { jobs, machine, share, .. }: &Conditions<'_>) -> f64 {
    let jobs = *jobs.max(&1) as f64;
    match trial.engine.is_gpu() {
        true if is_alone(trial, *share) => jobs.min((machine.gpus.len() / trial.world_size()).max(1) as f64),
        true => jobs,
        false => (machine.cores as f64 / trial.threads.max(1) as f64).clamp(1.0, jobs),
    }
}

/// Whether a trial has its GPU to itself.
fn is_alone(trial: &Trial, share: GpuSharing) -> bool {
    trial.engine.is_gpu() && !share.allows(trial.is_one_block)
}

/// Seconds that all trials of a sweep take by the rates of a machine; `None` if that is not known of one.
pub fn sweep_s(trials: &[(usize, &Trial)], conditions: &Conditions<'_>) -> Option<f64> {
    let mut groups = grouped(trials.iter().map(|(_, trial)| *trial));
    estimate(&mut groups, conditions.machine);
    let times = times(&groups, None, conditions)?;
    Some(all_s(&groups, &times, conditions))
}

/// How many trials there are of each kind, and what each takes.
fn times(
    groups: &[Group<'_>],
    disk: Option<&Disk>,
    conditions: &Conditions<'_>,
) -> Option<Vec<(f64, TrialTime)>> {
    let time_of = |group: &Group| Some((group.count as f64, group.time(disk, conditions.is_sweep)?));
    groups.iter().map(time_of).collect()
}

/// Seconds until all trials have ended, those too that are drawn later.
fn all_s(groups: &[Group<'_>], times: &[(f64, TrialTime)], conditions: &Conditions<'_>) -> f64 {
    let known: usize = groups.iter().map(|group| group.count).sum();
    let all = (known + conditions.undrawn) as f64;
    let longest = times.iter().map(|(_, time)| time.seconds).fold(0.0, f64::max);
    (rounds(groups, times, conditions) * all / known as f64).max(longest)
}

/// How long all of them take; `None` if that is not known of one.
fn time(
    groups: &[Group<'_>],
    disk: Option<&Disk>,
    conditions: &Conditions<'_>,
    (is_timed, basis): (bool, &str),
) -> Option<String> {
    let Conditions { jobs, undrawn, .. } = *conditions;
    let times = times(groups, disk, conditions)?;
    let known: usize = groups.iter().map(|group| group.count).sum();
    let all = (known + undrawn) as f64;
    let on_cpus = groups.iter().filter(|group| !group.trial.engine.is_gpu());
    let on_cores = on_cpus.map(|group| at_a_time(group.trial, conditions)).fold(f64::INFINITY, f64::min);
    let seconds = || times.iter().map(|(_, time)| time.seconds);
    let (shortest, longest) = (seconds().fold(f64::INFINITY, f64::min), seconds().fold(0.0, f64::max));
    let first_s =
        groups.iter().filter_map(|group| group.rehearsal).map(|own| own.first_s).fold(0.0, f64::max);
    let in_all = first_s + all_s(groups, &times, conditions) + conditions.planned.as_secs_f64();
    let is_cut = times.iter().any(|(_, time)| time.part < 1.0);
    let at_most = conditions.stops_early || is_cut || groups.iter().any(Group::may_end_early);
    let about = match (in_all < SHORT_S, at_most, is_timed) {
        (true, ..) => "less than a second".to_owned(),
        (_, true, true) => format!("at most {}", about(in_all)),
        (_, true, false) => format!("at most roughly {}", about(in_all)),
        (_, false, true) => format!("about {}", about(in_all)),
        (_, false, false) => format!("roughly {}", about(in_all)),
    };
    let parts = match &times[..] {
        [(_, time)] if !conditions.is_sweep => time.words.clone(),
        _ => {
            let range = match [shortest, longest].map(units::seconds) {
                [least, most] if least == most => format!("of {most}"),
                [least, most] => format!("of {least} to {most}"),
            };
            let at_a_time = match jobs {
                1 => String::new(),
                jobs if on_cores < jobs as f64 => {
                    format!(
                        ", {jobs} at a time on {}",
                        units::counted(conditions.machine.cores as u64, "core")
                    )
                }
                jobs => format!(", {jobs} at a time"),
            };
            let unmeasured = groups.iter().filter(|group| !group.is_measured).count();
            let by_arithmetic = match unmeasured {
                n @ 1.. if is_timed => {
                    format!("; {n} of {} kinds of trials by their arithmetic", groups.len())
                }
                _ => String::new(),
            };
            format!("{} {range}{at_a_time}{by_arithmetic}", units::counted(all as u64, "trial"))
        }
    };
    let planned_s = conditions.planned.as_secs_f64();
    let planned = match in_all >= SHORT_S && planned_s >= MUCH * in_all {
        true => format!(", reading and planning {}", units::seconds(planned_s)),
        false => String::new(),
    };
    Some(format!("{about} {basis}: {parts}{planned}"))
}

/// At least a second in two digits, as an estimate deserves.
fn about(seconds: f64) -> String {
    match seconds {
        s if s < 9.95 => format!("{s:.1} s"),
        s if s < 99.5 => format!("{s:.0} s"),
        s => {
            let step = 10_f64.powf(s.log10().floor() - 1.0);
            units::seconds((s / step).round() * step)
        }
    }
}

/// The memory of the trial that needs the most of it, on a GPU or in the host's memory, and of as many as there are at a time.
fn memory(trials: &[(usize, &Trial)], conditions: &Conditions<'_>) -> Option<String> {
    let Conditions { machine, jobs, .. } = conditions;
    let on_gpu = |trial: &Trial| trial.devices.used.iter().any(|device| device.is_real_gpu());
    let on_gpus = trials.iter().any(|(_, trial)| on_gpu(trial));
    let of = |(number, trial): &(usize, &Trial)| {
        let bytes = match on_gpus {
            true => trial.footprint.devices.iter().copied().max().filter(|_| on_gpu(trial)).unwrap_or(0),
            false => trial.footprint.in_host_memory(&trial.devices.used),
        };
        (bytes, *number, is_alone(trial, conditions.share))
    };
    let mut all: Vec<(u64, usize, bool)> = trials.iter().map(of).collect();
    // Of equal ones, the first.
    all.sort_by_key(|own| Reverse(own.0));
    let (most, number, _) = *all.first()?;
    let jobs = if on_gpus { jobs.div_ceil(machine.gpus.len().max(1)) } else { *jobs };
    let on = if on_gpus { " on a GPU" } else { "" };
    let together = match jobs {
        1 => String::new(),
        jobs => {
            let sharing = all.iter().filter(|(.., is_alone)| !is_alone).take(jobs);
            let bytes = sharing.map(|(bytes, ..)| bytes).sum::<u64>().max(most);
            let on = if on_gpus { " on one" } else { "" };
            format!(", {jobs} at a time{on} {}", units::bytes(bytes))
        }
    };
    let free = match on_gpus {
        true => machine.gpus.iter().map(|gpu| gpu.memory_free).min()?,
        false => machine.memory_available,
    };
    let [most, free] = [most, free].map(units::bytes);
    let so_far = if conditions.undrawn > 0 { "so far " } else { "" };
    Some(format!("{so_far}at most {most}{on}, by trial {number}{together}; {free} free"))
}

/// What all files take, in words; warns if they do not fit.
fn space(
    groups: &[Group<'_>],
    disk: &Disk,
    datasets: &mut Datasets,
    (conditions, is_timed): (&Conditions<'_>, bool),
) -> Result<String, Vec<Problem>> {
    let known: u64 = groups.iter().map(|group| group.count as u64).sum();
    let trials = known + conditions.undrawn as u64;
    // The table of a sweep, beside its spec and its folder.
    let of_sweep = if conditions.is_sweep { 3 + (SWEEP_ROW * trials).div_ceil(disk.block) } else { 0 };
    let (mut blocks, begun, mut opened) = (0_u64, Instant::now(), None);
    for group in groups {
        // Data that are not in memory are read again: where that takes long, others stand in for them.
        let dataset = match opened {
            Some(dataset) if begun.elapsed() > LONG => dataset,
            _ => datasets.open(&group.trial.spec)?,
        };
        let time = group.time(None, conditions.is_sweep);
        let (seconds, part) = time.map_or((0.0, 1.0), |time| (time.seconds, time.part));
        let row_bytes = group.rehearsal.map_or([None; 2], |own| own.row_bytes);
        let files = run_files(group.trial, &dataset, &Extent { seconds, part, row_bytes }).into_iter();
        let each = files.fold(1, |sum: u64, (count, bytes)| {
            sum.saturating_add(count.saturating_mul(bytes.div_ceil(disk.block)))
        });
        blocks = blocks.saturating_add(each.saturating_mul(group.count as u64));
        opened = Some(dataset);
    }
    let blocks = (blocks as f64 * trials as f64 / known as f64) as u64; // the cast saturates
    let bytes = blocks.saturating_add(of_sweep).saturating_mul(disk.block);
    let folder = conditions.runs_dir.to_string_lossy();
    let folder = escape_line(&folder);
    let [needed, free] = units::two_sizes(bytes, disk.free);
    let is_unknown =
        |group: &Group| group.may_end_early() || !is_timed && group.trial.spec.trainer.max_time.is_some();
    let at_most = conditions.stops_early || groups.iter().any(is_unknown);
    let about = match bytes {
        _ if at_most => "at most",
        u64::MAX => "at least",
        _ => "about",
    };
    if bytes > disk.free && !at_most {
        warn(format!("`{folder}` has {free} free, and this takes {about} {needed}"));
    }
    let doubt = if at_most && bytes > disk.free { ": it may not fit" } else { "" };
    Ok(format!("{about} {needed} in `{folder}`; {free} free{doubt}"))
}

#[cfg(test)]
#[path = "forecast_tests.rs"]
mod tests;
