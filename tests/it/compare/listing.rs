//! `list`, `latest`, `show`, `diff`, and the hint for mistyped paths.

use std::fs;

use runner::{
    record::summary_columns,
    report::{ListRequest, list},
};
use serde_json::{Value, json};

use super::{FACTS, Facts, Runs, sweep};
use crate::{
    ends::{quiet, wait_until},
    process::{Folder, Sandbox},
};

/// Two runs and a sweep. `started` is derived from the rate, as text that sorts.
fn runs() -> Runs {
    let runs = Runs::new();
    sweep(&runs);
    runs.run("linreg/a", &FACTS);
    runs.run("linreg/b", &Facts { epochs: 4, steps_per_s: "3000.0", losses: [4.0, 3.0, 2.0], ..FACTS });
    runs
}

#[test]
fn runs_are_listed_found_and_shown() {
    let runs = runs();
    let place = Sandbox::new("");
    let ran = |words: &[&str]| {
        let ended = place.runner(words);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{words:?}");
        runs.masked(&ended.stdout)
    };
    let linreg = runs.named("linreg");
    let shown = ran(&["list", &linreg]).replace(&runs.named(""), "RUNS/");
    let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), 4, "{shown}");
    assert!(lines[1].contains(&"RUNS/linreg/S") && lines[3].contains(&"RUNS/linreg/b"), "{shown}");
    assert!(shown.contains("2 finished, 1 not run, 1 unfinished"), "{shown}");
    let chosen = ran(&["list", &linreg, "--where", "max_epochs > 3", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&chosen).unwrap();
    assert_eq!((json.as_array().unwrap().len(), &json[0]["value"]), (1, &serde_json::json!(0.5)));
    assert_eq!(json[0]["path"], "RUNS/linreg/b");
    // If one trial of a sweep passes, all its trials count.
    let whole = ran(&["list", &linreg, "--where", "num_gpus = 2"]);
    assert_eq!(
        (whole.lines().count(), whole.contains("  2 finished, 1 not run, 1 unfinished  ")),
        (2, true),
        "{whole}"
    );
    assert_eq!(ran(&["latest", &linreg]), "RUNS/linreg/b\n");
    let shown = ran(&["show", &runs.named("linreg/b")]);
    let head = "RUNS/linreg/b\n  seed: 0\n  started: 3000.0\n  command: runner\n\n # ";
    assert!(shown.starts_with(head), "{shown}");
    assert!(shown.contains("\n best validation loss  0.5000 in epoch 1\n"), "{shown}");
    let trial = runs.named("linreg/S/002-devices.num_gpus=2");
    let shown = ran(&["show", &trial]);
    assert!(
        shown.contains("\n  trial: devices.num_gpus=2\n  seed: 0\n  started: 2500.0\n  command: runner\n"),
        "{shown}"
    );
    let shown = ran(&["show", &runs.named("linreg/S")]);
    assert!(shown.starts_with("linreg: 4 trials, 2 finished, 1 not run, 1 unfinished\n"), "{shown}");
    assert!(shown.ends_with("\n  folder RUNS/linreg/S\n"), "{shown}");
    let shown = ran(&["diff", &runs.named("linreg/a"), &runs.named("linreg/b")]);
    assert!(shown.contains("\n  trainer.max_epochs  3 (#1)  4 (#2)\n"), "{shown}");
    assert!(shown.contains("parts at step 2: 2 and 3"), "{shown}");
}

