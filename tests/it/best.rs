//! The best weights: chosen by `trainer.monitor`, kept on the device, written next to the last ones, and
//! restored by early stopping.

use std::{fs, path::Path};

use super::{
    cuda,
    process::{Folder, Sandbox, tensors},
};

/// Few noisy rows and a learning rate that is too large: the validation loss goes up and down.
pub const SPEC: &str = r#"
[data]
batch_size = 4
[data.synthetic_regression]
weights = [2.0, -3.4, 0.5]
bias = 4.2
noise = 3.0
train_rows = 15
validation_rows = 40
[model]
layers = [{ linear = { out_features = 8 } }, "tanh", { linear = { out_features = 1 } }]
[optimizer.sgd]
lr = 0.2
[trainer]
max_epochs = 12
"#;

const PATIENT: &str = "trainer.early_stopping={ patience = 4 }";

fn file(run: &Folder, name: &str) -> Vec<u8> {
    fs::read(run.0.join(name)).unwrap()
}

/// The first lowest value of a validation metric (`sign` is -1 for the highest), with its epoch and step,
/// read from `metrics.csv`.
fn first_best(run: &Folder, metric: &str, sign: f64) -> [String; 3] {
    let rows = run.metrics().only("split", "validation");
    let costs: Vec<f64> = rows.f64s(metric).into_iter().map(|value| sign * value).collect();
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let row = costs.iter().position(|cost| *cost == least).unwrap();
    [metric, "epoch", "step"].map(|column| rows.cell(row, column).to_owned())
}

fn in_summary(run: &Folder) -> [String; 3] {
    ["best_value", "best_epoch", "best_step"].map(|column| run.summary(column))
}

/// On the CPU, on two virtual GPUs and on the simulated GPU with each engine, the best weights are
/// bit-identical to those of a run that ends at the best epoch.
#[test]
fn the_best_weights_are_those_of_a_run_that_ends_there() {
    let place = Sandbox::new(SPEC);
    check(&|arguments| place.run(arguments).ended_by(0));
    check(&|arguments| {
        let virtual_gpus = ["devices.num_gpus=2", "--virtual-gpus", "2"];
        place.run(&[arguments, &virtual_gpus].concat()).ended_by(0)
    });
    let Some(sim) = cuda::Sim::get() else { return };
    for engine in ["persistent", "cooperative", "graph", "launch"] {
        let engine = format!("devices.engine={engine}");
        let gpu = ["devices.num_gpus=1", &engine];
        check(&|arguments| sim.run(&place, &[arguments, &gpu].concat(), &[]).ended_by(0));
    }
}

fn check(run: &dyn Fn(&[&str]) -> Folder) {
    let all = run(&[]);
    let best = first_best(&all, "loss", 1.0);
    assert_eq!(in_summary(&all), best);
    assert!(best[1] != "12", "the last epoch is the best one: {best:?}");
    let ended = run(&[&format!("trainer.max_epochs={}", best[1])]);
    let kept = tensors(&file(&all, "best.safetensors"));
    assert!(kept == tensors(&ended.model()), "other weights");
    assert!(kept != tensors(&all.model()), "`model.safetensors` has the last weights");
    // Each improved validation costs one copy on the device; one copy goes to the host.
    let losses = all.metrics().only("split", "validation").f64s("loss");
    let mut least = f64::INFINITY;
    let better = losses
        .iter()
        .filter(|loss| {
            **loss < least && {
                least = **loss;
                true
            }
        })
        .count();
    let transfers = all.table("transfers.csv").only("purpose", "best").only("kind", "d2d");
    assert_eq!(transfers.column("count"), [better.to_string()]);
}

