//! Weights of rows in batches: their sum divides the loss of a batch, and counts it in that of an epoch.

use std::fs;

use super::{
    process::{Folder, tensors},
    row_weights::{losses, near, rows, sandbox, text},
};

/// The divisor is the sum of the weights of the whole batch, on however many devices its rows are. Rows are shuffled.
#[test]
fn devices_share_the_divisor() {
    let place = sandbox();
    let run =
        |words: &[&str]| losses(&place.run(&[&["-q", "data.shuffle=true"], words].concat()).ended_by(0));
    let one = run(&["--threads=1"]);
    assert_eq!(run(&["--threads=2", "devices.engine=team"]), one);
    for count in ["2", "3"] {
        for placement in ["resident", "streamed"] {
            let gpus = format!("devices.num_gpus={count}");
            near(&run(&[&gpus, "--virtual-gpus", count, &format!("data.placement={placement}")]), &one, 1e-4);
        }
    }
}

/// A batch whose rows all weigh 0 has the loss 0 and changes nothing.
#[test]
fn a_batch_without_weight() {
    let place = sandbox();
    let none =
        rows().into_iter().enumerate().map(|(n, [a, b, y, w])| [a, b, y, if n < 16 { 0.0 } else { w }]);
    fs::write(place.path().join("survey.csv"), text(none)).unwrap();
    let run = |steps: &str| place.run(&["-q", "data.csv.validation_fraction=0", steps]).ended_by(0);
    let [none, first, second] =
        ["trainer.max_steps=14", "trainer.max_steps=1", "trainer.max_steps=2"].map(run);
    let own = losses(&none);
    assert_eq!((own[0], own[7]), (0.0, 0.0), "{own:?}");
    assert!(own.iter().all(|loss| loss.is_finite()));
    let skipped =
        place.run(&["-q", "data.csv.validation_fraction=0", "trainer.max_steps=1", "optimizer.sgd.lr=1e-30"]);
    assert_eq!(tensors(&first.model()), tensors(&skipped.ended_by(0).model()));
    assert!(tensors(&second.model()) != tensors(&first.model()));
}

/// Every policy's loss of the last epoch is the weighted mean over its rows, as that of `evaluate`, however weights fall into
/// batches; batches whose rows all weigh 0 count nothing. The model stays as it is.
#[test]
fn the_loss_of_an_epoch_is_the_weighted_mean() {
    let place = sandbox();
    let words = ["-q", "data.csv.validation_fraction=0", "optimizer.sgd.lr=1e-30", "data.csv.path=rows.csv"];
    for (first, batch) in [(16, "data.batch_size=20"), (103, "data.batch_size=2")] {
        let own = rows().into_iter().enumerate();
        let weighed = own.map(|(n, [a, b, y, w])| [a, b, y, if n < first { w } else { 0.0 }]);
        fs::write(place.path().join("rows.csv"), text(weighed)).unwrap();
        let run = |more: &[&str]| place.run(&[&words[..], &[batch], more].concat()).ended_by(0);
        let loss = |run: &Folder| run.summary("epoch_train_loss").parse::<f64>().unwrap();
        let buffered = run(&[]);
        let folder = buffered.0.display().to_string();
        let ended = place.runner(&["evaluate", &folder, "rows.csv", "--json"]);
        let object: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        let wanted = object["loss"].as_f64().unwrap();
        let per_epoch = run(&["logging.policy=per_epoch"]);
        near(&losses(&per_epoch), &[wanted; 3], 1e-6);
        let two = run(&[
            "logging.policy=per_epoch",
            "devices.num_gpus=2",
            "--virtual-gpus",
            "2",
            "data.shuffle=true",
        ]);
        let immediate = run(&["logging.policy=immediate"]);
        let all = [&buffered, &per_epoch, &immediate, &two].map(loss);
        near(&all, &[wanted; 4], 1e-6);
        let cut = |policy: &str| loss(&run(&[policy, "trainer.max_steps=9", "data.shuffle=true"]));
        near(&[cut("logging.policy=per_epoch")], &[cut("logging.policy=buffered")], 1e-6);
    }
}

/// An interrupted run goes on with the batches that it would have had.
#[test]
fn a_run_goes_on_within_an_epoch() {
    let place = sandbox();
    let words = ["-q", "data.shuffle=true", "trainer.max_epochs=8"];
    let whole = place.run(&[&words[..], &["name=whole", "trainer.max_steps=20"]].concat()).ended_by(0);
    let more = ["name=part", "trainer.max_steps=9", "checkpoint.every_steps=9"];
    let part = place.run(&[&words[..], &more].concat()).ended_by(0);
    let resumed = place.runner(&["--resume", &part.0.display().to_string(), "trainer.max_steps=20", "-q"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert_eq!(tensors(&part.model()), tensors(&whole.model()));
}
