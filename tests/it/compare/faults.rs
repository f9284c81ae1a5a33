//! Runs that cannot be compared, or only in part.

use std::fs;

use runner::report::{Comparison, Format};

use super::{FACTS, Facts, Question, Runs, sweep};

#[test]
fn what_is_no_run_is_told() {
    let runs = Runs::new();
    runs.write("empty/x/note.txt", "");
    assert_eq!(runs.error("nothing"), "`RUNS/nothing` does not exist");
    assert_eq!(runs.error("no*"), "nothing matches `RUNS/no*`");
    assert_eq!(
        runs.error("empty"),
        "`RUNS/empty` holds no run (`spec.toml` with `summary.csv` or `metrics.csv`) and no sweep (`sweep.toml` with `sweep.csv`)"
    );
    assert!(runs.error("a[").starts_with("`RUNS/a[` is not a pattern: "));
}

#[test]
fn a_damaged_run_among_others_is_told_and_left_out() {
    let runs = Runs::new();
    sweep(&runs);
    runs.write("linreg/S/000-devices.num_gpus=0/spec.toml", "no toml");
    runs.run("linreg/a", &Facts { status: "interrupted", ..FACTS });
    runs.write("linreg/a/metrics.csv", "step,epoch\n1,x\n");
    runs.run("linreg/b", &FACTS);
    let text = runs.table(&["linreg/S", "linreg/a", "linreg/b"], 160);
    assert!(text.starts_with("3 runs (1 more trial is the same as one of them) (damaged: 2); "), "{text}");
    let lines: Vec<&str> = text.lines().skip(1).filter(|line| line.contains("damaged")).collect();
    assert_eq!(
        lines[..2].iter().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect::<Vec<_>>(),
        [vec!["0", "A", "0", "damaged"], vec!["5", "B", "0", "damaged"]]
    );
    assert_eq!(
        lines[2..],
        [
            "  #0 A  RUNS/linreg/S/000-devices.num_gpus=0; damaged: `RUNS/linreg/S/000-devices.num_gpus=0/spec.toml` is \
             malformed at line 1: key with no value, expected `=`",
            "  #5 B  RUNS/linreg/a; damaged: `RUNS/linreg/a/metrics.csv` is malformed at line 1: there is no column `split`",
        ]
    );
    assert!(text.contains("\ntrain loss against #2 A\n"), "{text}");
}

#[test]
fn malformed_files_are_told_with_their_line() {
    let runs = Runs::new();
    let broken = |file: &str, text: &str| {
        runs.run("linreg/a", &Facts { status: "interrupted", ..FACTS });
        runs.write(&format!("linreg/a/{file}"), text);
        runs.error("linreg/a")
    };
    assert_eq!(
        broken("metrics.csv", "step,epoch,split,rows,loss,elapsed_s\n1,1,train,32,4.0,0.1\n2,2,train,32\n"),
        "`RUNS/linreg/a/metrics.csv` is malformed at line 3: expected 6 cells, got 4"
    );
    assert_eq!(
        broken("metrics.csv", "step,epoch,split,rows,loss,elapsed_s\n1,1,train,32,four,0.1\n"),
        "`RUNS/linreg/a/metrics.csv` is malformed at line 2: `four` in column `loss` is not a number"
    );
    assert_eq!(
        broken("metrics.csv", "step,epoch\n1,1\n"),
        "`RUNS/linreg/a/metrics.csv` is malformed at line 1: there is no column `split`"
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
        if let Ok(comparison) = Comparison::read(&[runs.named("linreg/S")], None).and_then(Comparison::with_curves) {
            comparison.times(&Question::default(), 80).unwrap();
            comparison.detail();
            let _ = comparison.answer(&Question::default(), 80);
            comparison.export(&Question::default(), Format::Json).unwrap();
        }
    }
}
