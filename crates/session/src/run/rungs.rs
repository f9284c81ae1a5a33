//! Successive halving. Trials are judged in a fixed order, in which they also begin: at each rung, one goes on if it is among
//! the best `1 / factor` of those up to it. So the choice depends neither on the order in which trials end nor on `--jobs`
//! nor on the number of processes that share the sweep. `rungs.csv` records it, for `--resume` and for readers.
//!
//! The order is that of a hash of the numbers, since trials of a grid may be better the later they come, and all would go on.
//! Trials that a sampler draws from results come in the order of their numbers.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{planned::Planned, prepare::Prepared, rung::Rung};
use crate::{
    event::{Outcome, Status},
    host::lock,
    plan::Trial,
    random::mix,
    record::{Claims, JointLines, RecordError, RunDir, SWEEP_FILE, SweepLock, last_validated},
    spec::{Halving, Monitor, ValidateEvery},
    train::StopFlag,
    units,
};

/// Why no validation stands at the first rung of a trial that validates by steps, and a hint, if none does. Each later rung is a
/// multiple of the first.
pub(super) fn no_validation_at_rung(trial: &Trial, halving: Halving) -> Option<[String; 2]> {
    let ValidateEvery::Steps(every) = trial.spec.trainer.validate_every else { return None };
    let rung = halving.rungs(trial.epochs()?).next()?;
    let step = rung.saturating_mul(trial.steps_per_epoch);
    let [rung, at, interval] = [rung, step, every].map(units::count);
    (!step.is_multiple_of(every)).then(|| {
        [
            format!(
                "no validation stands at epoch {rung}, step {at}: `trainer.validate_every_steps` is {interval}"
            ),
            format!("set it to a divisor of {at}, or `trainer.validate_every_epochs = 1`"),
        ]
    })
}

const FILE: &str = "rungs.csv";
const HEAD: &str = "epochs,trial,value,goes_on\n";

/// How long a trial holds its devices while it waits for trials before it.
const HOLD_TIMEOUT: Duration = Duration::from_millis(50);

/// How long it waits before it reads what other processes have judged.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The metric's value in the last validation of a trial.
pub(super) fn reached(outcome: &Outcome, metric: Monitor) -> Option<f64> {
    match metric {
        Monitor::LOSS => outcome.final_validation_loss,
        Monitor::ACCURACY => outcome.final_validation_accuracy,
        _ => outcome.final_scores.get(metric.column()).copied(),
    }
}

/// Like [`reached`], from the files of a trial that another process or an earlier part of the sweep ran.
pub(super) fn reached_in(folder: &RunDir, metric: Monitor) -> Option<f64> {
    match metric {
        Monitor::LOSS | Monitor::ACCURACY => {
            folder.figure(&format!("final_validation_{}", metric.metric()))?.parse().ok()
        }
        // The summary does not have it.
        _ => last_validated(&folder.file("metrics.csv"), metric.column()),
    }
}

