//! `runner refit RUN`: the final model of a run or sweep.

use std::fs;

use super::process::{Ended, Folder, Sandbox, tensors};

pub const PENGUINS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/data/penguins.csv");

/// A run with all that needs validation rows, and a schedule as long as the run.
pub const SPEC: &str = r#"
name = "birds"
[data]
batch_size = 16
split = { validation = 0.3, test = 0.25, stratify = true }
[data.csv]
path = "penguins.csv"
target = "species"
categorical = ["island", "sex"]
missing = "mean"
[model]
layers = [{ linear = { out_features = 3 } }]
loss = "cross_entropy"
[optimizer.adam]
lr = 0.01
[schedule.cosine]
[trainer]
max_epochs = 20
monitor = "validation.f1"
early_stopping = { patience = 3 }
[logging]
metrics = ["accuracy", "f1", "lr"]
"#;

pub fn sandbox(spec: &str) -> Sandbox {
    let place = Sandbox::new(spec);
    fs::copy(PENGUINS, place.path().join("penguins.csv")).unwrap();
    place
}

/// Refits the runs in `runs`; its folder, and what it printed to standard error.
pub fn refit(place: &Sandbox, arguments: &[&str]) -> (Folder, Vec<String>) {
    let to = place.path().join("final");
    let _ = fs::remove_dir_all(&to); // that of an earlier call
    let ended = place.runner(&[&["refit"], arguments, &["--runs-dir", "final"]].concat()).ended_by(0);
    (Folder::within(&to).unwrap(), ended.stderr.lines().map(str::to_owned).collect())
}

/// It trains on the rows of both parts and on no other, for as many epochs as were best: its weights are those of a run on a file of
/// these rows alone.
#[test]
fn all_but_the_test_rows_are_trained_on() {
    let place = sandbox(SPEC);
    let run = place.run(&["-q"]).ended_by(0);
    let best = run.summary("best_epoch");
    assert!((2..17).contains(&best.parse::<u64>().unwrap()), "it stopped early: {best}");
    let path = run.0.display().to_string();
    let (last, printed) = refit(&place, &[&path]);
    // 344 rows, of which 86 are for the test: 17 steps of 16 rows in each of 20 epochs.
    assert_eq!(
        printed[..4],
        [
            format!("run: {path}"),
            "rows: all but the test rows".to_owned(),
            format!("length: {best} epochs, after which the run was best"),
            format!(
                "the same as: runner {path}/spec.toml name=birds-refit final_model=true data.split.validation=0 trainer.max_epochs={best} \
                 '~trainer.early_stopping' '~trainer.restore_best' 'logging.metrics=[loss,accuracy,lr]' \
                 '~schedule.cosine.t_max' schedule.curve_epochs=20"
            ),
        ]
    );
    let spec = last.text("spec.toml");
    assert!(
        spec.contains("\nt_max = 340\n"),
        "as long as the run, of which an epoch has 17 steps now: {spec}"
    );
    // No validation has the monitored metric, by which the columns of the test rows are sorted.
    assert_eq!(
        last.text("metrics.csv").lines().next(),
        Some("step,epoch,split,rows,loss,accuracy,lr,elapsed_s")
    );
    let importance = place.runner(&["evaluate", &last.0.display().to_string(), "--importance"]).stdout;
    let heading = importance.lines().find(|line| line.contains("loss rises by")).unwrap_or_default();
    assert_eq!(heading.split_whitespace().take(4).collect::<Vec<_>>(), ["column", "f1", "falls", "by"]);
    let command = printed[3].strip_prefix("the same as: runner ").unwrap();
    assert!(last.text("environment.toml").contains(&format!("command = \"runner {command}\"")));
    let words: Vec<String> = command.split(' ').map(|word| word.replace('\'', "")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).chain(["-q", "--runs-dir", "again"]).collect();
    assert_eq!(place.runner(&words).code, Some(0));
    assert!(Folder::within(&place.path().join("again")).unwrap().model() == last.model(), "the same bits");

    let [held, rest] = [&run, &last].map(|run| run.table("rows.csv"));
    let tests = held.only("split", "test");
    assert_eq!(rest.rows, tests.rows, "none validates, and the test rows are those of the run");
    let tests: Vec<usize> = tests.column("row").iter().map(|row| row.parse().unwrap()).collect();
    assert_eq!(tests.len(), 86);
    let text = fs::read_to_string(PENGUINS).unwrap();
    let (header, rows) = text.split_once('\n').unwrap();
    let kept = rows.lines().enumerate().filter(|(row, _)| !tests.contains(row)).map(|(_, line)| line);
    let kept: Vec<&str> = std::iter::once(header).chain(kept).collect();
    fs::write(place.path().join("kept.csv"), kept.join("\n")).unwrap();
    let epochs = format!("trainer.max_epochs={best}");
    let alone = place.run(&[
        "data.csv.path=kept.csv",
        "~data.split",
        "data.csv.validation_fraction=0",
        "~trainer.early_stopping",
        "~trainer.monitor",
        "logging.metrics=[loss]",
        "schedule.cosine.t_max=340",
        &epochs,
        "-q",
    ]);
    assert!(
        tensors(&alone.ended_by(0).model()) == tensors(&last.model()),
        "means and weights of these rows alone"
    );
}

