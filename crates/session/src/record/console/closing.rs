//! What is printed at the end of a run.

use std::path::Path;

use super::super::{LabTable, command_line, messages, terminal::broken};
use super::{TrialOfSweep, steps, validated::Validated};
use crate::{
    event::{Header, Outcome, Status},
    host::escape_line,
    units,
};

/// Width of the column of names in the table.
const NAME: usize = 16;

/// Rows that are copied from, and so are not broken.
const COPIED: [&str; 3] = ["resume with", "model", "folder"];

/// The summary at the end: at most ten rows, not counting errors and warnings, for a terminal of `width` columns. The rest is
/// in `run.log` and is shown with `-v`.
pub(super) fn table(
    header: &Header,
    (outcome, validated): (&Outcome, &Validated),
    wall_s: f64,
    folder: &Path,
    (color, width): (bool, usize),
) -> String {
    let devices = messages::devices_in_words(&header.devices_requested, &header.devices_used);
    let (name, status) = (escape_line(&header.name), painted(outcome.status, color));
    let mut text = format!("{name} {status} in {} on {devices}\n\n", units::seconds(wall_s));
    for (name, value) in rows(header, (outcome, validated), wall_s, folder) {
        let line = format!("  {name:<NAME$} {}", escape_line(&value));
        let start = "  ".len() + NAME + 1;
        let width = if COPIED.contains(&name) { usize::MAX } else { width };
        text += &(broken(&line, (start, start), width) + "\n");
    }
    text
}

/// The results of products, copies or steps, how the run ended, and its folder.
pub(super) fn lab(
    header: &Header,
    outcome: &Outcome,
    (mut table, wall_s): (LabTable, f64),
    folder: &Path,
    color: bool,
) -> String {
    let work = table.work(outcome.loop_s).map(|words| format!(" ({words})")).unwrap_or_default();
    let printing = table.printing(outcome).unwrap_or_default();
    table.note_doubts(outcome, header.virtual_devices, header.build);
    // The reason of a failure is printed as an error.
    let reason = outcome.reason.as_ref().filter(|_| outcome.status == Status::Interrupted);
    let reason = reason.map(|reason| format!(": {}", escape_line(reason))).unwrap_or_default();
    format!(
        "{table}{} {} in {}{work}{reason}\n{printing}  folder {}\n",
        escape_line(&header.name),
        painted(outcome.status, color),
        units::seconds(wall_s),
        escape_line(&folder.to_string_lossy())
    )
}

/// One line for a trial of a sweep.
pub(super) fn line(outcome: &Outcome, name: &str) -> String {
    let no_model = if outcome.no_model.is_some() { "; no model was written" } else { "" };
    format!("{name}: {}{no_model}", messages::ended(outcome))
}

/// `007-lr=0.1 (8 of 60)`.
pub(super) fn trial_name(folder: &Path, trial: &TrialOfSweep) -> String {
    format!(
        "{} ({} of {})",
        folder_name(folder),
        units::count(trial.number as u64 + 1),
        units::count(trial.of as u64)
    )
}

/// A folder's own name, without those above.
pub(super) fn folder_name(folder: &Path) -> String {
    folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn rows(
    header: &Header,
    (outcome, validated): (&Outcome, &Validated),
    wall_s: f64,
    folder: &Path,
) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if let Some(reason) = &outcome.reason {
        rows.push(("reason", reason.clone()));
    }
    rows.extend(steps::rows(header, outcome));
    rows.extend(train_loss(header, outcome).map(|words| ("train loss", words)));
    rows.extend(validated.in_words(outcome).map(|words| ("validation loss", words)));
    rows.extend(messages::checkpoints(outcome).map(|words| ("checkpoints", words)));
    rows.extend(messages::bound_by(outcome, wall_s).map(|words| ("bound by", words)));
    rows.extend(messages::of_build(header.build).map(|words| ("build", words.to_owned())));
    let no_model = messages::no_model(outcome, folder);
    if let Some(words) = no_model {
        rows.push(("model", format!("none was written{words}")));
        rows.extend(outcome.best.map(|_| ("", "`best.safetensors` has the best weights".to_owned())));
    } else if outcome.best.is_some_and(|best| best.is_restored && best.step < outcome.steps) {
        rows.push(("model", "holds the best weights, not the last".to_owned()));
    }
    let path = folder.display().to_string();
    // A signal before the first step leaves no checkpoint.
    if outcome.status == Status::Interrupted && outcome.steps > 0 {
        rows.push(("resume with", command_line(["runner", "run", "--resume", &path])));
    }
    rows.push(("folder", path));
    rows
}