/// Metrics of predictions equal those of the same model on every device, in chunks of any number of rows, and
/// choose the best weights. The mean squared error, which devices sum themselves, is the square of one of
/// them.
#[test]
fn metrics_of_predictions_are_alike_on_all_devices() {
    let place = Sandbox::new(&SPEC.replace("validation_rows = 40", "validation_rows = 600"));
    let slow = "optimizer.sgd.lr=0.01";
    let wanted = ["logging.metrics=[r2,rmse,lr,mae]", "trainer.monitor=validation.r2", slow];
    let alike = |found: &[f64], expected: &[f64]| {
        let near = |(found, expected): (&f64, &f64)| (found - expected).abs() < 1e-5;
        assert!(found.iter().zip(expected).all(near), "{found:?}, {expected:?}");
    };
    let alone = scored(&|arguments| place.run(arguments).ended_by(0), &wanted);
    let virtual_gpus = ["devices.num_gpus=3", "--virtual-gpus", "3"];
    let run = |arguments: &[&str]| place.run(&[arguments, &virtual_gpus].concat()).ended_by(0);
    alike(&scored(&run, &wanted), &alone);
    let moved = run(&wanted).table("transfers.csv").only("purpose", "validation").only("kind", "d2h");
    let bytes: f64 = moved.f64s("bytes").iter().sum();
    assert_eq!(
        bytes,
        12.0 * (4.0 * 600.0 + 3.0 * 16.0),
        "600 predictions for each epoch, and two sums of each device"
    );
    let Some(sim) = cuda::Sim::get() else { return };
    for engine in ["persistent", "cooperative", "graph", "launch"] {
        let engine = format!("devices.engine={engine}");
        let gpu = ["devices.num_gpus=1", &engine];
        let run = |arguments: &[&str]| sim.run(&place, &[arguments, &gpu].concat(), &[]).ended_by(0);
        alike(&scored(&run, &wanted), &alone);
    }
}

/// `mae` and `r2` of the validations.
fn scored(run: &dyn Fn(&[&str]) -> Folder, wanted: &[&str]) -> Vec<f64> {
    let run = run(wanted);
    assert_eq!(in_summary(&run), first_best(&run, "r2", -1.0));
    let rows = run.metrics().only("split", "validation");
    for (loss, rmse) in rows.f64s("loss").into_iter().zip(rows.f64s("rmse")) {
        assert!((rmse * rmse / loss - 1.0).abs() < 1e-6, "{rmse}, {loss}");
    }
    let steps = run.metrics().only("split", "train");
    assert!(steps.column("rmse").iter().all(|cell| cell.is_empty()) && steps.f64s("lr")[0] == 0.01);
    [rows.f64s("mae"), rows.f64s("r2")].concat()
}

#[test]
fn early_stopping_restores_the_best_weights() {
    let place = Sandbox::new(SPEC);
    let (all, more) = (place.run(&[]).ended_by(0), "trainer.max_epochs=100");
    let run = place.run(&[PATIENT, more]);
    let (stopped, text) = (run.ended_by(0), &run.ended.stdout);
    assert!(text.contains("holds the best weights, not the last"), "{text}");
    let best = tensors(&file(&stopped, "best.safetensors"));
    assert!(best == tensors(&stopped.model()), "`model.safetensors` has the best weights");
    let epochs: u64 = stopped.summary("epochs").parse().unwrap();
    let best_epoch: u64 = stopped.summary("best_epoch").parse().unwrap();
    assert_eq!(epochs, best_epoch + 4, "patience");
    let header = String::from_utf8_lossy(&stopped.model()).into_owned();
    assert!(header.contains(&format!("\"epoch\":\"{best_epoch}\"")), "the file says whose weights it holds");
    assert!(stopped.text("spec.toml").contains("restore_best = true"));
    let kept = place.run(&[PATIENT, more, "trainer.restore_best=false"]).ended_by(0);
    assert!(best == tensors(&file(&kept, "best.safetensors")) && best != tensors(&kept.model()));
    // Without early stopping it has to be requested.
    let restored = place.run(&["trainer.restore_best=true"]).ended_by(0);
    assert!(tensors(&restored.model()) == tensors(&file(&all, "best.safetensors")));
}

