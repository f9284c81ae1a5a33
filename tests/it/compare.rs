//! Comparing run folders: whole texts, exports that read back, and what killed processes leave behind.

use std::{fs, path::PathBuf};

use runner::{
    record::SUMMARY_COLUMNS,
    report::{Format, compare, sweep_end},
};

/// A folder of runs whose path is `RUNS` in what is asserted.
struct Runs(tempfile::TempDir);

impl Runs {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, inner: &str) -> PathBuf {
        self.0.path().join(inner)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Argument for `compare`.
    fn named(&self, inner: &str) -> String {
        self.path(inner).display().to_string()
    }

    fn masked(&self, text: &str) -> String {
        text.replace(&self.0.path().display().to_string(), "RUNS")
    }

    fn table(&self, inner: &[&str], width: u16) -> String {
        let paths: Vec<String> = inner.iter().map(|path| self.named(path)).collect();
        self.masked(&compare(&paths).unwrap().table(width))
    }

    fn error(&self, inner: &str) -> String {
        self.masked(&compare(&[self.named(inner)]).unwrap_err().to_string())
    }

    /// A finished run.
    fn run(&self, path: &str, facts: &Facts) {
        self.write(&format!("{path}/spec.toml"), &facts.spec());
        self.write(&format!("{path}/environment.toml"), &facts.environment());
        self.write(&format!("{path}/metrics.csv"), &facts.metrics());
        self.write(&format!("{path}/summary.csv"), &facts.summary(path.rsplit('/').next().unwrap()));
    }
}

/// What the runs differ in.
#[derive(Clone, Copy)]
struct Facts {
    num_gpus: u32,
    epochs: u32,
    losses: [f32; 3],
    devices: &'static str,
    steps_per_s: &'static str,
    cpu: &'static str,
    commit: &'static str,
}

const FACTS: Facts = Facts {
    num_gpus: 0,
    epochs: 3,
    losses: [4.0, 2.0, 1.0],
    devices: "cpu",
    steps_per_s: "1000.0",
    cpu: "A",
    commit: "c0ffee",
};

impl Facts {
    fn spec(&self) -> String {
        format!(
            "# runner linreg.toml\nname = \"linreg\"\nseed = 0\n[devices]\nnum_gpus = {}\n[trainer]\nmax_epochs = {}\n\
             [model]\nlayers = [{{ linear = {{ out_features = 1 }} }}, \"relu\"]\n",
            self.num_gpus, self.epochs
        )
    }

    fn is_virtual(&self) -> bool {
        self.devices.starts_with("virtual")
    }

    fn environment(&self) -> String {
        format!(
            "started = \"{}\"\ncommand = \"runner\"\n[devices]\nrequested = \"{}\"\nused = [\"{}\"]\nvirtual = {}\n\
             [cpu]\nmodel = \"{}\"\n[git]\ncommit = \"{}\"\n",
            self.steps_per_s,
            self.num_gpus,
            self.devices.replace(';', "\", \""),
            self.is_virtual(),
            self.cpu,
            self.commit
        )
    }

    fn metrics(&self) -> String {
        let mut text = "step,epoch,split,rows,loss,elapsed_s\n".to_owned();
        for (place, loss) in self.losses.iter().enumerate() {
            let step = place + 1;
            text += &format!(
                "{step},{step},train,32,{loss},0.{step}\n{step},{step},validation,100,0.5,0.{step}\n"
            );
        }
        text
    }

    fn summary(&self, run: &str) -> String {
        let cells = [
            run,
            "linreg",
            "finished",
            &self.num_gpus.to_string(),
            self.devices,
            if self.is_virtual() { "true" } else { "false" },
            "strong",
            "f32",
            "serial",
            "3",
            "3",
            &self.losses[2].to_string(),
            "0.5",
            "",
            "0.05",
            "0.003",
            self.steps_per_s,
            "32000.0",
            "0.00001",
            "0.003",
            "0",
            "4096",
            "12",
            "8192",
            "1048576",
        ];
        format!("{}\n{}\n", SUMMARY_COLUMNS.join(","), cells.join(","))
    }
}

