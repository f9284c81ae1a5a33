//! `tag` and `clean`: which runs are kept, and that nothing else is touched.

mod inside;

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Child,
    time::{Duration, Instant},
};

use crate::{ends::LIMIT, process::Sandbox};

const SPEC: &str = "
    name = 'lin'
    data.synthetic_regression = { weights = [1.0], train_rows = 64, validation_rows = 32 }
    model.layers = [{ linear = { out_features = 1 } }]
    optimizer.sgd.lr = 0.1
    trainer.max_epochs = 2
";

struct Runs(Sandbox);

impl Runs {
    fn new() -> Self {
        Self(Sandbox::new(SPEC))
    }

    /// Runs the spec, and returns its folder.
    fn run(&self, arguments: &[&str]) -> PathBuf {
        let shown = self.ran(&[&["spec.toml", "-q"], arguments].concat());
        self.0.path().join(shown.trim())
    }

    fn ran(&self, arguments: &[&str]) -> String {
        let ended = self.0.runner(arguments);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        ended.stdout
    }

    fn refused(&self, arguments: &[&str]) -> String {
        let ended = self.0.runner(arguments).ended_by(2);
        ended.stderr
    }
}

/// Makes a run a hundred days old.
fn age(run: &Path) {
    let path = run.join("environment.toml");
    let text = fs::read_to_string(&path).unwrap();
    let begun = text.lines().find(|line| line.starts_with("started")).unwrap();
    fs::write(&path, text.replace(begun, "started = \"2020-01-02T03:04:05.678Z\"")).unwrap();
}

#[test]
fn the_best_and_the_tagged_stay() {
    let runs = Runs::new();
    let [worst, best, tagged] =
        ["1e-4", "0.2", "1e-5"].map(|lr| runs.run(&[&format!("optimizer.sgd.lr={lr}")]));
    let sweep = runs.run(&["optimizer.sgd.lr=1e-6,1e-7"]);
    let all = [&worst, &best, &tagged, &sweep];
    let name = tagged.display().to_string();
    assert!(runs.ran(&["tag", &name, "paper", "draft"]).ends_with(": paper draft\n"));
    runs.ran(&["tag", &name, "~draft"]);
    let absent = runs.0.runner(&["tag", &name, "~absent"]);
    assert!(absent.stderr.ends_with("` has no tag `absent`\n"), "{absent:?}");
    for (word, shown) in
        [("a b", "\"a b\""), ("a\u{1b}[2J", "\"a\\u{1b}[2J\""), ("~-a", "\"~-a\""), ("-a", "\"-a\"")]
    {
        let message = runs.refused(&["tag", &name, "--", word]);
        assert!(message.contains(&format!("{shown} is no tag")), "{message}");
    }
    // A tagged run is found by its tag.
    let listed = |filter: &str| runs.ran(&["list", "--where", filter]);
    assert_eq!((listed("tag = paper").lines().count(), listed("tag != paper").lines().count()), (2, 4));
    assert!(listed("tag = paper").contains("  paper\n"));
    assert_eq!(listed("tag = draft").lines().count(), 1);
    assert!(runs.ran(&["show", &name]).contains("\n  tags: paper\n"));

    let shown = runs.ran(&["clean", "--keep-best", "1"]);
    assert!(shown.contains("\n2 folders, ") && shown.contains("\nkept: 1 best, 1 tagged\n"), "{shown}");
    assert!(shown.ends_with("nothing was removed: `--yes` removes them for good\n"), "{shown}");
    assert!(all.iter().all(|folder| folder.is_dir()));
    assert_eq!(
        runs.ran(&["clean", "--keep-best", "0", "--older-than", "30d", "--yes"]),
        "nothing to remove\nkept: 1 tagged, 3 too young\n"
    );
    age(&best);
    age(&sweep.join("000-lr=1e-6"));
    let shown = runs.ran(&["clean", "runs/lin", "--keep-best", "1", "--older-than", "30d", "--yes"]);
    assert!(shown.ends_with("removed\n"), "{shown}");
    assert_eq!(all.map(|folder| folder.is_dir()), [true, true, true, false]);
    runs.ran(&["clean", "--keep-best", "1", "--yes"]);
    assert_eq!(all.map(|folder| folder.is_dir()), [false, true, true, false]);
}

