//! Numbers of threads are tried on blank rows where the run is long enough, and change no digit.

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
    let tried = place.run(&["--threads=3"]).ended_by(0);
    let log = tried.text("run.log");
    let line = log.lines().find(|line| line.contains("  engine ")).unwrap();
    let (found, took) = line.split_once("; the trial took ").unwrap();
    let found = found.split_once("; others held ").map_or(found, |(found, _)| found);
    let (_, counts) = found.split_once(": on blank rows a step took ").unwrap();
    let counts: Vec<_> = counts.split(", ").map(|one| one.split_once(" by ").unwrap().1).collect();
    assert_eq!(counts, ["1 thread", "2 threads", "3 threads"], "{line}");
    assert!(took.ends_with("ms") || took.ends_with(" s"), "{line}");
    let environment: toml::Table = tried.text("environment.toml").parse().unwrap();
    assert!(line.ends_with(environment["devices"]["engine"].as_str().unwrap()));
    // With another number of threads the times differ, so that one of the runs has more steps.
    let alone = place.run(&["--threads=1"]).ended_by(0);
    assert!(alone.text("run.log").contains("engine serial: there is one thread"));
    let (own, other) = (tried.numbers(), alone.numbers());
    let least = own.len().min(other.len());
    assert!(own.lines().count() > 10 && own[..least] == other[..least]);
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