/// A sweep over `num_gpus` as it stands when it was killed in its fourth trial.
fn sweep(runs: &Runs) {
    let two = Facts { num_gpus: 2, devices: "gpu:0;gpu:1", steps_per_s: "2500.0", ..FACTS };
    runs.run("linreg/S/000-devices.num_gpus=0", &FACTS);
    runs.run("linreg/S/002-devices.num_gpus=2", &Facts { losses: [4.0, 2.0001, 1.0], ..two });
    runs.write("linreg/S/003-devices.num_gpus=3/spec.toml", &Facts { num_gpus: 3, ..FACTS }.spec());
    runs.write(
        "linreg/S/003-devices.num_gpus=3/metrics.csv",
        "step,epoch,split,rows,loss,elapsed_s\n1,1,train,32,4.0,0.1\n2,2,tr",
    );
    runs.write("linreg/S/003-devices.num_gpus=3/summary.csv", &format!("{}\n", SUMMARY_COLUMNS.join(",")));
    let columns: Vec<&str> = SUMMARY_COLUMNS.into_iter().filter(|&column| column != "status").collect();
    let empty = ",".repeat(columns.len());
    let figures = |facts: &Facts, run: &str| {
        let summary = facts.summary(run);
        let cells: Vec<&str> = summary.lines().nth(1).unwrap().split(',').collect();
        [&cells[..2], &cells[3..]].concat().join(",")
    };
    let mut text = format!("trial,devices.num_gpus,status,folder,reason,{}\n", columns.join(","));
    let (zero, second) = ("000-devices.num_gpus=0", "002-devices.num_gpus=2");
    text += &format!("0,0,finished,{zero},,{}\n", figures(&FACTS, zero));
    text += &format!("1,1,same_as,{zero},equals trial 0 in all but the request{empty}\n");
    text += &format!("2,2,finished,{second},,{}\n", figures(&two, second));
    runs.write("linreg/S/sweep.csv", &text);
}

