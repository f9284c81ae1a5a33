//! `[data] split`, `folds` and `fold`: rows to validate on, and rows that no run sees.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::process::{Ended, Sandbox, Table, tensors};

const PENGUINS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/data/penguins.csv");

/// A table with classes.
const SPEC: &str = r#"
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
[trainer]
max_epochs = 3
"#;

pub fn sandbox() -> Sandbox {
    let place = Sandbox::new(SPEC);
    fs::copy(PENGUINS, place.path().join("penguins.csv")).unwrap();
    place
}

/// A fraction in `split` draws the same rows as `validation_fraction`.
#[test]
fn a_split_is_that_of_the_fraction() {
    let place = sandbox();
    let figures = |word: &str| {
        let run = place.run(&[word, "-q"]).ended_by(0);
        ["final_validation_loss", "epoch_train_loss"].map(|column| run.summary(column))
    };
    assert_eq!(figures("data.split.validation=0.3"), figures("data.csv.validation_fraction=0.3"));
    assert_ne!(figures("data.split={ validation = 0.3, seed = 7 }"), figures("data.split.validation=0.3"));
}

/// The seeds of the split, the initial weights and the order default to the run's seed, and each can be set.
#[test]
fn each_draw_has_a_seed_of_its_own() {
    let place = sandbox();
    let figures = |seeds: &[&str]| {
        let run = place.run(&[seeds, &["data.split.validation=0.3", "-q"]].concat()).ended_by(0);
        let first = run.metrics().f64s("loss")[0];
        (first, ["final_validation_loss", "epoch_train_loss"].map(|column| run.summary(column)))
    };
    let plain = figures(&["seed=3"]);
    let apart = ["data.split.seed=3", "model.init_seed=3", "data.shuffle_seed=3"];
    assert_eq!(figures(&[&["seed=8"], &apart[..]].concat()), plain);
    for own in ["data.split.seed=8", "model.init_seed=8", "data.shuffle_seed=8"] {
        assert_ne!(figures(&["seed=3", own]), plain, "{own}");
    }
}

