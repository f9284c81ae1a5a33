//! What each threshold of the positive class's probability does to the rows: the choice of one.

use serde_json::{Map, Value, json};

use crate::{host::escape_line, record::text_table, train::ClassCounts, units};

/// Thresholds that are always shown.
const SHOWN: [f32; 12] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/// Thresholds in ascending order.
pub struct Thresholds {
    class: String,
    thresholds: Vec<Threshold>,
    /// Where the F1 of the class is highest; `None` without a row of the class, or if all rows are to be predicted as it.
    best: Option<f32>,
}

/// The rows at a threshold, of the positive class and others: those that are predicted positive, and those that are not.
struct Threshold {
    value: f32,
    tp: u64,
    fp: u64,
    fn_: u64,
    tn: u64,
}

/// Rows in ascending order of their probabilities.
struct Ranked {
    rows: Vec<(f32, bool)>,
    /// The number of positive rows from each place on.
    positives: Vec<u64>,
}

impl Ranked {
    fn new(mut rows: Vec<(f32, bool)>) -> Self {
        rows.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut positives = vec![0; rows.len() + 1];
        for (place, (_, is_positive)) in rows.iter().enumerate().rev() {
            positives[place] = positives[place + 1] + u64::from(*is_positive);
        }
        Self { rows, positives }
    }

    /// With a threshold that is reached from this place on.
    fn at(&self, value: f32, place: usize) -> Threshold {
        let (all, above) = (self.rows.len() as u64, (self.rows.len() - place) as u64);
        let tp = self.positives[place];
        let (fp, fn_) = (above - tp, self.positives[0] - tp);
        Threshold { value, tp, fp, fn_, tn: all - above - fn_ }
    }

    /// The first of the places at which the F1 is highest, as `numpy.argmax` finds it along scikit-learn's `precision_recall_curve`.
    fn best(&self) -> Option<usize> {
        let is_first = |place: &usize| *place == 0 || self.rows[*place - 1].0 < self.rows[*place].0;
        let f1 = |place: usize| self.at(0.0, place).figures().f1();
        let mut best = None;
        // A threshold of 0 is none.
        for place in (0..self.rows.len()).filter(is_first).filter(|place| self.rows[*place].0 > 0.0) {
            let own = f1(place);
            if own > best.map_or(0.0, |(_, best)| best) {
                best = Some((place, own));
            }
        }
        best.map(|(place, _)| place)
    }

    /// The number with the fewest decimals that is reached from this place on, and by no row before.
    fn shortest(&self, place: usize) -> Option<f32> {
        let below = if place > 0 { self.rows[place - 1].0 } else { 0.0 };
        let text = self.rows[place].0.to_string();
        let cut = (text.len().min(3)..=text.len()).filter_map(|end| text.get(..end)?.parse::<f32>().ok());
        cut.into_iter().find(|value| *value > below)
    }
}

impl Threshold {
    fn figures(&self) -> ClassCounts {
        ClassCounts { hits: self.tp, rows: self.tp + self.fn_, predicted: self.tp + self.fp }
    }

