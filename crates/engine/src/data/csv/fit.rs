//! Preprocessing of features (fill, indicate, standardize, one-hot): fitted once, then applied to training and
//! validation rows.

use std::collections::BTreeSet;

use super::{
    columns::Columns,
    fitting,
    stored::{ColumnKind, StoredColumn},
    table::{Table, Words},
    text::MAX_PROBLEMS,
};
use crate::{
    data::{
        file, memory, raw,
        scale::{Scale, mean},
        split::{RowUse, Split},
    },
    spec::{Csv, Missing, Problem},
    units,
};

/// The most categories of a column. With more it is an identifier, and one-hot features would need memory
/// quadratic in the number of rows.
const MOST_CATEGORIES: usize = 4096;

/// The way to predict rows with a category that training did not have.
const IGNORED: &str = "`--unknown-category ignore` sets the column's inputs to 0";

/// A numeric column.
struct Numeric {
    /// The value that replaces a missing cell.
    fill: f64,
    filled: usize,
    /// See [`StoredColumn::indicator`].
    indicator: Option<bool>,
    scale: Scale,
}

/// A text column.
struct Categorical {
    /// Sorted as texts.
    categories: Vec<String>,
    /// Their values, if all are plain numbers of different values; else empty.
    numbers: Vec<f64>,
    /// Whether missing cells have a category of their own, which is the last.
    missing: bool,
}

impl Categorical {
    fn new(categories: Vec<String>, missing: bool) -> Self {
        let numbers: Option<Vec<f64>> = categories.iter().map(|category| plain_number(category)).collect();
        let are_different = |numbers: &Vec<f64>| {
            let different: BTreeSet<u64> = numbers.iter().map(|number| number.to_bits()).collect();
            different.len() == numbers.len()
        };
        Self { numbers: numbers.filter(are_different).unwrap_or_default(), categories, missing }
    }

    fn width(&self) -> usize {
        self.categories.len() + usize::from(self.missing)
    }

    /// By its text, or by its value among numbers: `1.0` is `1`. Numbers among words have a point, whatever the file's mark is.
    fn find(&self, word: &str) -> Option<usize> {
        let by_text = self.categories.binary_search_by(|known| known.as_str().cmp(word)).ok();
        let by_value = || {
            let number = plain_number(word)?;
            self.numbers.iter().position(|known| *known == number)
        };
        by_text.or_else(by_value)
    }
}

/// A number as programs write whole numbers and fractions: `7`, `-7`, `7.0`. No code such as `007` or `1e3`, and no number of
/// more digits than an f64 tells apart.
fn plain_number(word: &str) -> Option<f64> {
    let digits = word.strip_prefix('-').unwrap_or(word);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_code = whole.len() > 1 && whole.starts_with('0');
    (is_plain(whole) && is_plain(fraction) && !is_code && digits.len() <= 15).then(|| word.parse().ok())?
}

/// All feature columns.
pub(super) struct FeatureFit {
    numeric: Vec<Numeric>,
    categorical: Vec<Categorical>,
}

impl FeatureFit {
    /// Fits means and deviations to the training rows. Categories come from the whole training file, so that
    /// the split cannot make a category unknown; and which columns have an indicator, so that the number of features is that of
    /// every fold.
    pub(super) fn new(spec: &Csv, table: &Table, split: &Split) -> Result<Self, Vec<Problem>> {
        let (Table { text, columns, .. }, mut problems) = (table, Vec::new());
        let mut fitted = Self { numeric: Vec::new(), categorical: Vec::new() };
        for (values, &column) in table.numeric.iter().zip(&columns.numeric) {
            let fill = mean(split.rows_of(RowUse::Train).map(|row| values[row]));
            if fill.is_none() {
                let name = columns.name(column);
                let message = format!("column `{name}` has no number in any training row");
                let hint = format!("leave it out: add `{name}` to `data.csv.ignore`");
                problems.push(file::problem(&text.path, message).hint(hint));
            }
            let fill = fill.unwrap_or(0.0);
            let missing = values.iter().filter(|value| value.is_nan()).count();
            let has_indicator = spec.missing_indicators && missing > 0;
            let in_training = || split.rows_of(RowUse::Train).any(|row| values[row].is_nan());
            let filled = split.rows_of(RowUse::Train).map(|row| or(values[row], fill));
            fitted.numeric.push(Numeric {
                fill,
                filled: missing,
                indicator: has_indicator.then(in_training),
                scale: if spec.standardize { Scale::standard(filled) } else { Scale::IDENTITY },
            });
        }
        for (words, &column) in table.categorical.iter().zip(&columns.categorical) {
            if words.distinct.len() > MOST_CATEGORIES {
                let (name, count) = (columns.name(column), words.distinct.len());
                let message =
                    format!("column `{name}` has {count} categories: expected at most {MOST_CATEGORIES}");
                let hint = "a column that names single rows is better left to `data.csv.ignore`";
                problems.push(file::problem(&text.path, message).hint(hint));
            }
            let sorted: BTreeSet<&str> = words.distinct.iter().map(|word| word.text.as_str()).collect();
            let categories = sorted.into_iter().map(str::to_owned).collect();
            fitted.categorical.push(Categorical::new(categories, words.missing.is_some()));
        }
        if problems.is_empty() { Ok(fitted) } else { Err(problems) }
    }

