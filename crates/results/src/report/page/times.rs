//! Where the time went: phases, repeats, and noise.

use std::path::Path;

use super::{
    Content,
    bars::{self, Bar, Part},
    html::Html,
    table::{self, whole},
    transfers::all_reduce_seconds,
};
use crate::{
    files::csv_lines,
    report::{
        ReportError,
        configurations::{has_repeats, jobs},
        grid::{Column, Columns},
        grouping::grouped,
        times::{Repeats, noise, policies},
    },
    units,
};

/// The phases of the training loop in the order of a step, with their colours.
const PHASES: [(&str, &str); 15] = [
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
    ("rung", "f12"),
    ("hand_over", "f10"),
    ("digest", "f11"),
    ("other", "rest"),
];

/// Maximum bars in a chart; a few more if the last setting has several.
const MOST_BARS: usize = 16;

/// A row of `timing.csv`.
struct Phase {
    device: String,
    clock: String,
    name: String,
    count: String,
    seconds: f64,
    mean_s: Option<f64>,
    p50_s: Option<f64>,
    p95_s: Option<f64>,
}

/// The loop of a run, as one of its devices or the host timed it.
struct Loop {
    place: usize,
    device: String,
    clock: String,
    phases: Vec<Phase>,
    /// The all-reduces of the device, in the ledger of copies.
    all_reduce_s: Option<f64>,
}

impl Content<'_> {
    /// Adds what is known about times.
    pub(super) fn times(&mut self) {
        self.lab();
        self.section("repeats", "Repeats taken together", |content, html| content.repeats(html));
        let places = self.firsts();
        let since = self.since_resume();
        let title = |words: &str| words.to_owned() + &since;
        self.section("time", &title("Where the time went"), |content, html| content.phases(html, &places));
        self.section("transfers", &title("Transfers"), |content, html| content.transfers(html, &places));
    }

    /// ` since the resume after step 69`: `timing.csv` and `transfers.csv` cover the last part of a run. With several runs, it names them.
    fn since_resume(&self) -> String {
        let step = |place: usize| self.comparison.runs[place].environment_number("resumed_after");
        let resumed: Vec<(usize, f64)> =
            (0..self.comparison.runs.len()).filter_map(|place| Some((place, step(place)?))).collect();
        match resumed[..] {
            [] => String::new(),
            [(_, step)] if self.comparison.runs.len() == 1 => {
                format!(" since the resume after step {}", units::count(step as u64))
            }
            _ => {
                let places: Vec<usize> = resumed.iter().map(|(place, _)| *place).collect();
                format!(", of {} since the resume", self.comparison.numbers(&places))
            }
        }
    }

    /// Speeds and losses of repeats, where nothing but speeds tells the settings apart; what logging costs; noise.
    fn repeats(&self, html: &mut Html) {
        let comparison = self.comparison;
        let jobs = jobs(&comparison.runs, &comparison.configurations);
        for job in jobs.iter().filter(|job| has_repeats(job) && comparison.is_about_times()) {
            let Repeats { times, losses, keys } = Repeats::new(comparison, job);
            table::table(html, "Times", &times);
            if losses.len() > keys {
                table::table(html, "Losses", &losses);
            }
        }
        for costs in jobs.iter().filter_map(|job| policies::costs(&comparison.runs, job)) {
            table::table(html, &costs.title, &costs.columns);
            html.prose("note", &format!("{}.", costs.note));
        }
        if !html.is_empty() {
            let named = |places: &[usize]| comparison.numbers(places);
            let noise = noise::warnings(&comparison.runs, &comparison.configurations, &named);
            noise.iter().for_each(|words| html.prose("note", &format!("Noise: {words}.")));
        }
    }

    fn phases(&mut self, html: &mut Html, places: &[usize]) {
        let mut read = Vec::new();
        let mut settings = 0;
        for &place in places {
            if read.len() >= MOST_BARS {
                break;
            }
            let phases = self.phases_of(place).into_iter().map(|p| ((p.device.clone(), p.clock.clone()), p));
            let all_reduces = self.file_of(place, "transfers.csv", all_reduce_seconds);
            for ((device, clock), phases) in grouped(phases) {
                let all_reduce_s = all_reduces.get(&device).copied().filter(|seconds| *seconds > 0.0);
                read.push(Loop { place, device, clock, phases, all_reduce_s });
            }
            settings += 1;
        }
        let bars: Vec<Bar> = read
            .iter()
            .map(|own| {
                let of = if places.len() > 1 { format!("{}: ", self.name(own.place)) } else { String::new() };
                let parts = own.parts();
                let sum = units::seconds(parts.iter().map(|part| part.amount).sum());
                Bar { name: format!("{of}{}, {}", own.device, own.clock), parts, sum }
            })
            .collect();
        let is_used = |name: &str| read.iter().any(|own| own.seconds(name).is_some());
        let colours: Vec<(&str, &str)> = PHASES.into_iter().filter(|(name, _)| is_used(name)).collect();
        bars::draw(html, &colours, &bars);
        if html.is_empty() {
            return;
        }
        if settings < places.len() {
            let words = self.part_of(settings, places.len());
            html.prose("note", &words);
        }
        if places.len() < self.comparison.runs.len() {
            html.prose(
                "note",
                "Of repeats the best one is shown, or that of the median time where they are not ranked.",
            );
        }
        if places.iter().any(|&place| self.comparison.runs[place].devices().contains(' ')) {
            let words = "Of several devices the first one's loop is timed; all-reduce includes the wait for the others.";
            html.prose("note", words);
        }
        if let [own] = &read[..] {
            let caption = format!("Phases of the training loop{}", self.of_run(own.place, places));
            table::table(html, &caption, &phase_columns(&own.phases));
        }
    }

    /// The rows of a run's `timing.csv`; empty if it cannot be read.
    fn phases_of(&mut self, place: usize) -> Vec<Phase> {
        let read = |path: &Path| {
            let mut phases = Vec::new();
            let columns = ["device", "clock", "phase", "count", "total_s", "mean_s", "p50_s", "p95_s"];
            csv_lines::for_each_row(path, columns, |[device, clock, name, count, total, mean, p50, p95]| {
                phases.push(Phase {
                    device: device.to_owned(),
                    clock: clock.to_owned(),
                    name: name.to_owned(),
                    count: count.to_owned(),
                    seconds: total.parse().unwrap_or(0.0),
                    mean_s: mean.parse().ok(),
                    p50_s: p50.parse().ok(),
                    p95_s: p95.parse().ok(),
                });
                Ok(())
            })?;
            Ok(phases)
        };
        self.file_of(place, "timing.csv", read)
    }

    /// The result of `read` for a file of a run; the default if there is no such file.
    pub(super) fn file_of<T: Default>(
        &mut self,
        place: usize,
        name: &str,
        read: impl FnOnce(&Path) -> Result<T, ReportError>,
    ) -> T {
        let path = self.comparison.runs[place].folder.as_ref().map(|folder| folder.join(name));
        let Some(path) = path.filter(|path| path.exists()) else { return T::default() };
        read(&path).unwrap_or_else(|e| {
            self.warnings.push(format!("`{name}` of {} is not shown: {e}", self.name(place)));
            T::default()
        })
    }

    /// `, #3 0.1` if only one of several runs is shown.
    pub(super) fn of_run(&self, place: usize, places: &[usize]) -> String {
        if places.len() > 1 { format!(", {}", self.name(place)) } else { String::new() }
    }
}

