//! Features that alone tell the target: `new csv`, `check` and the run ask whether they are known before it is.

use std::fs;

use super::process::Sandbox;

/// What `new csv` and then `check` say of a table, without the lines on the data.
fn told(place: &Sandbox, header: &str, row: impl Fn(usize) -> String) -> (String, String) {
    told_of(place, header, 120, row)
}

fn told_of(place: &Sandbox, header: &str, rows: usize, row: impl Fn(usize) -> String) -> (String, String) {
    let rows: String = (0..rows).map(|n| row(n) + "\n").collect();
    fs::write(place.path().join("a.csv"), format!("{header}\n{rows}")).unwrap();
    _ = fs::remove_file(place.path().join("a.toml"));
    let drafted =
        place.runner(&["new", "csv", "a.toml", "--from", "a.csv", "--target", "y"]).ended_by(0).stderr;
    let checked = place.runner(&["check", "a.toml"]).ended_by(0).stderr;
    let of = |text: &str, start: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(start));
        lines.filter(|line| !line.starts_with("wrote ")).map(|line| format!("{line}\n")).collect::<String>()
    };
    (of(&drafted, ""), of(&checked, "warning: "))
}

/// A class by thresholds of a number, also where far numbers would be taken for mistakes; by the values of a column of words or of
/// numbers; and by what is missing. One row of another class is enough to say nothing.
#[test]
fn a_column_tells_the_class() {
    let place = Sandbox::new("");
    let is_ill = |n: usize| n % 9 == 4;
    let [age, dose] = [|n: usize| n * 17 % 60, |n: usize| n * 29 % 43];
    let class = |n: usize| if is_ill(n) { "yes" } else { "no" };
    let line = |name: &str| {
        format!("`{name}` alone tells the class of each row: is it known before the target is?\n")
    };
    type Cell<'a> = &'a dyn Fn(usize) -> String;
    let cases: [(&str, Cell, bool); 6] = [
        ("cost", &|n| (if is_ill(n) { 90_000 + n } else { n % 30 }).to_string(), true),
        ("code", &|n| if is_ill(n) { "D2" } else { ["D1", "D3"][n % 2] }.to_owned(), true),
        ("grade", &|n| if is_ill(n) { 3 } else { [2, 5][n % 2] }.to_string(), true),
        ("healed", &|n| if is_ill(n) { format!("{}", n % 11) } else { String::new() }, true),
        ("cost", &|n| (if is_ill(n) && n != 4 { 90_000 + n } else { n % 30 }).to_string(), false),
        ("code", &|n| if is_ill(n) || n == 0 { "D2" } else { ["D1", "D3"][n % 2] }.to_owned(), false),
    ];
    for (name, cell, tells) in cases {
        let row = |n: usize| format!("{},{},{},{}", age(n), dose(n), cell(n), class(n));
        let (drafted, checked) = told(&place, &format!("age,dose,{name},y"), row);
        let expected = if tells { line(name) } else { String::new() };
        let is_far = |text: &str| text.contains("far from all others");
        assert_eq!((&drafted, &checked), (&expected, &expected), "{name}");
        assert!(!tells || !is_far(&drafted), "{name}: {drafted}");
    }
}

/// A number that is linear in the target; a feature alone is what a model is to learn from, and few rows say little.
#[test]
fn a_column_tells_a_number() {
    let place = Sandbox::new("");
    let target = |n: usize| (n * 17 % 131) as f64 / 4.0;
    let row = |n: usize| format!("{}.5,{},{}", n * 29 % 131, 3.0 - 2.0 * target(n), target(n));
    let line = "`copy` alone tells the target (correlation -1.000): is it known before the target is?\n";
    assert_eq!(told(&place, "dose,copy,y", row), (line.to_owned(), line.to_owned()));
    let noisy = |n: usize| format!("{}.5,{},{}", n * 29 % 131, target(n) + (n % 7) as f64 / 4.0, target(n));
    assert_eq!(told(&place, "dose,copy,y", noisy), (String::new(), String::new()));
    let alone = |n: usize| format!("{},{}", 2.0 * target(n), target(n));
    assert_eq!(told(&place, "copy,y", alone), (String::new(), String::new()));
}

/// Of 20 rows with 5 of one class, a number parts the classes by chance in 2 of 20! / (15! 5!) = 15,504 orders: among many columns
/// one may. Words in 4 groups of 5 rows may have that class in any of 4.
#[test]
fn among_many_columns_chance_tells_a_class() {
    let place = Sandbox::new("");
    for (columns, tells) in [(3, true), (10, false)] {
        let header: String = (0..columns - 2).map(|column| format!("f{column},")).collect();
        let row = |n: usize| {
            let noise: String =
                (0..columns - 2).map(|column| format!("{}.5,", (n + 3) * (17 + 2 * column) % 61)).collect();
            let dose = if n < 5 { n * 2 % 3 } else { 10 + n * 5 % 7 };
            format!("{noise}{dose},{},{}", ["a", "b", "c", "d"][n / 5], if n < 5 { "yes" } else { "no" })
        };
        let line = |name: &str| {
            format!("`{name}` alone tells the class of each row: is it known before the target is?\n")
        };
        let (_, checked) = told_of(&place, &format!("{header}dose,group,y"), 20, row);
        let told: String =
            checked.lines().filter(|line| line.contains("alone")).map(|line| format!("{line}\n")).collect();
        let expected = if tells { line("dose") + &line("group") } else { String::new() };
        assert_eq!(told, expected, "{columns} columns: {checked}");
    }
}