/// The setting of a sweep trains for the mean of its runs' best epochs, over folds and seeds.
#[test]
fn a_sweep_is_refitted_by_its_best_setting() {
    let place = sandbox(SPEC);
    let folds = ["~data.split", "data.folds=3", "data.fold=0..3", "seed=1,2", "optimizer.adam.lr=0.01,1e-5"];
    let sweep = place.run(&[&folds[..], &["-q"]].concat()).ended_by(0);
    let path = sweep.0.display().to_string();
    let table = sweep.table("sweep.csv");
    let epochs = (0..12).filter(|&row| table.cell(row, "optimizer.adam.lr") == "0.01").map(|row| {
        let run = Folder(sweep.0.join(table.cell(row, "folder")));
        run.summary("best_epoch").parse::<f64>().unwrap()
    });
    let epochs: Vec<f64> = epochs.collect();
    assert_eq!(epochs.len(), 6);
    let mean = (epochs.iter().sum::<f64>() / 6.0).round();
    let (last, printed) = refit(&place, &[&path]);
    assert!(printed[0].contains(", the best trial: #") && printed[0].contains(" lr 0.01, "), "{printed:?}");
    assert_eq!(printed[1], "rows: all");
    assert_eq!(
        printed[2],
        format!("length: {mean} epochs, the mean of those after which its runs were best")
    );
    let spec = last.text("spec.toml");
    assert!(!spec.contains("fold") && spec.contains("validation_fraction = 0.0"), "{spec}");
    assert!(spec.contains(&format!("max_epochs = {mean}\n")), "{spec}");
    // The model is that of the last step, and serves all that use models.
    let model = last.0.display().to_string();
    for words in [&["predict", &model, "penguins.csv"][..], &["export", &model, "--onnx", "birds.onnx"]] {
        let ended = place.runner(words).ended_by(0);
        assert!(ended.stderr.starts_with("weights: model.safetensors, of epoch "), "{ended:?}");
    }
}

#[test]
fn its_test_rows_are_evaluated_unless_all_rows_are_taken() {
    let place = sandbox(SPEC);
    let run = place.run(&["-q"]).ended_by(0).0.display().to_string();
    let (last, _) = refit(&place, &[&run]);
    let ended = place.runner(&["evaluate", &last.0.display().to_string(), "--json"]);
    let json: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(json["rows"], 86, "{ended:?}");
    let (last, printed) = refit(&place, &[&run, "--all"]);
    assert_eq!(printed[1], "rows: all");
    assert!(printed[4].contains(" epochs of 344 rows, "), "{printed:?}");
    let ended = place.runner(&["evaluate", &last.0.display().to_string()]).ended_by(2);
    assert!(ended.stderr.contains("set no rows aside for a test"), "{ended:?}");
}