impl Loop {
    /// The time of a phase. Steps that are too short to be timed by phases have their all-reduces in the ledger.
    fn seconds(&self, name: &str) -> Option<f64> {
        let of_phase = |name: &str| {
            let own = || self.phases.iter().filter(|phase| phase.name == name);
            own().next().map(|_| own().map(|phase| phase.seconds).sum::<f64>())
        };
        let step = of_phase("step");
        let counted = self.all_reduce_s.filter(|_| of_phase("all_reduce").is_none());
        let within_step = step.zip(counted).map(|(step, counted)| counted.min(step));
        match name {
            "step" => step.map(|step| step - within_step.unwrap_or(0.0)),
            "all_reduce" => within_step.or_else(|| of_phase(name)),
            name => of_phase(name),
        }
    }

    /// The pieces of its bar, in the order of a step.
    fn parts(&self) -> Vec<Part> {
        let found = PHASES.iter().filter_map(|(name, class)| Some((name, *class, self.seconds(name)?)));
        let found: Vec<(&&str, &'static str, f64)> = found.collect();
        let total: f64 = found.iter().map(|(_, _, seconds)| seconds).sum();
        let part = |(name, class, amount): (&&str, &'static str, f64)| {
            let (share, seconds) = (units::percent(amount / total), units::seconds(amount));
            Part { class, amount, words: format!("{} {share}, {seconds}", name.replace('_', "-")) }
        };
        found.into_iter().map(part).collect()
    }
}

fn phase_columns(phases: &[Phase]) -> Vec<Column> {
    let total = phases.iter().find(|phase| phase.name == "total").map_or(f64::NAN, |phase| phase.seconds);
    let mut columns = Columns::new(phases);
    columns.words("phase", |phase| phase.name.replace('_', "-"));
    columns.numbers("count", |phase| whole(&phase.count));
    columns.figures("total", units::seconds, |phase| Some(phase.seconds));
    columns.figures("share", units::percent, |phase| Some(phase.seconds / total));
    columns.figures("mean", units::seconds, |phase| phase.mean_s);
    columns.figures("median", units::seconds, |phase| phase.p50_s);
    columns.figures("95th percentile", units::seconds, |phase| phase.p95_s);
    columns.known()
}
