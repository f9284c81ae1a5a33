//! Axes, ticks and legend around a canvas.

use std::fmt::Write;

use super::canvas::Canvas;
use crate::{files::Series, host::escape_line, units};

/// The appearance of a chart.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Total width in characters.
    pub width: usize,
    /// Height of the curves in lines, without axes and legend.
    pub height: usize,
    /// Whether curves have colours; otherwise they have symbols.
    pub color: bool,
}

/// A logarithmic axis from this ratio of the largest to the smallest value on.
const LOG_FROM: f64 = 50.0;

/// The same of curves, which fall fast at first: a linear axis shows little else.
const CURVES_LOG_FROM: f64 = 10.0;

/// The same, if half of all values are in the lowest tenth of a linear axis: many curves look equal there.
const BOTTOM_LOG_FROM: f64 = 3.0;
const BOTTOM: f64 = 0.1;

/// A relative range below this is treated as constant: labels would be equal.
const FLAT: f64 = 5e-4;

/// Terminal colours, in an order in which neighbours are distinguishable also for colour-blind readers.
const COLORS: [u8; 8] = [34, 33, 36, 31, 35, 32, 94, 93];

/// Grey.
const PALE: u8 = 90;

/// What stands for a curve without colours.
const SYMBOLS: [char; 8] = ['•', 'x', '+', 'o', '*', '#', '%', '@'];

/// A chart with its title above and its legend below; the axis is logarithmic where values span decades, unless `linear`.
pub(super) fn draw(title: &str, curves: &[Series], style: &Style, linear: bool) -> String {
    let mut text = format!("{title}\n\n");
    let mut visible = Vec::new();
    let ends = |f: fn(f64, f64) -> f64, pick: fn((f64, f64)) -> f64, start: f64| {
        curves.iter().flat_map(Series::points).map(pick).fold(start, f)
    };
    let low = ends(f64::min, |p| p.1, f64::INFINITY);
    let high = ends(f64::max, |p| p.1, f64::NEG_INFINITY);
    if low <= high {
        let steps = [ends(f64::min, |p| p.0, f64::INFINITY), ends(f64::max, |p| p.0, f64::NEG_INFINITY)];
        let most = (style.height / 3).max(2);
        // Single steps have outliers.
        let strong = curves.iter().filter(|curve| !curve.is_pale);
        let is_log = !linear && is_log(strong.flat_map(Series::points).map(|point| point.1));
        let axis = if is_log { Axis::logarithmic(low, high, most) } else { Axis::new(low, high, most, true) };
        visible = axes(&mut text, curves, style, &axis, steps);
    }
    legend(&mut text, curves, style, &visible);
    text
}

/// Whether a linear axis would show little but the first values of curves.
pub(in crate::report) fn is_log(values: impl Iterator<Item = f64>) -> bool {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let (Some(low), Some(high)) = (values.first(), values.last()) else { return false };
    let is_at_bottom = values[values.len() / 2] - low < BOTTOM * (high - low);
    *low > 0.0 && (high / low >= CURVES_LOG_FROM || (high / low >= BOTTOM_LOG_FROM && is_at_bottom))
}

/// An axis from its lower to its upper end.
#[derive(Clone)]
pub(in crate::report) struct Axis {
    is_log: bool,
    /// Both ends, as logarithms on a logarithmic axis.
    ends: [f64; 2],
    /// Values that have a label.
    pub(in crate::report) ticks: Vec<f64>,
}

impl Axis {
    /// With about `most` labels; logarithmic if values span decades, unless `linear`.
    pub(in crate::report) fn new(low: f64, high: f64, most: usize, linear: bool) -> Self {
        if !linear && low > 0.0 && high / low >= LOG_FROM {
            return Self::logarithmic(low, high, most);
        }
        // Draw a constant curve in the middle; a curve that varies only in the last bits counts as constant.
        let is_flat = high - low <= FLAT * low.abs().max(high.abs());
        let room = match (is_flat, high) {
            (false, _) => 0.0,
            (true, 0.0) => 1.0,
            (true, high) => high.abs() * 0.5,
        };
        let (low, high) = (low - room, high + room);
        let exact = (high - low) / most as f64;
        let decade = 10f64.powf(exact.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * decade).find(|s| *s >= exact).unwrap_or(exact);
        let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
        let ends = [first, last].map(|i| i as f64 * step);
        Self { is_log: false, ends, ticks: (first..=last).map(|i| i as f64 * step).collect() }
    }

