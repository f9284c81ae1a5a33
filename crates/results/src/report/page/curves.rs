//! Curves of a metric over common steps, thinned if there are too many points.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    files::Series,
    report::{
        logged::more_is_better,
        plot::{Axis, is_log},
    },
    units,
};

/// Number of curves in colour, for the best; others are grey and have no band.
pub(super) const COLORS: usize = 7;

/// Values with a smaller relative difference look the same.
const SEEN: f64 = 1e-3;

/// Maximum number of hidden lines that are named.
const MOST_HIDDEN: usize = 8;

/// Curves over a common axis.
pub(super) struct Chart {
    pub(super) title: String,
    /// The meaning of the horizontal axis.
    pub(super) across: &'static str,
    pub(super) x: Vec<f64>,
    pub(super) lines: Vec<Line>,
    /// The number of steps that each point stands for, if there are more steps than points.
    pub(super) thinned: Option<f64>,
    /// Whether the runs of a line end at different steps.
    pub(super) uneven: bool,
    /// A range that the vertical axis covers in any case; otherwise noise would look like a change.
    pub(super) within: Option<[f64; 2]>,
}

/// A curve.
pub(super) struct Line {
    pub(super) name: String,
    /// Values, one per position on the horizontal axis.
    pub(super) y: Vec<Option<f64>>,
    /// The lowest and the highest values of several runs, or of the steps that share a point; the line is
    /// their mean.
    pub(super) band: Option<[Vec<Option<f64>>; 2]>,
    /// Number of values that cannot be drawn.
    pub(super) not_finite: u64,
    /// Whether it is grey, below a line that shows its course.
    pub(super) is_pale: bool,
}

