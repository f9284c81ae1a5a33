//! `runner new csv --from DATA`: drafts specs from tables; the drafts check and train without changes.

use std::fs;

use super::process::{Ended, Sandbox};

const PENGUINS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/data/penguins.csv");
const DIABETES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/data/diabetes.csv");

/// The drafted spec, which must pass `check`.
pub fn drafted(place: &Sandbox, arguments: &[&str]) -> String {
    let schema = place.path().join("runner.schema.json");
    let _ = [place.path().join("spec.toml"), schema.clone()].map(fs::remove_file);
    let ended = place.runner(&[&["new", "csv", "spec.toml", "--from"], arguments].concat());
    let taken = ended.stderr.starts_with("the target is the last column, `");
    assert_eq!(taken, !arguments.contains(&"--target"), "{ended:?}");
    assert_eq!(
        ended.stderr.lines().last().unwrap().to_owned() + "\n",
        "wrote spec.toml and runner.schema.json for editors; next: runner check spec.toml\n"
    );
    assert_eq!(fs::read_to_string(schema).unwrap(), place.runner(&["schema"]).stdout);
    let checked = place.runner(&["check", "spec.toml"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let text = fs::read_to_string(place.path().join("spec.toml")).unwrap();
    let (schema, text) = text.split_once("> runner.schema.json\n").unwrap();
    assert!(schema.starts_with("#:schema runner.schema.json\n# "), "{schema}");
    text.to_owned()
}

/// File names that cannot name a folder, and tables in a subfolder.
#[test]
fn a_spec_lies_anywhere() {
    let place = Sandbox::new("");
    let [data, folder] = ["a b/rows/d.csv", "a b"].map(|name| place.path().join(name));
    fs::create_dir_all(data.parent().unwrap()).unwrap();
    fs::copy(DIABETES, &data).unwrap();
    let ended = place.runner(&["new", "csv", "a b/my spec.toml", "--from", "a b/rows/d.csv"]);
    assert_eq!(
        ended.stderr,
        "the target is the last column, `progression`; `--target COLUMN` names another column\n\
         wrote a b/my spec.toml and runner.schema.json for editors; next: runner check 'a b/my spec.toml'\n"
    );
    // A schema that is there may be another version's, on purpose.
    fs::write(folder.join("runner.schema.json"), "{}").unwrap();
    let ended = place.runner(&["new", "linreg", "a b/b.toml"]);
    assert_eq!(ended.stderr, "wrote a b/b.toml; next: runner check 'a b/b.toml'\n");
    assert_eq!(fs::read_to_string(folder.join("runner.schema.json")).unwrap(), "{}");
    let text = fs::read_to_string(folder.join("my spec.toml")).unwrap();
    assert!(text.contains("name = \"my_spec\"\n") && text.contains("path = \"rows/d.csv\"\n"), "{text}");
    let checked = place.runner(&["check", "a b/my spec.toml"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

#[test]
fn a_table_with_text_and_missing_cells() {
    let place = Sandbox::new("");
    fs::copy(PENGUINS, place.path().join("penguins.csv")).unwrap();
    insta::assert_snapshot!(drafted(&place, &["penguins.csv", "--target", "species"]), @r#"
    # Drafted for penguins.csv: 344 rows, 8 columns. Every line may be changed.
    name = "spec"

    [data]
    batch_size = 16
    # each class has its share of the rows to validate on; `test = 0.1` would keep rows from every run, for `runner evaluate RUN`
    split = { stratify = true }

    [data.csv]
    path = "penguins.csv"
    target = "species"    # 3 classes
    # numbers: "bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g", "year"
    categorical = ["island", "sex"]    # text, a column of 0 and 1 for each value
    missing = "mean"    # fills 8 missing cells, takes 11 of text as a category; "drop" leaves 11 rows out
    standardize = true    # features to mean 0 and deviation 1

    [model]
    layers = [
        { linear = { out_features = 16 } },
        "relu",
        { linear = { out_features = 3 } },
    ]
    loss = "cross_entropy"    # the target holds classes

    [optimizer.adamw]
    lr = 0.003

    [trainer]
    max_epochs = 100
    early_stopping = { patience = 10 }    # epochs without a better validation; the best weights are kept

    [checkpoint]
    every_minutes = 1.0    # `runner run --resume RUN` goes on after a kill

    [logging]
    metrics = ["loss", "accuracy", "f1"]    # confusion.csv comes with f1
    "#);
    let ran = place.run(&["-q", "data.batch_size=64"]).ended_by(0);
    assert!(ran.summary("final_validation_accuracy").parse::<f64>().unwrap() > 0.95);
    assert!(ran.text("confusion.csv").starts_with("actual,Adelie,Chinstrap,Gentoo\n"));
}

#[test]
fn a_quantity() {
    let place = Sandbox::new("");
    let text = drafted(&place, &[DIABETES]);
    let expected = "target = \"progression\"    # a quantity\n# numbers: ";
    assert!(text.contains(expected) && text.contains("standardize_target = true"), "{text}");
    let ran = place.run(&["-q"]).ended_by(0);
    assert!(ran.summary("best_value").parse::<f64>().unwrap() < 0.6);
    let errors = ran.metrics().only("split", "validation").f64s("mae");
    assert!(errors.iter().all(|mae| (30.0..200.0).contains(mae)), "in the units of the file: {errors:?}");
}

/// Columns named in one option or in several; a name may contain a comma.
#[test]
fn several_quantities() {
    let place = Sandbox::new("");
    let row = |n: u32| format!("{}.5,{},{},w{}\n", n % 13, n % 3, n % 13 * 2, n % 2);
    let rows: String = (0..90).map(row).collect();
    fs::write(place.path().join("two.csv"), format!("x,y,\"z, in mm\",word\n{rows}")).unwrap();
    let text = drafted(&place, &["two.csv", "--target", "y", "--target", "z, in mm"]);
    let expected = "target = [\"y\", \"z, in mm\"]    # quantities, an output for each\n# numbers: \"x\"\ncategorical = [\"word\"]";
    assert!(text.contains(expected) && text.contains("out_features = 2 }"), "{text}");
    place.run(&["-q", "data.split.test=0.1"]).ended_by(0);
    assert!(drafted(&place, &["two.csv", "--target", "x, y"]).contains("target = [\"x\", \"y\"] "));
    let refused = place.runner(&["new", "csv", "--from", "two.csv", "--target", "y,word"]);
    let words = "error: `word` cannot be predicted: it holds text, and several targets are numbers\n";
    assert!(refused.code == Some(2) && refused.stderr.starts_with(words), "{refused:?}");
}

/// Semicolons, no header, a counter, a constant, prose, odd cells, a target with gaps, names that need
/// quotes.
#[test]
fn columns_that_do_not_help_are_left_out() {
    let place = Sandbox::new("");
    let row = |n: usize| {
        let odd = if n == 7 { "n.k.".to_owned() } else { format!("{}.5", n % 13) };
        let target = if n.is_multiple_of(9) { "" } else { ["1", "2"][n % 2] };
        format!("{n};5;word {n};{odd};{};{target}\n", n * n % 17)
    };
    fs::write(place.path().join("a.csv"), (1..=60).map(row).collect::<String>()).unwrap();
    let text = drafted(&place, &["a.csv"]);
    insta::assert_snapshot!(text.split("\n[model]").next().unwrap(), @r#"
    # Drafted for a.csv: 60 rows, 6 columns. Every line may be changed.
    name = "spec"

    [data]
    batch_size = 16
    # each class has its share of the rows to validate on; `test = 0.1` would keep rows from every run, for `runner evaluate RUN`
    split = { stratify = true }

    [data.csv]
    path = "a.csv"
    target = "5"    # 2 whole numbers, taken for classes; as a quantity: loss = "mse" and out_features = 1
    # numbers: "4"
    # `0` is left out: it counts the rows
    # `1` is left out: all its values are equal
    # `2` is left out: it has 60 different texts, such as `word 1`: too many for categories
    # `3` is left out: 1 of its 60 cells is `n.k.`, which is no finite number; `missing_values` names texts that stand for missing ones
    ignore = ["0", "1", "2", "3"]
    missing = "mean"    # drops 6 rows without a target
    delimiter = ";"
    header = false    # columns are named "0", "1" and so on
    standardize = true    # features to mean 0 and deviation 1
    "#);
    let named: String = (1..=20).map(|n| format!("{n}.5\t\"{}\"\n", ["a", "b"][n % 2])).collect();
    fs::write(place.path().join("b.csv"), format!("\"a \"\"b\"\"\"\t\"c\\d\"\n{named}")).unwrap();
    let text = drafted(&place, &["b.csv"]);
    assert!(text.contains("target = 'c\\d'") && text.contains("delimiter = \"\\t\""), "{text}");
}

/// The terminal names the columns that the draft leaves out, with reasons that hold for their cells.
#[test]
fn the_terminal_names_columns_that_are_left_out() {
    let place = Sandbox::new("");
    let row = |n: usize| {
        let odd = if n.is_multiple_of(8) { "n.k.".to_owned() } else { format!("{}.5", n % 71) };
        let two = ["-", "few", "0.5", "1.5", "2.5"][n % 5];
        format!("{odd},{two},2024-01-{n},{n}%,\"1,{n}\",{}.5,{n}.25\n", n % 7)
    };
    let rows: String = (100..180).map(row).collect();
    fs::write(place.path().join("odd.csv"), format!("a,two,date,share,price,x,y\n{rows}")).unwrap();
    let ended = place.runner(&["new", "csv", "spec2.toml", "--from", "odd.csv", "--target", "y"]);
    insta::assert_snapshot!(ended.stderr, @r"
    `a` is left out: 10 of its 80 cells are `n.k.`, which is no finite number; `missing_values` names texts that stand for missing ones
    `two` is left out: 32 of its 80 cells are no finite numbers, such as `-`; `missing_values` names texts that stand for missing ones
    `date` is left out: it has 80 different texts, such as `2024-01-100`: too many for categories
    `share` is left out: its numbers have signs beside them, such as `100%`, which are not read
    `price` is left out: its numbers have commas, such as `1,100` in line 2, which are not read; write decimals with a point, thousands without a mark; `--decimal ,` if decimals come after commas
    wrote spec2.toml and runner.schema.json for editors; next: runner check spec2.toml
    ");
    // The way out: the column is a feature, and what stands for a missing value is filled.
    let ways = ["data.csv.missing=mean", "data.csv.missing_values=[\"n.k.\"]"];
    let ignored = "data.csv.ignore=[\"two\", \"date\", \"share\", \"price\"]";
    let checked = place.runner(&["check", "spec2.toml", ways[0], ways[1], ignored]);
    assert!(checked.stdout.contains("filled 10 missing cells of `a` with "), "{checked:?}");
    // Of many columns only the first are named.
    let names: String = (0..12).map(|n| format!("c{n},")).collect();
    let wide: String = (0..30).map(|n| format!("{}{}.5,{n}.25\n", "1,".repeat(12), n * 7 % 30)).collect();
    fs::write(place.path().join("wide.csv"), format!("{names}x,y\n{wide}")).unwrap();
    let told = place.runner(&["new", "csv", "--from", "wide.csv", "--target", "y"]).stderr;
    let last = "`c9` is left out: all its values are equal\n\
                2 more are left out: the draft has their names and the reasons\n";
    assert!(told.ends_with(last) && told.lines().count() == 11, "{told}");
}

/// `-` is standard output, as when no file is named.
#[test]
fn a_draft_for_standard_output() {
    let place = Sandbox::new("");
    fs::copy(DIABETES, place.path().join("d.csv")).unwrap();
    for words in [&["new", "csv", "-", "--from", "d.csv"][..], &["new", "sweep", "-"]] {
        let (dashed, plain) = (
            place.runner(words),
            place.runner(&words.iter().copied().filter(|word| *word != "-").collect::<Vec<_>>()),
        );
        assert_eq!((dashed.code, &dashed.stdout, &dashed.stderr), (Some(0), &plain.stdout, &plain.stderr));
        assert!(dashed.stdout.starts_with("#:schema ") && !dashed.stderr.contains("next:"), "{dashed:?}");
    }
    let refused = place.runner(&["new", "csv", "draft.toml", "--from", "-"]);
    assert!(
        refused.code == Some(2) && refused.stderr.contains("`-` is no file here: name one"),
        "{refused:?}"
    );
    assert!(!place.path().join("-").exists() && !place.path().join("draft.toml").exists());
}

/// A table as pandas writes it, with a nameless index column. A spec next to its table refers to it by file
/// name.
#[test]
fn a_header_may_lack_the_name_of_an_index() {
    let place = Sandbox::new("");
    fs::create_dir(place.path().join("sub")).unwrap();
    let rows: String = (0..40).map(|n| format!("{n},{}.5,{}\n", n % 7, ["no", "yes"][n % 2])).collect();
    fs::write(place.path().join("sub/pandas.csv"), format!(",a,y\n{rows}")).unwrap();
    let ended = place.runner(&["new", "csv", "sub/spec.toml", "--from", "sub/pandas.csv"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let text = fs::read_to_string(place.path().join("sub/spec.toml")).unwrap();
    let expected = "path = \"pandas.csv\"\ntarget = \"y\"    # 2 classes\n# numbers: \"a\"\n# `` is left out: it has no name\nignore = [\"\"]\n";
    assert!(text.contains(expected) && text.contains("\nname = \"spec\"\n"), "{text}");
    assert_eq!(place.runner(&["check", "sub/spec.toml"]).code, Some(0));
}

/// Nothing is held out of a few rows; the draft checks and trains whatever the table's length.
#[test]
fn a_table_of_few_rows() {
    let place = Sandbox::new("");
    let [stopping, none] = ["early_stopping = { patience = 10 }", "validation_fraction = 0.0"];
    for rows in [2, 3, 4, 5, 9, 10, 11, 20, 30] {
        for target in ["y", "kind"] {
            let row = |n: usize| format!("{}.5,{}.25,{}\n", n % 7, 3 * n, ["a", "b"][n % 2]);
            fs::write(
                place.path().join("few.csv"),
                "x,y,kind\n".to_owned() + &(0..rows).map(row).collect::<String>(),
            )
            .unwrap();
            if target == "kind" && rows < 4 {
                continue; // each row has another class
            }
            let text = drafted(&place, &["few.csv", "--target", target]);
            assert_eq!([stopping, none].map(|words| text.contains(words)), [rows >= 10, rows < 10], "{text}");
            let ran = place.run(&["-q"]).ended_by(0);
            assert_eq!(ran.summary("status"), "finished");
            let validations = ran.metrics().only("split", "validation").rows.len();
            assert_eq!(validations > 0, rows >= 10, "{rows} rows");
            assert_eq!(ran.summary("epochs") == "100", rows < 10 || validations == 100, "{rows} rows");
            if rows >= 10 {
                let folds = place.run(&["-q", "data.folds=5", "data.fold=0..5", "trainer.max_epochs=2"]);
                assert_eq!(folds.ended.code, Some(0), "{:?}", folds.ended);
            }
        }
    }
    let text = drafted(&place, &["few.csv", "--target", "y"]);
    assert!(
        text.contains(
            "\n# a fifth of few rows validates; `data.folds=5 data.fold=0..5` takes each fifth in turn\n"
        ),
        "{text}"
    );
    fs::write(place.path().join("few.csv"), "x,y\n0.5,1\n1.5,3\n2.5,5\n").unwrap();
    insta::assert_snapshot!(drafted(&place, &["few.csv"]), @r#"
    # Drafted for few.csv: 3 rows, 2 columns. Every line may be changed.
    name = "spec"

    [data]
    batch_size = 16

    [data.csv]
    path = "few.csv"
    target = "y"    # a quantity
    # numbers: "x"
    standardize = true    # features to mean 0 and deviation 1
    standardize_target = true    # losses are in the target's deviations
    validation_fraction = 0.0    # too few rows to hold some out

    [model]
    layers = [
        { linear = { out_features = 16 } },
        "relu",
        { linear = { out_features = 1 } },
    ]
    loss = "mse"    # "l1" and "huber" mind outliers less

    [optimizer.adamw]
    lr = 0.003

    [trainer]
    max_epochs = 100    # without validation nothing stops it earlier

    [checkpoint]
    every_minutes = 1.0    # `runner run --resume RUN` goes on after a kill
    "#);
}

#[test]
fn what_cannot_be_drafted() {
    let place = Sandbox::new("");
    fs::write(place.path().join("one.csv"), "a,b\n1,2\n").unwrap();
    fs::write(place.path().join("uneven.csv"), "a,b\n1,2\n3\n").unwrap();
    fs::write(place.path().join("names.csv"), "a,b\n1,x\n2,y\n3,z\n").unwrap();
    fs::write(place.path().join("churn.csv"), "age,churned\n1,2\n").unwrap();
    fs::write(place.path().join("empty.csv"), "").unwrap();
    fs::write(place.path().join("twice.csv"), "a,a,y\n1,2,3\n").unwrap();
    let texts: String = (0..3000).map(|n| format!("{n}.5,text {n}\n")).collect();
    fs::write(place.path().join("texts.csv"), format!("a,b\n{texts}")).unwrap();
    let huge: String =
        (0..40).map(|n| format!("{},{n}.25\n", if n == 9 { "1e400" } else { "0.5" })).collect();
    fs::write(place.path().join("huge.csv"), format!("a,b\n{huge}")).unwrap();
    let commas: String = (1..41).map(|n| format!("{n},250;{n},500\n")).collect();
    fs::write(place.path().join("commas.csv"), format!("a;b\n{commas}")).unwrap();
    let refused = |arguments: &[&str]| {
        let Ended { code, stderr, stdout } = place.runner(&[&["new", "csv", "--from"], arguments].concat());
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
        stderr
    };
    let all = [
        refused(&["one.csv"]),
        refused(&["uneven.csv"]),
        refused(&["names.csv"]),
        refused(&["names.csv", "--target", "A"]),
        refused(&["churn.csv", "--target", "churn"]),
        refused(&["empty.csv"]),
        refused(&["twice.csv"]),
        refused(&["texts.csv"]),
        refused(&["huge.csv"]),
        refused(&["commas.csv"]),
        refused(&["nowhere.csv"]),
        place.runner(&["new", "mlp", "--from", "one.csv"]).stderr,
    ];
    insta::assert_snapshot!(all.join("\n"), @r#"
    error: `b` cannot be predicted: all its values are equal
     = hint: `--target COLUMN` names another column

    error: expected 2 cells, as in the first line, found 1
     --> uneven.csv:3:1
      |
    3 | 3
      | ^

    error: `b` cannot be predicted: nearly every row has another text
     = hint: `--target COLUMN` names another column

    error: `names.csv` has no column `A`
     = hint: did you mean `a`? its columns are `a`, `b`

    error: `churn.csv` has no column `churn`
     = hint: did you mean `churned`? its columns are `age`, `churned`

    error: an empty file
    --> empty.csv

    error: two columns are called `a`
     --> twice.csv:1:3
      |
    1 | a,a,y
      |   ^
      |
      = hint: name them apart

    error: `b` cannot be predicted: nearly every row has another text
     = hint: `--target COLUMN` names another column

    error: `huge.csv` has no column to predict `b` from
     = hint: `a` is left out: 1 of its 40 cells is `1e400`, which is no finite number; `missing_values` names texts that stand for missing ones

    error: `b` cannot be predicted: its numbers have commas, such as `1,500` in line 2, which are not read
     = hint: write decimals with a point, thousands without a mark; `--decimal ,` if decimals come after commas

    error: cannot read `nowhere.csv`: no such file or directory
     = hint: a relative path is taken from the current folder

    error: only `csv` is drafted from a table
      = hint: `runner new csv FILE --from DATA`
    "#);
}