    /// Features per row.
    pub(super) fn width(&self) -> usize {
        let categories: usize = self.categorical.iter().map(Categorical::width).sum();
        self.numeric.len() + self.indicators() + categories
    }

    /// Columns with an indicator of missing cells.
    pub(super) fn indicators(&self) -> usize {
        self.numeric.iter().filter(|fit| fit.indicator.is_some()).count()
    }

    /// `[rows, width]` for all rows: numeric columns, then their indicators, as 0 and 1 however numbers are scaled, then the one-hot
    /// features of each categorical column. Where `unknown` is given, a category that is not in the training file has zeros only, and
    /// adds to the count of its column there.
    ///
    /// # Errors
    /// Categories that are not in the training file, and numbers that are not finite after scaling.
    pub(super) fn apply(
        &self,
        table: &Table,
        mut unknown: Option<&mut [usize]>,
    ) -> Result<Vec<f32>, Vec<Problem>> {
        let places = self.places(table, unknown.is_some())?;
        let mut features = memory::reserved(table.rows, self.width())
            .map_err(|bytes| file::fault(&table.text.path, 0, raw::Fault::Memory(bytes)))?;
        let indicated = self.numeric.iter().zip(&table.numeric);
        let indicated: Vec<(bool, &Vec<f64>)> =
            indicated.filter_map(|(fit, values)| Some((fit.indicator?, values))).collect();
        for row in 0..table.rows {
            for (fit, values) in self.numeric.iter().zip(&table.numeric) {
                features.push(fit.scale.apply(or(values[row], fit.fill)));
            }
            features
                .extend(indicated.iter().map(|(tells, values)| f32::from(*tells && values[row].is_nan())));
            let categorical = self.categorical.iter().zip(&table.categorical).zip(&places).enumerate();
            for (column, ((fit, words), places)) in categorical {
                let start = features.len();
                features.resize(start + fit.width(), 0.0);
                let place = match words.codes[row] {
                    Words::MISSING => fit.missing.then_some(fit.categories.len()),
                    code => places[code as usize],
                };
                match (place, &mut unknown) {
                    (Some(place), _) => features[start + place] = 1.0,
                    (None, Some(counts)) => counts[column] += 1,
                    (None, None) => {}
                }
            }
        }
        if let Some(bad) = raw::first_not_finite(&features) {
            let (row, i) = (bad / self.width(), bad % self.width());
            return Err(table.too_large(table.columns.numeric[i], table.numeric[i][row]).into());
        }
        Ok(features)
    }

    /// For each categorical column, the one-hot position of each of the table's words; `None` for words that are
    /// unknown and may be.
    fn places(&self, table: &Table, may_be: bool) -> Result<Vec<Vec<Option<usize>>>, Vec<Problem>> {
        let (Table { text, columns, .. }, mut problems) = (table, Vec::new());
        let mut all = Vec::new();
        for ((fit, words), &column) in
            self.categorical.iter().zip(&table.categorical).zip(&columns.categorical)
        {
            if may_be {
                all.push(words.distinct.iter().map(|word| fit.find(&word.text)).collect());
                continue;
            }
            let hint = || match columns.is_trained {
                true => format!("{}; {IGNORED}", known(&fit.categories)),
                false => known(&fit.categories),
            };
            match words.find_all((&**text, &**columns, column), "category", hint, |word| fit.find(word)) {
                Ok(places) => all.push(places.into_iter().map(Some).collect()),
                Err(unknown) => problems.extend(unknown),
            }
            if let Some(record) = words.missing.filter(|_| !fit.missing) {
                let name = columns.name(column);
                let message = format!("missing cell in column `{name}`, which has none in the training file");
                let hint = match columns.is_trained {
                    true => format!("fill it in, or leave its row out; {IGNORED}"),
                    false => "`data.csv.missing = \"drop\"` leaves such rows out".to_owned(),
                };
                problems.push(Problem::new(text.cell(record, column), message).hint(hint));
            }
        }
        problems.truncate(MAX_PROBLEMS);
        if problems.is_empty() { Ok(all) } else { Err(problems) }
    }

    /// A warning of categories that no training row has: their inputs keep the weights that they had at first.
    pub(super) fn untrained(&self, table: &Table, split: &Split) -> Option<String> {
        let mut found = Vec::new();
        for (words, &column) in table.categorical.iter().zip(&table.columns.categorical) {
            // The last one is that of missing cells.
            let mut is_trained = vec![false; words.distinct.len() + 1];
            for row in split.rows_of(RowUse::Train) {
                is_trained[(words.codes[row] as usize).min(words.distinct.len())] = true;
            }
            let name = table.columns.name(column);
            let texts = words.distinct.iter().map(|word| format!("`{}`", file::printable(&word.text)));
            let all = texts.chain(words.missing.map(|_| "missing cells".to_owned())).zip(is_trained);
            found.extend(
                all.filter(|(_, is_trained)| !is_trained).map(|(what, _)| format!("{what} of `{name}`")),
            );
        }
        let what = "categories without a row to train on, so that their inputs keep their first weights";
        (!found.is_empty()).then(|| format!("{what}: {}", fitting(&found)))
    }

