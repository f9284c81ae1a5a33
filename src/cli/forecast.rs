//! How long a run or a sweep will take on this machine, and how much of the disk: for `runner check`.

use std::{
    cmp::Reverse,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use super::disk::Disk;
use crate::{
    host::escape_line,
    plan::{Machine, Trial},
    record::{run_files, too_busy},
    run::{Datasets, Rehearsal, Unmeasured, rehearse, warn},
    spec::{Every, Problem},
    units,
};

/// Making the folder of a run, starting its threads and closing its files takes about as many seconds; those of a sweep's trial
/// are not waited for on the disk.
const FILES_S: f64 = 3e-3;
const FILES_OF_TRIAL_S: f64 = 1.5e-3;

/// No other shape of a sweep is measured after this time.
const LONG: Duration = Duration::from_millis(600);

/// Less time than this, in seconds, is not foretold more closely.
const SHORT_S: f64 = 1.0;

/// Bytes of a row of `sweep.csv`.
const SWEEP_ROW: u64 = 330;

/// Syncs of a checkpoint: `metrics.csv`, and both of its files with their folder's entries. Removing the one before takes about as
/// long as another.
const SYNCS: f64 = 6.0;

/// Training waits for checkpoints of epochs for a second and this part of its time.
const WAIT_SHARE: f64 = 0.05;

/// What is known before anything runs.
pub struct Forecast {
    /// What was measured of the first trial.
    pub first: Result<Rehearsal, Unmeasured>,
    /// Lines of a page: names and values.
    pub lines: Vec<(&'static str, String)>,
}

/// Trials that take as long as each other, and as much of the disk.
struct Group<'a> {
    trial: &'a Trial,
    count: usize,
    measured: Option<Rehearsal>,
}

/// A trial's time in seconds, and its parts in words.
struct TrialTime {
    seconds: f64,
    /// The part of it that waits for checkpoints.
    waits_s: f64,
    words: String,
}

/// Where and how trials would run.
pub struct Conditions<'a> {
    pub runs_dir: &'a Path,
    /// Trials at a time.
    pub jobs: usize,
    /// Whether it is a sweep, and whether that stops trials early.
    pub is_sweep: bool,
    pub stops_early: bool,
    pub machine: &'a Machine,
    /// How long reading and planning took.
    pub planned: Duration,
}

/// Foretells planned trials, each with its number.
pub fn forecast(
    trials: &[(usize, &Trial)],
    datasets: &mut Datasets,
    conditions: &Conditions<'_>,
) -> Result<Forecast, Vec<Problem>> {
    let mut groups = grouped(trials.iter().map(|(_, trial)| *trial));
    let begun = Instant::now();
    let mut first = groups.first().map_or(Err(Unmeasured::NotHere), |group| rehearse(group.trial, datasets));
    match &mut first {
        Ok(own) => {
            groups[0].measured = Some(*own);
            own.others = own.others.max(measure(&mut groups, datasets, begun));
        }
        Err(Unmeasured::TooLong) => groups[0].measured = Some(Rehearsal::by_rates(groups[0].trial)),
        Err(_) => {}
    }
    let mut disk = Disk::from_folder(conditions.runs_dir);
    let checkpoints = trials.iter().filter(|(_, trial)| trial.spec.checkpoint.is_some());
    let largest = checkpoints.map(|(_, trial)| 4 * trial.saved_numbers()).max();
    if let (Some(disk), Some(bytes), Ok(_)) = (&mut disk, largest, &first) {
        disk.measure(bytes);
    }
    let mut lines = Vec::new();
    // The page of the first trial says where others held too much of the processors.
    let is_disturbed = first.as_ref().is_ok_and(|own| too_busy(own.others).is_some());
    let basis = match first {
        Ok(_) => "on this machine".to_owned(),
        Err(_) => format!("by {} rates", groups[0].trial.lower_bound.rates.origin.name()),
    };
    let time = (!is_disturbed).then(|| time(&groups, disk.as_ref(), conditions, &basis)).flatten();
    lines.extend(time.map(|words| ("time", words)));
    if let Some(disk) = disk {
        lines.push(("disk", space(&groups, &disk, datasets, conditions)?));
    }
    if conditions.is_sweep {
        lines.extend(memory(trials, conditions).map(|words| ("memory", words)));
    }
    Ok(Forecast { first, lines })
}

