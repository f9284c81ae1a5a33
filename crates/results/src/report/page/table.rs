//! Tables and lists of figures.

use super::html::Html;
use crate::{report::grid::Column, units};

/// A table with more rows than this scrolls.
const MOST_ROWS: usize = 25;

/// A table with a row per line, which the script makes sortable.
pub(super) fn table(html: &mut Html, caption: &str, columns: &[Column]) {
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let class = |column: &Column| if column.numeric { "number" } else { "words" };
    // A wide table scrolls, also by keyboard.
    let class_of_all = if rows > MOST_ROWS { "wide tall" } else { "wide" };
    let scroll: super::html::Attributes<'_> =
        &[("class", &class_of_all), ("tabindex", &0), ("role", &"region"), ("aria-label", &caption)];
    html.with("div", scroll, |html| {
        html.with("table", &[("class", &"sortable")], |html| {
            html.with("caption", &[], |html| html.sentences(caption));
            html.with("thead", &[], |html| {
                html.with("tr", &[], |html| {
                    for column in columns {
                        html.words("th", &[("scope", &"col"), ("class", &class(column))], &column.title);
                    }
                });
            });
            let places: Vec<Vec<Option<usize>>> =
                columns.iter().map(|column| places(&column.exact)).collect();
            html.with("tbody", &[], |html| {
                for row in 0..rows {
                    html.with("tr", &[], |html| {
                        for (column, places) in columns.iter().zip(&places) {
                            let (class, place) = (class(column), places.get(row).copied().flatten());
                            let place = place.map(|place| place.to_string()).unwrap_or_default();
                            let both: super::html::Attributes<'_> =
                                &[("class", &class), ("data-place", &place)];
                            let attributes = if place.is_empty() { &both[..1] } else { both };
                            html.words("td", attributes, &column.cells[row]);
                        }
                    });
                }
            });
        });
    });
}

/// The rank of each value among all, with equal values sharing a rank: a short sort key that is exact even
/// though the cells are rounded.
fn places(exact: &[Option<f64>]) -> Vec<Option<usize>> {
    // Adding 0 turns -0 into +0.
    let mut order: Vec<f64> = exact.iter().flatten().map(|value| value + 0.0).collect();
    order.sort_by(f64::total_cmp);
    order.dedup();
    let place = |value: f64| order.binary_search_by(|known| known.total_cmp(&(value + 0.0))).ok();
    exact.iter().map(|value| value.and_then(place)).collect()
}

/// The first row of some columns, each with its title.
pub(super) fn facts(html: &mut Html, columns: &[Column]) {
    html.with("dl", &[("class", &"facts")], |html| {
        for column in columns {
            html.with("div", &[], |html| {
                html.words("dt", &[], &column.title);
                html.words("dd", &[], &column.cells[0]);
            });
        }
    });
}

/// `1,234` of a cell that holds a whole number.
pub(super) fn whole(text: &str) -> String {
    text.parse().map_or_else(|_| text.to_owned(), units::count)
}

/// Something that is opened by a click where there is much of it.
pub(super) fn folded(html: &mut Html, summary: &str, is_much: bool, inner: impl FnOnce(&mut Html)) {
    if !is_much {
        inner(html);
        return;
    }
    html.with("details", &[], |html| {
        html.words("summary", &[], summary);
        inner(html);
    });
}
