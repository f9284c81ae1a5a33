//! `runner new csv --from DATA`: texts that stand for missing values.

use std::fs;

use super::{new_csv::drafted, process::Sandbox};

/// Texts such as `?` among the numbers of a column stand for missing values, in all columns: the draft names them, trains, and its
/// model takes them in new rows.
#[test]
fn markers_of_missing_values() {
    let place = Sandbox::new("");
    let every = |n: usize, nth: usize, text: &str, other: String| {
        if n.is_multiple_of(nth) { text.to_owned() } else { other }
    };
    let row = |n: usize| {
        let a = every(n, 8, "?", format!("{}.5", n % 71));
        let b = every(n, 9, "unknown", every(n, 7, "?", format!("{}", n % 60)));
        let kind = every(n, 10, "?", ["x", "y"][n % 2].to_owned());
        format!("{a},{b},{kind},{}\n", every(n, 11, "-", format!("{}.25", n % 50)))
    };
    let rows: String = (1..=180).map(row).collect();
    fs::write(place.path().join("a.csv"), format!("a,b,kind,y\n{rows}")).unwrap();
    let told = place.runner(&["new", "csv", "--from", "a.csv", "--target", "y"]).stderr;
    insta::assert_snapshot!(told, @"taken for missing values: `-` of `y`, `?` of `a`, `?`, `unknown` of `b`, `?` of `kind`");
    let text = drafted(&place, &["a.csv", "--target", "y"]);
    insta::assert_snapshot!(text.split("[model]").next().unwrap().split("[data.csv]").last().unwrap().trim(), @r#"
    path = "a.csv"
    target = "y"    # a quantity
    # numbers: "a", "b"
    categorical = ["kind"]    # text, a column of 0 and 1 for each value
    missing = "mean"    # drops 16 rows without a target, fills 60 missing cells, takes 17 of text as a category; "drop" leaves 80 rows out
    missing_values = ["NA", "n/a", "NaN", "null", "-", "?", "unknown"]    # `-` of `y`, `?` of `a`, `?`, `unknown` of `b`, `?` of `kind`
    # `a` and 1 more column lack 5 % of their cells or more; `missing_indicators = true` also tells the model which cells are missing
    standardize = true    # features to mean 0 and deviation 1
    standardize_target = true    # losses are in the target's deviations
    "#);
    // Without rows that the target would drop, cells are filled, in new rows, too.
    let rows: String = rows.lines().filter(|row| !row.ends_with('-')).map(|row| format!("{row}\n")).collect();
    fs::write(place.path().join("a.csv"), format!("a,b,kind,y\n{rows}")).unwrap();
    let text = drafted(&place, &["a.csv", "--target", "y"]);
    assert!(
        text.contains("missing_values = [\"NA\", \"n/a\", \"NaN\", \"null\", \"?\", \"unknown\"]    # "),
        "{text}"
    );
    let run = place.run(&["-q"]).ended_by(0).0.display().to_string();
    let predicted = |row: &str| {
        fs::write(place.path().join("new.csv"), format!("a,b,kind\n{row}\n")).unwrap();
        place.runner(&["predict", &run, "new.csv"])
    };
    let [marked, empty] = ["?,UNKNOWN,?", ",,"].map(|row| predicted(row).stdout);
    assert!(marked == empty && marked.lines().count() == 2, "{marked}");
    assert!(predicted("-,1,x").stderr.contains("`-` in column `a` is not a number"));
    let evaluated = place.runner(&["evaluate", &run, "a.csv"]);
    assert_eq!(evaluated.code, Some(0), "{evaluated:?}");
}

/// A text that comes after a thousand different numbers is one still, where another column's marker is taken for missing cells.
#[test]
fn a_text_after_many_numbers() {
    let place = Sandbox::new("");
    let row = |n: usize| {
        let a = if n.is_multiple_of(50) { "-".to_owned() } else { format!("{}.5", n % 71) };
        let b = match n {
            1300 => "-".to_owned(),
            1301 => "unknown city".to_owned(),
            n => format!("{n}.25"),
        };
        format!("{a},{b},{}.125\n", n * 7 % 900)
    };
    let rows: String = (1..=1400).map(row).collect();
    fs::write(place.path().join("a.csv"), format!("a,b,y\n{rows}")).unwrap();
    let text = drafted(&place, &["a.csv", "--target", "y"]);
    assert!(text.contains("\n# numbers: \"a\"\n") && text.contains("`b` is left out: "), "{text}");
}

/// A target with texts that are neither numbers nor stand for missing values is no class.
#[test]
fn a_target_of_numbers_and_texts_is_refused() {
    let place = Sandbox::new("");
    let row = |n: usize| {
        format!("{}.5,{}\n", n % 13, if n.is_multiple_of(9) { "low".into() } else { (n % 30).to_string() })
    };
    fs::write(place.path().join("a.csv"), format!("x,y\n{}", (0..180).map(row).collect::<String>())).unwrap();
    let ended = place.runner(&["new", "csv", "--from", "a.csv", "--target", "y"]);
    insta::assert_snapshot!(ended.stderr, @r"
    error: `y` cannot be predicted: 20 of its 180 cells are `low`, which is no finite number
     = hint: leave cells empty that stand for missing values
    ");
    assert_eq!(ended.code, Some(2));
}

/// A text that is a class of the target, or a category, does not stand for missing values: numbers with it are left out.
#[test]
fn classes_and_categories_are_not_missing() {
    let place = Sandbox::new("");
    let row = |n: usize| {
        let age = if n.is_multiple_of(9) { "unknown".into() } else { format!("{}.5", n % 71) };
        let tax = if n.is_multiple_of(8) { "None".into() } else { format!("{}.5", n % 73) };
        let (kind, y) = (["none", "x", "y"][n % 3], ["yes", "no", "Unknown"][n / 3 % 3]);
        format!("{age},{tax},{}.5,{kind},{y}\n", n % 77)
    };
    let rows = (1..=180).map(row).collect::<String>();
    fs::write(place.path().join("a.csv"), format!("age,tax,x,kind,y\n{rows}")).unwrap();
    let told = place.runner(&["new", "csv", "--from", "a.csv", "--target", "y"]).stderr;
    insta::assert_snapshot!(told, @r"
    `age` is left out: 20 of its 180 cells are `unknown`, which is no finite number; `missing_values` names texts that stand for missing ones
    `tax` is left out: 22 of its 180 cells are `None`, which is no finite number; `missing_values` names texts that stand for missing ones
    ");
    let text = drafted(&place, &["a.csv", "--target", "y"]);
    assert!(text.contains("target = \"y\"    # 3 classes\n"), "{text}");
    assert!(text.contains("categorical = [\"kind\"]") && !text.contains("missing_values = "), "{text}");
    // Of many classes, too; and of few whole numbers.
    let class = |n: usize| if n.is_multiple_of(60) { "unknown".to_owned() } else { format!("c{}", n % 60) };
    let digit = |n: usize| if n.is_multiple_of(3) { "unknown".to_owned() } else { (n % 3).to_string() };
    for (y, count) in [(&class as &dyn Fn(usize) -> String, 60), (&digit, 3)] {
        let row = |n: usize| format!("{},{}.5,{}\n", if n == 7 { "unknown" } else { "1" }, n % 77, y(n));
        let rows = (1..=180).map(row).collect::<String>();
        fs::write(place.path().join("a.csv"), format!("age,x,y\n{rows}")).unwrap();
        let text = drafted(&place, &["a.csv", "--target", "y"]);
        assert!(text.contains(&format!("target = \"y\"    # {count} classes\n")), "{text}");
    }
    // Where no column has classes of these names, they stand for missing values.
    let rows = rows.replace("none", "z").replace("Unknown", "maybe");
    fs::write(place.path().join("a.csv"), format!("age,tax,x,kind,y\n{rows}")).unwrap();
    let told = place.runner(&["new", "csv", "--from", "a.csv", "--target", "y"]).stderr;
    insta::assert_snapshot!(told, @"taken for missing values: `unknown` of `age`, `None` of `tax`");
}

/// A file that is no table: what it is, and what reads it; the same from `check`.
#[test]
fn a_file_that_is_no_text() {
    let place = Sandbox::new(
        "data.csv.path = \"rows\"\ndata.csv.target = \"y\"\nmodel.layers = [{ linear = { out_features = 1 } }]\noptimizer.sgd.lr = 0.1\n",
    );
    let images = [&[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28][..], &[200; 1568]].concat();
    let labels = [0, 0, 8, 1, 0, 0, 0, 2, 7, 2];
    let arrays = "write a table as CSV; `numpy.save` writes arrays that `[data.npy]` reads";
    let of_idx = "`runner new mlp` writes a spec for it: under `[data.idx]` put `images = \"t10k-images-idx3-ubyte\"` \
                  and `labels = \"t10k-labels-idx1-ubyte\"`";
    let cases: [(&str, &[u8], &str, &str); 7] = [
        ("t10k-images-idx3-ubyte", &images, "an IDX file of 2 x 28 x 28", of_idx),
        ("t10k-labels-idx1-ubyte", &labels, "an IDX file of 2", of_idx),
        (
            "x.npy",
            b"\x93NUMPY\x01\0",
            "an array of NumPy",
            "`runner new npy` writes a spec for arrays: this is `features` or `labels` under `[data.npy]`",
        ),
        ("x.xlsx", b"PK\x03\x04\x14\0", "a ZIP archive, such as those of Excel and `numpy.savez`", arrays),
        ("x.csv", b"\xff\xfea\0,\0b\0", "UTF-16", "save the file as UTF-8"),
        ("x.bin", b"a,b\n1,\0\x07", "a binary file", arrays),
        ("rows", b"\x89HDF\r\n", "an HDF5 file", arrays),
    ];
    for (name, bytes, what, hint) in cases {
        fs::write(place.path().join(name), bytes).unwrap();
        let ended = place.runner(&["new", "csv", "--from", name]);
        let message = format!("error: {what}, not UTF-8 text\n--> {name}\n = hint: {hint}\n");
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), message.as_str()), "{name}");
    }
    let checked = place.runner(&["check", "spec.toml"]).stderr;
    assert!(checked.starts_with("error: an HDF5 file, not UTF-8 text\n"), "{checked}");
}