fn grouped<'a>(trials: impl Iterator<Item = &'a Trial>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group> = Vec::new();
    for trial in trials {
        match groups.iter_mut().find(|group| is_alike(group.trial, trial)) {
            Some(group) => group.count += 1,
            None => groups.push(Group { trial, count: 1, measured: None }),
        }
    }
    groups
}

fn is_alike(one: &Trial, other: &Trial) -> bool {
    let [own, its] = [one, other].map(|trial| &trial.spec);
    takes_same_steps(one, other)
        && one.steps == other.steps
        && own.checkpoint == its.checkpoint
        && own.logging == its.logging
        && own.data.source == its.data.source
        && (own.trainer.validate_every_epochs, own.trainer.max_time)
            == (its.trainer.validate_every_epochs, its.trainer.max_time)
        && own.trainer.early_stopping.is_some() == its.trainer.early_stopping.is_some()
}

/// Whether its times say something.
fn is_here(trial: &Trial) -> bool {
    !trial.devices.any_virtual() && !trial.devices.over_hosts()
}

/// Whether a step of both takes as long.
fn takes_same_steps(one: &Trial, other: &Trial) -> bool {
    let of =
        |trial: &Trial| (trial.engine, trial.threads, trial.spec.devices.precision, trial.facts.train_rows);
    of(one) == of(other)
        && one.devices.used == other.devices.used
        && (Arc::ptr_eq(&one.programs, &other.programs) || one.programs == other.programs)
}