/// The training loss of the last epoch.
fn train_loss(header: &Header, outcome: &Outcome) -> Option<String> {
    let loss = units::number(outcome.epoch_train_loss?);
    Some(if outcome.epoch_train_rows < header.train_rows {
        let [some, all] = [outcome.epoch_train_rows, header.train_rows].map(units::count);
        format!("{loss}, the mean of {some} of {all} rows of the last epoch")
    } else {
        format!("{loss}, the mean of the last epoch")
    })
}

fn painted(status: Status, color: bool) -> String {
    let code = match status {
        Status::Finished => "1;32",
        Status::Interrupted | Status::Waiting | Status::Stopped => "1;33",
        Status::Failed | Status::Diverged => "1;31",
    };
    if color { format!("\x1b[{code}m{}\x1b[0m", status.name()) } else { status.name().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{Event, NoModel, PhaseTime, ProductRow, Spread},
        host::load::Load,
        plan::{Bottleneck, TimeShare},
        record::sample,
        spec::lab::Order,
    };

    const FOLDER: &str = "runs/linreg/20270115T080000Z-0123abcd";
    const PLAIN: (bool, usize) = (false, usize::MAX);

    #[test]
    fn the_whole_table() {
        let mut validated = Validated::default();
        validated.curve.extend([0.4, 0.05, 0.1]);
        let text =
            table(&sample::header(), (&sample::outcome(), &validated), 0.0123, Path::new(FOLDER), PLAIN);
        insta::assert_snapshot!(text, @r"
        linreg finished in 12.3 ms on cpu (asked for 1 GPU)

          steps            6 in 2 epochs, 400 ms
          speed            15.00 steps/s, 400.0 rows/s
          train loss       1.750, the mean of the last epoch
          validation loss  0.1000, accuracy 95.0 %; best 0.05000 in epoch 1, step 3  █▁▂
          bound by         log, 64.0 % of the training time
          folder           runs/linreg/20270115T080000Z-0123abcd
        ");
    }

    /// Words are broken below their row; a path is not.
    #[test]
    fn a_narrow_table() {
        let mut validated = Validated::default();
        validated.curve.extend([0.4, 0.05, 0.1]);
        let text = table(
            &sample::header(),
            (&sample::outcome(), &validated),
            0.0123,
            Path::new(FOLDER),
            (false, 48),
        );
        insta::assert_snapshot!(text, @r"
        linreg finished in 12.3 ms on cpu (asked for 1 GPU)

          steps            6 in 2 epochs, 400 ms
          speed            15.00 steps/s, 400.0 rows/s
          train loss       1.750, the mean of the last
                           epoch
          validation loss  0.1000, accuracy 95.0 %; best
                           0.05000 in epoch 1, step 3
                           █▁▂
          bound by         log, 64.0 % of the training
                           time
          folder           runs/linreg/20270115T080000Z-0123abcd
        ");
    }

    #[test]
    fn a_run_that_a_signal_ended_names_the_command_that_resumes_it() {
        let ended = |status, steps| {
            let outcome = Outcome { status, steps, ..sample::outcome() };
            let text = table(
                &sample::header(),
                (&outcome, &Validated::default()),
                0.5,
                Path::new("runs/a b/1"),
                PLAIN,
            );
            text.lines().find_map(|line| line.strip_prefix("  resume with      ").map(str::to_owned))
        };
        assert_eq!(ended(Status::Interrupted, 6).as_deref(), Some("runner run --resume 'runs/a b/1'"));
        assert_eq!(ended(Status::Interrupted, 0), None);
        assert_eq!(ended(Status::Finished, 6), None);
    }

    /// What the rows took, and what the rest of the run was.
    #[test]
    fn the_end_of_products() {
        let mut products = LabTable::default();
        let row = ProductRow {
            device: "cpu".to_owned(),
            order: Order::Sequential,
            shape: [4096; 3],
            count: 1,
            total_s: 12.3,
            log_s: 0.0,
            norm_sum: None,
            spread: Spread { p50_s: 12.3, min_s: 12.3, max_s: 12.3 },
            in_a_row: 1,
            threads: Some(2),
        };
        products.take(&Event::Product(row));
        let outcome = |status, reason: Option<&str>| {
            let reason = reason.map(str::to_owned);
            Outcome { status, reason, loop_s: 12.3, ..Outcome::default() }
        };
        let header = Header { name: "matmul".to_owned(), build: "release", ..Header::default() };
        let end = |table, outcome: &Outcome| lab(&header, outcome, (table, 27.8), Path::new(FOLDER), false);
        insta::assert_snapshot!(end(products, &outcome(Status::Finished, None)), @r"
          device             product  threads  count  median        min to max  FLOP/s, median
          cpu     4096 x 4096 x 4096        2      1  12.3 s  12.3 s to 12.3 s         11.17 G

        matmul finished in 27.8 s (these products: 12.3 s; the rest: start-up, random matrices and first products, which do not count)
          folder runs/linreg/20270115T080000Z-0123abcd
        ");
        let stopped = outcome(Status::Interrupted, Some("SIGTERM after 0 of 20 products"));
        let text = end(LabTable::default(), &stopped);
        assert!(text.starts_with("matmul interrupted in 27.8 s: SIGTERM after 0 of 20 products\n"), "{text}");
    }

    #[test]
    fn what_checkpoints_cost() {
        let mut outcome = sample::outcome();
        let row = outcome.timing[0].clone();
        outcome.timing.push(PhaseTime { phase: "checkpoint", count: 12, total_s: 0.44, ..row });
        let text = table(&sample::header(), (&outcome, &Validated::default()), 0.5, Path::new(FOLDER), PLAIN);
        assert!(text.contains("\n  checkpoints      12, for which training waited 440 ms\n"), "{text}");
        (outcome.checkpoints_left_out, outcome.earlier_s) = (2951, 2.0);
        let words = messages::checkpoints(&outcome).unwrap();
        assert_eq!(words, "12 since the resume, for which training waited 440 ms; 2,951 left out");
        assert!(messages::bound_by(&outcome, 0.5).unwrap().ends_with(" training time since the resume"));
    }

    #[test]
    fn what_nothing_explains_is_not_a_bound() {
        let mut outcome = sample::outcome();
        let account = outcome.account.as_mut().unwrap();
        account.shares.retain(|share| share.cause == Bottleneck::Unexplained);
        for (loop_s, words) in [
            (
                0.249,
                "not known of so short a run: 100.0 % of the training time is spread over what is not measured",
            ),
            (5.0, "nothing that was measured: 100.0 % of the training time has no known cause"),
        ] {
            outcome.loop_s = loop_s;
            assert_eq!(messages::bound_by(&outcome, loop_s).as_deref(), Some(words));
        }
    }

    #[test]
    fn a_busy_machine_stands_with_the_bound() {
        let load = |others_cores| Load { window_s: 1.0, others_cores, cores: 2, ..Load::default() };
        let mut outcome = Outcome { load: Some(load(0.9)), ..sample::outcome() };
        let bound = |outcome: &Outcome| messages::bound_by(outcome, 0.5).unwrap();
        assert_eq!(bound(&outcome), "log, 64.0 % of the training time; the machine was busy with others");
        let details = messages::details(&sample::header(), &outcome);
        assert!(
            details.contains(&"in the last 1.00 s, other processes used 0.90 of 2 cores".to_owned()),
            "{details:?}"
        );
        // A run too short for a load counts its waits for a core.
        let waited = |seconds| {
            let mut outcome = sample::outcome();
            outcome.account.as_mut().unwrap().shares[1] = TimeShare { cause: Bottleneck::Core, seconds };
            bound(&outcome)
        };
        assert_eq!(waited(0.1), "log, 64.0 % of the training time; 25.0 % went into waiting for a core");
        assert_eq!(waited(0.03), "log, 77.6 % of the training time");
        outcome.account.as_mut().unwrap().shares[0].cause = Bottleneck::Core;
        assert_eq!(bound(&outcome), "waiting for a core, 64.0 % of the training time");
        let calm = Outcome { load: Some(load(0.05)), ..sample::outcome() };
        assert_eq!(bound(&calm), "log, 64.0 % of the training time");
    }

    #[test]
    fn a_run_that_diverged_without_log() {
        let outcome = Outcome {
            status: Status::Diverged,
            reason: Some("the loss of step 5 is NaN: lower `optimizer.sgd.lr`".to_owned()),
            epoch_train_loss: None,
            final_validation_loss: None,
            final_validation_accuracy: None,
            steps: 5,
            epochs: Some(1),
            best: None,
            no_model: Some(NoModel::Diverged),
            ..sample::outcome()
        };
        let header = Header { build: "debug", ..sample::header() };
        insta::assert_snapshot!(table(&header, (&outcome, &Validated::default()), 75.0, Path::new(FOLDER), PLAIN), @r"
        linreg diverged in 1 min 15 s on cpu (asked for 1 GPU)

          reason           the loss of step 5 is NaN: lower `optimizer.sgd.lr`
          steps            5 in 1 epoch, 400 ms
          speed            12.50 steps/s, 400.0 rows/s
          build            debug: its times say nothing of a release build (`cargo build --release`)
          model            none was written. For the weights after step 3: runner runs/linreg/20270115T080000Z-0123abcd/spec.toml trainer.max_steps=3
          folder           runs/linreg/20270115T080000Z-0123abcd
        ");
        let short = Outcome { steps: 2, ..outcome };
        assert_eq!(messages::no_model(&short, Path::new(FOLDER)).as_deref(), Some(""));
        assert_eq!(
            line(&short, &folder_name(Path::new(FOLDER))),
            "20270115T080000Z-0123abcd: diverged after 2 steps in 1 epoch, 400 ms: the loss of step 5 is NaN: lower \
             `optimizer.sgd.lr`; no model was written"
        );
    }

    #[test]
    fn why_there_is_no_model() {
        let words = |no_model, status| {
            messages::no_model(&Outcome { no_model, status, ..sample::outcome() }, Path::new(FOLDER))
        };
        assert_eq!(words(None, Status::Finished), None);
        for (no_model, status, want) in [
            (
                NoModel::NotFinite,
                Status::Finished,
                ": not all weights are finite numbers. For the weights after step 5: runner \
                 runs/linreg/20270115T080000Z-0123abcd/spec.toml trainer.max_steps=5",
            ),
            (NoModel::NotFinite, Status::Failed, ": not all weights are finite numbers"),
            (
                NoModel::Device,
                Status::Failed,
                ": after a device failure we cannot tell which step its parameters belong to",
            ),
            (NoModel::Unread, Status::Failed, ": the device does not give its parameters back"),
        ] {
            assert_eq!(words(Some(no_model), status).unwrap(), want);
        }
    }

    #[test]
    fn lines_that_depend_on_the_run() {
        let line = |header: &Header, rows: u64, start: &str| {
            let outcome = Outcome { epoch_train_rows: rows, ..sample::outcome() };
            let text = table(header, (&outcome, &Validated::default()), 0.0123, Path::new(FOLDER), PLAIN);
            text.lines().find(|line| line.trim().starts_with(start)).unwrap_or_default().trim().to_owned()
        };
        // A part of an epoch is shown as such.
        assert_eq!(
            line(&sample::header(), 80, "train"),
            "train loss       1.750, the mean of the last epoch"
        );
        assert_eq!(
            line(&sample::header(), 48, "train"),
            "train loss       1.750, the mean of 48 of 80 rows of the last epoch"
        );
        let pose = Header { virtual_devices: true, ..sample::header() };
        assert_eq!(
            line(&pose, 80, "speed"),
            "speed            15.00 steps/s, 400.0 rows/s, of virtual devices"
        );
        // Only the status is coloured.
        let text = table(
            &sample::header(),
            (&sample::outcome(), &Validated::default()),
            0.0123,
            Path::new(FOLDER),
            (true, usize::MAX),
        );
        assert!(text.starts_with("linreg \x1b[1;32mfinished\x1b[0m in 12.3 ms on cpu (asked for 1 GPU)\n"));
        assert_eq!(text.matches('\x1b').count(), 2);
    }
}
