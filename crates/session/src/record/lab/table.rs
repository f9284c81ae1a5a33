//! The lab's results for people: a table of products or copies, or the steps of a tour one by one.

use std::fmt;

use Shown::{Figure, Words};

use crate::{
    event::{CopyRow, Event, Outcome, ProductRow, Spread, StepRow, StepStatus, Together},
    record::{messages, text_table},
    spec::lab::Order,
    units,
};

/// A note printed below figures of virtual devices.
pub const VIRTUAL: &str =
    "virtual devices share the host's processor and memory: their times say nothing of GPUs";

/// What a column shows of a row.
pub enum Shown<R> {
    Words(fn(&R) -> String),
    /// A figure, and how it is rounded.
    Figure(fn(&R) -> Option<f64>, fn(f64) -> String),
}

/// A column: its heading and its cells.
pub type Column<R> = (&'static str, Shown<R>);

/// The columns of products of matrices.
pub const PRODUCTS: [Column<ProductRow>; 10] = [
    ("device", Words(|row| row.device.clone())),
    ("product", Words(|row| in_words(row.shape))),
    ("threads", Figure(|row| row.threads.map(|count| count as f64), |count| units::count(count as u64))),
    ("count", Figure(|row| Some(row.count as f64), |count| units::count(count as u64))),
    ("median", Figure(|row| Some(row.spread.p50_s), units::seconds)),
    ("min to max", Words(|row| min_to_max(&row.spread))),
    ("FLOP/s, median", Figure(ProductRow::median_flop_per_s, units::rate)),
    ("log", Figure(logged_s, units::seconds)),
    ("of the time", Figure(|row| logged_s(row).map(|log_s| log_s / row.total_s), units::percent)),
    ("norms, summed", Figure(|row| row.norm_sum, units::number)),
];

const COPIES: [Column<CopyRow>; 8] = [
    ("from", Words(|row| row.from.clone())),
    ("to", Words(|row| row.to.clone())),
    ("memory", Words(|row| row.memory.unwrap_or_default().to_owned())),
    ("size", Words(|row| units::bytes(row.bytes))),
    ("count", Words(|row| units::count(row.count))),
    ("median", Figure(|row| Some(row.spread.p50_s), units::seconds)),
    ("min to max", Words(|row| min_to_max(&row.spread))),
    ("B/s, median", Figure(|row| row.gb_per_s().map(|rate| rate * 1e9), units::rate)),
];

fn logged_s(row: &ProductRow) -> Option<f64> {
    (row.log_s > 0.0).then_some(row.log_s)
}

fn min_to_max(Spread { min_s, max_s, .. }: &Spread) -> String {
    format!("{} to {}", units::seconds(*min_s), units::seconds(*max_s))
}

/// Rows that share a header.
#[derive(Default)]
pub struct LabTable {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// The number of columns on the left that are text.
    words: usize,
    notes: Vec<String>,
    products: Vec<ProductRow>,
}

impl LabTable {
    /// Takes an event that adds a row or a note.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Product(row) => {
                self.push(&PRODUCTS, 1, row);
                self.products.push(row.clone());
            }
            Event::Copy(row) => self.push(&COPIES, 3, row),
            Event::Together(Together { devices, order, shape, wall_s }) if devices.len() > 1 => {
                let names = devices.join(", ");
                let how = match order {
                    Order::Sequential => format!("on {names}, one after the other"),
                    Order::Concurrent => format!("on {names}, at once"),
                };
                self.notes.push(format!("{} {how}: {}", in_words(*shape), units::seconds(*wall_s)));
            }
            _ => {}
        }
    }

    /// How much of the run's time went into the rows.
    pub fn work(&self, work_s: f64) -> Option<String> {
        let (rows, rest) = match (self.rows.is_empty(), self.products.is_empty()) {
            (true, _) => return None,
            (false, false) => {
                ("products", "start-up, random matrices and first products, which do not count")
            }
            (false, true) => ("copies", "start-up and first copies, which do not count"),
        };
        Some(format!("these {rows}: {}; the rest: {rest}", units::seconds(work_s)))
    }

    /// What moved to the host so that steps could print it; `None` for products and copies, which print times alone.
    pub fn printing(&self, outcome: &Outcome) -> Option<String> {
        let of = |kind| outcome.transfers.iter().filter(move |row| (row.kind, row.purpose) == (kind, "log"));
        let [copies, waits] = ["d2h", "sync"].map(|kind| of(kind).map(|row| row.count).sum::<u64>());
        let bytes: u64 = of("d2h").filter_map(|row| row.bytes).sum();
        (copies > 0 && self.rows.is_empty()).then(|| {
            let copies =
                if copies == 1 { "1 copy".to_owned() } else { format!("{} copies", units::count(copies)) };
            format!(
                "  printing moved {} in {copies}, {}\n",
                units::bytes(bytes),
                units::counted(waits, "wait")
            )
        })
    }

    /// Adds notes about anything that makes the figures less meaningful than they seem.
    pub fn note_doubts(&mut self, outcome: &Outcome, any_virtual: bool, build: &str) {
        if !self.rows.is_empty() {
            if any_virtual {
                self.notes.push(VIRTUAL.to_owned());
            } else {
                self.notes.extend(against_cpu(&self.products));
            }
            self.notes.extend(of_means(&self.products));
            self.notes.extend(noise(outcome));
            self.notes.extend(messages::of_build(build).map(|words| format!("build {words}")));
        }
    }

    fn push<R>(&mut self, columns: &[Column<R>], words: usize, row: &R) {
        (self.header, self.words) = (columns.iter().map(|(title, _)| *title).collect(), words);
        let cell = |(_, shown): &Column<R>| match shown {
            Words(words) => words(row),
            Figure(figure, word) => figure(row).map(word).unwrap_or_default(),
        };
        self.rows.push(columns.iter().map(cell).collect());
    }
}

