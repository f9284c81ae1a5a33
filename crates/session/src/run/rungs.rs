//! Successive halving: at each rung the best of its trials go on, once all of them are there. So the choice depends neither
//! on the order in which trials end nor on `--jobs`. `rungs.csv` keeps what was decided, for `--resume` and for readers.

use std::collections::BTreeSet;

use super::{planned::Planned, prepare::Prepared};
use crate::{
    event::Outcome,
    record::{RecordError, RunDir},
    spec::{Halving, Monitor},
};

const FILE: &str = "rungs.csv";
const COLUMNS: [&str; 4] = ["epochs", "trial", "value", "goes_on"];

/// The last word on a trial so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reached {
    /// Whole epochs that it took.
    pub epochs: u64,
    /// What the last validation says of the metric; where a search judges trials, what the best one says.
    pub value: Option<f64>,
}

impl Reached {
    pub fn new(outcome: &Outcome, halving: Option<Halving>) -> Self {
        let value = match halving.map(|halving| halving.metric) {
            Some(Monitor::ValidationLoss) => outcome.final_validation_loss,
            Some(Monitor::ValidationAccuracy) => outcome.final_validation_accuracy,
            None => outcome.best.map(|best| best.value),
        };
        Self { epochs: outcome.epochs.unwrap_or(0), value }
    }

    /// From the summary of an earlier part of the sweep.
    pub fn in_folder(folder: &RunDir, halving: Option<Halving>) -> Self {
        let figure = |name: &str| folder.figure(name);
        let value = match halving {
            Some(halving) => figure(&format!("final_validation_{}", halving.metric.metric())),
            None => figure("best_value"),
        };
        Self {
            epochs: figure("epochs").and_then(|text| text.parse().ok()).unwrap_or(0),
            value: value.and_then(|text| text.parse().ok()),
        }
    }
}

/// The rungs of a sweep that were decided.
pub(super) struct Rungs<'a> {
    halving: Halving,
    folder: &'a RunDir,
    rows: Vec<[String; 4]>,
}

impl<'a> Rungs<'a> {
    /// With those that an earlier part of the sweep decided.
    pub fn new(halving: Halving, folder: &'a RunDir) -> Self {
        let reader = csv::Reader::from_path(folder.file(FILE));
        let rows = reader.into_iter().flat_map(|reader| reader.into_deserialize().flatten()).collect();
        Self { halving, folder, rows }
    }

    /// The trials that go on past a rung, where that was decided.
    pub fn decided(&self, epochs: u64) -> Option<BTreeSet<usize>> {
        let epochs = epochs.to_string();
        let mut of_rung = self.rows.iter().filter(|row| row[0] == epochs).peekable();
        of_rung.peek()?;
        Some(of_rung.filter(|row| row[3] == "true").filter_map(|row| row[1].parse().ok()).collect())
    }

    /// Decides a rung that these trials have reached, and writes it down.
    pub fn decide(
        &mut self,
        epochs: u64,
        mut reached: Vec<(usize, Option<f64>)>,
    ) -> Result<BTreeSet<usize>, RecordError> {
        let metric = self.halving.metric;
        let cost = |value: Option<f64>| value.map(|v| metric.cost(v)).filter(|v| v.is_finite());
        // Without a finite value last; of equal ones the first trial.
        let key = |value| cost(value).unwrap_or(f64::INFINITY);
        reached.sort_by(|a, b| key(a.1).total_cmp(&key(b.1)).then(a.0.cmp(&b.0)));
        let promoted = self.halving.promoted(reached.len());
        for (place, (trial, value)) in reached.into_iter().enumerate() {
            let value = value.map(|value| value.to_string()).unwrap_or_default();
            self.rows.push([epochs.to_string(), trial.to_string(), value, (place < promoted).to_string()]);
        }
        let lines = self.rows.iter().map(|row| row.join(",") + "\n");
        self.folder.write(FILE, &(COLUMNS.join(",") + "\n" + &lines.collect::<String>()))?;
        Ok(self.decided(epochs).unwrap_or_default())
    }
}

/// The epochs of the trial that has the most.
pub(super) fn longest<P: Planned>(prepared: &[Prepared<P>]) -> u64 {
    let epochs = |own: &Prepared<P>| match own {
        Prepared::Run(planned) => planned.epochs(),
        _ => None,
    };
    prepared.iter().filter_map(epochs).max().unwrap_or(0)
}

/// What the trials of a sweep take together, in units of a whole trial.
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
        let mut rungs = Rungs::new(HALVING, &folder);
        assert_eq!(rungs.decided(1), None);
        let values = [0.5, f64::NAN, 0.1, 0.3, 0.1, 0.9, 0.8];
        let reached = values.into_iter().enumerate().map(|(trial, value)| (trial, Some(value)));
        let reached = reached.chain([(7, None)]).collect();
        assert_eq!(rungs.decide(1, reached).unwrap(), BTreeSet::from([2, 4]));
        assert_eq!(rungs.decide(3, vec![(2, Some(0.2)), (4, Some(0.1))]).unwrap(), BTreeSet::from([4]));
        let again = Rungs::new(HALVING, &folder);
        assert_eq!(again.decided(1), Some(BTreeSet::from([2, 4])));
        assert_eq!(again.decided(3), Some(BTreeSet::from([4])));
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
