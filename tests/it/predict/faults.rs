//! New rows that a model cannot use.

use super::*;

#[test]
fn wrong_rows_are_shown_with_their_place() {
    let model = Model::price();
    let header = "colour,place,width,height,depth,note\n";
    let good = "red,north,1,2,3,x\n".repeat(5000);
    let wrong = |text: String| {
        let path = model.write("wrong.csv", text);
        let ended = model.predict("wrong.csv").ended_by(2);
        ended.stderr.replace(&path.display().to_string(), "wrong.csv")
    };
    insta::assert_snapshot!(wrong(format!("{header}{good}pink,north,1,2,3,x\n{good}")), @r"
    weights: best.safetensors, of epoch 1, step 3
    warning: columns that the model does not use: `note`
    error: `pink` in column `colour` is not a category of the training file
        --> wrong.csv:5002:1
         |
    5002 | pink,north,1,2,3,x
         | ^
         |
         = hint: the training file has `blue`, `green`, `red`; `--unknown-category ignore` sets the column's inputs to 0
    ");
    insta::assert_snapshot!(wrong(format!("{header}{good}red,,1,2,3,x\n")), @r"
    weights: best.safetensors, of epoch 1, step 3
    warning: columns that the model does not use: `note`
    error: missing cell in column `place`, which has none in the training file
        --> wrong.csv:5002:5
         |
    5002 | red,,1,2,3,x
         |     ^
         |
         = hint: fill it in, or leave its row out; `--unknown-category ignore` sets the column's inputs to 0
    ");
    insta::assert_snapshot!(wrong(format!("{header}{good}red,north,1,2,a,x\n")), @r"
    weights: best.safetensors, of epoch 1, step 3
    warning: columns that the model does not use: `note`
    error: `a` in column `depth` is not a number
        --> wrong.csv:5002:15
         |
    5002 | red,north,1,2,a,x
         |               ^
         |
         = hint: the model was trained on numbers here: correct the cell
    ");
    insta::assert_snapshot!(wrong(format!("{header}red,north,1,2\n")), @r"
    weights: best.safetensors, of epoch 1, step 3
    error: 4 cells in this line: expected 6, as in the first
     --> wrong.csv:2:1
      |
    2 | red,north,1,2
      | ^^^^^^^^^^^^^
    ");
    insta::assert_snapshot!(wrong("colour,place,width\nred,north,1\n".to_owned()), @r"
    weights: best.safetensors, of epoch 1, step 3
    error: no columns `height`, `depth`, which the training file has
    --> wrong.csv
     = hint: the columns are `colour`, `place`, `width`
    ");
    insta::assert_snapshot!(wrong("colour;place;width\nred;north;1\n".to_owned()), @r"
    weights: best.safetensors, of epoch 1, step 3
    error: cells seem to be separated by ';'
    --> wrong.csv
     = hint: `--delimiter ';'` reads them; the training file has ','
    ");
    insta::assert_snapshot!(wrong("width,colour,place,width,height,depth\n1,red,north,1,2,3\n".to_owned()), @r"
    weights: best.safetensors, of epoch 1, step 3
    error: columns 1 and 4 are both named `width`
     --> wrong.csv:1:20
      |
    1 | width,colour,place,width,height,depth
      |                    ^
      |
      = hint: rename one of them
    ");
    insta::assert_snapshot!(wrong(String::new()), @r"
    weights: best.safetensors, of epoch 1, step 3
    error: an empty file: expected a line of column names
    --> wrong.csv
    ");
    insta::assert_snapshot!(wrong(format!("{header}red,north,1,2,\"3,x\n")), @r#"
    weights: best.safetensors, of epoch 1, step 3
    error: a quoted cell is never closed
     --> wrong.csv:2:15
      |
    2 | red,north,1,2,"3,x
      |               ^
      |
      = hint: close it with `"`; within quotes a quote is written `""`
    "#);
    insta::assert_snapshot!(model.predict("none.csv").stderr, @r"
    weights: best.safetensors, of epoch 1, step 3
    error: cannot read `none.csv`: no such file or directory
    ");
    insta::assert_snapshot!(model.predict(".").stderr, @r"
    weights: best.safetensors, of epoch 1, step 3
    error: cannot read `.`: is a directory
    ");
}

/// Cells that are no numbers, unknown categories and missing ones are named together, in the order of the file.
#[test]
fn all_that_is_wrong_is_shown_at_once() {
    let model = Model::price();
    let rows = "red,north,1,2,inf\npink,north,1,2,3\nred,,1,2,3\nred,north,1,2,3\nred,north,x,2,3\n";
    let path = model.write("wrong.csv", format!("colour,place,width,height,depth\n{rows}"));
    let ended = model.predict("wrong.csv");
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    let errors = ended.stderr.replace(&path.display().to_string(), "wrong.csv");
    let errors: Vec<&str> =
        errors.lines().filter(|line| line.starts_with("error: ") || line.contains("--> ")).collect();
    assert_eq!(
        errors,
        [
            "error: `inf` in column `depth` is not a finite number",
            " --> wrong.csv:2:15",
            "error: `pink` in column `colour` is not a category of the training file",
            " --> wrong.csv:3:1",
            "error: missing cell in column `place`, which has none in the training file",
            " --> wrong.csv:4:5",
            "error: `x` in column `width` is not a number",
            " --> wrong.csv:6:11",
            "error: 4 problems",
        ]
    );
}

/// No rows have no predictions, which is a table, too; but they have no metrics. A wrong column is still found.
#[test]
fn a_table_without_rows() {
    let model = Model::price();
    let path = model.write("none.csv", "colour,place,width,height,depth,price\n");
    let ended = model.predict("none.csv");
    assert_eq!((ended.code, &ended.stdout[..]), (Some(0), "prediction\n"));
    insta::assert_snapshot!(ended.stderr, @r"
    weights: best.safetensors, of epoch 1, step 3
    warning: no rows to predict
    ");
    let out = model.place.path().join("out.csv");
    let ended = model.place.runner(&["predict", &model.run, "none.csv", "-o", "out.csv"]);
    assert_eq!((ended.code, &fs::read_to_string(out).unwrap()[..]), (Some(0), "prediction\n"));
    let ended = model.place.runner(&["evaluate", &model.run, "none.csv"]);
    assert_eq!((ended.code, &ended.stdout[..]), (Some(2), ""));
    insta::assert_snapshot!(ended.stderr.replace(&path.display().to_string(), "none.csv"), @r"
    weights: best.safetensors, of epoch 1, step 3
    error: a header and no rows
    --> none.csv
    ");
    model.write("none.csv", "colour,place,width,height\n");
    let ended = model.predict("none.csv");
    assert!(
        ended.code == Some(2) && ended.stderr.contains("no column `depth`, which the training file has"),
        "{ended:?}"
    );
}

/// If training dropped rows with missing cells, `evaluate` drops them too; `predict` needs an answer for each
/// row, so it rejects them.
#[test]
fn missing_cells_follow_the_spec() {
    let model =
        Model::new(&spec("price", "kind", 1, "mse").replace("\"mean\"", "\"drop\"").replace("init = ", "# "));
    let ended = model.predict("new.csv").ended_by(2);
    assert!(ended.stderr.contains("the first of 64 such cells in column `depth`"), "{}", ended.stderr);
    let ended = model.place.runner(&["evaluate", &model.run, "new.csv"]).ended_by(0);
    let line = "warning: rows left out for missing cells, as in training: 124";
    assert!(ended.stderr.lines().any(|found| found == line), "{}", ended.stderr);
    assert_eq!(model.evaluated(&["new.csv"])["rows"], 700 - 124);
    let path = model
        .write("holes.csv", "colour,place,width,height,depth,price\nred,north,,2,3,4\nred,north,1,2,NA,4\n");
    let ended = model.place.runner(&["evaluate", &model.run, "holes.csv"]);
    assert_eq!((ended.code, &ended.stdout[..]), (Some(2), ""));
    let shown = ended.stderr.replace(&path.display().to_string(), "holes.csv");
    insta::assert_snapshot!(shown, @r#"
    weights: best.safetensors, of epoch 1, step 3
    error: all 2 rows have missing cells
    --> holes.csv
     = hint: `data.csv.missing = "mean"` fills them, `data.csv.ignore` leaves columns out
    "#);
}

/// Values that overflow f32 after standardization, and outputs that are not finite.
#[test]
fn what_is_not_finite_is_no_class() {
    let model = Model::kind();
    let header = "colour,place,width,height,depth,kind,price\n";
    let path =
        model.write("large.csv", format!("{header}red,north,1,2,3,large,4\nred,north,1,2,1e38,large,4\n"));
    for command in ["predict", "evaluate"] {
        let ended = model.place.runner(&[command, &model.run, "large.csv"]);
        assert_eq!((ended.code, &ended.stdout[..]), (Some(2), ""));
        let shown = ended.stderr.replace(&path.display().to_string(), "large.csv");
        assert!(
            shown.contains("`1e38` in column `depth` is too large for f32 once it is standardized"),
            "{shown}"
        );
        assert!(shown.contains("large.csv:3:15"), "{shown}");
    }
    let spec = spec("kind", "price", 3, "cross_entropy");
    let spec = spec.replace("standardize_target", "standardize = false\nstandardize_target");
    let file = format!("{{ file = \"{FIXTURES}/kind.safetensors\" }}");
    let spec = spec.replace(&file, "{ normal = { std = 100.0 } }").replace("{ layer_norm = {} }", "\"relu\"");
    let spec = spec.replace("\"tanh\"", "\"relu\"");
    let model = Model::new(&spec);
    let good = "red,north,1,2,3,large,4\n";
    model.write("large.csv", format!("{header}{good}red,north,3e38,3e38,3e38,large,4\n{good}"));
    let ended = model.predict("large.csv").ended_by(0);
    let line = "warning: rows with an output that is not a finite number: 1";
    assert_eq!(ended.stderr.lines().filter(|found| *found == line).count(), 1, "{ended:?}");
    let found = Table::read(&ended.stdout);
    assert_eq!(found.column("class")[1], "");
    assert_eq!(ended.stdout.lines().nth(2), Some(",NaN,NaN,NaN"));
    assert!(!found.column("class")[0].is_empty() && !found.column("class")[2].is_empty());
    let evaluated = model.place.runner(&["evaluate", &model.run, "large.csv"]).ended_by(0);
    assert!(evaluated.stderr.contains(line) && evaluated.stdout.contains("\nauc "), "{evaluated:?}");
}
