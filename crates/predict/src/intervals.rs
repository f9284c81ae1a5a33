//! How sure metrics are: 95 % intervals by the bootstrap over rows, or over their groups (percentiles: Efron and Tibshirani, *An
//! Introduction to the Bootstrap*, 1993).

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::Trained;
use crate::{
    report::parallel::map_blocks,
    spec::Source,
    train::{Drawn, Resamples, Scores},
    units,
};

const CONFIDENCE: f64 = 0.95;

/// The quantile of 2.5 % of B values of a normal distribution has the standard error sqrt(0.025 0.975 / B) / (φ(1.96) 3.92) of the
/// interval's width: 1.5 % with these, 3.0 % with the fewest.
const MOST_RESAMPLES: usize = 2000;
const FEWEST_RESAMPLES: usize = 500;

/// Numbers that all resamples go through: less than half a second on one core; and those that the fewest resamples may need.
const USUAL_WORK: usize = 150_000_000;
const MOST_WORK: usize = 600_000_000;

/// The rows that are drawn again; none, if they are too many.
pub struct IntervalRows {
    outputs: usize,
    /// What the model puts out that has a pass of its own: ranked classes, or targets.
    passes: usize,
    /// Cells of the confusion matrix.
    cells: usize,
    rows: usize,
    predictions: Vec<f32>,
    targets: Vec<f32>,
    /// Numbers of the cells that name groups.
    names: HashMap<String, u32>,
    groups: Vec<u32>,
}

/// The intervals of metrics.
pub struct Intervals {
    /// For each metric, in their order; `None` if no resample changes it, or most do not define it.
    pub ends: Vec<Option<[f64; 2]>>,
    rows: usize,
    /// The number of rows or groups that each resample draws; if there are too many rows, the most that it could draw.
    drawn: usize,
    /// The column or file that has the groups.
    group: Option<String>,
    /// The number of random groups that they are drawn in, if they are.
    random_groups: Option<usize>,
    /// 0 if there are too many rows.
    resamples: usize,
    /// The metrics that more than a few resamples do not define, and the largest number of these.
    undefined: (Vec<String>, usize),
}

impl IntervalRows {
    pub fn new(trained: &Trained) -> Self {
        let outputs = trained.outputs;
        let (passes, cells) = match trained.spec.model.loss.classifies() {
            true => (if outputs == 2 { 1 } else { outputs }, outputs * outputs),
            false => (outputs, 0),
        };
        let (predictions, targets) = (Vec::new(), Vec::new());
        let (names, groups) = (HashMap::new(), Vec::new());
        Self { outputs, passes, cells, rows: 0, predictions, targets, names, groups }
    }

    /// Adds rows; `cells` has the cell of each row that names its group, if there is one. A row with an empty one is a group.
    pub fn add(&mut self, predictions: &[f32], targets: &[f32], cells: &[String]) {
        self.rows += predictions.len() / self.outputs;
        if self.rows > self.most_rows() {
            (self.predictions, self.targets, self.groups) = (Vec::new(), Vec::new(), Vec::new());
            return;
        }
        self.predictions.extend_from_slice(predictions);
        self.targets.extend_from_slice(targets);
        for cell in cells {
            let next = self.names.len() as u32;
            let name = if cell.is_empty() { format!("\0{next}") } else { cell.clone() };
            self.groups.push(*self.names.entry(name).or_insert(next));
        }
    }

    /// The targets of all rows, with their weights; none if the rows are too many.
    pub fn targets(&self) -> &[f32] {
        &self.targets
    }

    /// Work of a resample, at most: a draw and a pass over the rows, one for each ranking or target, and the confusion matrix.
    fn work(&self, rows: usize) -> usize {
        rows * (2 + self.passes) + 8 * self.cells
    }

    fn most_rows(&self) -> usize {
        (MOST_WORK / FEWEST_RESAMPLES).saturating_sub(self.work(0)) / (2 + self.passes)
    }

