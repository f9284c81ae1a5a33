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
    insta::assert_snapshot!(told, @"");
    let text = drafted(&place, &["a.csv", "--target", "price"]);
    insta::assert_snapshot!(source(&text), @"");
}

/// Rows without a target are left out, and counted; the missing features of the others are filled.
#[test]
fn rows_without_a_target() {
    let place = Sandbox::new("");
    let row = |n: u64| {
        let a = if n < 334 { String::new() } else { format!("{}.5", n % 89) };
        format!("{a},{}.25,{}\n", n % 50, if n == 499 { String::new() } else { format!("{}.5", n % 97) })
    };
    fs::write(place.path().join("a.csv"), format!("a,b,y\n{}", (0..500).map(row).collect::<String>())).unwrap();
    let text = drafted(&place, &["a.csv", "--target", "y"]);
    insta::assert_snapshot!(source(&text), @"");
    let checked = place.runner(&["check", "spec.toml"]).stdout;
    assert!(checked.contains("             399 rows to train on, 100 to validate on; "), "{checked}");
    assert!(checked.contains("             dropped 1 row without a target\n             filled 334 missing cells of `a` with "), "{checked}");
    let ran = place.run(&["-q", "trainer.max_epochs=1"]).ended_by(0);
    assert!(ran.text("run.log").contains("dropped 1 row without a target\n"));
    let evaluated = place.runner(&["evaluate", &ran.0.display().to_string(), "a.csv"]);
    let line = "warning: rows left out without a target, as in training: 1";
    assert!(evaluated.code == Some(0) && evaluated.stderr.lines().any(|found| found == line), "{evaluated:?}");
    assert!(evaluated.stdout.starts_with("rows  499\n"), "{evaluated:?}");
    // Strict, as before.
    let strict = place.runner(&["check", "spec.toml", "data.csv.missing=error", "data.csv.ignore=[\"a\"]"]);
    assert_eq!(strict.code, Some(2));
    assert!(strict.stderr.starts_with("error: missing cell in the target column `y`\n"), "{strict:?}");
    fs::write(place.path().join("a.csv"), "a,b,y\n1,2,\n3,4,\n").unwrap();
    let none = place.runner(&["check", "spec.toml"]).stderr;
    assert!(none.starts_with("error: all 2 rows lack the target\n"), "{none}");
}