impl Chart {
    /// A chart with a line for each group of runs and about `most` points on the horizontal axis.
    pub(super) fn new(
        title: String,
        across: &'static str,
        groups: &[(String, Vec<&Series>)],
        most: usize,
    ) -> Self {
        let series = || groups.iter().flat_map(|(_, runs)| runs.iter());
        let is_uneven = |runs: &Vec<&Series>| {
            let end = |run: &Series| run.last().map(|(step, _)| step);
            runs.iter().any(|run| end(run) != end(runs[0]))
        };
        let uneven = groups.iter().any(|(_, runs)| is_uneven(runs));
        let mut steps = BTreeSet::new();
        for (step, _) in series().flat_map(|run| run.points()) {
            if steps.len() > most {
                break;
            }
            steps.insert(step.to_bits());
        }
        if steps.len() <= most {
            let x: Vec<f64> = steps.into_iter().map(f64::from_bits).collect();
            let place = |step: f64| x.binary_search_by(|known| known.total_cmp(&step)).unwrap_or_default();
            let lines = groups.iter().map(|(name, runs)| Line::new(name, runs, x.len(), &place));
            let mut lines: Vec<Line> = lines.collect();
            lines.iter_mut().skip(COLORS).for_each(|line| line.band = None);
            return Self { lines, title, across, x, thinned: None, uneven, within: None };
        }
        let ends = series().flat_map(|run| run.first().into_iter().chain(run.last())).map(|(step, _)| step);
        let (first, last) =
            ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), step| (a.min(step), b.max(step)));
        let cells = most / 2;
        let width = (last - first) / cells as f64;
        let place = |step: f64| (((step - first) / width) as usize).min(cells - 1);
        // Each cell has two points, so that a line without a band can go through the cell's lowest and
        // highest values.
        let at = |place: usize| first + width * place as f64 / 2.0;
        let x = (0..2 * cells).map(|place| if width < 2.0 { at(place) } else { at(place).round() });
        let mut lines: Vec<Line> =
            groups.iter().map(|(name, runs)| Line::thinned(name, runs, cells, &place)).collect();
        lines.iter_mut().skip(COLORS).for_each(Line::without_band);
        Self { lines, x: x.collect(), title, across, thinned: Some(width), uneven, within: None }
    }

    /// The lowest and the highest value.
    pub(super) fn ends(&self) -> Option<[f64; 2]> {
        let bands = self.lines.iter().flat_map(|line| line.band.iter().flatten());
        let values = self.lines.iter().map(|line| &line.y).chain(bands).flatten().flatten();
        values.fold(None, |ends, &value| {
            Some(ends.map_or([value; 2], |[low, high]: [f64; 2]| [low.min(value), high.max(value)]))
        })
    }

    /// Marks the last line as pale.
    pub(super) fn with_pale_line(mut self) -> Self {
        if let Some(line) = self.lines.last_mut() {
            line.is_pale = true;
            line.without_band();
        }
        self
    }

    /// Lines in colour, which come first.
    pub(super) fn colored(&self) -> usize {
        self.lines.iter().filter(|line| !line.is_pale).count().min(COLORS)
    }

    /// The name of the other lines together.
    pub(super) fn others(&self) -> Option<String> {
        match &self.lines[self.colored()..] {
            [] => None,
            [line] => Some(line.name.clone()),
            lines => Some(format!("{} others", lines.len())),
        }
    }

    /// Whether a linear axis would show little but the first values. Bands and pale lines do not count: they have outliers.
    fn is_log(&self) -> bool {
        let lines = self.lines.iter().filter(|line| !line.is_pale);
        let values = lines.flat_map(|line| &line.y).flatten().copied();
        self.within.is_none() && !more_is_better(&self.title) && is_log(values)
    }

    /// The axis up.
    pub(super) fn axis(&self, most: usize) -> Option<Axis> {
        let ends = self.ends()?;
        let [low, high] = self.within.map_or(ends, |[low, high]| [low.min(ends[0]), high.max(ends[1])]);
        let is_log = self.is_log();
        Some(if is_log { Axis::logarithmic(low, high, most) } else { Axis::new(low, high, most, true) })
    }

    /// Names of lines that are covered by later ones, as far as the eye can tell.
    pub(super) fn hidden(&self) -> Vec<&str> {
        let near = |a: &Option<f64>, b: &Option<f64>| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() <= SEEN * a.abs().max(b.abs()),
            (a, b) => a == b,
        };
        // The best lines are drawn last.
        let is_hidden = |place: &usize| {
            let own = &self.lines[*place].y;
            let covers = |line: &Line| line.y.iter().zip(own).all(|(a, b)| near(a, b));
            own.iter().any(Option::is_some) && self.lines[..*place].iter().any(covers)
        };
        let hidden = (0..self.lines.len()).filter(is_hidden);
        hidden.map(|place| self.lines[place].name.as_str()).collect()
    }

    /// The chart as the page's script reads it.
    pub(super) fn json(&self) -> Value {
        let numbers = |values: &Vec<Option<f64>>| Value::from_iter(values.iter().map(|v| v.map(shortened)));
        let line = |line: &Line| {
            json!({
                "name": line.name,
                "y": numbers(&line.y),
                "band": line.band.as_ref().map(|band| [numbers(&band[0]), numbers(&band[1])]),
                "pale": line.is_pale,
            })
        };
        json!({
            "title": self.title,
            "across": self.across,
            "log": self.is_log(),
            "positive": self.ends().is_some_and(|[low, _]| low > 0.0),
            "within": self.within,
            "x": self.x,
            "lines": self.lines.iter().map(line).collect::<Value>(),
        })
    }
}