/// Notes of which rows no product was timed alone, so that their range is narrower than that of single ones.
fn of_means(products: &[ProductRow]) -> Option<String> {
    let means = products.iter().filter(|row| row.in_a_row > 1);
    let [least, most] = [means.clone().map(|row| row.count).min()?, means.map(|row| row.in_a_row).max()?];
    let in_a_row = if most > 2 { format!("2 to {}", units::count(most)) } else { "2".to_owned() };
    Some(format!(
        "from a count of {} on, median, min and max are of means of {in_a_row} products in a row",
        units::count(least)
    ))
}

/// Notes that others used the cores: over a window of half a second or more if there was one, else by how long the run waited for
/// a core.
fn noise(outcome: &Outcome) -> Option<String> {
    if let Some(load) = &outcome.load {
        let others = messages::others_used(load)?;
        return Some(format!("noise: {others} in the last {}", units::seconds(load.window_s)));
    }
    outcome.core_wait_share.and_then(messages::waited_for_a_core).map(|words| format!("noise: {words}"))
}

/// Notes how many times as fast as the CPU each GPU is by median products of each shape, and from which shape on it is faster.
fn against_cpu(products: &[ProductRow]) -> Vec<String> {
    let (cpu, gpus): (Vec<_>, Vec<_>) = products.iter().partition(|row| row.device == "cpu");
    let mut names: Vec<&str> = gpus.iter().map(|row| row.device.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let line = |name: &str| {
        let mut own: Vec<_> = gpus.iter().filter(|row| row.device == name).collect();
        own.sort_by_key(|row| row.shape.map(|axis| axis as u128).iter().product::<u128>());
        let ratio = |row: &ProductRow| {
            let base = *cpu.iter().find(|other| other.shape == row.shape)?;
            let [own_s, base_s] = [row, base].map(|row| row.spread.p50_s);
            (own_s > 0.0).then(|| (in_words(row.shape), base_s / own_s))
        };
        let ratios: Vec<_> = own.iter().filter_map(|row| ratio(row)).collect();
        let (_, last) = ratios.last()?;
        let slower = ratios.iter().rposition(|(_, ratio)| *ratio <= 1.0);
        let turn = match slower {
            _ if *last <= 1.0 => "slower at the largest".to_owned(),
            None => "faster at all of them".to_owned(),
            Some(at) => format!("slower up to {}, faster from {} on", ratios[at].0, ratios[at + 1].0),
        };
        let list: Vec<_> =
            ratios.iter().map(|(shape, ratio)| format!("{}x at {shape}", units::number(*ratio))).collect();
        Some(format!("{name} against cpu: {}: {turn}", list.join(", ")))
    };
    names.into_iter().filter_map(line).collect()
}

/// `200 x 100 x 50`.
pub fn in_words(shape: [usize; 3]) -> String {
    shape.map(|axis| axis.to_string()).join(" x ")
}

/// Its lines and an empty line; nothing if there are no rows.
impl fmt::Display for LabTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rows.is_empty() {
            return Ok(());
        }
        f.write_str(&text_table::text(&self.header, &self.rows, |place| place >= self.words))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "  {note}"))?;
        writeln!(f)
    }
}

