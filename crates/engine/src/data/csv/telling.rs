//! Columns that alone tell the target: most often what is known only once the target is.

use std::{collections::HashMap, f64::consts::TAU, sync::Arc};

use super::{
    columns::Columns,
    parquet,
    table::{Table, Target},
    text::Text,
};
use crate::{
    data::{Task, file},
    spec::{Csv, Problem},
    units,
};

/// Of fewer rows chance may let a column tell the target.
const FEWEST_ROWS: usize = 20;

/// Rows that each class must have, and that each value of a column must have on average.
const ROWS_EACH: usize = 5;

/// A column tells the class only if chance makes such a column in fewer than one of this number of tables, with shuffled classes.
const TABLES: f64 = 1000.0;

/// A column with a higher correlation tells a numeric target.
const CORRELATION: f64 = 0.9999;

/// Rows that show of nearly all columns that they do not tell the class.
const FIRST_ROWS: usize = 1000;

/// Columns that are warned of one by one.
const SHOWN: usize = 5;

/// A column, and its correlation with a numeric target.
pub(super) struct Telling {
    pub(super) column: usize,
    correlation: Option<f64>,
}

/// The columns of a table that alone tell its only target, where it has several features.
pub(super) fn find(table: &Table) -> Vec<Telling> {
    let Columns { numeric, categorical, targets, .. } = &*table.columns;
    if targets.len() != 1 || numeric.len() + categorical.len() < 2 || table.rows < FEWEST_ROWS {
        return Vec::new();
    }
    let numbers = numeric.iter().zip(&table.numeric);
    match &table.target {
        Target::Numbers(target) => {
            let told = numbers.map(|(&column, values)| (column, correlation(values, target)));
            let told = told.filter(|(_, correlation)| correlation.abs() > CORRELATION);
            told.map(|(column, of)| Telling { column, correlation: Some(of) }).collect()
        }
        Target::Classes(classes) => {
            let codes = &classes.codes;
            let rows_of = counts(codes.iter().copied(), classes.distinct.len());
            let count = rows_of.len();
            if count < 2 || rows_of.iter().any(|rows| *rows < ROWS_EACH) {
                return Vec::new();
            }
            // All ways to deal the classes out; a column tells the class in few of them.
            let all = ln_arrangements(&rows_of) - (TABLES * (numeric.len() + categorical.len()) as f64).ln();
            // Thresholds part the classes in any order of them; values are missing in any one of them.
            let parted = ln_factorial(count) + (count as f64).ln();
            let by_values = |values: &mut dyn Iterator<Item = u64>| {
                one_each(values, codes, count).is_some_and(|values_of| ln_arrangements(&values_of) < all)
            };
            let tell = |values: &[f64]| {
                parted < all && are_apart(values, codes, count) || by_values(&mut bits(values))
            };
            let numbers = numbers.filter(|(_, values)| tell(values)).map(|(column, _)| *column);
            let words = categorical.iter().zip(&table.categorical);
            let words =
                words.filter(|(_, words)| by_values(&mut words.codes.iter().map(|code| u64::from(*code))));
            let told = numbers.chain(words.map(|(column, _)| *column));
            told.map(|column| Telling { column, correlation: None }).collect()
        }
        Target::None => Vec::new(),
    }
}

/// How many of the codes are each class.
fn counts(codes: impl Iterator<Item = u32>, classes: usize) -> Vec<usize> {
    let mut counts = vec![0; classes];
    codes.for_each(|class| counts[class as usize] += 1);
    counts
}

/// The logarithm of the multinomial coefficient of these counts.
fn ln_arrangements(counts: &[usize]) -> f64 {
    ln_factorial(counts.iter().sum()) - counts.iter().map(|count| ln_factorial(*count)).sum::<f64>()
}

/// By Stirling's series, to 0.003.
fn ln_factorial(n: usize) -> f64 {
    let n = n as f64;
    if n < 2.0 { 0.0 } else { n * n.ln() - n + (TAU * n).ln() / 2.0 + (12.0 * n).recip() }
}

fn bits(values: &[f64]) -> impl Iterator<Item = u64> {
    values.iter().map(|value| value.to_bits())
}

