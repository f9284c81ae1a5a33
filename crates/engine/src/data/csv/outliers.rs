//! Numbers far from all others of their column: a mistyped cell, or one such as `-999` that stands for a missing value.

use std::collections::HashMap;

use super::{
    missing::MissingCells,
    table::{Table, Target},
    text::Text,
};
use crate::{
    data::file,
    spec::{Csv, Location},
    units,
};

/// A number is far if it is this many times as far from the median as every number that is not.
const TIMES: f64 = 10.0;

/// Columns that are warned of one by one.
const SHOWN: usize = 5;

/// The far numbers of a column.
pub(super) struct Outliers {
    count: usize,
    numbers: usize,
    /// The least and the greatest of the others.
    others: [f64; 2],
}

impl Outliers {
    /// Those among `values`, in which NaN is a missing cell; `None` if there are none. At most a tenth of the numbers that differ
    /// from the median can be far: a scale by quantiles, which the far numbers themselves do not stretch.
    pub(super) fn find(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut numbers: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
        let middle = numbers.len() / 2;
        if numbers.is_empty() {
            return None;
        }
        let median = *numbers.select_nth_unstable_by(middle, f64::total_cmp).1;
        let apart = |value: &f64| (value - median).abs();
        let mut distances: Vec<f64> = numbers.iter().map(apart).filter(|distance| *distance > 0.0).collect();
        if distances.is_empty() {
            return None;
        }
        let most = distances.len() * 9 / 10;
        let (_, near, beyond) = distances.select_nth_unstable_by(most, f64::total_cmp);
        let mut near = *near;
        if beyond.iter().all(|distance| *distance <= TIMES * near) {
            return None;
        }
        beyond.sort_unstable_by(f64::total_cmp);
        let first = beyond.iter().position(|distance| {
            let is_far = *distance > TIMES * near;
            near = if is_far { near } else { *distance };
            is_far
        })?;
        let others = numbers.iter().filter(|value| apart(value) <= near);
        let range = others.fold([f64::INFINITY, f64::NEG_INFINITY], |[least, greatest], value| {
            [value.min(least), value.max(greatest)]
        });
        Some(Self { count: beyond.len() - first, numbers: numbers.len(), others: range })
    }

    /// A sentence for each column of the text with far numbers, with the first of them.
    pub(super) fn in_words(
        found: &[(usize, Self)],
        (text, header, missing): (&Text, bool, &MissingCells),
        whose: impl Fn(usize) -> String,
    ) -> Vec<String> {
        let columns: Vec<usize> = found.iter().map(|(column, _)| *column).collect();
        let is_far = |place: usize, cell: &str| {
            let [least, greatest] = found[place].1.others;
            missing.number(cell).is_ok_and(|value| value < least || value > greatest)
        };
        let first = text.first_cells(&columns, usize::from(header), is_far);
        // To find a line takes a pass of its own, and columns often have their far numbers in the same one.
        let mut lines = HashMap::new();
        let words = |(first, (column, own)): (Option<(String, usize)>, &(usize, Self))| {
            let first = first.map(|(cell, record)| {
                let line = lines.entry(record).or_insert_with(|| text.line(record));
                (cell, &*line)
            });
            own.words(first, &whose(*column))
        };
        first.into_iter().zip(found).map(words).collect()
    }

    /// A sentence with the first of them and the location of its row.
    fn words(&self, first: Option<(String, &Location)>, whose: &str) -> String {
        let [least, greatest] = self.others;
        let first = first.map(|(cell, place)| format!("`{}`{}", file::printable(&cell), place.in_words()));
        let first = first.unwrap_or_default();
        let range = format!("between {} and {}", units::exact(least), units::exact(greatest));
        let way = "name what stands for a missing value in `missing_values`";
        match self.count {
            1 => format!("{whose}: {first} is far from all its other numbers, {range}: correct it, or {way}"),
            count => {
                let [count, all] = [count, self.numbers].map(|count| units::count(count as u64));
                format!(
                    "{whose}: {count} of its {all} numbers, the first {first}, are far from all others, {range}: correct them, or \
                     {way}"
                )
            }
        }
    }
}

