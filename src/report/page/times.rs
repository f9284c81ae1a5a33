//! Where the time went, and what was copied.

use std::path::Path;

use super::{
    Content,
    html::{Attributes, Html},
    table,
};
use crate::{
    report::{
        ReportError,
        configurations::{has_repeats, jobs},
        csv_lines,
        grid::{Column, Columns},
        grouping::{distinct, grouped},
        noise, policies,
        repeats::Repeats,
    },
    units,
};

/// The phases of a loop with their colours, in the order of a step.
const PHASES: [(&str, &str); 14] = [
    ("data", "f5"),
    ("upload", "f7"),
    ("forward", "f0"),
    ("loss", "f6"),
    ("backward", "f1"),
    ("all_reduce", "f3"),
    ("optimizer", "f2"),
    ("step", "f8"),
    ("validation", "f4"),
    ("log", "ink"),
    ("checkpoint", "f9"),
    ("hand_over", "rest"),
    ("digest", "rest"),
    ("other", "rest"),
];

/// Bars in a chart.
const MOST_BARS: usize = 16;

/// A row of `timing.csv`.
struct Phase {
    device: String,
    clock: String,
    name: String,
    count: String,
    seconds: f64,
    mean_s: Option<f64>,
    p95_s: Option<f64>,
}

impl Content<'_> {
    /// Adds what is known of times.
    pub(super) fn times(&mut self) {
        let comparison = self.comparison;
        let (thing, first) = self.counted();
        self.section("lab", "What the lab measured", |_, html| {
            for (title, columns, _) in comparison.findings.tables(thing, first) {
                table::table(html, title, &columns);
            }
        });
        self.section("repeats", "Repeats taken together", |content, html| content.repeats(html));
        let places = self.firsts();
        self.section("time", "Where the time went", |content, html| content.phases(html, &places));
        self.section("transfers", "Transfers", |content, html| content.transfers(html, &places));
    }

    /// The first run of each configuration.
    pub(super) fn firsts(&self) -> Vec<usize> {
        let firsts = self.comparison.configurations.iter().map(|configuration| configuration.places[0]);
        if self.comparison.runs.len() == 1 { vec![0] } else { firsts.collect() }
    }

    /// Speeds and losses of repeats, where nothing but speeds tells the settings apart; what logging costs; noise.
    fn repeats(&self, html: &mut Html) {
        let comparison = self.comparison;
        let jobs = jobs(&comparison.runs, &comparison.configurations);
        for job in jobs.iter().filter(|job| has_repeats(job) && comparison.is_about_times()) {
            let Repeats { times, losses, keys } = Repeats::new(&comparison.runs, job);
            table::table(html, "Times", &times);
            if losses.len() > keys {
                table::table(html, "Losses", &losses);
            }
        }
        for costs in jobs.iter().filter_map(|job| policies::costs(&comparison.runs, job)) {
            table::table(html, &costs.title, &costs.columns);
        }
        if !html.is_empty() {
            let (thing, first) = self.counted();
            let noise = noise::warnings(&comparison.runs, &comparison.configurations, thing, first);
            noise
                .iter()
                .for_each(|words| html.prose("p", &[("class", &"note")], &format!("Noise: {words}.")));
        }
    }

    fn phases(&mut self, html: &mut Html, places: &[usize]) {
        let mut bars = Vec::new();
        for &place in places {
            for (of, phases) in
                grouped(self.phases_of(place).into_iter().map(|p| ((p.device.clone(), p.clock.clone()), p)))
            {
                bars.push((place, of, phases));
            }
        }
        let all = bars.len();
        bars.truncate(MOST_BARS);
        let is_part = |phase: &&Phase| !["total", "warmup"].contains(&phase.name.as_str());
        let sum = |phases: &[Phase]| phases.iter().filter(is_part).map(|phase| phase.seconds).sum::<f64>();
        let longest = bars.iter().map(|(_, _, phases)| sum(phases)).fold(0.0, f64::max);
        if longest <= 0.0 {
            return;
        }
        let used =
            bars.iter().flat_map(|(_, _, phases)| phases.iter().filter(is_part).map(|p| p.name.as_str()));
        let used = distinct(used);
        html.with("ul", &[("class", &"key")], |html| {
            for (name, class) in PHASES.iter().filter(|(name, _)| used.contains(name)) {
                html.with("li", &[], |html| {
                    html.with("svg", &[("width", &12), ("height", &12), ("aria-hidden", &"true")], |html| {
                        html.empty("rect", &[("width", &12), ("height", &12), ("class", class)]);
                    });
                    html.text(&name.replace('_', "-"));
                });
            }
        });
        html.with("div", &[("class", &"bars")], |html| {
            for (place, (device, clock), phases) in &bars {
                let mut name = format!("{device}, {clock}");
                if places.len() > 1 {
                    name = format!("{}: {name}", self.name(*place));
                }
                html.words("span", &[], &name);
                bar(html, phases.iter().filter(is_part), longest);
                html.words("span", &[("class", &"number")], &units::seconds(sum(phases)));
            }
        });
        if all > bars.len() {
            html.prose("p", &[("class", &"note")], &format!("The first {} of {all} bars.", bars.len()));
        }
        if places.len() < self.comparison.runs.len() {
            html.prose("p", &[("class", &"note")], "The first one of repeats is shown.");
        }
        if places.iter().any(|&place| self.comparison.runs[place].is_virtual()) {
            let words = "Virtual devices share the host's processor: their times say nothing of real ones.";
            html.prose("p", &[("class", &"warning")], words);
        }
        if let [(place, _, phases)] = &bars[..] {
            let caption = format!("Phases of the training loop{}", self.of_run(*place, places));
            table::table(html, &caption, &phase_columns(phases));
        }
    }

    /// The rows of a run's `timing.csv`; none where it cannot be read.
    fn phases_of(&mut self, place: usize) -> Vec<Phase> {
        let read = |path: &Path| {
            let mut phases = Vec::new();
            let columns = ["device", "clock", "phase", "count", "total_s", "mean_s", "p95_s"];
            csv_lines::for_each_row(path, columns, |[device, clock, name, count, total, mean, p95]| {
                phases.push(Phase {
                    device: device.to_owned(),
                    clock: clock.to_owned(),
                    name: name.to_owned(),
                    count: count.to_owned(),
                    seconds: total.parse().unwrap_or(0.0),
                    mean_s: mean.parse().ok(),
                    p95_s: p95.parse().ok(),
                });
                Ok(())
            })?;
            Ok(phases)
        };
        self.file_of(place, "timing.csv", read)
    }

    /// What `read` makes of a file of a run; nothing where there is no such file.
    pub(super) fn file_of<T: Default>(
        &mut self,
        place: usize,
        name: &str,
        read: impl FnOnce(&Path) -> Result<T, ReportError>,
    ) -> T {
        let path = self.comparison.runs[place].folder.as_ref().map(|folder| folder.join(name));
        let Some(path) = path.filter(|path| path.is_file()) else { return T::default() };
        read(&path).unwrap_or_else(|e| {
            self.warnings.push(format!("`{name}` of {} is not shown: {e}", self.name(place)));
            T::default()
        })
    }

    /// All of one run; of several what each moved.
    fn transfers(&mut self, html: &mut Html, places: &[usize]) {
        let all: Vec<(usize, Vec<Copies>)> = places
            .iter()
            .map(|&place| (place, self.file_of(place, "transfers.csv", read_copies)))
            .filter(|(_, copies)| !copies.is_empty())
            .collect();
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
        let mut columns = vec![
            table::words("kind", keys.iter().map(|key| key[0].to_owned())),
            table::words("purpose", keys.iter().map(|key| key[1].to_owned())),
        ];
        for (place, copies) in all.iter().take(MOST_BARS) {
            let cell = |key: &[&str; 2]| {
                let own = || copies.iter().filter(|copies| copies.key() == *key);
                let sum = |figure: fn(&Copies) -> &str| {
                    own().filter_map(|copies| figure(copies).parse::<u64>().ok()).sum::<u64>()
                };
                let (count, bytes) = (sum(|copies| &copies.count), sum(|copies| &copies.bytes));
                match (count, key[0]) {
                    (0, _) => String::new(),
                    (_, "sync") => units::counted(count, "wait"),
                    _ => format!("{} in {}", units::bytes(bytes), units::count(count)),
                }
            };
            columns.push(Column::of_numbers(&self.name(*place), keys.iter().map(cell)));
        }
        table::table(html, "What moved: bytes, and in how many copies", &columns);
        if all.len() > MOST_BARS {
            html.prose("p", &[("class", &"note")], &format!("The first {MOST_BARS} of {} runs.", all.len()));
        }
    }

    /// `, #3 0.1`, where one of several runs is shown.
    fn of_run(&self, place: usize, places: &[usize]) -> String {
        if places.len() > 1 { format!(", {}", self.name(place)) } else { String::new() }
    }
}

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
}