/// Reruns of one seed, with the same figures, are one of the best.
#[test]
fn a_copy_counts_once() {
    let runs = Runs::new();
    let [first, again, worse] = [&[][..], &[], &["optimizer.sgd.lr=1e-6"]].map(|more| runs.run(more));
    let shown = runs.ran(&["clean", "--keep-best", "2", "--yes"]);
    assert!(shown.contains("\nkept: 2 best\n"), "{shown}");
    assert_eq!([&first, &again, &worse].map(|folder| folder.is_dir()), [true, false, true]);
}

#[test]
fn processes_that_tag_at_once_lose_no_word() {
    let runs = Runs::new();
    let run = runs.run(&[]);
    let words: Vec<String> = (0..12).map(|i| format!("w{i:02}")).collect();
    let tag = |word: &String| runs.0.command(&["tag", run.to_str().unwrap(), word]).spawn().unwrap();
    let mut children: Vec<Child> = words.iter().map(tag).collect();
    assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
    let mut tags: Vec<String> =
        fs::read_to_string(run.join("tags")).unwrap().lines().map(str::to_owned).collect();
    tags.sort();
    assert_eq!(tags, words);
}

/// Removes what a process left behind that was killed while it removed a run.
#[test]
fn a_hidden_folder_is_no_run() {
    let runs = Runs::new();
    let [run, hidden] = [runs.run(&[]), runs.run(&[])];
    fs::rename(&hidden, hidden.with_file_name(".removed")).unwrap();
    assert_eq!(runs.ran(&["list"]).lines().count(), 2);
    runs.ran(&["clean", "--keep-best", "0", "--yes"]);
    assert!(!run.exists());
    assert_eq!(fs::read_dir(runs.0.path().join("runs/lin")).unwrap().count(), 1);
}

#[test]
fn nothing_else_is_touched() {
    let runs = Runs::new();
    let run = runs.run(&[]);
    let sweep = runs.run(&["seed=0,1"]);
    let elsewhere = runs.run(&["--runs-dir", "elsewhere"]);
    let trial = fs::read_dir(&sweep).unwrap().flatten().find(|entry| entry.path().is_dir()).unwrap().path();
    symlink(&elsewhere, runs.0.path().join("runs/lin/link")).unwrap();
    symlink(runs.0.path().join("elsewhere/lin"), runs.0.path().join("runs/other")).unwrap();
    symlink(&elsewhere, run.join("link")).unwrap();
    assert!(runs.refused(&["clean", "--yes"]).contains("`--keep-best N` or `--older-than TIME`"));
    let run_elsewhere =
        format!("elsewhere elsewhere/lin/{}", elsewhere.file_name().unwrap().to_str().unwrap());
    for (outside, named) in [
        ("elsewhere", "elsewhere"),
        ("elsewhere/lin", "elsewhere elsewhere/lin"),
        ("runs/lin/link", &run_elsewhere),
        ("runs/other", "elsewhere elsewhere/lin"),
        (".", "."),
    ] {
        let message = runs.refused(&["clean", outside, "--keep-best", "0", "--yes"]);
        assert!(message.contains("is outside the runs folder `runs`"), "{message}");
        let hint =
            format!("\n  = hint: if runs are kept there, name the folder of all: `--runs-dir {named}`\n");
        assert!(message.ends_with(&hint), "{message}");
    }
    let shown = runs.ran(&["clean", &trial.display().to_string(), "--keep-best", "0", "--yes"]);
    assert_eq!(shown, "nothing to remove\nkept: 1 not at RUNS/NAME/RUN\n");
    let shown = runs.ran(&["clean", "--keep-best", "0", "--yes"]);
    assert!(shown.contains("1 behind a link"), "{shown}");
    assert!(!run.exists() && !sweep.exists());
    assert!(elsewhere.join("summary.csv").is_file());
}

