//! Runs ranked by any logged metric, and by the one that they monitor.

use super::{FACTS, Runs};
use crate::process::Sandbox;

/// Runs that differ only in what they monitor; `mae` falls from 3 to `mae`, and the loss is 0.5.
fn run(runs: &Runs, name: &str, monitor: &str, [best, mae]: [&str; 2]) {
    runs.run(&format!("linreg/{name}"), &FACTS);
    let spec =
        FACTS.spec().replace("[logging]\n", "[logging]\nmetrics = [\"loss\", \"mae\", \"accuracy\"]\n");
    let spec = spec.replace("[trainer]\n", &format!("[trainer]\nmonitor = \"{monitor}\"\n"));
    runs.write(&format!("linreg/{name}/spec.toml"), &format!("{spec}[optimizer.sgd]\nlr = \"{name}\"\n"));
    let metrics = format!(
        "step,epoch,split,rows,loss,mae,accuracy,elapsed_s\n1,1,train,30,2.0,,0.5,0.1\n1,1,validation,9,0.5,3,0.5,0.1\n\
         2,2,train,30,2.0,,0.5,0.1\n3,2,train,10,2.0,,0.9,0.1\n3,2,validation,9,0.5,{mae},0.5,0.1\n"
    );
    runs.write(&format!("linreg/{name}/metrics.csv"), &metrics);
    let summary = FACTS.summary(name);
    runs.write(
        &format!("linreg/{name}/summary.csv"),
        &summary.replace(",0.5,1,1,d1,", &format!(",{best},2,3,d1,")),
    );
}

