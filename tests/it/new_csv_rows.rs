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