/// A metric that the validation rows cannot have is not silently ignored.
#[test]
fn a_metric_that_is_never_finite_is_a_warning() {
    let place = Sandbox::new(
        "data.csv = { path = \"rows.csv\", target = \"y\", validation_path = \"one_class.csv\" }\n\
         model = { layers = [{ linear = { out_features = 2 } }], loss = \"cross_entropy\" }\noptimizer.sgd.lr = 0.1\n\
         trainer = { max_epochs = 4, monitor = \"validation.auc\" }\nlogging.metrics = [\"auc\"]\n",
    );
    fs::write(place.path().join("rows.csv"), "x,y\n1,0\n2,1\n3,0\n4,1\n").unwrap();
    fs::write(place.path().join("one_class.csv"), "x,y\n1,0\n2,0\n").unwrap();
    let warned = |arguments: &[&str]| {
        let ran = place.run(arguments);
        (
            ran.ended
                .stderr
                .lines()
                .filter(|line| line.starts_with("warning: no validation"))
                .collect::<Vec<_>>()
                .join("\n"),
            ran.ended_by(0),
        )
    };
    let (warning, run) = warned(&[]);
    assert_eq!(
        warning,
        "warning: no validation measured a finite `auc`: no weights are kept as the best; validate on rows of two classes or \
         more (`data.split.stratify`), or watch `validation.loss`"
    );
    assert!(run.summary("best_value").is_empty() && !run.0.join("best.safetensors").exists());
    let (warning, run) = warned(&["trainer.early_stopping.patience=2"]);
    let ended = ": no weights are kept as the best, and early stopping ended the run after 2 validations; ";
    assert!(warning.contains(ended) && run.summary("epochs") == "2", "{warning}");
}

/// The metric of early stopping also chooses the best weights, unless `monitor` names another.
#[test]
fn early_stopping_and_the_best_weights_follow_one_metric() {
    let spec = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/digits.toml"));
    let place = Sandbox::with_spec(spec);
    let watched = "trainer.early_stopping={patience=9,metric=\"validation.accuracy\"}";
    let run = place.run(&[watched, "trainer.max_epochs=8"]).ended_by(0);
    assert_eq!(in_summary(&run), first_best(&run, "accuracy", -1.0));
    let both = [watched, "trainer.monitor=validation.loss", "trainer.max_epochs=8"];
    let run = place.run(&both).ended_by(0);
    assert_eq!(in_summary(&run), first_best(&run, "loss", 1.0));
    assert!(run.text("spec.toml").contains("monitor = \"validation.loss\""), "a copy runs alike");
}

/// Accuracy changes in steps of one row, and validations often tie; the earliest is kept.
#[test]
fn the_best_accuracy_is_the_highest_and_of_ties_the_first() {
    let spec = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/digits.toml"));
    let place = Sandbox::with_spec(spec);
    let run = place.run(&["trainer.monitor=validation.accuracy", "trainer.max_epochs=8"]).ended_by(0);
    assert_eq!(in_summary(&run), first_best(&run, "accuracy", -1.0));
    let by_loss = place.run(&["trainer.max_epochs=8"]).ended_by(0);
    assert_eq!(in_summary(&by_loss), first_best(&by_loss, "loss", 1.0));
    let still = place.run(&["trainer.max_epochs=3", "optimizer.adam.lr=1e-30"]).ended_by(0);
    assert_eq!(still.summary("best_epoch"), "1", "equal losses");
}

#[test]
fn a_diverged_run_has_best_weights_and_no_model() {
    let place = Sandbox::new(super::run::LINREG);
    let run = place.run(&["optimizer.sgd.lr=50.0", "trainer.max_epochs=100"]);
    let folder = run.ended_by(1);
    let files = folder.files();
    assert!(
        files.contains(&"best.safetensors".to_owned()) && !files.contains(&"model.safetensors".to_owned())
    );
    assert_eq!((folder.summary("status"), folder.summary("best_epoch")), ("diverged".into(), "1".into()));
    let text = &run.ended.stdout;
    assert!(text.contains("`best.safetensors` has the best weights"), "{text}");
}

#[test]
fn without_validation_there_is_no_best() {
    let place = Sandbox::new(SPEC);
    for none in ["trainer.validate_every_epochs=0", "data.synthetic_regression.validation_rows=0"] {
        let run = place.run(&[none]).ended_by(0);
        assert!(!run.files().contains(&"best.safetensors".to_owned()));
        assert_eq!(in_summary(&run), ["", "", ""]);
        assert_eq!(run.table("transfers.csv").only("purpose", "best").rows.len(), 0);
        let refused = place.run(&["trainer.restore_best=true", none]);
        assert_eq!(refused.ended.code, Some(2), "{:?}", refused.ended);
        assert!(refused.ended.stderr.contains("trainer.restore_best"), "{:?}", refused.ended);
    }
}