    /// What is stored in the model's file: one entry per column.
    pub(super) fn stored(&self, spec: &Csv, columns: &Columns) -> Vec<StoredColumn> {
        let numeric = self.numeric.iter().zip(&columns.numeric).map(|(fit, &column)| {
            let scale = fit.scale.stored();
            // If nothing was filled, the fill value is the scale's mean and is not stored.
            let is_kept = fit.filled > 0 || (spec.missing == Missing::Mean && scale.is_none());
            StoredColumn {
                name: columns.names[column].clone(),
                kind: ColumnKind::Numeric,
                fill: is_kept.then_some(fit.fill),
                complete: is_kept && fit.filled == 0,
                indicator: fit.indicator,
                scale,
                categories: None,
            }
        });
        let categorical = self.categorical.iter().zip(&columns.categorical).map(|(fit, &column)| {
            let missing = fit.missing.then_some(None);
            StoredColumn {
                name: columns.names[column].clone(),
                kind: ColumnKind::Categorical,
                fill: None,
                complete: false,
                indicator: None,
                scale: None,
                categories: Some(fit.categories.iter().cloned().map(Some).chain(missing).collect()),
            }
        });
        numeric.chain(categorical).collect()
    }

    pub(super) fn from_stored(stored: &[StoredColumn]) -> Self {
        let mut fitted = Self { numeric: Vec::new(), categorical: Vec::new() };
        for column in stored {
            if column.kind == ColumnKind::Numeric {
                let scale = column.scale.unwrap_or(Scale::IDENTITY);
                let (fill, indicator) = (column.fill(), column.indicator);
                fitted.numeric.push(Numeric { fill, filled: 0, indicator, scale });
                continue;
            }
            let all = column.categories.as_deref().unwrap_or_default();
            let categories: Vec<String> = all.iter().flatten().cloned().collect();
            let missing = categories.len() < all.len();
            fitted.categorical.push(Categorical::new(categories, missing));
        }
        fitted
    }

    /// Sentences for the run's log.
    pub(super) fn notes(&self, columns: &Columns) -> Vec<String> {
        let mut notes = Vec::new();
        let filled: Vec<_> =
            self.numeric.iter().zip(&columns.numeric).filter(|(fit, _)| fit.filled > 0).collect();
        match &filled[..] {
            [] => {}
            [(fit, column)] => notes.push(format!(
                "filled {} of `{}` with {}, the mean of its training rows",
                units::counted(fit.filled as u64, "missing cell"),
                columns.name(**column),
                units::shortest(fit.fill as f32)
            )),
            all => {
                let each = all.iter().map(|(fit, column)| {
                    format!("`{}` {}", columns.name(**column), units::count(fit.filled as u64))
                });
                let each: Vec<String> = each.collect();
                notes.push(format!("filled missing cells with means of training rows: {}", fitting(&each)));
            }
        }
        notes.extend(self.notes_of_indicators(columns));
        for (fit, &column) in self.categorical.iter().zip(&columns.categorical) {
            let missing = if fit.missing { ", one of them for missing cells" } else { "" };
            notes.push(format!("`{}` has {} categories{missing}", columns.name(column), fit.width()));
        }
        notes
    }

    /// A sentence on the columns with indicators of missing cells, and on those whose indicators are always 0.
    fn notes_of_indicators(&self, columns: &Columns) -> Vec<String> {
        let named = |wanted: &dyn Fn(bool) -> bool| -> Vec<String> {
            let all = self.numeric.iter().zip(&columns.numeric);
            let found = all.filter(|(fit, _)| fit.indicator.is_some_and(wanted));
            found.map(|(_, &column)| format!("`{}`", columns.name(column))).collect()
        };
        let sentence = |names: Vec<String>, what: &str| {
            let count = units::counted(names.len() as u64, "indicator");
            (!names.is_empty()).then(|| format!("{count} {what}: {}", fitting(&names)))
        };
        let all = sentence(named(&|_| true), "of missing cells");
        let idle = sentence(named(&|tells| !tells), "always 0, with no missing cell in the training rows");
        all.into_iter().chain(idle).collect()
    }
}

/// `value`, or `fill` if it is missing (NaN).
#[inline]
fn or(value: f64, fill: f64) -> f64 {
    if value.is_nan() { fill } else { value }
}

/// The valid names, for a hint.
pub(super) fn known(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<String> =
        names.iter().take(SHOWN).map(|name| format!("`{}`", file::printable(name))).collect();
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    format!("the training file has {}{more}", shown.join(", "))
}
