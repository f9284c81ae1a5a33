//! The end of a sweep over devices: a table with a row per device count, and sentences about it.

use std::{fmt::Write, path::Path};

use super::{
    repeats,
    scaling::{Kind, Point, break_even, serial_fraction, speed_up},
};
use crate::{
    files::csv_lines,
    report::{
        ReportError,
        grid::{self, Column, Columns},
        grouping::grouped,
        run::{REPEAT, Run},
        speeds::times,
        statistics::{Estimate, coverage},
    },
    units,
};

/// Axes that choose devices.
const DEVICE_AXES: [&str; 2] = ["devices.num_gpus", "devices.use"];

/// Parts above this share of a step are mentioned.
const WORTH_TELLING: f64 = 0.1;

const MODEL: &str = "serial part: Karp and Flatt 1990; break-even: the all-reduce of a step takes as long at any batch, the \
                     rest grows with the rows";

const VIRTUAL: &str =
    "no speed-up is shown: virtual devices share one processor, so their times say nothing about real ones";

/// The verdict on a sweep's trials, for a terminal of `width` columns; `None` if no axis chooses devices, or
/// only the CPU was used.
pub(in crate::report) fn verdict(runs: &[Run], width: u16) -> Result<Option<String>, ReportError> {
    let mut text = String::new();
    for scaling in DeviceSweep::read(runs)? {
        let others = &scaling.others;
        let of = if others.is_empty() { String::new() } else { format!(", {others}") };
        let _ = write!(text, "more devices{of}\n\n{}", section(&scaling, width)); // cannot fail
    }
    Ok((!text.is_empty()).then_some(text))
}

/// Trials that differ only in their devices.
pub(in crate::report) struct DeviceSweep {
    /// The values of all other axes.
    pub(in crate::report) others: String,
    pub(in crate::report) points: Vec<Point>,
}

impl DeviceSweep {
    /// One sweep per combination of the other axes that ran on several sets of devices, not all of them the
    /// CPU.
    pub(in crate::report) fn read(runs: &[Run]) -> Result<Vec<Self>, ReportError> {
        let mut sweeps = Vec::new();
        for (others, members) in groups(runs) {
            sweeps.push(Self { others, points: points(&members)? });
        }
        let is_on_gpu = |point: &Point| point.kind != Kind::Cpu;
        sweeps.retain(|sweep| sweep.points.len() > 1 && sweep.points.iter().any(is_on_gpu));
        Ok(sweeps)
    }

    pub(in crate::report) fn is_virtual(&self) -> bool {
        self.points.iter().any(|point| point.kind == Kind::Virtual)
    }

    /// The reference point of speed-ups; `None` for virtual devices.
    pub(in crate::report) fn one(&self) -> Option<&Point> {
        let one = self.points.iter().find(|point| point.kind == Kind::Gpu && point.devices == 1);
        one.filter(|_| !self.is_virtual())
    }

    pub(in crate::report) fn columns(&self) -> Vec<Column> {
        columns(&self.points, self.one())
    }

    /// Sentences that explain the table.
    pub(in crate::report) fn sentences(&self) -> Vec<String> {
        let one = self.one();
        let several = self.points.iter().filter(|point| point.devices > 1);
        let note = match one {
            _ if self.is_virtual() => VIRTUAL,
            Some(_) => MODEL,
            None => "no speed-up is shown: no trial ran on one GPU to compare the others with",
        };
        let sentences = several.map(|point| sentence(point, one)).chain([note.to_owned()]);
        sentences.chain(one.map(|_| how_sure(&self.points))).collect()
    }
}

/// The finished trials that differ only in devices, grouped by the values of all other axes.
fn groups(runs: &[Run]) -> Vec<(String, Vec<&Run>)> {
    let chooses = |key: &str| DEVICE_AXES.contains(&key);
    // Trials that ran side by side shared the machine, so their times do not count.
    let is_alone = |run: &Run| run.fact("host.jobs").is_none();
    let finished = runs.iter().filter(|run| run.status == "finished" && is_alone(run));
    let trials = finished.filter(|run| run.axes.iter().any(|(key, _)| chooses(key)));
    grouped(trials.map(|run| {
        let others = run.axes.iter().filter(|(key, _)| !chooses(key) && key != REPEAT);
        let others: Vec<_> = others.map(|(key, value)| format!("{key} = {value}")).collect();
        (others.join(", "), run)
    }))
}

