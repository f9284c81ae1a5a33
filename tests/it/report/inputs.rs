//! Pages of several inputs.

use super::*;

/// Of two sweeps of equal settings and a run, a table says which letter is which, and names, rows and lines have the letters.
#[test]
fn several_inputs_are_told_apart() {
    let place = Sandbox::new(SWEEP);
    let ran = |words: &[&str]| {
        let ended = place.runner(&[&["spec.toml", "-q"], words].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout.trim().to_owned()
    };
    let wide = "data.synthetic_regression.noise=0.5";
    let inputs = [ran(&[]), ran(&[wide]), ran(&["~sweep", "optimizer.sgd.lr=0.05"])];
    let paths = inputs.each_ref().map(String::as_str);
    let page = page(&place, &[paths[0], paths[1], paths[2], "-o", "page.html"]);
    let what = table(&page, "What the letters in the names of runs stand for");
    let sweep = "a sweep of 6 trials";
    let expected = [["A", sweep, "#1 to 6"], ["B", sweep, "#7 to 12"], ["C", "a run", "#13"]];
    for ((row, first), path) in what.iter().zip(expected).zip(paths) {
        assert_eq!(
            (&row[..3], &row[3..]),
            (&first.map(str::to_owned)[..], &["small".to_owned(), path.to_owned()][..])
        );
    }
    let runs = table(&page, "Every run with its figures");
    let own: Vec<[&str; 3]> = runs.iter().map(|row| [&row[0][..], &row[1], &row[2]]).collect();
    assert_eq!([own[0], own[6], own[12]], [["1", "A", "0"], ["7", "B", "0"], ["13", "C", ""]]);
    let letter = |number: &str| runs.iter().find(|row| row[0] == number).unwrap()[1].clone();
    let settings = table(&page, "Settings by validation loss, the best first");
    assert!(settings.len() > 2 && settings.iter().all(|row| row[1] == letter(&row[0])), "{settings:?}");
    for line in charts(&page).iter().flat_map(|chart| chart["lines"].as_array().unwrap()) {
        let mut words = line["name"].as_str().unwrap().trim_start_matches('#').split(' ');
        let [number, own] = [words.next().unwrap(), words.next().unwrap()];
        assert_eq!(own, letter(number), "{line}");
    }
    // Numbers are enough to distinguish single runs, or the trials of one sweep.
    for paths in [&[paths[0]][..], &["runs/small/*/000*", paths[2]]] {
        assert!(!self::page(&place, &[paths, &["-o", "page.html"]].concat()).contains("id=\"inputs\""));
    }
}
