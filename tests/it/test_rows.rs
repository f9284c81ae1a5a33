//! `data.split.test`: which rows are for the test, and runs that have other ones.

use super::split::sandbox;

/// Each trial would train on rows that test others. `seed` draws the rows to validate on alone.
#[test]
fn a_sweep_keeps_its_test_rows() {
    let place = sandbox();
    let check = |words: &[&str]| place.runner(&[&["check", "spec.toml", "-q"], words].concat());
    let refused = check(&["data.split.test=0.1", "data.split.seed=0..3"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    insta::assert_snapshot!(refused.stderr, @r"
    error: `data.split.seed` draws the test rows, too: each trial would train on test rows of others, and none would be left to test what the sweep chooses
     --> argument 2:1:1
      |
    1 | data.split.seed=0..3
      | ^^^^^^^^^^^^^^^
      |
      = hint: sweep `seed` instead, and set no `data.split.seed`: that draws the rows to validate on alone; or keep no test rows: `data.split.test=0`
    ");
    for words in [
        ["data.split.test=0.1", "seed=0..3"],
        ["data.split.validation=0.1", "data.split.seed=0..3"],
        ["data.split={ test = 0.1, seed = 4 }", "seed=0..3"],
    ] {
        assert_eq!(check(&words).code, Some(0), "{words:?}");
    }
}

/// Runs that were begun one by one may keep other rows for the test: what they are compared by says so.
#[test]
fn runs_of_other_test_rows_are_named() {
    let place = sandbox();
    let words = "  the test rows differ (`data.split.seed`): those of one run trained others, and test nothing that is chosen here\n";
    let compared = |test: &str| {
        let words = ["data.split.seed=1", "data.split.seed=2", "data.split.seed=1 optimizer.adam.lr=0.1"];
        let runs = words.map(|word| {
            let words: Vec<&str> = word.split(' ').chain([test, "trainer.max_epochs=1", "-q"]).collect();
            place.run(&words).ended_by(0).0.display().to_string()
        });
        place.runner(&[&["compare"], &runs.each_ref().map(String::as_str)[..]].concat()).stdout
    };
    assert!(!compared("data.split.test=0").contains("the test rows differ"));
    // 0 is what draws them if the spec names no seed.
    let runs = [&["optimizer.adam.lr=0.1"][..], &["data.split.seed=0"]].map(|words| {
        let words = [words, &["data.split.test=0.1", "trainer.max_epochs=1", "-q"]].concat();
        place.run(&words).ended_by(0).0.display().to_string()
    });
    let same = place.runner(&["compare", &runs[0], &runs[1]]).ended_by(0).stdout;
    assert!(!same.contains("the test rows differ"), "{same}");
    let text = compared("data.split.test=0.1");
    assert!(text.contains(words), "{text}");
}

/// What `[data.split]` has by default is no difference: nobody wrote it.
#[test]
fn defaults_of_a_split_tell_no_tasks_apart() {
    let place = sandbox();
    let runs = ["data.csv.validation_fraction=0.2", "data.split.test=0.1"]
        .map(|word| place.run(&[word, "trainer.max_epochs=1", "-q"]).ended_by(0).0.display().to_string());
    let compared = place.runner(&["compare", &runs[0], &runs[1]]).stdout;
    let keys = "data.csv.validation_fraction, data.split.test, data.split.validation differ (#1; #2)\n";
    assert!(compared.starts_with(&format!("2 tasks, whose losses are not comparable: {keys}")), "{compared}");
}
