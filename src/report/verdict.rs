//! The end of a sweep over devices: a table per count, and what it means in words.

use std::{fmt::Write, path::Path};

use super::{
    ReportError, csv_file,
    grid::{self, Column},
    repeats,
    run::Run,
    scaling::{Kind, Point, break_even, serial_fraction, speed_up, speed_up_of_repeats},
    speeds::times,
    statistics::{Estimate, coverage},
};
use crate::units;

/// Axes that choose devices.
const DEVICE_AXES: [&str; 2] = ["devices.num_gpus", "devices.use"];

/// The axis that counts repeats.
const REPEAT: &str = "repeat";

/// Parts above this share of a step are mentioned.
const WORTH_TELLING: f64 = 0.1;

const MODEL: &str = "serial part: Karp and Flatt 1990; break-even: the all-reduce of a step takes as long at any batch, the \
                     rest grows with the rows";

const VIRTUAL: &str =
    "no speed-up is shown: virtual devices share one processor, so their times say nothing about real ones";

/// The verdict on a sweep's trials for a terminal of `width` columns; `None` where no axis chooses devices, or only the
/// CPU ran.
///
/// # Errors
/// Where a file of a run is malformed.
pub(super) fn verdict(runs: &[Run], width: u16) -> Result<Option<String>, ReportError> {
    let mut text = String::new();
    for (others, members) in groups(runs) {
        let points = points(&members)?;
        if points.iter().any(|point| point.kind != Kind::Cpu) {
            let of = if others.is_empty() { String::new() } else { format!(", {others}") };
            let _ = write!(text, "more devices{of}\n\n{}", section(&points, width)); // a String takes every write
        }
    }
    Ok((!text.is_empty()).then_some(text))
}

/// Finished trials of a sweep over devices that differ in nothing else, by the values of all other axes.
fn groups(runs: &[Run]) -> Vec<(String, Vec<&Run>)> {
    let mut groups: Vec<(String, Vec<&Run>)> = Vec::new();
    for run in runs.iter().filter(|run| run.status == "finished") {
        let chooses = |key: &str| DEVICE_AXES.contains(&key);
        if !run.axes.iter().any(|(key, _)| chooses(key)) {
            continue;
        }
        let others = run.axes.iter().filter(|(key, _)| !chooses(key) && key != REPEAT);
        let others: Vec<_> = others.map(|(key, value)| format!("{key} = {value}")).collect();
        let others = others.join(", ");
        match groups.iter_mut().find(|(known, _)| *known == others) {
            Some((_, members)) => members.push(run),
            None => groups.push((others, vec![run])),
        }
    }
    groups
}

/// A point per set of devices, in the order in which they first ran; of repeats the one with the median step.
fn points(runs: &[&Run]) -> Result<Vec<Point>, ReportError> {
    let mut sets: Vec<Vec<Point>> = Vec::new();
    for run in runs {
        let Some(point) = point(run)? else { continue };
        match sets.iter_mut().find(|set| set[0].names == point.names) {
            Some(set) => set.push(point),
            None => sets.push(vec![point]),
        }
    }
    let median = |mut set: Vec<Point>| {
        // In the order of the repeats, which is that in which they ran.
        let rates = set.iter().map(Point::throughput).collect();
        set.sort_by(|a, b| a.step_s.total_cmp(&b.step_s));
        Point { rates, ..set.swap_remove((set.len() - 1) / 2) }
    };
    Ok(sets.into_iter().map(median).collect())
}