#[test]
fn two_runs_of_the_same_bits() {
    let runs = Runs::new();
    runs.run("linreg/a", &FACTS);
    runs.run("linreg/b", &Facts { steps_per_s: "2000.0", ..FACTS });
    insta::assert_snapshot!(runs.table(&["linreg/a", "linreg/b"], 160), @r"
    2 runs, comparable: same processor, instruction set, threads and version

     run  status    devices  steps  train loss  validation loss  train time  steps/s  ratio  logging    h2d   d2h
       1  finished  cpu          3       1.000           0.5000     3.00 ms     1000  1.00x   0.30 %  4 KiB  12 B
       2  finished  cpu          3       1.000           0.5000     3.00 ms     2000  2.00x   0.30 %  4 KiB  12 B

    repeats taken together

     runs  train time    95 % interval  steps/s  95 % interval  train loss  validation loss
        2     3.00 ms  3.00 to 3.00 ms     1500   1000 to 2000       1.000           0.5000

    noise
      noise:  an interval of 2 runs is at most 50.0 % sure, whatever it is called; six can give 95 %

    runs
      1  RUNS/linreg/a
      2  RUNS/linreg/b

    train loss against run 1
      2  the same bits over 3 steps in common
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
    3 runs, whose times say nothing of each other: cpu.model differs

     run  devices.num_gpus  trainer.max_epochs  status    devices              steps  train loss  validation loss  train time  steps/s  ratio  logging    h2d   d2h
       1                 0                   3  finished  cpu                      3       1.000           0.5000     3.00 ms     1000  1.00x   0.30 %  4 KiB  12 B
       2                 0                   4  finished  cpu                      3       1.100           0.5000     3.00 ms    500.0  0.50x   0.30 %  4 KiB  12 B
       3                 2                   3  finished  virtual:0 virtual:1      3       1.000           0.5000     3.00 ms     1000          0.30 %  4 KiB  12 B

    runs
      1  RUNS/linreg/a
      2  RUNS/linreg/b
      3  RUNS/linreg/c; virtual devices: its times say nothing of real ones

    train loss against run 1
      2  parts at step 2: 2 and 2.5, 20.0 % apart; 3 steps in common
      3  the same bits over 3 steps in common

    differences of spec
      devices.num_gpus    0 (run 1, 2)  2 (run 3)
      trainer.max_epochs  3 (run 1, 3)  4 (run 2)

    differences of environment
      cpu.model   A (run 1, 3)  B (run 2)
      git.commit  c0ffee (run 1, 3)  dead (run 2)
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

     run                        1         2
     trainer.max_epochs         3         4
     status              finished  finished
     devices                  cpu       cpu
     steps                      3         3
     train loss             1.000     1.000
     validation loss       0.5000    0.5000
     train time           3.00 ms   3.00 ms
     steps/s                 1000      1000
     ratio                  1.00x     1.00x
     logging               0.30 %    0.30 %
     h2d                    4 KiB     4 KiB
     d2h                     12 B      12 B
    ");
}

#[test]
fn a_killed_sweep_shows_every_trial() {
    let runs = Runs::new();
    sweep(&runs);
    insta::assert_snapshot!(runs.table(&["linreg/S"], 200), @r"
    4 runs; no environment.toml in run 4

     run  devices.num_gpus  status      devices      steps  train loss  validation loss  train time  steps/s  ratio  logging    h2d   d2h
       1                 0  finished    cpu              3       1.000           0.5000     3.00 ms     1000  1.00x   0.30 %  4 KiB  12 B
       2                 1  same_as
       3                 2  finished    gpu:0 gpu:1      3       1.000           0.5000     3.00 ms     2500  2.50x   0.30 %  4 KiB  12 B
       4                 3  unfinished                   1       4.000

    runs
      1  RUNS/linreg/S/000-devices.num_gpus=0
      2  RUNS/linreg/S trial 1; same_as: equals trial 0 in all but the request
      3  RUNS/linreg/S/002-devices.num_gpus=2
      4  RUNS/linreg/S/003-devices.num_gpus=3; unfinished: still running, or killed; the last line of its metrics.csv is torn and was left out

    train loss against run 1
      3  parts at step 2: 2 and 2.0001, 5.0e-5 of their size apart; 3 steps in common
      4  the same bits over 1 step in common

    differences of spec
      devices.num_gpus  0 (run 1)  2 (run 3)  3 (run 4)
    ");
}

#[test]
fn the_end_of_a_sweep() {
    let runs = Runs::new();
    sweep(&runs);
    insta::assert_snapshot!(runs.masked(&sweep_end(&runs.path("linreg/S"), 160).unwrap()), @r"
    linreg: 4 trials, 2 finished, 1 same_as, 1 unfinished

     trial  devices.num_gpus  status      devices      steps  train loss  validation loss  train time  steps/s  ratio
         0                 0  finished    cpu              3       1.000           0.5000     3.00 ms     1000  1.00x
         1                 1  same_as
         2                 2  finished    gpu:0 gpu:1      3       1.000           0.5000     3.00 ms     2500  2.50x
         3                 3  unfinished                   1       4.000

    more devices

     devices      rows per step     step   rows/s   data    log
     cpu                  32.00  1.00 ms  32.00 k  0.0 %  0.0 %
     gpu:0 gpu:1          12.80   400 µs  32.00 k  0.0 %  0.0 %

      2 GPUs: the time of its all-reduce is not known: `devices.engine=launch` tells it
      no speed-up is told: no trial ran on one GPU, which the others could be held against

      trial 1 same_as: equals trial 0 in all but the request
      trial 3 unfinished: still running, or killed
      folder RUNS/linreg/S
    ");
}

#[test]
fn exports_read_back() {
    let runs = Runs::new();
    sweep(&runs);
    let comparison = compare(&[runs.named("linreg")]).unwrap();

    let text = comparison.export(Format::Csv);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let columns = reader.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let column = |name: &str| -> Vec<String> {
        let place = columns.iter().position(|column| column == name).unwrap();
        rows.iter().map(|row| row[place].to_owned()).collect()
    };
    assert_eq!(column("devices.num_gpus"), ["0", "1", "2", "3"]);
    assert_eq!(column("status"), ["finished", "same_as", "finished", "unfinished"]);
    assert_eq!(column("steps_per_s"), ["1000.0", "", "2500.0", ""]);
    assert_eq!(column("steps_per_s_ratio"), ["1", "", "2.5", ""]);
    assert_eq!(column("curve_parts_at_step"), ["", "", "2", ""]);
    assert_eq!(column("steps"), ["3", "", "3", "1"]);

    let json: serde_json::Value = serde_json::from_str(&comparison.export(Format::Json)).unwrap();
    let rows = json.as_array().unwrap();
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[2]["devices.num_gpus"], 2);
    assert_eq!(rows[2]["devices_requested"], "2");
    assert_eq!(rows[2]["virtual"], false);
    assert_eq!(rows[2]["steps_per_s"], 2500.0);
    assert!(rows[1]["steps_per_s"].is_null());
    let keys: Vec<&str> = rows[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, columns.iter().collect::<Vec<_>>());

    insta::assert_snapshot!(comparison.export(Format::Md), @r"
    | run | devices.num_gpus | status | devices | steps | train loss | validation loss | train time | steps/s | ratio | logging | h2d | d2h |
    | ---: | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
    | 1 | 0 | finished | cpu | 3 | 1.000 | 0.5000 | 3.00 ms | 1000 | 1.00x | 0.30 % | 4 KiB | 12 B |
    | 2 | 1 | same_as |  |  |  |  |  |  |  |  |  |  |
    | 3 | 2 | finished | gpu:0 gpu:1 | 3 | 1.000 | 0.5000 | 3.00 ms | 2500 | 2.50x | 0.30 % | 4 KiB | 12 B |
    | 4 | 3 | unfinished |  | 1 | 4.000 |  |  |  |  |  |  |  |
    ");
}

#[test]
fn what_is_no_run_is_told() {
    let runs = Runs::new();
    runs.write("empty/x/note.txt", "");
    assert_eq!(runs.error("nothing"), "`RUNS/nothing` does not exist");
    assert_eq!(runs.error("no*"), "nothing matches `RUNS/no*`");
    assert_eq!(
        runs.error("empty"),
        "`RUNS/empty` is no run: it holds neither `summary.csv` nor `sweep.csv`, and neither does any folder in it"
    );
    assert!(runs.error("a[").starts_with("`RUNS/a[` is not a pattern: "));
}

#[test]
fn malformed_files_are_told_with_their_line() {
    let runs = Runs::new();
    let broken = |file: &str, text: &str| {
        runs.run("linreg/a", &FACTS);
        runs.write(&format!("linreg/a/{file}"), text);
        runs.error("linreg/a")
    };
    assert_eq!(
        broken("metrics.csv", "step,epoch,split,rows,loss,elapsed_s\n1,1,train,32,4.0,0.1\n2,2,train,32\n"),
        "`RUNS/linreg/a/metrics.csv` is malformed at line 3: expected 6 cells, got 4"
    );
    assert_eq!(
        broken("metrics.csv", "step,epoch,split,rows,loss,elapsed_s\n1,1,train,32,four,0.1\n"),
        "`RUNS/linreg/a/metrics.csv` is malformed at line 2: `four` in column `loss` is no number"
    );
    assert_eq!(
        broken("metrics.csv", "step,epoch\n1,1\n"),
        "`RUNS/linreg/a/metrics.csv` is malformed at line 2: there is no column `split`"
    );
    assert_eq!(
        broken("summary.csv", "run,status\na\n"),
        "`RUNS/linreg/a/summary.csv` is malformed at line 2: expected 2 cells, got 1"
    );
    assert!(
        broken("spec.toml", "a = 1\nb =\n").starts_with("`RUNS/linreg/a/spec.toml` is malformed at line 2: ")
    );
}

#[test]
fn a_run_named_twice_counts_once() {
    let runs = Runs::new();
    runs.run("linreg/a", &FACTS);
    runs.run("linreg/b", &FACTS);
    let table = runs.table(&["linreg/b", "linreg/*", "."], 160);
    assert!(table.starts_with("2 runs, comparable: "), "{table}");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn garbage_is_an_error_or_a_table(
        file in proptest::sample::select(vec!["metrics.csv", "summary.csv", "sweep.csv", "spec.toml", "environment.toml"]),
        garbage in "[a-z0-9.,=\"\n\\[\\]-]{0,80}",
        keep in 0_usize..80,
    ) {
        let runs = Runs::new();
        sweep(&runs);
        let path = runs.path(if file == "sweep.csv" { "linreg/S" } else { "linreg/S/000-devices.num_gpus=0" }).join(file);
        let head: String = fs::read_to_string(&path).unwrap().chars().take(keep).collect();
        fs::write(&path, head + &garbage).unwrap();
        if let Ok(comparison) = compare(&[runs.named("linreg/S")]) {
            comparison.table(80);
            comparison.export(Format::Json);
        }
    }
}
