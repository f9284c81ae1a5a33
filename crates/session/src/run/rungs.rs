//! Successive halving: at each rung the best trials continue, once all of them have arrived. So the choice
//! depends neither on the order in which trials end nor on `--jobs` nor on the number of processes that share
//! the sweep. `rungs.csv` records the decisions, for `--resume` and for readers.

use std::collections::BTreeSet;

use super::{planned::Planned, prepare::Prepared};
use crate::{
    event::{Outcome, Status},
    record::{RecordError, RunDir, SWEEP_FILE},
    spec::{Halving, Metric, Monitor},
};

const FILE: &str = "rungs.csv";
const COLUMNS: [&str; 4] = ["epochs", "trial", "value", "goes_on"];

/// How far a trial has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reached {
    /// Whole epochs it has trained.
    pub epochs: u64,
    /// The metric's value in the last validation.
    pub value: Option<f64>,
}

impl Reached {
    pub fn new(outcome: &Outcome, metric: Monitor) -> Self {
        let value = match metric.metric() {
            Metric::Accuracy => outcome.final_validation_accuracy,
            _ => outcome.final_validation_loss,
        };
        Self { epochs: outcome.epochs.unwrap_or(0), value }
    }

    /// Reads it from the summary of an earlier part of the sweep.
    pub fn in_folder(folder: &RunDir, metric: Monitor) -> Self {
        let figure = |name: &str| folder.figure(name);
        let value = figure(&format!("final_validation_{}", metric.metric()));
        Self {
            epochs: figure("epochs").and_then(|text| text.parse().ok()).unwrap_or(0),
            value: value.and_then(|text| text.parse().ok()),
        }
    }
}

/// A rung that was decided.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rung {
    /// The trials that had reached it.
    pub trials: BTreeSet<usize>,
    pub go_on: BTreeSet<usize>,
}

/// The decided rungs of a sweep.
pub(super) struct Rungs {
    pub halving: Halving,
    folder: RunDir,
    rows: Vec<[String; 4]>,
}

impl Rungs {
    /// Reads the rungs already decided by an earlier part of the sweep or by another process.
    pub fn new(halving: Halving, folder: RunDir) -> Self {
        let mut rungs = Self { halving, folder, rows: Vec::new() };
        rungs.read();
        rungs
    }

    /// Reads what other processes have decided.
    pub fn read(&mut self) {
        let reader = self.folder.csv(FILE);
        self.rows = reader.into_iter().flat_map(|reader| reader.into_deserialize().flatten()).collect();
    }

    /// The rung at this epoch, if it is decided.
    pub fn decided(&self, epochs: u64) -> Option<Rung> {
        let epochs = epochs.to_string();
        let of_rung: Vec<_> = self.rows.iter().filter(|row| row[0] == epochs).collect();
        let trials = |goes_on: fn(&str) -> bool| {
            of_rung.iter().filter(|row| goes_on(&row[3])).filter_map(|row| row[1].parse().ok()).collect()
        };
        (!of_rung.is_empty())
            .then(|| Rung { trials: trials(|_| true), go_on: trials(|goes_on| goes_on == "true") })
    }

    /// The trials that continued past the last decided rung. No other trial runs again.
    pub fn left(&self) -> Option<BTreeSet<usize>> {
        self.decided(self.rows.last()?[0].parse().ok()?).map(|rung| rung.go_on)
    }

    /// Decides a rung that these trials have reached and writes the decision, unless another process already
    /// did.
    pub fn decide(&mut self, epochs: u64, mut reached: Vec<(usize, Option<f64>)>) -> Result<(), RecordError> {
        self.read();
        if self.decided(epochs).is_some() {
            return Ok(());
        }
        let metric = self.halving.metric;
        let cost = |value: Option<f64>| value.map(|v| metric.cost(v)).filter(|v| v.is_finite());
        // Trials without a finite value come last; ties go to the lower trial number.
        let key = |value| cost(value).unwrap_or(f64::INFINITY);
        reached.sort_by(|a, b| key(a.1).total_cmp(&key(b.1)).then(a.0.cmp(&b.0)));
        let promoted = self.halving.promoted(reached.len());
        for (place, (trial, value)) in reached.into_iter().enumerate() {
            let value = value.map(|value| value.to_string()).unwrap_or_default();
            self.rows.push([epochs.to_string(), trial.to_string(), value, (place < promoted).to_string()]);
        }
        let lines = self.rows.iter().map(|row| row.join(",") + "\n");
        self.folder.write(FILE, &(COLUMNS.join(",") + "\n" + &lines.collect::<String>()))
    }
}

