//! `runner watch` beside a run that is at work, in plain lines, and after its end.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use super::process::Sandbox;

/// Long enough to be watched.
const LONG: [&str; 3] = ["trainer.max_epochs=100000000", "logging.flush_every_s=0.05", "trainer.max_time=4s"];

#[test]
fn a_run_is_watched_until_it_ends() {
    let place = Sandbox::new(super::run::LINREG);
    let (mut command, runs) = place.prepared(&LONG);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !std::fs::read_dir(runs.join("spec")).is_ok_and(|mut entries| {
        entries.next().is_some_and(|entry| entry.unwrap().path().join("metrics.csv").is_file())
    }) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut command = place.command(&["watch", runs.to_str().unwrap()]);
    let mut watch = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let lines: Vec<String> = lines.map(|line| line.unwrap()).collect();
    assert!(watch.wait().unwrap().success() && run.wait().unwrap().success());
    let text = lines.join("\n");
    assert!(text.contains(" of 100,000,000, step ") && text.contains(" steps/s, about "), "{text}");
    assert!(text.contains("\nfinished, epoch ") && text.contains("train loss"), "{text}");
    assert!(!text.contains('\u{1b}'), "no terminal, no control sequences: {text}");
}

#[test]
fn a_sweep_is_shown_with_the_states_of_its_trials() {
    let place = Sandbox::new(super::run::LINREG);
    let sweep = place.run(&["optimizer.sgd.lr=0.03,60.0"]);
    let ended = place.runner(&["watch", sweep.runs.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("\n2 trials: 1 finished, 1 diverged\n"), "{ended:?}");
    assert_eq!(place.runner(&["watch", "none"]).code, Some(2));
}
