//! New rows unlike those that the model was trained on.

use std::fs;

use super::{super::process::Sandbox, Model};

/// A run on the categories `a` and `b`, and 1, 2 and 10; none of them was missing.
fn of_categories() -> (Sandbox, String) {
    of_categories_with(&[], |table| table)
}

/// The same with overrides, and the table otherwise written.
fn of_categories_with(overrides: &[&str], written: impl Fn(String) -> String) -> (Sandbox, String) {
    let place = Sandbox::new(
        "[data.csv]\npath = \"t.csv\"\ntarget = \"y\"\ncategorical = [\"kind\", \"floor\"]\nmissing = \"mean\"\n\
         [model]\nloss = \"mse\"\nlayers = [{ linear = { out_features = 1 } }]\n\
         [optimizer.sgd]\nlr = 0.01\n[trainer]\nmax_epochs = 3\n",
    );
    let row = |n: usize| format!("{}.5,{},{},{}.25\n", n % 7, ["a", "b"][n % 2], [1, 2, 10][n % 3], n % 9);
    let rows: String = (0..60).map(row).collect();
    fs::write(place.path().join("t.csv"), written(format!("x,kind,floor,y\n{rows}"))).unwrap();
    let run = place.run(&[&["-q"], overrides].concat()).ended_by(0).0.display().to_string();
    (place, run)
}