/// Test rows are the same whatever validates. None of them is trained on, and their metrics equal those of a
/// table with only these rows.
#[test]
fn a_test_is_evaluated_afterwards() {
    let place = sandbox();
    let split = "data.split={ validation = 0.2, test = 0.25, stratify = true }";
    let longer = "trainer.max_epochs=30";
    let checked = place.runner(&["check", "spec.toml", split]);
    assert!(checked.stdout.contains("189 rows to train on, 69 to validate on"), "{}", checked.stdout);
    assert!(checked.stdout.contains("\n             86 rows set aside for a test\n"), "{}", checked.stdout);
    let run = place.run(&[split, longer, "-q"]).ended_by(0);
    let folder = run.0.display().to_string();
    let ended = place.runner(&["evaluate", &folder, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(json["rows"], 86, "{ended:?}");
    assert!(json["accuracy"].as_f64().unwrap() > 0.8, "{ended:?}");
    // The species: 152 Adelie, 68 Chinstrap and 124 Gentoo.
    let of_class = |row: &serde_json::Value| {
        row.as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum::<u64>()
    };
    let rows = json["confusion"].as_array().unwrap();
    assert_eq!(rows.iter().map(of_class).collect::<Vec<_>>(), [38, 17, 31]);
    let page = place.runner(&["report", &folder]).stdout;
    let page = fs::read_to_string(page.trim()).unwrap();
    assert!(page.contains(" --importance</code> prints") && !page.contains("DATA --importance"), "{page}");
    // The data have changed since the run.
    let text = fs::read_to_string(PENGUINS).unwrap();
    fs::write(place.path().join("penguins.csv"), text.replacen("39.1", "39.2", 1)).unwrap();
    let Ended { code, stderr, .. } = place.runner(&["evaluate", &folder]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("are not what the run was trained on: their digest is "), "{stderr}");
    // So that the spec no longer fits them: what is wrong with them now is beside the point.
    let wider: String = text.lines().map(|line| format!("{line},{line}\n")).collect();
    fs::write(place.path().join("penguins.csv"), wider).unwrap();
    let Ended { code, stderr, .. } = place.runner(&["evaluate", &folder]);
    let words = "their digest is ";
    assert!(code == Some(2) && stderr.contains(words) && !stderr.contains("named"), "{stderr}");
    assert!(stderr.ends_with(" = hint: its test rows may have been trained on: train again\n"), "{stderr}");
}

/// A project that was moved, with its data and its runs: the file is known by its digest, not by its name.
#[test]
fn a_moved_project_keeps_its_test_rows() {
    let place = sandbox();
    let [project, moved] = ["project", "moved"].map(|name| place.path().join(name));
    fs::create_dir_all(project.join("data")).unwrap();
    fs::rename(place.path().join("penguins.csv"), project.join("data/penguins.csv")).unwrap();
    fs::write(project.join("spec.toml"), SPEC.replace("penguins.csv", "data/penguins.csv")).unwrap();
    let split = "data.split={ validation = 0.2, test = 0.25 }";
    let ran = place.runner(&["project/spec.toml", split, "--runs-dir", "project/runs", "-q"]);
    let run = ran.stdout.trim();
    let metrics = |run: &str| {
        let ended = place.runner(&["evaluate", run, "--json"]).ended_by(0);
        let mut json: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        json.as_object_mut().unwrap().remove("run");
        json
    };
    let before = metrics(run);
    assert_eq!(before["rows"], 86);
    fs::rename(&project, &moved).unwrap();
    let run = run.replacen("project", "moved", 1);
    // A file of that name that is nearer to the run, with other rows.
    let text = fs::read_to_string(PENGUINS).unwrap();
    fs::write(moved.join("runs/penguins.csv"), text.replacen("39.1", "39.2", 1)).unwrap();
    assert_eq!(metrics(&run), before);
    fs::rename(moved.join("data/penguins.csv"), place.path().join("other.csv")).unwrap();
    let lost = place.runner(&["evaluate", &run]);
    let expected = format!(
        "error: cannot read `{}`: no such file or directory\n = hint: bring it back there, or, if the project was moved, to where \
         it was within the project: it is looked for below the folders above the run, too, and known by its digest\n",
        project.join("data/penguins.csv").display()
    );
    assert!(lost.code == Some(2) && lost.stderr.ends_with(&expected), "{lost:?}");
    // As the hint says.
    fs::rename(place.path().join("other.csv"), moved.join("data/penguins.csv")).unwrap();
    assert_eq!(metrics(&run), before);
}

/// The row numbers of one part, from `rows.csv`.
fn numbers_of(table: &Table, split: &str) -> Vec<usize> {
    let rows = table.column("split").into_iter().zip(table.column("row"));
    rows.filter(|(own, _)| *own == split).map(|(_, row)| row.parse().unwrap()).collect()
}

/// Training on tables made from `rows.csv` (the validation rows, and all others) equals the run that split
/// the rows itself. Row numbers include rows that were dropped for missing cells.
#[test]
fn row_numbers_are_those_of_the_file() {
    let place = sandbox();
    let drop = "data.csv.missing=drop";
    let run = place.run(&[drop, "data.split={ validation = 0.2, test = 0.25 }", "-q"]).ended_by(0);
    let [validation, test] = ["validation", "test"].map(|part| numbers_of(&run.table("rows.csv"), part));
    // 333 of 344 rows have no missing cell; the first row with one is row 3.
    assert_eq!((validation.len(), test.len()), (67, 83));
    assert!(validation.is_sorted() && test.is_sorted() && !validation.iter().any(|row| test.contains(row)));
    let text = fs::read_to_string(PENGUINS).unwrap();
    let (header, rows) = text.split_once('\n').unwrap();
    let write = |name: &str, wanted: &dyn Fn(usize) -> bool| {
        let lines = rows.lines().enumerate().filter(|(row, _)| wanted(*row));
        let lines: String = lines.map(|(_, line)| format!("{line}\n")).collect();
        assert!(name == "train.csv" || !lines.contains("NA"), "{name}");
        fs::write(place.path().join(name), format!("{header}\n{lines}")).unwrap();
    };
    write("validation.csv", &|row| validation.contains(&row));
    write("test.csv", &|row| test.contains(&row));
    write("train.csv", &|row| !validation.contains(&row) && !test.contains(&row));

    let files = ["data.csv.path=train.csv", "data.csv.validation_path=validation.csv"];
    let by_hand = place.run(&[&[drop, "name=by_hand", "-q"], &files[..]].concat()).ended_by(0);
    assert_eq!(by_hand.numbers(), run.numbers());
    assert_eq!(tensors(&by_hand.model()), tensors(&run.model()));
    assert!(!by_hand.files().contains(&"rows.csv".to_owned()));
    let folder = run.0.display().to_string();
    let evaluated = |words: &[&str]| {
        let ended = place.runner(&[&["evaluate", &folder, "--json"], words].concat());
        serde_json::from_str::<serde_json::Value>(&ended.stdout).unwrap()
    };
    let own = evaluated(&[]);
    assert_eq!((own["rows"].as_u64(), &own), (Some(83), &evaluated(&["test.csv"])));
}

/// Each row validates in one fold.
#[test]
fn row_numbers_of_folds() {
    let place = sandbox();
    let mut rows = Vec::new();
    for fold in 0..3 {
        let run = place.run(&["data.folds=3", &format!("data.fold={fold}"), "-q"]).ended_by(0);
        rows.extend(numbers_of(&run.table("rows.csv"), "validation"));
    }
    rows.sort_unstable();
    assert!(rows.into_iter().eq(0..344));
}

#[test]
fn a_run_without_a_test_says_so() {
    let place = sandbox();
    let run = place.run(&["-q"]).ended_by(0);
    let folder = run.0.display().to_string();
    assert_eq!(
        place.runner(&["evaluate", &folder]).stderr.lines().skip(1).collect::<Vec<_>>(),
        [
            format!("error: `{folder}` set no rows aside for a test").as_str(),
            "  = hint: give rows that have the target, or train with `data.split.test=0.1`"
        ]
    );
}

/// Each row validates once; the folds of a setting are averaged, like seeds.
#[test]
fn folds_are_an_axis_of_a_sweep() {
    let place = sandbox();
    let words = ["spec.toml", "data.folds=5", "data.fold=0..5", "optimizer.adam.lr=0.01,0.1", "-q"];
    let sweep = place.runner(&words).stdout.trim().to_owned();
    let table = fs::read_to_string(place.path().join(&sweep).join("sweep.csv")).unwrap();
    assert_eq!(table.lines().count(), 11, "{table}");
    let validated: usize = (0..5).map(|fold| validation_rows(&place, &sweep, fold)).sum();
    assert_eq!(validated, 344);
    let compared = place.runner(&["compare", &sweep]).stdout;
    assert!(compared.contains("paired differences over n folds"), "{compared}");
    let line = compared.lines().next().unwrap();
    assert!(
        line.starts_with("best: #") && line.contains(" lr 0.1, validation loss ") && line.contains(", n 5"),
        "{compared}"
    );
}

/// A sweep reads its table once; each trial has the numbers of a run of its own.
#[test]
fn a_trial_is_the_run_of_its_seed_and_fold() {
    let place = sandbox();
    let sweep = place
        .runner(&["spec.toml", "data.folds=3", "data.fold=0..3", "seed=0..2", "-q"])
        .stdout
        .trim()
        .to_owned();
    let without_times = |path: &Path| {
        let text = fs::read_to_string(path.join("metrics.csv")).unwrap();
        text.lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned()).collect::<Vec<_>>()
    };
    for (fold, seed) in (0..3).flat_map(|fold| [(fold, 0), (fold, 1)]) {
        let words = ["data.folds=3".to_owned(), format!("data.fold={fold}"), format!("seed={seed}")];
        let run = place.run(&words.each_ref().map(String::as_str)).ended_by(0);
        let trial = place.path().join(&sweep).join(format!("{:03}-fold={fold}-seed={seed}", 2 * fold + seed));
        assert_eq!(without_times(&trial), without_times(&run.0), "{words:?}");
    }
}

fn validation_rows(place: &Sandbox, sweep: &str, fold: usize) -> usize {
    let folders = fs::read_dir(place.path().join(sweep)).unwrap().map(|entry| entry.unwrap().path());
    let is_fold = |path: &PathBuf| {
        fs::read_to_string(path.join("spec.toml"))
            .is_ok_and(|spec| spec.contains(&format!("\nfold = {fold}\n")) && spec.contains("lr = 0.01\n"))
    };
    let folder = folders.filter(|path| path.is_dir()).find(is_fold).unwrap();
    let metrics = fs::read_to_string(folder.join("metrics.csv")).unwrap();
    let row = metrics.lines().find(|line| line.contains(",validation,")).unwrap();
    row.split(',').nth(3).unwrap().parse().unwrap()
}

/// A range excludes its end: `0..4` is four folds.
#[test]
fn a_fold_that_is_missing_is_noticed() {
    let place = sandbox();
    let words = ["spec.toml", "data.folds=5", "data.fold=0..4", "optimizer.adam.lr=0.01,0.1", "-q"];
    let checked = place.runner(&[&["check"], &words[..]].concat());
    let warning = "warning: all trials: no trial validates on fold 4 of 5: `data.fold=0..5` takes all\n";
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), warning));
    let sweep = place.runner(&words).stdout.trim().to_owned();
    let compared = place.runner(&["compare", &sweep]).stdout;
    assert!(compared.contains("\n  without some of their folds: #"), "{compared}");
    let one = place.runner(&["check", "spec.toml", "data.folds=5", "data.fold=3", "-q"]);
    assert_eq!(one.stderr, "");
}

