//! `summary.csv` of a lab: the columns of every run, so that sweeps and comparisons read it; what has no meaning here
//! is empty. Products, copies or steps stand in `steps`, and the time in them in `train_s`.

use std::time::Duration;

use super::LabFacts;
use crate::{
    device::Kind,
    lab::LabOutcome,
    record::{
        SUMMARY_COLUMNS,
        lines::Lines,
        summary::{peak_rss_bytes, per_second},
    },
};

pub(super) fn write_row(
    lines: &mut Lines,
    run: &str,
    facts: &LabFacts,
    outcome: &LabOutcome,
    wall: Duration,
) {
    let share = (outcome.work_s > 0.0).then(|| outcome.logging_s / outcome.work_s);
    for column in SUMMARY_COLUMNS {
        match column {
            "run" => lines.text(run),
            "name" => lines.text(&facts.name),
            "status" => lines.text(outcome.status.name()),
            "devices_requested" => lines.text(&facts.devices_requested),
            "devices_used" => lines.text(&facts.devices_used.join(";")),
            "virtual" => lines.bool(facts.virtual_devices),
            "precision" => lines.text("f32"),
            "engine" => lines.text(facts.kind.name()),
            "steps" => lines.u64(outcome.done),
            "wall_s" => lines.seconds(wall.as_secs_f64()),
            "train_s" => lines.seconds(outcome.work_s),
            "steps_per_s" => lines.option(per_second(outcome.done, outcome.work_s), Lines::f64),
            "logging_s" => lines.seconds(outcome.logging_s),
            "logging_share" => lines.option(share, Lines::f64),
            "syncs" => lines.u64(outcome.traffic.events(Kind::Sync)),
            "bytes_h2d" => lines.u64(outcome.traffic.bytes(Kind::HostToDevice)),
            "bytes_d2h" => lines.u64(outcome.traffic.bytes(Kind::DeviceToHost)),
            "peak_device_bytes" => lines.u64(outcome.peak_device_bytes),
            "peak_rss_bytes" => lines.option(peak_rss_bytes(), Lines::u64),
            _ => lines.empty(),
        };
    }
}
