//! Runs of different optimizers and schedules in one table.

use std::fs;

use super::{add, place_of};
use crate::process::Sandbox;

const SPEC: &str = r#"
name = "lines"
data.synthetic_regression = { weights = [1.0], train_rows = 64, validation_rows = 16 }
model.layers = [{ linear = { out_features = 1 } }]
trainer.max_epochs = 2
"#;

fn place(runs: &[&[&str]]) -> Sandbox {
    place_of(SPEC, runs)
}

fn compare(place: &Sandbox, words: &[&str]) -> String {
    let ended = place.runner(&[&["compare", "runs"], words].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout
}

const SGD: &str = "optimizer.sgd.lr=0.1";
const ADAM: &str = "optimizer.adam.lr=0.01";

/// The kind is named, with what runs of a kind differ in; a table of a sweep is named alike beside them.
#[test]
fn optimizers_are_named() {
    let place =
        place(&[&[SGD], &[SGD, "optimizer.sgd.momentum=0.9"], &[ADAM], &[ADAM, "optimizer.adam.beta1=0.5"]]);
    let text = compare(&place, &[]);
    for name in ["sgd(momentum 0.0)", "sgd(momentum 0.9)", "adam(beta1 0.9)", "adam(beta1 0.5)"] {
        assert!(text.contains(&format!("  {name}  ")), "{text}");
    }
    let head = text.lines().next().unwrap();
    assert!(
        head.starts_with("best: #")
            && (head.contains(" optimizer sgd(") || head.contains(" optimizer adam(")),
        "{text}"
    );
    assert!(text.contains("  optimizer  ") && !text.contains("sgd.lr"), "{text}");
    let of_kind = compare(&place, &["--where", "optimizer = sgd"]);
    assert!(of_kind.contains("sgd(momentum 0.9)") && !of_kind.contains("adam"), "{of_kind}");
    let one = compare(&place, &["--where", "optimizer = 'adam(beta1 0.5)'"]);
    assert!(one.contains("validation loss") && !one.contains("sgd"), "{one}");
    assert!(compare(&place, &["--by", "optimizer"]).contains("  adam(beta1 0.5)  "));
    let csv = compare(&place, &["--export", "csv"]);
    assert!(
        csv.starts_with("path,optimizer,")
            && csv.contains(",sgd(lr 0.1 momentum 0.9 nesterov false weight_decay 0.0),"),
        "{csv}"
    );
    let listed = place.runner(&["list", "runs", "--where", "optimizer = adam", "--json"]).stdout;
    assert_eq!(listed.matches("\"path\"").count(), 2, "{listed}");

    add(&place, &["optimizer={sgd={lr=0.1}},{rmsprop={lr=0.001}}"]);
    let text = compare(&place, &[]);
    assert!(text.contains("  rmsprop  ") && text.contains("  sgd(momentum 0.9)  "), "{text}");
}

/// A sweep over a rate beside a run of another optimizer; where all have one, its keys are the axes.
#[test]
fn a_sweep_within_an_optimizer_is_named_beside_another() {
    let place = place(&[&["optimizer.sgd.lr=0.1,0.01"], &["optimizer.sgd.lr=0.2"]]);
    let text = compare(&place, &[]);
    assert!(text.contains("  lr  ") && !text.contains("optimizer"), "{text}");
    add(&place, &[ADAM]);
    let text = compare(&place, &[]);
    for name in ["sgd(lr 0.1)", "sgd(lr 0.01)", "sgd(lr 0.2)", "adam"] {
        assert!(text.contains(&format!("  {name}  ")), "{text}");
    }
    assert!(compare(&place, &["--by", "lr"]).contains("  0.01  "));
}

#[test]
fn schedules_are_named_and_none_is_constant() {
    let step = "schedule.interval=step";
    let place = place(&[
        &[SGD],
        &[SGD, "schedule.cosine.eta_min=0.01", step],
        &[SGD, "schedule.exponential.gamma=0.9", step],
        &[SGD, "schedule.exponential.gamma=0.9", "schedule.interval=epoch"],
    ]);
    let text = compare(&place, &[]);
    for name in ["constant", "cosine", "exponential(interval step)", "exponential(interval epoch)"] {
        assert!(text.contains(&format!("  {name}  ")), "{text}");
    }
    let kind = compare(&place, &["--where", "schedule = exponential"]);
    assert!(kind.contains("exponential(interval step)") && !kind.contains("constant"), "{kind}");
}

/// A schedule as long as its run is one, whatever the batch size; the length that follows is no axis and no difference.
#[test]
fn lengths_of_schedules_that_follow_their_runs_are_no_axis() {
    let cosine = "schedule={cosine={}}";
    let place = place(&[&[SGD, cosine, "data.batch_size=16"], &[SGD, cosine, "data.batch_size=32"]]);
    let text = compare(&place, &["--detail"]);
    assert!(text.contains(" batch_size ") && !text.contains("t_max"), "{text}");
    add(&place, &[SGD, "data.batch_size=16"]);
    let text = compare(&place, &[]);
    assert!(
        text.contains("  cosine  ") && text.contains("  constant  ") && !text.contains("t_max"),
        "{text}"
    );
    // One that somebody chose is.
    add(&place, &[SGD, "schedule={cosine={t_max=3}}", "data.batch_size=16"]);
    assert!(compare(&place, &[]).contains("cosine(t_max 3)"), "{}", compare(&place, &[]));
}

/// Each key that only some runs have is shown, an early stopping by its patience, and a setting is named by what it has.
#[test]
fn keys_that_some_runs_lack_are_shown() {
    let stopping = "trainer.early_stopping={metric=\"validation.loss\",patience=3}";
    let place = place(&[
        &[SGD, "schedule={plateau={patience=2}}"],
        &[SGD, "schedule={chain=[{steps=2,linear={start_factor=0.1,total_iters=2}},{cosine={}}]}"],
        &[SGD, "trainer.validate_every_steps=1", stopping],
    ]);
    let text = compare(&place, &[]);
    for key in ["schedule", "patience", "validate_every_epochs", "validate_every_steps"] {
        assert!(text.contains(&format!("  {key}  ")), "{key}: {text}");
    }
    assert!(!text.contains(" metric ") && !text.contains("restore_best"), "{text}");
    assert!(!text.lines().next().unwrap().contains(" -"), "{text}");
}

/// Where the runs of each task have one optimizer, its keys tell them apart, as they would alone. Where those of a task have several,
/// their keys are in its words alone, also beside an experiment of the lab, which has none.
#[test]
fn optimizers_are_named_where_a_task_has_several() {
    let other = ["data.synthetic_regression.weights=[2.0]", "name=other"];
    let place =
        place(&[&["optimizer.sgd.lr=0.1,0.01"], &["optimizer.sgd.lr=0.2"], &[&[ADAM][..], &other].concat()]);
    let lab = place.path().join("runs/m/x");
    fs::create_dir_all(&lab).unwrap();
    fs::write(lab.join("spec.toml"), "name = \"m\"\nkind = \"matmul\"\n[matmul]\nsizes = [16]\n").unwrap();
    fs::write(lab.join("summary.csv"), "run,name,status\nx,m,finished\n").unwrap();
    let text = compare(&place, &[]);
    assert!(text.contains("  lr  ") && !text.contains("optimizer"), "{text}");
    add(&place, &["optimizer.rmsprop.lr=0.01"]);
    let text = compare(&place, &[]);
    assert!(text.contains("  sgd(lr 0.01)  ") && !text.contains("  lr  "), "{text}");
}
