//! The machine during a run: processors, memory, GPUs.

use std::path::Path;

use super::{Content, curves::Chart, html::Html};
use crate::{
    files::{Series, csv_file, csv_lines},
    report::grouping::grouped,
};

/// Columns of `system.csv` that are drawn: name, title, factor, and the range that the axis covers in any
/// case.
const DRAWN: [(&str, &str, f64, Option<[f64; 2]>); 9] = [
    ("utilization", "Utilization, %", 100.0, SHARE),
    ("process_cores", "Cores used by the process", 1.0, ZERO),
    ("load_1m", "Load of the machine", 1.0, ZERO),
    ("rss_bytes", "Memory of the process, MiB", MIB, ZERO),
    ("memory_used_bytes", "Memory in use, MiB", MIB, ZERO),
    ("memory_utilization", "Utilization of the memory's bus, %", 100.0, SHARE),
    ("temperature_c", "Temperature, \u{b0}C", 1.0, None),
    ("power_w", "Power, W", 1.0, ZERO),
    ("sm_clock_mhz", "Clock, MHz", 1.0, ZERO),
];

const SHARE: Option<[f64; 2]> = Some([0.0, 100.0]);

const ZERO: Option<[f64; 2]> = Some([0.0, 0.0]);

const MIB: f64 = 1.0 / (1024.0 * 1024.0);

/// Number of points across a chart.
const POINTS: usize = 1000;

impl Content<'_> {
    /// Adds the charts of the first run that recorded its system.
    pub(super) fn system(&mut self) {
        let runs = &self.comparison.runs;
        let has = |place: &usize| {
            runs[*place].folder.as_ref().is_some_and(|folder| folder.join("system.csv").exists())
        };
        let Some(place) = (0..runs.len()).find(has) else { return };
        let title =
            if runs.len() > 1 { format!("System of {}", self.name(place)) } else { "System".to_owned() };
        self.section("system", &title, |content, html| content.system_charts(html, place));
    }

    fn system_charts(&mut self, html: &mut Html, place: usize) {
        let file = self.file_of(place, "system.csv", |path: &Path| Ok(Some(csv_file::read(path)?)));
        let Some(file) = file else { return };
        let Ok([time, device]) = csv_lines::find_columns(&file.columns, ["elapsed_s", "device"]) else {
            return;
        };
        for (name, title, factor, within) in DRAWN {
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
                let chart = Chart::new(title.to_owned(), "seconds", &lines, POINTS);
                self.chart(html, &Chart { within, ..chart });
            }
        }
    }
}
