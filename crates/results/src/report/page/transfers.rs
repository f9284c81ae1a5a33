//! What was copied between memories, by purpose.

use std::{collections::HashMap, path::Path};

use super::{
    Content,
    bars::{self, Bar, Part},
    html::Html,
    table::{self, whole},
};
use crate::{
    files::csv_lines,
    report::{
        ReportError,
        grid::{Column, Columns},
        grouping::distinct,
    },
    units,
};

/// The purposes of copies, with their colours.
const PURPOSES: [(&str, &str); 12] = [
    ("dataset", "f5"),
    ("batch", "f0"),
    ("gradients", "f1"),
    ("parameters", "f2"),
    ("log", "f4"),
    ("validation", "f3"),
    ("best", "f6"),
    ("constants", "f7"),
    ("launch", "f8"),
    ("digest", "f9"),
    ("checkpoint", "ink"),
    ("tensor", "f0"),
];

/// Stands for all other purposes.
const OTHER: &str = "rest";

/// Maximum settings side by side.
const MOST_SETTINGS: usize = 16;

/// A row of `transfers.csv`.
struct Copies {
    kind: String,
    purpose: String,
    from: String,
    to: String,
    count: String,
    noops: String,
    bytes: String,
    seconds: String,
    rate: String,
}

impl Copies {
    fn key(&self) -> [&str; 2] {
        [&self.kind, &self.purpose]
    }

    fn bytes(&self) -> u64 {
        self.bytes.parse().unwrap_or(0)
    }

    fn count(&self) -> u64 {
        self.count.parse().unwrap_or(0)
    }

    fn is_wait(&self) -> bool {
        self.kind == "sync"
    }

    /// Whether something was copied between memories, or waited for.
    fn is_call(&self) -> bool {
        self.count() > 0 && (self.is_wait() || self.is_moved())
    }

    /// `d2h log: 4 KiB in 1,000`; `sync log: 1,000 waits`.
    fn in_words(&self) -> String {
        let Self { kind, purpose, .. } = self;
        match self.is_wait() {
            true => format!("{kind} {purpose}: {}", units::counted(self.count(), "wait")),
            false => {
                format!("{kind} {purpose}: {} in {}", units::bytes(self.bytes()), units::count(self.count()))
            }
        }
    }

    /// False for copies from the CPU's memory to itself, of which none is made.
    fn is_real(&self) -> bool {
        self.count != "0" || self.from != self.to
    }

    /// Whether this was copied between memories. What is read from a file does not count: it is copied once
    /// it is in memory.
    fn is_moved(&self) -> bool {
        self.bytes() > 0 && !self.kind.starts_with("read")
    }
}

