//! Rows and columns of the answer's table: `--by`, `--pivot`, folded axes, constant keys, the order.

use runner::report::Question;

use super::{
    FACTS, Runs,
    answer::{BEST, learned, shifted},
};
use crate::process::Sandbox;

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
        "optimizer.sgd.lr,runs,n,value,interval,low,high,difference,difference_low,difference_high,p_value"
    );
    assert!(lines[1].starts_with("0.01,12,6,0.06129") && lines[2].starts_with("0.1,6,6,0.0810"), "{text}");
    assert_eq!(lines[1].split(',').nth(4), Some("95 %"));
    insta::assert_snapshot!(ran(&["--where", "repeat = 0 and width = 32", "--export", "latex"]).stdout, @r"
    \begin{tabular}{rrr}
    \toprule
    lr & validation loss & vs best \\
    \midrule
    0.01 & 0.06000 & best \\
    0.1 & 0.08100 & +0.02100 \\
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
    assert!(
        grouped.starts_with("| # | width | n | validation loss | vs best | p-value |\n| ---:"),
        "{grouped}"
    );
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

     #    lr  n    validation loss                vs best  p-value    time
     0   0.1  2  0.44 [0.38, 0.50]                   best           500 ms
     1  0.01  2  0.45 [0.35, 0.56]  0.011 [-0.030, 0.053]     0.18  500 ms
      means and paired differences over n seeds [95 %, Student]; p by Holm, 1 pair
      Student's intervals assume normally distributed values
    ");
    // A seed with a missing width is left out.
    let lacking: Vec<(&str, &str, &[f64])> =
        settings.iter().enumerate().map(|(i, s)| (s.0, s.1, if i == 3 { &s.2[..1] } else { s.2 })).collect();
    learned(&runs, "b", &lacking);
    insta::assert_snapshot!(answer("b"), @r"
    best: #0 lr 0.1, validation loss 0.4400 [0.3765, 0.5035], n 2;
      one shared seed cannot tell it from #1 (paired difference +0.008200)
      RUNS/b/S/000

     #    lr  n          validation loss    vs best    time
     0   0.1  2  0.4400 [0.3765, 0.5035]       best  500 ms
     1  0.01  1                   0.4432  +0.008200  500 ms
      means over n seeds [95 %, Student]
      Student's intervals assume normally distributed values
      fewer seeds, compared by those that both have: #1
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
    assert_eq!(order("p-value")[0], "0.1 32");
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
    assert!(
        text.starts_with(
            "2 tasks, whose losses are not comparable: data.csv.target differs (#0 A, #1 A; #4 B)\n"
        ),
        "{text}"
    );
    assert!(text.contains("best: #1 A lr 0.01, validation loss 0.1000;"), "{text}");
}

/// The p of dropout is an axis: what tells settings apart has another name.
#[test]
fn an_axis_called_p_is_no_p_value() {
    let runs = Runs::new();
    learned(
        &runs,
        "a",
        &[("0.3", "32", &shifted(0.02, 0.001)), ("0.1", "32", &BEST), ("0.2", "32", &shifted(0.001, 0.002))],
    );
    let table = std::fs::read_to_string(runs.path("a/S/sweep.csv")).unwrap();
    runs.write("a/S/sweep.csv", &table.replacen("optimizer.sgd.lr", "model.layers.1.dropout.p", 1));
    let rows = |more: &[&str]| -> Vec<String> {
        let ended = Sandbox::new("").runner(&[&["compare", &runs.named("a")], more].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let table = ended.stdout.split("\n\n").nth(1).unwrap().lines();
        let rows = table.take_while(|row| !row.starts_with("  "));
        rows.map(|row| row.split_whitespace().skip(1).take(1).collect()).collect()
    };
    assert_eq!(rows(&[]), ["p", "0.1", "0.2", "0.3"]);
    assert_eq!(rows(&["--sort", "-p"]), ["p", "0.3", "0.2", "0.1"]);
    assert_eq!(rows(&["--sort", "p-value"]), ["p", "0.3", "0.2", "0.1"]);
    assert_eq!(rows(&["--where", "p < 0.25"]), ["p", "0.1", "0.2"]);
}
