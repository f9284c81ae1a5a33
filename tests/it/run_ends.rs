//! What ends a training: losses that are no numbers, limits, and early stopping.

use super::{process::Sandbox, run::LINREG};

const POLICIES: [&str; 5] = [
    "logging.policy=immediate",
    "logging.policy=buffered",
    "logging.flush_every=1000",
    "logging.policy=per_epoch",
    "logging.policy=off",
];

#[test]
fn a_loss_that_is_no_number_ends_the_run() {
    let place = Sandbox::new(LINREG);
    let run = |policy: &str| {
        let run = place.run(&["optimizer.sgd.lr=1e10", policy]);
        let folder = run.ended_by(1);
        assert_eq!((folder.summary("status"), folder.summary("steps")), ("diverged".into(), "3".into()));
        let words = "the loss is not a finite number at step 3; lower the learning rate";
        assert!(run.ended.stderr.contains(words) || run.ended.stdout.contains(words), "{:?}", run.ended);
        assert!(folder.text("run.log").contains(words));
        assert!(!folder.files().contains(&"model.safetensors".to_owned()));
        folder
    };
    for policy in &POLICIES[..3] {
        let metrics = run(policy).metrics();
        assert_eq!(metrics.column("step"), ["1", "2", "3"], "{policy}");
        let losses = metrics.f64s("loss");
        assert!(losses[..2].iter().all(|loss| loss.is_finite()) && !losses[2].is_finite());
    }
    let metrics = run("logging.policy=per_epoch").metrics();
    assert_eq!((metrics.column("step"), metrics.column("rows")), (vec!["3"], vec!["60"]));
    assert!(!metrics.f64s("loss")[0].is_finite());
    assert_eq!(run("logging.policy=off").metrics().rows.len(), 0);
}

/// Ends like a run with a bad training loss, although the last training loss was finite.
#[test]
fn a_validation_loss_that_is_no_number_ends_the_run() {
    let place = Sandbox::new(LINREG);
    let folder = place.run(&["optimizer.sgd.lr=1e3"]).ended_by(1);
    assert_eq!((folder.summary("status"), folder.summary("steps")), ("diverged".into(), "6".into()));
    assert!(folder.metrics().only("split", "train").f64s("loss").iter().all(|loss| loss.is_finite()));
    assert!(!folder.metrics().only("split", "validation").f64s("loss").last().unwrap().is_finite());
    assert!(folder.text("run.log").contains("the validation loss is not a finite number at step 6; lower"));
    assert!(!folder.files().contains(&"model.safetensors".to_owned()));
}

/// In a later epoch, on the smaller last batch: earlier rows and validations are kept.
#[test]
fn a_run_may_diverge_late() {
    let place = Sandbox::new(LINREG);
    for policy in POLICIES {
        // The error's exponent doubles steadily; the test only cares about the step at which it overflows.
        let run = place.run(&["optimizer.sgd.lr=50.0", "trainer.max_epochs=100", policy]).ended_by(1);
        let steps: usize = run.summary("steps").parse().unwrap();
        assert!(steps > 6, "{policy}: {steps}");
        let validation = run.metrics().only("split", "validation");
        assert_eq!(validation.rows.len(), (steps - 1) / 6, "{policy}");
        let train = run.metrics().only("split", "train");
        let rows = match policy {
            "logging.policy=off" => 0,
            "logging.policy=per_epoch" => (steps - 1) / 6 + 1,
            _ => steps,
        };
        assert_eq!(train.rows.len(), rows, "{policy}");
        assert!(run.metrics().f64s("step").is_sorted());
    }
}

#[test]
fn steps_epochs_and_times_end_a_run() {
    let place = Sandbox::new(LINREG);
    let run = place.run(&["trainer.max_steps=8"]).ended_by(0);
    assert_eq!((run.summary("steps"), run.summary("epochs")), ("8".into(), "2".into()));
    assert_eq!(run.metrics().only("split", "validation").column("step"), ["6", "8"]);

    let run = place.run(&["trainer.validate_every_epochs=3"]).ended_by(0);
    assert_eq!(run.metrics().only("split", "validation").column("step"), ["18", "24"]);

    let run = place.run(&["trainer.validate_every_epochs=0"]).ended_by(0);
    assert_eq!(run.metrics().only("split", "validation").rows.len(), 0);
    assert_eq!(run.summary("final_validation_loss"), "");

    let run =
        place.run(&["trainer.max_epochs=1000000000", "trainer.max_time=100ms", "logging.policy=per_epoch"]);
    let folder = run.ended_by(0);
    assert_eq!(folder.summary("status"), "finished");
    assert!(folder.text("run.log").contains("`trainer.max_time` is over"));
    let wall_s: f64 = folder.summary("wall_s").parse().unwrap();
    assert!(wall_s >= 0.1, "{wall_s}");
}

#[test]
fn early_stopping_counts_validations_without_improvement() {
    let place = Sandbox::new(LINREG);
    // Only the first validation improves by this much.
    let stopping = |patience: u32, delta: &str| {
        format!(
            "trainer.early_stopping={{metric = \"validation.loss\", patience = {patience}, min_delta = {delta}}}"
        )
    };
    for (patience, epochs) in [(1, "2"), (3, "4")] {
        let run = place.run(&["trainer.max_epochs=50", &stopping(patience, "1000.0")]).ended_by(0);
        assert_eq!((run.summary("status"), run.summary("epochs")), ("finished".into(), epochs.into()));
        let reason = " without an improvement of more than 1000 on a validation loss of ";
        assert!(run.text("run.log").contains(reason));
    }
    let run = place.run(&["trainer.max_epochs=10", &stopping(2, "0.0")]).ended_by(0);
    assert_eq!(run.summary("epochs"), "10");
}