/// A run, from its folder; `None` where the files say too little.
fn point(run: &Run) -> Result<Option<Point>, ReportError> {
    let Some(folder) = run.metrics.as_deref().and_then(Path::parent) else { return Ok(None) };
    let (Some(used), Some(train_s), Some(steps_per_s), Some(samples_per_s)) = (
        run.figure("devices_used"),
        run.number("train_s"),
        run.number("steps_per_s").filter(|v| *v > 0.0),
        run.number("samples_per_s"),
    ) else {
        return Ok(None);
    };
    let names: Vec<&str> = used.split(';').collect();
    let kind = match used {
        _ if run.is_virtual() => Kind::Virtual,
        _ if names.iter().all(|name| *name == "cpu") => Kind::Cpu,
        _ => Kind::Gpu,
    };
    let phases = Seconds::read(&folder.join("timing.csv"), ["device", "phase", "clock"])?;
    let transfers = Seconds::read(&folder.join("transfers.csv"), ["from", "kind", "purpose"])?;
    let part = |seconds: &dyn Fn(&str) -> f64| {
        let all: f64 = names.iter().map(|name| seconds(name)).sum();
        all / names.len() as f64 / train_s
    };
    let phase = |name: &str, phase: &str| {
        phases.get(name, phase, "device").or_else(|| phases.get(name, phase, "host"))
    };
    let or_nothing = |name: &str, of: &str| phase(name, of).unwrap_or(0.0);
    Ok(Some(Point {
        devices: names.len(),
        names: names.join(" "),
        kind,
        weak: run.figure("scaling") == Some("weak"),
        rows: samples_per_s / steps_per_s,
        step_s: 1.0 / steps_per_s,
        // Steps too short to be timed by phases have their sums in the ledger.
        all_reduce: part(&|name| {
            let counted = || transfers.get(name, "all_reduce", "gradients");
            phase(name, "all_reduce").or_else(counted).unwrap_or(0.0)
        }),
        data: part(&|name| or_nothing(name, "data") + or_nothing(name, "upload")),
        log: part(&|name| or_nothing(name, "log")),
        rates: Vec::new(),
    }))
}

/// `total_s` of a file by three of its columns.
struct Seconds(Vec<([String; 3], f64)>);

impl Seconds {
    fn read(path: &Path, keys: [&str; 3]) -> Result<Self, ReportError> {
        if !path.is_file() {
            return Ok(Self(Vec::new()));
        }
        let file = csv_file::read(path)?;
        let place = |name: &str| {
            let missing = || ReportError::malformed(path, 1, format!("there is no column `{name}`"));
            file.columns.iter().position(|column| column == name).ok_or_else(missing)
        };
        let (total, keys) = (place("total_s")?, [place(keys[0])?, place(keys[1])?, place(keys[2])?]);
        let mut rows = Vec::new();
        for (line, row) in file.rows.iter().enumerate() {
            let cell = |column: usize| row.get(column).unwrap_or_default();
            if cell(total).is_empty() {
                // A time that nobody knows.
                continue;
            }
            let not_a_time = |_| {
                let message = format!("`{}` is not a number of seconds", cell(total));
                ReportError::malformed(path, line as u64 + 2, message)
            };
            rows.push((keys.map(|key| cell(key).to_owned()), cell(total).parse().map_err(not_a_time)?));
        }
        Ok(Self(rows))
    }

    fn get(&self, a: &str, b: &str, c: &str) -> Option<f64> {
        let wanted = |keys: &[String; 3]| keys[0] == a && keys[1] == b && keys[2] == c;
        self.0.iter().find(|(keys, _)| wanted(keys)).map(|(_, seconds)| *seconds)
    }
}

/// Table and sentences of points that differ only in their devices.
fn section(points: &[Point], width: u16) -> String {
    let any_virtual = points.iter().any(|point| point.kind == Kind::Virtual);
    let one = points.iter().find(|point| point.kind == Kind::Gpu && point.devices == 1);
    let one = one.filter(|_| !any_virtual);
    let mut text = grid::table(&columns(points, one), 1, width);
    text.push('\n');
    for point in points.iter().filter(|point| point.devices > 1) {
        let _ = writeln!(text, "  {}", sentence(point, one)); // a String takes every write
    }
    let note = match one {
        _ if any_virtual => VIRTUAL,
        Some(_) => MODEL,
        None => "no speed-up is shown: no trial ran on one GPU to compare the others with",
    };
    let _ = writeln!(text, "  {note}");
    if one.is_some() {
        let _ = writeln!(text, "  {}", how_sure(points));
    }
    text.push('\n');
    text
}

/// What the figures rest on.
fn how_sure(points: &[Point]) -> String {
    let runs = points.iter().map(Point::runs).min().unwrap_or(1);
    if runs < 2 {
        return "one run each: `sweep.repeats=6` would show how far another is off".to_owned();
    }
    format!(
        "medians of {}; the intervals, of ratios within a repeat, cover the true median {} of the time",
        units::counted(runs as u64, "repeat"),
        units::percent(coverage(runs))
    )
}

