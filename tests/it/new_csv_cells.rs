//! `runner new csv` and `runner check` on cells that a table of one's own has: mistyped numbers, stand-ins for missing ones, dates,
//! percentages, classes that few rows have.

use std::fs;

use super::{
    new_csv::drafted,
    process::{Ended, Sandbox},
};

/// 300 rows of a customer's income and age, with those cells changed that `change` gives another text for.
fn customers(place: &Sandbox, change: impl Fn(usize, &str) -> Option<&'static str>) {
    let cell = |n: usize, name: &str, own: String| change(n, name).map_or(own, str::to_owned);
    let row = |n: usize| {
        let income = cell(n, "income", (12_000 + n * 37 % 150 * 200).to_string());
        let age = cell(n, "age", (18 + n * 7 % 61).to_string());
        let left = cell(n, "left", if n.is_multiple_of(3) { "yes" } else { "no" }.to_owned());
        format!("{income},{age},{left}\n")
    };
    let rows: String = (0..300).map(row).collect();
    fs::write(place.path().join("a.csv"), format!("income,age,left\n{rows}")).unwrap();
}

fn new(place: &Sandbox, more: &[&str]) -> Ended {
    place.runner(&[&["new", "csv", "--from", "a.csv"], more].concat())
}

/// The cells are named where the table is drafted, checked and trained on; the draft has the sentence beside the column.
#[test]
fn numbers_far_from_all_others() {
    let place = Sandbox::new("");
    customers(&place, |_, _| None);
    let told = new(&place, &["--target", "left"]);
    assert_eq!((told.code, told.stderr.as_str()), (Some(0), ""));
    let text = drafted(&place, &["a.csv", "--target", "left"]);
    assert!(text.contains("\n# numbers: \"income\", \"age\"\nstandardize = true "), "{text}");
    assert_eq!(place.runner(&["check", "spec.toml", "-q"]).stderr, "");
    customers(&place, |n, name| match (n, name) {
        (6, "income") => Some("999999999"),
        (n, "age") if n % 20 == 7 => Some("-999"),
        _ => None,
    });
    let income = "`income`: `999999999` in line 8 is far from all its other numbers, between 12000 and 41800: correct it, or name \
                  what stands for a missing value in `missing_values`\n";
    let age = "`age`: 15 of its 300 numbers, the first `-999` in line 9, are far from all others, between 18 and 78: correct \
               them, or name what stands for a missing value in `missing_values`\n";
    assert_eq!(new(&place, &["--target", "left"]).stderr, format!("{income}{age}"));
    let text = drafted(&place, &["a.csv", "--target", "left"]);
    assert!(text.contains(&format!("\n# {income}# {age}standardize = true ")), "{text}");
    let warned = format!("warning: column {income}warning: column {age}");
    assert_eq!(place.runner(&["check", "spec.toml", "-q"]).stderr, warned);
    let ran = place.run(&["-q", "trainer.max_epochs=1"]);
    assert!(ran.ended.code == Some(0) && ran.ended.stderr.contains(&warned), "{:?}", ran.ended);
    // The way out.
    let ways = ["data.csv.missing=mean", "data.csv.missing_values=[\"-999\", \"999999999\"]"];
    let ended = place.runner(&["check", "spec.toml", ways[0], ways[1]]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(
        ended.stdout.contains(" filled missing cells with means of training rows: `income` 1, `age` 15\n"),
        "{ended:?}"
    );
    // A quantity to predict is looked at, too.
    let income = income.replace("`income`", "the target column `income`");
    let ended = place.runner(&[
        "check",
        "spec.toml",
        "-q",
        "data.csv.target=income",
        "data.csv.categorical=[\"left\"]",
        "model.loss=mse",
        "logging.metrics=[\"loss\"]",
        "~data.split",
        "model.layers=[{ linear = { out_features = 1 } }]",
    ]);
    assert!(ended.stderr.contains(&format!("warning: {income}")), "{ended:?}");
}

/// The lines on the columns, and on the classes.
#[test]
fn check_names_numbers_and_counts_classes() {
    let place = Sandbox::new("");
    customers(&place, |_, _| None);
    drafted(&place, &["a.csv", "--target", "left"]);
    let page = place.runner(&["check", "spec.toml"]).stdout;
    let lines =
        "\n             numbers: `income`, `age`\n             rows of each class: `no` 200, `yes` 100\n";
    assert!(page.contains(lines), "{page}");
}

#[test]
fn dates_percentages_and_sums_of_money() {
    let place = Sandbox::new("");
    let row = |n: usize| {
        format!("2024{:02}{:02},{}%,€{}.50,{}.5\n", n % 12 + 1, n % 28 + 1, n % 9, 41_830 + n, n % 31)
    };
    let rows: String = (0..200).map(row).collect();
    fs::write(place.path().join("a.csv"), format!("signup,share,paid,y\n{rows}")).unwrap();
    let told = new(&place, &["--target", "y"]);
    let signs = |name: &str, cell: &str| {
        format!(
            "`{name}` is left out: its numbers have signs beside them, such as `{cell}`, which are not read\n"
        )
    };
    let dates = "`signup` has dates written as numbers: between the last of a month and the next first they leap; count days \
                 instead, or `ignore` it\n";
    assert_eq!(told.stderr, format!("{}{}{dates}", signs("share", "0%"), signs("paid", "€41830.50")));
    let refused = new(&place, &["--target", "share"]);
    let words = "error: `share` cannot be predicted: its numbers have signs beside them, such as `0%`, which are not read\n \
                 = hint: write numbers alone\n";
    assert_eq!((refused.code, refused.stderr.as_str()), (Some(2), words));
}

/// Classes that look like mistakes.
#[test]
fn odd_classes() {
    let place = Sandbox::new("");
    customers(&place, |n, name| (name == "left" && n % 40 == 0).then_some(["Yes", "No"][n / 40 % 2]));
    let words = "classes of `left` differ in case alone: `No`, `no`; `Yes`, `yes`\n";
    assert_eq!(new(&place, &["--target", "left"]).stderr, words);
    assert!(drafted(&place, &["a.csv", "--target", "left"]).contains(&format!("\n# {words}")));
    let rows: String = (0..400).map(|n| format!("{}.5,day {}\n", n % 37, n % 150)).collect();
    fs::write(place.path().join("a.csv"), format!("x,signup date\n{rows}")).unwrap();
    let words = "`signup date` has 150 classes, such as `day 0`, in 400 rows: does it hold classes?\n";
    assert_eq!(new(&place, &["--target", "signup date"]).stderr, words);
}

/// Categories become inputs of their own, in whatever case; a name with quotes is written as it is.
#[test]
fn odd_categories_and_names() {
    let place = Sandbox::new("");
    let rows: String = (0..120)
        .map(|n| {
            format!("{n}.5,{},1,{}\n", ["male", "Male", "MALE", "female"][n % 4], ["no", "yes"][n / 2 % 2])
        })
        .collect();
    fs::write(place.path().join("a.csv"), format!("x,case,\"name \"\"y\"\"\",left\n{rows}")).unwrap();
    let words = "categories of `case` differ in case alone: `MALE`, `Male`, `male`\n";
    let left_out = "`name \"y\"` is left out: all its values are equal\n";
    let told = new(&place, &["--target", "left"]).stderr;
    assert!(told.contains(words) && told.contains(left_out), "{told}");
}

/// None is a comment, and the separator is not at fault.
#[test]
fn lines_before_the_header() {
    let place = Sandbox::new("");
    fs::write(place.path().join("a.csv"), "# exported 2024\n# by me\na,b,y\n1,2,3\n4,5,6\n").unwrap();
    insta::assert_snapshot!(new(&place, &[]).stderr, @r"
    error: expected 1 cell, as in the first line, found 3
     --> a.csv:3:1
      |
    3 | a,b,y
      | ^^^^^
      |
      = hint: lines 1 to 2 begin with `#`: if they are comments, remove them
    ");
}

/// Where few rows have a class, the draft judges by a ranking; a model that hardly predicts it is called so, though it may predict it
/// for some rows.
#[test]
fn a_class_of_few_rows() {
    let place = Sandbox::new("");
    customers(&place, |n, name| (name == "left").then_some(if n.is_multiple_of(12) { "yes" } else { "no" }));
    let text = drafted(&place, &["a.csv", "--target", "left"]);
    let trainer = text.split("[trainer]\n").last().unwrap();
    insta::assert_snapshot!(trainer, @r#"
    max_epochs = 100
    early_stopping = { patience = 10 }    # epochs without a better validation; the best weights are kept
    monitor = "validation.auc"    # 8.33 % are `yes`: a good accuracy may miss them all

    [checkpoint]
    every_minutes = 1.0    # `runner run --resume RUN` goes on after a kill

    [logging]
    metrics = ["loss", "auc", "f1"]    # confusion.csv comes with f1
    "#);
    let ran = place.run(&["-q", "trainer.max_epochs=2"]).ended_by(0);
    assert!(
        ran.metrics().only("split", "validation").f64s("auc").iter().all(|auc| (0.0..=1.0).contains(auc))
    );
    // One row in 200 of `yes` tells itself apart; the others cannot be told from those of `no`.
    let row = |n: usize| {
        let class = if n.is_multiple_of(10) { "yes" } else { "no" };
        format!("{},{}.5,{class}\n", if n.is_multiple_of(200) { 40 } else { 0 }, n % 7)
    };
    let rows: String = (0..2000).map(row).collect();
    fs::write(place.path().join("a.csv"), format!("x,z,left\n{rows}")).unwrap();
    drafted(&place, &["a.csv", "--target", "left"]);
    let ended = place.run(&["-q", "data.csv.validation_path=a.csv", "~data.split"]).ended;
    let words = "warning: the rows to validate on are those to train on\n\
                 warning: of 2,000 rows to validate on, the model predicts `yes` for 10, though 200 have it; \
                 `model.class_weights=balanced` lets their rows count for more, and raises their probabilities\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), words));
}

/// A line that Excel writes, and a path that only a shell knows.
#[test]
fn what_other_programs_write() {
    let place = Sandbox::new("");
    customers(&place, |_, _| None);
    drafted(&place, &["a.csv", "--target", "left"]);
    let text = fs::read_to_string(place.path().join("a.csv")).unwrap();
    fs::write(place.path().join("a.csv"), format!("sep=,\n{text}")).unwrap();
    let words = "error: `sep=,` names the separator for Excel, and no columns\n";
    for ended in [new(&place, &["--target", "left"]), place.runner(&["check", "spec.toml"])] {
        assert!(ended.code == Some(2) && ended.stderr.starts_with(words), "{ended:?}");
        assert!(ended.stderr.ends_with(" = hint: remove this line\n"), "{ended:?}");
    }
    let ended = place.runner(&["check", "spec.toml", "data.csv.path=~/a.csv"]);
    let hint = " = hint: `~` is the home folder in a shell alone: write the path of that folder\n";
    assert!(ended.code == Some(2) && ended.stderr.ends_with(hint), "{ended:?}");
}

/// The same table with commas and semicolons, as European programs export it, and with points and commas.
#[test]
fn decimals_after_a_comma() {
    let place = Sandbox::new("");
    let row = |n: usize, mark: &str| {
        [
            format!("{}{mark}{}", n * 7 % 40, n % 10),
            format!("{}", n % 13),
            format!("{}{mark}25", n * 7 % 40 + n % 13),
        ]
    };
    for (name, mark, separator) in [("eu.csv", ",", ";"), ("us.csv", ".", ",")] {
        let rows: String = (0..80).map(|n| row(n, mark).join(separator) + "\n").collect();
        let header = ["temp", "days", "y"].join(separator);
        fs::write(place.path().join(name), format!("{header}\n{rows}")).unwrap();
    }
    let european = drafted(&place, &["eu.csv"]);
    let lines = "delimiter = \";\"\ndecimal = \",\"    # numbers such as 0,5\n";
    assert!(european.contains(&format!("\n# numbers: \"temp\", \"days\"\n{lines}")), "{european}");
    // Without names, too: no number has a semicolon in it.
    let bare: String = (0..80).map(|n| row(n, ",").join(";") + "\n").collect();
    fs::write(place.path().join("bare.csv"), bare).unwrap();
    let draft = place.runner(&["new", "csv", "--from", "bare.csv"]).stdout;
    assert!(draft.contains(&format!("\n# numbers: \"0\", \"1\"\n{lines}")), "{draft}");
    // With words or dates, too: of as many numbers those count whose neighbours have no other separator in them.
    for line in ["p;A;Y", "2024-01-01;A;Y", "A;p;Y"] {
        let line = |n| line.replace('A', &row(n, ",")[0]).replace('Y', &row(n, ",")[2]) + "\n";
        fs::write(place.path().join("bare.csv"), (0..80).map(line).collect::<String>()).unwrap();
        let draft = place.runner(&["new", "csv", "--from", "bare.csv"]).stdout;
        assert!(draft.contains(lines) && draft.contains("\ntarget = \"2\" "), "{draft}");
    }
    let of_european = place.run(&["-q"]).ended_by(0);
    let predicted = |run: &str, file: &str| place.runner(&["predict", run, file]);
    let run = of_european.0.display().to_string();
    let predictions = predicted(&run, "eu.csv");
    let american = drafted(&place, &["us.csv"]);
    assert_eq!(american.replace("us.csv", "eu.csv"), european.replace(lines, ""));
    let of_american = place.run(&["-q"]).ended_by(0);
    assert_eq!(of_european.summary("best_value"), of_american.summary("best_value"));
    assert_eq!(
        (predictions.code, &predictions.stdout),
        (Some(0), &predicted(&of_american.0.display().to_string(), "us.csv").stdout)
    );
    assert_eq!(place.runner(&["evaluate", &run, "eu.csv", "--json"]).code, Some(0));
    // Thousands with a mark are named.
    fs::write(
        place.path().join("eu.csv"),
        "a;b;y\n".to_owned() + &"1.234,5;0,5;1,5\n2.234,5;1,5;2,5\n".repeat(20),
    )
    .unwrap();
    let told = place.runner(&["new", "csv", "--from", "eu.csv", "--target", "y"]).stderr;
    assert!(
        told.contains(
            "`a` is left out: its numbers have points, such as `1.234,5` in line 2, which are not read; write decimals with a comma, \
             thousands without a mark; `--decimal .` if decimals come after points\n"
        ),
        "{told}"
    );
}

/// A header may hold whatever a spreadsheet lets one type: the draft is valid, its names are the file's, and it says so on one line.
#[test]
fn odd_names_of_columns() {
    let place = Sandbox::new("");
    let long = "n".repeat(3000);
    let names = [
        "a\nb",
        "a \"quote\"",
        "it's",
        "'\"both\"'",
        "# no comment",
        "back\\slash",
        "tab\there",
        "\u{7f}",
        "é\u{301}",
        "=]",
        &long,
    ];
    let kinds = ["text\nof \"two\" lines", "kind #''2"];
    let all: Vec<String> =
        names.iter().chain(&kinds).map(|name| format!("\"{}\"", name.replace('"', "\"\""))).collect();
    let row = |n: usize| {
        let numbers = (0..names.len()).map(|c| format!("{}.5", (n * 7 + c) % 31));
        let texts = kinds.iter().map(|_| ["red", "blue"][n % 2].to_owned());
        numbers.chain(texts).chain([(n % 3).to_string()]).collect::<Vec<_>>().join(",") + "\n"
    };
    let rows: String = (0..60).map(row).collect();
    fs::write(place.path().join("odd.csv"), format!("{},\"y\r\nz\"\n{rows}", all.join(","))).unwrap();
    let text = drafted(&place, &["odd.csv"]);
    assert!(text.contains("\ntarget = \"y\\r\\nz\"    # 3 whole numbers"), "{text}");
    assert!(text.contains("\n# numbers: \"a\\nb\", "), "{text}");
    let read: toml::Table = text.parse().unwrap();
    assert_eq!(
        read["data"]["csv"]["categorical"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap())
            .collect::<Vec<_>>(),
        kinds
    );
    place.run(&["-q", "trainer.max_epochs=1"]).ended_by(0);
}

/// What a table's form hides.
#[test]
fn tables_that_are_no_such_tables() {
    let place = Sandbox::new("");
    let told = |body: &str| {
        fs::write(place.path().join("a.csv"), body).unwrap();
        let ended = place.runner(&["new", "csv", "--from", "a.csv"]);
        (ended.code, ended.stderr)
    };
    let rows = |row: &str| row.repeat(20);
    let none =
        "error: `y` cannot be predicted: it has no value\n = hint: `--target COLUMN` names another column\n";
    assert_eq!(told(&format!("a,b,y\n{}", rows("1,2,\n3,4,NA\n"))), (Some(2), none.to_owned()));
    let blanks = "error: `a.csv` has one column alone, `a b y`\n = hint: cells are found between `,`, `;`, `|` or tabs; `--delimiter CHARACTER` names another separator\n";
    assert_eq!(told(&format!("a b y\n{}", rows("1 2 0\n3 4 1\n"))), (Some(2), blanks.to_owned()));
    let ended = "the target is the last column with a name, `y`; `--target COLUMN` names another column\n`` is left out: it has no name\n";
    let (code, stderr) = told(&format!("a,b,y,\n{}", rows("1.5,2,0,\n3,4.5,1,\n")));
    assert!(code == Some(0) && stderr.starts_with(ended), "{stderr}");
}

/// Prices have points between thousands, and the target a comma before decimals: no vote finds that, but one can say it.
#[test]
fn marks_that_are_named() {
    let place = Sandbox::new("");
    let row =
        |n: usize| format!("{};{}.642;{},{:03}\n", 100 + n * 7 % 60, 1 + n % 9, n * 5 % 13, n * 37 % 1000);
    let rows: String = (0..80).map(row).collect();
    fs::write(place.path().join("mixed.csv"), format!("area;price;y\n{rows}")).unwrap();
    let refused = place.runner(&["new", "csv", "--from", "mixed.csv"]);
    insta::assert_snapshot!(refused.stderr, @r"
    error: `y` cannot be predicted: its numbers have commas, such as `0,000` in line 2, which are not read
     = hint: write decimals with a point, thousands without a mark; `--decimal ,` if decimals come after commas
    ");
    // One cell with the other mark is the one that is wrong.
    for [own, other, marks, wanted] in [[",", ".", "points", "a comma"], [".", ",", "commas", "a point"]] {
        let row =
            |n: usize| format!("{n};{}{}{}\n", n * 5 % 13, if n == 57 { other } else { own }, n % 9 + 1);
        fs::write(place.path().join("one.csv"), format!("a;y\n{}", (0..80).map(row).collect::<String>()))
            .unwrap();
        let refused = place.runner(&["new", "csv", "--from", "one.csv"]);
        let words = format!(
            "error: `y` cannot be predicted: its numbers have {marks}, such as `12{other}4` in line 59, which are not read\n = hint: \
             write decimals with {wanted}, thousands without a mark\n"
        );
        assert_eq!((refused.code, refused.stderr), (Some(2), words));
    }
    let draft = drafted(&place, &["mixed.csv", "--decimal", ",", "--target", "y"]);
    assert!(draft.contains("\ndelimiter = \";\"\ndecimal = \",\"    # numbers such as 0,5\n"), "{draft}");
    assert!(draft.contains("target = \"y\"    # a quantity\n"), "{draft}");
    fs::write(place.path().join("blanks.csv"), format!("area price y\n{}", rows.replace(';', " "))).unwrap();
    let refused = place.runner(&["new", "csv", "--from", "blanks.csv"]);
    insta::assert_snapshot!(refused.stderr, @r"
    error: expected 1 cell, as in the first line, found 2
     --> blanks.csv:2:1
      |
    2 | 100 1.642 0,000
      | ^^^^^^^^^^^^^^^
      |
      = hint: `--delimiter CHARACTER` names what separates cells
    ");
    let draft = drafted(&place, &["blanks.csv", "--delimiter", " ", "--decimal=,", "--target", "y"]);
    assert!(draft.contains("\ndelimiter = \" \"\n"), "{draft}");
    let refused = place.runner(&["new", "csv", "--delimiter", ";"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("--from"), "{refused:?}");
}
