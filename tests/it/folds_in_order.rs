//! Cross-validation in the order of rows: `folds` with `split.shuffle = false`.

use std::fs;

use runner::units::number;

use super::process::{Folder, Sandbox, tensors};

const SPEC: &str = r#"
[data]
split = { shuffle = false, test = 0.1 }
[data.csv]
path = "rows.csv"
target = "y"
missing = "drop"
standardize_target = true
[model]
layers = [{ linear = { out_features = 1 } }]
[optimizer.adam]
lr = 0.1
[trainer]
max_epochs = 4
"#;

/// 45 rows, one of which is dropped: 4 are for the test, and each of three folds has 10 of the other 40.
fn sandbox() -> Sandbox {
    let place = Sandbox::new(SPEC);
    fs::write(place.path().join("rows.csv"), lines(0..45)).unwrap();
    place
}

/// A trend that bends, so that each later row is harder.
fn lines(rows: impl Iterator<Item = usize>) -> String {
    let line = |row: usize| match row {
        2 => "2,,0\n".to_owned(),
        row => format!("{row},{},{}\n", row % 7, 3 * row * row + 5 * (row % 7)),
    };
    format!("t,x,y\n{}", rows.map(line).collect::<String>())
}

fn fold(place: &Sandbox, fold: usize, more: &[&str]) -> Folder {
    let fold = format!("data.fold={fold}");
    place.run(&[&["data.folds=3", &fold, "-q"], more].concat()).ended_by(0)
}

/// `rows.csv` names the rows of each part, whatever the seed; a run on tables with the rows of a fold alone is the same to the bit,
/// so no later row scales a column.
#[test]
fn each_fold_trains_on_the_rows_before_it() {
    let place = sandbox();
    for number in 0..3 {
        let run = fold(&place, number, &["seed=3"]);
        let first = 11 + 10 * number;
        let rows = |split: &str, rows: std::ops::Range<usize>| {
            rows.map(|row| format!("{split},{row}\n")).collect::<String>()
        };
        let validation = rows("validation", first..first + 10);
        let expected =
            ["split,row\n", &validation, &rows("test", 41..45), &rows("later", first + 10..41)].concat();
        assert_eq!(fs::read_to_string(run.0.join("rows.csv")).unwrap(), expected);
        fs::write(place.path().join("before.csv"), lines(0..first)).unwrap();
        fs::write(place.path().join("fold.csv"), lines(first..first + 10)).unwrap();
        let files = ["~data.split", "data.csv.path=before.csv", "data.csv.validation_path=fold.csv"];
        let by_hand = place.run(&[&files[..], &["name=by_hand", "seed=3", "-q"]].concat()).ended_by(0);
        assert_eq!(by_hand.numbers(), run.numbers());
        assert_eq!(tensors(&by_hand.model()), tensors(&run.model()));
        let tested = place.runner(&["evaluate", &run.0.display().to_string(), "--json"]);
        let tested: serde_json::Value = serde_json::from_str(&tested.stdout).unwrap();
        assert_eq!(tested["rows"], 4);
    }
    let check = |fold: &str| place.runner(&["check", "spec.toml", "data.folds=3", fold]).stdout;
    let first = check("data.fold=0");
    assert!(first.contains("10 rows to train on, 10 to validate on"), "{first}");
    let words = "\n             fold 0 of 3 in the order of rows: trains on those before it; 20 rows after it left out\n";
    assert!(
        first.contains(words) && first.contains("\n             4 rows set aside for a test\n"),
        "{first}"
    );
    let last = check("data.fold=2");
    assert!(last.contains(" fold 2 of 3 in the order of rows: trains on those before it\n"), "{last}");
}

/// A sweep of two settings over three folds, and the values of each; the second is better on each fold.
fn swept(place: &Sandbox) -> (String, [Vec<f64>; 2]) {
    let words = ["spec.toml", "data.folds=3", "data.fold=0..3", "optimizer.adam.lr=0.001,0.1", "-q"];
    let sweep = place.runner(&words).stdout.trim().to_owned();
    let values = ["lr = 0.001\n", "lr = 0.1\n"].map(|lr| values_of(place, &sweep, lr, "best_value"));
    assert!(
        values[0].len() == 3 && values[0].iter().zip(&values[1]).all(|(slow, fast)| slow > fast),
        "{values:?}"
    );
    (sweep, values)
}

/// A figure of each trial with this text in its spec.
fn values_of(place: &Sandbox, sweep: &str, text: &str, figure: &str) -> Vec<f64> {
    let folders = fs::read_dir(place.path().join(sweep)).unwrap().map(|entry| entry.unwrap().path());
    folders
        .filter(|path| fs::read_to_string(path.join("spec.toml")).is_ok_and(|spec| spec.contains(text)))
        .map(|path| Folder(path).summary(figure).parse().unwrap())
        .collect()
}