/// The whole epochs that a trial has trained, by its summary.
pub(super) fn epochs_in(folder: &RunDir) -> u64 {
    folder.figure("epochs").and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The rungs of a sweep.
pub(super) struct Rungs {
    halving: Halving,
    /// The metric by which trials are judged, and the best is chosen.
    pub monitor: Monitor,
    /// The epochs that each trial trains, in the order in which they are judged; 0 if it does not run.
    lengths: Vec<u64>,
    /// The place of each trial in this order.
    places: Vec<usize>,
    claims: Arc<Claims>,
    stop: StopFlag,
    state: Mutex<State>,
    /// Notified when a trial was judged.
    judged: Condvar,
}

struct State {
    file: JointLines,
    /// By their epochs.
    rungs: BTreeMap<u64, Rung>,
    /// The places of trials that do not go on, with the epochs of the rung at which they do not.
    out: HashMap<usize, u64>,
    /// The trials of this process that wait, by the epochs of their rungs and by their places.
    waiting: BTreeMap<u64, BTreeMap<usize, usize>>,
}

impl Rungs {
    /// Reads what an earlier part of the sweep or another process has judged.
    pub fn new(
        (halving, monitor): (Halving, Monitor),
        (lengths, is_drawn): (Vec<u64>, bool),
        folder: &RunDir,
        (claims, stop): (Arc<Claims>, StopFlag),
    ) -> Self {
        let mut order: Vec<usize> = (0..lengths.len()).collect();
        if !is_drawn {
            order.sort_by_key(|trial| mix(*trial as u64));
        }
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, trial)| places[*trial] = place);
        let lengths = order.into_iter().map(|trial| lengths[trial]).collect();
        let file = JointLines::new(folder.file(FILE));
        let (rungs, out, waiting) = Default::default();
        let mut state = State { file, rungs, out, waiting };
        state.read(monitor, &places);
        Self {
            halving,
            monitor,
            lengths,
            places,
            claims,
            stop,
            state: Mutex::new(state),
            judged: Condvar::new(),
        }
    }

    /// Sorts trials by the order in which they are judged.
    pub fn sort(&self, trials: &mut [usize]) {
        trials.sort_by_key(|trial| self.places.get(*trial));
    }

    /// Judges a trial after a whole epoch: the status with which it ends there, and why; `None` if it goes on. Waits a moment
    /// for trials before it; later, it is for the sweep to bring it back.
    pub fn judge(&self, trial: usize, epochs: u64, value: Option<f64>) -> Option<(Status, String)> {
        if !self.halving.rungs(u64::MAX).take_while(|rung| *rung <= epochs).any(|rung| rung == epochs) {
            return None;
        }
        let (place, begun) = (*self.places.get(trial)?, Instant::now());
        let mut state = lock(&self.state);
        loop {
            match self.goes_on(&mut state, (trial, place), epochs, value) {
                Err(fault) => return Some((Status::Failed, fault.to_string())),
                Ok(Some(goes_on)) => {
                    state.leaves(place, epochs);
                    self.judged.notify_all();
                    return (!goes_on)
                        .then(|| (Status::Stopped, state.why((self.halving, self.monitor), place, epochs)));
                }
                Ok(None) if self.stop.signal().is_some() || begun.elapsed() >= HOLD_TIMEOUT => {
                    state.waiting.entry(epochs).or_default().insert(place, trial);
                    return Some((Status::Waiting, "for the trials before it at its rung".to_owned()));
                }
                Ok(None) => {}
            }
            state = self.judged.wait_timeout(state, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether a trial goes on; `None` if trials before it are to be judged first.
    fn goes_on(
        &self,
        state: &mut State,
        (trial, place): (usize, usize),
        epochs: u64,
        value: Option<f64>,
    ) -> Result<Option<bool>, RecordError> {
        let cost = value.map(|value| self.monitor.cost(value)).filter(|cost| cost.is_finite());
        let cost = cost.unwrap_or(f64::INFINITY);
        self.read_others(state);
        if let Some(judged) = state.rungs.get(&epochs).and_then(|rung| rung.get(place)) {
            return Ok(Some(judged.goes_on));
        }
        if !state.is_next(place, epochs, &self.lengths) {
            return Ok(None);
        }
        let goes_on = state.rungs.entry(epochs).or_default().promotes(self.halving, place, cost);
        let value = value.map(|value| value.to_string()).unwrap_or_default();
        self.note(state, &format!("{epochs},{trial},{value},{goes_on}\n"))
            .map(|noted| noted.map(|()| goes_on))
    }

    /// Notes that a trial ended between its rungs, so that no other waits for it.
    pub fn ended(&self, trial: usize) -> Result<(), RecordError> {
        let mut state = lock(&self.state);
        self.read_others(&mut state);
        let Some(&place) = self.places.get(trial) else { return Ok(()) };
        let was_judged = |epochs: &u64| state.rungs.get(epochs).is_some_and(|rung| rung.get(place).is_some());
        let next = self.halving.rungs(self.lengths[place]).find(|epochs| !was_judged(epochs));
        if let Some(epochs) = next.filter(|_| !state.out.contains_key(&place)) {
            self.note(&mut state, &format!("{epochs},{trial},,false\n"))?;
            self.judged.notify_all();
        }
        Ok(())
    }

    /// Adds a row to the file; `None` if a signal came while another process wrote to it.
    fn note(&self, state: &mut State, row: &str) -> Result<Option<()>, RecordError> {
        let is_cut = || self.stop.signal().is_some();
        let noted = self.claims.with_lock(SweepLock::Rung, is_cut, || {
            self.read_others(state);
            let head = if state.file.lines() == 0 { HEAD } else { "" };
            state.file.append(&format!("{head}{row}"))?;
            state.take(row, self.monitor, &self.places);
            Ok(())
        })?;
        noted.transpose()
    }

    fn read_others(&self, state: &mut State) {
        if self.claims.has_others() {
            state.read(self.monitor, &self.places);
        }
    }

    /// Takes a trial of this process that waited and can be judged now.
    pub fn take_due(&self) -> Option<usize> {
        let mut state = lock(&self.state);
        if !state.has_waiting() {
            return None;
        }
        self.read_others(&mut state);
        let first =
            |(epochs, own): (&u64, &BTreeMap<usize, usize>)| Some((*own.first_key_value()?.0, *epochs));
        let firsts: Vec<(usize, u64)> = state.waiting.iter().filter_map(first).collect();
        let is_due = |(place, epochs): &(usize, u64)| state.is_next(*place, *epochs, &self.lengths);
        let (place, epochs) = firsts.into_iter().filter(is_due).min()?;
        state.leaves(place, epochs)
    }

    /// Whether trials of this process wait for others.
    pub fn has_waiting(&self) -> bool {
        lock(&self.state).has_waiting()
    }

    /// The position of a trial for which others of this process wait: the first at their rung that was not judged, as
    /// [`Rungs::take_due`] found.
    pub fn awaited(&self, trials: &[usize]) -> Option<usize> {
        let state = lock(&self.state);
        let rungs = state.waiting.iter().filter(|(_, own)| !own.is_empty());
        let firsts: Vec<usize> =
            rungs.filter_map(|(epochs, _)| Some(state.rungs.get(epochs)?.settled)).collect();
        trials.iter().position(|trial| self.places.get(*trial).is_some_and(|place| firsts.contains(place)))
    }
}

impl State {
    /// Takes over the lines that are not known yet.
    fn read(&mut self, metric: Monitor, places: &[usize]) {
        let text = self.file.read();
        self.take(&text, metric, places);
    }

    /// Takes over lines. A trial that failed and is repeated has two; the later one counts.
    fn take(&mut self, lines: &str, metric: Monitor, places: &[usize]) {
        let mut rows = csv::ReaderBuilder::new().has_headers(false).from_reader(lines.as_bytes());
        for (epochs, trial, value, goes_on) in rows.deserialize::<(u64, usize, Option<f64>, bool)>().flatten()
        {
            let Some(&place) = places.get(trial) else { continue };
            match goes_on {
                true => self.out.remove(&place),
                false => self.out.insert(place, epochs),
            };
            if let Some(value) = value {
                let cost = Some(metric.cost(value)).filter(|cost| cost.is_finite());
                let rung = self.rungs.entry(epochs).or_default();
                rung.take(place, cost.unwrap_or(f64::INFINITY), goes_on);
            }
        }
    }

    /// Whether all trials before this place were judged at a rung, or never come there.
    fn is_next(&mut self, place: usize, epochs: u64, lengths: &[u64]) -> bool {
        let rung = self.rungs.entry(epochs).or_default();
        while rung.settled < place
            && (rung.get(rung.settled).is_some()
                || self.out.get(&rung.settled).is_some_and(|out| *out <= epochs)
                || lengths.get(rung.settled).is_none_or(|length| *length <= epochs))
        {
            rung.settled += 1;
        }
        rung.settled >= place
    }

    fn has_waiting(&self) -> bool {
        self.waiting.values().any(|own| !own.is_empty())
    }

    /// The trial at a place waits no longer at a rung; its number, if it did.
    fn leaves(&mut self, place: usize, epochs: u64) -> Option<usize> {
        self.waiting.get_mut(&epochs)?.remove(&place)
    }

    fn why(&self, (halving, monitor): (Halving, Monitor), place: usize, epochs: u64) -> String {
        let (rung, after) = (self.rungs.get(&epochs), units::counted(epochs, "epoch"));
        let judged = rung.and_then(|rung| rung.get(place)).filter(|judged| judged.cost.is_finite());
        let Some(count) = judged.map(|judged| judged.count) else {
            return format!("no finite {} after {after}", monitor.name().replace('.', " "));
        };
        format!("not among the best {} of {count} after {after}", halving.promoted(count))
    }
}

/// Whether a sweep's trial waits at a rung: resumed on its own, it would run past it and not be judged.
pub fn waits_at_rung(trial: &RunDir) -> bool {
    let sweep = trial.path().parent().map(|sweep| sweep.join(SWEEP_FILE));
    trial.status() == Some(Status::Waiting) && sweep.is_some_and(|file| file.is_file())
}

/// The epochs of a trial; 0 if it does not run.
pub(super) fn epochs<P: Planned>(own: &Prepared<P>) -> u64 {
    match own {
        Prepared::Run(planned) => planned.epochs().unwrap_or(0),
        _ => 0,
    }
}

/// The largest number of epochs of any trial.
pub(super) fn longest<P: Planned>(prepared: &[Prepared<P>]) -> u64 {
    prepared.iter().map(epochs).max().unwrap_or(0)
}

/// About the work of all trials of the sweep, in units of one complete trial.
pub(super) fn work(halving: Option<Halving>, trials: usize, epochs: u64) -> f64 {
    let Some(halving) = halving else { return trials as f64 };
    let mut before = 0;
    let part =
        |(epochs, trials): (u64, usize)| trials as u64 * (epochs - std::mem::replace(&mut before, epochs));
    let all: u64 = halving.plan(trials, epochs).into_iter().map(part).sum();
    all as f64 / epochs.max(1) as f64
}

#[cfg(test)]
#[path = "rungs_tests.rs"]
mod tests;
