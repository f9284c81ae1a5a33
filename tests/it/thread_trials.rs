//! Numbers of threads are tried on blank rows where the run is long enough, and change no digit.

use std::thread;

use crate::process::Sandbox;

const SPEC: &str = r#"
name = "threads"
[data]
batch_size = 128
[data.synthetic_regression]
weights = [2.0, -3.4, 1.0, 0.5, 0.2, -0.7, 0.1, 0.9]
train_rows = 1000
validation_rows = 0
[model]
layers = [ { linear = { out_features = 256 } }, "relu", { linear = { out_features = 64 } }, "relu", { linear = { out_features = 1 } } ]
[optimizer.sgd]
lr = 0.001
[trainer]
max_epochs = 1000000
max_time = "400ms"
validate_every_epochs = 0
"#;

#[test]
fn numbers_of_threads_are_tried_and_told() {
    let place = Sandbox::new(SPEC);
    let cores = thread::available_parallelism().unwrap().get();
    if cores == 1 {
        return eprintln!("SKIPPED: one core leaves nothing to try");
    }
    let tried = place.run(&["--threads=3"]).ended_by(0);
    let log = tried.text("run.log");
    let line = log.lines().find(|line| line.contains("  engine ")).unwrap();
    let (found, took) = line.split_once("; the trial took ").unwrap();
    let found = found.split_once("; ").map_or(found, |(found, _)| found);
    let (_, counts) = found.split_once(": on blank rows a step took ").unwrap();
    let counts: Vec<_> = counts.split(", ").map(|one| one.split_once(" by ").unwrap().1).collect();
    // No more than there are cores.
    assert_eq!(counts, ["1 thread", "2 threads", "3 threads"][..cores.min(3)], "{line}");
    assert!(took.ends_with("ms") || took.ends_with(" s"), "{line}");
    let environment: toml::Table = tried.text("environment.toml").parse().unwrap();
    assert!(line.ends_with(environment["devices"]["engine"].as_str().unwrap()));
    // With another number of threads the times differ, so that one of the runs has more steps.
    let alone = place.run(&["--threads=1"]).ended_by(0);
    assert!(alone.text("run.log").contains("engine serial: there is one thread"));
    let (own, other) = (tried.numbers(), alone.numbers());
    let least = own.len().min(other.len());
    assert!(own.lines().count() > 1 && own[..least] == other[..least]);
}

#[test]
fn a_short_run_and_an_engine_that_is_named_try_nothing() {
    let place = Sandbox::new(SPEC);
    for (arguments, words) in [
        (["trainer.max_time=20ms", "--threads=2"], " threads "),
        (["devices.engine=team", "--threads=2"], "the spec asks for it"),
    ] {
        let check = place.runner(&[&["check", "spec.toml"][..], &arguments].concat()).stdout;
        let line = check.lines().find(|line| line.starts_with("  engine ")).unwrap();
        assert!(line.contains(words) && !line.contains("blank rows"), "{line}");
    }
}

#[test]
fn more_threads_than_cores_are_warned_of_and_not_tried() {
    let place = Sandbox::new(SPEC);
    let cores = thread::available_parallelism().unwrap().get();
    let threads = (cores + 6).to_string();
    let own = if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
    let warning = format!(
        "warning: `--threads {threads}` is more than this process's {own}: threads beyond them only wait\n"
    );
    for command in ["check", "run"] {
        let ended = place.runner(&[command, "spec.toml", "--threads", &threads]).ended_by(0);
        assert!(ended.stderr.starts_with(&warning), "{ended:?}");
        if let Some((_, held)) = ended.stdout.split_once("; others held ") {
            let held: usize = held.split(' ').next().unwrap().parse().unwrap();
            assert!(held < cores, "{ended:?}");
        }
        for words in [format!(" by {threads} threads"), format!("by {threads} threads may")] {
            assert!(!ended.stdout.contains(&words), "{ended:?}");
        }
    }
    assert_eq!(place.runner(&["check", "spec.toml", "--threads", &cores.to_string()]).stderr, "");
}
