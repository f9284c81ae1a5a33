//! Curves of a metric, side by side over the steps that they share; thinned where there are too many.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::report::plot::{LOG_FROM, Series};

/// Curves over one axis.
pub(super) struct Chart {
    pub(super) title: String,
    /// What is across.
    pub(super) across: &'static str,
    pub(super) x: Vec<f64>,
    pub(super) lines: Vec<Line>,
    /// The width of what each point across stands for, where there are more steps than points.
    pub(super) thinned: Option<f64>,
}

/// A curve.
pub(super) struct Line {
    pub(super) name: String,
    /// Values, by place across.
    pub(super) y: Vec<Option<f64>>,
    /// The lowest and the highest of several runs; the line is their mean.
    pub(super) band: Option<[Vec<Option<f64>>; 2]>,
    /// Values that cannot be drawn.
    pub(super) not_finite: u64,
}

impl Chart {
    /// A chart with a line for each of some runs taken together, and about `most` points across.
    pub(super) fn new(
        title: String,
        across: &'static str,
        groups: &[(String, Vec<&Series>)],
        most: usize,
    ) -> Self {
        let series = || groups.iter().flat_map(|(_, runs)| runs.iter());
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
            return Self { lines: lines.collect(), title, across, x, thinned: None };
        }
        let ends = series().flat_map(|run| run.first().into_iter().chain(run.last())).map(|(step, _)| step);
        let (first, last) =
            ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), step| (a.min(step), b.max(step)));
        let cells = most / 2;
        let width = (last - first) / cells as f64;
        let place = |step: f64| (((step - first) / width) as usize).min(cells - 1);
        // Two points for each cell: the lowest and the highest value stand one after the other, as they came.
        let at = |place: usize| first + width * place as f64 / 2.0;
        let x = (0..2 * cells).map(|place| if width < 2.0 { at(place) } else { at(place).round() });
        let lines = groups.iter().map(|(name, runs)| Line::thinned(name, runs, cells, &place));
        Self { lines: lines.collect(), x: x.collect(), title, across, thinned: Some(width) }
    }

    /// The lowest and the highest value.
    pub(super) fn ends(&self) -> Option<[f64; 2]> {
        let bands = self.lines.iter().flat_map(|line| line.band.iter().flatten());
        let values = self.lines.iter().map(|line| &line.y).chain(bands).flatten().flatten();
        values.fold(None, |ends, &value| {
            Some(ends.map_or([value; 2], |[low, high]: [f64; 2]| [low.min(value), high.max(value)]))
        })
    }

    /// Whether values span decades.
    pub(super) fn is_log(&self) -> bool {
        self.ends().is_some_and(|[low, high]| low > 0.0 && high / low >= LOG_FROM)
    }

    /// As the page's script reads it.
    pub(super) fn json(&self) -> Value {
        let numbers = |values: &Vec<Option<f64>>| Value::from_iter(values.iter().map(|v| v.map(shortened)));
        let line = |line: &Line| {
            json!({
                "name": line.name,
                "y": numbers(&line.y),
                "band": line.band.as_ref().map(|band| [numbers(&band[0]), numbers(&band[1])]),
            })
        };
        json!({
            "title": self.title,
            "across": self.across,
            "log": self.is_log(),
            "positive": self.ends().is_some_and(|[low, _]| low > 0.0),
            "x": self.x.iter().map(|&x| shortened(x)).collect::<Value>(),
            "lines": self.lines.iter().map(line).collect::<Value>(),
        })
    }
}

impl Line {
    fn new(name: &str, runs: &[&Series], points: usize, place: &dyn Fn(f64) -> usize) -> Self {
        let mut values = vec![Vec::new(); points];
        for run in runs {
            for (step, value) in distinct_points(run) {
                values[place(step)].push(value);
            }
        }
        let mean = |values: &Vec<f64>| {
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let y = values.iter().map(mean).collect();
        let end = |end: fn(f64, f64) -> f64| values.iter().map(|v| v.iter().copied().reduce(end)).collect();
        let band = (runs.len() > 1).then(|| [end(f64::min), end(f64::max)]);
        Self { name: name.to_owned(), y, band, not_finite: not_finite(runs) }
    }

    fn thinned(name: &str, runs: &[&Series], cells: usize, place: &dyn Fn(f64) -> usize) -> Self {
        let mut low: Vec<Option<f64>> = vec![None; 2 * cells];
        let (mut high, mut sums) = (low.clone(), vec![(0.0, 0.0); cells]);
        let mut pairs = low.clone();
        for run in runs {
            for (cell, [lowest, highest, last]) in extremes(run, place) {
                let at = 2 * cell;
                low[at] = Some(low[at].map_or(lowest.1, |v: f64| v.min(lowest.1)));
                high[at] = Some(high[at].map_or(highest.1, |v: f64| v.max(highest.1)));
                sums[cell] = (sums[cell].0 + last.1, sums[cell].1 + 1.0);
                let (a, b) = if lowest.0 <= highest.0 { (lowest, highest) } else { (highest, lowest) };
                (pairs[at], pairs[at + 1]) = (Some(a.1), (a != b).then_some(b.1));
            }
        }
        let mean = |at: usize| {
            let (sum, count) = sums[at / 2];
            (at % 2 == 0 && count > 0.0).then(|| sum / count)
        };
        let is_single = runs.len() < 2;
        let y = if is_single { pairs } else { (0..2 * cells).map(mean).collect() };
        let band = (!is_single).then_some([low, high]);
        Self { name: name.to_owned(), y, band, not_finite: not_finite(runs) }
    }
}

fn not_finite(runs: &[&Series]) -> u64 {
    runs.iter().map(|run| run.not_finite).sum()
}

/// A curve's points, each once.
fn distinct_points(run: &Series) -> impl Iterator<Item = (f64, f64)> + '_ {
    let mut last = None;
    run.points().filter(move |point| last.replace(point.0) != Some(point.0))
}

/// The lowest, the highest and the last point in each cell.
fn extremes<'a>(
    run: &'a Series,
    place: &'a dyn Fn(f64) -> usize,
) -> impl Iterator<Item = (usize, [(f64, f64); 3])> + 'a {
    let mut points = run.points().map(|point| (place(point.0), point)).peekable();
    std::iter::from_fn(move || {
        let (cell, point) = points.next()?;
        let [mut low, mut high, mut last] = [point; 3];
        while let Some((_, point)) = points.next_if(|(next, _)| *next == cell) {
            low = if point.1 < low.1 { point } else { low };
            high = if point.1 > high.1 { point } else { high };
            last = point;
        }
        Some((cell, [low, high, last]))
    })
}

/// Six digits, more than a screen can show.
fn shortened(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}
