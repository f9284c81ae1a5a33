//! Seeds that draw their validation rows from one table share rows of training.

use super::{Runs, answer::learned};

const OWN: [f64; 5] = [0.30, 0.34, 0.31, 0.37, 0.33];
const OTHER: [f64; 5] = [0.34, 0.39, 0.33, 0.42, 0.36];

fn answer(data: &str) -> String {
    let runs = Runs::new();
    learned(&runs, "a", &[("0.1", "32", &OWN), ("0.01", "32", &OTHER)]);
    for trial in 0..10 {
        let path = format!("a/S/{trial:03}/spec.toml");
        let spec = std::fs::read_to_string(runs.path(&path)).unwrap();
        runs.write(&path, &(spec + data));
    }
    runs.answer(&["a"], 120)
}

/// The corrected resampled t-test of Nadeau and Bengio (2003): the variance times 1/n + 0.2/0.8, computed in Python.
#[test]
fn seeds_that_redraw_the_split_have_wider_intervals() {
    insta::assert_snapshot!(answer("[data.csv]\npath = \"a.csv\"\nvalidation_fraction = 0.2\n"), @r"
    best: #0 lr 0.1, validation loss 0.33 [0.28, 0.38], n 5;
      better than all others, of which #5 is next (paired difference 0.038 [0.014, 0.062], p 0.012)
      RUNS/a/S/000

     #    lr  n    validation loss               vs best  p-value    time
     0   0.1  5  0.33 [0.28, 0.38]                  best           500 ms
     5  0.01  5  0.37 [0.30, 0.44]  0.038 [0.014, 0.062]    0.012  500 ms
      means and paired differences over n seeds [95 %, Student]; p by Holm, 1 pair
      Student's intervals assume normally distributed values
      seeds draw other validation rows from the same data: intervals and p allow for the training rows that they share (Nadeau and Bengio, 2003)
    ");
    // With a test part, 0.2/0.7.
    let text = answer("[data.split]\nvalidation = 0.2\ntest = 0.1\n");
    assert!(text.contains("validation loss 0.33 [0.28, 0.38], n 5;\n  better than all others, of which #5 is next (paired difference 0.038 [0.013, 0.063], p 0.014)"), "{text}");
}

/// Of one split for all seeds, of validation rows in a file of their own, and of rows that are drawn anew, seeds are independent.
#[test]
fn seeds_of_one_split_are_independent() {
    let plain = answer("");
    assert!(plain.contains("validation loss 0.330 [0.296, 0.364], n 5;\n  better than all others, of which #5 is next (paired difference 0.038 [0.022, 0.054], p 0.003)"), "{plain}");
    for data in [
        "[data.csv]\npath = \"a.csv\"\nvalidation_path = \"b.csv\"\n",
        "[data.split]\nvalidation = 0.2\ntest = 0.1\nseed = 1\n",
        "[data.synthetic_regression]\nnoise = 0.1\nvalidation_rows = 100\n",
    ] {
        assert_eq!(answer(data), plain, "{data}");
    }
}