/// Whether a sweep's trial waits at an undecided rung: resumed on its own, it would run past it and not be
/// judged.
pub fn waits_at_rung(trial: &RunDir) -> bool {
    let Some(sweep) = trial.path().parent() else { return false };
    let is_at_rung = matches!(trial.status(), Some(Status::Waiting | Status::Stopped));
    let is_at_rung = is_at_rung && sweep.join(SWEEP_FILE).is_file();
    let number = trial.name().split('-').next().and_then(|number| number.parse::<usize>().ok());
    let at = [trial.figure("epochs"), number.map(|number| number.to_string())];
    let rows = RunDir::existing(sweep.to_owned()).csv(FILE).into_iter();
    let mut rows = rows.flat_map(|reader| reader.into_deserialize::<[String; 4]>().flatten());
    is_at_rung && !rows.any(|[epochs, trial, ..]| at == [Some(epochs), Some(trial)])
}

/// The largest number of epochs of any trial.
pub(super) fn longest<P: Planned>(prepared: &[Prepared<P>]) -> u64 {
    let epochs = |own: &Prepared<P>| match own {
        Prepared::Run(planned) => planned.epochs(),
        _ => None,
    };
    prepared.iter().filter_map(epochs).max().unwrap_or(0)
}

/// The work of all trials of the sweep, in units of one complete trial.
pub(super) fn work(halving: Option<Halving>, trials: usize, epochs: u64) -> f64 {
    let Some(halving) = halving else { return trials as f64 };
    let mut before = 0;
    let part =
        |(epochs, trials): (u64, usize)| trials as u64 * (epochs - std::mem::replace(&mut before, epochs));
    let all: u64 = halving.plan(trials, epochs).into_iter().map(part).sum();
    all as f64 / epochs.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALVING: Halving = Halving { metric: Monitor::ValidationLoss, min_epochs: 1, factor: 3 };

    #[test]
    fn the_best_third_goes_on_and_is_known_again() {
        let sweep = tempfile::tempdir().unwrap();
        let folder = RunDir::existing(sweep.path().to_owned());
        let mut rungs = Rungs::new(HALVING, folder.clone());
        assert_eq!((rungs.decided(1), rungs.left()), (None, None));
        let values = [0.5, f64::NAN, 0.1, 0.3, 0.1, 0.9, 0.8];
        let reached = values.into_iter().enumerate().map(|(trial, value)| (trial, Some(value)));
        rungs.decide(1, reached.chain([(7, None)]).collect()).unwrap();
        let first = Rung { trials: (0..8).collect(), go_on: BTreeSet::from([2, 4]) };
        assert_eq!((rungs.decided(1).unwrap(), rungs.left().unwrap()), (first, BTreeSet::from([2, 4])));
        rungs.decide(3, vec![(2, Some(0.2)), (4, Some(0.1))]).unwrap();
        let again = Rungs::new(HALVING, folder.clone());
        assert_eq!(again.decided(1), rungs.decided(1));
        assert_eq!(
            again.decided(3).unwrap(),
            Rung { trials: BTreeSet::from([2, 4]), go_on: BTreeSet::from([4]) }
        );
        assert_eq!(again.left().unwrap(), BTreeSet::from([4]));
        let text = std::fs::read_to_string(folder.file(FILE)).unwrap();
        assert_eq!(
            text.lines().take(3).collect::<Vec<_>>(),
            ["epochs,trial,value,goes_on", "1,2,0.1,true", "1,4,0.1,true"]
        );
    }

    #[test]
    fn work_is_counted_in_trials() {
        assert_eq!(work(None, 27, 9), 27.0);
        // 27 x 1 + 9 x 2 + 3 x 6 epochs.
        assert_eq!(work(Some(HALVING), 27, 9), 63.0 / 9.0);
        assert_eq!(HALVING.rungs(9).collect::<Vec<_>>(), [1, 3]);
    }
}
