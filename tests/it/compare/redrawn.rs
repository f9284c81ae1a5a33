//! Seeds that draw their validation rows from one table share rows of training; seeds of one split tell nothing of other rows.

use std::fs;

use super::{Runs, answer::learned};
use crate::process::Sandbox;

const OWN: [f64; 5] = [0.30, 0.34, 0.31, 0.37, 0.33];
const OTHER: [f64; 5] = [0.34, 0.39, 0.33, 0.42, 0.36];

/// What a run's environment says of its rows: how many validate, how many train, and the digest of which.
type Rows = (u32, u32, String);

/// Two settings of five seeds each, whose rows are known by seed; `data` is added to their specs.
fn sweep(runs: &Runs, name: &str, data: &str, rows: impl Fn(usize) -> Rows) {
    learned(runs, name, &[("0.1", "32", &OWN), ("0.01", "32", &OTHER)]);
    for trial in 0..10 {
        let folder = format!("{name}/S/{trial:03}");
        let spec = fs::read_to_string(runs.path(&format!("{folder}/spec.toml"))).unwrap();
        runs.write(&format!("{folder}/spec.toml"), &(spec + data));
        let (validate, train, digest) = rows(trial / 2);
        let split = if digest.is_empty() { String::new() } else { format!("split_digest = \"{digest}\"\n") };
        let text = format!("[data]\nrows_to_train_on = {train}\nrows_to_validate_on = {validate}\n{split}");
        runs.write(&format!("{folder}/environment.toml"), &text);
    }
}

fn answer(data: &str, rows: impl Fn(usize) -> Rows) -> String {
    let runs = Runs::new();
    sweep(&runs, "a", data, rows);
    runs.answer(&["a"], 120)
}