/// A point per set of devices, in the order in which they first ran; with repeats, the one with the median
/// step time.
fn points(runs: &[&Run]) -> Result<Vec<Point>, ReportError> {
    let points: Vec<Option<Point>> = runs.iter().map(|run| point(run)).collect::<Result<_, _>>()?;
    let sets = grouped(points.into_iter().flatten().map(|point| (point.names.clone(), point)));
    let median = |(_, mut set): (String, Vec<Point>)| {
        // In the order of the repeats, which is the order of execution.
        let rates = set.iter().map(Point::throughput).collect();
        set.sort_by(|a, b| a.step_s.total_cmp(&b.step_s));
        Point { rates, ..set.swap_remove((set.len() - 1) / 2) }
    };
    Ok(sets.into_iter().map(median).collect())
}

/// The point of a run, from its folder; `None` if its files lack the figures.
fn point(run: &Run) -> Result<Option<Point>, ReportError> {
    let Some(folder) = run.folder.as_deref().filter(|_| run.has_metrics) else { return Ok(None) };
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
    // The host's loop is timed once; its rows are listed under the first device.
    let of_loop = |of: &str| phase(names[0], of).unwrap_or(0.0) / train_s;
    Ok(Some(Point {
        devices: names.len(),
        names: names.join(" "),
        kind,
        weak: run.figure("scaling") == Some("weak"),
        rows: samples_per_s / steps_per_s,
        step_s: 1.0 / steps_per_s,
        // If steps are too short to be timed by phase, the time of all-reduces is in the ledger.
        all_reduce: part(&|name| {
            let counted = || transfers.get(name, "all_reduce", "gradients");
            phase(name, "all_reduce").or_else(counted).unwrap_or(0.0)
        }),
        data: of_loop("data") + of_loop("upload"),
        log: of_loop("log"),
        rates: Vec::new(),
    }))
}

/// `total_s` of a file, by the values of three of its columns.
struct Seconds(Vec<([String; 3], f64)>);

impl Seconds {
    /// Reads the file; empty if it does not exist.
    fn read(path: &Path, [a, b, c]: [&str; 3]) -> Result<Self, ReportError> {
        let mut rows = Vec::new();
        if path.exists() {
            csv_lines::for_each_row(path, [a, b, c, "total_s"], |[a, b, c, total]| {
                // An empty cell is an unknown time.
                if !total.is_empty() {
                    let not_a_time = |_| format!("`{total}` is not a number of seconds");
                    rows.push(([a, b, c].map(str::to_owned), total.parse().map_err(not_a_time)?));
                }
                Ok(())
            })?;
        }
        Ok(Self(rows))
    }

    fn get(&self, a: &str, b: &str, c: &str) -> Option<f64> {
        let wanted = |keys: &[String; 3]| keys[0] == a && keys[1] == b && keys[2] == c;
        self.0.iter().find(|(keys, _)| wanted(keys)).map(|(_, seconds)| *seconds)
    }
}

/// Table and sentences.
fn section(sweep: &DeviceSweep, width: u16) -> String {
    let table = grid::table(&sweep.columns(), 1, width);
    let sentences: String = sweep.sentences().iter().map(|sentence| format!("  {sentence}\n")).collect();
    format!("{table}\n{sentences}\n")
}

/// Notes on how reliable the figures are.
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
    let mut columns = Columns::new(points);
    columns.words("devices", |p| p.names.clone());
    columns.numbers("rows per step", |p| units::number(p.rows));
    columns.numbers("step", |p| units::seconds(p.step_s));
    columns.numbers("rows/s", |p| units::rate(p.throughput()));
    let if_several = |p: &Point, cell: String| if p.devices > 1 { cell } else { String::new() };
    if let Some(one) = one {
        columns.numbers("speed-up", |p| times(speed_up(one, p).median));
        let title = repeats::interval_title(points.iter().map(Point::runs));
        columns.numbers(&title, |p| interval(speed_up(one, p)));
        let efficiency = |p: &Point| units::percent(speed_up(one, p).median / p.devices as f64);
        columns.numbers("efficiency", |p| if_several(p, efficiency(p)));
    }
    let known = |share: f64| if share > 0.0 { units::percent(share) } else { String::new() };
    columns.numbers("all-reduce", |p| if_several(p, known(p.all_reduce)));
    columns.numbers("data", |p| units::percent(p.data));
    columns.numbers("log", |p| units::percent(p.log));
    columns.known()
}

/// `0.65 to 0.74`; empty with a single run, or for the reference point itself.
fn interval(speed_up: Estimate) -> String {
    match speed_up.interval {
        Some([low, high]) if low < high || speed_up.median != 1.0 => {
            format!("{} to {}", units::factor(low), units::factor(high))
        }
        _ => String::new(),
    }
}

/// What a speed-up implies for the serial part of a job of fixed size.
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
        let speed_up = speed_up(one, point);
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
