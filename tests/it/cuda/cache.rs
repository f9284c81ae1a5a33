//! The disk cache of compiled kernels: reused, rebuilt when damaged, shared by processes that start together.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use super::{LINREG, Sim};
use crate::process::Sandbox;

/// The cache's only entry.
fn entry(sim: &Sim) -> std::path::PathBuf {
    let entries: Vec<_> = fs::read_dir(sim.kernels()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.into_iter().next().unwrap()
}

#[test]
fn the_second_run_needs_no_compiler_and_a_damaged_entry_is_made_anew() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let broken = [("RUNNER_SIM_FAIL", "compile:1")];
    sim.run(&place, &[], &[]).ended_by(0);
    let whole = fs::read(entry(&sim)).unwrap();
    sim.run(&place, &[], &broken).ended_by(0);
    fs::write(entry(&sim), &whole[..whole.len() - 1]).unwrap();
    let refused = sim.run(&place, &[], &broken).ended;
    assert_eq!(
        (refused.code, refused.stderr.as_str()),
        (
            Some(2),
            "error: `gpu:0` cannot be used: NVRTC cannot compile `kernels.cu` (status 6): error: #error directive\n"
        )
    );
    sim.run(&place, &[], &[]).ended_by(0);
    assert_eq!(fs::read(entry(&sim)).unwrap(), whole);
}

#[test]
fn processes_that_start_together_share_an_entry() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let mut running = Vec::new();
    for _ in 0..3 {
        let (mut command, runs) = place.prepared(&["-q"]);
        running.push((sim.on(&mut command, &[]).spawn().unwrap(), runs));
    }
    for (mut child, _) in running {
        assert!(child.wait().unwrap().success());
    }
    entry(&sim);
}

fn warning(why: &str) -> String {
    format!("warning: every run compiles the kernels, which takes seconds: {why}\n")
}

#[test]
fn a_cache_that_cannot_be_written_is_done_without() {
    let Some(sim) = Sim::get() else { return };
    fs::write(sim.kernels(), "a file").unwrap();
    let place = Sandbox::new(LINREG);
    let ran = sim.run(&place, &[], &[]);
    ran.ended_by(0);
    let why = format!("cannot write to `{}`: file exists", sim.kernels().display());
    assert!(ran.ended.stderr.contains(&warning(&why)), "{:?}", ran.ended);
    // A sweep says it once.
    let sweep = sim.run(&place, &["seed=1,2"], &[]).ended;
    assert_eq!(sweep.stderr.matches("compiles the kernels").count(), 1, "{sweep:?}");
}

#[test]
fn what_others_may_write_is_not_run() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let broken = [("RUNNER_SIM_FAIL", "compile:1")];
    sim.run(&place, &[], &[]).ended_by(0);
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let mode_of = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let entry = entry(&sim);
    assert_eq!([entry.as_path(), &sim.kernels()].map(|path| mode_of(path) & 0o022), [0, 0]);
    // An entry is compiled and written anew.
    mode(&entry, 0o777);
    assert_eq!(sim.run(&place, &[], &broken).ended.code, Some(2));
    let ran = sim.run(&place, &[], &[]);
    ran.ended_by(0);
    assert!(!ran.ended.stderr.contains("compiles"), "{:?}", ran.ended);
    sim.run(&place, &[], &broken).ended_by(0);
    // A folder stays as it is, and is not used.
    mode(&sim.kernels(), 0o777);
    for _ in 0..2 {
        assert_eq!(sim.run(&place, &[], &broken).ended.code, Some(2));
        let ran = sim.run(&place, &[], &[]);
        ran.ended_by(0);
        let folder = sim.kernels().display().to_string();
        let why = format!("`{folder}` is not used: other users may write to it");
        assert!(ran.ended.stderr.contains(&warning(&why)), "{:?}", ran.ended);
    }
    assert_eq!(mode_of(&sim.kernels()), 0o777);
    // One that is nobody else's stays so.
    mode(&sim.kernels(), 0o700);
    fs::remove_file(&entry).unwrap();
    sim.run(&place, &[], &[]).ended_by(0);
    assert_eq!(mode_of(&sim.kernels()), 0o700);
}
