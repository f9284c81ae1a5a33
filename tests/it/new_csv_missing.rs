//! What `runner new csv` proposes for numbers that are often missing.

use std::fs;

use super::{new_csv::drafted, process::Sandbox};

/// The lines of a draft on missing cells; of 300 rows every so many lack `income` and `age`.
fn lines(place: &Sandbox, often: [usize; 2]) -> String {
    let cell = |n: usize, every: usize, value: usize| {
        if n % every == 1 { String::new() } else { value.to_string() }
    };
    let row = |n: usize| {
        let (income, age) =
            (cell(n, often[0], 12_000 + n * 37 % 150 * 200), cell(n, often[1], 18 + n * 7 % 61));
        format!("{income},{age},{}\n", if n.is_multiple_of(3) { "yes" } else { "no" })
    };
    let rows: String = (0..300).map(row).collect();
    fs::write(place.path().join("a.csv"), format!("income,age,left\n{rows}")).unwrap();
    let text = drafted(place, &["a.csv", "--target", "left"]);
    let lines = text.lines().skip_while(|line| !line.starts_with("missing = "));
    lines.take_while(|line| !line.starts_with("standardize = ")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn often_missing_numbers() {
    let place = Sandbox::new("");
    insta::assert_snapshot!(lines(&place, [20, 10]), @r#"
    missing = "mean"    # fills 45 missing cells; "drop" leaves 30 rows out
    # `income` and 1 more column lack 5 % of their cells or more; `missing_indicators = true` also tells the model which cells are missing
    "#);
    insta::assert_snapshot!(lines(&place, [21, 100]), @r#"
    missing = "mean"    # fills 18 missing cells; "drop" leaves 17 rows out
    # `income` lacks 5.00 % of its cells; `missing_indicators = true` also tells the model which cells are missing
    "#);
    insta::assert_snapshot!(lines(&place, [30, 100]), @r#"missing = "mean"    # fills 13 missing cells; "drop" leaves 12 rows out"#);
    // What it proposes is read.
    lines(&place, [4, 100]);
    let ended = place.runner(&["check", "spec.toml", "data.csv.missing_indicators=true"]).ended_by(0);
    assert!(ended.stdout.contains(" 2 indicators of missing cells: `income`, `age`\n"), "{ended:?}");
}
