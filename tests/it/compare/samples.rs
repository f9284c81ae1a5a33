//! What a sample is: seeds of one split count once, folds of a seed with all their rows, and differences are of the runs that both have.

use super::Runs;
use crate::process::Sandbox;

/// A run of a setting: its seed, the seed of its split, its fold and its value.
type Cell = (usize, Option<usize>, Option<usize>, f64);

/// A sweep whose settings have these runs; each division of 100 rows has 20 validation rows in a split or a fold.
fn sweep_of(runs: &Runs, name: &str, settings: &[(&str, Vec<Cell>)]) {
    let mut rows = "trial,optimizer.sgd.lr,status,folder,reason\n".to_owned();
    let cells = settings.iter().flat_map(|(lr, cells)| cells.iter().map(move |cell| (lr, cell)));
    for (trial, (lr, (seed, split, fold, value))) in cells.enumerate() {
        let split = split.map(|seed| format!("[data.split]\nseed = {seed}\n")).unwrap_or_default();
        let of_fold = fold.map(|fold| format!("[data]\nfolds = 5\nfold = {fold}\n")).unwrap_or_default();
        let spec = format!("seed = {seed}\n[optimizer.sgd]\nlr = {lr}\n{of_fold}{split}");
        let division = if split.is_empty() { format!("own {seed}") } else { split.replace('\n', " ") };
        let digest = format!("{division} {fold:?}");
        let columns = "run,status,devices_used,steps,train_s,best_value,best_epoch";
        let folder = format!("{name}/{trial:03}");
        let rows_of = "rows_to_train_on = 80\nrows_to_validate_on = 20";
        runs.write(&format!("{folder}/spec.toml"), &spec);
        runs.write(
            &format!("{folder}/environment.toml"),
            &format!("[data]\n{rows_of}\nsplit_digest = '{digest}'\n"),
        );
        runs.write(
            &format!("{folder}/summary.csv"),
            &format!("{columns}\n{trial},finished,cpu,100,0.{},{value},7\n", 100 + trial),
        );
        rows += &format!("{trial},{lr},finished,{trial:03},\n");
    }
    runs.write(&format!("{name}/sweep.csv"), &rows);
}

/// The figures of settings in `show --json`, each of a setting's number.
fn assert_shown(runs: &Runs, name: &str, expected: &[(usize, &str, f64)]) {
    let shown = Sandbox::new("").runner(&["show", &runs.named(name), "--json"]).stdout;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let settings = &shown["rankings"][0]["settings"];
    for (setting, figure, value) in expected {
        let found = settings[setting][figure].as_f64().unwrap_or_else(|| panic!("{figure}: {settings}"));
        assert!((found - value).abs() < 1e-9, "{setting} {figure}: {found}");
    }
}

/// Three seeds on each of three splits.
fn of_splits(values: [[f64; 3]; 3]) -> Vec<Cell> {
    let cells = (0..3).flat_map(|split| (0..3).map(move |seed| (seed, Some(split), None, (split, seed))));
    cells.map(|(seed, split, fold, (own, other))| (seed, split, fold, values[own][other])).collect()
}

const BASE: [[f64; 3]; 3] = [[0.30, 0.31, 0.29], [0.36, 0.34, 0.35], [0.41, 0.40, 0.42]];
const WORSE: [[f64; 3]; 3] = [[0.33, 0.32, 0.31], [0.40, 0.39, 0.38], [0.43, 0.44, 0.45]];

/// A sample is the mean over the seeds of one split, and n the number of splits. By numpy 2 and scipy 1.17: v of the three means (of
/// differences), `se = sqrt(v.var(ddof=1) * (1/3 + 20/80))`, `v.mean() -+ t.ppf(0.975, 2) * se`, `2 * t.sf(v.mean() / se, 2)`.
/// Taken as nine samples, the difference would be 0.030 [0.013, 0.047], p 0.004.
#[test]
fn seeds_of_one_split_are_one_sample() {
    let runs = Runs::new();
    sweep_of(&runs, "a", &[("0.1", of_splits(BASE)), ("0.01", of_splits(WORSE))]);
    let expected = [
        (0, "n", 3.0),
        (0, "low", 0.1723432578943541),
        (0, "high", 0.5343234087723124),
        (1, "low", 0.18525028361202447),
        (1, "high", 0.5814163830546422),
        (1, "difference", 0.03),
        (1, "difference_low", -0.0028620530386421587),
        (1, "difference_high", 0.06286205303864217),
        (1, "p_value", 0.059124927719230023),
    ];
    assert_shown(&runs, "a", &expected);
    let text = runs.answer(&["a"], 120);
    let first = "best: #2 lr 0.1, validation loss 0.35 [0.17, 0.53], n 3;\n  not distinguishable from #11 \
                 (paired difference 0.030 [-0.003, 0.063], p 0.059)\n";
    let notes = "  means and paired differences over n splits [95 %, Student]; p by Holm, 1 pair\n  \
                 Student's intervals assume normally distributed values\n  \
                 seeds of the same validation rows count as one split, by their mean\n  \
                 splits have other validation rows of the same data: intervals and p allow for the training rows that they share \
                 (Nadeau and Bengio, 2003)\n";
    assert!(text.starts_with(first) && text.contains(notes), "{text}");
    // A lost seed: the difference is of the seeds that both have of that split, here of the same mean.
    let mut some = of_splits(WORSE);
    some.remove(2);
    sweep_of(&runs, "b", &[("0.1", of_splits(BASE)), ("0.01", some)]);
    let expected = [
        (1, "low", 0.19550815817123404),
        (1, "high", 0.5744918418287659),
        (1, "difference_low", -0.0028620530386421587),
        (1, "p_value", 0.059124927719230023),
    ];
    assert_shown(&runs, "b", &expected);
    // The gate and two sweeps have the same samples.
    let place = Sandbox::new("");
    let gate = ["--where", "lr = 0.01", "--fail-if", "mean(validation.loss) > 0.2"];
    let gate = place.runner(&[&["compare", &runs.named("a")], &gate[..]].concat());
    let line = "  lr 0.01: 0.3833 of n 3 against 0.2000; difference 0.18 [-0.01, 0.38]: undecided: ";
    assert!(gate.stdout.contains(line), "{gate:?}");
    let two = place.runner(&["compare", &runs.named("a"), &runs.named("b")]).stdout;
    assert!(two.contains("\n  differences of means, paired by split [95 %, Student]; p by Holm\n"), "{two}");
}