/// Measures the groups after the first, those with the most work first, as long as there is time. Returns the largest share of
/// the processors that others held.
fn measure(groups: &mut [Group<'_>], datasets: &mut Datasets, begun: Instant) -> f64 {
    let mut order: Vec<usize> = (1..groups.len()).collect();
    order.sort_by(|a, b| groups[*b].work_s().total_cmp(&groups[*a].work_s()));
    let mut others = 0.0_f64;
    for place in order {
        let trial = groups[place].trial;
        let known = groups.iter().find(|own| own.measured.is_some() && takes_same_steps(own.trial, trial));
        groups[place].measured = match known {
            Some(known) => known.measured,
            None if begun.elapsed() < LONG => rehearse(trial, datasets).ok(),
            None => continue,
        };
        others = groups[place].measured.map_or(others, |own| others.max(own.others));
    }
    others
}

impl Group<'_> {
    /// Seconds of all its trials by the rates of the machine.
    fn work_s(&self) -> f64 {
        self.count as f64 * self.trial.steps as f64 * self.about_s()
    }

    fn about_s(&self) -> f64 {
        self.trial.lower_bound.settled_s(self.trial.threads)
    }

    /// What was measured of it, or of the trial whose steps are most like its own, as much longer as its arithmetic takes.
    fn rehearsal(&self, all: &[Group<'_>]) -> Option<Rehearsal> {
        let ratio = |other: &Group| self.about_s() / other.about_s();
        let distance = |other: &&Group| ratio(other).ln().abs();
        let is_like = |other: &&Group| other.trial.engine.is_gpu() == self.trial.engine.is_gpu();
        let measured = all.iter().filter(|group| group.measured.is_some()).filter(is_like);
        let nearest = measured.min_by(|a, b| distance(a).total_cmp(&distance(b)));
        self.measured.or_else(|| {
            let nearest = nearest.filter(|_| is_here(self.trial))?;
            let own = nearest.measured?;
            let validation_s = own.validation_s.map(|seconds| {
                let steps =
                    self.trial.validation_steps() / nearest.trial.validation_steps().max(f64::MIN_POSITIVE);
                seconds * ratio(nearest) * steps
            });
            Some(Rehearsal { step_s: own.step_s * ratio(nearest), validation_s, ..own })
        })
    }

    /// How long each of its trials takes.
    fn time(&self, all: &[Group<'_>], disk: Option<&Disk>, is_sweep: bool) -> Option<TrialTime> {
        let (trial, own) = (self.trial, self.rehearsal(all)?);
        let steps_s = trial.steps as f64 * own.step_s;
        let pass_s = own.validation_s.unwrap_or(trial.validation_steps() * own.step_s);
        let passes_s = trial.validations() as f64 * pass_s;
        let waits_s = disk.and_then(|disk| checkpoint_waits(trial, steps_s + passes_s, disk));
        let mut words = format!("{} of {}", units::counted(trial.steps, "step"), units::seconds(own.step_s));
        if passes_s > steps_s / 20.0 {
            let passes = units::counted(trial.validations(), "validation");
            words.push_str(&format!(", {passes} of {}", units::seconds(pass_s)));
        }
        let files_s = if is_sweep { FILES_OF_TRIAL_S } else { FILES_S };
        let mut seconds = steps_s + passes_s + own.loading_s + files_s + waits_s.unwrap_or(0.0);
        if let (Some(rule), Some(waits_s)) = (&trial.spec.checkpoint, waits_s)
            && waits_s > steps_s / 20.0
        {
            let (waits, key) = (units::seconds(waits_s), rule.every.name());
            words.push_str(&format!(
                ", {waits} of waiting for checkpoints: a larger `checkpoint.{key}` has fewer"
            ));
        }
        if let Some(most) = trial.spec.trainer.max_time {
            seconds = seconds.min(most.as_secs_f64());
        }
        Some(TrialTime { seconds, waits_s: waits_s.unwrap_or(0.0), words })
    }

    fn may_end_early(&self) -> bool {
        let trainer = &self.trial.spec.trainer;
        trainer.early_stopping.is_some() || trainer.max_time.is_some()
    }
}

/// Seconds that training waits for the disk: until the previous checkpoint is written, and at the end for the last one.
fn checkpoint_waits(trial: &Trial, training_s: f64, disk: &Disk) -> Option<f64> {
    let rule = trial.spec.checkpoint.as_ref()?;
    let [sync_s, byte_s] = disk.write_s?;
    let write_s = SYNCS * sync_s + byte_s * 4.0 * trial.saved_numbers() as f64;
    let count = trial.checkpoints(training_s) as f64;
    let each_s = (write_s - training_s / count).max(0.0);
    let most_s = match rule.every {
        Every::Epochs(_) => 1.0 + WAIT_SHARE * training_s,
        _ => f64::INFINITY,
    };
    Some(((count - 1.0) * each_s).min(most_s) + write_s)
}

/// How long all of them take; `None` if that is not known of one.
fn time(
    groups: &[Group<'_>],
    disk: Option<&Disk>,
    conditions: &Conditions<'_>,
    basis: &str,
) -> Option<String> {
    let time_of = |group: &Group| Some((group.count as f64, group.time(groups, disk, conditions.is_sweep)?));
    let times: Vec<(f64, TrialTime)> = groups.iter().map(time_of).collect::<Option<_>>()?;
    let all_s: f64 = times.iter().map(|(count, time)| count * time.seconds).sum();
    let seconds = || times.iter().map(|(_, time)| time.seconds);
    let (shortest, longest) = (seconds().fold(f64::INFINITY, f64::min), seconds().fold(0.0, f64::max));
    let in_all = (all_s / conditions.jobs as f64).max(longest) + conditions.planned.as_secs_f64();
    let at_most = conditions.stops_early || groups.iter().any(Group::may_end_early);
    let about = match (in_all < SHORT_S, at_most) {
        (true, _) => "less than a second".to_owned(),
        (false, true) => format!("at most {}", about(in_all)),
        (false, false) => format!("about {}", about(in_all)),
    };
    let parts = match &times[..] {
        [(_, time)] if !conditions.is_sweep => time.words.clone(),
        _ => {
            let count = groups.iter().map(|group| group.count as u64).sum();
            let range = match [shortest, longest].map(units::seconds) {
                [least, most] if least == most => format!("of {most}"),
                [least, most] => format!("of {least} to {most}"),
            };
            let at_a_time = match conditions.jobs {
                1 => String::new(),
                jobs => format!(", {jobs} at a time"),
            };
            let unmeasured = groups.iter().filter(|group| group.measured.is_none()).count();
            let by_arithmetic = match unmeasured {
                0 => String::new(),
                n => format!("; {n} of {} kinds of trials by their arithmetic", groups.len()),
            };
            let waits_s: f64 = times.iter().map(|(count, time)| count * time.waits_s).sum();
            let waits = if waits_s > all_s / 2.0 { ", most of which waits for checkpoints" } else { "" };
            format!("{} {range}{waits}{at_a_time}{by_arithmetic}", units::counted(count, "trial"))
        }
    };
    Some(format!("{about} {basis}: {parts}"))
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
    let of = |(number, trial): &(usize, &Trial)| match on_gpus {
        true => {
            (trial.footprint.devices.iter().copied().max().filter(|_| on_gpu(trial)).unwrap_or(0), *number)
        }
        false => (trial.footprint.in_host_memory(&trial.devices.used), *number),
    };
    let mut all: Vec<(u64, usize)> = trials.iter().map(of).collect();
    // Of equal ones, the first.
    all.sort_by_key(|own| Reverse(own.0));
    let (most, number) = *all.first()?;
    let together: u64 = all.iter().take(*jobs).map(|(bytes, _)| bytes).sum();
    let (on, together, free) = match on_gpus {
        true => (" on a GPU", String::new(), machine.gpus.iter().map(|gpu| gpu.memory_free).min()?),
        false if *jobs > 1 => {
            let together = format!(", {jobs} at a time {}", units::bytes(together));
            ("", together, machine.memory_available)
        }
        false => ("", String::new(), machine.memory_available),
    };
    let [most, free] = [most, free].map(units::bytes);
    Some(format!("at most {most}{on}, by trial {number}{together}; {free} free"))
}

/// What all files take, in words; warns if it does not fit.
fn space(
    groups: &[Group<'_>],
    disk: &Disk,
    datasets: &mut Datasets,
    conditions: &Conditions<'_>,
) -> Result<String, Vec<Problem>> {
    let trials: u64 = groups.iter().map(|group| group.count as u64).sum();
    // The table of a sweep, beside its spec and its folder.
    let of_sweep = if conditions.is_sweep { 3 + (SWEEP_ROW * trials).div_ceil(disk.block) } else { 0 };
    let (mut blocks, begun, mut opened) = (of_sweep, Instant::now(), None);
    for group in groups {
        // Data that are not in memory are read again: where that takes long, others stand in for them.
        let dataset = match opened {
            Some(dataset) if begun.elapsed() > LONG => dataset,
            _ => datasets.open(&group.trial.spec)?,
        };
        let rows = group.rehearsal(groups).map_or([None; 2], |own| own.row_bytes);
        let seconds = group.time(groups, None, conditions.is_sweep).map_or(0.0, |time| time.seconds);
        let files = run_files(group.trial, &dataset, rows, seconds).into_iter();
        let each = files.fold(1, |sum: u64, (count, bytes)| {
            sum.saturating_add(count.saturating_mul(bytes.div_ceil(disk.block)))
        });
        blocks = blocks.saturating_add(each.saturating_mul(group.count as u64));
        opened = Some(dataset);
    }
    let bytes = blocks.saturating_mul(disk.block);
    let folder = conditions.runs_dir.to_string_lossy();
    let folder = escape_line(&folder);
    let [needed, free] = units::two_sizes(bytes, disk.free);
    if bytes > disk.free {
        warn(format!("`{folder}` has {free} free, and this takes about {needed}"));
    }
    Ok(format!("about {needed} in `{folder}`; {free} free"))
}

#[cfg(test)]
#[path = "forecast_tests.rs"]
mod tests;