/// Without a way out, an error names it; with it, all inputs of the column are 0, and the rows are counted.
#[test]
fn categories_that_training_did_not_have() {
    let (place, run) = of_categories();
    let apply = |command: &str, rows: &str, more: &[&str]| {
        fs::write(place.path().join("n.csv"), format!("x,kind,floor,y\n{rows}")).unwrap();
        place.runner(&[&[command, &run, "n.csv"], more].concat())
    };
    let rows = "1.5,c,1,2\n1.5,,2,2\n1.5,a,10,2\n";
    let refused = apply("predict", rows, &[]).ended_by(2);
    let file = place.path().join("n.csv").display().to_string();
    insta::assert_snapshot!(refused.stderr.replace(&file, "n.csv"), @r"
    weights: best.safetensors, of epoch 3, step 6
    error: `c` in column `kind` is not a category of the training file
     --> n.csv:2:5
      |
    2 | 1.5,c,1,2
      |     ^
      |
      = hint: the training file has `a`, `b`; `--unknown-category ignore` sets the column's inputs to 0

    error: missing cell in column `kind`, which has none in the training file
     --> n.csv:3:5
      |
    3 | 1.5,,2,2
      |     ^
      |
      = hint: fill it in, or leave its row out; `--unknown-category ignore` sets the column's inputs to 0

    error: 2 problems
    ");
    let ignore = ["--unknown-category", "ignore"];
    let warning = "warning: `kind`: 2 of 3 rows have no category of the training file, so its inputs are 0\n";
    for command in ["predict", "evaluate"] {
        let taken = apply(command, rows, &ignore).ended_by(0);
        assert!(taken.stderr.ends_with(warning), "{taken:?}");
    }
    // The model is linear: its inputs of `kind` are 0, and so add nothing.
    let predictions = |rows: &str| -> Vec<f64> {
        let text = apply("predict", rows, &ignore).stdout;
        text.lines().skip(1).map(|line| line.parse().unwrap()).collect()
    };
    let found = predictions("1.5,c,1,0\n1.5,,1,0\n1.5,a,1,0\n1.5,a,nine,0\n1.5,c,nine,0\n");
    assert_eq!(found[0], found[1]);
    assert!((found[2] - found[0] - (found[3] - found[4])).abs() < 1e-4, "{found:?}");
    assert!((found[2] - found[0]).abs() > 1e-3, "{found:?}");
}

/// Where training never lacked a number, the mean is taken with a warning.
#[test]
fn numbers_that_training_never_lacked() {
    for standardize in ["data.csv.standardize=true", "data.csv.standardize=false"] {
        let (place, run) = of_categories_with(&[standardize], |table| table);
        fs::write(place.path().join("n.csv"), "x,kind,floor\n,a,1\n3.5,a,1\nNA,a,1\n").unwrap();
        let ended = place.runner(&["predict", &run, "n.csv"]).ended_by(0);
        let words = "warning: `x`: 2 of 3 rows have no number, which the training file never lacks: they take the mean\n";
        assert!(ended.stderr.ends_with(words), "{standardize}: {}", ended.stderr);
        let found: Vec<&str> = ended.stdout.lines().skip(1).collect();
        assert!(found[0] == found[2] && found[0] != found[1], "{found:?}");
    }
    // One that training lacked somewhere is no news.
    for standardize in ["data.csv.standardize=true", "data.csv.standardize=false"] {
        let (place, run) = of_categories_with(&[standardize], |table| table.replacen("0.5,", ",", 1));
        fs::write(place.path().join("n.csv"), "x,kind,floor\n,a,1\n").unwrap();
        let ended = place.runner(&["predict", &run, "n.csv"]).ended_by(0);
        assert!(!ended.stderr.contains("never lacks"), "{standardize}: {}", ended.stderr);
    }
}

/// Values far from the training rows are counted, a column at a time, on standard error alone.
#[test]
fn values_far_from_the_training_rows() {
    let model = Model::price();
    let header = "colour,place,width,height,depth\n";
    let row = |n: usize| {
        let (width, height) = (if n < 12 { "1e6" } else { "1.5" }, if n == 3 { "-1e9" } else { "-90" });
        format!("red,north,{width},{height},0.0035\n")
    };
    model.write("far.csv", format!("{header}{}", (0..500).map(row).collect::<String>()));
    let ended = model.predict("far.csv").ended_by(0);
    let words = "warning: `width`: 12 of 500 values lie more than 10 standard deviations from the training rows' mean\n\
                 warning: `height`: 1 of 500 values lies more than 10 standard deviations from the training rows' mean\n";
    assert!(ended.stderr.ends_with(words), "{}", ended.stderr);
    assert_eq!(ended.stdout.lines().count(), 501);
    assert!(!model.predict("new.csv").stderr.contains("standard deviations"));
}

/// A feature with one value in training is not standardized by its deviation.
#[test]
fn values_that_training_did_not_have() {
    let once = |table: String| {
        let lines = table.lines().map(|line| line.split_once(',').map_or(line, |(_, rest)| rest));
        lines
            .map(|line| if line.starts_with("kind") { format!("x,{line}\n") } else { format!("2,{line}\n") })
            .collect()
    };
    let (place, run) = of_categories_with(&[], once);
    fs::write(place.path().join("n.csv"), "x,kind,floor\n2,a,1\n2.5,a,1\n").unwrap();
    let ended = place.runner(&["predict", &run, "n.csv"]).ended_by(0);
    let words = "warning: `x`: 1 of 2 values is not the one that all training rows have: the model has learned nothing of it\n";
    assert!(ended.stderr.ends_with(words), "{}", ended.stderr);
}

/// Plain numbers are compared as numbers; codes such as `01` and `1e1` are not.
#[test]
fn categories_that_are_numbers() {
    let (place, run) = of_categories();
    let predicted = |rows: &str| {
        fs::write(place.path().join("n.csv"), format!("x,kind,floor\n{rows}")).unwrap();
        place.runner(&["predict", &run, "n.csv"])
    };
    let plain = predicted("1.5,a,1\n1.5,a,2\n1.5,a,10\n");
    let others = predicted("1.5,a,1.0\n1.5,a,2.00\n1.5,a,10.0\n");
    assert_eq!((plain.code, &plain.stdout), (Some(0), &others.stdout));
    for code in ["1.5", "01", "1e1", "+2"] {
        let words = format!("`{code}` in column `floor` is not a category");
        assert!(predicted(&format!("1.5,a,{code}\n")).stderr.contains(&words), "{code}");
    }
}

/// Also where decimals come after commas, as pandas writes `1,0` for what was `1` before a cell was missing.
#[test]
fn categories_that_are_numbers_with_commas() {
    let marked = |text: String| text.replace(',', ";").replace('.', ",");
    let (place, run) = of_categories_with(&["data.csv.decimal=','", "data.csv.delimiter=';'"], marked);
    let predicted = |rows: &str| {
        fs::write(place.path().join("n.csv"), format!("x;kind;floor\n{rows}")).unwrap();
        place.runner(&["predict", &run, "n.csv"]).ended_by(0).stdout
    };
    let plain = predicted("1,5;a;1\n1,5;a;2\n1,5;a;10\n");
    assert_eq!(plain, predicted("1,5;a;1,0\n1,5;a;2,00\n1,5;a;10,0\n"));
}

/// A file with none of the columns gets one message.
#[test]
fn a_file_of_other_columns() {
    let model = Model::price();
    let path = model.write("other.csv", "a,b,colours\n1,2,red\n");
    let ended = model.predict("other.csv");
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    insta::assert_snapshot!(ended.stderr.replace(&path.display().to_string(), "other.csv"), @r"
    weights: best.safetensors, of epoch 1, step 3
    error: no columns `width`, `height`, `depth`, `place`, which the training file has
    --> other.csv
     = hint: the columns are `a`, `b`, `colours`

    error: no column `colour`, which the training file has
    --> other.csv
     = hint: did you mean `colours`?

    error: 2 problems
    ");
}

/// The same rows as the training file's, with other marks: predictions are the same once these are named.
#[test]
fn rows_with_other_marks() {
    let (place, run) = of_categories();
    let plain = fs::read_to_string(place.path().join("t.csv")).unwrap();
    let marked = plain.replace(',', ";").replace('.', ",");
    for (name, text) in [("eu.csv", &marked), ("tabs.csv", &plain.replace(',', "\t"))] {
        fs::write(place.path().join(name), text).unwrap();
    }
    let apply = |words: &[&str]| place.runner(&[&[words[0], &run, words[1], "-q"], &words[2..]].concat());
    let [of_plain, of_marked, of_tabs] = [
        apply(&["predict", "t.csv"]),
        apply(&["predict", "eu.csv", "--delimiter", ";", "--decimal", ","]),
        apply(&["predict", "tabs.csv", "--delimiter", "\\t"]),
    ];
    assert_eq!((of_plain.code, of_plain.stdout.lines().count()), (Some(0), 61), "{of_plain:?}");
    assert!(of_plain.stderr.contains("`y`") == of_marked.stderr.contains("`y`"), "{of_marked:?}");
    assert_eq!((&of_marked.stdout, &of_tabs.stdout), (&of_plain.stdout, &of_plain.stdout));
    let marks = ["evaluate", "eu.csv", "--json", "--delimiter=;", "--decimal=,"];
    assert_eq!(apply(&marks).stdout, apply(&["evaluate", "t.csv", "--json"]).stdout);
    let refused = |words: &[&str]| {
        let ended = apply(words).ended_by(2);
        ended.stderr.replace(&format!("{}/", place.path().display()), "")
    };
    insta::assert_snapshot!(refused(&["predict", "eu.csv"]), @r"
    error: cells seem to be separated by ';'
    --> eu.csv
     = hint: `--delimiter ';'` reads them; the training file has ','
    ");
    fs::write(place.path().join("mixed.csv"), "x;kind;floor\n1,5;a;1,5\n").unwrap();
    insta::assert_snapshot!(refused(&["predict", "mixed.csv", "--delimiter=;"]), @r"
    error: `1,5` in column `x` is not a number
     --> mixed.csv:2:1
      |
    2 | 1,5;a;1,5
      | ^
      |
      = hint: write decimals with a point, thousands without a mark; or `--decimal ,` if all decimals come after commas

    error: `1,5` in column `floor` is not a category of the training file
     --> mixed.csv:2:7
      |
    2 | 1,5;a;1,5
      |       ^
      |
      = hint: the training file has `1`, `10`, `2`; `--unknown-category ignore` sets the column's inputs to 0

    error: 2 problems
    ");
    // The message has the cell as the file has it.
    insta::assert_snapshot!(refused(&["predict", "mixed.csv", "--delimiter=;", "--decimal=,"]), @r"
    error: `1,5` in column `floor` is not a category of the training file
     --> mixed.csv:2:7
      |
    2 | 1,5;a;1,5
      |       ^
      |
      = hint: the training file has `1`, `10`, `2`; `--unknown-category ignore` sets the column's inputs to 0
    ");
    insta::assert_snapshot!(refused(&["predict", "eu.csv", "--delimiter=ab"]), @r"
    error: invalid value 'ab' for '--delimiter <CHARACTER>': expected one ASCII character that separates cells, such as `;`

    For more information, try '--help'.
    ");
}
