//! Tables and lists of figures.

use super::html::Html;
use crate::report::grid::Column;

/// A longer table is scrolled.
const MOST_ROWS: usize = 25;

/// A column of words.
pub(super) fn words(title: &str, cells: impl Iterator<Item = String>) -> Column {
    Column { title: title.to_owned(), numeric: false, cells: cells.collect() }
}

/// A table with a line for each row, which the script makes sortable.
pub(super) fn table(html: &mut Html, caption: &str, columns: &[Column]) {
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let class = |column: &Column| if column.numeric { "number" } else { "words" };
    // A wide table is scrolled, also by keys.
    let class_of_all = if rows > MOST_ROWS { "wide tall" } else { "wide" };
    let scroll: super::html::Attributes<'_> =
        &[("class", &class_of_all), ("tabindex", &0), ("role", &"region"), ("aria-label", &caption)];
    html.with("div", scroll, |html| {
        html.with("table", &[("class", &"sortable")], |html| {
            html.words("caption", &[], caption);
            html.with("thead", &[], |html| {
                html.with("tr", &[], |html| {
                    for column in columns {
                        html.words("th", &[("scope", &"col"), ("class", &class(column))], &column.title);
                    }
                });
            });
            html.with("tbody", &[], |html| {
                for row in 0..rows {
                    html.with("tr", &[], |html| {
                        for column in columns {
                            html.words("td", &[("class", &class(column))], &column.cells[row]);
                        }
                    });
                }
            });
        });
    });
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

/// The darkest shade of a heat map.
pub(super) const SHADES: f64 = 9.0;

/// A table whose cells are shaded: the words of a cell, and its shade from 0 to 9.
pub(super) fn heat_map(
    html: &mut Html,
    caption: &str,
    (corner, rows, columns): (&str, &[&str], &[&str]),
    cell: impl Fn(&str, &str) -> Option<(String, usize)>,
) {
    let scroll: super::html::Attributes<'_> =
        &[("class", &"wide"), ("tabindex", &0), ("role", &"region"), ("aria-label", &caption)];
    html.with("div", scroll, |html| {
        html.with("table", &[("class", &"heat")], |html| {
            html.words("caption", &[], caption);
            html.with("tr", &[], |html| {
                html.words("th", &[("scope", &"col")], corner);
                columns.iter().for_each(|column| html.words("th", &[("scope", &"col")], column));
            });
            for row in rows {
                html.with("tr", &[], |html| {
                    html.words("th", &[("scope", &"row")], row);
                    for column in columns {
                        match cell(row, column) {
                            Some((words, shade)) => {
                                html.words("td", &[("class", &format!("h{shade}"))], &words)
                            }
                            None => html.words("td", &[], ""),
                        }
                    }
                });
            }
        });
    });
}