#[test]
fn what_others_wrote_stays() {
    let runs = Runs::new();
    let run = runs.run(&[]);
    let theirs = runs.0.path().join("runs/thesis/plots");
    fs::create_dir_all(&theirs).unwrap();
    fs::write(theirs.join("summary.csv"), "a\n1\n").unwrap();
    let shown = runs.ran(&["clean", "--keep-best", "0", "--yes"]);
    assert!(shown.ends_with("removed\n") && !shown.contains("thesis"), "{shown}");
    assert!(!run.exists() && theirs.join("summary.csv").exists());
}

#[test]
fn a_run_that_lives_stays() {
    struct Killed(Child);
    impl Drop for Killed {
        fn drop(&mut self) {
            self.0.kill().and_then(|()| self.0.wait()).unwrap();
        }
    }
    for sweeps in [&[][..], &["seed=0,1"]] {
        let runs = Runs::new();
        let mut command = runs.0.command(&["spec.toml", "trainer.max_epochs=10000000", "-q"]);
        let live = Killed(command.args(sweeps).spawn().unwrap());
        let begun = Instant::now();
        let clean = || {
            // A folder of that name already exists.
            let ended = runs.0.runner(&["clean", "--keep-best", "0"]);
            ended.stdout
        };
        while clean() != "nothing to remove\nkept: 1 running\n" {
            assert!(begun.elapsed() < LIMIT, "{}", clean());
            std::thread::sleep(Duration::from_millis(20));
        }
        // It is none of the best, of which as many are kept.
        let best = runs.0.runner(&["clean", "--keep-best", "5"]).stdout;
        assert_eq!(best, "nothing to remove\nkept: 1 running\n");
        drop(live);
        assert!(clean().contains("\n1 folder, "), "{}", clean());
    }
}

/// An unfinished run with the best value is kept. For every removed run the reason is shown, and whether it
/// could have been resumed.
#[test]
fn the_best_stay_however_they_ended() {
    let runs = Runs::new();
    let [best, worst, finished, worse] = ["0.2", "1e-5", "1e-4", "3e-5"]
        .map(|lr| runs.run(&[&format!("optimizer.sgd.lr={lr}"), "checkpoint.every_epochs=1"]));
    // As a killed process leaves it.
    for killed in [&best, &worst] {
        let summary = killed.join("summary.csv");
        let head = fs::read_to_string(&summary).unwrap().lines().next().unwrap().to_owned();
        fs::write(&summary, head + "\n").unwrap();
    }
    let shown = runs.ran(&["clean", "--keep-best", "1"]);
    let row = |run: &Path| {
        let name = run.file_name().unwrap().to_str().unwrap();
        shown.lines().find(|line| line.contains(name)).map(str::trim_end)
    };
    // The best run of all, and the best finished one.
    assert!(shown.contains("\nkept: 2 best\n"), "{shown}");
    assert!(row(&best).is_some_and(|row| row.ends_with("  by value")), "{shown}");
    assert!(row(&finished).is_some_and(|row| row.ends_with("  by rank")), "{shown}");
    assert!(row(&worst).is_some_and(|row| row.ends_with("  not of the 1 best, can be resumed")), "{shown}");
    assert!(row(&worse).is_some_and(|row| row.ends_with("  not of the 1 best")), "{shown}");
    age(&worst);
    let shown = runs.ran(&["clean", "--older-than", "30d"]);
    assert!(shown.contains(" days old, can be resumed"), "{shown}");
}

/// A run of a seed of its own ranks after a setting of two, though its value is the best: it is kept beside what ranks first.
#[test]
fn the_best_values_stay_beside_what_ranks_first() {
    let runs = Runs::new();
    let [first, second, lucky, worst] = [["0.1", "0"], ["0.1", "1"], ["0.2", "7"], ["1e-4", "0"]]
        .map(|[lr, seed]| runs.run(&[&format!("optimizer.sgd.lr={lr}"), &format!("seed={seed}")]));
    let shown = runs.ran(&["clean", "--keep-best", "1"]);
    let why = |run: &PathBuf| {
        let name = run.file_name().unwrap().to_str().unwrap();
        let row = shown.lines().find(|line| line.contains(name)).unwrap();
        row.split_whitespace().skip(7).collect::<Vec<_>>().join(" ")
    };
    let (gone, _) = shown.split_once("\nstays as best\n\n").unwrap();
    assert!(!gone.contains(lucky.file_name().unwrap().to_str().unwrap()), "{shown}");
    let mut all = [&first, &second, &lucky, &worst].map(why);
    all[..2].sort();
    assert_eq!(all, ["by rank", "not of the 1 best", "by value", "not of the 1 best"], "{shown}");
    let end = "\nkept: 2 best\nnothing was removed: `--yes` removes them for good\n";
    assert!(shown.contains("\n2 folders, ") && shown.ends_with(end), "{shown}");
    runs.ran(&["clean", "--keep-best", "1", "--yes"]);
    assert!(lucky.is_dir() && !worst.is_dir());
}

