//! Trials that take as long as each other: what was measured of them, and the time that each takes.

use std::{
    collections::HashMap,
    fmt::Write,
    hash::{DefaultHasher, Hasher},
    sync::Arc,
    time::{Duration, Instant},
};

use super::disk::Disk;
use crate::{
    plan::{Machine, Trial},
    run::{Datasets, Rehearsal, Unmeasured, rehearse},
    spec::Every,
    units,
};

/// Making the folder of a run, starting its threads and closing its files takes about as many seconds; those of a sweep's trial
/// are not waited for on the disk.
const FILES_S: f64 = 3e-3;
const FILES_OF_TRIAL_S: f64 = 1.5e-3;

/// No other shape of a sweep is measured after this time.
pub const LONG: Duration = Duration::from_millis(600);

/// Syncs of a checkpoint: `metrics.csv`, and both of its files with their folder's entries. Removing the one before takes about as
/// long as another.
const SYNCS: f64 = 6.0;

/// Training waits for checkpoints of epochs for a second and this part of its time.
const WAIT_SHARE: f64 = 0.05;

/// Trials that take as long as each other, and as much of the disk.
pub struct Group<'a> {
    pub trial: &'a Trial,
    pub count: usize,
    /// What was measured of it, or else what is estimated.
    pub rehearsal: Option<Rehearsal>,
    pub is_measured: bool,
}

/// A trial's time in seconds, and its parts in words.
pub struct TrialTime {
    pub seconds: f64,
    /// The part of its steps that `max_time` leaves time for.
    pub part: f64,
    pub words: String,
}

pub fn grouped<'a>(trials: impl Iterator<Item = &'a Trial>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group> = Vec::new();
    // Trials that are alike have as many steps of equal instructions: thousands may differ in a dropout's `p` alone.
    let (mut alike, mut hashes) = (HashMap::<_, Vec<usize>>::new(), HashMap::new());
    for trial in trials {
        let instructions = *hashes.entry(Arc::as_ptr(&trial.programs)).or_insert_with(|| hash(trial));
        let places = alike.entry((trial.steps, instructions)).or_default();
        match places.iter().find(|place| is_alike(groups[**place].trial, trial)) {
            Some(place) => groups[*place].count += 1,
            None => {
                places.push(groups.len());
                groups.push(Group { trial, count: 1, rehearsal: None, is_measured: false });
            }
        }
    }
    groups
}

/// A hash of a step's instructions, as they print: their numbers are floating-point ones as well.
fn hash(trial: &Trial) -> u64 {
    let mut printed = Printed(DefaultHasher::new());
    let _ = write!(printed, "{:?}", trial.programs.train); // a hasher takes everything
    printed.0.finish()
}

struct Printed(DefaultHasher);