/// Overrides take the place of what refit would set: the schedule is then as long as they say.
#[test]
fn overrides_come_first() {
    let place = sandbox(SPEC);
    let run = place.run(&["-q"]).ended_by(0).0.display().to_string();
    let (last, printed) = refit(&place, &[&run, "trainer.max_epochs=4", "name=mine", "seed=5", "-q"]);
    assert_eq!(printed, Vec::<String>::new());
    let spec = last.text("spec.toml");
    // 258 rows: 17 steps in each of 4 epochs.
    for line in ["name = \"mine\"", "seed = 5", "max_epochs = 4", "t_max = 68", "validation = 0.0"] {
        assert!(spec.contains(&format!("{line}\n")), "{line}: {spec}");
    }
    // So it is with the final model of a final model.
    let (first, _) = refit(&place, &[&run]);
    let first = first.0.display().to_string();
    place.runner(&["refit", &first, "trainer.max_epochs=4", "--runs-dir", "more", "-q"]).ended_by(0);
    assert!(Folder::within(&place.path().join("more")).unwrap().text("spec.toml").contains("t_max = 68\n"));
}

/// Where rows validate after all, the metric of the run stays, and what is kept is said.
#[test]
fn some_rows_may_validate() {
    let place = sandbox(SPEC);
    let own = place.run(&["-q"]).ended_by(0);
    let (run, best) = (own.0.display().to_string(), own.summary("best_epoch"));
    let (last, printed) = refit(&place, &[&run, "data.split.validation=0.1"]);
    assert_eq!(
        printed[1..4],
        [
            "rows: all but those that validate, and the test rows".to_owned(),
            format!("length: {best} epochs, after which the run was best"),
            "weights: of the epoch with the best validation f1, which may not be the last".to_owned(),
        ]
    );
    assert_eq!(last.table("rows.csv").only("split", "validation").rows.len(), 34);
    assert_eq!(last.summary("epochs"), best);
    let spec = last.text("spec.toml");
    assert!(spec.contains("monitor = \"validation.f1\"") && !spec.contains("early_stopping"), "{spec}");
    assert!(spec.contains("metrics = [\"loss\", \"accuracy\", \"f1\", \"lr\"]"), "{spec}");
    // It stops early only as it is asked to, by the metric of the run, and has the length of the run for that.
    let stops = "trainer.early_stopping={patience=2}";
    let (last, printed) = refit(&place, &[&run, "data.split.validation=0.1", stops]);
    assert_eq!(printed[2], "length: that of the run, unless it stops early");
    let spec = last.text("spec.toml");
    assert!(spec.contains("max_epochs = 20\n") && spec.contains("metric = \"validation.f1\""), "{spec}");
    // Folds say which rows validate.
    let (sweep, printed) = refit(&place, &[&run, "data.folds=3", "data.fold=0..3"]);
    assert_eq!(printed[1], "rows: all but those that validate, and the test rows");
    assert_eq!(sweep.table("sweep.csv").rows.len(), 3);
}

