//! What options of `compare` ask for is done, or refused.

use std::fs;

use super::{Runs, answer::learned, axes::sweep};
use crate::process::{Ended, Sandbox};

const LOW: [f64; 3] = [0.10, 0.11, 0.12];

/// Two sweeps whose differences are 0.3, 0.1 and 0.2.
fn two_sweeps() -> Runs {
    let runs = Runs::new();
    let more = |by: f64| LOW.map(|value| value + by);
    learned(&runs, "a", &[("0.1", "8", &LOW), ("0.2", "8", &LOW), ("0.3", "8", &LOW)]);
    learned(&runs, "b", &[("0.1", "8", &more(0.3)), ("0.2", "8", &more(0.1)), ("0.3", "8", &more(0.2))]);
    runs
}

fn compared(runs: &Runs, names: &[&str], more: &[&str]) -> Ended {
    let paths: Vec<String> = names.iter().map(|name| runs.named(name)).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    Sandbox::new("").runner(&[&["compare"], &paths[..], more].concat())
}

/// The first words of the lines of a table.
fn order(text: &str) -> Vec<&str> {
    let lines = text.lines().skip_while(|line| !line.contains("difference")).skip(1);
    lines.filter_map(|line| line.split_whitespace().next()).filter(|word| word.starts_with("0.")).collect()
}

