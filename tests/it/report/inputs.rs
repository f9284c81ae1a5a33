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
    let expected = [["A", sweep, "#0 to 5"], ["B", sweep, "#0 to 5"], ["C", "a run", "#13"]];
    for ((row, first), path) in what.iter().zip(expected).zip(paths) {
        assert_eq!(
            (&row[..3], &row[3..]),
            (&first.map(str::to_owned)[..], &["small".to_owned(), path.to_owned()][..])
        );
    }
    let runs = table(&page, "Every run with its figures");
    let names: Vec<&str> = runs.iter().map(|row| row[0].as_str()).collect();
    assert_eq!([names[0], names[5], names[6], names[12]], ["0 A", "5 A", "0 B", "13 C"]);
    // The number is that with which the trial's folder begins.
    let folder = |row: &Vec<String>| row.last().unwrap().rsplit('/').next().unwrap().to_owned();
    assert!(
        runs[..12].iter().all(|row| folder(row).starts_with(&format!("00{}-", &row[0][..1]))),
        "{runs:?}"
    );
    let settings = table(&page, "Settings by validation loss, the best first");
    let named = |number: &str, letters: &str| names.contains(&&*format!("{number} {}", &letters[..1]));
    assert!(settings.len() > 2 && settings.iter().all(|row| named(&row[0], &row[1])), "{settings:?}");
    for line in charts(&page).iter().flat_map(|chart| chart["lines"].as_array().unwrap()) {
        let mut words = line["name"].as_str().unwrap().trim_start_matches('#').split(' ');
        assert!(named(words.next().unwrap(), words.next().unwrap()), "{line}");
    }
    // On the screen the folders of what is shown stand below.
    let compared = place.runner(&["compare", paths[0], paths[1], paths[2]]).stdout;
    for (letter, path) in ["A", "B", "C"].iter().zip(paths) {
        assert!(compared.contains(&format!("\n  {letter}  {path}\n")), "{compared}");
    }
    // Numbers are enough to distinguish the trials of one sweep, also where they are named alone, or single runs.
    for paths in
        [&[paths[0]][..], &["runs/small/*-sweep-*/000*", paths[2]], &[&format!("{}/00[24]*", paths[1])]]
    {
        let has_letters =
            self::page(&place, &[paths, &["-o", "page.html"]].concat()).contains("id=\"inputs\"");
        assert_eq!(has_letters, paths.len() == 2, "{paths:?}");
    }
    let alone = place.runner(&["compare", &format!("{}/00[24]*", paths[1])]).stdout;
    assert!(["best: #2\n", "best: #4\n"].iter().any(|best| alone.contains(best)), "{alone}");
}