/// A run that ends at a step is refitted for as many steps; one without validation for its own length.
#[test]
fn steps_stay_steps() {
    let place = sandbox(SPEC);
    let run = place.run(&["trainer.max_steps=30", "optimizer.adam.lr=1e-4", "-q"]).ended_by(0);
    let best = run.summary("best_step");
    let path = run.0.display().to_string();
    let (last, printed) = refit(&place, &[&path]);
    assert_eq!(printed[2], format!("length: {best} steps, after which the run was best"));
    assert_eq!(last.summary("steps"), best);
    assert!(last.text("spec.toml").contains("t_max = 30\n"));
    let again = last.0.display().to_string();
    let ended = place.runner(&["refit", &again, "--all", "--runs-dir", "more"]);
    assert!(ended.stderr.contains("\nrows: all\nlength: that of the run\n"), "{ended:?}");
    assert_eq!(Folder::within(&place.path().join("more")).unwrap().summary("steps"), best);
    // The best step is within an epoch.
    let by_steps = place.run(&["trainer.validate_every_steps=4", "-q"]).ended_by(0);
    let (refitted, printed) = refit(&place, &[&by_steps.0.display().to_string()]);
    let steps = by_steps.summary("best_step");
    assert_eq!(printed[2], format!("length: {steps} steps, after which the run was best"));
    let own = refitted.text("spec.toml");
    assert!(refitted.summary("steps") == steps && !own.contains("validate_every_steps"), "{own}");
    // A number of steps takes no more epochs.
    let (other, printed) = refit(&place, &[&path, "trainer.max_steps=40"]);
    assert_eq!(
        printed[2],
        format!(
            "the same as: runner {path}/spec.toml name=birds-refit final_model=true data.split.validation=0 trainer.max_epochs=40 \
             '~trainer.early_stopping' '~trainer.restore_best' 'logging.metrics=[loss,accuracy,lr]' '~schedule.cosine.t_max' \
             trainer.max_steps=40"
        )
    );
    assert_eq!(other.summary("steps"), "40");
}

#[test]
fn what_cannot_be_refitted_is_refused() {
    let place = sandbox(SPEC);
    let refused = |path: &str| {
        let ended = place.runner(&["refit", path, "--resume", path]);
        assert!(
            ended.stderr.starts_with("error: `refit` begins a run, and `--resume` names another\n"),
            "{ended:?}"
        );
        let Ended { code, stderr, .. } = place.runner(&["refit", path]);
        assert_eq!(code, Some(2), "{stderr}");
        stderr
    };
    let apart = ["~data.split", "data.csv.validation_path=penguins.csv", "-q"];
    let run = place.run(&apart).ended_by(0).0.display().to_string();
    assert_eq!(
        refused(&run),
        "error: `data.csv.validation_path`: the validation rows are in a file of their own, which cannot be joined to the others\n  \
         = hint: `'~data.csv.validation_path'` after RUN trains on the others alone; with one file of all rows, name it, too\n"
    );
    let (last, _) = refit(&place, &[&run, "~data.csv.validation_path"]);
    assert!(last.text("spec.toml").contains("validation_fraction = 0.0\n"));
    let diverging = [
        "~optimizer.adam",
        "optimizer.sgd.lr=1e30",
        "model.loss=mse",
        "model.layers.0.linear.out_features=1",
    ];
    let others = [
        "data.csv.target=year",
        "data.csv.ignore=[species]",
        "~data.split",
        "~trainer",
        "logging.metrics=[loss]",
        "~schedule",
        "-q",
    ];
    let run = place.run(&[&diverging[..], &others].concat()).ended_by(1).0;
    assert_eq!(
        refused(&run.display().to_string()),
        format!(
            "error: `{}` has not finished: it is `diverged`\n  = hint: a final model trains as long as was best in the whole run: \
             finish it with `runner run --resume RUN`, or say how long: `trainer.max_epochs=20`\n",
            run.display()
        )
    );
    let _ = refit(&place, &[&run.display().to_string(), "trainer.max_epochs=2", "optimizer.sgd.lr=1e-9"]);
}

/// Of other data other rows may be for the test.
#[test]
fn other_data_are_refused_or_warned_of() {
    let place = sandbox(SPEC);
    let run = place.run(&["-q"]).ended_by(0).0.display().to_string();
    let (_, printed) = refit(&place, &[&run, "data.split.test=0.3"]);
    let other =
        "warning: other rows are for the test than in the run: some of them may have chosen the model";
    assert_eq!(printed[0], other);
    let text = fs::read_to_string(PENGUINS).unwrap();
    fs::write(place.path().join("penguins.csv"), text.replacen("39.1", "39.2", 1)).unwrap();
    let Ended { code, stderr, .. } = place.runner(&["refit", &run]);
    let what = format!("the data are not those that `{run}` was trained on");
    assert!(code == Some(2) && stderr.starts_with(&format!("error: {what}: their digest is ")), "{stderr}");
    let hint = " = hint: rows that chose the model may be among the test rows now: sweep the new data, or train on all rows by \
                `--all`\n";
    assert!(stderr.ends_with(hint), "{stderr}");
    let (_, printed) = refit(&place, &[&run, "--all"]);
    assert_eq!(printed[0], format!("warning: {what}"));
}

