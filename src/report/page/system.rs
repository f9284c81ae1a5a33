//! The machine while a run went on: processors, memory, GPUs.

use std::path::Path;

use super::{Content, curves::Chart, html::Html};
use crate::report::{csv_file, csv_lines, grouping::grouped, series::Series};

/// Columns of `system.csv` that are drawn: name, title, factor.
const DRAWN: [(&str, &str, f64); 9] = [
    ("utilization", "utilization, %", 100.0),
    ("process_cores", "cores used by the process", 1.0),
    ("load_1m", "load of the machine", 1.0),
    ("rss_bytes", "memory of the process, MiB", MIB),
    ("memory_used_bytes", "memory in use, MiB", MIB),
    ("memory_utilization", "utilization of the memory's bus, %", 100.0),
    ("temperature_c", "temperature, \u{b0}C", 1.0),
    ("power_w", "power, W", 1.0),
    ("sm_clock_mhz", "clock, MHz", 1.0),
];

const MIB: f64 = 1.0 / (1024.0 * 1024.0);

/// Points across.
const POINTS: usize = 1000;

impl Content<'_> {
    /// Adds the charts of the first run that recorded its system.
    pub(super) fn system(&mut self) {
        let runs = &self.comparison.runs;
        let has = |place: &usize| {
            runs[*place].folder.as_ref().is_some_and(|folder| folder.join("system.csv").is_file())
        };
        let Some(place) = (0..runs.len()).find(has) else { return };
        let title =
            if runs.len() > 1 { format!("System of {}", self.name(place)) } else { "System".to_owned() };
        self.section("system", &title, |content, html| content.system_charts(html, place));
    }

    fn system_charts(&mut self, html: &mut Html, place: usize) {
        let file = self.file_of(place, "system.csv", |path: &Path| csv_file::read(path).map(Some));
        let Some(file) = file else { return };
        let Ok([time, device]) = csv_lines::find_columns(&file.columns, ["elapsed_s", "device"]) else {
            return;
        };
        for (name, title, factor) in DRAWN {
            let Some(column) = file.columns.iter().position(|column| column == name) else { continue };
            let values = file.rows.iter().filter_map(|row| {
                let number = |place: usize| row.get(place)?.parse::<f64>().ok();
                Some((row.get(device)?.to_owned(), (number(time)?, number(column)? * factor)))
            });
            let series: Vec<(String, Series)> = grouped(values)
                .into_iter()
                .map(|(device, points)| {
                    let mut series = Series::default();
                    points.into_iter().for_each(|(time, value)| series.push(time, value));
                    (device, series)
                })
                .collect();
            let lines: Vec<(String, Vec<&Series>)> =
                series.iter().map(|(device, series)| (device.clone(), vec![series])).collect();
            if lines.iter().any(|(_, series)| series[0].points().count() > 4) {
                self.chart(html, &Chart::new(title.to_owned(), "seconds", &lines, POINTS));
            }
        }
    }
}
