//! What stands beside a best loss is of the same validation, that of the weights which were kept.

use std::fs;

use serde_json::{Value, json};

use super::{FACTS, Runs};
use crate::process::Sandbox;

/// Two runs whose loss is lowest in their first epoch, and whose other metrics are highest in their last.
fn runs() -> Runs {
    let runs = Runs::new();
    for (name, lr, loss, f1) in [("a", "0.1", "0.4", "0.625"), ("b", "0.2", "0.3", "0.5")] {
        runs.run(&format!("linreg/{name}"), &FACTS);
        let logged = "[logging]\nmetrics = [\"loss\", \"accuracy\", \"f1\"]\n";
        let spec = FACTS.spec().replace("[logging]\n", logged);
        runs.write(&format!("linreg/{name}/spec.toml"), &format!("{spec}[optimizer.sgd]\nlr = {lr}\n"));
        let metrics = format!(
            "step,epoch,split,rows,loss,accuracy,f1,elapsed_s\n1,1,train,30,2.0,0.5,,0.1\n1,1,validation,9,{loss},0.75,{f1},0.1\n\
             3,2,train,30,1.0,0.5,,0.2\n3,2,validation,9,0.5,0.875,0.9375,0.2\n"
        );
        runs.write(&format!("linreg/{name}/metrics.csv"), &metrics);
        let summary = FACTS.summary(name).replace(",0.5,1,1,d1,", &format!(",{loss},1,1,d1,"));
        let summary = summary.replace(",1,0.5,,0.05,", ",1,0.5,0.875,0.05,");
        runs.write(&format!("linreg/{name}/summary.csv"), &summary);
    }
    runs
}

#[test]
fn exports_have_all_metrics_of_the_best_epoch() {
    let runs = runs();
    let place = Sandbox::new("");
    let export = |more: &[&str]| {
        let ended = place.runner(&[&["compare", &runs.named("linreg"), "--export"], more].concat());
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{more:?}");
        ended.stdout
    };
    // Ranked by what is in the column, not by the last validation, where both are equal.
    let json: Value = serde_json::from_str(&export(&["json", "--metric", "f1"])).unwrap();
    let columns =
        ["run", "best_value", "best_validation_loss", "best_validation_accuracy", "best_validation_f1"];
    let rows: Vec<Value> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|row| columns.iter().map(|column| row[column].clone()).collect())
        .collect();
    assert_eq!(rows, [json!(["a", 0.4, 0.4, 0.75, 0.625]), json!(["b", 0.3, 0.3, 0.75, 0.5])]);
    let csv = export(&["csv", "--metric", "train.accuracy"]);
    let end = |line: usize| csv.lines().nth(line).unwrap().rsplit(',').take(2).collect::<Vec<_>>().join(" ");
    assert_eq!([end(0), end(1)], ["final_train_accuracy best_validation_loss", "0.5 0.4"]);
    insta::assert_snapshot!(export(&["latex", "--metric", "f1"]), @r"
    \begin{tabular}{rrr}
    \toprule
    lr & validation f1 & vs best \\
    \midrule
    0.1 & 0.6250 & best \\
    0.2 & 0.5000 & $-$0.1250 \\
    \bottomrule
    \end{tabular}
    ");
    let store = place.path().join("store");
    place.runner(&["export", &runs.named("linreg/a"), "--mlflow", store.to_str().unwrap()]);
    let mut folder = store;
    for _ in 0..2 {
        let folders = fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path());
        folder = folders.filter(|path| path.is_dir()).min().unwrap();
    }
    let value = |name: &str| fs::read_to_string(folder.join("metrics").join(name)).unwrap();
    let best = |name: &str| {
        value(&format!("best_validation_{name}")).split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(["loss", "accuracy", "f1"].map(best), ["0.4 1", "0.75 1", "0.625 1"]);
}

#[test]
fn a_run_is_shown_at_its_best_epoch() {
    let runs = runs();
    let place = Sandbox::new("");
    let shown = runs.masked(&place.runner(&["show", &runs.named("linreg/a")]).stdout);
    insta::assert_snapshot!(shown.trim_end(), @r"
    RUNS/linreg/a
      seed: 0
      started: 1000.0
      command: runner

     #                                      1
     status                          finished
     devices                              cpu
     steps                                  3
     train loss                         1.000
     last validation loss              0.5000
     best validation loss   0.4000 in epoch 1
     best epoch's accuracy             75.0 %
     best epoch's f1                   0.6250
     train time                       3.00 ms
     steps/s                             1000
     logging                           0.30 %
     h2d                                4 KiB
     d2h                                 12 B
    ");
    let json: Value =
        serde_json::from_str(&place.runner(&["show", &runs.named("linreg/a"), "--json"]).stdout).unwrap();
    assert_eq!(
        json["best"],
        json!({ "validation.accuracy": 0.75, "validation.f1": 0.625, "validation.loss": 0.4 })
    );
    assert_eq!(json["last"], json!({ "validation.f1": 0.9375, "train.accuracy": 0.5 }));
    let page = |path: &str| {
        let out = place.path().join("page.html");
        let ended = place.runner(&["report", &runs.named(path), "-o", out.to_str().unwrap()]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        fs::read_to_string(out).unwrap()
    };
    let facts = page("linreg/a");
    for fact in
        ["<dt>best epoch&#39;s f1</dt><dd>0.6250</dd>", "<dt>best epoch&#39;s accuracy</dt><dd>75.0 %</dd>"]
    {
        assert!(facts.contains(fact), "{fact}");
    }
    assert!(!facts.contains("87.5 %"));
    assert!(page("linreg").contains(">last validation accuracy</th>"));
}

/// Filters and orders know the columns of an export, and the lowest come first.
#[test]
fn filters_know_what_exports_have() {
    let runs = runs();
    let said = |more: &[&str]| {
        let ended = Sandbox::new("").runner(&[&["compare", &runs.named("linreg")], more].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout
    };
    for (filter, is_a) in [
        ("best_validation_f1 > 0.6", true),
        ("best_validation_f1 < 0.6", false),
        ("final_validation_f1 > 0.9 and best_validation_loss = 0.4", true),
    ] {
        let name = if is_a { "a" } else { "b" };
        let path = format!("{}\n", runs.named(&format!("linreg/{name}")));
        assert!(said(&["--where", filter, "--detail"]).contains(&path), "{filter}");
    }
    let order = said(&["--sort", "f1", "--top", "1"]);
    let below =
        "\n  1 more setting: `--top 2` shows all\n  the lowest come first: `--sort=-f1` takes the best\n";
    assert!(order.contains(below), "{order}");
    assert!(!said(&["--sort=-f1", "--top", "1"]).contains("lowest"));
    assert!(!said(&["--sort", "loss", "--top", "1"]).contains("lowest"));
}
