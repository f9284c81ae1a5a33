//! Parallel coordinates: all settings over all axes.

use super::{
    html::{Attributes, Html},
    scale::{Drawn, MOST_CHARACTERS, MOST_SETTINGS, Scale, metric_labels},
    svg::px,
};
use crate::report::plot::{Axis, shortened};
/// From this number of axes on they are too many for a narrow screen.
const ROOM: usize = 4;

/// In pixels: the height of the drawing, and where its axes begin and end.
const HEIGHT: f64 = 250.0;
const ENDS: [f64; 2] = [26.0, 236.0];

/// The axes that are shown, selected from all keys.
struct Axes<'a> {
    shown: &'a [usize],
    names: &'a [&'a str],
    scales: &'a [Scale<'a>],
}

/// Draws a line per setting, with the best ones in colour.
pub(super) fn parallel(
    html: &mut Html,
    drawn: &Drawn<'_>,
    shown: &[usize],
    names: &[&str],
    scales: &[Scale<'_>],
) {
    let title = "All settings at once";
    let axes = Axes { shown, names, scales };
    let ranking = drawn.ranking;
    let Some(y) = drawn.axis() else { return };
    let of_shown: Vec<&str> = shown.iter().map(|&key| names[key]).collect();
    let label = format!(
        "Parallel coordinates: {} settings over {}, and {}",
        ranking.settings.len(),
        of_shown.join(", "),
        ranking.metric.name
    );
    html.with("figure", &[("class", &"drawn")], |html| {
        html.words("figcaption", &[], title);
        // With many axes, a narrow screen can scroll the drawing, also by keyboard.
        let scroll: Attributes<'_> =
            &[("class", &"wide"), ("tabindex", &0), ("role", &"region"), ("aria-label", &title)];
        let class = if shown.len() < ROOM { "" } else { "axes" };
        let size: Attributes<'_> = &[
            ("width", &"100%"),
            ("height", &HEIGHT),
            ("class", &class),
            ("role", &"img"),
            ("aria-label", &label),
        ];
        html.with("div", scroll, |html| html.with("svg", size, |html| axes.draw(html, drawn, &y)));
        let note = "A line for each setting: the best one thick, the best fifth in colour.";
        html.prose("note", note);
    });
}

impl Axes<'_> {
    fn draw(&self, html: &mut Html, Drawn { ranking, stopped, .. }: &Drawn<'_>, y: &Axis) {
        let metric = &ranking.metric;
        let heights = |values: &[String], value: f64| -> Vec<f64> {
            let own = self.shown.iter().map(|&key| up(self.scales[key].place(&values[key])));
            own.chain([up(y.place(value))]).collect()
        };
        for own in stopped {
            let title = format!("{}: {}", own.name, metric.word(own.value));
            self.line(html, "faint dashed", &title, &heights(&own.values, own.value));
        }
        // The best is drawn last, above the others.
        let drawn = ranking.settings.len().min(MOST_SETTINGS);
        for (place, setting) in ranking.settings[..drawn].iter().enumerate().rev() {
            let class = match place {
                0 => "c0 best",
                place if place * 5 < drawn => "c0",
                _ => "faint",
            };
            let title = format!("{}: {}", words(self.names, &setting.values), metric.word(setting.value));
            self.line(html, class, &title, &heights(&setting.values, setting.value));
        }
        for (axis, &key) in self.shown.iter().enumerate() {
            self.axis(html, axis, self.names[key], &self.scales[key].labels());
        }
        self.axis(html, self.shown.len(), &metric.name, &metric_labels(y));
    }

    /// Draws a setting's line across the axes.
    fn line(&self, html: &mut Html, class: &str, title: &str, heights: &[f64]) {
        html.with("g", &[("class", &class)], |html| {
            html.words("title", &[], title);
            for (axis, pair) in heights.windows(2).enumerate() {
                let [from, to] = [axis, axis + 1].map(|axis| self.across(axis));
                html.empty("line", &[("x1", &from), ("y1", &pair[0]), ("x2", &to), ("y2", &pair[1])]);
            }
        });
    }

    /// Draws an axis with its name and labels.
    fn axis(&self, html: &mut Html, axis: usize, name: &str, labels: &[(f64, String)]) {
        let x = self.across(axis);
        html.empty("line", &[("class", &"axis"), ("x1", &x), ("x2", &x), ("y1", &ENDS[1]), ("y2", &ENDS[0])]);
        let fitting =
            if self.shown.len() < ROOM { name.to_owned() } else { shortened(name, MOST_CHARACTERS) };
        html.words("text", &[("x", &x), ("y", &12), ("text-anchor", &"middle")], &fitting);
        // On the left of the first axis there are no lines.
        let (beside, anchor) = if axis == 0 { (-6, "end") } else { (6, "start") };
        for (share, label) in labels {
            let place: Attributes<'_> = &[
                ("x", &x),
                ("dx", &beside),
                ("y", &(up(*share) + 4.0)),
                ("text-anchor", &anchor),
                ("class", &"soft halo"),
            ];
            html.words("text", place, label);
        }
    }

    fn across(&self, axis: usize) -> String {
        format!("{:.1}%", 11.0 + 78.0 * axis as f64 / self.shown.len() as f64)
    }
}

fn up(share: f64) -> f64 {
    px(ENDS[1] - share * (ENDS[1] - ENDS[0]))
}

fn words(names: &[&str], values: &[String]) -> String {
    let pairs = names.iter().zip(values).map(|(name, value)| format!("{name} {value}"));
    pairs.collect::<Vec<_>>().join(", ")
}