fn ends(values: &[f64]) -> [f64; 2] {
    [f64::min, f64::max].map(|end: fn(f64, f64) -> f64| values.iter().copied().reduce(end).unwrap())
}

/// No formula gives an interval: mean and range stand in its place, and the last fold's model in place of the luckiest.
#[test]
fn folds_are_compared_by_their_range() {
    let place = sandbox();
    let (sweep, values) = swept(&place);
    let compared = place.runner(&["compare", &sweep]).stdout;
    let lines: Vec<&str> = compared.lines().collect();
    let path = format!("{sweep}/005-fold=2-lr=.1");
    let begins = |line: usize, words: &str| assert!(lines[line].starts_with(words), "{compared}");
    begins(0, "best: #5 lr 0.1, validation loss ");
    assert!(lines[0].ends_with(", range over 3 folds;"), "{compared}");
    begins(1, "  better on every fold than all others, of which #4 is next (paired difference ");
    assert_eq!(lines[2], format!("  {path} (its last fold, which trains on most rows)"));
    let notes = "\n  means and paired differences over n folds [lowest, highest]\n  folds in the order of rows train on ever more, \
                 each on those of the one before: no interval or p-value is known to hold\n";
    assert!(compared.contains(notes), "{compared}");
    assert!(!["p-value  ", "Student", "Nadeau"].iter().any(|word| compared.contains(word)), "{compared}");

    let exported = place.runner(&["compare", &sweep, "--by", "lr", "--export", "csv"]).stdout;
    let rows: Vec<Vec<&str>> = exported.lines().map(|line| line.split(',').collect()).collect();
    let cell = |name: &str| rows[1][rows[0].iter().position(|column| *column == name).unwrap()];
    let [low, high] = ends(&values[1]).map(|end| end.to_string());
    assert_eq!(["interval", "low", "high", "p_value"].map(cell), ["range", &low, &high, ""]);

    let predicted = place.runner(&["predict", &sweep, "rows.csv", "-o", "out.csv"]);
    let line = predicted.stderr.lines().find(|line| line.starts_with("run: "));
    let line = line.unwrap_or_else(|| panic!("{predicted:?}"));
    assert!(line.starts_with(&format!("run: {path}, the best trial: #5 lr 0.1, ")), "{line}");
    assert!(line.ends_with(", range over 3 folds; trained on the rows before fold 2"), "{line}");
}

/// One seed over three folds is one sample: the mean that made it the best is named, not the value of its last fold.
#[test]
fn the_mean_of_one_seed_over_folds_is_named() {
    let point = |lr: &str, seed: u32, fold: u32| {
        format!("{{ 'optimizer.adam.lr' = {lr}, seed = {seed}, 'data.fold' = {fold} }}")
    };
    let folds = |lr: &'static str, seed: u32| (0..3).map(move |fold| point(lr, seed, fold));
    let points: Vec<String> = folds("0.001", 0).chain(folds("0.001", 1)).chain(folds("0.1", 0)).collect();
    let spec =
        SPEC.replacen("[data]", &format!("sweep.points = [{}]\n[data]\nfolds = 3", points.join(", ")), 1);
    let place = Sandbox::new(&spec);
    fs::write(place.path().join("rows.csv"), lines(0..45)).unwrap();
    let sweep = place.runner(&["spec.toml", "-q"]).stdout.trim().to_owned();
    let shown = place.runner(&["show", &sweep, "--json"]).stdout;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let values = values_of(&place, &sweep, "lr = 0.1\n", "best_value");
    let mean = values.iter().sum::<f64>() / 3.0;
    let own = &shown["best"];
    assert!((own["value"].as_f64().unwrap() - mean).abs() < 1e-12 * mean, "{own} {values:?}");
    let predicted = place.runner(&["predict", &sweep, "rows.csv", "-o", "out.csv"]).stderr;
    let words = format!(", the best trial: #8 lr 0.1, validation loss {} over 3 folds", number(mean));
    assert!(predicted.contains(&words), "{predicted}{words}");
}

