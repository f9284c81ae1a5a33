//! The answer of `compare`: which setting is best, whether that is certain, and the table below.

use std::{fs, path::Path};

use runner::report::Question;

use super::{FACTS, Facts, Runs};
use crate::process::Sandbox;

/// A sweep over learning rates and widths, with a best loss of each repeat.
pub(super) fn learned(runs: &Runs, name: &str, settings: &[(&str, &str, &[f64])]) {
    let mut rows = "trial,optimizer.sgd.lr,model.width,repeat,status,folder,reason\n".to_owned();
    let mut trial = 0;
    let repeats = settings.iter().map(|(_, _, values)| values.len()).max().unwrap();
    for repeat in 0..repeats {
        for (lr, width, values) in settings {
            let Some(value) = values.get(repeat) else { continue };
            let columns = "run,status,devices_used,steps,train_s,best_value,best_epoch";
            let summary = format!("{columns}\n{trial},finished,cpu,100,0.5,{value},7\n");
            runs.write(&format!("{name}/S/{trial:03}/summary.csv"), &summary);
            let spec = format!("seed = {repeat}\n[optimizer.sgd]\nlr = {lr}\n[model]\nwidth = {width}\n");
            runs.write(&format!("{name}/S/{trial:03}/spec.toml"), &spec);
            rows += &format!("{trial},{lr},{width},{repeat},finished,{trial:03},\n");
            trial += 1;
        }
    }
    runs.write(&format!("{name}/S/sweep.csv"), &rows);
}

const BEST: [f64; 6] = [0.060, 0.062, 0.058, 0.061, 0.064, 0.0615];

fn shifted(by: f64, spread: f64) -> Vec<f64> {
    let noise = [1.0, -1.0, 0.5, -0.5, 0.8, -0.7];
    BEST.iter().zip(noise).map(|(value, noise)| value + by + spread * noise).collect()
}