/// Five folds of each of two seeds are two samples.
#[test]
fn folds_of_several_seeds_are_averaged() {
    let place = sandbox();
    let words =
        ["spec.toml", "data.folds=5", "data.fold=0..5", "seed=0..2", "optimizer.adam.lr=0.01,0.1", "-q"];
    let sweep = place.runner(&words).stdout.trim().to_owned();
    let compared = place.runner(&["compare", &sweep]).stdout;
    assert!(compared.lines().next().unwrap().contains(", n 2"), "{compared}");
}

/// Rows in the order of time: the first train, those after them validate, the last are for the test, whatever the seed.
#[test]
fn rows_in_their_order() {
    let place =
        Sandbox::new(&SPEC.replace("categorical = [\"island\", \"sex\"]\n", "").replace("mean", "drop"));
    let rows =
        (0..30).map(|row| format!("{},{}\n", if row == 2 { "" } else { "1.5" }, ["a", "b", "c"][row % 3]));
    fs::write(place.path().join("penguins.csv"), format!("size,species\n{}", rows.collect::<String>()))
        .unwrap();
    let split = "data.split={ validation = 0.2, test = 0.1, shuffle = false }";
    let runs = ["seed=0", "seed=1"].map(|seed| place.run(&[split, seed, "-q"]).ended_by(0));
    // Of 29 rows, 6 validate and 3 are for the test; row 2 has an empty cell.
    let held =
        (21..27).map(|row| format!("validation,{row}\n")).chain((27..30).map(|row| format!("test,{row}\n")));
    let expected = format!("split,row\n{}", held.collect::<String>());
    for run in &runs {
        assert_eq!(fs::read_to_string(run.0.join("rows.csv")).unwrap(), expected);
    }
    let ended = place.runner(&["evaluate", &runs[0].0.display().to_string(), "--json"]);
    let json: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(json["rows"], 3, "{ended:?}");
}