    /// A logarithmic axis; linear if an end has no logarithm.
    pub(in crate::report) fn logarithmic(low: f64, high: f64, most: usize) -> Self {
        if !(low > 0.0 && low.is_finite() && high > 0.0 && high.is_finite()) {
            return Self::new(low, high, most, true);
        }
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let within = |digits: &[f64], every: usize| -> Vec<f64> {
            let all =
                decades.clone().step_by(every).flat_map(|d| digits.iter().map(move |m| m * 10f64.powi(d)));
            all.filter(|tick| (low..=high).contains(tick)).collect()
        };
        let mut ticks = within(&[1.0, 2.0, 5.0], 1);
        let mut every = 1;
        while ticks.len() > most {
            ticks = within(&[1.0], every);
            every += 1;
        }
        Self { is_log: true, ends: [low.log10(), high.log10()], ticks }
    }

    /// The position of a value, from 0 at the lower end to 1 at the upper end.
    pub(in crate::report) fn place(&self, value: f64) -> f64 {
        let value = if self.is_log { value.log10() } else { value };
        (value - self.ends[0]) / (self.ends[1] - self.ends[0])
    }
}

/// Draws the curves between their axes; returns those of which a cell can be seen.
fn axes(
    text: &mut String,
    curves: &[Series],
    style: &Style,
    axis: &Axis,
    [first, last]: [f64; 2],
) -> Vec<usize> {
    let labels: Vec<String> = axis.ticks.iter().map(|tick| tick_label(*tick)).collect();
    let margin = labels.iter().map(String::len).max().unwrap_or(0) + 1;
    let mut canvas = Canvas::new(style.width.saturating_sub(margin + 2).clamp(16, 400), style.height.max(4));
    let (columns, rows) = canvas.dots();
    let dot = |share: f64, dots: usize| (share.clamp(0.0, 1.0) * (dots - 1) as f64).round() as usize;
    for (number, curve) in curves.iter().enumerate() {
        let span = if last > first { last - first } else { 1.0 };
        let place = |(step, value): (f64, f64)| {
            (dot((step - first) / span, columns), rows - 1 - dot(axis.place(value), rows))
        };
        let mut points = curve.points().map(place);
        let Some(mut from) = points.next() else { continue };
        canvas.line(from, from, number);
        for to in points {
            canvas.line(from, to, number);
            from = to;
        }
    }
    let tick_rows: Vec<usize> =
        axis.ticks.iter().map(|tick| (rows - 1 - dot(axis.place(*tick), rows)) / 4).collect();
    for row in 0..canvas.height {
        let label = tick_rows.iter().position(|tick| *tick == row).map(|i| labels[i].as_str());
        let edge = if label.is_some() { '┤' } else { '│' };
        let _ = write!(text, "{:>margin$} {edge}", label.unwrap_or_default());
        let end = text.len();
        for cell in canvas.row(row) {
            match cell {
                Some((dots, curve)) => text.push_str(&mark(dots, curve, curves, style)),
                None => text.push(' '),
            }
        }
        text.truncate(end + text[end..].trim_end_matches(' ').len());
        text.push('\n');
    }
    let cells = (0..canvas.height).flat_map(|row| canvas.row(row));
    let visible = cells.flatten().map(|(_, curve)| curve).collect();
    let _ = writeln!(text, "{:margin$} └{}", "", "─".repeat(canvas.width));
    let [first, last] = [first, last].map(|step| units::count(step as u64));
    let middle = canvas.width.saturating_sub(first.len() + "step".len());
    let _ = writeln!(
        text,
        "{:margin$}  {first}{:^middle$}{last}\n",
        "",
        "step",
        middle = middle.saturating_sub(last.len()) + 4
    );
    visible
}

/// Formats as `0.001`, or as `1e-5` if that is shorter.
pub(in crate::report) fn tick_label(value: f64) -> String {
    // Ticks are computed by addition, so their last digits are noise.
    let rounded = format!("{value:.4e}").parse().unwrap_or(value);
    let [plain, short] = [format!("{rounded}"), format!("{rounded:e}")];
    let is_plain = value == 0.0 || (1e-3..1e5).contains(&value.abs());
    if is_plain { plain } else { short }
}

/// A cell of a curve.
fn mark(dots: char, curve: usize, curves: &[Series], style: &Style) -> String {
    let is_pale = curves[curve].is_pale;
    let place = curves[..curve].iter().filter(|curve| !curve.is_pale).count();
    let color = if is_pale { PALE } else { COLORS[place % COLORS.len()] };
    match (style.color, curves) {
        (true, _) => format!("\x1b[{color}m{dots}\x1b[0m"),
        (false, [_]) => dots.to_string(),
        (false, _) if is_pale => '\u{b7}'.to_string(),
        (false, _) => SYMBOLS[place % SYMBOLS.len()].to_string(),
    }
}

