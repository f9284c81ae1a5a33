//! Heat maps: a shaded table on the page, and a drawing in a file.

use super::{
    Content,
    html::{Attributes, Html},
    svg::{self, Svg},
};

/// The strongest shade.
pub(super) const SHADES: f64 = 9.0;

/// From this shade on, text has the other colour.
const STRONG: usize = 7;

/// The distance of lines in a drawing.
const LINE: f64 = 14.0;

/// A heat map: rows and columns with their names.
pub(super) struct HeatMap<'a> {
    /// The name of its file.
    pub(super) name: &'a str,
    pub(super) caption: &'a str,
    /// The meaning of rows and of columns.
    pub(super) axes: [&'a str; 2],
    pub(super) rows: &'a [&'a str],
    pub(super) columns: &'a [&'a str],
}

impl Content<'_> {
    /// `cell` returns the lines of a cell and its shade from 0 to 9.
    pub(super) fn heat_table(
        &mut self,
        html: &mut Html,
        map: &HeatMap<'_>,
        cell: impl Fn(&str, &str) -> Option<(String, usize)>,
    ) {
        let cells: Vec<Vec<Option<(String, usize)>>> =
            map.rows.iter().map(|row| map.columns.iter().map(|column| cell(row, column)).collect()).collect();
        let scroll: Attributes<'_> =
            &[("class", &"wide"), ("tabindex", &0), ("role", &"region"), ("aria-label", &map.caption)];
        html.with("div", scroll, |html| {
            html.with("table", &[("class", &"heat")], |html| {
                html.words("caption", &[], map.caption);
                html.with("tr", &[], |html| {
                    html.words("th", &[("scope", &"col")], &format!("{} \\ {}", map.axes[0], map.axes[1]));
                    map.columns.iter().for_each(|column| html.words("th", &[("scope", &"col")], column));
                });
                for (row, cells) in map.rows.iter().zip(&cells) {
                    html.with("tr", &[], |html| {
                        html.words("th", &[("scope", &"row")], row);
                        for cell in cells {
                            match cell {
                                Some((words, shade)) => {
                                    html.with("td", &[("class", &format!("h{shade}"))], |html| {
                                        lines(html, words)
                                    });
                                }
                                None => html.words("td", &[], ""),
                            }
                        }
                    });
                }
            });
        });
        self.keep(map.name, draw(map, &cells).with_heading(map.caption).file(map.caption));
    }
}

/// Text whose lines stand below each other.
fn lines(html: &mut Html, text: &str) {
    for (number, line) in text.lines().enumerate() {
        if number > 0 {
            html.empty("br", &[]);
        }
        html.text(line);
    }
}

fn draw(map: &HeatMap<'_>, cells: &[Vec<Option<(String, usize)>>]) -> Svg {
    // A digit of a 12-pixel font is 7 pixels wide.
    let longest = |words: &mut dyn Iterator<Item = &str>| {
        words.map(|words| words.chars().count()).max().unwrap_or(0) as f64 * 7.0
    };
    let left = longest(&mut map.rows.iter().copied()) + 34.0;
    let texts = || cells.iter().flatten().flatten().map(|(words, _)| words.as_str());
    let all = texts().flat_map(str::lines);
    let most = texts().map(|words| words.lines().count()).max().unwrap_or(1);
    let width = longest(&mut all.chain(map.columns.iter().copied())).max(18.0) + 14.0;
    let height = 12.0 + LINE * most as f64;
    // The names of the axes may be longer than these.
    let beyond = |name: &str, size: f64| ((longest(&mut [name].into_iter()) - size) / 2.0).max(0.0);
    let of_rows = beyond(map.axes[0], height * map.rows.len() as f64);
    let of_columns = beyond(map.axes[1], width * map.columns.len() as f64);
    let left = left.max(of_columns + 10.0);
    let top = (of_rows + 10.0).max(46.0);
    let across = |column: usize| left + width * column as f64;
    let down = |row: usize| top + height * row as f64;
    let mut html = Html::default();
    let middle = across(0).midpoint(across(map.columns.len()));
    svg::text(&mut html, [middle, top - 30.0], "middle", map.axes[1]);
    let place = format!("translate(14 {}) rotate(-90)", top.midpoint(down(map.rows.len())));
    html.words("text", &[("transform", &place), ("text-anchor", &"middle"), ("class", &"soft")], map.axes[0]);
    for (column, name) in map.columns.iter().enumerate() {
        svg::text(&mut html, [across(column) + width / 2.0, top - 8.0], "middle", name);
    }
    for (row, (name, cells)) in map.rows.iter().zip(cells).enumerate() {
        // Where the text of one line is.
        let middle = down(row) + height / 2.0 + 4.0;
        svg::text(&mut html, [left - 8.0, middle], "end", name);
        for (column, cell) in cells.iter().enumerate() {
            let Some((words, shade)) = cell else { continue };
            let (x, y) = (across(column), down(row));
            let class = format!("h{shade}");
            let size: Attributes<'_> = &[
                ("class", &class),
                ("x", &x),
                ("y", &y),
                ("width", &(width - 1.0)),
                ("height", &(height - 1.0)),
            ];
            html.empty("rect", size);
            let class = if *shade < STRONG { "" } else { "strong" };
            let first = middle - LINE * (words.lines().count() as f64 - 1.0) / 2.0;
            for (number, line) in words.lines().enumerate() {
                let place: Attributes<'_> = &[
                    ("x", &(x + width / 2.0)),
                    ("y", &(first + LINE * number as f64)),
                    ("text-anchor", &"middle"),
                    ("class", &class),
                ];
                html.words("text", place, line);
            }
        }
    }
    Svg::new(across(map.columns.len()) + of_columns + 10.0, down(map.rows.len()) + of_rows + 10.0, html)
}