    /// Draws resamples, each of whose metrics `values` gives, in the order of `metrics`. `groups` are those of test rows.
    pub fn intervals(
        self,
        trained: &Trained,
        scores: &Scores,
        groups: Option<Vec<u32>>,
        metrics: &[(String, f64)],
        values: &(dyn Fn(&Drawn) -> Vec<f64> + Sync),
    ) -> Intervals {
        let rows = self.rows;
        let none = |drawn| Intervals {
            ends: vec![None; metrics.len()],
            rows,
            drawn,
            group: None,
            random_groups: None,
            resamples: 0,
            undefined: (Vec::new(), 0),
        };
        if rows > self.most_rows() {
            return none(self.most_rows());
        }
        let [of_row, of_rows] = [1, rows].map(|rows| self.work(rows));
        let groups = groups.or_else(|| (!self.groups.is_empty()).then_some(self.groups));
        let groups = groups.filter(|groups| groups.len() == rows);
        let group = groups.is_some().then(|| group_name(trained)).flatten();
        let scales = trained.data.target_scales();
        let rows_of = (&self.predictions[..], &self.targets[..], trained.data.target_width());
        let all = Resamples::new(trained.spec.model.loss, scores, rows_of, &scales, groups);
        if all.drawn() < 2 {
            return none(all.drawn());
        }
        // The errors of a unit are summed once; its classes are ranked row by row.
        let work = if self.cells > 0 { of_rows } else { all.units() * of_row };
        let resamples = (USUAL_WORK / work.max(1)).clamp(FEWEST_RESAMPLES, MOST_RESAMPLES);
        let numbers: Vec<u64> = (0..resamples as u64).collect();
        let drawn = map_blocks(&numbers, 8, |number| values(&all.draw(*number)));
        let column = |metric: usize| {
            let values = drawn.iter().filter_map(|values| values.get(metric).copied());
            let mut own: Vec<f64> = values.filter(|value| value.is_finite()).collect();
            own.sort_unstable_by(f64::total_cmp);
            own
        };
        let columns: Vec<Vec<f64>> = (0..metrics.len()).map(column).collect();
        let known = |(own, (_, value)): (&Vec<f64>, &(String, f64))| {
            let ends = [(1.0 - CONFIDENCE) / 2.0, (1.0 + CONFIDENCE) / 2.0].map(|p| quantile(own, p));
            (value.is_finite() && 2 * own.len() > resamples && own[0] < own[own.len() - 1]).then_some(ends)
        };
        let ends: Vec<_> = columns.iter().zip(metrics).map(known).collect();
        let left_out = columns.iter().zip(metrics).filter(|(_, (_, value))| value.is_finite());
        let left_out = left_out.map(|(own, (name, _))| (name.clone(), resamples - own.len()));
        let (names, counts): (Vec<_>, Vec<_>) = left_out.filter(|(_, count)| 20 * count > resamples).unzip();
        let undefined = (names, counts.into_iter().max().unwrap_or(0));
        let [drawn, units] = [all.drawn(), all.units()];
        let random_groups = (units < drawn).then_some(units);
        Intervals { ends, rows, drawn, group, random_groups, resamples, undefined }
    }
}

/// The quantile of ascending values, interpolated between the two nearest as `numpy.quantile` does; NaN of none.
fn quantile(sorted: &[f64], p: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = p * last as f64;
    let (below, above) = (sorted[place as usize], sorted[(place as usize + 1).min(last)]);
    below + place.fract() * (above - below)
}

/// The column, or the name of the file, that has the groups.
pub fn group_name(trained: &Trained) -> Option<String> {
    match &trained.spec.data.source {
        Source::Npy(npy) => {
            Some(npy.groups.as_ref()?.file_name()?.to_string_lossy().escape_debug().to_string())
        }
        source => Some(source.table()?.1.group.as_ref()?.escape_debug().to_string()),
    }
}

impl Intervals {
    /// Lines on what they are, and on what they leave out.
    pub fn text(&self, accuracy: Option<f64>) -> String {
        let counted = |count: usize| units::count(count as u64);
        let percent = format!("{} %", 100.0 * CONFIDENCE);
        match self.drawn {
            0 => {
                return format!("no {percent} intervals: the model has too many classes for the bootstrap\n");
            }
            most if self.resamples == 0 && most > 1 => {
                let most = counted(most);
                return format!(
                    "no {percent} intervals: the bootstrap takes at most {most} rows of this model\n"
                );
            }
            _ => {}
        }
        let mut out = String::new();
        if self.ends.iter().any(Option::is_some) {
            let over = match &self.group {
                Some(group) => format!("{} groups of `{group}`", counted(self.drawn)),
                None => format!("{} rows", counted(self.rows)),
            };
            let random = self.random_groups.map(|groups| format!(" in {} random groups", counted(groups)));
            let random = random.unwrap_or_default();
            out.push_str(&format!(
                "{percent} intervals: bootstrap over {over}{random}, {} resamples; of the model as it is, not of its training\n",
                counted(self.resamples)
            ));
        }
        let (names, count) = &self.undefined;
        if !names.is_empty() {
            out.push_str(&format!(
                "{} of {} resamples are left out of {}, which they do not define\n",
                counted(*count),
                counted(self.resamples),
                names.join(" and ")
            ));
        }
        if accuracy == Some(1.0) && self.resamples > 0 {
            // Clopper and Pearson, The Use of Confidence or Fiducial Limits (1934), where every trial succeeds.
            let least = ((1.0 - CONFIDENCE) / 2.0).powf(1.0 / self.drawn as f64);
            out.push_str(&format!(
                "no row is wrong, so no resample shows a lower accuracy: one of {} fits as well (Clopper and Pearson)\n",
                units::number(least)
            ));
        }
        out
    }

    /// The interval of each metric by name, and how it was found.
    pub fn json(&self, metrics: &[(String, f64)]) -> Value {
        if self.resamples == 0 {
            return Value::Null;
        }
        let ends = metrics.iter().zip(&self.ends).map(|((name, _), ends)| {
            (name.clone(), ends.map_or(Value::Null, |[low, high]| json!({ "low": low, "high": high })))
        });
        let over = if self.group.is_some() { "groups" } else { "rows" };
        json!({
            "confidence": CONFIDENCE, "over": over, "drawn": self.drawn, "random_groups": self.random_groups,
            "resamples": self.resamples,
            "metrics": ends.collect::<Map<_, _>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of `numpy.quantile`.
    #[test]
    fn quantiles_are_interpolated() {
        let values = [1.0, 2.0, 4.0, 8.0, 16.0];
        assert_eq!([0.0, 0.025, 0.5, 0.975, 1.0].map(|p| quantile(&values, p)), [1.0, 1.1, 4.0, 15.2, 16.0]);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