/// Nothing draws rows that stay in their order.
#[test]
fn rows_in_their_order_are_not_drawn() {
    let place = sandbox();
    let refused = |words: &[&str]| {
        let ended =
            place.runner(&[&["check", "spec.toml", "data.split.shuffle=false"], words].concat()).ended_by(2);
        ended.stderr
    };
    let all = [
        refused(&["data.split.stratify=true", "data.split.seed=3"]),
        refused(&["data.csv.group=year"]),
        refused(&["data.folds=400", "data.fold=0"]),
        refused(&["data.folds=5", "data.fold=0", "data.split.validation=0.2"]),
    ];
    insta::assert_snapshot!(all.join("\n"), @r#"
    error: `data.split.stratify`: with `data.split.shuffle = false` rows stay in their order: no class gets a share of each part
     --> argument 2:1:21
      |
    1 | data.split.stratify=true
      |                     ^^^^
      |
      = hint: leave out one of the two: `~data.split.stratify` deletes this one

    error: `data.split.seed`: with `data.split.shuffle = false` rows stay in their order: no seed draws them
     --> argument 3:1:17
      |
    1 | data.split.seed=3
      |                 ^
      |
      = hint: leave out one of the two: `~data.split.seed` deletes this one

    error: 2 problems in spec.toml

    error: `data.csv.group`: with `data.split.shuffle = false` rows stay in their order: groups are drawn
     --> argument 2:1:16
      |
    1 | data.csv.group=year
      |                ^^^^
      |
      = hint: leave out one of the two: `~data.csv.group` deletes this one

    error: 400 folds of 344 rows in their order need 401 or more: the first trains on what comes before the folds
     --> argument 2:1:12
      |
    1 | data.folds=400
      |            ^^^
      |
      = hint: use fewer folds

    error: `data.split.validation` and `data.folds` both say which rows validate
     --> argument 4:1:12
      |
    1 | data.split.validation=0.2
      |            ^^^^^^^^^^
      |
     ::: argument 2:1:6
      |
    1 | data.folds=5
      |      ----- the other is here
      |
      = hint: leave one of the two arguments out
    "#);
}
