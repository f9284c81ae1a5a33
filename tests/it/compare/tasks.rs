//! Which runs learn the same task, and which count once.

use super::{FACTS, Facts, Runs};

/// Features may differ if the rows are the same. If rows with missing cells are dropped, the features decide
/// which rows remain, and it does not count as the same.
#[test]
fn runs_over_other_features_learn_the_same() {
    for (missing, is_one_task) in [("error", true), ("drop", false)] {
        let runs = Runs::new();
        for (name, features) in [("a", "[\"u\"]"), ("b", "[\"u\", \"v\"]")] {
            let facts = Facts { digest: "d1", ..FACTS };
            runs.run(&format!("linreg/{name}"), &facts);
            let data =
                format!("[data.csv]\ntarget = \"y\"\nmissing = \"{missing}\"\nfeatures = {features}\n");
            runs.write(&format!("linreg/{name}/spec.toml"), &(facts.spec() + &data));
        }
        let table = runs.table(&["linreg"], 160);
        assert_eq!(!table.contains("2 tasks"), is_one_task, "{table}");
    }
}

/// Runs on other rows are not repeats, and their losses are not compared. Different spellings of a path mean
/// the same data.
#[test]
fn runs_over_other_data_are_said_to_be_so_at_once() {
    let runs = Runs::new();
    let data = |path: &str| format!("[data.csv]\npath = \"{path}\"\ntarget = \"y\"\n");
    for (name, path, digest) in
        [("a", "/here/x.csv", "d1"), ("b", "/there/x.csv", "d1"), ("c", "/here/x.csv", "d2")]
    {
        let facts = Facts { digest, ..FACTS };
        runs.run(&format!("linreg/{name}"), &facts);
        runs.write(&format!("linreg/{name}/spec.toml"), &(facts.spec() + &data(path)));
    }
    let table = runs.table(&["linreg"], 160);
    let (table, curves) = table.split_once("\nnoise\n").unwrap();
    insta::assert_snapshot!(table, @r"
    3 runs of 2 tasks, whose losses are not comparable: the data differ (#1, 2; #3); same processor, instruction set, threads and version

     #  data.csv.path  status    devices  steps  train loss  last validation loss  best validation loss  train time  steps/s  rows/s vs #1  logging    h2d   d2h
     1    /here/x.csv  finished  cpu          3       1.000                0.5000     0.5000 in epoch 1     3.00 ms     1000         1.00x   0.30 %  4 KiB  12 B
     2   /there/x.csv  finished  cpu          3       1.000                0.5000     0.5000 in epoch 1     3.00 ms     1000         1.00x   0.30 %  4 KiB  12 B
     3    /here/x.csv  finished  cpu          3       1.000                0.5000     0.5000 in epoch 1     3.00 ms     1000         1.00x   0.30 %  4 KiB  12 B

    repeats taken together

     of run  runs  train time  50.0 % interval  steps/s  50.0 % interval  rows/s vs #1
      #1, 2     2     3.00 ms  3.00 to 3.00 ms     1000     1000 to 1000         1.00x
         #3     1     3.00 ms                      1000                          1.00x

     of run  runs  train loss  validation loss
      #1, 2     2       1.000           0.5000
         #3     1       1.000           0.5000
    ");
    let curves = curves.split_once("train loss against #1\n").unwrap().1;
    assert_eq!(curves.lines().nth(1), Some("  #3  not compared: it learns another task"));
}

/// A key of a source that only some runs have says no more than that their data differ.
#[test]
fn keys_of_one_source_are_no_differences_of_tasks() {
    let runs = Runs::new();
    let sources =
        [("a", "d1", "csv = { target = \"y\", header = true }"), ("b", "d2", "idx = { classes = 3 }")];
    for (name, digest, source) in sources {
        let facts = Facts { digest, ..FACTS };
        runs.run(&format!("linreg/{name}"), &facts);
        runs.write(&format!("linreg/{name}/spec.toml"), &format!("{}[data]\n{source}\n", facts.spec()));
    }
    let table = runs.table(&["linreg"], 160);
    let words = "2 runs of 2 tasks, whose losses are not comparable: the data differ (#1; #2); ";
    assert!(table.starts_with(words), "{table}");
}

/// Samples of large files may be equal where the rows are not: only files with one path are of one setting.
#[test]
fn files_known_by_samples_are_told_apart_by_their_paths() {
    for sampled in [false, true] {
        let runs = Runs::new();
        for (name, path) in [("a", "/here/x.npy"), ("b", "/there/x.npy")] {
            runs.run(&format!("linreg/{name}"), &FACTS);
            let data = format!("[data.npy]\nfeatures = \"{path}\"\n");
            runs.write(&format!("linreg/{name}/spec.toml"), &(FACTS.spec() + &data));
            let environment = format!("{}[data]\nsampled = {sampled}\n", FACTS.environment());
            runs.write(&format!("linreg/{name}/environment.toml"), &environment);
        }
        let table = runs.table(&["linreg"], 160);
        assert_eq!(table.contains("repeats taken together"), !sampled, "{table}");
        // The paths tell two settings apart, and say nothing of one.
        let answer = runs.answer(&["linreg"], 120);
        for path in ["/here/x.npy", "/there/x.npy"] {
            assert_eq!(answer.contains(path), sampled, "{answer}");
        }
    }
}

/// A copied folder counts once; for losses, repeats with the same seed count once.
#[test]
fn copies_count_once() {
    let runs = Runs::new();
    let slower = Facts { steps_per_s: "900.0", ..FACTS };
    runs.run("linreg/a", &FACTS);
    runs.run("linreg/b", &slower);
    runs.run("copies/b", &slower);
    let other_seed = Facts { losses: [4.0, 3.0, 2.0], ..FACTS };
    runs.run("linreg/c", &other_seed);
    runs.write("linreg/c/spec.toml", &other_seed.spec().replace("seed = 0", "seed = 1"));
    let table = runs.table(&["linreg", "copies"], 160);
    let repeats = table.split_once("repeats taken together\n\n").unwrap().1.split_once("\nnoise").unwrap().0;
    insta::assert_snapshot!(repeats, @r"
     of run  runs  train time  75.0 % interval  steps/s  75.0 % interval
    #1 to 3     3     3.00 ms  3.00 to 3.00 ms     1000    900.0 to 1000

     of run  runs  train loss  50.0 % interval  validation loss
    #1 to 3     3       1.500   1.000 to 2.000           0.5000
    ");
}
