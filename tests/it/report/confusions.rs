//! Which classes a page shows to be taken for which others, and of which rows.

use std::fs;

use super::{page, run, table};
use crate::process::Sandbox;

/// A confusion matrix in the run's folder is shown as a table shaded by shares of the actual class.
#[test]
fn confusion() {
    let place = Sandbox::new("");
    run(place.path(), "a", "", "1,1,train,8,3,0.1\n");
    fs::write(place.path().join("runs/a/confusion.csv"), "actual,<a>,b\n<a>,9,1\nb,0,2\n").unwrap();
    let page = page(&place, &["runs/a"]);
    let cells = [
        r#"<td class="h8">9<br/>90.0 %</td><td class="h0">1<br/>10.0 %</td>"#,
        r#"<td class="h0">0</td><td class="h9">2<br/>100.0 %</td>"#,
    ];
    cells.iter().for_each(|cells| assert!(page.contains(cells), "{cells}"));
    assert!(page.contains("<th scope=\"row\">&lt;a&gt;</th>"));
    // The class with fewer rows comes first.
    let classes = table(&page, "How well each class is predicted");
    assert_eq!(
        classes,
        [["b", "2", "0.6667", "1.000", "0.8000"], ["&lt;a&gt;", "10", "1.000", "0.9000", "0.9474"]]
    );
}

/// Of many classes the most frequent confusions are listed.
#[test]
fn confusions_of_many_classes() {
    let place = Sandbox::new("");
    run(place.path(), "a", "", "1,1,train,8,3,0.1\n");
    let names: Vec<String> = (0..22).map(|class| format!("c{class:02}")).collect();
    let line = |(class, name): (usize, &String)| {
        // Class n has n of 50 rows taken for the next one, and class 3 two more for the first.
        let count = |other: usize| match other {
            _ if other == class => 50 - class,
            _ if other == (class + 1) % 22 => class,
            0 if class == 3 => 2,
            _ => 0,
        };
        let counts: Vec<String> = (0..22).map(|other| count(other).to_string()).collect();
        format!("{name},{}\n", counts.join(","))
    };
    let lines: String = names.iter().enumerate().map(line).collect();
    fs::write(place.path().join("runs/a/confusion.csv"), format!("actual,{}\n{lines}", names.join(",")))
        .unwrap();
    let page = page(&place, &["runs/a"]);
    let found = table(&page, "Classes that are taken for others, the most frequent first");
    assert_eq!(found.len(), 20);
    assert_eq!(found[0], ["c21", "c00", "21", "42.0 %"]);
    assert_eq!(found[18..], [["c03", "c04", "3", "5.77 %"], ["c02", "c03", "2", "4.00 %"]]);
    assert!(!page.contains("<table class=\"heat\">"));
    let note = "<p class=\"note\">1,102 validation rows: confusions of 22 classes; 20 of 22 are shown.</p>";
    assert!(page.contains(note), "{page}");
}

#[test]
fn a_confusion_matrix_says_of_which_rows() {
    let place = Sandbox::new("");
    run(place.path(), "a", "", "1,1,train,8,3,0.1\n");
    fs::write(place.path().join("runs/a/confusion.csv"), "actual,a,b\na,9,1\nb,0,2\n").unwrap();
    let page = page(&place, &["runs/a"]);
    let (_, matrix) = page.split_once("<h2>Confusion matrix</h2>").unwrap();
    assert!(matrix.contains("<p class=\"note\">12 validation rows.</p>"), "{matrix}");
}
