//! The roofline: the performance of steps compared with the measured limits of the machine.

use super::{
    Content,
    svg::{self, Frame, px},
};
use crate::{
    report::{plot::Axis, run::Run},
    units,
};

/// Maximum number of settings described below the chart.
const MOST_IN_WORDS: usize = 8;

/// A run's step on the roofline, and its machine.
struct Point {
    place: usize,
    flops_per_byte: f64,
    flops_per_s: f64,
    roof: Roof,
}

/// Measured rates of a device.
#[derive(Clone, Copy, PartialEq)]
struct Roof {
    flops_per_s: f64,
    cache_bytes_per_s: f64,
    memory_bytes_per_s: f64,
}

impl Point {
    /// `None` if a rate was not measured.
    fn new(run: &Run, place: usize) -> Option<Self> {
        let positive = |figure: &f64| figure.is_finite() && *figure > 0.0;
        let step = |key: &str| run.environment_number(&format!("step.{key}")).filter(positive);
        let flops = step("flops")?;
        Some(Self {
            place,
            flops_per_byte: flops / step("bytes")?,
            flops_per_s: flops * run.number("steps_per_s").filter(positive)?,
            roof: Roof {
                flops_per_s: step("flops_per_s")?,
                cache_bytes_per_s: step("cache_bytes_per_s")?,
                memory_bytes_per_s: step("memory_bytes_per_s")?,
            },
        })
    }

    /// Whether it reached more than its machine is said to.
    fn is_above(&self) -> bool {
        self.flops_per_s > self.roof.flops_per_s.min(self.flops_per_byte * self.roof.cache_bytes_per_s)
    }
}

impl Content<'_> {
    /// Adds the settings that ran on the same machine as the first of them.
    pub(super) fn roofline(&mut self) {
        let runs = &self.comparison.runs;
        let places = self.firsts().into_iter().filter(|&place| !runs[place].is_virtual());
        let mut points: Vec<Point> = places.filter_map(|place| Point::new(&runs[place], place)).collect();
        let Some(roof) = points.first().map(|point| point.roof) else { return };
        let all = points.len();
        points.retain(|point| point.roof == roof);
        let others = all - points.len();
        self.section("roofline", "Roofline", |content, html| {
            let words: Vec<String> = points.iter().map(|point| content.point_in_words(point)).collect();
            let drawing = content.draw_roofline(&points);
            let title = "Arithmetic of a step beside the measured rates of its device";
            let shown = &words[..words.len().min(MOST_IN_WORDS)];
            content.figure(html, ("roofline", title, &format!("{title}; {}", shown.join("; "))), drawing);
            let note = "Bytes are those that pass between instructions and memory if no cache keeps them. Rates were measured by \
                        `runner devices --measure`.";
            let mut notes: Vec<String> = shown.to_vec();
            if words.len() > MOST_IN_WORDS {
                notes.push(format!("{} more are in the chart alone.", words.len() - MOST_IN_WORDS));
            }
            if others > 0 {
                let others = units::counted(others as u64, "setting");
                notes.push(format!("Not shown: {others} with other measured rates, such as those of another machine."));
            }
            notes.push(note.to_owned());
            if points.iter().any(Point::is_above) {
                let words = "A point above the roof did more than was measured: the machine was slower then, or caches keep \
                             what is counted.";
                notes.push(words.to_owned());
            }
            notes.iter().for_each(|words| html.prose("note", words));
        });
    }

    /// `#0 0.1: 11.0 GFLOP/s, 6.9 % of the peak, at 3.60 FLOP per byte`.
    fn point_in_words(&self, point: &Point) -> String {
        let rate = units::rate(point.flops_per_s);
        let space = if rate.ends_with(|c: char| c.is_ascii_digit()) { " " } else { "" };
        let name =
            if self.comparison.runs.len() > 1 { self.name(point.place) } else { "This run".to_owned() };
        format!(
            "{name}: {rate}{space}FLOP/s, {} of the peak, at {} FLOP per byte",
            units::percent(point.flops_per_s / point.roof.flops_per_s),
            units::number(point.flops_per_byte)
        )
    }

    fn draw_roofline(&self, points: &[Point]) -> svg::Svg {
        let Roof { flops_per_s: peak, cache_bytes_per_s: cache, memory_bytes_per_s: memory } = points[0].roof;
        let fold = |figure: fn(&Point) -> f64, end: fn(f64, f64) -> f64, start: f64| {
            points.iter().map(figure).fold(start, end)
        };
        let from = fold(|point| point.flops_per_byte, f64::min, peak / cache) / 4.0;
        let to = fold(|point| point.flops_per_byte, f64::max, peak / memory) * 4.0;
        let low = fold(|point| point.flops_per_s, f64::min, from * memory) / 2.0;
        let high = fold(|point| point.flops_per_s, f64::max, peak) * 2.0;
        let (x, y) = (Axis::logarithmic(from, to, 6), Axis::logarithmic(low, high, 6));
        let frame = Frame::new(520.0, 320.0, x, y).with_large_figures();
        frame.draw(["FLOP per byte", "FLOP per second"], &frame.ticks(), |html| {
            let roofs = [(memory, "memory", "c1 main"), (cache, "cache", "c0 main")];
            // Draw a single line if both would coincide.
            for (bytes_per_s, name, class) in roofs.into_iter().take(if cache > 1.1 * memory { 2 } else { 1 })
            {
                let bend = (peak / bytes_per_s).min(to);
                let line = [(from, from * bytes_per_s), (bend, (bend * bytes_per_s).min(peak)), (to, peak)];
                svg::polyline(html, class, line.into_iter().map(|(x, y)| [frame.across(x), frame.up(y)]));
                let middle = (from * bend).sqrt();
                let [x, y] = [frame.across(middle), frame.up(middle * bytes_per_s)];
                svg::text(html, [px(x - 8.0), px(y - 6.0)], "end", name);
            }
            svg::text(html, [frame.at(1.0), px(frame.up(peak) - 7.0)], "end", "arithmetic");
            let at = |point: &Point| [frame.across(point.flops_per_byte), frame.up(point.flops_per_s)];
            for point in points {
                svg::dot(html, "f2", at(point), 5.0, &self.point_in_words(point));
            }
            if let [point] = points {
                let [x, y] = at(point);
                svg::text(html, [px(x + 9.0), px(y + 14.0)], "start", "this run");
            }
        })
    }
}