fn read_copies(path: &Path) -> Result<Vec<Copies>, ReportError> {
    let mut rows = Vec::new();
    let columns = ["kind", "purpose", "from", "to", "count", "noop_count", "bytes", "total_s", "gb_per_s"];
    csv_lines::for_each_row(path, columns, |cells| {
        let [kind, purpose, from, to, count, noops, bytes, seconds, rate] = cells.map(str::to_owned);
        rows.push(Copies { kind, purpose, from, to, count, noops, bytes, seconds, rate });
        Ok(())
    })?;
    Ok(rows)
}

/// A bar of phases, as long as its share of the longest.
fn bar<'a>(html: &mut Html, phases: impl Iterator<Item = &'a Phase>, longest: f64) {
    let phases: Vec<&Phase> = phases.collect();
    let total: f64 = phases.iter().map(|phase| phase.seconds).sum();
    let words = |phase: &Phase| {
        let share = units::percent(phase.seconds / total);
        format!("{} {share}, {}", phase.name.replace('_', "-"), units::seconds(phase.seconds))
    };
    let label = phases.iter().map(|phase| words(phase)).collect::<Vec<_>>().join("; ");
    let size: Attributes<'_> =
        &[("width", &"100%"), ("height", &20), ("role", &"img"), ("aria-label", &label)];
    html.with("svg", size, |html| {
        let mut from = 0.0;
        for (name, class) in PHASES {
            for phase in phases.iter().filter(|phase| phase.name == name && phase.seconds > 0.0) {
                let percent = |share: f64| format!("{:.3}%", share * 100.0);
                let (x, width) = (percent(from / longest), percent(phase.seconds / longest));
                html.with(
                    "rect",
                    &[("class", &class), ("x", &x), ("width", &width), ("height", &20)],
                    |html| {
                        html.words("title", &[], &words(phase));
                    },
                );
                from += phase.seconds;
            }
        }
    });
}

