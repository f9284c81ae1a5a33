//! What other commands make of the run of `runner refit RUN`, and what it takes and refuses.

use std::fs;

use super::{
    process::{Ended, Folder},
    refit::{PENGUINS, SPEC, refit, sandbox},
};

/// A final model has no validation, and its training loss says nothing of it: it is called what it is.
#[test]
fn final_models_are_not_ranked() {
    let place = sandbox(SPEC);
    let run = place.run(&["-q"]).ended_by(0).0.display().to_string();
    let ended = place.runner(&["refit", &run, "-q"]);
    let last = ended.stdout.trim().to_owned();
    let compared = place.runner(&["compare", &run, &last]).stdout;
    let section = "birds-refit\nfinal model: not ranked, since nothing validated it\n  not ranked: 1 final model (#2)\n";
    assert!(compared.contains(section) && compared.matches("best: ").count() == 1, "{compared}");
    assert!(!compared.contains("train loss"), "{compared}");
    // Where it is asked for, the training loss ranks them.
    let asked = place.runner(&["compare", &run, &last, "--metric", "train.loss"]).stdout;
    assert!(asked.contains("train loss"), "{asked}");
    let listed = place.runner(&["list"]).stdout;
    assert_eq!(listed.matches("finished, final model").count(), 1, "{listed}");
    assert_eq!(place.runner(&["report", &run, &last, "-o", "both.html"]).code, Some(0));
    let page = fs::read_to_string(place.path().join("both.html")).unwrap();
    assert!(page.contains("final model: not ranked, since nothing validated it"));
    // The mean of the last epoch, as everywhere, and not the loss of the last batch.
    let own = Folder(place.path().join(&last));
    assert_ne!(own.summary("epoch_train_loss"), own.summary("final_train_loss"));
    assert_eq!(place.runner(&["report", &last, "-o", "own.html"]).code, Some(0));
    let page_of_one = fs::read_to_string(place.path().join("own.html")).unwrap();
    let loss = runner::units::number(own.summary("epoch_train_loss").parse().unwrap());
    assert!(
        page_of_one.contains(&format!("<p class=\"verdict\">finished: final model, train loss {loss}</p>"))
    );
    assert!(!page.contains("Best: #2"));
    let ended = place.runner(&["refit", &run, "seed=1,2"]);
    assert!(ended.stdout.contains("final model: not ranked"), "{ended:?}");
    assert!(ended.stdout.contains("not ranked: 2 final models (#0, 1)"), "{ended:?}");
    let sweep = ended.stdout.lines().find_map(|line| line.trim().strip_prefix("folder ")).unwrap().to_owned();
    let listed = place.runner(&["list"]).stdout;
    assert!(listed.contains("  2 final models finished"), "{listed}");
    let ended = place.runner(&["predict", &sweep, "penguins.csv"]);
    assert!(
        ended.stderr.ends_with("name the folder of one trial: they are final models, which nothing ranks\n"),
        "{ended:?}"
    );
}

/// What the features are follows from the data, and so do the inputs of the first layer; a path starts where it is typed.
#[test]
fn other_features_and_paths_are_taken_as_they_are() {
    let place = sandbox(SPEC);
    let run = place.run(&["-q"]).ended_by(0).0.display().to_string();
    let fewer = ["data.csv.ignore=[island]", "data.csv.categorical=[sex]"];
    let (last, printed) = refit(&place, &[&run, fewer[0], fewer[1]]);
    assert!(printed[3].contains(" '~model.layers.0.linear.in_features' "), "{printed:?}");
    let inputs = |run: &Folder| run.text("spec.toml").split("in_features = ").nth(1).unwrap()[..2].to_owned();
    assert_ne!(inputs(&last), inputs(&Folder(run.clone().into())));
    fs::copy(PENGUINS, place.path().join("other.csv")).unwrap();
    let (_, printed) = refit(&place, &[&run, "data.csv.path=other.csv"]);
    let full = place.path().join("other.csv");
    assert!(printed[3].contains(&format!(" data.csv.path={}", full.display())), "{printed:?}");
    // A project that was moved has its table below the folders above the run.
    fs::create_dir(place.path().join("moved")).unwrap();
    for (name, to) in [("penguins.csv", "moved/penguins.csv"), ("runs-0", "moved/runs")] {
        fs::rename(place.path().join(name), place.path().join(to)).unwrap();
    }
    let (_, printed) = refit(&place, &["moved/runs"]);
    assert!(printed[3].contains(" data.csv.path="), "{printed:?}");
    assert!(printed[3].contains("/moved/penguins.csv"), "{printed:?}");
}

/// The page of `check` shows what would be trained, and nothing is.
#[test]
fn it_can_be_looked_at_before_it_runs() {
    let place = sandbox(SPEC);
    let own = place.run(&["trainer.validate_every_epochs=2", "-q"]).ended_by(0);
    let (run, best) = (own.0.display().to_string(), own.summary("best_epoch"));
    let ended = place.runner(&["refit", &run, "--check", "--runs-dir", "final"]).ended_by(0);
    assert!(ended.stderr.starts_with(&format!("run: {run}\nrows: all but the test rows\n")), "{ended:?}");
    assert!(!ended.stderr.contains("warning"), "{ended:?}");
    assert!(
        ended.stdout.contains("birds-refit") && ended.stdout.contains(&format!("{best} epochs")),
        "{ended:?}"
    );
    assert!(!place.path().join("final").exists());
    let ended = place.runner(&["refit", &run, "--dry-run"]);
    assert!(
        ended.stderr.ends_with(" = hint: `--check` prints what would happen, and starts nothing\n"),
        "{ended:?}"
    );
}

/// Errors show what was typed.
#[test]
fn mistakes_are_shown_where_they_were_typed() {
    let place = sandbox(SPEC);
    let run = place.run(&["-q"]).ended_by(0).0.display().to_string();
    let refused = |arguments: &[&str]| {
        let Ended { code, stderr, .. } = place.runner(&[&["refit"], arguments].concat());
        assert_eq!(code, Some(2), "{stderr}");
        stderr
    };
    let stderr = refused(&[&run, "logging.metrics=[loss,auc]"]);
    assert!(
        stderr.contains("there are no rows to validate on") && stderr.contains("argument:1:"),
        "{stderr}"
    );
    assert!(stderr.ends_with("= hint: set aside some, such as `data.split.validation = 0.2`\n"), "{stderr}");
    let stderr = refused(&[&run, "seed=1", "trainer.max_epochs=0"]);
    assert!(stderr.contains("argument 2:1:"), "{stderr}");
    assert!(
        refused(&[&run, &run])
            .starts_with(&format!("error: `refit` takes one run or sweep: `{run}` is another\n"))
    );
    let sweep = place.runner(&["spec.toml", "~optimizer", "optimizer.sgd.lr=3e38,2e38", "-q"]);
    assert!(
        refused(&[sweep.stdout.trim()])
            .ends_with("name the folder of one trial: none of them finished: 2 diverged\n")
    );
}
