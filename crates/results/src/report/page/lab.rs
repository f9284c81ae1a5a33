//! What the lab measured: the products of matmul runs with their times, as the terminal has them, and a chart of these.

use super::{
    Content,
    bars::{self, Bar, Part},
    html::Html,
    svg::{self, Frame, Svg},
    table,
};
use crate::{
    event::ProductRow,
    record::{PRODUCTS, Shown, in_words},
    report::{
        grid::{Column, Columns},
        grouping::{distinct, grouped},
        lab::order_in_words,
        plot::Axis,
        setting_name::named,
    },
    units,
};

/// Axes of a sweep that a product itself tells.
const OF_PRODUCT: [&str; 3] = ["matmul.sizes", "matmul.shapes", "matmul.order"];

/// Maximum lines in the chart, one for each colour.
const MOST_LINES: usize = 7;

/// What is free at each end of an axis, as a share of the distance between its extremes.
const MARGIN: f64 = 0.05;

/// Labels of an axis.
const LABELS: usize = 8;

/// A row of `matmul.csv` with the run that it is of.
type Row = (usize, ProductRow);

/// The side of square matrices whose product takes as many operations.
fn side(row: &ProductRow) -> f64 {
    row.shape.iter().map(|axis| *axis as f64).product::<f64>().cbrt()
}

impl Content<'_> {
    /// Adds the lab's section: of several runs first the rates side by side.
    pub(super) fn lab(&mut self) {
        let comparison = self.comparison;
        self.section("lab", "What the lab measured", |content, html| {
            let rows = &comparison.findings.rows;
            let all = comparison.runs.len();
            for (title, columns, _) in comparison.findings.tables(&|place| comparison.numbers(&[place])) {
                if all > 1 || rows.is_empty() {
                    table::table(html, title, &columns);
                }
            }
            if !rows.is_empty() {
                content.times_of_products(html, rows);
                table::table(html, "Products and the times that one takes", &content.columns_of(rows));
            }
        });
    }

    /// The terminal's columns, with those that tell rows of several runs and orders apart.
    fn columns_of(&self, rows: &[Row]) -> Vec<Column> {
        let mut columns = Columns::new(rows);
        if self.comparison.runs.len() > 1 {
            columns.words("run", |(place, _)| self.comparison.numbers(&[*place]));
        }
        columns.words("order", |(_, own)| order_in_words(own.order));
        for (title, shown) in PRODUCTS {
            match shown {
                Shown::Words(words) => columns.words(title, |(_, own)| words(own)),
                Shown::Figure(figure, word) => columns.figures(title, word, |(_, own)| figure(own)),
            }
        }
        let against_cpu = |row: &Row| self.against_cpu(rows, row);
        columns.figures("speed against cpu", |ratio| format!("{}x", units::number(ratio)), against_cpu);
        columns.known()
    }

    /// How many times as fast as the CPU of the same run a device is; nothing for virtual ones, which are the CPU.
    fn against_cpu(&self, rows: &[Row], (place, own): &Row) -> Option<f64> {
        let is_base =
            |(other, product): &&Row| other == place && product.device == "cpu" && product.shape == own.shape;
        if own.device == "cpu" || own.device.starts_with("virtual") || own.spread.p50_s <= 0.0 {
            return None;
        }
        rows.iter().find(is_base).map(|(_, base)| base.spread.p50_s / own.spread.p50_s)
    }

    /// The median time of a product by its size, with a line for each device; of one size a bar for each row.
    fn times_of_products(&mut self, html: &mut Html, rows: &[Row]) {
        let sides = distinct(rows.iter().map(|(_, own)| side(own).to_bits())).len();
        let names = self.names_of_lines(rows);
        if sides > 1 {
            let Some(drawing) = draw_products(rows, &names) else { return };
            let title = "Median time of a product by the size of its matrices";
            let words = |(name, (_, own)): (&String, &Row)| {
                format!("{name} {}: {}", in_words(own.shape), units::seconds(own.spread.p50_s))
            };
            let label = names.iter().zip(rows).map(words).collect::<Vec<_>>().join("; ");
            self.figure(html, ("products", title, &format!("{title}; {label}")), drawing);
        } else if rows.len() > 1 {
            let bar = |(name, (_, own)): (&String, &Row)| Bar {
                name: name.clone(),
                parts: vec![Part {
                    class: "f0",
                    amount: own.spread.p50_s,
                    words: units::seconds(own.spread.p50_s),
                }],
                sum: units::seconds(own.spread.p50_s),
            };
            let bars: Vec<Bar> = names.iter().zip(rows).map(bar).collect();
            bars::draw(html, &[("median time of a product", "f0")], &bars);
        }
    }

    /// What each row's line or bar is of: the device and the order; if these have a product several times, also the other axes of
    /// their runs, or else the runs.
    fn names_of_lines(&self, rows: &[Row]) -> Vec<String> {
        let comparison = self.comparison;
        let is_other = |key: &&String| !OF_PRODUCT.contains(&key.as_str());
        let keys: Vec<String> = comparison.axes.iter().filter(is_other).cloned().collect();
        let of_axes = |place: usize| {
            let values = keys.iter().map(|key| comparison.runs[place].axis(key).unwrap_or_default());
            named(&keys, values)
        };
        let of_run: [&dyn Fn(usize) -> String; 3] =
            [&|_| String::new(), &of_axes, &|place| comparison.numbers(&[place])];
        let name = |of_run: &dyn Fn(usize) -> String, (place, own): &Row| {
            format!("{} {} {}", of_run(*place).trim(), own.device, order_in_words(own.order))
                .trim()
                .to_owned()
        };
        let names = |of_run| -> Vec<String> { rows.iter().map(|row| name(of_run, row)).collect() };
        let are_clear = |names: &Vec<String>| {
            let products = names.iter().zip(rows).map(|(name, (_, own))| (name, own.shape));
            distinct(products).len() == rows.len()
        };
        // Lines over several machines would compare nothing.
        let first = if comparison.warning().is_some() { 2 } else { 0 };
        of_run[first..]
            .iter()
            .map(|of_run| names(*of_run))
            .find(are_clear)
            .unwrap_or_else(|| names(of_run[2]))
    }
}

