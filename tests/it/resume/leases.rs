//! Parallel trials on GPUs, simulated and virtual: each trial has its own GPUs unless sharing is on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use super::{
    super::{
        cuda::Sim,
        ends::{quiet, wait_until},
        process::{Folder, Sandbox},
    },
    SPEC,
    sweeps::{are_equal, statuses, trials},
};

const GRID: [&str; 3] = ["devices.num_gpus=1", "optimizer.adam.lr=0.01,0.1,0.02,0.03", "seed=0,1"];

/// The GPUs on which trials ran.
fn used(sweep: &Path) -> BTreeSet<String> {
    trials(sweep).iter().map(|trial| trial.table("summary.csv").cell(0, "devices_used").to_owned()).collect()
}

/// The highest number of allocations that a GPU had at one time.
fn most_allocated(sim: &Sim) -> usize {
    let text = fs::read_to_string(sim.log()).unwrap();
    fs::remove_file(sim.log()).unwrap();
    let (mut own, mut most) = (BTreeMap::new(), 0);
    for (device, call) in text.lines().filter_map(|line| line.split_once(' ')) {
        let count: &mut usize = own.entry(device.to_owned()).or_default();
        match call.split(' ').next() {
            Some("alloc") => *count += 1,
            Some("free") => *count -= 1,
            _ => {}
        }
        most = most.max(*count);
    }
    most
}

fn names(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn each_has_a_gpu_of_its_own() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(SPEC);
    let run = |more: &[&str], gpus: &str| {
        sim.run(&place, &[&GRID[..], more].concat(), &[("RUNNER_SIM_DEVICES", gpus)])
    };
    let alone = run(&[], "2").ended_by(0).0;
    let most = most_allocated(&sim);
    assert_eq!(used(&alone), names(&["gpu:0"]));
    for jobs in ["2", "auto"] {
        let ran = run(&["--jobs", jobs], "2");
        let sweep = ran.ended_by(0);
        are_equal(&sweep.0, &alone);
        assert_eq!(used(&sweep.0), names(&["gpu:0", "gpu:1"]));
        assert!(most_allocated(&sim) <= most, "the rows of one seed or of both");
        let last = trials(&sweep.0).pop().unwrap();
        let (gpu, environment) =
            (last.table("summary.csv").cell(0, "devices_used").to_owned(), last.text("environment.toml"));
        for line in [&format!("used = [\"{gpu}\"]\n"), &format!("name = \"{gpu}\"\n"), "jobs = 2\n"] {
            assert!(environment.contains(line), "{line}{environment}");
        }
        // The two seeds of a setting are its repeats, whichever GPUs they ran on.
        let path = sweep.0.to_str().unwrap();
        let times = place.runner(&["compare", path, "--times"]).stdout;
        assert!(times.starts_with("8 runs, comparable: "), "{times}");
        let repeats = times.split("repeats taken together").nth(1).unwrap();
        assert_eq!(
            repeats.lines().filter(|line| line.trim_start().starts_with("0.01")).count(),
            2,
            "{times}"
        );
    }
    let told = run(&["--jobs", "3", "sweep.share=false"], "1").ended;
    assert!(
        told.stderr
            .contains("`--jobs 3`: 1 trial at a time on 1 GPU; `sweep.share=true` lets trials share a GPU\n"),
        "{told:?}"
    );
    assert_eq!(most_allocated(&sim), most);
    let sweep = run(&["--jobs", "3", "sweep.share=true", "trainer.max_epochs=40"], "1").ended_by(0);
    assert!(most_allocated(&sim) > most);
    assert!(trials(&sweep.0)[0].text("environment.toml").contains("share = true\n"));
}

/// Trials that need several GPUs get them; trials on the CPU wait for none.
#[test]
fn trials_of_several_sizes_share_a_machine() {
    let place = Sandbox::new(SPEC);
    let grid = ["devices.num_gpus=0,1,2,4", "optimizer.adam.lr=0.01,0.1", "--virtual-gpus", "4"];
    let alone = place.run(&grid).ended_by(0).0;
    let sweep = place.run(&[&grid[..], &["--jobs", "3"]].concat()).ended_by(0).0;
    are_equal(&sweep, &alone);
    let counts: Vec<usize> = trials(&sweep)
        .iter()
        .map(|trial| trial.table("summary.csv").cell(0, "devices_used").split(';').count())
        .collect();
    assert_eq!(counts, [1, 1, 1, 1, 2, 2, 4, 4]);
    // Devices that the spec names are not exchanged for others.
    let named =
        ["devices.use=[\"gpu:1\"]", "optimizer.adam.lr=0.01,0.1,0.2", "--jobs", "3", "--virtual-gpus", "4"];
    assert_eq!(used(&place.run(&named).ended_by(0).0), names(&["virtual:1"]));
}

/// With successive halving, a trial continues on whichever GPU is free.
#[test]
fn trials_go_on_from_a_rung_on_another_gpu() {
    let place = Sandbox::new(SPEC);
    let stop = "sweep.stop={ asha = { min_epochs = 1, factor = 2 } }";
    let axes = [&GRID[..2], &["data.batch_size=16,32"]].concat();
    let halving = [&axes[..], &["trainer.max_epochs=9", stop, "--virtual-gpus", "2"]].concat();
    let alone = place.run(&halving).ended_by(0).0;
    let sweep = place.run(&[&halving[..], &["--jobs", "2"]].concat()).ended_by(0).0;
    are_equal(&sweep, &alone);
    assert_eq!(statuses(&sweep), statuses(&alone));
}

/// Two processes on one machine use different GPUs, without being told to.
#[test]
fn processes_have_other_gpus() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(SPEC);
    let two = [("RUNNER_SIM_DEVICES", "2")];
    let grid = [&GRID[..], &["trainer.max_epochs=300"]].concat();
    let (mut command, runs) = place.prepared(&grid);
    sim.on(&mut command, &two);
    let mut first = quiet(command);
    wait_until(&mut first, || Folder::within(&runs).is_some_and(|sweep| sweep.0.join("sweep.csv").exists()));
    let sweep = Folder::within(&runs).unwrap().0;
    let second = sim.runner(&place, &["run", "-q", "--resume", sweep.to_str().unwrap()], &two);
    assert_eq!((second.code, first.wait().unwrap().code()), (Some(0), Some(0)), "{second:?}");
    assert_eq!(statuses(&sweep), ["finished"; 8]);
    assert_eq!(used(&sweep), names(&["gpu:0", "gpu:1"]));
}

/// A GPU that hangs gets no more trials; the others do.
#[test]
fn a_gpu_that_hangs_is_given_up() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(SPEC);
    let run = |gpus: &str| {
        let hangs = [("RUNNER_SIM_DEVICES", gpus), ("RUNNER_SIM_FAIL", "hang:2"), ("RUNNER_GPU_WAIT_S", "2")];
        sim.run(&place, &GRID, &hangs).ended_by(1).0
    };
    let statuses = |sweep: &Path| statuses(sweep).iter().filter(|status| *status == "finished").count();
    let sweep = run("2");
    assert_eq!((statuses(&sweep), used(&sweep)), (7, names(&["gpu:0", "gpu:1"])));
    // If there is no other GPU, each trial says why it cannot run.
    let sweep = run("1");
    assert_eq!(statuses(&sweep), 0);
    assert!(
        fs::read_to_string(sweep.join("sweep.csv")).unwrap().contains("it hangs since it was used before")
    );
}