#[test]
fn runs_are_ranked_by_any_metric_that_they_logged() {
    let runs = Runs::new();
    run(&runs, "a", "validation.loss", ["0.5", "0.25"]);
    run(&runs, "b", "validation.loss", ["0.4", "0.125"]);
    let place = Sandbox::new("");
    let compare = |more: &[&str]| place.runner(&[&["compare", &runs.named("linreg")], more].concat());
    for (metric, best) in [
        ("mae", "best: #2 lr b, validation mae 0.1250;"),
        ("validation.mae", "best: #2 lr b, validation mae 0.1250;"),
        ("loss", "best: #2 lr b, validation loss 0.4000;"),
        ("train.accuracy", "best: #1 lr a, accuracy 60.0 %;"),
        ("steps", "lowest: #1 lr a, steps 3.000;"),
    ] {
        let ended = compare(&["--metric", metric]);
        assert!(ended.stdout.starts_with(best), "{metric}: {ended:?}");
    }
    let undirected = "\n  no value of steps is known to be better than others: the lowest is first\n";
    assert!(compare(&["--metric", "steps"]).stdout.contains(undirected));
    assert_eq!(compare(&["--where", "mae < 0.2", "-q"]).stdout, "1 run\n");
    let refused = compare(&["--metric", "maee"]);
    assert_eq!(refused.code, Some(2));
    insta::assert_snapshot!(refused.stderr, @r"
    error: no run has the metric `maee`
      = hint: did you mean `mae`? runs here have validation.loss, train.loss, validation.mae, train.accuracy, best_epoch, best_step, best_value, bytes_d2h, bytes_h2d, epoch_train_loss, epochs, final_train_loss, final_validation_loss, logging_s, logging_share, peak_device_bytes, peak_planned_bytes, peak_rss_bytes, samples_per_s, steps, steps_per_s, syncs, train_s, wall_s; `logging.metrics` adds more to later runs
    ");
    let refused = compare(&["--metric", "f1"]);
    insta::assert_snapshot!(refused.stderr, @r"
    error: no run has the metric `f1`
      = hint: runs here have validation.loss, train.loss, validation.mae, train.accuracy, best_epoch, best_step, best_value, bytes_d2h, bytes_h2d, epoch_train_loss, epochs, final_train_loss, final_validation_loss, logging_s, logging_share, peak_device_bytes, peak_planned_bytes, peak_rss_bytes, samples_per_s, steps, steps_per_s, syncs, train_s, wall_s; `logging.metrics` adds more to later runs
    ");
}

/// The weights that are kept are those of the best epoch: there `a` has a worse error than `b`, though it ends with a better one.
#[test]
fn a_metric_counts_at_the_best_epoch_of_another() {
    let runs = Runs::new();
    for (name, at_best, last) in [("a", "0.30", "0.10"), ("b", "0.20", "0.40")] {
        run(&runs, name, "validation.loss", ["0.4", last]);
        let metrics = format!(
            "step,epoch,split,rows,loss,mae,elapsed_s\n1,1,train,30,2.0,,0.1\n1,1,validation,9,0.4,{at_best},0.1\n\
             3,2,train,30,2.0,,0.2\n3,2,validation,9,0.5,{last},0.2\n"
        );
        runs.write(&format!("linreg/{name}/metrics.csv"), &metrics);
        let summary = FACTS.summary(name).replace(",0.5,1,1,d1,", ",0.4,1,1,d1,");
        runs.write(&format!("linreg/{name}/summary.csv"), &summary);
    }
    let place = Sandbox::new("");
    let compare = |more: &[&str]| {
        let ended = place.runner(&[&["compare", &runs.named("linreg")], more].concat());
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{more:?}");
        runs.masked(&ended.stdout)
    };
    insta::assert_snapshot!(compare(&["--metric", "mae"]), @r"
    best: #2 lr b, validation mae 0.2000; one seed each cannot tell whether that is more than luck (`sweep.repeats=5` can)
      RUNS/linreg/b

     #  lr  validation mae  vs best    loss     time  steps/s
     2   b          0.2000     best  0.4000  3.00 ms     1000
     1   a          0.3000  +0.1000  0.4000  3.00 ms     1000
      validation mae at each run's best `validation.loss`
    ");
    assert_eq!(compare(&["--where", "mae < 0.25", "-q"]), "1 run\n");
    // A run that does not know its best epoch counts with its last.
    let summary = FACTS.summary("a").replace(",0.5,1,1,d1,", ",,,,d1,");
    runs.write("linreg/a/summary.csv", &summary);
    let text = compare(&["--metric", "mae"]);
    assert!(text.starts_with("best: #1 lr a, validation mae 0.1000;"), "{text}");
    let words = "best `validation.loss`, of the last epoch where that is not known\n";
    assert!(text.contains(words), "{text}");
}

#[test]
fn runs_with_different_monitors_are_ranked_apart() {
    let runs = Runs::new();
    run(&runs, "a", "validation.loss", ["0.5", "0.25"]);
    run(&runs, "b", "validation.mae", ["0.125", "0.5"]);
    insta::assert_snapshot!(runs.answer(&["linreg"], 100), @r"
    runs are judged by different metrics: validation loss (#1), validation mae (#2); `--metric` ranks all by one

    linreg
    best: #1, validation loss 0.5000
      RUNS/linreg/a

     #  validation loss     time  steps/s
     1           0.5000  3.00 ms     1000

    linreg
    best: #2, validation mae 0.1250
      RUNS/linreg/b

     #  validation mae  last loss     time  steps/s
     2          0.1250     0.5000  3.00 ms     1000
    ");
    let place = Sandbox::new("");
    let shown = |words: &[&str]| {
        let ended = place.runner(words);
        runs.masked(&(ended.stdout + &ended.stderr)).trim_end().to_owned()
    };
    let linreg = runs.named("linreg");
    // The best epoch of one run is not compared with the last epoch of another.
    insta::assert_snapshot!(shown(&["compare", &linreg, "--metric", "mae"]), @r"
    best: #1 lr a monitor validation.loss, validation mae 0.2500;
      one seed each cannot tell whether that is more than luck (`sweep.repeats=5` can)
      RUNS/linreg/a

     #  lr          monitor  validation mae  vs best  last loss     time  steps/s
     1   a  validation.loss          0.2500     best     0.5000  3.00 ms     1000
     2   b   validation.mae          0.5000  +0.2500     0.5000  3.00 ms     1000
      validation mae of the last epoch: only some of the runs monitor it
    ");
    insta::assert_snapshot!(shown(&["show", &runs.named("linreg/b")]), @r"
    RUNS/linreg/b
      seed: 0
      started: 1000.0
      command: runner

     #                                      1
     status                          finished
     devices                              cpu
     steps                                  3
     train loss                         1.000
     last validation loss              0.5000
     best validation mae    0.1250 in epoch 2
     best epoch's accuracy             50.0 %
     best epoch's loss                 0.5000
     train time                       3.00 ms
     steps/s                             1000
     logging                           0.30 %
     h2d                                4 KiB
     d2h                                 12 B
    ");
    runs.write(
        "S/sweep.csv",
        "trial,trainer.monitor,status,folder,reason\n0,validation.loss,finished,../linreg/a,\n1,validation.mae,finished,../linreg/b,\n",
    );
    insta::assert_snapshot!(shown(&["list", &runs.named("S")]), @r"
    run                status      of
    RUNS/S  2 finished  several metrics
    ");
}

/// A run's best value is that of its monitored metric, and ranks by it. A best value is not compared with a
/// last one.
#[test]
fn best_values_are_of_what_is_monitored() {
    let runs = Runs::new();
    for (name, monitor, best) in [
        ("a", "validation.accuracy", "0.5"),
        ("b", "validation.accuracy", "0.75"),
        ("c", "validation.mae", "0.125"),
    ] {
        run(&runs, name, monitor, [best, "0.25"]);
    }
    let place = Sandbox::new("");
    let [a, b, c] = ["a", "b", "c"].map(|name| runs.named(&format!("linreg/{name}")));
    let ended = place.runner(&["compare", &a, &b, "--metric", "best_value"]);
    assert!(ended.stdout.starts_with("best: #2 lr b, validation accuracy 75.0 %;"), "{ended:?}");
    let ended = place.runner(&["compare", &a, &b, &c, "--metric", "best_value"]);
    insta::assert_snapshot!(ended.stderr, @r"
    error: `best_value` is of different metrics: validation.accuracy, validation.mae
      = hint: name one of them
    ");
    assert_eq!(ended.code, Some(2));
    // Both ended with an error of 0.25, but the best of `c` was lower.
    let ended =
        place.runner(&["compare", &c, "--baseline", &a, "--fail-if", "mean(validation.mae) < baseline"]);
    assert!(ended.stdout.contains("0.2500 of n 1 against 0.2500"), "{ended:?}");
}

/// Naming a split explicitly that is the default anyway changes nothing.
#[test]
fn a_default_that_is_written_out_is_no_other_task() {
    let runs = Runs::new();
    let splits = [
        ("a", "[data.csv]\nvalidation_fraction = 0.2\n"),
        (
            "b",
            "[data]\nsplit = { validation = 0.2, test = 0.0, stratify = false }\n[data.csv]\npath = \"/a.csv\"\n",
        ),
        (
            "c",
            "[data]\nsplit = { validation = 0.2, test = 0.0, stratify = false, shuffle = true, seed = 0 }\n[data.csv]\npath = \"/a.csv\"\n",
        ),
        (
            "d",
            "[data]\nsplit = { validation = 0.2, test = 0.1, stratify = false }\n[data.csv]\npath = \"/a.csv\"\n",
        ),
    ];
    for (name, split) in splits {
        runs.run(name, &FACTS);
        let split = split.replace("[data.csv]\nvalidation", "[data.csv]\npath = \"/a.csv\"\nvalidation");
        runs.write(&format!("{name}/spec.toml"), &(FACTS.spec() + &split));
    }
    let apart = |inner: &[&str]| runs.read(inner).comparability(None).contains("2 tasks");
    assert_eq!([apart(&["a", "b", "c"]), apart(&["a", "d"])], [false, true]);
    let words = runs.read(&["a", "d"]).comparability(None);
    assert!(
        words.contains(": data.csv.validation_fraction, data.split.test, data.split.validation differ ("),
        "{words}"
    );
}
