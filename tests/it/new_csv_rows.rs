//! `runner new csv --from DATA`: what a draft says of the rows of a table, and does about them.

use std::fs;

use super::{new_csv::drafted, process::Sandbox};

/// A whole number of nine digits, another one for each row.
fn nine_digits(n: u64) -> u64 {
    n * 2_654_435_761 % 900_000_000 + 100_000_000
}

/// The keys of the drafted source.
fn source(text: &str) -> &str {
    text.split("[model]").next().unwrap().split("[data.csv]\n").last().unwrap().trim()
}

/// Identifiers are found although rows are repeated, and where they do not count the rows.
#[test]
fn columns_that_identify_rows() {
    let place = Sandbox::new("");
    let row = |n: u64| {
        let (id, key, price) = (100_000 + n, nine_digits(n), n % 97);
        format!("{id},{key},{},{}.5,{},{price}.25\n", nine_digits(n + 7), n % 89, n % 50)
    };
    let rows: String = (0..440).chain(0..60).map(row).collect();
    fs::write(place.path().join("a.csv"), format!("id,HouseID,code,area,width,price\n{rows}")).unwrap();
    let told = place.runner(&["new", "csv", "--from", "a.csv", "--target", "price"]).stderr;
    insta::assert_snapshot!(told, @r"
    `id` is left out: by its name it identifies rows, and nearly every row has another number
    `HouseID` is left out: by its name it identifies rows, and nearly every row has another number
    `code` may identify rows: nearly every row has another whole number; if it does, `ignore` leaves it out
    60 rows are exact repeats of others: those in validation may repeat training rows
    ");
    let text = drafted(&place, &["a.csv", "--target", "price"]);
    insta::assert_snapshot!(source(&text), @r#"
    path = "a.csv"
    target = "price"    # a quantity
    # numbers: "code", "area", "width"
    # `id` is left out: by its name it identifies rows, and nearly every row has another number
    # `HouseID` is left out: by its name it identifies rows, and nearly every row has another number
    ignore = ["id", "HouseID"]
    # `code` may identify rows: nearly every row has another whole number; if it does, `ignore` leaves it out
    standardize = true    # features to mean 0 and deviation 1
    standardize_target = true    # losses are in the target's deviations
    "#);
}

/// Rows without a target are left out, and counted; the missing features of the others are filled.
#[test]
fn rows_without_a_target() {
    let place = Sandbox::new("");
    let row = |n: u64| {
        let a = if n < 334 { String::new() } else { format!("{}.5", n % 89) };
        format!("{a},{}.25,{}\n", n % 50, if n == 499 { String::new() } else { format!("{}.5", n % 97) })
    };
    fs::write(place.path().join("a.csv"), format!("a,b,y\n{}", (0..500).map(row).collect::<String>()))
        .unwrap();
    let text = drafted(&place, &["a.csv", "--target", "y"]);
    insta::assert_snapshot!(source(&text), @r#"
    path = "a.csv"
    target = "y"    # a quantity
    # numbers: "a", "b"
    missing = "mean"    # drops 1 row without a target, fills 334 missing cells; "drop" leaves 335 rows out
    # `a` lacks 66.9 % of its cells; `missing_indicators = true` also tells the model which cells are missing
    standardize = true    # features to mean 0 and deviation 1
    standardize_target = true    # losses are in the target's deviations
    "#);
    let checked = place.runner(&["check", "spec.toml"]).stdout;
    assert!(checked.contains("             399 rows to train on, 100 to validate on; "), "{checked}");
    assert!(
        checked.contains(
            "             dropped 1 row without a target\n             filled 334 missing cells of `a` with "
        ),
        "{checked}"
    );
    let ran = place.run(&["-q", "trainer.max_epochs=1"]).ended_by(0);
    assert!(ran.text("run.log").contains("dropped 1 row without a target\n"));
    let evaluated = place.runner(&["evaluate", &ran.0.display().to_string(), "a.csv"]);
    let line = "warning: rows left out without a target, as in training: 1";
    assert!(
        evaluated.code == Some(0) && evaluated.stderr.lines().any(|found| found == line),
        "{evaluated:?}"
    );
    assert!(evaluated.stdout.starts_with("rows  499 "), "{evaluated:?}");
    // Strict, as before.
    let strict = place.runner(&["check", "spec.toml", "data.csv.missing=error", "data.csv.ignore=[\"a\"]"]);
    assert_eq!(strict.code, Some(2));
    assert!(strict.stderr.starts_with("error: missing cell in the target column `y`\n"), "{strict:?}");
    fs::write(place.path().join("a.csv"), "a,b,y\n1,2,\n3,4,\n").unwrap();
    let none = place.runner(&["check", "spec.toml"]).stderr;
    assert!(none.starts_with("error: all 2 rows lack a target\n"), "{none}");
    fs::write(place.path().join("a.csv"), "a,b,y\n1,2,\n").unwrap();
    let none = place.runner(&["check", "spec.toml"]).stderr;
    assert!(none.starts_with("error: the only row lacks a target\n"), "{none}");
}

/// A class of few rows has its share of the validation rows; a model that predicts one class for all is called so.
#[test]
fn rare_classes() {
    let place = Sandbox::new("");
    let class = |n: u64| match n {
        0..30 => "late",
        30..33 => "lost",
        _ => "ok",
    };
    let row = |n: u64| format!("{}.5,{}.25,{}\n", n * 7 % 89, n * 3 % 50, class(n));
    fs::write(place.path().join("a.csv"), format!("a,b,state\n{}", (0..300).map(row).collect::<String>()))
        .unwrap();
    let text = drafted(&place, &["a.csv", "--target", "state"]);
    let split = "[data]\nbatch_size = 16\n\
                 # each class has its share of the rows to validate on; `test = 0.1` would keep rows from every run, for \
                 `runner evaluate RUN`\nsplit = { stratify = true }\n\n";
    assert!(text.contains(split), "{text}");
    let told = "# 1.00 % are `lost`: a good accuracy may miss them all, and they are too few to validate on by auc\n";
    assert!(text.contains(told) && text.contains("metrics = [\"loss\", \"accuracy\", \"f1\"]"), "{text}");
    let few =
        "warning: classes with fewer than 5 rows to train and validate on are hardly learned: `lost` (3)";
    let rare = format!("{few}; `model.class_weights=balanced` lets each of their rows count for more\n");
    let checked = place.runner(&["check", "spec.toml", "-q"]);
    assert_eq!((checked.code, checked.stderr), (Some(0), rare.clone()));
    let weighted = place.runner(&["check", "spec.toml", "-q", "model.class_weights=balanced"]);
    assert_eq!((weighted.code, weighted.stderr), (Some(0), format!("{few}\n")));
    let confusion = place.run(&["-q", "trainer.max_epochs=1"]).ended_by(0).text("confusion.csv");
    let rows = |line: &str| line.split(',').skip(1).map(|cell| cell.parse::<u64>().unwrap()).sum::<u64>();
    assert_eq!(confusion.lines().skip(1).map(rows).collect::<Vec<_>>(), [6, 1, 53]);
    // Without the shares, a part of the rows may lack a class.
    fs::write(place.path().join("spec.toml"), text.replace("split = {", "# ")).unwrap();
    let lacking: Vec<String> = (0..8)
        .map(|seed| place.runner(&["check", "spec.toml", "-q", &format!("seed={seed}")]).stderr)
        .collect();
    let words = "warning: classes without a row to validate on: `lost`; `data.split.stratify=true` gives each part its share of a class with enough rows\n";
    assert!(lacking.iter().any(|told| *told == format!("{rare}{words}")), "{lacking:?}");
    assert!(lacking.contains(&rare), "{lacking:?}");
    // From a feature that says nothing of the class, only the most frequent one can be predicted.
    let rows: String = (0..300).map(|n| format!("{},{}\n", n % 2, class(n))).collect();
    fs::write(place.path().join("a.csv"), format!("a,state\n{rows}")).unwrap();
    drafted(&place, &["a.csv", "--target", "state"]);
    let ended = place.run(&["-q"]).ended;
    let words = "warning: the model predicts `ok` for every row to validate on: 53 of 60 are `ok`; `model.class_weights=balanced` \
                 lets rows of the others count for more\n";
    assert_eq!((ended.code, ended.stderr), (Some(0), format!("{rare}{words}")));
}

/// A rare class is judged by auc wherever a row of it validates, in tables of few rows, too.
#[test]
fn few_rows_of_a_class() {
    let place = Sandbox::new("");
    let draft = |rows: u64, class: &dyn Fn(u64) -> bool| {
        let row =
            |n: u64| format!("{}.5,{}.25,{}\n", n * 7 % 89, n * 3 % 50, ["no", "yes"][usize::from(class(n))]);
        let rows: String = (0..rows).map(row).collect();
        fs::write(place.path().join("a.csv"), format!("a,b,ill\n{rows}")).unwrap();
        drafted(&place, &["a.csv", "--target", "ill"])
    };
    let text = draft(300, &|n| n < 7);
    let monitor = "monitor = \"validation.auc\"    # 2.33 % are `yes`: a good accuracy may miss them all\n";
    assert!(text.contains(monitor) && text.contains("metrics = [\"loss\", \"auc\", \"f1\"]"), "{text}");
    let metrics =
        place.run(&["-q", "trainer.max_epochs=1"]).ended_by(0).metrics().only("split", "validation");
    assert!(metrics.f64s("auc").iter().all(|auc| (0.0..=1.0).contains(auc)));
    // Of 1,000 rows, some are for a test.
    let text = draft(1000, &|n| n < 450);
    let split = "# `test` keeps a tenth of the rows from every run, for `runner evaluate RUN` once a model is chosen; each class has its \
                 share of every part\nsplit = { test = 0.1, stratify = true }\n\n";
    assert!(text.contains(split), "{text}");
    let run = place.run(&["-q", "trainer.max_epochs=1"]).ended_by(0).0.display().to_string();
    let evaluated = place.runner(&["evaluate", &run]).ended_by(0).stdout;
    assert!(evaluated.starts_with("rows               100 "), "{evaluated}");
    assert!(
        evaluated.contains("\nbaseline: a model that always predicts `no`, with the shares of "),
        "{evaluated}"
    );
}

/// The reason is the same in a table of any length.
#[test]
fn a_target_that_is_not_finite() {
    let place = Sandbox::new("");
    for rows in [3, 300] {
        let row = |n: u64| format!("{n}.5,{}\n", if n == 1 { "inf".to_owned() } else { format!("{n}.25") });
        fs::write(place.path().join("a.csv"), format!("x,y\n{}", (0..rows).map(row).collect::<String>()))
            .unwrap();
        let ended = place.runner(&["new", "csv", "--from", "a.csv"]);
        let words = format!(
            "error: `y` cannot be predicted: 1 of its {rows} cells is `inf`, which is no finite number\n \
             = hint: leave cells empty that stand for missing values\n"
        );
        assert_eq!((ended.code, ended.stderr), (Some(2), words));
    }
}

/// Rows in the order of a date: the draft says how to judge by later rows, and the first try works.
#[test]
fn rows_in_the_order_of_time() {
    let place = Sandbox::new("");
    let write = |header: &str, when: &dyn Fn(u64) -> String| {
        let row =
            |n: u64| format!("{},{},{}\n", when(n), nine_digits(n) % 97, ["no", "yes"][n as usize % 3 / 2]);
        fs::write(
            place.path().join("a.csv"),
            format!("{header},x,left\n{}", (0..200).map(row).collect::<String>()),
        )
        .unwrap();
        let told = place.runner(&["new", "csv", "--from", "a.csv", "--target", "left"]).stderr;
        (told, drafted(&place, &["a.csv", "--target", "left"]))
    };
    let how = "`data.split.shuffle=false` judges by the last of them, and with `data.folds=5 data.fold=0..5` by five later parts in turn";
    let dates = |n: u64| format!("2024-01-{:02} {:02}:00:00", 1 + n / 24, n % 24);
    let test = "# `split = { test = 0.1 }` would keep rows from every run, for `runner evaluate RUN`\n";
    let (told, text) = write("when", &dates);
    let line = format!("rows are in the order of `when`: {how}\n");
    assert!(told.starts_with(&line), "{told}");
    assert!(text.contains(&format!("batch_size = 16\n# {line}{test}\n[data.csv]\n")), "{text}");
    for words in
        [&["data.split.shuffle=false"][..], &["data.split.shuffle=false", "data.folds=5", "data.fold=0..5"]]
    {
        let ended = place.runner(&[&["check", "spec.toml"], words].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    // The latest row first, and numbers that are times by their look or name.
    let turned = format!(
        "rows are in the order of `when`, from the latest to the earliest: if you turn them round, {how}\n"
    );
    let seconds = |n: u64| (1_700_000_000 + n * 3600 + n * n).to_string();
    for (header, when, line) in [
        ("when", &(|n: u64| dates(199 - n)) as &dyn Fn(u64) -> String, turned),
        ("t", &seconds, format!("rows are in the order of `t`: {how}\n")),
        ("t", &|n: u64| seconds(n) + "000", format!("rows are in the order of `t`: {how}\n")),
        (
            "sale_year",
            &|n: u64| (1990 + n / 10).to_string(),
            format!("rows are in the order of `sale_year`: {how}\n"),
        ),
    ] {
        let (told, text) = write(header, when);
        assert!(
            told.starts_with(&line) && text.contains(&format!("\n# {line}{test}\n[data.csv]\n")),
            "{told}{text}"
        );
    }
    // Not other numbers: a table may be sorted by any, and its classes keep their shares.
    for (header, when) in [
        ("customer_id", &(|n: u64| (1000 + n * n).to_string()) as &dyn Fn(u64) -> String),
        ("t", &|n: u64| n.to_string()),
        ("age", &|n: u64| (20.0 + n as f64 / 4.0).to_string()),
        ("when", &|n: u64| dates(n * 7 % 200)),
    ] {
        let (told, text) = write(header, when);
        assert!(!told.contains("order") && text.contains("\nsplit = { stratify = true }"), "{text}");
    }
}

/// Groups are pointed out however many there are.
#[test]
fn thousands_of_groups() {
    let place = Sandbox::new("");
    let write = |row: &dyn Fn(usize) -> String| {
        let rows: String = (0..6000).map(row).collect();
        fs::write(place.path().join("a.csv"), format!("patient_id,x,ill\n{rows}")).unwrap();
        place.runner(&["new", "csv", "--from", "a.csv", "--target", "ill"]).stderr
    };
    let rest = |n: usize| format!("{}.5,{}", n * 7 % 97, ["no", "yes"][n % 3 / 2]);
    let texts = write(&|n| format!("P{:05},{}\n", n * 7 % 1500, rest(n)));
    let line = "`patient_id` is left out: it has 1,500 different texts, such as `P00000`: too many for categories; if rows with equal \
                ones belong together, name it `group`\n";
    assert_eq!(texts, line);
    let numbers = write(&|n| format!("{},{}\n", 5000 + n * 7 % 1500, rest(n)));
    let line = "`patient_id` may say which rows belong together; if it does, `group` in place of a feature keeps them in one part\n";
    assert_eq!(numbers, line);
    let each = write(&|n| format!("P{n:05},{}\n", rest(n)));
    let line =
        "`patient_id` is left out: it has 6,000 different texts, such as `P00000`: too many for categories\n";
    assert_eq!(each, line);
}

/// Dates are no features, in the order of rows or not: the way out is numbers made of them.
#[test]
fn dates_are_told_how_to_be_numbers() {
    let place = Sandbox::new("");
    let row = |n: u32| {
        format!("{}.{}.20{},{},{}\n", n * 7 % 28 + 1, n * 5 % 12 + 1, 10 + n % 13, n * 37 % 101, n % 17)
    };
    fs::write(place.path().join("a.csv"), "signed,x,y\n".to_owned() + &(0..400).map(row).collect::<String>())
        .unwrap();
    let drafted = place.runner(&["new", "csv", "--from", "a.csv"]).ended_by(0).stdout;
    let line = "# `signed` is left out: it has dates, such as `1.1.2010`: what a model can use is numbers, such as year, month or days \
                since the first\n";
    assert!(drafted.contains(line), "{drafted}");
}