/// A bound is broken where it is broken on each fold; two sweeps differ where they differ on each.
#[test]
fn what_holds_on_each_fold() {
    let place = sandbox();
    let (sweep, values) = swept(&place);
    let gate = |bound: f64| {
        let condition = format!("mean(validation.loss) > {bound}");
        let ended = place.runner(&["compare", &sweep, "--where", "lr = 0.1", "--fail-if", &condition]);
        (ended.code, ended.stdout)
    };
    let median = |bound: f64| {
        let condition = format!("median(validation.loss) > {bound}");
        let ended = place.runner(&["compare", &sweep, "--where", "lr = 0.1", "--fail-if", &condition]);
        (ended.code, ended.stdout)
    };
    let ([low, high], mean) = (ends(&values[1]), values[1].iter().sum::<f64>() / 3.0);
    assert!(low < mean && mean < high, "{values:?}");
    let (code, text) = gate(low / 2.0);
    assert!(code == Some(1) && text.contains(": fails\n"), "{code:?} {text}");
    let (code, text) = gate((low + mean) / 2.0);
    assert!(code == Some(0) && text.contains(": passes: it is not so on each fold\n"), "{text}");
    let (code, text) = median(low / 2.0);
    assert!(code == Some(1) && text.contains(": fails\n"), "{code:?} {text}");
    let middle = values[1].iter().find(|value| ![low, high].contains(value)).unwrap();
    let (code, text) = median((low + middle) / 2.0);
    assert!(code == Some(0) && text.contains(": passes: it is not so on each fold\n"), "{text}");

    let words = ["spec.toml", "data.folds=3", "data.fold=0..3", "optimizer.adam.lr=0.001,0.1", "-q"];
    let longer = place.runner(&[&words[..], &["trainer.max_epochs=12"]].concat()).stdout;
    let text = place.runner(&["compare", &sweep, longer.trim()]).stdout;
    let first = "2 shared settings, validation loss: second better in 2, worse in 0, unclear in 0\n";
    let note = "\n  differences of means, paired by fold [lowest, highest]\n  folds in the order of rows train on ever more";
    assert!(text.starts_with(first) && text.contains(note), "{text}");
}

/// The first folds train on few rows, and so for more epochs than a model of all rows: the last fold's length is taken.
#[test]
fn a_final_model_trains_as_long_as_the_last_fold() {
    let place = sandbox();
    let words = ["spec.toml", "data.folds=3", "data.fold=0..3", "seed=0..2", "-q"];
    let sweep = place.runner(&words).stdout.trim().to_owned();
    let best_epochs = values_of(&place, &sweep, "\nfold = 2\n", "best_epoch");
    assert_eq!(best_epochs.len(), 2);
    let length = (best_epochs.iter().sum::<f64>() / 2.0).round();
    let ended = place.runner(&["refit", &sweep]);
    let words = format!(
        "\nlength: {length} epochs, after which the last fold was best: those before it train on fewer rows\n"
    );
    assert!(ended.code == Some(0) && ended.stderr.contains(&words), "{ended:?}");
    assert!(ended.stderr.contains("\nrows: all but the test rows\n"), "{ended:?}");
    let compared = place.runner(&["compare", &sweep]).stdout;
    let note = "\n  seeds have the same rows in each fold: intervals and p are of what seeds draw, not of other times\n";
    assert!(compared.contains(note) && compared.contains(", n 2"), "{compared}");
}

/// Seeds that go with the folds are each of other times, so that neither seeds nor folds give an interval.
#[test]
fn seeds_of_one_fold_each_have_no_interval() {
    let place = sandbox();
    let zip = "sweep.zip={ \"data.fold\" = [0, 1, 2], seed = [1, 2, 3] }";
    let words = ["spec.toml", "data.folds=3", zip, "optimizer.adam.lr=0.001,0.1", "-q"];
    let sweep = place.runner(&words).stdout.trim().to_owned();
    let compared = place.runner(&["compare", &sweep]).stdout;
    assert!(compared.lines().next().unwrap().ends_with(", range over 3 folds;"), "{compared}");
    let notes = "\n  means and paired differences over n seeds [lowest, highest]\n  folds in the order of rows train on ever more, ";
    assert!(compared.contains(notes), "{compared}");
    assert!(
        !["p-value  ", "Student", "what seeds draw"].iter().any(|word| compared.contains(word)),
        "{compared}"
    );
}

/// Settings of one seed over all folds and of several seeds share no sample: a bound is neither kept nor broken, for that reason.
#[test]
fn folds_and_seeds_over_folds_have_no_range() {
    let place = sandbox();
    let sweep = |seeds: &str| {
        let words = ["spec.toml", "data.folds=3", "data.fold=0..3", seeds, "optimizer.adam.lr=0.1", "-q"];
        place.runner(&words).stdout.trim().to_owned()
    };
    let [first, second] = ["seed=0", "seed=1..3"].map(sweep);
    let text = place.runner(&["compare", &first, &second]).stdout;
    let note = "\n  differences of means over other folds: no range\n  folds in the order of rows";
    assert!(text.contains(note) && !text.contains("paired by fold"), "{text}");
    let condition = "mean(validation.loss) > 0.5 * baseline";
    let text = place.runner(&["compare", &second, "--baseline", &first, "--fail-if", condition]).stdout;
    assert!(text.contains("; they share no folds: no range: undecided\n"), "{text}");
}