/// A step of a tour and its result.
pub(in crate::record) fn step_in_words(row: &StepRow) -> String {
    let mut text = format!("{}. {}\n", row.step, row.expression);
    text.extend(
        row.parameters.iter().map(|(name, shape, device)| format!("   {name} {shape:?} on {device}\n")),
    );
    let ended = match (row.status, &row.message) {
        (StepStatus::Same, _) => Some("it is there already: the same tensor, nothing is moved".to_owned()),
        (StepStatus::Raised, Some(message)) => Some(format!("raises, as declared: {message}")),
        (StepStatus::Skipped, Some(message)) => Some(format!("skipped: {message}")),
        (StepStatus::Failed, Some(message)) => Some(format!("failed: {message}")),
        _ => (row.copied_bytes > 0).then(|| format!("{} copied", units::bytes(row.copied_bytes))),
    };
    text.extend(ended.map(|words| format!("   {words}\n")));
    text.extend(row.shown.iter().map(|shown| format!("{shown}\n")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::load::Load;

    fn product() -> ProductRow {
        ProductRow {
            device: "cpu".to_owned(),
            order: Order::Sequential,
            shape: [200; 3],
            count: 20,
            total_s: 0.08,
            log_s: 0.0,
            norm_sum: None,
            spread: Spread::default(),
            in_a_row: 1,
            threads: Some(2),
        }
    }

    /// A product that was interrupted does not decide a figure, and what the others took is noted.
    #[test]
    fn products_show_their_median_and_spread() {
        let row = |device: &str, p50_s, max_s| ProductRow {
            device: device.to_owned(),
            threads: (device == "cpu").then_some(2),
            spread: Spread { p50_s, min_s: 1.5e-4, max_s },
            ..product()
        };
        let text = |load: Option<Load>| {
            let mut table = LabTable::default();
            table.take(&Event::Product(row("cpu", 1.6e-4, 0.07)));
            table.take(&Event::Product(row("gpu:0", 3.2e-4, 0.0004)));
            let outcome = Outcome { load, core_wait_share: Some(0.25), ..Outcome::default() };
            table.note_doubts(&outcome, false, "release");
            table.to_string()
        };
        insta::assert_snapshot!(text(None), @r"
        device          product  threads  count  median         min to max  FLOP/s, median
        cpu     200 x 200 x 200        2     20  160 µs  150 µs to 70.0 ms         100.0 G
        gpu:0   200 x 200 x 200              20  320 µs   150 µs to 400 µs         50.00 G
        gpu:0 against cpu: 0.5000x at 200 x 200 x 200: slower at the largest
        noise: 25.0 % of the time went into waiting for a core
        ");
        let load = |others_cores| Load { window_s: 1.0, others_cores, cores: 2, ..Load::default() };
        assert!(
            text(Some(load(0.9)))
                .ends_with("\n  noise: other processes used 0.90 of 2 cores in the last 1.00 s\n\n")
        );
        assert!(!text(Some(load(0.0))).contains("noise"));
    }

    #[test]
    fn means_of_several_products_are_called_so() {
        let row = |count, in_a_row| ProductRow { count, in_a_row, ..product() };
        assert_eq!(of_means(&[row(1024, 1)]), None);
        let words = |of: &str| {
            Some(format!(
                "from a count of 1,025 on, median, min and max are of means of {of} products in a row"
            ))
        };
        assert_eq!(of_means(&[row(1024, 1), row(2000, 2), row(1025, 2)]), words("2"));
        assert_eq!(of_means(&[row(5000, 8), row(1025, 2)]), words("2 to 8"));
    }

    #[test]
    fn the_size_from_which_a_gpu_is_faster_is_named() {
        let row = |device: &str, n: usize, total_s| ProductRow {
            device: device.to_owned(),
            shape: [n; 3],
            spread: Spread { p50_s: total_s / 2.0, ..Spread::default() },
            ..product()
        };
        let of = |times: [f64; 3]| {
            let cpu = [16, 64, 256].map(|n| row("cpu", n, 1.0));
            let gpu = [16, 64, 256].into_iter().zip(times).map(|(n, s)| row("gpu:0", n, s));
            against_cpu(&cpu.into_iter().chain(gpu).collect::<Vec<_>>()).concat()
        };
        insta::assert_snapshot!(of([4.0, 2.0, 0.1]), @"gpu:0 against cpu: 0.2500x at 16 x 16 x 16, 0.5000x at 64 x 64 x 64, 10.00x at 256 x 256 x 256: slower up to 64 x 64 x 64, faster from 256 x 256 x 256 on");
        assert!(of([0.5; 3]).ends_with(": faster at all of them"));
        assert!(of([2.0; 3]).ends_with(": slower at the largest"));
        assert_eq!(against_cpu(&[row("gpu:0", 16, 1.0)]), Vec::<String>::new());
    }
}
