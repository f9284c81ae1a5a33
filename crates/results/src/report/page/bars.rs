//! Stacked bars on a common scale, below a legend of their colours.

use super::html::{Attributes, Html};

/// A bar with its name in front and its formatted total behind.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) parts: Vec<Part>,
    pub(super) sum: String,
}

/// A segment of a bar: the CSS class of its colour, its length, and its meaning.
pub(super) struct Part {
    pub(super) class: &'static str,
    pub(super) amount: f64,
    pub(super) words: String,
}

impl Bar {
    fn length(&self) -> f64 {
        self.parts.iter().map(|part| part.amount).sum()
    }
}

/// Draws the legend and the bars; the longest bar fills the width. Draws nothing if all are empty.
pub(super) fn draw(html: &mut Html, colours: &[(&str, &'static str)], bars: &[Bar]) {
    let longest = bars.iter().map(Bar::length).fold(0.0, f64::max);
    if longest <= 0.0 {
        return;
    }
    html.with("ul", &[("class", &"key")], |html| {
        for (name, class) in colours {
            html.with("li", &[], |html| {
                html.with("svg", &[("width", &12), ("height", &12), ("aria-hidden", &"true")], |html| {
                    html.empty("rect", &[("width", &12), ("height", &12), ("class", class)]);
                });
                html.text(&name.replace('_', "-"));
            });
        }
    });
    html.with("div", &[("class", &"bars")], |html| {
        for bar in bars {
            html.words("span", &[], &bar.name);
            draw_bar(html, bar, longest);
            html.words("span", &[("class", &"number")], &bar.sum);
        }
    });
}

fn draw_bar(html: &mut Html, bar: &Bar, longest: f64) {
    let label = bar.parts.iter().map(|part| part.words.as_str()).collect::<Vec<_>>().join("; ");
    let size: Attributes<'_> =
        &[("width", &"100%"), ("height", &20), ("role", &"img"), ("aria-label", &label)];
    html.with("svg", size, |html| {
        let mut from = 0.0;
        for part in bar.parts.iter().filter(|part| part.amount > 0.0) {
            let percent = |share: f64| format!("{:.3}%", share * 100.0);
            let (x, width) = (percent(from / longest), percent(part.amount / longest));
            let place: Attributes<'_> =
                &[("class", &part.class), ("x", &x), ("width", &width), ("height", &20)];
            html.with("rect", place, |html| html.words("title", &[], &part.words));
            from += part.amount;
        }
    });
}