impl Line {
    fn new(name: &str, runs: &[&Series], points: usize, place: &dyn Fn(f64) -> usize) -> Self {
        let mut values = vec![Vec::new(); points];
        let own: Vec<Vec<(usize, f64)>> = runs
            .iter()
            .map(|run| distinct_points(run).map(|(step, value)| (place(step), value)).collect())
            .collect();
        // A run counts with its last value until it has another: without it the mean would jump to that of the others. So a line
        // begins where all have begun.
        let has_point: BTreeSet<usize> = own.iter().flatten().map(|(at, _)| *at).collect();
        let begin = own.iter().filter_map(|points| Some(points.first()?.0)).max().unwrap_or(0);
        for at in has_point.into_iter().filter(|at| *at >= begin) {
            let last = |points: &Vec<(usize, f64)>| {
                points[..points.partition_point(|(place, _)| *place <= at)].last().map(|(_, value)| *value)
            };
            values[at].extend(own.iter().filter_map(last));
        }
        let mean = |values: &Vec<f64>| {
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let y = values.iter().map(mean).collect();
        let end = |end: fn(f64, f64) -> f64| values.iter().map(|v| v.iter().copied().reduce(end)).collect();
        let band = (runs.len() > 1).then(|| [end(f64::min), end(f64::max)]);
        Self { name: name.to_owned(), y, band, not_finite: not_finite(runs), is_pale: false }
    }

    /// The mean for each cell, in a band from the lowest to the highest value.
    fn thinned(name: &str, runs: &[&Series], cells: usize, place: &dyn Fn(f64) -> usize) -> Self {
        let mut low: Vec<Option<f64>> = vec![None; 2 * cells];
        let mut high = low.clone();
        let mut means = vec![Vec::new(); cells];
        for run in runs {
            let mut sums = vec![(0.0, 0.0); cells];
            for bucket in run.buckets() {
                let sum = &mut sums[place(bucket.first.0)];
                *sum = (sum.0 + bucket.sum, sum.1 + bucket.count);
                let [lowest, highest] =
                    [bucket.low, bucket.high].map(|(step, value)| (2 * place(step), value));
                low[lowest.0] = Some(low[lowest.0].map_or(lowest.1, |known| known.min(lowest.1)));
                high[highest.0] = Some(high[highest.0].map_or(highest.1, |known| known.max(highest.1)));
            }
            for (means, (sum, count)) in means.iter_mut().zip(sums) {
                means.extend((count > 0.0).then(|| sum / count));
            }
        }
        for (step, value) in ended(runs) {
            let later = means.iter_mut().enumerate().skip(place(step) + 1);
            for (cell, means) in later.filter(|(_, means)| !means.is_empty()) {
                means.push(value);
                let ends = 2 * cell..2 * cell + 2;
                low[ends.clone()].iter_mut().flatten().for_each(|low| *low = low.min(value));
                high[ends].iter_mut().flatten().for_each(|high| *high = high.max(value));
            }
        }
        // A bucket at the border of two cells has its mean in one of them, but its extremes may be in the
        // other.
        let mean = |at: usize| {
            let own: &[f64] = if at.is_multiple_of(2) { &means[at / 2] } else { &[] };
            let mean = (!own.is_empty()).then(|| own.iter().sum::<f64>() / own.len() as f64);
            mean.or(low[at]).or(high[at])
        };
        let y: Vec<Option<f64>> = (0..2 * cells).map(mean).collect();
        for at in 0..2 * cells {
            low[at] = low[at].or(y[at]).map(|low| y[at].map_or(low, |mean| low.min(mean)));
            high[at] = high[at].or(y[at]).map(|high| y[at].map_or(high, |mean| high.max(mean)));
        }
        let band = Some([low, high]);
        Self { name: name.to_owned(), y, band, not_finite: not_finite(runs), is_pale: false }
    }

    /// Removes the band of a grey line and draws the line through the lowest and highest values instead.
    fn without_band(&mut self) {
        let Some([low, high]) = self.band.take() else { return };
        for at in (0..self.y.len()).step_by(2) {
            (self.y[at], self.y[at + 1]) = (low[at], high[at]);
        }
    }
}

fn not_finite(runs: &[&Series]) -> u64 {
    runs.iter().map(|run| run.not_finite).sum()
}

/// The last points of runs that others of their line may outlast. They count on with it: without them the mean would jump to that
/// of the others.
fn ended(runs: &[&Series]) -> impl Iterator<Item = (f64, f64)> {
    runs.iter().filter_map(|run| run.last())
}

/// A curve's points without duplicates.
fn distinct_points(run: &Series) -> impl Iterator<Item = (f64, f64)> + '_ {
    let mut last = None;
    run.points().filter(move |point| last.replace(point.0) != Some(point.0))
}