/// The times over the sizes, with a line for each name of rows.
fn draw_products(rows: &[Row], names: &[String]) -> Option<Svg> {
    let ends = |values: &dyn Fn(&ProductRow) -> f64| {
        let all = rows.iter().map(|(_, own)| values(own)).filter(|value| *value > 0.0);
        all.fold([f64::INFINITY, 0.0], |[low, high]: [f64; 2], v| [low.min(v), high.max(v)])
    };
    let ([least, most], [fastest, slowest]) = (ends(&side), ends(&|own| own.spread.p50_s));
    if fastest >= slowest {
        return None;
    }
    // No dot lies on the frame.
    let axis = |low: f64, high: f64| {
        let margin = (high / low).powf(MARGIN);
        Axis::logarithmic(low / margin, high * margin, LABELS)
    };
    let frame = Frame::new(640.0, 320.0, axis(least, most), axis(fastest, slowest));
    let mut lines = grouped(names.iter().zip(rows).map(|(name, (_, own))| (name, own)));
    let more = lines.len().saturating_sub(MOST_LINES);
    lines.truncate(MOST_LINES);
    lines.iter_mut().for_each(|(_, products)| products.sort_by(|a, b| side(a).total_cmp(&side(b))));
    let are_square = rows.iter().all(|(_, own)| own.shape.iter().all(|axis| *axis == own.shape[0]));
    let across = if are_square { "n of n x n matrices" } else { "cube root of m k n" };
    // The sizes that were measured, rather than round ones.
    let mut sides: Vec<f64> = rows.iter().map(|(_, own)| side(own)).collect();
    sides.sort_by(f64::total_cmp);
    sides.dedup();
    let ticks: Vec<(f64, String)> =
        sides.iter().map(|side| (frame.across(*side), units::count(side.round() as u64))).collect();
    let drawn = frame.draw([across, "seconds"], &ticks, |html| {
        for (number, (name, products)) in lines.iter().enumerate() {
            let known = || products.iter().filter(|own| own.spread.p50_s > 0.0);
            let at = |own: &&&ProductRow| [frame.across(side(own)), frame.up(own.spread.p50_s)];
            svg::polyline(html, &format!("c{number} main"), known().map(|own| at(&own)));
            for own in known() {
                let title = format!("{name} {}: {}", in_words(own.shape), units::seconds(own.spread.p50_s));
                svg::dot(html, &format!("f{number}"), at(&own), 4.0, &title);
            }
            // Times rise from left to right: there is room for names above the first.
            let [x, y] = [frame.at(0.0) + 16.0, 20.0 + 16.0 * number as f64];
            svg::dot(html, &format!("f{number}"), [x, y - 4.0], 4.0, name);
            svg::text(html, [x + 10.0, y], "start", name);
        }
        if more > 0 {
            let [x, y] = [frame.at(0.0) + 16.0, 20.0 + 16.0 * lines.len() as f64];
            svg::text(html, [x + 10.0, y], "start", &format!("and {more} more, in the table"));
        }
    });
    Some(drawn)
}
