//! A small run as events, for the tests of the sinks.

use std::collections::BTreeMap;

use crate::{
    device::ClockCost,
    event::{
        Best, Event, Header, Level, Outcome, PhaseTime, Progress, Status, TrainRows, Transfer, ValidationRow,
    },
    plan::{Bottleneck, FewerReads, Origin, Processor, TimeAccount, TimeShare},
    spec::{Metric, Monitor},
};

pub(super) fn header() -> Header {
    Header {
        name: "linreg".to_owned(),
        lab: None,
        lab_unit: "",
        devices_requested: "1".to_owned(),
        devices_used: vec!["cpu".to_owned()],
        virtual_devices: false,
        scaling: "strong".to_owned(),
        precision: "f32".to_owned(),
        engine: "serial".to_owned(),
        metrics: vec![Metric::Loss, Metric::Lr, Metric::Accuracy, Metric::GradNorm],
        classifies: true,
        weak_scaling: None,
        monitor: Some(Monitor::LOSS),
        best: None,
        data_digest: "0123456789abcdef".to_owned(),
        peak_planned_bytes: Some(2_097_152),
        train_rows: 80,
        steps_planned: 6,
        epochs_planned: 2,
        resumed_after: None,
        max_time_s: None,
        may_skip_steps: false,
        build: "release",
    }
}

/// Two epochs of three steps; the last batch of an epoch is ragged.
pub(super) fn events() -> Vec<Event> {
    let train = |epoch: u64, first_step: u64, loss: f32| {
        Event::Train(TrainRows {
            epoch,
            first_step,
            rows: 32,
            last_rows: 16,
            width: 3,
            values: [0.0, 0.5, 1e-10].iter().flat_map(|less| [loss - less, 0.25, 1.5]).collect(),
            lr: vec![0.1, 0.05, 1e-7],
            elapsed_s: [0.5, 1.0, 1.5].iter().map(|s| (s + epoch as f64) * 1e-6).collect(),
        })
    };
    let validation = |epoch: u64, step: u64, loss: f64, accuracy: f64| {
        Event::Validation(ValidationRow {
            step,
            epoch,
            rows: 20,
            loss,
            accuracy: Some(accuracy),
            elapsed_s: epoch as f64 / 4.0,
            ..ValidationRow::default()
        })
    };
    let progress =
        Progress { step: 3, epoch: 1, samples: 80, train_s: 0.2, elapsed_s: 0.25, loss: Some(11.5) };
    vec![
        Event::Started(Box::new(header())),
        Event::Notice(Level::Warning, "`gpu:0` is not there: training on the CPU".to_owned()),
        train(1, 1, 12.0),
        validation(1, 3, 0.123_456_789_012_345_68, 0.9),
        Event::Progress(progress),
        Event::Notice(Level::Info, "two\nlines".to_owned()),
        train(2, 4, 2.0),
        validation(2, 6, 0.1, 0.95),
        Event::Finished(Box::new(outcome())),
    ]
}

pub(super) fn outcome() -> Outcome {
    let phase = |phase: &'static str, count: u64, total_s: f64| PhaseTime {
        device: "cpu".to_owned(),
        clock: "host",
        phase,
        count,
        total_s,
        mean_s: total_s / count as f64,
        std_s: (count > 1).then_some(0.001),
        min_s: 1e-9,
        p50_s: 0.25,
        p95_s: 0.25,
        p99_s: 0.25,
        max_s: 0.25,
        share: total_s / 0.5,
        samples: count,
    };
    let transfer = |kind, purpose, from: &str, to: &str, count, noop_count, bytes, total_s| Transfer {
        kind,
        purpose,
        from: from.to_owned(),
        to: to.to_owned(),
        count,
        noop_count,
        bytes,
        moved_bytes: bytes,
        total_s,
    };
    Outcome {
        status: Status::Finished,
        reason: None,
        epochs: Some(2),
        steps: 6,
        samples: Some(160),
        final_train_loss: Some(1.5),
        epoch_train_loss: Some(1.75),
        epoch_train_rows: 80,
        final_validation_loss: Some(0.1),
        final_validation_accuracy: Some(0.95),
        final_scores: BTreeMap::new(),
        best: Some(Best { monitor: Monitor::LOSS, value: 0.05, epoch: 1, step: 3, is_restored: false }),
        earlier_s: 0.0,
        earlier_train_s: 0.0,
        loop_s: 0.5,
        train_s: 0.4,
        logging_s: 0.005,
        ordering_s: 0.0,
        peak_device_bytes: 1_572_864,
        timing: vec![phase("step", 6, 0.375), phase("log", 2, 0.005), phase("total", 1, 0.5)],
        transfers: vec![
            transfer("h2d", "dataset", "cpu", "gpu:0", 2, 0, Some(4000), Some(0.000_002)),
            transfer("h2d", "parameters", "cpu", "cpu", 0, 3, Some(0), Some(0.0)),
            transfer("d2h", "log", "gpu:0", "cpu", 2, 0, Some(72), Some(0.000_001)),
            transfer("sync", "log", "gpu:0", "cpu", 2, 0, None, Some(0.001)),
            transfer("all_reduce", "gradients", "gpu:0", "gpu:0", 48, 0, Some(960), None),
        ],
        checkpoints_left_out: 0,
        instrument: ClockCost { readings: 10_000, each_s: 41e-9 },
        traces: Vec::new(),
        account: Some(TimeAccount {
            shares: vec![
                TimeShare { cause: Bottleneck::Log, seconds: 0.256 },
                TimeShare { cause: Bottleneck::Unexplained, seconds: 0.1 },
                TimeShare { cause: Bottleneck::Overhead, seconds: 0.044 },
            ],
            step_s: 0.76e-6,
            least_s: 0.19e-6,
            processor: Processor::Cpu,
            origin: Origin::Measured,
            fewer_reads: Some(FewerReads { is_buffered: false, reads: 6, instead: 2 }),
        }),
        load: None,
        core_wait_share: None,
        energy_j: Some(25.5),
        no_model: None,
    }
}