    /// Precision, recall and F1; no recall without a row of the class.
    fn metrics(&self) -> [(&'static str, Option<f64>); 3] {
        let figures = self.figures();
        let known = |value: f64| (figures.rows > 0).then_some(value);
        [
            ("precision", known(figures.precision())),
            ("recall", known(figures.recall())),
            ("f1", known(figures.f1())),
        ]
    }

    fn counts(&self) -> [(&'static str, u64); 4] {
        [("tp", self.tp), ("fp", self.fp), ("fn", self.fn_), ("tn", self.tn)]
    }
}

impl Thresholds {
    /// `rows` have their probability of the class, and whether they are of it; `None`, with a warning, if that is not known.
    pub fn new(class: &str, rows: Option<Vec<(f32, bool)>>, warn: &mut dyn FnMut(String)) -> Option<Self> {
        let Some(rows) = rows else {
            let why = "the rows are too many to rank, or an output is not a finite number";
            warn(format!("no table of thresholds: {why}"));
            return None;
        };
        let ranked = Ranked::new(rows);
        let best = ranked.best().and_then(|place| ranked.shortest(place));
        let mut values = SHOWN.to_vec();
        values.extend(best.filter(|best| !SHOWN.contains(best)));
        values.sort_unstable_by(f32::total_cmp);
        let from = |value: f32| ranked.rows.partition_point(|(share, _)| *share < value);
        let thresholds = values.into_iter().map(|value| ranked.at(value, from(value))).collect();
        Some(Self { class: class.to_owned(), thresholds, best })
    }

    /// A line for each threshold.
    pub fn text(&self) -> String {
        let class = escape_line(&self.class);
        let mut header = vec!["threshold"];
        let first = &self.thresholds[0];
        header.extend(first.metrics().map(|(name, _)| name));
        header.extend(first.counts().map(|(name, _)| name));
        let row = |own: &Threshold| {
            let figure = |value: Option<f64>| value.map_or_else(|| "none".to_owned(), units::number);
            let cells = [own.value.to_string()].into_iter();
            let cells = cells.chain(own.metrics().map(|(_, value)| figure(value)));
            cells.chain(own.counts().map(|(_, count)| units::count(count))).collect()
        };
        let rows: Vec<Vec<String>> = self.thresholds.iter().map(row).collect();
        let mut out = format!("`{class}` where its probability is at least the threshold:\n");
        text_table::lines(&header, &rows, |_| true)
            .iter()
            .for_each(|line| out.push_str(&format!("{line}\n")));
        if let Some(best) = self.best {
            out.push_str(&format!(
                "the f1 of `{class}` is highest at {best}: on other rows than these it is likely to be lower\n"
            ));
        }
        out
    }

    /// With all digits.
    pub fn json(&self) -> Value {
        let row = |own: &Threshold| {
            let mut object = Map::new();
            object.insert("threshold".to_owned(), decimal(own.value));
            object.extend(own.metrics().map(|(name, value)| (name.to_owned(), json!(value))));
            object.extend(own.counts().map(|(name, count)| (name.to_owned(), json!(count))));
            Value::Object(object)
        };
        let rows: Vec<Value> = self.thresholds.iter().map(row).collect();
        json!({ "highest_f1_at": self.best.map(decimal), "rows": rows })
    }
}

/// The decimal number as which an f32 is printed.
fn decimal(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rows: Vec<(f32, bool)>) -> Thresholds {
        Thresholds::new("a", Some(rows), &mut |_| {}).expect("rows")
    }

    /// The highest F1 is 0.8 from 0.35 on; between it and the row below, 0.2 is the shortest number.
    #[test]
    fn the_best_threshold_has_few_decimals() {
        let rows = |shares: [f32; 4]| shares.into_iter().zip([false, false, true, true]).collect();
        let best = |shares| found(rows(shares)).best;
        assert_eq!(best([0.1, 0.4, 0.35, 0.8]), Some(0.3));
        assert_eq!(best([0.346, 0.4, 0.3479, 0.8]), Some(0.347));
        assert_eq!(best([0.1, 0.4, 1e-9, 2e-9]), Some(1e-9));
        assert_eq!(best([0.5, 0.999_999_8, 1.0, 1.0]), Some(1.0));
        assert_eq!(best([0.5, 0.999_999_9, 1.0, 1.0]), Some(1.0));
        assert_eq!(found(vec![(0.5, false)]).best, None);
        // All rows reach 0.
        assert_eq!(found(vec![(0.0, true), (0.0, false)]).best, None);
    }

    #[test]
    fn a_row_at_the_threshold_reaches_it() {
        let found = found(vec![(0.3, true), (0.29, false), (0.7, true), (0.8, false)]);
        let counts = |value: f32| {
            let own = found.thresholds.iter().find(|own| own.value == value).map(Threshold::counts);
            own.map(|counts| counts.map(|(_, count)| count))
        };
        assert_eq!([0.2, 0.3].map(counts), [Some([2, 2, 0, 0]), Some([2, 1, 0, 1])]);
        assert_eq!([0.7, 0.8, 0.9].map(counts), [Some([1, 1, 1, 1]), Some([0, 1, 2, 1]), Some([0, 0, 2, 2])]);
        let words = "the f1 of `a` is highest at 0.3: on other rows than these it is likely to be lower\n";
        assert!(found.text().ends_with(words));
    }
}