fn columns(points: &[Point], one: Option<&Point>) -> Vec<Column> {
    let make = |title: &str, numeric: bool, cell: &dyn Fn(&Point) -> String| Column {
        title: title.to_owned(),
        numeric,
        cells: points.iter().map(cell).collect(),
    };
    let mut columns = vec![
        make("devices", false, &|p| p.names.clone()),
        make("rows per step", true, &|p| units::number(p.rows)),
        make("step", true, &|p| units::seconds(p.step_s)),
        make("rows/s", true, &|p| units::rate(p.throughput())),
    ];
    if let Some(one) = one {
        let of_several = |p: &Point, word: &dyn Fn(f64) -> String| {
            if p.devices > 1 { word(best(one, p).median) } else { String::new() }
        };
        columns.push(make("speed-up", true, &|p| times(best(one, p).median)));
        let title = repeats::interval_title(points.iter().map(Point::runs));
        columns.push(make(&title, true, &|p| interval(best(one, p))));
        columns.push(make("efficiency", true, &|p| {
            of_several(p, &|speed_up| units::percent(speed_up / p.devices as f64))
        }));
    }
    columns.push(make("all-reduce", true, &|p| {
        if p.devices > 1 && p.all_reduce > 0.0 { units::percent(p.all_reduce) } else { String::new() }
    }));
    columns.push(make("data", true, &|p| units::percent(p.data)));
    columns.push(make("log", true, &|p| units::percent(p.log)));
    columns.retain(|column| column.cells.iter().any(|cell| !cell.is_empty()));
    columns
}

/// The speed-up, of repeats with its interval.
fn best(one: &Point, point: &Point) -> Estimate {
    let single = Estimate { count: 1, median: speed_up(one, point), interval: None };
    speed_up_of_repeats(one, point).unwrap_or(single)
}

/// `0.65 to 0.74`; nothing where there is one run only, or the point is what the others are held against.
fn interval(speed_up: Estimate) -> String {
    match speed_up.interval {
        Some([low, high]) if low < high || speed_up.median != 1.0 => format!("{low:.2} to {high:.2}"),
        _ => String::new(),
    }
}

/// What a speed-up says of a job of one size.
fn serial_part(speed_up: f64, devices: usize) -> String {
    match serial_fraction(speed_up, devices) {
        part if part >= 1.0 => "slower than one GPU".to_owned(),
        part if part > 0.0 => format!("as if {} of the work were serial", units::percent(part)),
        _ => "no part of the work is serial".to_owned(),
    }
}

/// `2 GPUs: 0.69x; all-reduce is 61 % of a step; breaks even from batch 8192 on`.
fn sentence(point: &Point, one: Option<&Point>) -> String {
    let what = if point.kind == Kind::Virtual { "virtual GPU" } else { "GPU" };
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let mut words = Vec::new();
    let mut settled = true;
    if let Some(one) = one {
        let speed_up = best(one, point);
        let within = interval(speed_up);
        words.push(if within.is_empty() {
            times(speed_up.median)
        } else {
            format!("{} ({within})", times(speed_up.median))
        });
        settled = !speed_up.interval.is_some_and(|[low, high]| (low..=high).contains(&1.0));
        if !settled {
            words.push("the repeats do not tell whether that is faster than one GPU".to_owned());
        } else if !point.weak {
            words.push(serial_part(speed_up.median, point.devices));
        }
    }
    let known = point.all_reduce > 0.0;
    words.push(match known {
        true => format!("all-reduce is {} of a step", percent(point.all_reduce)),
        false => "the time of its all-reduce is not known: `devices.engine=launch` measures it".to_owned(),
    });
    for (share, name) in [(point.data, "data"), (point.log, "the log")] {
        if share >= WORTH_TELLING {
            words.push(format!("{name} is {}", percent(share)));
        }
    }
    words.extend(one.filter(|_| known && settled).map(|one| match break_even(one, point) {
        Some(rows) => {
            let devices = if point.weak { point.devices as f64 } else { 1.0 };
            let each = if point.weak { " per device" } else { "" };
            format!("breaks even from batch {:.0}{each} on", (rows / devices).ceil().max(1.0))
        }
        None => {
            "no batch breaks even: without its all-reduce the step is no shorter than on one GPU".to_owned()
        }
    }));
    format!("{}: {}", units::counted(point.devices as u64, what), words.join("; "))
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