/// Rounds to six digits, more than a screen can show.
fn shortened(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// A description of a chart for people who cannot see it.
pub(super) fn label(chart: &Chart) -> String {
    let names: Vec<&str> = chart.lines.iter().take(8).map(|line| line.name.as_str()).collect();
    let values =
        |[low, high]: [f64; 2]| format!("; values from {} to {}", units::number(low), units::number(high));
    let lines = units::counted(chart.lines.len() as u64, "line");
    let values = chart.ends().map(values).unwrap_or_default();
    format!("{} over {}, {lines}: {}{values}", chart.title, chart.across, names.join(", "))
}

/// Notes on what the lines do not show.
pub(super) fn notes(chart: &Chart) -> Vec<String> {
    let thinned = chart.thinned.map(|width| {
        let width = if width < 2.0 { units::number(width) } else { units::count(width.round() as u64) };
        let width = format!("about {width} {}", chart.across);
        format!("Thinned: a point stands for {width}. Lines are means, bands reach from the lowest to the highest value.")
    });
    let are_grey = chart.lines.len() > COLORS;
    let grey = (are_grey && thinned.is_some())
        .then(|| "Grey lines go through the lowest and the highest values instead.".to_owned());
    let uneven = chart.uneven.then(|| {
        "Runs of a line that end before others, or have values at other steps, count with their last ones.".to_owned()
    });
    let lost: u64 = chart.lines.iter().map(|line| line.not_finite).sum();
    let lost = (lost > 0).then(|| {
        let verb = if lost == 1 { "is" } else { "are" };
        format!("{} {verb} not finite, and not drawn.", units::counted(lost, "value"))
    });
    let pale = chart.lines.iter().any(|line| line.is_pale);
    let pale = pale.then(|| "train is the mean over the rows of each epoch; each step is grey.".to_owned());
    let is_band = thinned.is_none() && chart.lines.iter().any(|line| line.band.is_some());
    let band = is_band.then(|| {
        let grey = if are_grey { "; grey lines have none" } else { "" };
        format!("Lines are means over seeds or folds; bands reach from the lowest to the highest{grey}.")
    });
    let mut hidden = chart.hidden();
    let more = format!("{} more", hidden.len().saturating_sub(MOST_HIDDEN));
    if hidden.len() > MOST_HIDDEN {
        hidden.splice(MOST_HIDDEN.., [&*more]);
    }
    let hidden =
        (!hidden.is_empty()).then(|| format!("Hidden by lines that look the same: {}.", hidden.join(", ")));
    pale.into_iter().chain(band).chain(thinned).chain(grey).chain(uneven).chain(lost).chain(hidden).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that stopped early stays where it was: the mean does not fall because it is gone.
    #[test]
    fn a_run_that_ends_before_others_counts_with_its_last_value() {
        let series = |values: &[f64]| {
            let mut series = Series::default();
            (1..).zip(values).for_each(|(step, value)| series.push(f64::from(step), *value));
            series
        };
        let chart = |runs: &[Series], most: usize| {
            Chart::new("loss".to_owned(), "step", &[("#0".to_owned(), runs.iter().collect())], most)
        };
        let few = chart(&[series(&[1.0, 0.8]), series(&[3.0, 2.0, 1.0, 0.6])], 9);
        let rounded = |values: &[Option<f64>]| -> Vec<f64> {
            values.iter().flatten().map(|value| (value * 1e6).round() / 1e6).collect()
        };
        assert_eq!(rounded(&few.lines[0].y), [2.0, 1.4, 0.9, 0.7]);
        let band = few.lines[0].band.as_ref().unwrap();
        assert_eq!(band.each_ref().map(|end| rounded(end)), [[1.0, 0.8, 0.8, 0.6], [3.0, 2.0, 1.0, 0.8]]);
        let note = "Runs of a line that end before others, or have values at other steps, count with their last ones.";
        assert!(notes(&few).iter().any(|words| words == note));
        let many = chart(&[series(&[1.0; 100]), series(&[3.0; 1000])], 20);
        assert_eq!(rounded(&many.lines[0].y), [2.0; 10]);
        let band = many.lines[0].band.as_ref().unwrap();
        assert!(
            rounded(&band[0]).iter().all(|low| *low == 1.0)
                && rounded(&band[1]).iter().all(|high| *high == 3.0)
        );
        // Folds in the order of time validate at steps of their own.
        let at = |points: &[(f64, f64)]| {
            let mut series = Series::default();
            points.iter().for_each(|(step, value)| series.push(*step, *value));
            series
        };
        let folds = chart(&[at(&[(2.0, 1.0), (4.0, 0.8)]), at(&[(3.0, 3.0), (6.0, 2.0)])], 9);
        assert_eq!(folds.lines[0].y, [None, Some(2.0), Some(1.9), Some(1.4)]);
        let even = chart(&[series(&[1.0, 0.8]), series(&[3.0, 2.0])], 9);
        assert!(notes(&even).iter().all(|words| words != note));
    }

    #[test]
    fn lines_without_values_hide_none_and_few_hidden_ones_are_named() {
        let said = |count: usize, value: Option<f64>| {
            let mut series = Series::default();
            value.into_iter().for_each(|value| series.push(1.0, value));
            let runs = |name: usize| (format!("#{name}"), vec![&series]);
            let groups: Vec<_> = (0..count).map(runs).collect();
            notes(&Chart::new("loss".to_owned(), "step", &groups, 9)).pop()
        };
        assert_eq!(said(3, None), None);
        assert_eq!(said(3, Some(0.5)).unwrap(), "Hidden by lines that look the same: #1, #2.");
        let many = said(100, Some(0.5)).unwrap();
        assert!(many.ends_with(" the same: #1, #2, #3, #4, #5, #6, #7, #8, 91 more."), "{many}");
    }
}