/// The best of a part of a sweep may not be the best of the whole.
#[test]
fn a_sweep_that_has_not_finished_is_said_to_be_so() {
    let place = sandbox(SPEC);
    let words = ["spec.toml", "~optimizer", "optimizer.sgd.lr=0.01,3e38,0.02", "--fail-fast", "-q"];
    let sweep = place.runner(&words).stdout.trim().to_owned();
    let (_, printed) = refit(&place, &[&sweep]);
    assert!(printed[0].contains(", the best trial: #0 lr 0.01, validation f1 "), "{printed:?}");
    assert!(printed[0].ends_with("; not finished: 1 of 3 trials"), "{printed:?}");
}

/// The help of an option that `run` has, too, says where it means something else here.
#[test]
fn help_tells_what_resume_takes() {
    let help = Sandbox::new("").runner(&["refit", "--help"]).stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let resume =
        "--resume <auto> With `auto`: go on with the newest run of this final model, or begin one --jobs";
    assert!(help.contains(resume) && !help.contains("no spec is named"), "{help}");
}

/// A length in an override is the only limit: the run's others do not end the training before it.
#[test]
fn a_given_length_is_the_only_limit() {
    let place = sandbox(SPEC);
    let limits = ["trainer.max_steps=30", "trainer.max_time=10m", "~trainer.early_stopping", "-q"];
    let run = place.run(&limits).ended_by(0).0.display().to_string();
    // 258 rows: 17 steps in each epoch, and 340 in the 20 of the run's spec.
    for (length, epochs, steps) in
        [("trainer.max_epochs=4", "4", "68"), ("trainer.max_steps=350", "21", "350")]
    {
        let (last, printed) = refit(&place, &[&run, length]);
        assert_eq!([last.summary("epochs"), last.summary("steps")], [epochs, steps], "{printed:?}");
        assert!(!printed.iter().any(|line| line.starts_with("warning: ")), "{printed:?}");
        assert!(!last.text("spec.toml").contains("max_time"), "{printed:?}");
    }
}

/// Other settings of the data leave the question open whether the files are those of the run; and a path is one, whatever is in it.
#[test]
fn inputs_are_those_of_the_data() {
    let place = sandbox(SPEC);
    let run = place.run(&["trainer.max_epochs=2", "-q"]).ended_by(0).0.display().to_string();
    let text = fs::read_to_string(PENGUINS).unwrap();
    let mut lines = text.lines();
    let wider: Vec<String> = std::iter::once(format!("{},more", lines.next().unwrap()))
        .chain(lines.enumerate().map(|(row, line)| format!("{line},{}", row % 7)))
        .collect();
    fs::write(place.path().join("penguins.csv"), wider.join("\n")).unwrap();
    let (last, _) = refit(&place, &[&run, "--all", "data.batch_size=20"]);
    assert!(last.text("spec.toml").contains("batch_size = 20\n"));
    fs::copy(PENGUINS, place.path().join("b (1).csv")).unwrap();
    let (last, _) = refit(&place, &[&run, "data.csv.path=b (1).csv"]);
    assert!(last.text("spec.toml").contains("/b (1).csv\"\n"));
    let ended =
        place.runner(&["refit", &run, "data.csv.path=b (1).csv", "seed=0..4", "--check", "--jobs", "2"]);
    assert!(ended.code == Some(0) && ended.stdout.contains("2 at a time"), "{ended:?}");
}