/// Whether thresholds part the values of the classes, and no two classes have missing ones.
fn are_apart(values: &[f64], classes: &[u32], count: usize) -> bool {
    let of = |rows: usize| {
        let mut ranges = vec![[f64::INFINITY, f64::NEG_INFINITY]; count];
        let mut without = None;
        for (value, class) in values[..rows].iter().zip(classes) {
            if value.is_nan() {
                if *without.get_or_insert(*class) != *class {
                    return false;
                }
                continue;
            }
            let [least, greatest] = &mut ranges[*class as usize];
            (*least, *greatest) = (value.min(*least), value.max(*greatest));
        }
        ranges.retain(|[least, greatest]| least <= greatest);
        ranges.sort_unstable_by(|a, b| a[0].total_cmp(&b[0]));
        ranges.windows(2).all(|pair| pair[0][1] < pair[1][0])
    };
    of(values.len().min(FIRST_ROWS)) && of(values.len())
}

/// How many values each class has, if all rows of each value are of one class.
fn one_each(values: impl Iterator<Item = u64>, classes: &[u32], count: usize) -> Option<Vec<usize>> {
    let mut known = HashMap::new();
    let is_alike = |(value, class): (u64, &u32)| {
        *known.entry(value).or_insert(*class) == *class && known.len() * ROWS_EACH <= classes.len()
    };
    values.zip(classes).all(is_alike).then(|| counts(known.into_values(), count))
}

/// Pearson's, of the rows without a missing value; 0 if most have one, or all values are equal.
fn correlation(values: &[f64], target: &[f64]) -> f64 {
    let rows = || values.iter().zip(target).filter(|(value, _)| !value.is_nan());
    let count = rows().count();
    if 2 * count < values.len() {
        return 0.0;
    }
    let (x, y) = rows().fold((0.0, 0.0), |(x, y), (value, target)| (x + value, y + target));
    let (x, y) = (x / count as f64, y / count as f64);
    let [mut xx, mut yy, mut xy] = [0.0; 3];
    for (value, target) in rows() {
        let (dx, dy) = (value - x, target - y);
        (xx, yy, xy) = (xx + dx * dx, yy + dy * dy, xy + dx * dy);
    }
    if xx > 0.0 && yy > 0.0 { xy / (xx.sqrt() * yy.sqrt()) } else { 0.0 }
}

/// A sentence for each such column.
pub(super) fn warnings(table: &Table, found: &[Telling]) -> Vec<String> {
    let more = found.len().saturating_sub(SHOWN);
    let words = |Telling { column, correlation }: &Telling| {
        let name = table.columns.name(*column);
        let what = match correlation {
            Some(of) => format!("the target (correlation {})", units::number(*of)),
            None => "the class of each row".to_owned(),
        };
        format!("`{name}` alone tells {what}: is it known before the target is?")
    };
    let shown = found.iter().take(SHOWN).map(words);
    let more =
        (more > 0).then(|| format!("{} alone tell the target", units::counted(more as u64, "more column")));
    shown.chain(more).collect()
}

/// Names of the columns of a file that alone tell its target, each with the sentence on it.
///
/// # Errors
/// If it cannot be read as the settings say.
pub fn telling_columns(spec: &Csv, task: Task) -> Result<Vec<(String, String)>, Vec<Problem>> {
    let is_parquet = file::is_parquet(&file::open(&spec.path, "data.csv.path")?.0);
    let text = match is_parquet {
        true => parquet::read(&spec.path, "data.parquet.path", |name, _| super::reads(spec, name))?,
        false => Text::read(&spec.path, "data.csv.path", spec.delimiter)?,
    };
    let text = Arc::new(text);
    let columns = Arc::new(Columns::resolve(spec, &text)?);
    let table = Table::read(spec, &text, &columns, task)?;
    let found = find(&table);
    let words = found.iter().flat_map(|own| warnings(&table, std::slice::from_ref(own)));
    Ok(found.iter().map(|own| columns.names[own.column].clone()).zip(words).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20! / (15! 5!) = 15504, and 9! / (2! 3! 4!) = 1260.
    #[test]
    fn arrangements_are_counted() {
        for (counts, expected) in
            [(&[15, 5][..], 15_504_f64), (&[2, 3, 4], 1260.0), (&[4, 0], 1.0), (&[0], 1.0)]
        {
            let own = ln_arrangements(counts);
            assert!((own - expected.ln()).abs() < 0.003, "{counts:?}: {own}");
        }
    }
}
