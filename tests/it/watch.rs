//! `runner watch` beside a run that is at work, in plain lines, and after its end.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    ends::{LIMIT, quiet, send, wait_for_lines, wait_until},
    process::{Ended, Sandbox},
};

/// A run that goes on until it is signalled.
const ENDLESS: [&str; 2] = ["trainer.max_epochs=100000000", "logging.flush_every_s=0.05"];

#[test]
fn a_run_is_watched_until_it_ends() {
    let place = Sandbox::new(super::run::LINREG);
    let (command, runs) = place.prepared(&ENDLESS);
    let mut run = quiet(command);
    wait_for_lines(&runs, 2);
    let printed = place.path().join("printed");
    let read = || fs::read_to_string(&printed).unwrap();
    let mut command = place.command(&["watch", runs.to_str().unwrap()]);
    let mut watch = command.stdout(File::create(&printed).unwrap()).spawn().unwrap();
    wait_until(&mut run, || read().contains(" steps/s, about "));
    send("-TERM", &run);
    assert_eq!(run.wait().unwrap().code(), Some(143));
    assert_eq!(end(&mut watch), Some(0));
    let text = read();
    assert!(text.contains(" of 100,000,000, step "), "{text}");
    assert!(text.contains("\ninterrupted, epoch ") && text.contains("train loss"), "{text}");
    assert!(!text.contains('\u{1b}'), "no terminal, no control sequences: {text}");
}

#[test]
fn watching_ends_with_its_reader_and_the_run_goes_on() {
    let place = Sandbox::new(super::run::LINREG);
    let (command, runs) = place.prepared(&ENDLESS);
    let mut run = quiet(command);
    wait_for_lines(&runs, 2);
    let arguments = ["watch", runs.to_str().unwrap()];
    let mut watch = quiet(place.command(&arguments));
    let mut line = String::new();
    BufReader::new(watch.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(end(&mut watch), Some(0), "as `| head -1` ends it");
    let mut command = place.command(&arguments);
    command.stdout(File::create("/dev/full").unwrap()).stderr(Stdio::piped());
    let mut full = command.spawn().unwrap();
    assert_eq!(end(&mut full), Some(1));
    let told = Ended::from_output(full.wait_with_output().unwrap()).stderr;
    assert_eq!(told, "error: cannot write to standard output: no space left on device\n");
    assert_eq!(run.try_wait().unwrap(), None);
    send("-TERM", &run);
    assert_eq!(end(&mut run), Some(143));
}

/// The exit code of one that ends soon.
fn end(child: &mut Child) -> Option<i32> {
    let begun = Instant::now();
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return status.code(),
            None if begun.elapsed() < LIMIT => thread::sleep(Duration::from_millis(5)),
            None => {
                child.kill().unwrap();
                return None;
            }
        }
    }
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

/// `script` gives it a terminal.
#[test]
fn a_run_is_drawn_while_it_goes_on_and_the_terminal_is_left_clean() {
    let place = Sandbox::new(super::run::LINREG);
    let words = [
        "spec.toml",
        "trainer.max_epochs=100000000",
        "trainer.max_time=\"3s\"",
        "logging.flush_every_s=0.05",
    ];
    let plain = place.command(&words[..1]).arg("--plot").output().unwrap();
    assert!(
        plain.status.success() && !plain.stdout.contains(&0x1b),
        "without a terminal it is the run alone"
    );
    let program = place.command(&[]).get_program().to_str().unwrap().to_owned();
    let command = format!(
        "{program} {} --plot --color never; echo code $?",
        words.map(|word| format!("'{word}'")).join(" ")
    );
    let script = std::process::Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .current_dir(place.path())
        .stdin(Stdio::null())
        .output();
    let Ok(output) = script else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    let (drawn, after) = text.split_once("\x1b[?25h\x1b[?1049l").expect(&text);
    assert!(drawn.starts_with("\x1b[?1049h\x1b[?25l\x1b[H"), "{text}");
    for words in [" of 100,000,000, step ", " MiB", "train loss", "└──"] {
        assert!(drawn.contains(words), "{words}: {text}");
    }
    assert!(
        after.contains(" finished in ") && after.contains("code 0") && !after.contains('\u{1b}'),
        "{text}"
    );
}