/// Folds of five by each seed.
fn of_folds(seeds: usize, folds: std::ops::Range<usize>, is_worse: bool) -> Vec<Cell> {
    let value = |seed: usize, fold: usize| {
        let own = 0.30 + 0.02 * fold as f64 + 0.01 * ((seed * 7 + fold * 3) % 5) as f64;
        own + if is_worse { 0.02 + 0.005 * ((seed * 2 + fold) % 3) as f64 } else { 0.0 }
    };
    let cells = (0..seeds).flat_map(|seed| folds.clone().map(move |fold| (seed, fold)));
    cells.map(|(seed, fold)| (seed, None, Some(fold), value(seed, fold))).collect()
}

/// Folds of one seed or several have the interval of a corrected repeated cross-validation (Bouckaert and Frank, 2004). By numpy 2 and
/// scipy 1.17: v of the m values of all folds (of differences), `se = sqrt(v.var(ddof=1) * (1/m + 20/80))`,
/// `v.mean() -+ t.ppf(0.975, m - 1) * se`, `2 * t.sf(v.mean() / se, m - 1)`.
#[test]
fn folds_allow_for_the_training_rows_that_they_share() {
    let runs = Runs::new();
    let of = |name: &str, seeds: usize, folds: std::ops::Range<usize>, expected: [f64; 6]| {
        let [own, other] = [false, true].map(|is_worse| of_folds(seeds, folds.clone(), is_worse));
        sweep_of(&runs, name, &[("0.1", own), ("0.01", other)]);
        let figures = [
            (0, "low"),
            (0, "high"),
            (1, "low"),
            (1, "difference_low"),
            (1, "difference_high"),
            (1, "p_value"),
        ];
        let expected: Vec<_> = figures
            .into_iter()
            .zip(expected)
            .map(|((setting, figure), value)| (setting, figure, value))
            .collect();
        assert_shown(&runs, name, &expected);
        runs.answer(&[name], 120)
    };
    let one = of(
        "one",
        1,
        0..5,
        [
            0.2820862024737324,
            0.4379137975262676,
            0.30514578180646673,
            0.016208620247373257,
            0.03179137975262679,
            0.0010261831839933275,
        ],
    );
    let first = "best: #0 lr 0.1, validation loss 0.36 [0.28, 0.44], n 5;\n  better than all others, of which #5 is next (paired \
                 difference 0.024 [0.016, 0.032], p 0.001)\n  RUNS/one";
    assert!(one.starts_with(first), "{one}");
    let note = "\n  folds have other validation rows of the same data: intervals and p allow for the training rows that they share \
                (Nadeau and Bengio, 2003)\n";
    assert!(one.contains(note), "{one}");
    // A fold that all seeds lost changes no more than their number.
    let whole = of(
        "whole",
        5,
        0..5,
        [
            0.3241283188370198,
            0.39587168116298016,
            0.34834194607264046,
            0.020128410702938873,
            0.029471589297061174,
            8.01854752568911e-11,
        ],
    );
    let some = of(
        "some",
        5,
        0..4,
        [
            0.31888125568441733,
            0.3811187443155826,
            0.3425217239872736,
            0.02007969450191708,
            0.029920305498082965,
            1.9359316606514687e-09,
        ],
    );
    for text in [whole, some] {
        assert!(
            text.contains(&note.replace("folds have", "seeds have")) && text.contains(", n 5;"),
            "{text}"
        );
        assert!(!text.contains("the same rows"), "{text}");
    }
    // The gate, two sweeps and the list have the same interval.
    let [name, other] = ["one", "other"].map(|name| runs.named(name));
    sweep_of(&runs, "other", &[("0.1", of_folds(1, 0..5, true))]);
    sweep_of(&runs, "base", &[("0.1", of_folds(1, 0..5, false))]);
    let base = runs.named("base");
    let place = Sandbox::new("");
    let two = place.runner(&["compare", &base, &other]).stdout;
    assert!(two.contains(" 0.024 [0.016, 0.032] ") && two.contains(note), "{two}");
    let condition = ["--baseline", &base, "--fail-if", "mean(validation.loss) > baseline"];
    let ended = place.runner(&[&["compare", &other], &condition[..]].concat());
    assert!(ended.stdout.contains("; difference 0.024 [0.016, 0.032]: fails\n"), "{ended:?}");
    let listed = place.runner(&["show", &name]).stdout;
    assert!(listed.contains("validation loss 0.36 [0.28, 0.44], n 5"), "{listed}");
}

