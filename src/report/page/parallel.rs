//! Parallel coordinates: all settings over all axes.

use super::{
    html::{Attributes, Html},
    scale::{MOST_SETTINGS, Scale, axis_of, metric_labels, shortened},
    svg::px,
};
use crate::report::ranking::{Candidate, Ranking};

/// From this number of axes on they are too many for a narrow screen.
const ROOM: usize = 4;

/// All settings over all axes: a line for each, the best in colour.
pub(super) fn parallel(
    html: &mut Html,
    ranking: &Ranking,
    shown: &[usize],
    names: &[&str],
    scales: &[Scale<'_>],
) {
    let metric = &ranking.metric;
    let Some(y) = axis_of(ranking) else { return };
    let count = shown.len();
    let of_shown: Vec<&str> = shown.iter().map(|&key| names[key]).collect();
    let at = |axis: usize| 11.0 + 78.0 * axis as f64 / count as f64;
    let (top, height) = (26.0, 250.0);
    let up = |share: f64| px(top + (1.0 - share) * (height - top - 14.0));
    let label = format!(
        "Parallel coordinates: {} settings over {}, and {}",
        ranking.settings.len(),
        of_shown.join(", "),
        metric.name
    );
    html.with("figure", &[("class", &"drawn")], |html| {
        html.words("figcaption", &[], "All settings at once");
        // A narrow screen is scrolled, also by keys, where axes are many.
        let scroll: Attributes<'_> = &[
            ("class", &"wide"),
            ("tabindex", &0),
            ("role", &"region"),
            ("aria-label", &"All settings at once"),
        ];
        let class = if count < ROOM { "" } else { "axes" };
        let size: Attributes<'_> = &[
            ("width", &"100%"),
            ("height", &height),
            ("class", &class),
            ("role", &"img"),
            ("aria-label", &label),
        ];
        html.with("div", scroll, |html| {
            html.with("svg", size, |html| {
                // The best is drawn last, above the others.
                let drawn = ranking.settings.len().min(MOST_SETTINGS);
                for (place, setting) in ranking.settings[..drawn].iter().enumerate().rev() {
                    let class = match place {
                        0 => "c0 best",
                        place if place * 5 < drawn => "c0",
                        _ => "faint",
                    };
                    let own = shown.iter().map(|&key| up(scales[key].place(&setting.values[key])));
                    let heights: Vec<f64> = own.chain([up(y.place(setting.value))]).collect();
                    let title = format!("{}: {}", words(names, setting), metric.word(setting.value));
                    across_axes(html, class, &title, &heights, &at);
                }
                let labels = shown.iter().map(|&key| scales[key].labels()).chain([metric_labels(&y)]);
                let all = of_shown.iter().copied().chain([metric.name.as_str()]);
                for (axis, (labels, name)) in labels.zip(all).enumerate() {
                    let x = format!("{:.1}%", at(axis));
                    html.empty(
                        "line",
                        &[("class", &"axis"), ("x1", &x), ("x2", &x), ("y1", &up(1.0)), ("y2", &up(0.0))],
                    );
                    let fitting = if count < ROOM { name.to_owned() } else { shortened(name) };
                    html.words("text", &[("x", &x), ("y", &12), ("text-anchor", &"middle")], &fitting);
                    // No line passes on the left of the first axis.
                    let (beside, anchor) = if axis == 0 { (-6, "end") } else { (6, "start") };
                    for (share, label) in labels {
                        let place: Attributes<'_> = &[
                            ("x", &x),
                            ("dx", &beside),
                            ("y", &(up(share) + 4.0)),
                            ("text-anchor", &anchor),
                            ("class", &"soft halo"),
                        ];
                        html.words("text", place, &label);
                    }
                }
            })
        });
        html.words(
            "p",
            &[("class", &"note")],
            "A line for each setting: the best one thick, the best fifth in colour.",
        );
    });
}

/// A setting's line from axis to axis.
fn across_axes(html: &mut Html, class: &str, title: &str, heights: &[f64], at: &dyn Fn(usize) -> f64) {
    html.with("g", &[("class", &class)], |html| {
        html.words("title", &[], title);
        for (axis, pair) in heights.windows(2).enumerate() {
            let [from, to] = [axis, axis + 1].map(|axis| format!("{:.1}%", at(axis)));
            html.empty("line", &[("x1", &from), ("y1", &pair[0]), ("x2", &to), ("y2", &pair[1])]);
        }
    });
}

fn words(names: &[&str], setting: &Candidate) -> String {
    names
        .iter()
        .zip(&setting.values)
        .map(|(name, value)| format!("{name} {value}"))
        .collect::<Vec<_>>()
        .join(", ")
}
