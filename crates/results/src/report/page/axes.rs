//! The effect of a sweep's axes: each alone, and two together.

use super::{
    Content,
    heat::HeatMap,
    html::Html,
    scale::{Drawn, MOST_SETTINGS, Scale},
    svg::{self, Frame},
};
use crate::{
    report::{effects::Effects, grouping::levels, key::short, plot::Axis, ranking::Ranking},
    units,
};

/// Maximum axes drawn side by side.
const MOST_AXES: usize = 8;

/// Maximum rows, and columns, of a heat map.
const MOST_CELLS: usize = 24;

impl Content<'_> {
    /// Adds what is known about the axes of a ranking.
    pub(super) fn axes(&mut self, html: &mut Html, ranking: &Ranking) {
        let keys = &ranking.keys;
        let names = short(keys);
        let effects = Effects::new(self.comparison, ranking);
        let known = effects.as_ref().and_then(|effects| effects.as_ref().ok());
        let drawn = Drawn::new(self.comparison, ranking);
        let scales: Vec<Scale> = (0..keys.len()).map(|key| drawn.scale(key)).collect();
        let mut order: Vec<usize> = (0..keys.len()).collect();
        if let Some(effects) = known {
            order.sort_by(|a, b| effects.axes[*b].share.total_cmp(&effects.axes[*a].share));
        }
        let mut shown = order[..keys.len().min(MOST_AXES)].to_vec();
        shown.sort_unstable();
        html.with("div", &[("class", &"panels")], |html| {
            for &key in &shown {
                let scale = &scales[key];
                let share = known.map(|effects| effects.axes[key].share);
                // Levels of an estimate may be ranges, which have no place on the axis.
                let levels = known.filter(|effects| effects.estimate.is_none());
                let levels = levels.map(|effects| &effects.axes[key].levels[..]).unwrap_or_default();
                self.main_effect(html, &drawn, (key, names[key], scale), share, levels);
            }
        });
        if shown.len() < keys.len() {
            let which = if known.is_some() { "with the largest shares" } else { "that come first" };
            let words = format!("Of {} axes the {} {which} are drawn.", keys.len(), shown.len());
            html.prose("note", &words);
        }
        drawn.notes().iter().for_each(|words| html.prose("note", words));
        if let Some(words) = effects.map(|effects| shares_in_words(&effects)) {
            html.prose("note", &words);
        }
        if keys.len() > 1 {
            let pair = [order[0], order[1]];
            if drawn.is_sampled() {
                self.scatter(html, &drawn, pair.map(|key| (key, names[key], &scales[key])));
            } else {
                self.heat_map(html, ranking, pair.map(|key| keys[key].clone()));
            }
        }
    }

    /// Each setting's value over the values of an axis, with the means per value.
    fn main_effect(
        &mut self,
        html: &mut Html,
        drawn: &Drawn<'_>,
        (key, name, scale): (usize, &str, &Scale),
        share: Option<f64>,
        levels: &[(String, f64)],
    ) {
        let (ranking, metric) = (drawn.ranking, &drawn.ranking.metric);
        let Some(y) = drawn.axis() else { return };
        let frame = Frame::new(300.0, 210.0, Axis::new(0.0, 1.0, 2, true), y);
        let place = |value: &str| frame.at(scale.place(value));
        let ticks: Vec<(f64, String)> =
            scale.labels().into_iter().map(|(share, label)| (frame.at(share), label)).collect();
        let drawing = frame.draw([name, &metric.name], &ticks, |html| {
            for own in &drawn.stopped {
                let title = format!("{}: {}", own.name, metric.word(own.value));
                svg::dot(html, "hollow", [place(&own.values[key]), frame.up(own.value)], 3.0, &title);
            }
            for setting in ranking.settings.iter().take(MOST_SETTINGS) {
                let value = &setting.values[key];
                let title =
                    format!("{}: {}", ranking.name(self.comparison, setting), metric.word(setting.value));
                svg::dot(html, "dot", [place(value), frame.up(setting.value)], 3.0, &title);
            }
            let mut means: Vec<[f64; 2]> =
                levels.iter().map(|(level, mean)| [place(level), frame.up(*mean)]).collect();
            means.sort_by(|a, b| a[0].total_cmp(&b[0]));
            svg::polyline(html, "c0 main", means.iter().copied());
            for (level, mean) in levels {
                let title = format!("{name} {level}: mean {}", metric.word(*mean));
                svg::dot(html, "f0", [place(level), frame.up(*mean)], 4.0, &title);
            }
        });
        let share = share.map(|share| format!(", {} of the variance", units::percent(share)));
        let title = format!("{name}{}", share.unwrap_or_default());
        let means: Vec<String> =
            levels.iter().map(|(level, mean)| format!("{level}: {}", metric.word(*mean))).collect();
        let label = format!("{} by {name}; means: {}", metric.name, means.join(", "));
        self.figure(html, (&format!("effect-{name}"), &title, &label), drawing);
    }

    /// A heat map of the metric over two axes, folded over the others.
    fn heat_map(&mut self, html: &mut Html, ranking: &Ranking, by: [String; 2]) {
        let metric = &ranking.metric;
        let places = ranking.settings.iter().flat_map(|setting| setting.places.iter().copied());

        let Ok(folded) = Ranking::sorted(self.comparison, &places.collect::<Vec<_>>(), metric, &by) else {
            return;
        };
        let [rows, columns] =
            [0, 1].map(|key| levels(folded.settings.iter().map(|setting| setting.values[key].as_str())));
        if rows.len().max(columns.len()) > MOST_CELLS {
            return;
        }
        let shade = Drawn::of_settings(&folded).shades();
        let names = short(&by);
        let caption =
            format!("{} by {} and {}: the stronger the colour, the better", metric.name, names[0], names[1]);
        let cell = |row: &str, column: &str| {
            let setting = folded.settings.iter().find(|setting| setting.values == [row, column])?;
            Some((metric.word(setting.value), shade(setting.value)))
        };
        let name = format!("{}-by-{}-and-{}", metric.name, names[0], names[1]);
        let axes = [names[0], names[1]];
        self.heat_table(
            html,
            &HeatMap { name: &name, caption: &caption, axes, rows: &rows, columns: &columns },
            cell,
        );
    }

    /// The metric over two axes whose values were drawn: as good as no cell of a heat map would have a neighbour.
    fn scatter(&mut self, html: &mut Html, drawn: &Drawn<'_>, axes: [(usize, &str, &Scale); 2]) {
        let (ranking, metric) = (drawn.ranking, &drawn.ranking.metric);
        let [(x, across, of_x), (y, up, of_y)] = axes;
        let (Scale::Numbers(to_x), Scale::Numbers(to_y)) = (of_x, of_y) else { return };
        let frame = Frame::new(440.0, 320.0, to_x.clone(), to_y.clone());
        let shade = drawn.shades();
        let drawing = frame.draw([across, up], &frame.ticks(), |html| {
            let at = |values: &[String]| {
                let number = |key: usize| values[key].parse::<f64>().unwrap_or(f64::NAN);
                [frame.across(number(x)), frame.up(number(y))]
            };
            for own in &drawn.stopped {
                let title = format!("{}: {}", own.name, metric.word(own.value));
                svg::dot(html, "hollow", at(&own.values), 4.0, &title);
            }
            // The best is drawn last, above the others.
            for setting in ranking.settings.iter().take(MOST_SETTINGS).rev() {
                let title =
                    format!("{}: {}", ranking.name(self.comparison, setting), metric.word(setting.value));
                svg::dot(html, &format!("h{}", shade(setting.value)), at(&setting.values), 5.0, &title);
            }
        });
        let title = format!("{} by {across} and {up}: the stronger the colour, the better", metric.name);
        let best = ranking.settings.first();
        let best = best.map(|best| format!("; best: {}", ranking.name(self.comparison, best)));
        let label = format!("{title}{}", best.unwrap_or_default());
        self.figure(
            html,
            (&format!("{}-by-{across}-and-{up}", metric.name), &title, &label),
            drawing.with_heading(&title),
        );
    }
}

/// What the shares above the charts are of, and what no axis alone explains.
fn shares_in_words(effects: &Result<Effects, String>) -> String {
    let effects = match effects {
        Ok(effects) => effects,
        Err(reason) => return format!("Shares of the variance are not known: {reason}."),
    };
    let of = match (&effects.estimate, &effects.of_seeds) {
        (Some(how), seeds) => format!("Shares of the variance of ranks, {how}{seeds}."),
        (None, seeds) => format!("Shares of the variance{seeds}."),
    };
    let rest = effects.rest.iter().map(|(name, share, words)| {
        let words = if words.is_empty() { String::new() } else { format!(", {words}") };
        format!("{name}{words}: {}", units::percent(*share))
    });
    format!("{of} {}.", capitalized(&rest.collect::<Vec<_>>().join("; ")))
}

fn capitalized(words: &str) -> String {
    let mut characters = words.chars();
    characters
        .next()
        .map(|first| first.to_uppercase().collect::<String>() + characters.as_str())
        .unwrap_or_default()
}
