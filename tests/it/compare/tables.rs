//! Full texts of comparisons.

use runner::report::sweep_end;

use super::{FACTS, Facts, Runs, sweep};

/// A diverged run has no meaningful speed and cannot be a baseline. Mean losses are distinguished from losses
/// of single steps.
#[test]
fn a_run_that_diverged_and_one_that_logs_means() {
    let runs = Runs::new();
    let diverged = Facts { status: "diverged", losses: [4.0, 9.0, 99.0], steps_per_s: "9000.0", ..FACTS };
    runs.run("linreg/a", &diverged);
    runs.run("linreg/b", &FACTS);
    runs.run(
        "linreg/c",
        &Facts { policy: "per_epoch", losses: [4.0, 2.0, 1.5], steps_per_s: "2000.0", ..FACTS },
    );
    let table = runs.table(&["linreg"], 220);
    insta::assert_snapshot!(table.split("\nruns\n").next().unwrap(), @r"
    3 runs, comparable: same processor, instruction set, threads and version

     #  logging.policy  status    devices  steps  train loss  last validation loss  best validation loss  train time  steps/s  rows/s vs #2  logging    h2d   d2h
     1        buffered  diverged  cpu          3       99.00                0.5000     0.5000 in epoch 1     3.00 ms     9000                 0.30 %  4 KiB  12 B
     2        buffered  finished  cpu          3       1.000                0.5000     0.5000 in epoch 1     3.00 ms     1000         1.00x   0.30 %  4 KiB  12 B
     3       per_epoch  finished  cpu          3       1.500                0.5000     0.5000 in epoch 1     3.00 ms     2000         2.00x   0.30 %  4 KiB  12 B
    ");
}

/// Repeats that were started one by one are identified by their run numbers and the differences of their
/// specs.
#[test]
fn repeats_of_single_runs_have_keys() {
    let runs = Runs::new();
    for (name, epochs, steps_per_s) in
        [("a", 3, "1000.0"), ("b", 4, "1000.0"), ("c", 3, "1200.0"), ("d", 3, "1100.0"), ("e", 4, "900.0")]
    {
        runs.run(&format!("linreg/{name}"), &Facts { epochs, steps_per_s, ..FACTS });
    }
    let table = runs.table(&["linreg"], 160);
    let repeats = table.split("repeats taken together\n\n").nth(1).unwrap().split("\nnoise").next().unwrap();
    insta::assert_snapshot!(repeats, @r"
      of run  trainer.max_epochs  runs  train time  ≥ 50.0 % interval  steps/s  ≥ 50.0 % interval  rows/s vs #1
    #1, 3, 4                   3     3     3.00 ms    3.00 to 3.00 ms     1100       1000 to 1200         1.00x
       #2, 5                   4     2     3.00 ms    3.00 to 3.00 ms    950.0      900.0 to 1000         0.86x

      of run  trainer.max_epochs  runs  train loss  validation loss
    #1, 3, 4                   3     3       1.000           0.5000
       #2, 5                   4     2       1.000           0.5000
    ");
}

#[test]
fn two_runs_of_the_same_bits() {
    let runs = Runs::new();
    runs.run("linreg/a", &FACTS);
    runs.run("linreg/b", &Facts { steps_per_s: "2000.0", ..FACTS });
    insta::assert_snapshot!(runs.table(&["linreg/a", "linreg/b"], 160), @r"
    2 runs, comparable: same processor, instruction set, threads and version

     #  status    devices  steps  train loss  last validation loss  best validation loss  train time  steps/s  rows/s vs #1  logging    h2d   d2h
     1  finished  cpu          3       1.000                0.5000     0.5000 in epoch 1     3.00 ms     1000         1.00x   0.30 %  4 KiB  12 B
     2  finished  cpu          3       1.000                0.5000     0.5000 in epoch 1     3.00 ms     2000         2.00x   0.30 %  4 KiB  12 B

    repeats taken together

     of run  runs  train time  50.0 % interval  steps/s  50.0 % interval
      #1, 2     2     3.00 ms  3.00 to 3.00 ms     1500     1000 to 2000

     of run  runs  train loss  validation loss
      #1, 2     2       1.000           0.5000

    noise
      noise:  with 2 repeats the interval covers the true median 50.0 % of the time; use 6 or more for 95 %

    runs
      #1  RUNS/linreg/a
      #2  RUNS/linreg/b

    train loss against #1
      #2  the same bits over 3 steps in common
    ");
}

#[test]
fn runs_that_differ_in_everything() {
    let runs = Runs::new();
    runs.run("linreg/a", &FACTS);
    let other = Facts { epochs: 4, losses: [4.0, 2.5, 1.1], cpu: "B", steps_per_s: "500.0", ..FACTS };
    runs.run("linreg/b", &Facts { commit: "dead", ..other });
    runs.run("linreg/c", &Facts { num_gpus: 2, devices: "virtual:0;virtual:1", ..FACTS });
    insta::assert_snapshot!(runs.table(&["linreg"], 200), @r"
    3 runs, whose times say nothing of each other: cpu.model differs; virtual devices share the host's processor and memory: their times say nothing of GPUs

     #  devices.num_gpus  trainer.max_epochs  status    devices              steps  train loss  last validation loss  best validation loss  train time  steps/s  logging    h2d   d2h
     1                 0                   3  finished  cpu                      3       1.000                0.5000     0.5000 in epoch 1     3.00 ms     1000   0.30 %  4 KiB  12 B
     2                 0                   4  finished  cpu                      3       1.100                0.5000     0.5000 in epoch 1     3.00 ms    500.0   0.30 %  4 KiB  12 B
     3                 2                   3  finished  virtual:0 virtual:1      3       1.000                0.5000     0.5000 in epoch 1     3.00 ms     1000   0.30 %  4 KiB  12 B

    runs
      #1  RUNS/linreg/a
      #2  RUNS/linreg/b
      #3  RUNS/linreg/c

    train loss against #1
      #2  parts at step 2: 2 and 2.5, 20.0 % apart; 3 steps in common
      #3  the same bits over 3 steps in common

    differences of spec
      devices.num_gpus    0 (#1, 2)  2 (#3)
      trainer.max_epochs  3 (#1, 3)  4 (#2)

    differences of environment
      cpu.model   A (#1, 3)  B (#2)
      git.commit  c0ffee (#1, 3)  dead (#2)
    ");
}

#[test]
fn a_narrow_terminal_turns_the_table() {
    let runs = Runs::new();
    runs.run("linreg/a", &FACTS);
    runs.run("linreg/b", &Facts { epochs: 4, ..FACTS });
    let table = runs.table(&["linreg/*"], 80);
    insta::assert_snapshot!(table.split("\nruns\n").next().unwrap(), @r"
    2 runs, comparable: same processor, instruction set, threads and version

     #                                     1                  2
     trainer.max_epochs                    3                  4
     status                         finished           finished
     devices                             cpu                cpu
     steps                                 3                  3
     train loss                        1.000              1.000
     last validation loss             0.5000             0.5000
     best validation loss  0.5000 in epoch 1  0.5000 in epoch 1
     train time                      3.00 ms            3.00 ms
     steps/s                            1000               1000
     rows/s vs #1                      1.00x              1.00x
     logging                          0.30 %             0.30 %
     h2d                               4 KiB              4 KiB
     d2h                                12 B               12 B
    ");
}

#[test]
fn a_killed_sweep_shows_every_trial() {
    let runs = Runs::new();
    sweep(&runs);
    insta::assert_snapshot!(runs.table(&["linreg/S"], 200), @r"
    3 runs (1 more trial is the same as one of them); no environment.toml in #3

     #  devices.num_gpus  status      devices      steps  train loss  last validation loss  best validation loss  train time  steps/s  rows/s vs #0  logging    h2d   d2h
     0                 0  finished    cpu              3       1.000                0.5000     0.5000 in epoch 1     3.00 ms     1000         1.00x   0.30 %  4 KiB  12 B
     1                 1  same as #0
     2                 2  finished    gpu:0 gpu:1      3       1.000                0.5000     0.5000 in epoch 1     3.00 ms     2500         2.50x   0.30 %  4 KiB  12 B
     3                 3  unfinished                   1       4.000

    runs
      #0  RUNS/linreg/S/000-devices.num_gpus=0
      #1  RUNS/linreg/S trial 1; not run: the same run as trial 0
      #2  RUNS/linreg/S/002-devices.num_gpus=2
      #3  RUNS/linreg/S/003-devices.num_gpus=3; unfinished: killed: no process is at work on it; the last line of its metrics.csv is torn and was left out

    train loss against #0
      #2  parts at step 2: 2 and 2.0001, 5.0e-5 of their size apart; 3 steps in common
      #3  the same bits over 1 step in common

    differences of spec
      devices.num_gpus  0 (#0)  2 (#2)  3 (#3)
    ");
}

#[test]
fn the_end_of_a_sweep() {
    let runs = Runs::new();
    sweep(&runs);
    insta::assert_snapshot!(runs.masked(&sweep_end(&runs.path("linreg/S"), None, 160).unwrap()), @r"
    linreg: 4 trials, 2 finished, 1 not run, 1 unfinished

     #  devices.num_gpus  status      devices      steps  train loss  last validation loss  best validation loss  train time  steps/s  rows/s vs #0
     0                 0  finished    cpu              3       1.000                0.5000     0.5000 in epoch 1     3.00 ms     1000         1.00x
     1                 1  same as #0
     2                 2  finished    gpu:0 gpu:1      3       1.000                0.5000     0.5000 in epoch 1     3.00 ms     2500         2.50x
     3                 3  unfinished                   1       4.000

    more devices

     devices      rows per step     step   rows/s   data    log
     cpu                  32.00  1.00 ms  32.00 k  0.0 %  0.0 %
     gpu:0 gpu:1          32.00   400 µs  80.00 k  0.0 %  0.0 %

      2 GPUs: the time of its all-reduce is not known: `devices.engine=launch` measures it
      no speed-up is shown: no trial ran on one GPU to compare the others with

      trial 1 not run: the same run as trial 0
      trial 3 unfinished: killed: no process is at work on it
      folder RUNS/linreg/S
    ");
}

/// At the end of a sweep the best trial (with repeats: the best setting) is named. A cost within the noise is
/// described as such.
#[test]
fn the_best_trial_is_named() {
    let runs = Runs::new();
    let summary = |name: &str, best: &str, train_s: &str| {
        let columns = "run,status,devices_used,steps,train_s,steps_per_s,samples_per_s,best_value,best_epoch";
        format!("{columns}\n{name},finished,cpu,100,{train_s},100,3200,{best},7\n")
    };
    let mut rows = "trial,optimizer.sgd.lr,logging.policy,repeat,status,folder,reason\n".to_owned();
    for (trial, (lr, policy, repeat, best, train_s)) in [
        ("0.1", "off", 0, "0.30", "1.000"),
        ("0.01", "off", 0, "0.125", "1.000"),
        ("0.01", "buffered", 0, "0.25", "0.990"),
        ("0.1", "off", 1, "0.20", "1.000"),
        ("0.01", "off", 1, "0.125", "1.000"),
        ("0.01", "buffered", 1, "0.0", "1.010"),
    ]
    .into_iter()
    .enumerate()
    {
        rows += &format!("{trial},{lr},{policy},{repeat},finished,{trial},\n");
        runs.write(&format!("a/S/{trial}/summary.csv"), &summary(&trial.to_string(), best, train_s));
        let spec = format!("seed = {repeat}\n[optimizer.sgd]\nlr = {lr}\n[logging]\npolicy = \"{policy}\"\n");
        runs.write(&format!("a/S/{trial}/spec.toml"), &spec);
    }
    runs.write("a/S/sweep.csv", &rows);
    let end = runs.masked(&sweep_end(&runs.path("a/S"), None, 200).unwrap());
    let line = |head: &str| end.lines().find(|line| line.trim_start().starts_with(head)).unwrap_or_default();
    assert_eq!(
        line("best:"),
        "best: #1 lr 0.01 policy off, validation loss 0.1250, n 2; not distinguishable from #5 (paired difference 0.0 [-1.6, 1.6], \
         p 1.00) and 1 more"
    );
    let costs = end.split_once("what a logging policy costs").unwrap().1;
    assert!(
        costs.contains("\n  noise: with 2 repeats the interval covers the true median 50.0 % of the time; "),
        "{costs}"
    );
    let buffered = costs.lines().find(|line| line.contains("buffered")).unwrap();
    assert!(buffered.contains(" 1.00x   0.99x to 1.01x "), "{buffered}");
    assert!(
        costs.contains(
            "\n  no verdict: 1 comparison at once can be told from noise by `sweep.repeats=6` or more\n"
        ),
        "{costs}"
    );

    // Only the first repeat.
    let first: Vec<&str> = rows.lines().take(4).map(|line| line.trim_end_matches(',')).collect();
    runs.write("a/S/sweep.csv", &format!("{}\n", first.join(",\n").replacen(",\n", "\n", 1) + ","));
    for trial in 3..6 {
        std::fs::remove_dir_all(runs.path(&format!("a/S/{trial}"))).unwrap();
    }
    let end = runs.masked(&sweep_end(&runs.path("a/S"), None, 200).unwrap());
    assert!(end.contains("\nbest: #1 lr 0.01 policy off, validation loss 0.1250; one seed each "), "{end}");
}

/// A setting of which no repeat finished is listed below the table.
#[test]
fn settings_that_did_not_finish_are_named() {
    let runs = Runs::new();
    let mut rows = "trial,trainer.max_epochs,repeat,status,folder,reason\n".to_owned();
    for (trial, (epochs, repeat, status)) in [
        (3, 0, "finished"),
        (9, 0, "diverged"),
        (3, 1, "finished"),
        (9, 1, "diverged"),
        (4, 0, "finished"),
        (4, 1, "diverged"),
    ]
    .into_iter()
    .enumerate()
    {
        let facts = Facts { epochs, status, ..FACTS };
        runs.run(&format!("a/S/{trial}"), &facts);
        rows += &format!("{trial},{epochs},{repeat},{status},{trial},\n");
    }
    runs.write("a/S/sweep.csv", &rows);
    let end = runs.masked(&sweep_end(&runs.path("a/S"), None, 200).unwrap());
    let table = end.split_once("\n\n").unwrap().1;
    insta::assert_snapshot!(table, @r"
    best: #0 max_epochs 3, validation loss 0.5000; one seed each cannot tell whether that is more than luck (`sweep.repeat_seeds=true` can)
      RUNS/a/S/0

     #  max_epochs  validation loss  vs best     time  steps/s
     0           3           0.5000     best  3.00 ms     1000
     4           4           0.5000        0  3.00 ms     1000
      not ranked: 3 diverged (#1, 3, 5)

      folder RUNS/a/S
    ");
}