/// A line per curve: its name, and its last, lowest and highest value. If that is wider than the chart, the
/// values go below the name, as many as fit.
fn legend(text: &mut String, curves: &[Series], style: &Style, visible: &[usize]) {
    let longest = curves.iter().map(|curve| curve.name.chars().count()).max().unwrap_or(0);
    let most = style.width.saturating_sub("  xx ".len()).max(8);
    for (number, curve) in curves.iter().enumerate() {
        let mark = mark('⠤', number, curves, style);
        let name = shortened(&escape_line(&curve.name), most);
        let words = match curves[number + 1..].iter().any(|other| other.is_drawn_as(curve)) {
            true => vec!["hidden by an equal curve below".to_owned()],
            false if curve.last().is_none() || visible.contains(&number) => figures(curve),
            false => {
                let hidden = "hidden by curves below";
                let all = figures(curve).into_iter().map(|words| format!("{hidden}: {words}"));
                all.chain([hidden.to_owned()]).collect()
            }
        };
        let width = longest.min(most);
        let fits = |taken: usize| move |words: &&String| taken + words.chars().count() <= style.width;
        let beside = words.first().filter(fits(width + 7)).map(|words| format!("{name:width$}  {words}"));
        let below = || words.iter().find(fits(5)).map(|words| format!("{name}\n     {words}"));
        let line = beside.or_else(below).unwrap_or(name);
        let _ = write!(text, "  {mark}{mark} {}", line.trim_end()); // writing to a String cannot fail
        text.push('\n');
    }
}

/// A curve's figures as text, with variants from long to short.
fn figures(curve: &Series) -> Vec<String> {
    let lost = match curve.not_finite {
        0 => String::new(),
        count => format!("; {} not finite", units::counted(count, "value")),
    };
    let (Some((_, last)), Some(low), Some(high)) = (curve.last(), curve.lowest(), curve.highest()) else {
        return vec![lost];
    };
    let at =
        |(step, value): (f64, f64)| format!("{} at step {}", units::number(value), units::count(step as u64));
    let last = format!("last {}", units::number(last));
    [format!("{last}, lowest {}, highest {}", at(low), at(high)), format!("{last}, lowest {}", at(low)), last]
        .map(|words| words + &lost)
        .into()
}

/// The end of a name that is longer than `most` characters.
pub(in crate::report) fn shortened(name: &str, most: usize) -> String {
    let count = name.chars().count();
    if count <= most {
        name.to_owned()
    } else {
        format!("…{}", name.chars().skip(count + 1 - most).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_without_a_logarithm_makes_the_axis_linear() {
        for [low, high] in [[0.0, 10.0], [-1.0, 10.0], [1.0, f64::INFINITY], [f64::NAN, 1.0]] {
            assert!(!Axis::logarithmic(low, high, 6).is_log, "{low} {high}");
        }
    }

    #[test]
    fn values_at_the_bottom_of_a_linear_axis_make_it_logarithmic() {
        let falls = |values: &[f64]| is_log(values.iter().copied());
        assert!(falls(&[2.3, 1.0, 0.45, 0.4, 0.38, 0.36, 0.35]) && falls(&[5.0, 0.5]));
        assert!(!falls(&[2.3, 2.0, 1.5, 1.0, 0.8, 0.6, 0.5]) && !falls(&[5.0, 0.51]));
        assert!(!falls(&[0.9, 0.35, 0.34, 0.33, 0.32]), "it spans less than a factor of three");
        assert!(!falls(&[2.3, 0.1, 0.1, 0.0]) && !falls(&[]));
    }

    #[test]
    fn ticks_are_round_numbers() {
        let labels = |low, high| -> Vec<String> {
            Axis::new(low, high, 5, false).ticks.iter().map(|tick| tick_label(*tick)).collect()
        };
        assert_eq!(labels(0.0, 1e-4), ["0", "2e-5", "4e-5", "6e-5", "8e-5", "1e-4"]);
        assert_eq!(labels(-0.1, 0.2), ["-0.1", "0", "0.1", "0.2"]);
        assert_eq!(labels(3.0, 3.0), ["1", "2", "3", "4", "5"]);
        assert_eq!(labels(3.0, 3.001), ["1", "2", "3", "4", "5"]);
        assert_eq!(labels(3.0, 3.002), ["3", "3.0005", "3.001", "3.0015", "3.002"]);
        assert_eq!(labels(2e-7, 3e5), ["1e-4", "0.1", "100", "1e5"]);
    }
}