#[test]
fn shared_settings_are_ordered_and_counted() {
    let runs = two_sweeps();
    let ordered = |more: &[&str]| {
        let ended = compared(&runs, &["a", "b"], more);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{more:?}");
        ended.stdout
    };
    for (sort, wanted) in [
        ("difference", ["0.2", "0.3", "0.1"]),
        ("-difference", ["0.1", "0.3", "0.2"]),
        ("-lr", ["0.3", "0.2", "0.1"]),
        ("optimizer.sgd.lr", ["0.1", "0.2", "0.3"]),
        ("-second", ["0.1", "0.3", "0.2"]),
    ] {
        assert_eq!(order(&ordered(&["--sort", sort])), wanted, "{sort}");
    }
    let top = ordered(&["--sort", "lr", "--top", "1"]);
    assert_eq!(order(&top), ["0.1"]);
    assert!(top.contains("\n  2 more shared settings: `--top 3` shows all\n"), "{top}");
    let refused = compared(&runs, &["a", "b"], &["--sort", "bogus"]);
    assert_eq!(
        (refused.code, &*refused.stderr),
        (
            Some(2),
            "error: the settings of two sweeps have no column `bogus`\n\
             \x20 = hint: `--sort` takes one of lr, width, n, first, second, difference, p-value\n"
        )
    );
    let table = ordered(&["--sort", "-difference", "--top", "2", "--export", "md"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 4, "{table}");
    assert!(
        lines[0].contains("| n | first | second | difference |") && lines[2].starts_with("| 0.1 | 8 | 3 |"),
        "{table}"
    );
}

/// An export is whole, unless less of it is asked for; its order is that of `--sort`, or the best first by `--metric`.
#[test]
fn exports_are_ordered_and_counted() {
    let runs = Runs::new();
    learned(&runs, "a", &[("0.1", "8", &[0.5]), ("0.2", "8", &[0.3]), ("0.3", "8", &[0.4])]);
    let rates = |more: &[&str]| -> Vec<String> {
        let ended = compared(&runs, &["a"], &[&["--export", "csv"], more].concat());
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{more:?}");
        let mut reader = csv::Reader::from_reader(ended.stdout.as_bytes());
        let place = reader.headers().unwrap().iter().position(|column| column == "optimizer.sgd.lr").unwrap();
        reader.records().map(|row| row.unwrap()[place].to_owned()).collect()
    };
    assert_eq!(rates(&[]), ["0.1", "0.2", "0.3"]);
    assert_eq!(rates(&["--sort", "-lr", "--top", "2"]), ["0.3", "0.2"]);
    assert_eq!(rates(&["--top", "2"]), ["0.2", "0.3"]);
    let table = compared(&runs, &["a"], &["--export", "md", "--top", "1"]).stdout;
    assert!(
        table.lines().nth(2).is_some_and(|row| row.starts_with("| 1 | 0.2 | 0.3000 | best |")),
        "{table}"
    );
    let times = compared(&runs, &["a"], &["--times", "--top", "2"]).stdout;
    let numbers: Vec<usize> =
        times.lines().filter_map(|row| row.split_whitespace().next()?.parse().ok()).collect();
    assert_eq!(numbers[..3], [3, 1, 2], "3 runs, of which #1 and #2 are shown: {times}");
    assert_eq!(rates(&["--metric", "validation.loss"]), ["0.2", "0.3", "0.1"]);
    assert_eq!(rates(&["--by", "lr", "--sort", "-lr", "--top", "1"]), ["0.3"]);
    let json = compared(&runs, &["a"], &["--export", "json", "--metric", "validation.loss", "--top", "1"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json.as_array().unwrap().len(), &json[0]["best_value"]), (1, &serde_json::json!(0.3)));
    let error = |more: &[&str]| compared(&runs, &["a"], more).stderr;
    let unknown = error(&["--export", "csv", "--sort", "bogus"]);
    assert!(unknown.starts_with("error: no run has a column `bogus`\n"), "{unknown}");
    let unknown = error(&["--export", "csv", "--metric", "bogus"]);
    assert!(unknown.starts_with("error: no run has the metric `bogus`\n"), "{unknown}");
    assert!(
        error(&["--pivot", "lr,width", "--sort", "lr"])
            .contains("error: `--pivot` does not go with `--sort`\n")
    );
}

/// The rank, the value and the difference of what is measured are all of means. Medians rank these two the other way.
#[test]
fn what_is_measured_is_ranked_as_it_is_compared() {
    let runs = Runs::new();
    learned(&runs, "a", &[("0.1", "8", &[0.5; 3]), ("0.2", "8", &[0.5; 3])]);
    let rates = [[1000.0, 1000.0, 4000.0], [1500.0, 1500.0, 1500.0]];
    for (trial, rate) in (0..3).flat_map(|repeat| (0..2).map(move |setting| (setting, repeat))).enumerate() {
        let path = format!("a/S/{trial:03}/summary.csv");
        let text = fs::read_to_string(runs.path(&path)).unwrap();
        let mut lines = text.lines();
        let (columns, row) = (lines.next().unwrap(), lines.next().unwrap());
        runs.write(&path, &format!("{columns},steps_per_s\n{row},{}\n", rates[rate.0][rate.1]));
    }
    let text = compared(&runs, &["a"], &["--metric", "steps_per_s"]).stdout;
    insta::assert_snapshot!(runs.masked(&text), @r"
    best: #4 lr 0.1, steps per second 2000 [0, 6303], n 3;
      not distinguishable from #1 (paired difference -500 [-4803, 3803], p 0.67)
      RUNS/a/S/004

     #   lr  n  steps per second             vs best  p-value  median loss    time
     4  0.1  3    2000 [0, 6303]                best                0.5000  500 ms
     1  0.2  3              1500  -500 [-4803, 3803]     0.67       0.5000  500 ms
      means and paired differences over n runs [95 %, Student]; p by Holm, 1 pair
      Student's intervals assume normally distributed values
      intervals are cut: steps per second is never below 0
    ");
}

/// An axis that does not vary everywhere has no value there.
#[test]
fn a_pivot_names_what_has_no_value() {
    let runs = Runs::new();
    let trial = |momentum: &str, lr: &str| (vec![lr.to_owned(), momentum.to_owned()], "finished", 0.5);
    sweep(&runs, &["lr", "momentum"], &[trial("0.9", "0.1"), trial("", "0.1"), trial("", "0.2")]);
    let table = compared(&runs, &["S"], &["--pivot", "lr,momentum"]).stdout;
    insta::assert_snapshot!(table.split_once("\n\n").unwrap().1, @r"
     lr  momentum 0.9  momentum -
    0.1        0.5000      0.5000
    0.2                    0.5000
    ");
}

/// A trial whose summary lost its row is told and left out, though the sweep's table has its figures.
#[test]
fn an_emptied_summary_is_told() {
    let runs = Runs::new();
    learned(&runs, "a", &[("0.1", "8", &[0.5]), ("0.2", "8", &[0.4]), ("0.3", "8", &[0.3])]);
    runs.write("a/S/002/metrics.csv", "step,epoch,split,rows,loss,elapsed_s\n");
    runs.write("a/S/002/summary.csv", "");
    let ended = compared(&runs, &["a"], &[]);
    assert_eq!(
        (ended.code, &*runs.masked(&ended.stderr)),
        (Some(0), "warning: left out: `RUNS/a/S/002/summary.csv` is empty\n")
    );
    assert!(ended.stdout.starts_with("best: #1 lr 0.2, validation loss 0.4000"), "{}", ended.stdout);
}