/// What `show --json` prints: figures as in the files; of a sweep its settings, best first, and its trials.
#[test]
fn a_run_and_a_sweep_are_shown_as_json() {
    let runs = runs();
    let place = Sandbox::new("");
    let shown = |path: &str| -> Value {
        let ended = place.runner(&["show", &runs.named(path), "--json"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{path}");
        serde_json::from_str(&runs.masked(&ended.stdout)).unwrap()
    };
    let mut run = shown("linreg/S/002-devices.num_gpus=2");
    let figures = run.as_object_mut().unwrap().remove("figures").unwrap();
    assert_eq!(
        run,
        json!({
            "path": "RUNS/linreg/S/002-devices.num_gpus=2",
            "trial": { "devices.num_gpus": 2 },
            "seed": 0,
            "started": "2500.0",
            "command": "runner",
            "tags": [],
            "status": "finished",
            "reason": null,
            "process": null,
            "best": { "validation.loss": 0.5 },
            "last": {},
        })
    );
    let written: Vec<&String> = figures.as_object().unwrap().keys().collect();
    assert_eq!(written.len(), summary_columns().len() - 2, "{written:?}");
    assert_eq!((&figures["steps_per_s"], &figures["devices_used"]), (&json!(2500.0), &json!("gpu:0;gpu:1")));
    assert_eq!(shown("linreg/b")["trial"], json!({}));
    let sweep = shown("linreg/S");
    assert_eq!(sweep["path"], "RUNS/linreg/S");
    assert_eq!((&sweep["trials"], &sweep["runs"].as_array().unwrap().len()), (&json!(4), &4));
    assert_eq!(sweep["status"], json!({ "finished": 2, "same_as": 1, "unfinished": 1 }));
    let best = json!({ "trial": 0, "folder": "RUNS/linreg/S/000-devices.num_gpus=0", "metric": "validation.loss", "value": 0.5, "n": 1 });
    assert_eq!(sweep["best"], best);
    let ranking = &sweep["rankings"][0];
    assert_eq!(
        (&ranking["metric"], &ranking["settings"][0]["value"]),
        (&json!("validation.loss"), &json!(0.5))
    );
    let ended = place.runner(&["show", &runs.named("none"), "--json"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
}

/// A narrow terminal gets fewer columns, in an order of their own, and a line that names what is left out; a pipe has no width.
#[test]
fn a_list_has_a_line_for_each() {
    let runs = runs();
    let started = FACTS.environment().replace("\"1000.0\"", "\"2026-11-25T17:15:57.436Z\"");
    runs.write("linreg/a/environment.toml", &started);
    let linreg = runs.named("linreg");
    let list = |width: usize, filter: Option<&str>| {
        runs.masked(&list(&ListRequest { path: &linreg, filter, sort: None, json: false }, width).unwrap())
    };
    let words = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let lines = [
        "started run status best validation.loss",
        "RUNS/linreg/S 2 finished, 1 not run, 1 unfinished 0.5000",
        "2026-11-25 17:15 RUNS/linreg/a finished 0.5000",
        "RUNS/linreg/b finished 0.5000",
    ];
    assert_eq!(words(&list(usize::MAX, None)), lines);
    let widest = |text: &str| text.lines().take(4).map(|line| line.chars().count()).max().unwrap();
    let whole = widest(
        &list(usize::MAX, None).replace("RUNS", runs.path("").to_str().unwrap().trim_end_matches('/')),
    );
    assert_eq!(words(&list(whole, None)), lines);
    let narrow =
        lines.map(|line| line.trim_start_matches("started ").trim_start_matches("2026-11-25 17:15 "));
    let found = words(&list(whole - 1, None));
    assert_eq!(
        (&found[..4], &found[4..]),
        (
            &narrow.map(str::to_owned)[..],
            &["".to_owned(), "not shown: started; `-v` shows all".to_owned()][..]
        )
    );
    for (width, head, first, note) in [
        (
            whole - 19,
            "run status best",
            "RUNS/linreg/S 2 finished, 1 not run, 1 unfinished 0.5000",
            "best is that of validation.loss; not shown: started; `-v` shows all",
        ),
        (
            whole - 33,
            "run status best",
            "RUNS/linreg/S 2 of 4 finished 0.5000",
            "best is that of validation.loss; not shown: started; `-v` shows all",
        ),
        (
            40,
            "run status best",
            "S 2 of 4 finished 0.5000",
            "best is that of validation.loss; not shown: started; runs are in `RUNS/linreg`; `-v` shows all",
        ),
    ] {
        let found = words(&list(width, None));
        assert_eq!([&found[0][..], &found[1], &found[5]], [head, first, note], "{width}");
    }
    let chosen = list(usize::MAX, Some("trials > 3"));
    assert!(chosen.lines().count() == 2 && chosen.contains("RUNS/linreg/S"), "{chosen}");
}

#[test]
fn sweeps_are_compared_and_not_diffed() {
    let runs = runs();
    let ended = Sandbox::new("").runner(&["diff", &runs.named("linreg/a"), &runs.named("linreg/S")]);
    assert_eq!(
        (ended.code, &*runs.masked(&ended.stderr)),
        (
            Some(2),
            "error: `RUNS/linreg/S` is a sweep, and holds a run for each trial\n\
             \x20 = hint: name the folder of one trial, such as `RUNS/linreg/S/000-devices.num_gpus=0`, the best; \
             `runner compare A B` holds two sweeps against each other\n"
        )
    );
}

/// A folder that is no run is skipped among others; a slip is met with the near name.
#[test]
fn foreign_folders_and_slips() {
    let runs = runs();
    runs.write("notes/readme.txt", "");
    runs.write("notes/summary.csv", "a\n1\n");
    let place = Sandbox::new("");
    let ended = place.runner(&["compare", &runs.named("linreg/a"), &runs.named("notes"), "-q"]);
    assert_eq!(ended.code, Some(0));
    let none = "holds no run (`spec.toml` with `summary.csv` or `metrics.csv`) and no sweep (`sweep.toml` with `sweep.csv`)";
    assert_eq!(runs.masked(&ended.stderr), format!("warning: left out: `RUNS/notes` {none}\n"));
    assert_eq!(ended.stdout, "1 run\n");
    // A file is no run either, and a gate does not hold of less than it was given.
    let file = runs.named("notes/summary.csv");
    let left_out = format!("`RUNS/notes/summary.csv` {none}\n");
    for (command, code, before) in [
        (&["compare", "-q"][..], 0, "warning: left out: "),
        (&["plot"], 0, "warning: left out: "),
        (&["compare", "--fail-if", "mean(validation.loss) > 9"], 2, "error: "),
    ] {
        let ended = place.runner(&[command, &[&runs.named("linreg/a"), &file]].concat());
        let hint = "  = hint: name a run folder (`runs/NAME/TIME-HASH`), a sweep folder, `runs/NAME` for all in it, or a glob in quotes\n";
        let hint = if code == 0 { "" } else { hint };
        assert_eq!(
            (ended.code, runs.masked(&ended.stderr)),
            (Some(code), format!("{before}{left_out}{hint}"))
        );
    }
    for command in [&["tag", &runs.named("notes"), "word"][..], &["show", &runs.named("notes")]] {
        let ended = place.runner(command);
        assert!(runs.masked(&ended.stderr).starts_with("error: `RUNS/notes` holds no run "), "{ended:?}");
    }
    let ended = place.runner(&["show", &runs.named("linrge")]);
    assert_eq!(ended.code, Some(2));
    assert!(runs.masked(&ended.stderr).contains("hint: did you mean `RUNS/linreg`?"), "{ended:?}");
}

#[test]
fn a_run_that_lives_is_told_from_one_that_was_killed() {
    let place = Sandbox::new(
        "name = \"long\"\ndata.synthetic_regression = { weights = [1.0], train_rows = 64, validation_rows = 16 }\n\
         model.layers = [{ linear = { out_features = 1 } }]\noptimizer.sgd.lr = 0.1\n\
         trainer.max_epochs = 1000000000\n",
    );
    let (command, runs) = place.prepared(&["seed=0,1", "--jobs", "2"]);
    let mut child = quiet(command);
    let has_rows = |trial: &str| {
        let rows = |sweep: Folder| fs::read_to_string(sweep.0.join(trial).join("metrics.csv"));
        Folder::within(&runs).is_some_and(|sweep| rows(sweep).is_ok_and(|text| text.lines().count() > 5))
    };
    wait_until(&mut child, || has_rows("000-seed=0") && has_rows("001-seed=1"));
    let sweep = Folder::within(&runs).unwrap().0;
    let trial = sweep.join("000-seed=0").display().to_string();
    let look = || {
        let list = place.runner(&["list", runs.to_str().unwrap(), "--where", "best > 0 or best <= 0"]).stdout;
        [
            list,
            place.runner(&["show", &trial]).stdout,
            place.runner(&["compare", sweep.to_str().unwrap()]).stdout,
        ]
    };
    let lives = look();
    child.kill().unwrap();
    child.wait().unwrap();
    let died = look();
    for (text, is_told) in lives.iter().zip(["2 running", " running\n", "2 running (#0, 1, best so far"]) {
        assert!(text.contains(is_told) && !text.contains("killed"), "{text}");
    }
    for (text, is_told) in
        died.iter().zip(["2 unfinished", "killed: no process", "2 unfinished (#0, 1, best"])
    {
        assert!(text.contains(is_told) && !text.contains("running"), "{text}");
    }
    // Both before and after, the files tell which process it was.
    for shown in [&lives[1], &died[1]] {
        assert!(shown.contains(&format!("\n  process: {} on ", child.id())), "{shown}");
    }
    let (trial, summary) = (Folder(trial.into()), "summary.csv");
    let row = |column| trial.table(summary).cell(0, column).to_owned();
    let known = ["status", "devices_used", "steps", "wall_s"].map(row);
    assert_eq!(known, ["running", "cpu", "", ""]);
}
