//! Exports of a comparison, which read back.

use runner::report::{Format, Question};

use super::{FACTS, Runs, sweep};

#[test]
fn exports_read_back() {
    let runs = Runs::new();
    sweep(&runs);
    let comparison = runs.read(&["linreg"]).with_curves().unwrap();

    let text = comparison.export(&Question::default(), Format::Csv).unwrap();
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
    assert_eq!(column("best_value"), ["0.5", "", "0.5", ""]);

    let json: serde_json::Value =
        serde_json::from_str(&comparison.export(&Question::default(), Format::Json).unwrap()).unwrap();
    let rows = json.as_array().unwrap();
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[2]["devices.num_gpus"], 2);
    assert_eq!(rows[2]["devices_requested"], "2");
    assert_eq!(rows[2]["virtual"], false);
    assert_eq!(rows[2]["steps_per_s"], 2500.0);
    assert!(rows[1]["steps_per_s"].is_null());
    let keys: Vec<&str> = rows[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, columns.iter().collect::<Vec<_>>());

    insta::assert_snapshot!(comparison.export(&Question::default(), Format::Md).unwrap(), @r"
    | # | devices.num_gpus | status | devices | steps | train loss | last validation loss | best validation loss | train time | steps/s | rows/s vs #0 | logging | h2d | d2h |
    | ---: | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
    | 0 | 0 | finished | cpu | 3 | 1.000 | 0.5000 | 0.5000 in epoch 1 | 3.00 ms | 1000 | 1.00x | 0.30 % | 4 KiB | 12 B |
    | 1 | 1 | same as #0 |  |  |  |  |  |  |  |  |  |  |  |
    | 2 | 2 | finished | gpu:0 gpu:1 | 3 | 1.000 | 0.5000 | 0.5000 in epoch 1 | 3.00 ms | 2500 | 2.50x | 0.30 % | 4 KiB | 12 B |
    | 3 | 3 | unfinished |  | 1 | 4.000 |  |  |  |  |  |  |  |  |
    ");
}

/// Of one run a row for each figure, with the metrics that it logs.
#[test]
fn a_single_run_is_a_table_for_a_page() {
    let runs = Runs::new();
    runs.run("linreg/a_b", &FACTS);
    let logged = FACTS.spec().replace("[model]", "metrics = [\"loss\", \"mae\"]\n[model]");
    runs.write("linreg/a_b/spec.toml", &logged);
    runs.write(
        "linreg/a_b/metrics.csv",
        "step,epoch,split,rows,loss,mae,elapsed_s\n1,1,train,32,1.0,,0.1\n1,1,validation,32,0.5,0.25,0.1\n",
    );
    let exported = |format| runs.read(&["linreg"]).export(&Question::default(), format).unwrap();
    insta::assert_snapshot!(exported(Format::Md), @r"
    | # | linreg |
    | --- | ---: |
    | status | finished |
    | devices | cpu |
    | steps | 3 |
    | train loss | 1.000 |
    | last validation loss | 0.5000 |
    | best validation loss | 0.5000 in epoch 1 |
    | best epoch's mae | 0.2500 |
    | train time | 3.00 ms |
    | steps/s | 1000 |
    | logging | 0.30 % |
    | h2d | 4 KiB |
    | d2h | 12 B |
    ");
    insta::assert_snapshot!(exported(Format::Latex), @r"
    \begin{tabular}{lr}
    \toprule
    \# & linreg \\
    \midrule
    status & finished \\
    devices & cpu \\
    steps & 3 \\
    train loss & 1.000 \\
    last validation loss & 0.5000 \\
    best validation loss & 0.5000 in epoch 1 \\
    best epoch's mae & 0.2500 \\
    train time & 3.00 ms \\
    steps/s & 1000 \\
    logging & 0.30 \% \\
    h2d & 4 KiB \\
    d2h & 12 B \\
    \bottomrule
    \end{tabular}
    ");
}
