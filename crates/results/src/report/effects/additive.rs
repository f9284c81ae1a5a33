//! How much of a metric each axis explains where settings were drawn or are missing: an additive model of ranks.
//!
//! The rank of a value is taken for a sum of functions, one of each axis: a polynomial in the rank of a number, a constant for
//! each word. Ranks keep outliers from deciding, and make any scale of an axis do (Iman and Conover, 1979). The degree of the
//! polynomials is the one that best predicts settings that were left out of the fit, one at a time (PRESS; Allen, 1974). Only
//! what is predicted so is shared among the axes, and nothing where shuffled values are often predicted as well. Both tests need
//! independent values, so the repeats of a setting count as one: their mean.

use crate::{
    random::{self, Purpose},
    report::{
        grouping::{distinct, grouped},
        run::mean,
        statistics,
    },
    units,
};

const HIGHEST_DEGREE: usize = 4;

/// How often the permutation test shuffles the values.
const SHUFFLES: usize = 99;

/// More columns than this take long to fit.
const MOST_COLUMNS: usize = 64;

/// A column with a smaller part of its square beyond the others depends on them.
const DEPENDENT: f64 = 1e-8;

/// The values of the axes, none where an axis does not vary, and that of the metric.
pub(in crate::report) type Point<'a> = (Vec<Option<&'a str>>, f64);

/// An axis: its name, and its value in each setting, none where it does not vary.
pub(in crate::report) type Axis<'a> = (&'a str, Vec<Option<&'a str>>);

/// The settings of some runs, each with the mean over its runs.
pub(in crate::report) fn settings<'a>(runs: &[Point<'a>]) -> Vec<Point<'a>> {
    let settings = grouped(runs.iter().cloned());
    settings.into_iter().map(|(setting, values)| (setting, mean(&values))).collect()
}

/// The share that each axis explains of the variance of the ranks of `values`, one of each setting. What is left is of axes
/// together, seeds and chance.
///
/// # Errors
/// A sentence on why the shares are not known.
pub(in crate::report) fn shares(axes: &[Axis<'_>], values: &[f64]) -> Result<Vec<f64>, String> {
    let settings = units::counted(values.len() as u64, "setting");
    let all: Vec<Option<f64>> = values.iter().copied().map(Some).collect();
    let ranks: Vec<f64> = ranks(&all).into_iter().map(Option::unwrap_or_default).collect();
    if dot(&ranks, &ranks) <= 0.0 {
        return Err("all values are equal".to_owned());
    }
    let mut models: Vec<Basis> = Vec::new();
    for degree in 1..=HIGHEST_DEGREE {
        let columns = columns(axes, degree);
        let is_known = models.last().is_some_and(|last| last.of == columns.len());
        if is_known || columns.len() > MOST_COLUMNS {
            break;
        }
        let model = Basis::new(&columns, values.len());
        let varies = |place: &usize| distinct(axes[*place].1.iter().flatten()).len() > 1;
        let is_lost = |place: &usize| varies(place) && model.columns.iter().all(|own| own.axis != *place);
        let lost = (0..axes.len()).find(is_lost);
        if let Some(lost) = lost.filter(|_| columns.len() + 1 < values.len()) {
            return Err(format!("{} changes only along with other axes", axes[lost].0));
        }
        // More settings than coefficients, one of which is the mean.
        if lost.is_some() || model.columns.len() + 1 >= values.len() {
            break;
        }
        models.push(model);
    }
    let (predicted, model) = best(&models, &ranks)
        .ok_or_else(|| format!("{settings} are too few for the values of {} axes", axes.len()))?;
    if predicted <= 0.0 || is_chance(&models, &ranks, predicted) {
        return Err(format!("{settings} do not tell what the axes do from chance"));
    }
    let variances = model.variances(axes.len(), &ranks);
    let all: f64 = variances.iter().sum();
    Ok(variances.into_iter().map(|variance| predicted * variance / all).collect())
}

/// The model that best predicts settings left out of its fit, with the share of the variance that it predicts.
fn best<'m>(models: &'m [Basis], ranks: &[f64]) -> Option<(f64, &'m Basis)> {
    let predicted = models.iter().map(|model| (model.predicted(ranks), model));
    predicted.max_by(|a, b| a.0.total_cmp(&b.0))
}

