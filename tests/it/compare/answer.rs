//! The answer of `compare`: which setting is best, whether that is certain, and the table below.

use std::fs;

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

pub(super) const BEST: [f64; 6] = [0.060, 0.062, 0.058, 0.061, 0.064, 0.0615];

pub(super) fn shifted(by: f64, spread: f64) -> Vec<f64> {
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

      #    lr  width  n          validation loss                   vs best  p-value    time
      9  0.01     32  6  0.0611 [0.0590, 0.0632]                      best           500 ms
     10  0.01      8  6  0.0615 [0.0590, 0.0640]  0.0004 [-0.0014, 0.0022]     0.56  500 ms
      8   0.1     32  6  0.0811 [0.0790, 0.0832]   0.0200 [0.0191, 0.0209]   <0.001  500 ms
     11   0.1      8  6  0.0861 [0.0840, 0.0882]   0.0250 [0.0241, 0.0259]   <0.001  500 ms
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
    2 tasks, whose losses are not comparable: the data differ (#1 to 4; #5)

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
    let expected = "error: no run has finished, so that nothing can be held against a bound: 2 of 2 runs stopped (#1, 2)\n";
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

/// The setting with one seed has the lower mean, but on that seed the other setting is better by 0.01867.
#[test]
fn fewer_seeds_are_not_the_best() {
    let runs = Runs::new();
    learned(&runs, "a", &[("0.1", "32", &[0.4441]), ("0.01", "32", &[0.42543, 0.4800])]);
    insta::assert_snapshot!(runs.answer(&["a"], 120), @r"
    best: #1 lr 0.01, validation loss 0.4527 [0.1060, 0.7994], n 2;
      one shared seed cannot tell it from #0 (paired difference +0.01867)
      RUNS/a/S/001

     #    lr  n          validation loss   vs best    time
     1  0.01  2  0.4527 [0.1060, 0.7994]      best  500 ms
     0   0.1  1                   0.4441  +0.01867  500 ms
      means over n seeds [95 %, Student]
      Student's intervals assume normally distributed values
      fewer seeds, compared by those that both have: #0
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
    // By every name of a result.
    for name in ["best", "best_value", "best_validation_loss"] {
        assert!(
            filtered(&format!("{name} < 0.26"))
                .contains(&format!("the filter by `{name}` takes runs out of"))
        );
    }
    assert_eq!(filtered("validation.loss < 0.15"), "");
    assert_eq!(filtered("repeat < 2"), "");
}

/// One column has one number of decimals, whatever the widths of its intervals: rounded values stand in their order.
#[test]
fn ranked_values_look_ranked() {
    let runs = Runs::new();
    let narrow = [0.1405, 0.1404, 0.1406];
    learned(
        &runs,
        "a",
        &[("1", "8", &[0.12, 0.16, 0.1401]), ("2", "8", &narrow), ("3", "8", &[0.13, 0.15, 0.1417])],
    );
    insta::assert_snapshot!(runs.answer(&["a"], 120).split("\n\n").nth(1).unwrap(), @r"
    #  lr  n             validation loss                      vs best  p-value    time
    0   1  3  0.14003 [0.09035, 0.18972]                         best           500 ms
    4   2  3  0.14050 [0.14025, 0.14075]  0.00047 [-0.04934, 0.05027]     1.00  500 ms
    2   3  3  0.14057 [0.11561, 0.16553]  0.00053 [-0.02441, 0.02548]     1.00  500 ms
     means and paired differences over n seeds [95 %, Student]; p by Holm, 3 pairs
     Student's intervals assume normally distributed values
    ");
}
