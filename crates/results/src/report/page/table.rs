//! Tables and lists of figures.

use super::html::Html;
use crate::{report::grid::Column, units};

/// A table with more rows than this scrolls.
const TALL: usize = 25;

/// Maximum rows of a table. Browsers take long for more.
pub(super) const MOST_ROWS: usize = 1000;

/// A table with a row per line, which the script makes sortable; a note tells of rows that are left out.
pub(super) fn table(html: &mut Html, caption: &str, columns: &[Column]) {
    let all = columns.first().map_or(0, |column| column.cells.len());
    let rows = all.min(MOST_ROWS);
    let class = |column: &Column| if column.numeric { "number" } else { "words" };
    // A wide table scrolls, also by keyboard.
    let class_of_all = if rows > TALL { "wide tall" } else { "wide" };
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
    if rows < all {
        let [rows, all] = [rows, all].map(|count| units::count(count as u64));
        let words = format!("The first {rows} of {all} rows; `runner compare --export csv` has all.");
        html.prose("note", &words);
    }
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

/// Figures with their titles.
pub(super) fn facts<'a>(html: &mut Html, facts: impl Iterator<Item = (&'a str, &'a str)>) {
    html.with("dl", &[("class", &"facts")], |html| {
        for (title, words) in facts {
            html.with("div", &[], |html| {
                html.words("dt", &[], title);
                html.words("dd", &[], words);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_cut_says_so() {
        for (rows, note) in [(1000, None), (1234, Some("The first 1,000 of 1,234 rows; "))] {
            let mut html = Html::default();
            table(&mut html, "x", &[Column::of_numbers("a", (0..rows).map(|row| row.to_string()))]);
            let html = html.into_string();
            assert!(html.contains(">999</td>") && !html.contains(">1000</td>"), "{rows}");
            let found = html.split_once("<p class=\"note\">").map(|(_, note)| note);
            assert_eq!(
                found.map(|found| found.starts_with(note.unwrap_or("?"))),
                note.map(|_| true),
                "{html}"
            );
        }
    }
}
