//! The best of a sweep: every command names the setting with the best mean over its seeds, as `compare` does.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::process::{Folder, Sandbox};

const SPEC: &str = "
    name = 'lin'
    data.synthetic_regression = { weights = [1.0], train_rows = 64, validation_rows = 32 }
    model.layers = [{ linear = { out_features = 1 } }]
    trainer.max_epochs = 2
    sweep.repeats = 2
    sweep.grid = { 'optimizer.sgd.lr' = [0.1, 0.2] }
";

/// What trials 0 to 3 came to: the luckiest is trial 1, of the setting with the worse mean.
const VALUES: [&str; 4] = ["0.5", "0.125", "0.25", "0.75"];

const BEST: &str = "best: #2 lr 0.1, validation loss 0.38 [0.00, 1.96], n 2";

/// A sweep whose trials have these best values.
fn sweep(place: &Sandbox, values: &[&str]) -> Folder {
    let sweep = place.run(&[]).ended_by(0);
    for (row, value) in values.iter().enumerate() {
        came_to(&Folder(sweep.0.join(sweep.table("sweep.csv").cell(row, "folder"))), value);
    }
    sweep
}

/// Gives a run this best value.
fn came_to(run: &Folder, value: &str) {
    let mut table = run.table("summary.csv");
    let column = table.columns.iter().position(|name| name == "best_value").unwrap();
    table.rows[0][column] = value.to_owned();
    let text = format!("{}\n{}\n", table.columns.join(","), table.rows[0].join(","));
    fs::write(run.0.join("summary.csv"), text).unwrap();
}

fn trial(sweep: &Folder, number: usize) -> String {
    let name = sweep.table("sweep.csv").cell(number, "folder").to_owned();
    sweep.0.join(name).display().to_string()
}

#[test]
fn all_commands_name_the_best_mean() {
    let place = Sandbox::new(SPEC);
    let sweep = sweep(&place, &VALUES);
    let folder = sweep.0.display().to_string();
    let ran = |arguments: &[&str]| {
        let ended = place.runner(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        ended.stdout
    };
    let compared = ran(&["compare", &folder]);
    assert!(compared.starts_with(BEST), "{compared}");
    let best = trial(&sweep, 2);
    assert!(compared.contains(&format!("\n  {best}\n")), "{compared}");
    let status = ran(&["status", &folder]);
    let lines: Vec<&str> = status.lines().skip(1).take(2).collect();
    assert_eq!(lines, ["4 trials: 4 finished", BEST]);
    let listed: Value = serde_json::from_str(&ran(&["list", &folder, "--json"])).unwrap();
    assert_eq!(listed[0]["value"], 0.375);
    let exported = ran(&["compare", &folder, "--export", "csv", "--top", "3"]);
    let paths: Vec<&str> = exported.lines().skip(1).filter_map(|row| row.split(',').next()).collect();
    assert_eq!(paths, [&*best, &trial(&sweep, 0), &trial(&sweep, 1)], "the trials of the best setting first");
    let resumed = ran(&["run", "--resume", &folder, "--json"]);
    let last: Value = serde_json::from_str(resumed.lines().last().unwrap()).unwrap();
    let wanted = json!({ "trial": 2, "folder": best, "metric": "validation.loss", "value": 0.375, "n": 2 });
    assert_eq!(last["best"], wanted);
}

/// The values of `crates/session/src/run/best_setting.rs`: the best setting while the sweep runs is that of `compare`.
#[test]
fn the_folds_of_a_seed_count_as_one() {
    let points: Vec<String> = [(0, 0), (0, 1), (1, 0)]
        .iter()
        .flat_map(|(seed, fold)| [0.1, 0.2].map(|lr| (lr, seed, fold)))
        .map(|(lr, seed, fold)| {
            format!("{{ 'optimizer.sgd.lr' = {lr}, seed = {seed}, 'data.fold' = {fold} }}")
        })
        .collect();
    let place = Sandbox::new(&format!(
        "data = {{ csv = {{ path = 'a.csv', target = 'y' }}, folds = 2 }}
         model.layers = [{{ linear = {{ out_features = 1 }} }}]
         trainer.max_epochs = 2
         optimizer.sgd.lr = 0.1
         sweep.points = [{}]",
        points.join(", ")
    ));
    let rows: String = (0..20).map(|x| format!("{x},{}\n", x % 7)).collect();
    fs::write(place.path().join("a.csv"), format!("x,y\n{rows}")).unwrap();
    let sweep = sweep(&place, &["0.75", "0.5", "0.625", "0.25", "0.125", "0.5625"]);
    let resumed = place.runner(&["run", "--resume", sweep.0.to_str().unwrap(), "--json"]);
    let last: Value = serde_json::from_str(resumed.stdout.lines().last().unwrap()).unwrap();
    let folder = trial(&sweep, 4);
    let wanted =
        json!({ "trial": 4, "folder": folder, "metric": "validation.loss", "value": 0.40625, "n": 2 });
    assert_eq!(last["best"], wanted, "{resumed:?}");
}

/// Setting lr 0.2 is worse on each fold, and diverges on the harder one of each seed.
#[test]
fn a_seed_without_some_of_its_folds_is_no_match_for_a_whole_one() {
    let place = Sandbox::new(
        "data = { csv = { path = 'a.csv', target = 'y' }, folds = 2 }
         model.layers = [{ linear = { out_features = 1 } }]
         trainer.max_epochs = 2
         sweep.grid = { 'optimizer.sgd.lr' = [0.1, 0.2], seed = '0..2', 'data.fold' = '0..2' }",
    );
    let rows: String = (0..20).map(|x| format!("{x},{}\n", x % 7)).collect();
    fs::write(place.path().join("a.csv"), format!("x,y\n{rows}")).unwrap();
    let sweep = sweep(&place, &["0.25", "1.0", "0.25", "1.0", "0.375", "1.125", "0.375", "1.125"]);
    for number in [5, 7] {
        let summary = Path::new(&trial(&sweep, number)).join("summary.csv");
        fs::write(&summary, fs::read_to_string(&summary).unwrap().replace(",finished,", ",diverged,"))
            .unwrap();
    }
    let folder = sweep.0.display().to_string();
    let compared = place.runner(&["compare", &folder]).stdout;
    assert!(
        compared.starts_with("best: #0 lr 0.1, validation loss 0.6250 [0.0000, 2.1657], n 2;"),
        "{compared}"
    );
    let worse = "not distinguishable from #4 (paired difference +0.1250, p 0.50), but of #4 2 of 4 runs diverged (#5, 7)";
    let behind = "\n  without some of their folds, ranked last: #4\n";
    assert!(compared.contains(worse) && compared.contains(behind), "{compared}");
    let resumed = place.runner(&["run", "--resume", &folder, "--json"]);
    let last: Value = serde_json::from_str(resumed.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&last["best"]["trial"], &last["best"]["value"]), (&json!(0), &json!(0.625)), "{resumed:?}");
}