impl Write for Printed {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

fn is_alike(one: &Trial, other: &Trial) -> bool {
    let [own, its] = [one, other].map(|trial| &trial.spec);
    takes_same_steps(one, other)
        && one.steps == other.steps
        && own.checkpoint == its.checkpoint
        && own.logging == its.logging
        && own.data.source == its.data.source
        && own.trainer.validate_every == its.trainer.validate_every
        && own.trainer.max_time == its.trainer.max_time
        && own.trainer.early_stopping.is_some() == its.trainer.early_stopping.is_some()
}

/// Whether a step of both takes as long.
fn takes_same_steps(one: &Trial, other: &Trial) -> bool {
    let of =
        |trial: &Trial| (trial.engine, trial.threads, trial.spec.devices.precision, trial.facts.train_rows);
    of(one) == of(other)
        && one.devices.used == other.devices.used
        && (Arc::ptr_eq(&one.programs, &other.programs) || one.programs == other.programs)
}

/// Measures the first group and then those with the most work, as long as there is time. Returns what was measured of the first,
/// and the largest share of the processors that others held.
pub fn measure(groups: &mut [Group<'_>], datasets: &mut Datasets) -> (Result<Rehearsal, Unmeasured>, f64) {
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by(|a, b| groups[*b].work_s().total_cmp(&groups[*a].work_s()));
    order.sort_by_key(|place| *place > 0);
    let (begun, mut first, mut others) = (Instant::now(), Err(Unmeasured::NotHere), 0.0_f64);
    let mut measured: Vec<(&Trial, Rehearsal)> = Vec::new();
    for place in order {
        let trial = groups[place].trial;
        let known = measured.iter().find(|(own, _)| takes_same_steps(own, trial)).map(|(_, own)| *own);
        let own = match known {
            Some(known) => Ok(known),
            None if place == 0 || begun.elapsed() < LONG => rehearse(trial, datasets),
            None => continue,
        };
        if let Ok(own) = own {
            groups[place].is_measured = true;
            groups[place].rehearsal = Some(own);
            others = others.max(own.others);
            measured.extend(known.is_none().then_some((trial, own)));
        }
        if place == 0 {
            first = own;
        }
    }
    (first, others)
}

/// Estimates the groups that were not measured: they take as much longer than the one whose steps are most like their own as their
/// arithmetic does. Where none was, the rates of the machine say how long a step takes.
pub fn estimate<'a>(groups: &mut [Group<'a>], machine: &Machine) {
    let known = groups.iter().filter_map(|group| Some((group.about_s(), group.trial, group.rehearsal?)));
    let measured: Vec<(f64, &'a Trial, Rehearsal)> = known.collect();
    for group in groups {
        let (trial, about_s) = (group.trial, group.about_s());
        if !group.is_measured && trial.is_timed_here() {
            let is_like = |other: &Trial| other.engine.is_gpu() == trial.engine.is_gpu();
            let distance = |other_s: f64| (about_s / other_s).ln().abs();
            let alike = measured.iter().filter(|(_, other, _)| is_like(other));
            let nearest = alike.min_by(|a, b| distance(a.0).total_cmp(&distance(b.0)));
            group.rehearsal = nearest.map(|(other_s, other, own)| {
                let rows = trial.facts.train_rows as f64 / other.facts.train_rows.max(1) as f64;
                let [step_s, order_s] = [own.step_s * about_s / other_s, own.order_s * rows];
                Rehearsal { step_s, order_s, validation_s: None, ..*own }
            });
        }
        group.rehearsal = group.rehearsal.or_else(|| Rehearsal::by_rates(trial, machine));
    }
}

impl Group<'_> {
    /// Seconds of all its trials by the rates of the machine.
    fn work_s(&self) -> f64 {
        self.count as f64 * self.trial.steps as f64 * self.about_s()
    }

    fn about_s(&self) -> f64 {
        self.trial.lower_bound.settled_s(self.trial.threads)
    }

    /// How long each of its trials takes: loading, then epochs of an order of rows, steps and validations, and waits for
    /// checkpoints; the loop ends with `max_time`.
    pub fn time(&self, disk: Option<&Disk>, is_sweep: bool) -> Option<TrialTime> {
        let (trial, own) = (self.trial, self.rehearsal?);
        let epochs = trial.steps.div_ceil(trial.steps_per_epoch.max(1));
        let (steps_s, orders_s) = (trial.steps as f64 * own.step_s, epochs as f64 * own.order_s);
        let pass_s = own.validation_s.unwrap_or(trial.validation_steps() * own.step_s);
        let passes_s = trial.validations() as f64 * pass_s;
        let most_s = trial.spec.trainer.max_time.map_or(f64::INFINITY, |most| most.as_secs_f64());
        let whole_s = steps_s + orders_s + passes_s;
        let part = (most_s / whole_s).min(1.0);
        let waits = disk.and_then(|disk| checkpoint_waits(trial, part * whole_s, part, disk));
        let (count, waits_s) = waits.unwrap_or_default();
        let loop_s = part * whole_s + waits_s;
        let cut = (most_s / loop_s).min(1.0);
        // A run that its time ends validates once more.
        let last_s = if part * cut < 1.0 && trial.validations() > 0 { pass_s } else { 0.0 };
        let (part, waits_s) = (part * cut, waits_s * cut);
        let counted = |count: u64, unit| units::counted((count as f64 * part).ceil() as u64, unit);
        let at_least = if trial.steps == u64::MAX { "at least " } else { "" };
        let steps = counted(trial.steps, "step");
        let mut words = format!("{at_least}{steps} of {}", units::seconds(own.step_s));
        let more = [("shuffle", epochs, own.order_s), ("validation", trial.validations(), pass_s)];
        for (unit, count, seconds) in more {
            if count as f64 * seconds > steps_s / 20.0 {
                words.push_str(&format!(", {} of {}", counted(count, unit), units::seconds(seconds)));
            }
        }
        if let Some(rule) = trial.spec.checkpoint.as_ref().filter(|_| waits_s > part * steps_s / 20.0) {
            let (waits, key) = (units::seconds(waits_s), rule.every.name());
            words.push_str(&match count {
                1 => format!(", {waits} of waiting for the checkpoint at its end"),
                _ => format!(", {waits} of waiting for checkpoints: a larger `checkpoint.{key}` has fewer"),
            });
        }
        let files_s = if is_sweep { FILES_OF_TRIAL_S } else { FILES_S };
        Some(TrialTime { seconds: own.loading_s + files_s + loop_s * cut + last_s, part, words })
    }

    pub fn may_end_early(&self) -> bool {
        self.trial.spec.trainer.early_stopping.is_some()
    }
}

/// How many checkpoints there are, and for how many seconds training waits for the disk: until the previous one is written, and at
/// the end for the last. There is time for a `part` of the steps, which takes `training_s`.
fn checkpoint_waits(trial: &Trial, training_s: f64, part: f64, disk: &Disk) -> Option<(u64, f64)> {
    let rule = trial.spec.checkpoint.as_ref()?;
    let [sync_s, byte_s] = disk.write_s?;
    let write_s = SYNCS * sync_s + byte_s * 4.0 * trial.saved_numbers() as f64;
    let part = if matches!(rule.every, Every::Minutes(_)) { 1.0 } else { part };
    let count = (trial.checkpoints(training_s) as f64 * part).ceil().max(1.0);
    let each_s = (write_s - training_s / count).max(0.0);
    let most_s = match rule.every {
        Every::Epochs(_) => 1.0 + WAIT_SHARE * training_s,
        _ => f64::INFINITY,
    };
    Some((count as u64, ((count - 1.0) * each_s).min(most_s) + write_s))
}
