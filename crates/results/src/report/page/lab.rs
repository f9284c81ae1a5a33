//! What the lab measured: the products of matmul runs with their times, as the terminal has them, and a chart of these.

use super::{
    Content,
    bars::{self, Bar, Part},
    html::Html,
    svg::{self, Frame, Svg},
    table,
};
use crate::{
    files::csv_lines,
    report::{
        ReportError,
        grid::{Column, Columns},
        grouping::{distinct, grouped},
        plot::Axis,
        setting_name::named,
    },
    units,
};
use std::path::Path;

/// Axes of a sweep that a product itself tells.
const OF_PRODUCT: [&str; 3] = ["matmul.sizes", "matmul.shapes", "matmul.order"];

/// Maximum lines in the chart, one for each colour.
const MOST_LINES: usize = 7;

/// What is free at each end of an axis, as a share of the distance between its extremes.
const MARGIN: f64 = 0.05;

/// Labels of an axis.
const LABELS: usize = 8;

/// A row of `matmul.csv`.
struct Product {
    device: String,
    order: String,
    shape: [f64; 3],
    count: f64,
    total_s: f64,
    log_s: f64,
    norm_sum: Option<f64>,
    /// The median, the shortest and the longest time of a product.
    spread: [f64; 3],
}

/// A row with the run that it is of.
type Row = (usize, Product);

impl Product {
    /// `200 x 100 x 50`.
    fn shape_in_words(&self) -> String {
        self.shape.map(|axis| format!("{axis}")).join(" x ")
    }

    /// The side of square matrices whose product takes as many operations.
    fn side(&self) -> f64 {
        self.shape.iter().product::<f64>().cbrt()
    }

    fn rate(&self) -> Option<f64> {
        let median_s = self.spread[0];
        (median_s > 0.0).then(|| 2.0 * self.shape.iter().product::<f64>() / median_s)
    }

    /// `150 µs to 70.0 ms`.
    fn range(&self) -> String {
        format!("{} to {}", units::seconds(self.spread[1]), units::seconds(self.spread[2]))
    }
}