/// A swept table is a setting as it is written, also where its values differ in a seed.
#[test]
fn tables_that_differ_in_a_seed_are_settings_of_their_own() {
    let place = Sandbox::new(
        "data.csv = { path = 'a.csv', target = 'y' }
         model.layers = [{ linear = { out_features = 1 } }]
         optimizer.sgd.lr = 0.1
         trainer.max_epochs = 2
         [sweep.grid]
         'data.split' = [{ validation = 0.3, seed = 1 }, { validation = 0.3, seed = 2 }]
         seed = '0..2'",
    );
    let rows: String = (0..20).map(|x| format!("{x},{}\n", x % 7)).collect();
    fs::write(place.path().join("a.csv"), format!("x,y\n{rows}")).unwrap();
    let sweep = sweep(&place, &["0.5", "0.75", "0.125", "0.25"]);
    let folder = sweep.0.display().to_string();
    let compared = place.runner(&["compare", &folder]).stdout;
    let others = |line: &&str| line.starts_with(" 0  seed 1  2 ");
    assert!(compared.starts_with("best: #2 split seed 2, validation loss 0.19 "), "{compared}");
    assert!(compared.lines().any(|line| others(&line)), "{compared}");
    assert!(
        compared.contains("judged by other rows\n")
            && compared.contains(" than the best, and not comparable with it (#0): "),
        "{compared}"
    );
    assert!(compared.contains("\n  seeds validate on the same rows: "), "{compared}");
    let resumed = place.runner(&["run", "--resume", &folder, "--json"]);
    let last: Value = serde_json::from_str(resumed.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&last["best"]["trial"], &last["best"]["value"]), (&json!(2), &json!(0.1875)), "{resumed:?}");
}

/// `predict`, `evaluate` and `export` take the best trial of a sweep, and say so.
#[test]
fn the_model_of_a_sweep_is_that_of_its_best_trial() {
    let place = Sandbox::new(SPEC);
    let sweep = sweep(&place, &VALUES);
    let [of_sweep, of_trial] =
        ["sweep.onnx", "trial.onnx"].map(|name| place.path().join(name).display().to_string());
    let export = |run: &str, file: &str| {
        let ended = place.runner(&["export", run, "--onnx", file]).ended_by(0);
        (ended.stderr, fs::read(Path::new(file)).unwrap())
    };
    let best = trial(&sweep, 2);
    let (said, model) = export(&sweep.0.display().to_string(), &of_sweep);
    let words = format!(
        "run: {best}, the best trial: #2 lr 0.1, validation loss 0.38 [0.00, 1.96], n 2\nweights: best."
    );
    assert!(said.starts_with(&words), "{said}");
    let (said, of_trial) = export(&best, &of_trial);
    assert!(said.starts_with("weights: best.") && model == of_trial, "{said}");
}

