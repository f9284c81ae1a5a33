//! The last words of a run.

use std::{fmt::Write, path::Path};

use super::super::{
    LabTable, messages,
    summary::{logging_share, per_second},
};
use crate::{
    event::{Header, Outcome, Status},
    units,
};

/// Columns of a name in the table, unless one needs more.
const NAME: usize = 15;

/// The table at the end: how it went, and where it is kept.
pub(super) fn table(header: &Header, outcome: &Outcome, wall_s: f64, folder: &Path, color: bool) -> String {
    let mut text =
        format!("{} {} in {}\n\n", header.name, painted(outcome.status, color), units::seconds(wall_s));
    let rows = rows(header, outcome, wall_s, folder);
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(NAME) + 1;
    for (name, value) in rows {
        let _ = writeln!(text, "  {name:<width$} {value}"); // a String takes every write
    }
    text
}

/// What products, copies or steps gave, how it went, and where it is kept.
pub(super) fn lab(
    header: &Header,
    outcome: &Outcome,
    (mut table, wall_s): (LabTable, f64),
    folder: &Path,
    color: bool,
) -> String {
    table.note_doubts(header.virtual_devices, header.build);
    // Why a run failed is said as an error.
    let reason = outcome.reason.as_ref().filter(|_| outcome.status == Status::Interrupted);
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    format!(
        "{table}{} {} in {}{reason}\n  folder {}\n",
        header.name,
        painted(outcome.status, color),
        units::seconds(wall_s),
        folder.display()
    )
}

/// One line for a trial of a sweep.
pub(super) fn line(outcome: &Outcome, folder: &Path) -> String {
    let no_model = if outcome.no_model.is_some() { "; no model was written" } else { "" };
    format!("{}: {}{no_model}", folder_name(folder), messages::ended(outcome))
}

/// A folder's own name, without those above.
pub(super) fn folder_name(folder: &Path) -> String {
    folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn rows(header: &Header, outcome: &Outcome, wall_s: f64, folder: &Path) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if let Some(reason) = &outcome.reason {
        rows.push(("reason", reason.clone()));
    }
    rows.push(("devices", messages::devices_in_words(&header.devices_requested, &header.devices_used)));
    if let Some(note) = &header.scaling_note {
        rows.push(("scaling", note.clone()));
    }
    let (steps, epochs) = (units::count(outcome.steps), units::counted(outcome.epochs.unwrap_or(0), "epoch"));
    rows.push(("steps", format!("{steps} in {epochs}, {}", units::seconds(outcome.train_s))));
    let per_second = |count: u64| per_second(count, outcome.train_s);
    let rates = (per_second(outcome.steps), outcome.samples.and_then(per_second));
    if let (Some(steps), Some(samples)) = rates {
        // Virtual devices share the host's cores.
        let of = if header.virtual_devices { ", of virtual devices" } else { "" };
        let speed = format!("{} steps/s, {} rows/s{of}", units::rate(steps), units::rate(samples));
        rows.push(("speed", speed));
    }
    if let Some(loss) = outcome.final_train_loss {
        let of = match header.epoch_means {
            true if outcome.final_train_rows < header.train_rows => {
                let [some, all] = [outcome.final_train_rows, header.train_rows].map(units::count);
                format!("the mean of {some} rows of the last epoch's {all}")
            }
            true => "the mean of the last epoch".to_owned(),
            false => "of the last step".to_owned(),
        };
        rows.push(("train loss", format!("{}, {of}", units::number(loss.into()))));
    }
    if let Some(loss) = outcome.final_validation_loss {
        rows.push(("validation loss", units::number(loss)));
    }
    if let Some(accuracy) = outcome.final_validation_accuracy {
        rows.push(("validation accuracy", units::percent(accuracy)));
    }
    if let Some(share) = logging_share(outcome) {
        rows.push(("logging", format!("{} of the time", units::percent(share))));
    }
    rows.extend(messages::instrument(outcome).map(|words| ("instrument", words)));
    rows.extend(messages::bound_by(outcome, wall_s).map(|words| ("bound by", words)));
    rows.extend(messages::of_build(header.build).map(|words| ("build", words.to_owned())));
    rows.extend(messages::no_model(outcome).map(|words| ("model", format!("none was written: {words}"))));
    rows.push(("folder", folder.display().to_string()));
    rows
}