impl Content<'_> {
    /// Adds the lab's section: of several runs first the rates side by side.
    pub(super) fn lab(&mut self) {
        let comparison = self.comparison;
        self.section("lab", "What the lab measured", |content, html| {
            let rows = content.product_rows();
            let all = comparison.runs.len();
            for (title, columns, _) in comparison.findings.tables(&|place| comparison.run_name(place)) {
                if all > 1 || rows.is_empty() {
                    table::table(html, title, &columns);
                }
            }
            if !rows.is_empty() {
                content.times_of_products(html, &rows);
                table::table(html, "Products and the times that one takes", &content.columns_of(&rows));
            }
        });
    }

    fn product_rows(&mut self) -> Vec<Row> {
        let runs = &self.comparison.runs;
        let places: Vec<usize> = (0..runs.len()).filter(|&place| runs[place].kind() == "matmul").collect();
        let mut rows = Vec::new();
        for place in places {
            let own = self.file_of(place, "matmul.csv", read);
            rows.extend(own.into_iter().map(|product| (place, product)));
        }
        rows
    }

    fn columns_of(&self, rows: &[Row]) -> Vec<Column> {
        let mut columns = Columns::new(rows);
        if self.comparison.runs.len() > 1 {
            columns.words("run", |(place, _)| self.comparison.run_name(*place));
        }
        columns.words("device", |(_, own)| own.device.clone());
        columns.words("order", |(_, own)| own.order.clone());
        columns.words("product", |(_, own)| own.shape_in_words());
        columns.figures("count", |count| units::count(count as u64), |(_, own)| Some(own.count));
        columns.figures("median", units::seconds, |(_, own)| Some(own.spread[0]));
        columns.words("min to max", |(_, own)| own.range());
        columns.figures("FLOP/s, median", units::rate, |(_, own)| own.rate());
        let against_cpu = |row: &Row| self.against_cpu(rows, row);
        columns.figures("speed against cpu", |ratio| format!("{}x", units::number(ratio)), against_cpu);
        let logged = |own: &Product| (own.log_s > 0.0).then_some(own.log_s);
        columns.figures("log", units::seconds, |(_, own)| logged(own));
        columns.figures("of the time", units::percent, |(_, own)| logged(own).map(|log| log / own.total_s));
        columns.figures("norms, summed", units::number, |(_, own)| own.norm_sum);
        columns.known()
    }

    /// How many times as fast as the CPU of the same run a device is; nothing for virtual ones, which are the CPU.
    fn against_cpu(&self, rows: &[Row], (place, own): &Row) -> Option<f64> {
        let is_base =
            |(other, product): &&Row| other == place && product.device == "cpu" && product.shape == own.shape;
        if own.device == "cpu" || own.device.starts_with("virtual") || own.spread[0] <= 0.0 {
            return None;
        }
        rows.iter().find(is_base).map(|(_, base)| base.spread[0] / own.spread[0])
    }

    /// The median time of a product by its size, with a line for each device; of one size a bar for each row.
    fn times_of_products(&mut self, html: &mut Html, rows: &[Row]) {
        let sides = distinct(rows.iter().map(|(_, own)| own.side().to_bits())).len();
        let names = self.names_of_lines(rows);
        if sides > 1 {
            let Some(drawing) = draw_products(rows, &names) else { return };
            let title = "Median time of a product by the size of its matrices";
            let words = |(name, (_, own)): (&String, &Row)| {
                format!("{name} {}: {}", own.shape_in_words(), units::seconds(own.spread[0]))
            };
            let label = names.iter().zip(rows).map(words).collect::<Vec<_>>().join("; ");
            self.figure(html, ("products", title, &format!("{title}; {label}")), drawing);
        } else if rows.len() > 1 {
            let bar = |(name, (_, own)): (&String, &Row)| Bar {
                name: name.clone(),
                parts: vec![Part {
                    class: "f0",
                    amount: own.spread[0],
                    words: units::seconds(own.spread[0]),
                }],
                sum: units::seconds(own.spread[0]),
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
            [&|_| String::new(), &of_axes, &|place| comparison.run_name(place)];
        let name = |of_run: &dyn Fn(usize) -> String, (place, own): &Row| {
            format!("{} {} {}", of_run(*place).trim(), own.device, own.order).trim().to_owned()
        };
        let names = |of_run| -> Vec<String> { rows.iter().map(|row| name(of_run, row)).collect() };
        let are_clear = |names: &Vec<String>| {
            let products = names.iter().zip(rows).map(|(name, (_, own))| (name, own.shape.map(f64::to_bits)));
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
    let ends = |values: &dyn Fn(&Product) -> f64| {
        let all = rows.iter().map(|(_, own)| values(own)).filter(|value| *value > 0.0);
        all.fold([f64::INFINITY, 0.0], |[low, high]: [f64; 2], v| [low.min(v), high.max(v)])
    };
    let ([least, most], [fastest, slowest]) = (ends(&Product::side), ends(&|own| own.spread[0]));
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
    lines.truncate(MOST_LINES);
    lines.iter_mut().for_each(|(_, products)| products.sort_by(|a, b| a.side().total_cmp(&b.side())));
    let are_square = rows.iter().all(|(_, own)| own.shape.iter().all(|axis| *axis == own.shape[0]));
    let across = if are_square { "n of n x n matrices" } else { "cube root of m k n" };
    // The sizes that were measured, rather than round ones.
    let mut sides: Vec<f64> = rows.iter().map(|(_, own)| own.side()).collect();
    sides.sort_by(f64::total_cmp);
    sides.dedup();
    let ticks: Vec<(f64, String)> =
        sides.iter().map(|side| (frame.across(*side), units::count(side.round() as u64))).collect();
    let drawn = frame.draw([across, "seconds"], &ticks, |html| {
        for (number, (name, products)) in lines.iter().enumerate() {
            let known = || products.iter().filter(|own| own.spread[0] > 0.0);
            let at = |own: &&&Product| [frame.across(own.side()), frame.up(own.spread[0])];
            svg::polyline(html, &format!("c{number} main"), known().map(|own| at(&own)));
            for own in known() {
                let title = format!("{name} {}: {}", own.shape_in_words(), units::seconds(own.spread[0]));
                svg::dot(html, &format!("f{number}"), at(&own), 4.0, &title);
            }
            // Times rise from left to right: there is room for names above the first.
            let [x, y] = [frame.at(0.0) + 16.0, 20.0 + 16.0 * number as f64];
            svg::dot(html, &format!("f{number}"), [x, y - 4.0], 4.0, name);
            svg::text(html, [x + 10.0, y], "start", name);
        }
    });
    Some(drawn)
}

fn read(path: &Path) -> Result<Vec<Product>, ReportError> {
    let mut products = Vec::new();
    let columns = [
        "device", "order", "m", "k", "n", "count", "total_s", "log_s", "norm_sum", "p50_s", "min_s", "max_s",
    ];
    csv_lines::for_each_row(path, columns, |cells| {
        let number = |place: usize| {
            let cell: &str = cells[place];
            cell.parse::<f64>().map_err(|_| format!("`{cell}` is not a number"))
        };
        let order = if cells[1] == "sequential" { "" } else { cells[1] };
        products.push(Product {
            device: cells[0].to_owned(),
            order: order.to_owned(),
            shape: [number(2)?, number(3)?, number(4)?],
            count: number(5)?,
            total_s: number(6)?,
            log_s: number(7)?,
            norm_sum: cells[8].parse().ok(),
            spread: [number(9)?, number(10)?, number(11)?],
        });
        Ok(())
    })?;
    Ok(products)
}