/// The setting of lr 0.1 has a hard fold that the other lost, so that its mean is the higher one, and on each of the nine runs that both
/// have it is the better one. The difference is of these: by numpy and scipy as above, of the nine differences, with 1/9 + 20/80; the
/// interval of lr 0.1 has 1/12 + 20/80.
#[test]
fn the_runs_that_both_have_decide() {
    const WHOLE: [[f64; 4]; 3] =
        [[0.30, 0.34, 0.32, 0.62], [0.33, 0.31, 0.35, 0.66], [0.36, 0.30, 0.33, 0.60]];
    const MORE: [[f64; 3]; 3] = [[0.030, 0.010, 0.023], [0.026, 0.022, 0.027], [0.024, 0.018, 0.015]];
    let cells = |folds: usize, value: &dyn Fn(usize, usize) -> f64| -> Vec<Cell> {
        let cells = (0..3).flat_map(|seed| (0..folds).map(move |fold| (seed, fold)));
        cells.map(|(seed, fold)| (seed, None, Some(fold), value(seed, fold))).collect()
    };
    let runs = Runs::new();
    let whole = cells(4, &|seed, fold| WHOLE[seed][fold]);
    let some = cells(3, &|seed, fold| WHOLE[seed][fold] + MORE[seed][fold]);
    sweep_of(&runs, "both", &[("0.1", whole.clone()), ("0.01", some.clone())]);
    let expected = [
        (0, "value", 0.40166666666666667),
        (0, "low", 0.22694087781779107),
        (1, "value", 0.34833333333333333),
        (1, "low", 0.31845955138293847),
        (1, "difference", 0.021666666666666667),
        (1, "difference_low", 0.012929933457206388),
        (1, "difference_high", 0.030403399876126946),
        (1, "p_value", 0.00044465928501941),
    ];
    assert_shown(&runs, "both", &expected);
    // The gate, and two sweeps.
    sweep_of(&runs, "a", &[("0.1", whole.clone())]);
    sweep_of(&runs, "b", &[("0.1", some.clone())]);
    let paths = ["a", "b"].map(|name| runs.named(name));
    let place = Sandbox::new("");
    let two = place.runner(&["compare", &paths[0], &paths[1]]).stdout;
    assert!(two.contains(" 3, 3 shared ") && two.contains(" 0.022 [0.013, 0.030] "), "{two}");
    let condition = ["--baseline", &paths[0], "--fail-if", "mean(validation.loss) > baseline"];
    let ended = place.runner(&[&["compare", &paths[1]], &condition[..]].concat());
    let line = "; difference over the runs of both 0.022 [0.013, 0.030]: fails\n";
    assert!(ended.code == Some(1) && ended.stdout.contains(line), "{ended:?}");
    // A single run that both have.
    sweep_of(&runs, "one", &[("0.1", whole), ("0.01", some[1..2].to_vec())]);
    let text = runs.answer(&["one"], 120);
    assert!(
        text.contains("  one shared seed cannot tell it from #12 (paired difference +0.01000)\n"),
        "{text}"
    );
}

/// Seeds of their own each, and a single one that only one of the others has: with the other it cannot be compared.
#[test]
fn pairs_of_other_rows_are_named() {
    let of_seeds = |seeds: std::ops::Range<usize>, value: f64| -> Vec<Cell> {
        seeds.map(|seed| (seed, None, None, value + 0.01 * seed as f64)).collect()
    };
    let runs = Runs::new();
    let settings = [("0.1", 0..3, 0.3), ("0.2", 3..6, 0.4), ("0.3", 4..5, 0.5)];
    sweep_of(&runs, "a", &settings.map(|(lr, seeds, value)| (lr, of_seeds(seeds, value))));
    let text = runs.answer(&["a"], 120);
    let words = "\n  1 setting is judged by other validation rows than the best, and not comparable with it (#6): the same seeds, and the same `data.split.seed` or none, \
                 give the same rows\n";
    assert!(text.contains(words) && !text.contains("tasks"), "{text}");
}