fn phase_columns(phases: &[Phase]) -> Vec<Column> {
    let total = phases.iter().find(|phase| phase.name == "total").map_or(f64::NAN, |phase| phase.seconds);
    let seconds = |value: Option<f64>| value.map(units::seconds).unwrap_or_default();
    let mut columns = Columns::new(phases);
    columns.words("phase", |phase| phase.name.replace('_', "-"));
    columns.numbers("count", |phase| whole(&phase.count));
    columns.numbers("total", |phase| units::seconds(phase.seconds));
    columns.numbers("share", |phase| units::percent(phase.seconds / total));
    columns.numbers("mean", |phase| seconds(phase.mean_s));
    columns.numbers("95th percentile", |phase| seconds(phase.p95_s));
    columns.known()
}

fn copy_columns(copies: &[Copies]) -> Vec<Column> {
    let word = |text: &str, word: fn(f64) -> String| text.parse().map(word).unwrap_or_default();
    let mut columns = Columns::new(copies);
    columns.words("kind", |copies| copies.kind.clone());
    columns.words("purpose", |copies| copies.purpose.clone());
    columns.words("from", |copies| copies.from.clone());
    columns.words("to", |copies| copies.to.clone());
    columns.numbers("count", |copies| whole(&copies.count));
    columns.numbers("no-ops", |copies| whole(&copies.noops));
    columns.numbers("bytes", |copies| word(&copies.bytes, |bytes| units::bytes(bytes as u64)));
    columns.numbers("time", |copies| word(&copies.seconds, units::seconds));
    columns.numbers("GB/s", |copies| word(&copies.rate, units::number));
    columns.known()
}

fn whole(text: &str) -> String {
    text.parse().map_or_else(|_| text.to_owned(), units::count)
}
