//! Runs that are killed or signalled at random moments, and resume.

use std::{
    env,
    os::unix::process::ExitStatusExt,
    thread,
    time::{Duration, Instant},
};

use super::{
    super::{
        ends::{LIMIT, quiet, send, wait_for_lines, wait_until},
        process::{Ended, Folder, Sandbox},
    },
    SPEC, checkpoints, result,
};

/// The number of kills; `RUNNER_KILLS=200` for more.
fn kills() -> u32 {
    env::var("RUNNER_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(8)
}

/// Every policy and every way of loading rows, killed again and again until the run is complete.
#[test]
fn killed_at_any_moment_a_run_ends_as_if_undisturbed() {
    let place = Sandbox::new(SPEC);
    let cases: [&[&str]; 5] = [
        &["checkpoint.every_steps=50"],
        &["checkpoint.every_epochs=3", "logging.policy=per_epoch"],
        &["checkpoint.every_steps=64", "data.placement=streamed", "logging.policy=immediate"],
        &["checkpoint.every_steps=40", "devices.engine=team", "--threads=2", "logging.policy=off"],
        &["checkpoint.every_minutes=0.0001", "--virtual-gpus", "2", "devices.num_gpus=2"],
    ];
    let arguments = |case: &[&'static str]| [case, &["trainer.max_epochs=150"]].concat();
    let wholes = cases.map(|case| place.run(&arguments(case)).ended_by(0));
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut killed = 0;
    for round in 0..kills() {
        let case = arguments(cases[round as usize % cases.len()]);
        let whole = &wholes[round as usize % cases.len()];
        let begun = Instant::now();
        let (_, runs) = place.prepared(&[]);
        let go_on = || {
            let runs = runs.to_str().unwrap();
            place
                .command(&[&["run", "spec.toml", "--resume", "auto", "--runs-dir", runs], &case[..]].concat())
        };
        // The duration of a run, plus a margin.
        let span = whole.summary("wall_s").parse::<f64>().unwrap() * 1.3;
        let ended = loop {
            let mut child = quiet(go_on());
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let wait = Duration::from_secs_f64(span * (random >> 40) as f64 / f64::from(1 << 24));
            let started = Instant::now();
            while started.elapsed() < wait && child.try_wait().unwrap().is_none() {
                thread::yield_now();
            }
            let _ = child.kill(); // it may have ended
            let output = child.wait_with_output().unwrap();
            if output.status.signal().is_none() {
                break Ended::from_output(output);
            }
            killed += 1;
            assert!(begun.elapsed() < LIMIT);
        };
        assert_eq!(ended.code, Some(0), "{case:?}: {ended:?}");
        // A run that was killed before its first checkpoint is left as it is, and a new one starts.
        let mut folders: Vec<_> =
            std::fs::read_dir(runs.join("spec")).unwrap().map(|e| e.unwrap().path()).collect();
        folders.sort();
        let run = Folder(folders.pop().unwrap());
        assert!(result(&run) == result(whole), "{case:?}: another result in {}", run.0.display());
        // A kill right after a checkpoint was written also leaves the previous one.
        let left = checkpoints(&run);
        assert!(left.len() <= 2 && left.last().is_some_and(|name| name.ends_with("1050")), "{left:?}");
    }
    assert!(killed > 0);
}

/// Works without a `[checkpoint]` table too.
#[test]
fn a_run_that_a_signal_ended_goes_on() {
    let place = Sandbox::new(SPEC);
    let long = "trainer.max_epochs=3000";
    let whole = place.run(&[long]).ended_by(0);
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let (command, runs) = place.prepared(&[long]);
        let child = quiet(command);
        let run = wait_for_lines(&runs, 300);
        send(signal, &child);
        let ended = Ended::from_output(child.wait_with_output().unwrap());
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert_eq!(checkpoints(&run), [format!("step-{:0>8}", run.summary("steps"))]);
        let ended = place.runner(&["run", "--resume", run.0.to_str().unwrap()]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(result(&run) == result(&whole));
    }
}

#[test]
fn sigusr1_saves_and_the_run_goes_on() {
    let place = Sandbox::new(SPEC);
    let (command, runs) = place.prepared(&["trainer.max_epochs=1000000"]);
    let mut child = quiet(command);
    let run = wait_for_lines(&runs, 100);
    send("-USR1", &child);
    wait_until(&mut child, || !checkpoints(&run).is_empty());
    let saved = checkpoints(&run);
    let lines = || run.text("metrics.csv").lines().count();
    let before = lines();
    wait_until(&mut child, || lines() > before);
    assert_eq!(checkpoints(&run), saved);
    let step: u64 = saved[0].trim_start_matches("step-").parse().unwrap();
    let said =
        |text: String| text.replace(',', "").contains(&format!("SIGUSR1: the state after {step} step"));
    wait_until(&mut child, || said(run.text("run.log")));
    // Another process does not touch it.
    let path = run.0.to_str().unwrap();
    let ended = place.runner(&["run", "--resume", path]);
    assert_eq!(ended.code, Some(2));
    assert_eq!(
        ended.stderr,
        format!("error: `{path}` is under way in another process\n  = hint: wait for its end, or end it\n")
    );
    send("-INT", &child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