/// A trial whose folder was removed counts as `deleted`, not as finished, and is not ranked.
#[test]
fn a_deleted_trial_does_not_count() {
    let place = Sandbox::new(SPEC);
    let sweep = sweep(&place, &VALUES);
    fs::remove_dir_all(trial(&sweep, 2)).unwrap();
    let folder = sweep.0.display().to_string();
    let status = place.runner(&["status", &folder]).stdout;
    assert_eq!(status.lines().nth(1), Some("4 trials: 3 finished, 1 deleted"), "{status}");
    let best = "best: #1 lr 0.2, validation loss 0.4375 [0.0000, 4.4082], n 2";
    assert_eq!(status.lines().nth(2), Some(best), "{status}");
    let compared = place.runner(&["compare", &folder]).stdout;
    assert!(
        compared.starts_with(best) && compared.contains("\n  not ranked: 1 deleted (#2)\n"),
        "{compared}"
    );
    let resumed = place.runner(&["run", "--resume", &folder]);
    assert!(resumed.stdout.starts_with("lin: 4 trials, 4 finished\n"), "{resumed:?}");
}

/// The run has the best value of all, and is behind the sweep on the only seed that both have.
#[test]
fn clean_keeps_what_compare_calls_best_and_the_best_value() {
    let place = Sandbox::new(SPEC);
    let sweep = sweep(&place, &["0.25", "0.75", "0.5", "0.75"]);
    let run = place.run(&["-q", "~sweep", "optimizer.sgd.lr=0.3"]).ended_by(0);
    came_to(&run, "0.3125");
    let beside = sweep.0.with_file_name(run.0.file_name().unwrap());
    fs::rename(&run.0, &beside).unwrap();
    let runs = sweep.0.parent().unwrap().parent().unwrap();
    let ran = |arguments: &[&str]| {
        let ended = place.runner(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        ended.stdout
    };
    let runs = runs.to_str().unwrap();
    let compared = ran(&["compare", runs]);
    assert!(
        compared.starts_with("best: #0 ") && compared.contains(" lr 0.1, validation loss 0.3750 "),
        "{compared}"
    );
    let shown = ran(&["clean", "--runs-dir", runs, "--keep-best", "1", "--yes"]);
    // The run alone has the best value, and one seed too few to rank first.
    assert_eq!(shown, "nothing to remove\nkept: 2 best\n");
    assert_eq!([&sweep.0, &beside].map(|folder| folder.is_dir()), [true, true]);
}

/// An interrupted cross-validation: the rows of the folds that are missing may be the hardest.
#[test]
fn a_mean_over_some_of_the_folds_is_called_so() {
    let place = Sandbox::new(
        "data = { csv = { path = 'a.csv', target = 'y' }, folds = 3 }
         model.layers = [{ linear = { out_features = 1 } }]
         trainer.max_epochs = 2
         optimizer.sgd.lr = 0.1
         sweep.grid = { 'optimizer.sgd.lr' = [0.1, 0.2], 'data.fold' = [0, 1, 2] }",
    );
    let rows: String = (0..24).map(|i| format!("{},{i}\n", i % 5)).collect();
    fs::write(place.path().join("a.csv"), format!("x,y\n{rows}")).unwrap();
    let sweep = self::sweep(&place, &["0.25", "0.5", "0.75", "0.25", "0.25", "0.25"]);
    let listed = || place.runner(&["list", sweep.0.to_str().unwrap(), "-v"]).stdout;
    assert!(listed().contains("  0.2500\n") && !listed().contains(" folds)"), "{}", listed());
    let mut table = sweep.table("sweep.csv");
    let [status, folder] =
        ["status", "folder"].map(|name| table.columns.iter().position(|own| own == name).unwrap());
    for trial in [0, 4, 5] {
        fs::remove_dir_all(sweep.0.join(&table.rows[trial][folder])).unwrap();
        table.rows[trial][status] = "planned".to_owned();
        table.rows[trial][folder] = String::new();
    }
    let lines = table.rows.iter().map(|row| row.join(","));
    let text = format!("{}\n{}\n", table.columns.join(","), lines.collect::<Vec<_>>().join("\n"));
    fs::write(sweep.0.join("sweep.csv"), text).unwrap();
    assert!(listed().contains("  0.6250 (2 of 3 folds)\n"), "{}", listed());
}
