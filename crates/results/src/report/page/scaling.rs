//! Scaling over devices: rows per second over their number, compared with ideal scaling where devices are real.

use super::{
    Content,
    svg::{self, Frame},
    table,
};
use crate::{
    report::{
        plot::Axis,
        times::{DeviceSweep, Kind, Point},
    },
    units,
};

impl Content<'_> {
    /// Adds a chart and a table for each sweep over numbers of devices.
    pub(super) fn scaling(&mut self) {
        let sweeps = match DeviceSweep::read(&self.comparison.runs) {
            Ok(sweeps) => sweeps,
            Err(e) => return self.warnings.push(format!("devices are not compared: {e}")),
        };
        self.section("devices", "More devices", |content, html| {
            for (number, sweep) in sweeps.iter().enumerate() {
                if !sweep.others.is_empty() {
                    html.words("h3", &[], &sweep.others);
                }
                if let Some(frame) = frame(sweep) {
                    let drawing = draw(sweep, &frame);
                    let is_virtual = if sweep.is_virtual() { ", on virtual devices" } else { "" };
                    let title = format!("Rows per second by number of devices{is_virtual}");
                    let words =
                        |point: &Point| format!("{}: {}", point.names, units::rate(point.throughput()));
                    let points: Vec<String> = sweep.points.iter().map(words).collect();
                    let label = format!("{title}; {}", points.join(", "));
                    content.figure(html, (&format!("devices-{number}"), &title, &label), drawing);
                }
                table::table(html, "Devices side by side", &sweep.columns());
                sweep.sentences().iter().for_each(|words| html.prose("note", words));
            }
        });
    }
}

fn frame(sweep: &DeviceSweep) -> Option<Frame> {
    let most = sweep.points.iter().map(|point| point.devices).max().filter(|&most| most > 1)?;
    let measured = sweep.points.iter().map(Point::throughput).fold(0.0, f64::max);
    let ideal = sweep.one().map_or(0.0, |one| one.throughput() * most as f64);
    let y = Axis::new(0.0, measured.max(ideal), 5, true);
    Some(Frame::new(440.0, 280.0, Axis::new(0.0, most as f64, most.min(8), true), y).with_large_figures())
}

fn draw(sweep: &DeviceSweep, frame: &Frame) -> svg::Svg {
    let mut points: Vec<&Point> = sweep.points.iter().filter(|point| point.kind != Kind::Cpu).collect();
    points.sort_by_key(|point| point.devices);
    let at = |point: &Point| [frame.across(point.devices as f64), frame.up(point.throughput())];
    let ticks =
        frame.ticks().into_iter().filter(|(_, label)| label.parse::<u32>().is_ok()).collect::<Vec<_>>();
    let devices = if sweep.is_virtual() { "virtual devices" } else { "devices" };
    frame.draw([devices, "rows per second"], &ticks, |html| {
        if let (Some(one), Some(last)) = (sweep.one(), points.last()) {
            let ends = [1, last.devices].map(|devices| devices as f64);
            let ideal = ends.map(|devices| [frame.across(devices), frame.up(devices * one.throughput())]);
            svg::polyline(html, "ideal", ideal.into_iter());
            let [x, y] = ideal[1];
            svg::text(html, [x - 6.0, y - 6.0], "end", "ideal");
        }
        svg::polyline(html, "c0 main", points.iter().map(|point| at(point)));
        for point in &points {
            let title = format!("{}: {} rows/s", point.names, units::rate(point.throughput()));
            svg::dot(html, "f0", at(point), 4.0, &title);
        }
    })
}