impl Content<'_> {
    /// For a single run all its copies; for several runs the bytes that each moved.
    pub(super) fn transfers(&mut self, html: &mut Html, places: &[usize]) {
        let shown = &places[..places.len().min(MOST_SETTINGS)];
        let all: Vec<(usize, Vec<Copies>)> = shown
            .iter()
            .map(|&place| (place, self.file_of(place, "transfers.csv", read)))
            .map(|(place, copies)| (place, copies.into_iter().filter(Copies::is_real).collect()))
            .filter(|(_, copies): &(usize, Vec<Copies>)| !copies.is_empty())
            .collect();
        self.moved(html, &all);
        if let [(place, copies)] = &all[..] {
            let caption = format!("Copies and waits by purpose{}", self.of_run(*place, places));
            table::table(html, &caption, &copy_columns(copies));
            return;
        }
        let moved = |copies: &Copies| copies.count != "0";
        let keys: Vec<[&str; 2]> =
            distinct(all.iter().flat_map(|(_, copies)| copies.iter().filter(|c| moved(c)).map(Copies::key)));
        if keys.is_empty() {
            return;
        }
        let mut columns = vec![Column::of_words("run", all.iter().map(|(place, _)| self.name(*place)))];
        for key in &keys {
            let cell = |(_, copies): &(usize, Vec<Copies>)| {
                let own = || copies.iter().filter(|copies| copies.key() == *key);
                let count: u64 = own().filter_map(|copies| copies.count.parse::<u64>().ok()).sum();
                let bytes = own().map(Copies::bytes).sum();
                match (count, key[0]) {
                    (0, _) => String::new(),
                    (_, "sync") => units::counted(count, "wait"),
                    _ => format!("{} in {}", units::bytes(bytes), units::count(count)),
                }
            };
            columns.push(Column::of_numbers(&key.join(" "), all.iter().map(cell)));
        }
        table::table(html, "What moved: bytes, and in how many copies", &columns);
        if shown.len() < places.len() {
            let words = self.part_of(shown.len(), places.len());
            html.prose("note", &words);
        }
    }

    /// A bar per run with its bytes; where runs moved them in different numbers of copies or waits, one with these as well.
    fn moved(&self, html: &mut Html, all: &[(usize, Vec<Copies>)]) {
        let numbers = |copies: &[Copies]| {
            let of = |is_wait: bool| {
                let own = copies.iter().filter(move |own| own.is_call() && own.is_wait() == is_wait);
                own.map(Copies::count).sum::<u64>()
            };
            [of(false), of(true)]
        };
        let in_words = |copies: &[Copies]| {
            let [copies, waits] = numbers(copies);
            let copies = if copies == 1 { "1 copy".to_owned() } else { units::count(copies) + " copies" };
            format!("{copies}, {}", units::counted(waits, "wait"))
        };
        let bytes = |copies: &[Copies]| {
            units::bytes(copies.iter().filter(|own| own.is_moved()).map(Copies::bytes).sum())
        };
        let differ = distinct(all.iter().map(|(_, copies)| numbers(copies))).len() > 1;
        if differ {
            html.words("h3", &[], "Bytes");
        }
        self.bars_of(html, all, &Copies::is_moved, &|own| own.bytes() as f64, &bytes);
        if differ {
            html.words("h3", &[], "Copies and waits for the device");
            self.bars_of(html, all, &Copies::is_call, &|own| own.count() as f64, &in_words);
        }
    }

    /// A bar per run, with a part for the amount of each row that counts, and the sum in words.
    fn bars_of(
        &self,
        html: &mut Html,
        all: &[(usize, Vec<Copies>)],
        counts: &dyn Fn(&Copies) -> bool,
        amount: &dyn Fn(&Copies) -> f64,
        sum: &dyn Fn(&[Copies]) -> String,
    ) {
        let rank =
            |purpose: &str| PURPOSES.iter().position(|(name, _)| *name == purpose).unwrap_or(PURPOSES.len());
        let colour = |purpose: &str| PURPOSES.get(rank(purpose)).map_or(OTHER, |(_, colour)| *colour);
        let part = |copies: &Copies| Part {
            class: colour(&copies.purpose),
            amount: amount(copies),
            words: copies.in_words(),
        };
        let bar = |(place, copies): &(usize, Vec<Copies>)| {
            let mut moved: Vec<&Copies> = copies.iter().filter(|own| counts(own)).collect();
            moved.sort_by_key(|copies| rank(&copies.purpose));
            let name = if all.len() > 1 { self.name(*place) } else { "bytes".to_owned() };
            Bar { name, parts: moved.into_iter().map(part).collect(), sum: sum(copies) }
        };
        let bars: Vec<Bar> = all.iter().map(bar).filter(|bar| !bar.parts.is_empty()).collect();
        let copies = all.iter().flat_map(|(_, copies)| copies).filter(|own| counts(own));
        let purposes = distinct(copies.map(|copies| copies.purpose.as_str()));
        let mut colours: Vec<(&str, &str)> =
            purposes.iter().map(|purpose| (*purpose, colour(purpose))).collect();
        colours.sort_by_key(|(purpose, _)| rank(purpose));
        bars::draw(html, &colours, &bars);
    }
}

/// The seconds of a run's all-reduces by device, from its `transfers.csv`.
pub(super) fn all_reduce_seconds(path: &Path) -> Result<HashMap<String, f64>, ReportError> {
    let own = read(path)?.into_iter().filter(|copies| copies.kind == "all_reduce");
    Ok(own.filter_map(|copies| Some((copies.from, copies.seconds.parse().ok()?))).collect())
}

fn read(path: &Path) -> Result<Vec<Copies>, ReportError> {
    let mut rows = Vec::new();
    let columns = ["kind", "purpose", "from", "to", "count", "noop_count", "bytes", "total_s", "gb_per_s"];
    csv_lines::for_each_row(path, columns, |cells| {
        let [kind, purpose, from, to, count, noops, bytes, seconds, rate] = cells.map(str::to_owned);
        rows.push(Copies { kind, purpose, from, to, count, noops, bytes, seconds, rate });
        Ok(())
    })?;
    Ok(rows)
}

fn copy_columns(copies: &[Copies]) -> Vec<Column> {
    let mut columns = Columns::new(copies);
    columns.words("kind", |copies| copies.kind.clone());
    columns.words("purpose", |copies| copies.purpose.clone());
    columns.words("from", |copies| copies.from.clone());
    columns.words("to", |copies| copies.to.clone());
    columns.numbers("count", |copies| whole(&copies.count));
    columns.numbers("no-ops", |copies| whole(&copies.noops));
    columns.figures("bytes", |bytes| units::bytes(bytes as u64), |copies| copies.bytes.parse().ok());
    columns.figures("time", units::seconds, |copies| copies.seconds.parse().ok());
    columns.figures("GB/s", units::number, |copies| copies.rate.parse().ok());
    columns.known()
}
