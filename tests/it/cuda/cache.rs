//! The disk cache of compiled kernels: reused, rebuilt when damaged, shared by processes that start together.

use std::{fs, os::unix::fs::PermissionsExt};

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

#[test]
fn a_cache_that_cannot_be_written_is_done_without() {
    let Some(sim) = Sim::get() else { return };
    fs::write(sim.kernels(), "a file").unwrap();
    sim.run(&Sandbox::new(LINREG), &[], &[]).ended_by(0);
}

#[test]
fn an_entry_that_others_may_write_is_not_run() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let broken = [("RUNNER_SIM_FAIL", "compile:1")];
    sim.run(&place, &[], &[]).ended_by(0);
    for path in [entry(&sim), sim.kernels().to_owned()] {
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o777);
        assert_eq!(sim.run(&place, &[], &broken).ended.code, Some(2), "{}", path.display());
        // It is compiled and written anew.
        sim.run(&place, &[], &[]).ended_by(0);
        sim.run(&place, &[], &broken).ended_by(0);
    }
}