fn painted(status: Status, color: bool) -> String {
    let code = match status {
        Status::Finished => "1;32",
        Status::Interrupted => "1;33",
        Status::Failed | Status::Diverged => "1;31",
    };
    if color { format!("\x1b[{code}m{}\x1b[0m", status.name()) } else { status.name().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::NoModel, record::sample};

    const FOLDER: &str = "runs/linreg/20270115T080000Z-0123abcd";

    #[test]
    fn the_whole_table() {
        let text = table(&sample::header(), &sample::outcome(), 0.0123, Path::new(FOLDER), false);
        insta::assert_snapshot!(text, @r"
        linreg finished in 12.3 ms

          devices              cpu (asked for 1 GPU)
          steps                6 in 2 epochs, 400 ms
          speed                15.00 steps/s, 400.0 rows/s
          train loss           1.500, of the last step
          validation loss      0.1000
          validation accuracy  95.0 %
          logging              1.00 % of the time
          instrument           0.08 % of the time: 10,000 readings of the clock at 41 ns
          bound by             log, 64.0 % of the time; a step of 0.76 µs is 4.0x its floor by measured rates; first: `logging.policy=buffered` moves the losses in blocks
          folder               runs/linreg/20270115T080000Z-0123abcd
        ");
    }

    #[test]
    fn a_run_that_diverged_without_log() {
        let outcome = Outcome {
            status: Status::Diverged,
            reason: Some("the loss of step 5 is NaN: lower `optimizer.sgd.lr`".to_owned()),
            final_train_loss: None,
            final_validation_loss: None,
            final_validation_accuracy: None,
            steps: 5,
            epochs: Some(1),
            longer: None,
            no_model: Some(NoModel::Diverged),
            ..sample::outcome()
        };
        let header = Header { build: "debug", ..sample::header() };
        insta::assert_snapshot!(table(&header, &outcome, 75.0, Path::new(FOLDER), false), @r"
        linreg diverged in 1 min 15 s

          reason           the loss of step 5 is NaN: lower `optimizer.sgd.lr`
          devices          cpu (asked for 1 GPU)
          steps            5 in 1 epoch, 400 ms
          speed            12.50 steps/s, 400.0 rows/s
          logging          1.00 % of the time
          instrument       0.08 % of the time: 10,000 readings of the clock at 41 ns
          bound by         start-up and files, 99.3 % of 1 min 15 s; first: several trials in one sweep. The training itself: log, 64.0 % of the time; a step of 0.76 µs is 4.0x its floor by measured rates; first: `logging.policy=buffered` moves the losses in blocks
          build            debug: its times say nothing of a release build (`cargo build --release`)
          model            none was written: weights that have no finite loss mean nothing; the command in `spec.toml` with `trainer.max_steps=3` writes the last whose loss is finite
          folder           runs/linreg/20270115T080000Z-0123abcd
        ");
        let short = Outcome { steps: 2, ..outcome };
        let words = "weights that have no finite loss mean nothing";
        assert_eq!(messages::no_model(&short).as_deref(), Some(words));
        assert_eq!(
            line(&short, Path::new(FOLDER)),
            "20270115T080000Z-0123abcd: diverged after 2 steps in 1 epoch, 500 ms: the loss of step 5 is NaN: lower \
             `optimizer.sgd.lr`; no model was written"
        );
    }

    #[test]
    fn why_there_is_no_model() {
        let words = |no_model| messages::no_model(&Outcome { no_model, ..sample::outcome() });
        assert_eq!(words(None), None);
        assert_eq!(
            words(Some(NoModel::NotFinite)).unwrap(),
            "not all weights are finite numbers; the command in `spec.toml` with `trainer.max_steps=5` writes the last \
             whose loss is finite"
        );
        let failed =
            Outcome { status: Status::Failed, no_model: Some(NoModel::NotFinite), ..sample::outcome() };
        assert_eq!(messages::no_model(&failed).unwrap(), "not all weights are finite numbers");
        assert_eq!(
            words(Some(NoModel::Device)).unwrap(),
            "of which step the parameters of a device that failed are is not known"
        );
        assert_eq!(words(Some(NoModel::Unread)).unwrap(), "the device does not give its parameters back");
    }

    #[test]
    fn a_part_of_an_epoch_is_called_one() {
        let header = Header { epoch_means: true, ..sample::header() };
        let line = |final_train_rows| {
            let outcome = Outcome { final_train_rows, ..sample::outcome() };
            let text = table(&header, &outcome, 0.0123, Path::new(FOLDER), false);
            text.lines().find(|line| line.contains("train loss")).unwrap_or_default().to_owned()
        };
        assert_eq!(line(80), "  train loss           1.500, the mean of the last epoch");
        assert_eq!(line(48), "  train loss           1.500, the mean of 48 rows of the last epoch's 80");
    }

    #[test]
    fn weak_scaling_and_virtual_devices_are_named() {
        let header = Header {
            devices_requested: "2".to_owned(),
            devices_used: vec!["virtual:0".to_owned(), "virtual:1".to_owned()],
            virtual_devices: true,
            scaling_note: Some("weak scaling: a step takes 64 rows".to_owned()),
            ..sample::header()
        };
        let text = table(&header, &sample::outcome(), 0.0123, Path::new(FOLDER), false);
        insta::assert_snapshot!(text, @r"
        linreg finished in 12.3 ms

          devices              virtual:0, virtual:1
          scaling              weak scaling: a step takes 64 rows
          steps                6 in 2 epochs, 400 ms
          speed                15.00 steps/s, 400.0 rows/s, of virtual devices
          train loss           1.500, of the last step
          validation loss      0.1000
          validation accuracy  95.0 %
          logging              1.00 % of the time
          instrument           0.08 % of the time: 10,000 readings of the clock at 41 ns
          bound by             log, 64.0 % of the time; a step of 0.76 µs is 4.0x its floor by measured rates; first: `logging.policy=buffered` moves the losses in blocks
          folder               runs/linreg/20270115T080000Z-0123abcd
        ");
    }

    #[test]
    fn only_the_status_is_painted() {
        let text = table(&sample::header(), &sample::outcome(), 0.0123, Path::new(FOLDER), true);
        assert!(text.starts_with("linreg \x1b[1;32mfinished\x1b[0m in 12.3 ms\n"));
        assert_eq!(text.matches('\x1b').count(), 2);
    }
}