#[test]
fn the_best_setting_stands_first_with_what_tells_it_apart() {
    let runs = Runs::new();
    let (near, far, farther) = (shifted(0.0004, 0.002), shifted(0.02, 0.001), shifted(0.025, 0.001));
    learned(
        &runs,
        "a",
        &[("0.1", "32", &far), ("0.01", "32", &BEST), ("0.01", "8", &near), ("0.1", "8", &farther)],
    );
    insta::assert_snapshot!(runs.answer(&["a"], 120), @r"
    best: #9 lr 0.01 width 32, validation loss 0.0611 [0.0590, 0.0632], n 6;
      not distinguishable from #10 (paired difference 0.0004 [-0.0014, 0.0022], p 0.56)
      RUNS/a/S/009

      #    lr  width  n          validation loss                   vs best       p    time
      9  0.01     32  6  0.0611 [0.0590, 0.0632]                      best          500 ms
     10  0.01      8  6  0.0615 [0.0590, 0.0640]  0.0004 [-0.0014, 0.0022]    0.56  500 ms
      8   0.1     32  6  0.0811 [0.0790, 0.0832]   0.0200 [0.0191, 0.0209]  <0.001  500 ms
     11   0.1      8  6  0.0861 [0.0840, 0.0882]   0.0250 [0.0241, 0.0259]  <0.001  500 ms
      means and paired differences over n seeds [95 %, Student]; p by Holm, 6 pairs
      Student's intervals assume normally distributed values

    which axis matters: shares of the variance, means by value
      lr        94.7 %  0.01: 0.06130, 0.1: 0.08360
      width     1.41 %  32: 0.07109, 8: 0.07381
      together  0.99 %  beyond each alone
      seeds     2.89 %
    ");
    // A narrow terminal drops the columns next to the metric.
    let narrow = runs.answer(&["a"], 80);
    let table = narrow.split("\n\n").nth(1).unwrap();
    assert!(table.lines().all(|line| line.chars().count() <= 81), "{narrow}");
}

#[test]
fn one_run_of_each_cannot_tell() {
    let runs = Runs::new();
    learned(&runs, "a", &[("0.1", "32", &[0.2]), ("0.01", "32", &[0.1]), ("0.01", "8", &[0.3])]);
    insta::assert_snapshot!(runs.answer(&["a"], 120), @r"
    best: #1 lr 0.01 width 32, validation loss 0.1000;
      one seed each cannot tell whether that is more than luck (`sweep.repeats=5` can)
      RUNS/a/S/001

     #    lr  width  validation loss  vs best    time
     1  0.01     32           0.1000     best  500 ms
     0   0.1     32           0.2000  +0.1000  500 ms
     2  0.01      8           0.3000  +0.2000  500 ms

    which axis matters is not known: 3 settings are too few for the values of 2 axes
    ");
}

/// Unfinished runs are not ranked, but a killed run shows its best value; other data is another task.
#[test]
fn what_has_no_place_is_named() {
    let runs = Runs::new();
    runs.run("linreg/a", &FACTS);
    runs.run("linreg/b", &Facts { epochs: 4, ..FACTS });
    runs.run("linreg/c", &Facts { epochs: 5, status: "diverged", ..FACTS });
    runs.run("linreg/d", &Facts { epochs: 6, ..FACTS });
    std::fs::remove_file(runs.path("linreg/d/summary.csv")).unwrap();
    let environment = FACTS.environment() + "[data]\ndigest = \"d1\"\n";
    runs.write("linreg/d/environment.toml", &environment);
    runs.run("linreg/e", &Facts { digest: "other", ..FACTS });
    insta::assert_snapshot!(runs.answer(&["linreg"], 120), @r"
    2 tasks, whose losses are not comparable: the data differ (runs 1 to 4; run 5)

    linreg
    best: #1 max_epochs 3, validation loss 0.5000;
      one seed each cannot tell whether that is more than luck (`sweep.repeats=5` can)
      RUNS/linreg/a

     #  max_epochs  validation loss  vs best     time  steps/s
     1           3           0.5000     best  3.00 ms     1000
     2           4           0.5000        0  3.00 ms     1000
      not ranked: 1 diverged (#3); 1 unfinished (#4, best so far 0.5000)

    linreg
    best: #5, validation loss 0.5000
      RUNS/linreg/e

     #  validation loss     time  steps/s
     5           0.5000  3.00 ms     1000
    ");
}

/// Two sweeps are matched by their common axes and by seed. A gate fails only if the difference is certain.
#[test]
fn sweeps_are_held_against_each_other() {
    let runs = Runs::new();
    let (near, far) = (shifted(0.0004, 0.002), shifted(0.02, 0.001));
    learned(&runs, "a", &[("0.1", "32", &BEST), ("0.01", "32", &BEST), ("0.01", "8", &BEST)]);
    learned(&runs, "b", &[("0.1", "32", &far), ("0.01", "32", &near), ("0.5", "32", &near)]);
    let place = Sandbox::new("");
    let [a, b] = ["a", "b"].map(|name| runs.named(name));
    let ran = |more: &[&str]| place.runner(&[&["compare"], more].concat());
    insta::assert_snapshot!(runs.masked(&ran(&[&a, &b]).stdout), @r"
    2 shared settings, validation loss: second better in 0, worse in 1, unclear in 1
      first   RUNS/a/S
              best #6 lr 0.1 width 32, 0.0611 [0.0590, 0.0632]; not shared: 1 setting (#8)
      second  RUNS/b/S
              best #7 lr 0.01, 0.0615 [0.0590, 0.0640]; not shared: 1 setting (#8)

       lr  width  n                    first                   second                difference       p
     0.01     32  6  0.0611 [0.0590, 0.0632]  0.0615 [0.0590, 0.0640]  0.0004 [-0.0014, 0.0022]    0.56
      0.1     32  6  0.0611 [0.0590, 0.0632]  0.0811 [0.0790, 0.0832]   0.0200 [0.0191, 0.0209]  <0.001
      differences of means, paired by seed [95 %, Student]; p by Holm
    ");
    let gate = |condition: &str, paths: &[&str]| {
        let ended = ran(&[paths, &["--fail-if", condition]].concat());
        let is_undecided = ended.stdout.contains("\nundecided");
        assert_eq!(
            ended.stderr.contains("warning: too few runs to decide 1 setting\n"),
            is_undecided,
            "{ended:?}"
        );
        (ended.stdout, ended.code)
    };
    let (text, code) = gate("mean(validation.loss) > 1.05 * baseline", &[&a, &b]);
    insta::assert_snapshot!(text, @r"
    fail if mean(validation.loss) > 1.05 * baseline
      lr 0.01 width 32: 0.06152 of n 6 against 0.06414 = 1.05 * 0.06108 of n 6; difference -0.0026 [-0.0048, -0.0004]: passes
      lr 0.1 width 32: 0.08110 of n 6 against 0.06414 = 1.05 * 0.06108 of n 6; difference 0.0170 [0.0158, 0.0181]: fails
    failed: the intervals of 2 settings cover 97.5 % each, 95 % together
    ");
    assert_eq!(code, Some(1));
    let (text, code) = gate("mean(validation.loss) > 1.05 * baseline", &[&a, &b, "--by", "width"]);
    insta::assert_snapshot!(text, @"
    fail if mean(validation.loss) > 1.05 * baseline
      width 32: 0.06804 of n 6 against 0.06414 = 1.05 * 0.06108 of n 6; difference 0.0039 [0.0024, 0.0054]; means over 3 combinations of the other axes against 2, which may decide it: fails
    failed
    ");
    assert_eq!(code, Some(1));
    // Intervals of two medians that cover 97.5 % each need seven runs; if the runs form one setting, six are
    // enough.
    let condition = "median(validation.loss) > 1.05 * baseline";
    let (text, code) = gate(condition, &[&a, &b]);
    assert!(text.contains("take 7 or more of each") && code == Some(0), "{text}");
    assert_eq!(gate(condition, &[&a, &b, "--where", "lr = 0.1"]).1, Some(1));
    assert_eq!(gate("median(validation.loss) > 2 * baseline", &[&b, "--baseline", &a]).1, Some(0));
    assert_eq!(gate("median(validation.loss) > 0.05", &[&a, "--where", "lr = 0.1"]).1, Some(1));
    let few = Runs::new();
    learned(&few, "a", &[("0.1", "32", &[0.1, 0.2])]);
    let (text, code) = gate("median(validation.loss) > 0.05", &[&few.named("a")]);
    assert!(text.contains("too few runs for an interval of the median: take 6 or more of each"), "{text}");
    assert_eq!(code, Some(0));
    // A setting whose runs all fail from now on.
    learned(&runs, "c", &[("0.1", "32", &far), ("0.01", "32", &near)]);
    let c = runs.named("c");
    let table = Path::new(&c).join("S/sweep.csv");
    let rows = fs::read_to_string(&table).unwrap();
    let broken = rows.split_inclusive('\n').map(|row| {
        if row.contains(",0.1,") { row.replace(",finished,", ",failed,") } else { row.to_owned() }
    });
    fs::write(&table, broken.collect::<String>()).unwrap();
    let (text, code) = gate("mean(validation.loss) > 1.05 * baseline", &[&a, &c]);
    assert!(text.contains("\n  lr 0.1 width 32: no run of it finished: fails\nfailed\n"), "{text}");
    assert_eq!(code, Some(1));
    let ended = ran(&[&a, "--fail-if", "mean(validation.loss) > nan"]);
    assert!(ended.stderr.contains("expected a number, found `nan`"), "{ended:?}");
    let ended = ran(&[&a, "--fail-if", "mean(validation.loss) > baseline"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("needs a baseline"), "{}", ended.stderr);
}

/// What the differences are is said of each: those of settings without shared seeds are not paired.
#[test]
fn partly_shared_seeds_pair_only_their_settings() {
    let runs = Runs::new();
    let far = shifted(0.02, 0.001);
    learned(&runs, "a", &[("0.1", "32", &BEST), ("0.01", "32", &BEST)]);
    learned(&runs, "b", &[("0.1", "32", &far), ("0.01", "32", &far)]);
    let [a, b] = ["a", "b"].map(|name| runs.named(name));
    let other_seeds = |lr: &str| {
        for trial in 0..12 {
            let path = format!("b/S/{trial:03}/spec.toml");
            let spec = fs::read_to_string(runs.path(&path)).unwrap();
            if spec.contains(&format!("lr = {lr}\n")) {
                runs.write(&path, &spec.replace("seed = ", "seed = 1"));
            }
        }
    };
    let said = || {
        let text = Sandbox::new("").runner(&["compare", &a, &b]).stdout;
        text.lines().last().unwrap().trim().to_owned()
    };
    assert_eq!(said(), "differences of means, paired by seed [95 %, Student]; p by Holm");
    other_seeds("0.1");
    let words = "differences of means, paired by seed where seeds are shared [95 %, Student]; p by Holm";
    assert_eq!(said(), words);
    other_seeds("0.01");
    assert_eq!(said(), "differences of means, unpaired [95 %, Student]; p by Holm");
}

/// A single value has no spread, so there is no p-value, no interval and no gate.
#[test]
fn one_run_each_has_no_interval() {
    let runs = Runs::new();
    learned(&runs, "a", &[("0.1", "32", &[0.2]), ("0.01", "32", &[0.1])]);
    learned(&runs, "b", &[("0.1", "32", &[0.3]), ("0.01", "32", &[0.1])]);
    let [a, b] = ["a", "b"].map(|name| runs.named(name));
    let ran = |more: &[&str]| Sandbox::new("").runner(&[&["compare"], more].concat());
    insta::assert_snapshot!(runs.masked(&ran(&[&a, &b]).stdout), @r"
    2 shared settings, validation loss: second better in 0, worse in 0, unclear in 2
      first   RUNS/a/S
              best #1 lr 0.01, 0.1000
      second  RUNS/b/S
              best #1 lr 0.01, 0.1000

       lr  width  n   first  second  difference
     0.01     32  1  0.1000  0.1000           0
      0.1     32  1  0.2000  0.3000      0.1000
      one run each: no interval
    ");
    let ended = ran(&[&a, &b, "--fail-if", "mean(validation.loss) > 1.1 * baseline"]);
    insta::assert_snapshot!(ended.stdout + &ended.stderr, @r"
    fail if mean(validation.loss) > 1.1 * baseline
      lr 0.01 width 32: 0.1000 of n 1 against 0.1100 = 1.1 * 0.1000 of n 1; one run each: no interval: passes
      lr 0.1 width 32: 0.3000 of n 1 against 0.2200 = 1.1 * 0.2000 of n 1; one run each: no interval: undecided
    undecided
    warning: too few runs to decide 1 setting
    ");
    assert_eq!(ended.code, Some(0));
}

/// A stopped trial is not ranked: its value at the end is unknown. Here one was better at its best epoch than
/// all trials that continued.
#[test]
fn stopped_trials_have_a_place_of_their_own() {
    let runs = Runs::new();
    learned(&runs, "a", &[("0.1", "32", &[0.0615]), ("0.01", "32", &[0.0589]), ("0.01", "8", &[0.07])]);
    let stop = |path: &str, from: &str| {
        let text = fs::read_to_string(runs.path(path)).unwrap();
        let (before, after) = text.split_at(text.find(from).unwrap());
        runs.write(path, &(before.to_owned() + &after.replace("finished", "stopped")));
    };
    stop("a/S/sweep.csv", "\n1,");
    ["001", "002"].iter().for_each(|trial| stop(&format!("a/S/{trial}/summary.csv"), "run,"));
    insta::assert_snapshot!(runs.answer(&["a"], 120), @r"
    best: #0 lr 0.1 width 32, validation loss 0.06150
      RUNS/a/S/000
      stopped #1 was better at its best epoch: 0.05890

     #   lr  width  validation loss    time
     0  0.1     32          0.06150  500 ms
      not ranked: 2 stopped (#1, 2, best so far 0.05890 of #1)
    ");
    let place = Sandbox::new("");
    let ran = |more: &[&str]| {
        place.runner(&[&["compare", &*runs.named("a"), "--where", "status = stopped"], more].concat())
    };
    insta::assert_snapshot!(runs.masked(&ran(&[]).stdout), @r"
    best: #1 width 32, validation loss 0.05890;
      one seed each cannot tell whether that is more than luck (`sweep.repeats=5` can)
      RUNS/a/S/001

     #  width  validation loss   vs best    time
     1     32          0.05890      best  500 ms
     2      8          0.07000  +0.01110  500 ms
      none of them finished: their sweep stopped them, some sooner than others
    ");
    let ended = ran(&["--fail-if", "mean(validation.loss) > 0.05"]);
    let expected = "error: none of 2 runs has finished, so that nothing can be held against a bound\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), expected));
}

/// Checkpoints and flush intervals do not change what is learned, so they do not make settings.
#[test]
fn what_is_recorded_makes_no_other_setting() {
    let spec = "data.synthetic_regression = { weights = [1.0], train_rows = 64, validation_rows = 16 }\n\
                model.layers = [{ linear = { out_features = 1 } }]\noptimizer.sgd.lr = 0.1\ntrainer.max_epochs = 2\n";
    let place = Sandbox::new(spec);
    for more in
        [&["seed=0"][..], &["seed=1", "checkpoint.every_epochs=1"], &["seed=2", "logging.flush_every=5"]]
    {
        let arguments = [&["run", "spec.toml", "-q", "--runs-dir", "together"], more].concat();
        assert_eq!(place.runner(&arguments).code, Some(0));
    }
    let compared = place.runner(&["compare", "together"]).stdout;
    assert!(compared.lines().next().is_some_and(|best| best.contains(", n 3")), "{compared}");
    assert!(!compared.contains("every"), "{compared}");
}

#[test]
fn groups_are_exported_and_pivoted() {
    let runs = Runs::new();
    let (near, far) = (shifted(0.0004, 0.002), shifted(0.02, 0.001));
    learned(&runs, "a", &[("0.1", "32", &far), ("0.01", "32", &BEST), ("0.01", "8", &near)]);
    let place = Sandbox::new("");
    let ran = |more: &[&str]| place.runner(&[&["compare", &runs.named("a")], more].concat());
    let pivoted = ran(&["--pivot", "lr,width"]).stdout;
    insta::assert_snapshot!(pivoted.split_once("\n\n").unwrap().1, @r"
      lr                  width 8                 width 32
    0.01  0.0615 [0.0590, 0.0640]  0.0611 [0.0590, 0.0632]
     0.1                           0.0811 [0.0790, 0.0832]
    ");
    let text = ran(&["--by", "lr", "--export", "csv"]).stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "optimizer.sgd.lr,runs,n,value,low,high,difference,difference_low,difference_high,p"
    );
    assert!(lines[1].starts_with("0.01,12,6,0.06129") && lines[2].starts_with("0.1,6,6,0.0810"), "{text}");
    insta::assert_snapshot!(ran(&["--where", "repeat = 0 and width = 32", "--export", "latex"]).stdout, @r"
    \begin{tabular}{rrrrllrrr}
    \toprule
    run & optimizer.sgd.lr & model.width & repeat & status & devices & steps & best validation loss & train time \\
    \midrule
    1 & 0.1 & 32 & 0 & finished & cpu & 100 & 0.08100 in epoch 7 & 500 ms \\
    2 & 0.01 & 32 & 0 & finished & cpu & 100 & 0.06000 in epoch 7 & 500 ms \\
    \bottomrule
    \end{tabular}
    ");
    // An export for pasting has the same table as the screen.
    insta::assert_snapshot!(ran(&["--pivot", "lr,width", "--export", "md"]).stdout, @r"
    | lr | width 8 | width 32 |
    | ---: | ---: | ---: |
    | 0.01 | 0.0615 [0.0590, 0.0640] | 0.0611 [0.0590, 0.0632] |
    | 0.1 |  | 0.0811 [0.0790, 0.0832] |
    ");
    let grouped = ran(&["--by", "width", "--where", "lr = 0.01", "--export", "md"]).stdout;
    assert!(grouped.starts_with("| # | width | n | validation loss | vs best | p |\n| ---:"), "{grouped}");
    assert!(grouped.contains(" | 32 | 6 | 0.0611 [0.0590, 0.0632] | best |"), "{grouped}");
    let refused = ran(&["--pivot", "lr"]);
    assert!(refused.stderr.starts_with("error: `--pivot` takes two keys"), "{}", refused.stderr);
}

/// Eight widths with two seeds give two values for a learning rate, not sixteen. By hand: 0.0082 and 0.0147,
/// each the mean over the widths, have the mean 0.01145 with a half-width of 12.706 * 0.00325.
#[test]
fn folded_axes_are_no_seeds() {
    let runs = Runs::new();
    let widths = ["1", "2", "4", "8", "16", "32", "64", "128"];
    let values: Vec<[Vec<f64>; 2]> = (0..8)
        .map(|i| {
            let own = [0.4 + 0.01 * f64::from(i), 0.41 + 0.01 * f64::from(i)];
            let spread = 0.0005 * (f64::from(i) - 3.5);
            [own.to_vec(), vec![own[0] + 0.0082 + spread, own[1] + 0.0147 - spread]]
        })
        .collect();
    let settings: Vec<(&str, &str, &[f64])> = widths
        .iter()
        .zip(&values)
        .flat_map(|(width, [near, far])| [("0.1", *width, &near[..]), ("0.01", *width, &far[..])])
        .collect();
    learned(&runs, "a", &settings);
    let question = Question { by: vec!["lr".to_owned()], ..Question::default() };
    let answer = |name: &str| runs.masked(&runs.read(&[name]).answer(&question, 120).unwrap());
    insta::assert_snapshot!(answer("a"), @r"
    best: #0 lr 0.1, validation loss 0.44 [0.38, 0.50], n 2;
      not distinguishable from #1 (paired difference 0.011 [-0.030, 0.053], p 0.18)
      RUNS/a/S/000

     #    lr  n    validation loss                vs best     p    time
     0   0.1  2  0.44 [0.38, 0.50]                   best        500 ms
     1  0.01  2  0.45 [0.35, 0.56]  0.011 [-0.030, 0.053]  0.18  500 ms
      means and paired differences over n seeds [95 %, Student]; p by Holm, 1 pair
      Student's intervals assume normally distributed values
    ");
    // A seed with a missing width is left out.
    let lacking: Vec<(&str, &str, &[f64])> =
        settings.iter().enumerate().map(|(i, s)| (s.0, s.1, if i == 3 { &s.2[..1] } else { s.2 })).collect();
    learned(&runs, "b", &lacking);
    insta::assert_snapshot!(answer("b"), @r"
    best: #0 lr 0.1, validation loss 0.44 [0.38, 0.50], n 2;
      one shared seed cannot tell it from #1 (paired difference +0.008200)
      RUNS/b/S/000

     #    lr  n    validation loss    vs best    time
     0   0.1  2  0.44 [0.38, 0.50]       best  500 ms
     1  0.01  1             0.4432  +0.008200  500 ms
      means over n seeds [95 %, Student]
      Student's intervals assume normally distributed values
      fewer seeds, ranked last: #1
      incomplete, seeds that lack a combination of the folded axes do not count: #1
    ");
}

/// A key that is the same in all shown rows has no column, but a place in a line.
#[test]
fn columns_tell_rows_apart() {
    let runs = Runs::new();
    learned(&runs, "a", &[("0.1", "32", &[0.2]), ("0.01", "32", &[0.1]), ("0.01", "8", &[0.3])]);
    let shown = |more: &[&str]| {
        let ended = Sandbox::new("").runner(&[&["compare", &*runs.named("a")], more].concat());
        ended.stdout.split("\n\n").nth(1).unwrap().to_owned()
    };
    insta::assert_snapshot!(shown(&["--top", "2"]), @r"
     #    lr  validation loss  vs best    time
     1  0.01           0.1000     best  500 ms
     0   0.1           0.2000  +0.1000  500 ms
      in all rows: width 32
      1 more setting: `--top 3` shows all
    ");
    let all = shown(&[]);
    assert!(all.starts_with(" #    lr  width  ") && !all.contains("in all rows"), "{all}");
    // What was asked for is shown.
    let asked = shown(&["--by", "lr,width", "--top", "2"]);
    assert!(asked.starts_with(" #    lr  width  "), "{asked}");
}

/// The setting with one seed has the lower mean, but on that seed the other setting is better by 0.01867.
#[test]
fn fewer_seeds_are_not_the_best() {
    let runs = Runs::new();
    learned(&runs, "a", &[("0.1", "32", &[0.4441]), ("0.01", "32", &[0.42543, 0.4800])]);
    insta::assert_snapshot!(runs.answer(&["a"], 120), @r"
    best: #1 lr 0.01, validation loss 0.45 [0.11, 0.80], n 2;
      one shared seed cannot tell it from #0 (paired difference +0.01867); lower, but of one seed: #0 0.4441
      RUNS/a/S/001

     #    lr  n    validation loss   vs best    time
     1  0.01  2  0.45 [0.11, 0.80]      best  500 ms
     0   0.1  1             0.4441  +0.01867  500 ms
      means over n seeds [95 %, Student]
      Student's intervals assume normally distributed values
      fewer seeds, ranked last: #0
    ");
}

/// Filtering by results leaves only a selected part of a setting, which is reported; filtering by configured
/// keys does not.
#[test]
fn a_filter_by_results_is_warned_of() {
    let runs = Runs::new();
    learned(&runs, "a", &[("0.1", "32", &[0.2, 0.3, 0.25]), ("0.01", "32", &[0.1, 0.11, 0.12])]);
    let filtered = |filter: &str| {
        let ended = Sandbox::new("").runner(&["compare", &runs.named("a"), "--where", filter]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stderr
    };
    assert_eq!(
        filtered("validation.loss < 0.26"),
        "warning: the filter by `validation.loss` takes runs out of 1 setting by their results: what is left there is \
         no fair sample\n"
    );
    assert_eq!(filtered("validation.loss < 0.15"), "");
    assert_eq!(filtered("repeat < 2"), "");
}

/// `--sort` accepts the titles of the table.
#[test]
fn a_table_is_ordered_by_its_titles() {
    let runs = Runs::new();
    learned(
        &runs,
        "a",
        &[("0.1", "32", &shifted(0.02, 0.001)), ("0.01", "32", &BEST), ("0.01", "8", &BEST[..5])],
    );
    let order = |sort: &str| -> Vec<String> {
        let ended = Sandbox::new("").runner(&["compare", &runs.named("a"), "--sort", sort]);
        assert_eq!(ended.code, Some(0), "{sort}: {ended:?}");
        let rows = ended.stdout.split("\n\n").nth(1).unwrap().lines().skip(1).take(3);
        rows.map(|row| row.split_whitespace().skip(1).take(2).collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(order("-validation loss"), ["0.1 32", "0.01 32", "0.01 8"]);
    assert_eq!(order("n")[0], "0.01 8");
    assert_eq!(order("p")[0], "0.1 32");
    assert_eq!(order("-vs best")[0], "0.1 32");
    assert_eq!(order("time").len(), 3);
    let ended = Sandbox::new("").runner(&["compare", &runs.named("a"), "--top", "0"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
}

/// A trial that did not run has no spec, so it must not make keys appear to differ.
#[test]
fn keys_are_those_of_the_task() {
    let runs = Runs::new();
    learned(&runs, "a", &[("0.1", "32", &[0.2]), ("0.01", "32", &[0.1])]);
    let table = std::fs::read_to_string(runs.path("a/S/sweep.csv")).unwrap();
    runs.write("a/S/sweep.csv", &(table + "2,0.001,32,0,skipped,,no device\n"));
    runs.run("linreg/b", &FACTS);
    for (run, target) in [("a/S/000", "mass"), ("a/S/001", "mass"), ("linreg/b", "length")] {
        let spec = std::fs::read_to_string(runs.path(&format!("{run}/spec.toml"))).unwrap();
        runs.write(&format!("{run}/spec.toml"), &format!("{spec}\n[data.csv]\ntarget = \"{target}\"\n"));
    }
    let text = runs.answer(&["a", "linreg"], 120);
    assert!(text.contains("best: #2 lr 0.01, validation loss 0.1000;"), "{text}");
}