/// A sentence for each column of features or targets with far numbers, other than features that tell the target.
pub(super) fn warnings(spec: &Csv, table: &Table, tells: &dyn Fn(usize) -> bool) -> Vec<String> {
    let Table { text, columns, missing, .. } = table;
    let targets = match &table.target {
        Target::Numbers(values) => &values[..],
        _ => &[],
    };
    let width = columns.targets.len().max(1);
    let features = table.numeric.iter().zip(&columns.numeric).filter(|(_, column)| !tells(**column));
    let features = features.map(|(values, &column)| (column, Outliers::find(values.iter().copied())));
    let targets = columns.targets.iter().enumerate().map(|(target, &column)| {
        (column, Outliers::find(targets.iter().skip(target).step_by(width).copied()))
    });
    let found: Vec<_> =
        features.chain(targets).filter_map(|(column, found)| Some((column, found?))).collect();
    let shown = &found[..found.len().min(SHOWN)];
    let words = Outliers::in_words(shown, (text, spec.header, missing), |column| columns.described(column));
    let more = found.len() - shown.len();
    let more =
        (more > 0).then(|| format!("{} have such numbers", units::counted(more as u64, "more column")));
    words.into_iter().chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far(values: impl IntoIterator<Item = f64>) -> Option<(usize, [f64; 2])> {
        Outliers::find(values.into_iter()).map(|found| (found.count, found.others))
    }

    /// The inverse of the normal distribution, as far as it is needed here: Hastings, 26.2.23 of Abramowitz and Stegun.
    fn normal(p: f64) -> f64 {
        let t = (-2.0 * p.min(1.0 - p).ln()).sqrt();
        let z = t
            - (2.515_517 + 0.802_853 * t + 0.010_328 * t * t)
                / (1.0 + 1.432_788 * t + 0.189_269 * t * t + 0.001_308 * t.powi(3));
        if p < 0.5 { -z } else { z }
    }

    fn quantiles(count: u32) -> impl Iterator<Item = f64> {
        (0..count).map(move |i| normal((f64::from(i) + 0.5) / f64::from(count)))
    }

    #[test]
    fn mistyped_cells_and_sentinels_are_far() {
        let incomes = || (0..2000).map(|i| 12_000.0 + f64::from(i * 37 % 2000) * 100.0);
        let range = [12_000.0, 211_900.0];
        assert_eq!(far(incomes()), None);
        assert_eq!(far(incomes().chain([999_999_999.0])), Some((1, range)));
        assert_eq!(far(incomes().chain([f64::NAN, 1e38, 4e6, -9e6])), Some((3, range)));
        let ages =
            |share: u32| (0..2000).map(move |i| if i % share == 0 { -999.0 } else { f64::from(i % 80) });
        assert_eq!(far(ages(20)), Some((100, [1.0, 79.0])));
        // A number of three rows is as good as any other.
        assert_eq!(far(ages(3)), None);
        assert_eq!(far((0..40).map(f64::from).chain([5000.0])), Some((1, [0.0, 39.0])));
    }

    #[test]
    fn long_tails_are_not() {
        assert_eq!(far(quantiles(20_000)), None);
        assert_eq!(far(quantiles(20_000).map(|z| (2.0 * z).exp())), None, "log-normal");
        assert_eq!(far((1..20_000).map(|i| 1.0 / f64::from(i))), None, "Zipf");
        assert_eq!(far((0..20_000).map(|i| f64::from(u8::from(i % 500 == 0)))), None, "a rare flag");
        let gains = (0..20_000).map(|i| if i % 12 == 0 { f64::from(100 + i) } else { 0.0 });
        assert_eq!(far(gains), None, "mostly zeros");
        assert_eq!(far([1.0, 2.0, 1000.0]), None, "too few to tell");
        assert_eq!(far([3.0; 50]), None);
        assert_eq!(far([f64::NAN]), None);
    }
}