/// The same order as `compare` uses if no run finished.
#[test]
fn the_best_of_stopped_trials_is_listed() {
    let runs = Runs::new();
    let sweep = runs.run(&["optimizer.sgd.lr=1e-4,0.2,0.1"]);
    let values = |status: &str| {
        let table = sweep.join("sweep.csv");
        let text = fs::read_to_string(&table).unwrap();
        fs::write(&table, text.replace(",finished,", &format!(",{status},"))).unwrap();
        for trial in fs::read_dir(&sweep).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
            let summary = trial.path().join("summary.csv");
            let text = fs::read_to_string(&summary).unwrap();
            fs::write(&summary, text.replace(",finished,", &format!(",{status},"))).unwrap();
        }
        let listed = runs.ran(&["list", "--json"]);
        serde_json::from_str::<serde_json::Value>(&listed).unwrap()[0]["value"].as_f64().unwrap()
    };
    let finished = values("finished");
    assert_eq!(values("stopped"), finished);
}

/// A lucky split beats the mean over all folds, and says nothing about it.
#[test]
fn runs_on_other_splits_are_not_held_against_each_other() {
    let spec = "
        name = 'p'
        data.csv = { path = 'penguins.csv', target = 'species', categorical = ['island', 'sex'], missing = 'mean' }
        model.layers = [{ linear = { out_features = 3 } }]
        model.loss = 'cross_entropy'
        optimizer.adam.lr = 0.05
        trainer.max_epochs = 2
    ";
    let runs = Runs(Sandbox::new(spec));
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/data/penguins.csv");
    fs::copy(table, runs.0.path().join("penguins.csv")).unwrap();
    let folds = runs.run(&["data.folds=5", "data.fold=0..5", "optimizer.adam.lr=0.0001"]);
    let [better, worse] = ["0.05", "0.01"].map(|lr| runs.run(&[&format!("optimizer.adam.lr={lr}")]));
    let shown = runs.ran(&["clean", "--keep-best", "1"]);
    let end = "\nkept: 2 best\neach task has its own best: runs of other data, splits or losses are not comparable\n\
               nothing was removed: `--yes` removes them for good\n";
    assert!(shown.contains("\n1 folder, ") && shown.ends_with(end), "{shown}");
    let row = shown.lines().find(|line| line.contains(worse.file_name().unwrap().to_str().unwrap()));
    assert!(row.is_some_and(|row| row.ends_with("  not of the 1 best of its task")), "{shown}");
    runs.ran(&["clean", "--keep-best", "1", "--yes"]);
    assert_eq!([&folds, &better, &worse].map(|folder| folder.is_dir()), [true, true, false]);
}

/// A sweep over losses has a best of each, and stays if it is the best by one of them.
#[test]
fn sweeps_of_several_tasks_are_judged_by_each() {
    let runs = Runs::new();
    let [best, worse, worst] =
        ["0.1", "1e-3", "1e-4"].map(|lr| runs.run(&["model.loss=mse,l1", &format!("optimizer.sgd.lr={lr}")]));
    let shown = runs.ran(&["clean", "--keep-best", "1", "--yes"]);
    assert!(shown.contains("\n2 folders, ") && shown.ends_with("\nkept: 1 best\nremoved\n"), "{shown}");
    assert_eq!([&best, &worse, &worst].map(|folder| folder.is_dir()), [true, false, false]);
}