/// The corrected resampled t-test of Nadeau and Bengio (2003): the variance times 1/n + 20/80, computed with scipy 1.17.
#[test]
fn seeds_that_redraw_the_split_have_wider_intervals() {
    insta::assert_snapshot!(answer("", |seed| (20, 80, seed.to_string())), @r"
    best: #0 lr 0.1, validation loss 0.33 [0.28, 0.38], n 5;
      better than all others, of which #5 is next (paired difference 0.038 [0.014, 0.062], p 0.012)
      RUNS/a/S/000

     #    lr  n    validation loss               vs best  p-value    time
     0   0.1  5  0.33 [0.28, 0.38]                  best           500 ms
     5  0.01  5  0.37 [0.30, 0.44]  0.038 [0.014, 0.062]    0.012  500 ms
      means and paired differences over n seeds [95 %, Student]; p by Holm, 1 pair
      Student's intervals assume normally distributed values
      seeds have other validation rows of the same data: intervals and p allow for the training rows that they share (Nadeau and Bengio, 2003)
    ");
    // A test part, whatever the spec says of fractions: 20/70.
    let text = answer("", |seed| (20, 70, seed.to_string()));
    assert!(text.contains("validation loss 0.33 [0.28, 0.38], n 5;\n  better than all others, of which #5 is next (paired difference 0.038 [0.013, 0.063], p 0.014)"), "{text}");
}

/// A few groups of unequal size, of which a fraction of 0.1 takes one or two: what counts is the rows that each seed got, 0.4265 as
/// a mean. Expected values by numpy and scipy 1.17: the mean of the ratios, `stats.t.ppf` and `stats.t.sf`.
#[test]
fn unequal_groups_count_by_their_rows() {
    let runs = Runs::new();
    let parts = [(90, 270), (40, 320), (200, 160), (90, 270), (30, 330)];
    sweep(&runs, "a", "[data.csv]\nvalidation_fraction = 0.1\ngroup = \"g\"\n", |seed| {
        (parts[seed].0, parts[seed].1, seed.to_string())
    });
    let shown = Sandbox::new("").runner(&["show", &runs.named("a/S"), "--json"]).stdout;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let settings = &shown["rankings"][0]["settings"];
    let expected = [
        (0, "low", 0.26981538148528744),
        (0, "high", 0.3901846185147125),
        (1, "low", 0.2866579405318239),
        (1, "high", 0.44934205946817607),
        (1, "difference_low", 0.009346390291868383),
        (1, "difference_high", 0.06665360970813161),
        (1, "p_value", 0.021165253924634347),
    ];
    for (setting, figure, value) in expected {
        let found = settings[setting][figure].as_f64().unwrap();
        assert!((found - value).abs() < 1e-9, "{setting} {figure}: {found}");
    }
}

const SAME_ROWS: &str =
    "seeds validate on the same rows: intervals and p are of what seeds draw; other rows may rank otherwise";

/// Seeds of one split are independent, and tell nothing of other rows: a line says so, with what would tell.
#[test]
fn seeds_of_one_split_tell_nothing_of_other_rows() {
    let text = answer("", |_| (20, 80, "a".to_owned()));
    let verdict = format!(
        "best: #0 lr 0.1, validation loss 0.330 [0.296, 0.364], n 5;\n  better than all others, of which #5 is next \
         (paired difference 0.038 [0.022, 0.054], p 0.003)\n  {SAME_ROWS} (`data.split.seed=0..5` draws others, `data.folds` \
         takes all in turn)\n  RUNS/"
    );
    assert!(text.starts_with(&verdict), "{text}");
    // Another `data.split.seed` would draw other test rows, too.
    let tested = answer("[data.split]\ntest = 0.1\n", |_| (20, 70, "a".to_owned()));
    assert!(tested.contains(&format!("\n  {SAME_ROWS} (`data.folds` takes all in turn)\n")), "{tested}");
    // Rows in a file of their own, and rows in their order.
    let of_file = answer("", |_| (20, 80, String::new()));
    assert!(of_file.contains(&format!("\n  {SAME_ROWS}\n")), "{of_file}");
    let in_order = answer("[data.split]\nshuffle = false\n", |_| (20, 80, "a".to_owned()));
    let words = "\n  seeds have the same rows: intervals and p are of what seeds draw, not of other times\n";
    assert!(in_order.contains(words), "{in_order}");
    // Nothing where each seed has its own rows, drawn from a table or made, or where that is not known.
    let others = [
        answer("", |seed| (20, 80, seed.to_string())),
        answer("[data.synthetic_regression]\nnoise = 0.1\n", |seed| (20, 80, seed.to_string())),
    ];
    others.iter().for_each(|text| assert!(!text.contains("the same rows"), "{text}"));
    let unknown = Runs::new();
    learned(&unknown, "a", &[("0.1", "32", &OWN), ("0.01", "32", &OTHER)]);
    assert!(!unknown.answer(&["a"], 120).contains("the same rows"));
    // Made rows share nothing.
    assert!(others[1].contains("[0.022, 0.054], p 0.003"), "{}", others[1]);
}

/// Every output with a verdict or an interval has the line.
#[test]
fn all_outputs_say_of_which_rows_they_are() {
    let runs = Runs::new();
    sweep(&runs, "a", "", |_| (20, 80, "a".to_owned()));
    sweep(&runs, "b", "", |_| (20, 80, "a".to_owned()));
    let (place, [a, b]) = (Sandbox::new(""), ["a/S", "b/S"].map(|name| runs.named(name)));
    let ran = |arguments: &[&str]| {
        let ended = place.runner(arguments);
        assert!(ended.code == Some(0), "{ended:?}");
        ended
    };
    let pivot = ran(&["compare", &a, "--pivot", "lr,width"]).stdout;
    let gate = ran(&["compare", &a, "--fail-if", "mean(validation.loss) > 0.5"]).stdout;
    let relative = ran(&["compare", &a, &b, "--fail-if", "mean(validation.loss) > 1.1 * baseline"]).stdout;
    let against = ran(&["compare", &a, &b]).stdout;
    for text in [pivot, gate, relative, against, ran(&["show", &a]).stdout] {
        assert_eq!(text.matches(&format!("\n  {SAME_ROWS} (")).count(), 1, "{text}");
    }
    let warned = format!("warning: {SAME_ROWS} (");
    for more in [&["--export", "md"][..], &["--export", "latex"], &["--export", "csv", "--by", "lr"]] {
        let ended = ran(&[&["compare", &a], more].concat());
        assert!(ended.stderr.starts_with(&warned), "{ended:?}");
    }
    assert!(ran(&["compare", &a, &b, "--export", "md"]).stderr.starts_with(&warned));
    let shown: serde_json::Value = serde_json::from_str(&ran(&["show", &a, "--json"]).stdout).unwrap();
    assert!(shown["rankings"][0]["caveats"][0].as_str().unwrap().starts_with(SAME_ROWS), "{shown}");
    let page = ran(&["report", &a, "-o", "page.html"]);
    let text = fs::read_to_string(place.path().join("page.html")).unwrap();
    assert_eq!(text.matches(SAME_ROWS).count(), 1, "{page:?}");
    // A list says of which entries, if not of all.
    let all = runs.named("");
    assert!(ran(&["list", &all]).stdout.contains(&format!("\n {SAME_ROWS}")));
    sweep(&runs, "c", "", |seed| (20, 80, seed.to_string()));
    let listed = ran(&["list", &all]).stdout;
    assert!(listed.contains(&format!("\n {a} and 1 more: {SAME_ROWS}")), "{listed}");
}

/// What is true of one of two sweeps is said of that one.
#[test]
fn a_line_that_one_of_two_sweeps_has_names_it() {
    let runs = Runs::new();
    sweep(&runs, "a", "[data.split]\nseed = 7\n", |_| (20, 80, "a".to_owned()));
    sweep(&runs, "b", "", |seed| (20, 80, seed.to_string()));
    sweep(&runs, "c", "[data.split]\nseed = 7\n", |_| (20, 80, "a".to_owned()));
    let [a, b, c] = ["a", "b", "c"].map(|name| runs.named(name));
    let compared = |paths: [&str; 2]| Sandbox::new("").runner(&["compare", paths[0], paths[1]]).stdout;
    for (paths, name) in [([&*a, &b], "first"), ([&b, &a], "second")] {
        let text = compared(paths);
        assert!(
            text.contains(&format!("\n  {name}: {SAME_ROWS} (`data.split.seed=0..5` draws others")),
            "{text}"
        );
    }
    assert!(compared([&a, &c]).contains(&format!("\n  {SAME_ROWS} (")));
}

/// Values that are the best of several validations are optimistic, and a line of the table says so, unless the last one counts.
#[test]
fn the_best_of_several_validations_is_optimistic() {
    let runs = Runs::new();
    let data = |every: u32| format!("[trainer]\nvalidate_every_epochs = {every}\n");
    for (name, every) in [("often", 3), ("once", 10), ("end", 0)] {
        sweep(&runs, name, &data(every), |seed| (20, 80, seed.to_string()));
        for trial in 0..10 {
            let path = format!("{name}/S/{trial:03}/summary.csv");
            let text = fs::read_to_string(runs.path(&path)).unwrap();
            runs.write(
                &path,
                &text.replace("best_epoch\n", "best_epoch,epochs\n").replace(",7\n", ",7,10\n"),
            );
        }
    }
    let words = "  each run counts with the best of up to 4 validations on the rows that judge it, which is optimistic: `runner evaluate` on \
                 rows that `data.split.test` sets aside is not\n";
    let often = runs.answer(&["often"], 120);
    assert!(often.contains(&format!("500 ms\n{words}  means and ")), "{often}");
    for name in ["once", "end"] {
        assert!(!runs.answer(&[name], 120).contains("optimistic"), "{name}");
    }
    let place = Sandbox::new("");
    place.runner(&["report", &runs.named("often"), "-o", "page.html"]).ended_by(0);
    let page = fs::read_to_string(place.path().join("page.html")).unwrap();
    assert_eq!(page.matches("each run counts with the best of up to 4 validations").count(), 1);
}

/// By seeds each setting has one, and more of them are no way out.
#[test]
fn seeds_as_settings_need_no_repeats() {
    let runs = Runs::new();
    sweep(&runs, "a", "", |_| (20, 80, "a".to_owned()));
    let ended = Sandbox::new("").runner(&["compare", &runs.named("a"), "--by", "seed"]);
    assert!(ended.stdout.contains("one seed each cannot tell whether that is more than luck\n"), "{ended:?}");
}

/// Two sweeps whose validation rows differ are two tasks; with splits of each seed's own they are one.
#[test]
fn sweeps_of_other_validation_rows_are_other_tasks() {
    let runs = Runs::new();
    let seed = |seed: u32| format!("[data.split]\nseed = {seed}\n");
    sweep(&runs, "a", &seed(7), |_| (20, 80, "a".to_owned()));
    sweep(&runs, "b", &seed(8), |_| (20, 80, "b".to_owned()));
    sweep(&runs, "first", &seed(0), |_| (20, 80, "0".to_owned()));
    sweep(&runs, "own", "", |seed| (20, 80, seed.to_string()));
    sweep(&runs, "own2", "", |seed| (20, 80, seed.to_string()));
    sweep(&runs, "moved", "", |seed| (20, 80, (seed + 1).to_string()));
    let place = Sandbox::new("");
    let compared = |first: &str, second: &str, more: &[&str]| {
        let paths = [first, second].map(|name| runs.named(name));
        place.runner(&[&["compare", &paths[0], &paths[1]], more].concat())
    };
    let gate = ["--fail-if", "mean(validation.loss) > 1.02 * baseline"];
    let way_out = "the same seeds, and the same `data.split.seed` or none, give the same rows";
    // Other seeds of the split; a split for each seed against one, also if that is one of them; the same seeds, for which rows.csv
    // has other rows.
    for (first, second) in [("a", "b"), ("a", "own"), ("first", "own"), ("own", "first"), ("own", "moved")] {
        let text = compared(first, second, &[]).stdout;
        let words = format!(
            "2 tasks, whose metrics are not comparable: the validation rows differ (first; second): {way_out}\n\n2 shared \
             settings, validation loss: second better in 0, worse in 0, unclear in 2\n"
        );
        assert!(text.starts_with(&words), "{text}");
        assert!(["p-value", "Holm", "paired by"].iter().all(|words| !text.contains(words)), "{text}");
        let ended = compared(first, second, &gate);
        let refused = format!(
            "error: 2 tasks, whose metrics are not comparable: the validation rows differ\n  = hint: {way_out}\n"
        );
        assert_eq!((ended.code, ended.stderr), (Some(2), refused), "{}", ended.stdout);
    }
    let text = compared("own", "own2", &[]).stdout;
    assert!(text.starts_with("2 shared settings") && text.contains("paired by seed"), "{text}");
    let ended = compared("own", "own2", &gate).ended_by(0);
    let words = "\n  seeds have other validation rows of the same data: intervals and p allow for the training rows that they share";
    assert!(ended.stdout.contains(words), "{}", ended.stdout);
}

/// A loss of the rows that trained ranks by fit: a line says so, and what would set rows aside.
#[test]
fn a_ranking_by_training_loss_is_of_fit() {
    let runs = Runs::new();
    learned(&runs, "a", &[("0.1", "32", &OWN), ("0.01", "32", &OTHER)]);
    for (trial, loss) in (0..10).zip(OWN.into_iter().zip(OTHER).flat_map(|(own, other)| [own, other])) {
        let summary = format!("run,status,devices_used,epoch_train_loss\n{trial},finished,cpu,{loss}\n");
        runs.write(&format!("a/S/{trial:03}/summary.csv"), &summary);
    }
    let text = runs.answer(&["a"], 120);
    let words = "\n  train loss is fit to the rows that train, and no prediction of others (`data.split.validation=0.2` sets rows aside)\n  RUNS";
    assert!(text.starts_with("best: #0 lr 0.1, train loss 0.330 ") && text.contains(words), "{text}");
}

/// In a ranking, too, nothing is tested between settings of other validation rows. By scipy 1.17, `stats.ttest_rel` of OWN and OTHER
/// gives p 0.00287; of six pairs the two of the same rows count.
#[test]
fn settings_of_other_validation_rows_are_no_rivals() {
    let runs = Runs::new();
    let data = |seed: u32| format!("[data.split]\nseed = {seed}\n[trainer]\nmax_epochs = {seed}\n");
    sweep(&runs, "a", &data(7), |_| (20, 80, "a".to_owned()));
    sweep(&runs, "b", &data(8), |_| (20, 80, "b".to_owned()));
    // Runs of equal times and values are copies.
    for trial in 0..10 {
        let path = format!("b/S/{trial:03}/summary.csv");
        let summary = fs::read_to_string(runs.path(&path)).unwrap();
        runs.write(&path, &summary.replace(",100,0.5,", ",100,0.6,"));
    }
    let text = runs.answer(&["a", "b"], 120);
    let words = [
        "not comparable with #0 B and 1 more, judged by other rows\n",
        "\n  2 settings are judged by other validation rows than the best, and not comparable with it (#0 B, #5 B): the same seeds, and",
        "; p by Holm, 2 pairs\n",
    ];
    words.iter().for_each(|words| assert!(text.contains(words), "{words}: {text}"));
    assert_eq!(text.matches(" 0.006 ").count(), 1, "{text}");
}

/// Runs that do not record their rows have no interval, however many of the others do, and one line says why.
#[test]
fn unrecorded_rows_give_no_interval() {
    let lost: [fn(usize) -> bool; 2] = [|_| true, |trial| trial == 4];
    for is_lost in lost {
        let runs = Runs::new();
        sweep(&runs, "a", "[data.csv]\nvalidation_fraction = 0.2\n", |seed| (20, 80, seed.to_string()));
        for trial in (0..10).filter(|trial| is_lost(*trial)) {
            fs::remove_file(runs.path(&format!("a/S/{trial:03}/environment.toml"))).unwrap();
        }
        let text = runs.answer(&["a"], 120);
        let words = "\n  runs do not record which rows validate (environment.toml): no interval or p-value is known to hold\n";
        assert_eq!(text.matches(words).count(), 1, "{text}");
        let first = "best: #0 lr 0.1, validation loss 0.3300, n 5; unrecorded rows cannot tell it from #5 (paired difference +0.03800)\n";
        assert!(text.starts_with(first), "{text}");
        assert!(!text.contains("p-value  ") && !text.contains("judged by other"), "{text}");
    }
}

/// One seed, of whose folds each setting lost another: those that both have decide. By scipy 1.17, with the
/// variance of these three times 1/3 + 20/80 and `stats.t` of 2 degrees of freedom.
#[test]
fn settings_that_lost_other_folds_are_of_one_task() {
    let answer = |digest: fn(usize) -> usize| {
        let runs = Runs::new();
        sweep(&runs, "a", "[data]\nfolds = 5\n", |fold| (20, 80, fold.to_string()));
        for trial in 0..10 {
            let (folder, fold) = (format!("a/S/{trial:03}"), trial / 2);
            let change = |file: &str, from: &str, to: &str| {
                let path = format!("{folder}/{file}");
                let text = fs::read_to_string(runs.path(&path)).unwrap();
                assert!(text.contains(from), "{from}: {text}");
                runs.write(&path, &text.replace(from, to));
            };
            change("spec.toml", &format!("seed = {fold}\n"), "seed = 0\n");
            change("spec.toml", "folds = 5\n", &format!("folds = 5\nfold = {fold}\n"));
            change("environment.toml", &format!("\"{fold}\""), &format!("\"{}\"", digest(trial)));
            if [1, 8].contains(&trial) {
                change("summary.csv", ",finished,", ",diverged,");
            }
        }
        runs.answer(&["a"], 120)
    };
    let text = answer(|trial| trial / 2);
    assert!(text.contains("(paired difference 0.04 [-0.02, 0.10], p 0.094)"), "{text}");
    assert!(text.contains("without some of their folds") && !text.contains("judged by other"), "{text}");
    // The folds of the second setting are of another division.
    let text = answer(|trial| trial / 2 + 10 * (trial % 2));
    assert!(text.contains("and not comparable with it (#5)") && !text.contains("p-value"), "{text}");
}

/// Each of many settings is judged by rows of its own.
#[test]
fn many_tasks_are_told_apart() {
    let runs = Runs::new();
    let lrs: Vec<String> = (1..=300).map(|n| format!("0.{n:03}")).collect();
    let settings: Vec<(&str, &str, &[f64])> = lrs.iter().map(|lr| (&**lr, "32", &OWN[..1])).collect();
    learned(&runs, "a", &settings);
    for trial in 0..300 {
        let rows =
            format!("[data]\nrows_to_train_on = 80\nrows_to_validate_on = 20\nsplit_digest = \"{trial}\"\n");
        runs.write(&format!("a/S/{trial:03}/environment.toml"), &rows);
    }
    let text = runs.answer(&["a"], 120);
    assert!(text.contains("299 settings are judged by other validation rows than the best, and not comparable with it (#1 to 299): "), "{text}");
}