/// Whether shuffled ranks are often predicted as well: a permutation test at 5 %.
fn is_chance(models: &[Basis], ranks: &[f64], predicted: f64) -> bool {
    let mut stream = random::fast_stream(0, Purpose::Order, 0);
    let mut shuffled = ranks.to_vec();
    let as_good = (0..SHUFFLES).filter(|_| {
        random::shuffle(&mut stream, &mut shuffled);
        best(models, &shuffled).is_some_and(|(own, _)| own >= predicted)
    });
    (as_good.count() + 1) * 20 > SHUFFLES + 1
}

/// Ranks from -1 to 1, those of equal values in the middle of theirs.
fn ranks(values: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut order: Vec<(usize, f64)> =
        values.iter().enumerate().filter_map(|(place, value)| Some((place, (*value)?))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let last = order.len().saturating_sub(1).max(1) as f64;
    let mut ranks = vec![None; values.len()];
    let mut before = 0;
    for equal in order.chunk_by(|a, b| a.1 == b.1) {
        let middle = before as f64 + (equal.len() - 1) as f64 / 2.0;
        equal.iter().for_each(|(place, _)| ranks[*place] = Some(2.0 * middle / last - 1.0));
        before += equal.len();
    }
    ranks
}

/// A regressor, whose mean is 0 over the settings that its axis varies in; 0 in the others.
struct Column {
    axis: usize,
    values: Vec<f64>,
}

impl Column {
    fn new(axis: usize, values: &[Option<f64>]) -> Self {
        let known: Vec<f64> = values.iter().flatten().copied().collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        Self { axis, values: values.iter().map(|value| value.map_or(0.0, |value| value - mean)).collect() }
    }
}

/// Words first, then rising powers, then whether an axis varies, which those may say already.
fn columns(axes: &[Axis<'_>], degree: usize) -> Vec<Column> {
    let (mut words, mut presence, mut powers) = (Vec::new(), Vec::new(), Vec::new());
    for (axis, (_, values)) in axes.iter().enumerate() {
        let levels = distinct(values.iter().flatten().copied());
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
        if levels.iter().all(|level| number(level).is_some()) {
            let ranks = ranks(&values.iter().map(|value| number((*value)?)).collect::<Vec<_>>());
            for power in 1..=degree.min(levels.len().saturating_sub(1)) {
                let raised = ranks.iter().map(|rank| rank.map(|rank| rank.powi(power as i32)));
                powers.push((power, Column::new(axis, &raised.collect::<Vec<_>>())));
            }
        } else {
            for level in levels.iter().skip(1) {
                let is_it = values.iter().map(|value| value.map(|value| f64::from(value == *level)));
                words.push(Column::new(axis, &is_it.collect::<Vec<_>>()));
            }
        }
        if values.iter().any(Option::is_none) {
            let is_there = values.iter().map(|value| Some(f64::from(value.is_some())));
            presence.push(Column::new(axis, &is_there.collect::<Vec<_>>()));
        }
    }
    powers.sort_by_key(|(power, _)| *power);
    words.into_iter().chain(powers.into_iter().map(|(_, column)| column)).chain(presence).collect()
}

/// A model: an orthogonal basis of what its columns span.
struct Basis {
    /// How many columns it is of.
    of: usize,
    /// Those that do not depend on others, in their order.
    columns: Vec<Independent>,
    /// By setting, how much its value decides what is fitted there.
    leverage: Vec<f64>,
}

/// A column as a sum of orthogonal ones.
struct Independent {
    axis: usize,
    values: Vec<f64>,
    /// Orthogonal to those before, of length 1.
    unit: Vec<f64>,
    /// Its parts along those before and along itself.
    along: Vec<f64>,
}

impl Basis {
    /// Orthogonalizes the columns one after the other (modified Gram-Schmidt).
    fn new(columns: &[Column], settings: usize) -> Self {
        let mut basis: Vec<Independent> = Vec::new();
        for column in columns {
            let mut unit = column.values.clone();
            let mut along: Vec<f64> = Vec::new();
            for before in &basis {
                let part = dot(&before.unit, &unit);
                unit.iter_mut().zip(&before.unit).for_each(|(unit, before)| *unit -= part * before);
                along.push(part);
            }
            let norm = dot(&unit, &unit).sqrt();
            if norm * norm > DEPENDENT * dot(&column.values, &column.values) {
                unit.iter_mut().for_each(|unit| *unit /= norm);
                along.push(norm);
                basis.push(Independent { axis: column.axis, values: column.values.clone(), unit, along });
            }
        }
        let of_setting =
            |setting: usize| basis.iter().map(|column| column.unit[setting].powi(2)).sum::<f64>();
        let leverage = (0..settings).map(|setting| 1.0 / settings as f64 + of_setting(setting)).collect();
        Self { of: columns.len(), columns: basis, leverage }
    }

    /// The share of the variance that is predicted of settings left out of the fit.
    fn predicted(&self, ranks: &[f64]) -> f64 {
        let mut errors = ranks.to_vec();
        for column in &self.columns {
            let part = dot(&column.unit, ranks);
            errors.iter_mut().zip(&column.unit).for_each(|(error, unit)| *error -= part * unit);
        }
        let count = ranks.len() as f64;
        let (mut wrong, mut spread) = (0.0, 0.0);
        for ((error, leverage), rank) in errors.iter().zip(&self.leverage).zip(ranks) {
            let from_mean = rank * count / (count - 1.0);
            // Without a setting that alone decides a coefficient there is no prediction but the mean.
            let left_out = if *leverage > 1.0 - 1e-9 { from_mean } else { error / (1.0 - leverage) };
            wrong += left_out * left_out;
            spread += from_mean * from_mean;
        }
        1.0 - wrong / spread
    }

    /// For each axis the sum of squares of what it adds to the fitted ranks.
    fn variances(&self, axes: usize, ranks: &[f64]) -> Vec<f64> {
        let mut coefficients: Vec<f64> = self.columns.iter().map(|column| dot(&column.unit, ranks)).collect();
        for row in (0..coefficients.len()).rev() {
            for later in row + 1..coefficients.len() {
                coefficients[row] -= self.columns[later].along[row] * coefficients[later];
            }
            coefficients[row] /= self.columns[row].along[row];
        }
        let mut added = vec![vec![0.0; ranks.len()]; axes];
        for (column, coefficient) in self.columns.iter().zip(coefficients) {
            let values = column.values.iter().map(|value| coefficient * value);
            added[column.axis].iter_mut().zip(values).for_each(|(added, value)| *added += value);
        }
        added.iter().map(|added| dot(added, added)).collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Levels of an axis with a value each, and whether they are ranges.
pub(in crate::report) type Levels = (Vec<(String, f64)>, bool);

/// The median of the values of each level of an axis; of many numbers those of their thirds, which share no number.
pub(in crate::report) fn medians(axis: &[Option<&str>], values: &[f64]) -> Levels {
    const MOST_LEVELS: usize = 6;
    let mut known: Vec<(&str, f64)> =
        axis.iter().zip(values).filter_map(|(level, value)| Some(((*level)?, *value))).collect();
    let levels = grouped(known.iter().copied());
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        statistics::median(&values)
    };
    let number = |text: &str| text.parse::<f64>().unwrap_or(f64::NAN);
    if levels.len() <= MOST_LEVELS || known.iter().any(|(level, _)| number(level).is_nan()) {
        let medians = levels.into_iter().map(|(level, values)| (level.to_owned(), median(values)));
        return (medians.collect(), false);
    }
    known.sort_by(|a, b| number(a.0).total_cmp(&number(b.0)));
    let third = |part: &[&(&str, f64)]| {
        let [first, last] = [0, part.len() - 1].map(|place| part[place].0);
        let name = if first == last { first.to_owned() } else { format!("{first} to {last}") };
        (name, median(part.iter().map(|(_, value)| *value).collect()))
    };
    let size = known.len().div_ceil(3);
    // Equal numbers stay together.
    let first = |own: &(&str, f64)| known.partition_point(|other| number(other.0) < number(own.0));
    let parts = grouped(known.iter().map(|own| (first(own) / size, own)));
    (parts.iter().map(|(_, part)| third(part)).collect(), true)
}

#[cfg(test)]
#[path = "additive_tests.rs"]
mod tests;
