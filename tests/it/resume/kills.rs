//! Runs that are killed or signalled at random moments, and resume.

use std::{
    env,
    os::unix::process::ExitStatusExt,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use super::{
    super::{
        cuda::Sim,
        ends::{LIMIT, quiet, send, wait_for_lines, wait_until},
        process::{Ended, Folder, Sandbox},
    },
    SPEC, checkpoints, result,
    sweeps::{are_equal, statuses},
};

/// The number of kills; `RUNNER_KILLS=200` for more.
fn kills() -> u32 {
    env::var("RUNNER_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(8)
}

/// Kills runs and sweeps at random moments, and resumes them until they are complete.
struct Harness<'a> {
    place: &'a Sandbox,
    on: &'a dyn Fn(&mut Command),
    random: u64,
    killed: u32,
    /// The longest part, as a share of an undisturbed run's time: longer after each kill, so that a run comes to its end, and
    /// shorter after each end, so that some are killed, however the machine's load changes.
    share: f64,
}

impl<'a> Harness<'a> {
    fn new(place: &'a Sandbox, on: &'a dyn Fn(&mut Command)) -> Self {
        Self { place, on, random: 0x9E37_79B9_7F4A_7C15, killed: 0, share: 1.3 }
    }

    /// The folder of one that nothing disturbs, and the seconds that it takes.
    fn whole(&self, arguments: &[&str]) -> (Folder, f64) {
        let (mut command, runs) = self.place.prepared(arguments);
        (self.on)(&mut command);
        let begun = Instant::now();
        let ended = Ended::from_output(command.output().unwrap());
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        (Folder::within(&runs).unwrap(), begun.elapsed().as_secs_f64())
    }

    /// The newest folder in the end, of a run that takes `whole_s` seconds.
    fn killed(&mut self, arguments: &[&str], whole_s: f64) -> Folder {
        let (_, runs) = self.place.prepared(&[]);
        let words = ["run", "spec.toml", "--resume", "auto", "--runs-dir", runs.to_str().unwrap()];
        let begun = Instant::now();
        loop {
            let mut command = self.place.command(&[&words[..], arguments].concat());
            (self.on)(&mut command);
            let mut child = quiet(command);
            self.random =
                self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let wait = Duration::from_secs_f64(
                whole_s * self.share * (self.random >> 40) as f64 / f64::from(1 << 24),
            );
            let started = Instant::now();
            while started.elapsed() < wait && child.try_wait().unwrap().is_none() {
                thread::yield_now();
            }
            let _ = child.kill(); // it may have ended
            let output = child.wait_with_output().unwrap();
            if output.status.signal().is_none() {
                let ended = Ended::from_output(output);
                assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
                self.share *= 0.7;
                break;
            }
            self.killed += 1;
            self.share *= 1.2;
            assert!(begun.elapsed() < LIMIT);
        }
        // A run that was killed before its first checkpoint is left as it is, and a new one starts.
        let mut folders: Vec<_> =
            std::fs::read_dir(runs.join("spec")).unwrap().map(|e| e.unwrap().path()).collect();
        folders.sort();
        Folder(folders.pop().unwrap())
    }

    /// Kills runs of each case in turn.
    fn runs(&mut self, cases: &[Vec<&str>], rounds: u32) {
        let wholes: Vec<_> = cases.iter().map(|case| self.whole(case)).collect();
        let mut round = 0;
        while round < rounds as usize || self.killed == 0 {
            let case = &cases[round % cases.len()];
            let (whole, whole_s) = &wholes[round % cases.len()];
            let run = self.killed(case, *whole_s);
            assert!(result(&run) == result(whole), "{case:?}: another result in {}", run.0.display());
            // A kill right after a checkpoint was written also leaves the previous one.
            let (left, steps) = (checkpoints(&run), run.summary("steps"));
            assert!(left.len() <= 2 && left.last().is_some_and(|name| name.ends_with(&steps)), "{left:?}");
            round += 1;
        }
    }
}

/// Every policy and every way of loading rows.
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
    let cases = cases.map(|case| [case, &["trainer.max_epochs=150"]].concat());
    Harness::new(&place, &|_| {}).runs(&cases, kills());
}

/// With engines of the stand-in's GPU.
#[test]
fn killed_at_any_moment_a_run_on_a_gpu_ends_as_if_undisturbed() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(SPEC);
    let common = ["devices.num_gpus=1", "checkpoint.every_steps=8", "trainer.max_epochs=12"];
    let cases = ["persistent", "graph"].map(|engine| format!("devices.engine={engine}"));
    let cases = cases.each_ref().map(|engine| [&common[..], &[engine]].concat());
    let on = |command: &mut Command| {
        sim.on(command, &[]);
    };
    Harness::new(&place, &on).runs(&cases, kills().div_ceil(4));
}

#[test]
fn killed_at_any_moment_a_sweep_ends_as_if_undisturbed() {
    let place = Sandbox::new(SPEC);
    let arguments = ["optimizer.adam.lr=0.01,0.1", "trainer.max_epochs=80", "checkpoint.every_epochs=9"];
    let mut harness = Harness::new(&place, &|_| {});
    let (whole, whole_s) = harness.whole(&arguments);
    let mut round = 0;
    while round < kills().div_ceil(4) || harness.killed == 0 {
        round += 1;
        let sweep = harness.killed(&arguments, whole_s);
        assert_eq!(statuses(&sweep.0), ["finished", "finished"]);
        are_equal(&sweep.0, &whole.0);
    }
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
        place.runner(&["run", "--resume", run.0.to_str().unwrap()]).ended_by(0);
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
