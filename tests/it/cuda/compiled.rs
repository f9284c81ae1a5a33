//! The engine `compiled`: what it reports, and the check that a compiled step must pass before it is used.

use super::{super::resume::sweeps::trials, LINREG, Sim, parity::same};
use crate::process::Sandbox;

const COMPILED: &str = "devices.engine=compiled";

/// A GPU with as many multiprocessors as an H100.
const LARGE: (&str, &str) = ("RUNNER_SIM_MULTIPROCESSORS", "132");

/// Classes whose job does not fit the shared memory of a block.
const WIDE: &str = r#"
name = "wide"
[devices]
num_gpus = 1
[data]
batch_size = 8
[data.synthetic_regression]
weights = [WEIGHTS]
train_rows = 36
validation_rows = 40
[model]
layers = [ { linear = { out_features = 96 } }, "relu", { dropout = { p = 0.2 } }, { linear = { out_features = 1 } } ]
[optimizer.adam]
lr = 0.003
[trainer]
max_epochs = 2
"#;

fn wide() -> Sandbox {
    let weights: Vec<String> = (0..256).map(|i| format!("{}.5", i % 7 - 3)).collect();
    Sandbox::new(&WIDE.replace("WEIGHTS", &weights.join(", ")))
}

/// The interpreter over all blocks takes the same steps; the GPU's size and streamed rows change no bit.
#[test]
fn a_job_too_large_for_a_block_runs_in_a_grid() {
    let Some(sim) = Sim::get() else { return };
    let place = wide();
    let other = sim.run(&place, &["devices.engine=cooperative"], &[]).ended_by(0);
    let before = sim.calls().len();
    let ran = sim.run(&place, &[COMPILED], &[LARGE]).ended_by(0);
    assert_eq!(ran.summary("engine"), "compiled");
    assert!(!ran.text("run.log").contains("is not used"), "{}", ran.text("run.log"));
    same(&other, &ran, 2e-6, "a grid");
    let launches = sim.calls().split_off(before);
    let of = |what: &str| launches.iter().filter(|call| call.starts_with(what)).count();
    // The check runs interpreter and compiled kernel; the interpreter then validates after both epochs.
    assert!(of("launch_cooperative steps blocks 32 threads 256") >= 3, "{launches:?}");
    assert!(of("launch_cooperative interpret_grid") >= 3, "{launches:?}");
    let smaller = sim.run(&place, &[COMPILED], &[("RUNNER_SIM_MULTIPROCESSORS", "16")]).ended_by(0);
    // Its blocks have no multiprocessor each, so the weight does not stay in them.
    same(&ran, &smaller, 2e-6, "a smaller GPU");
    let streamed = sim.run(&place, &[COMPILED, "data.placement=streamed"], &[LARGE]).ended_by(0);
    assert_eq!(streamed.numbers(), ran.numbers());
    let few = sim.run(&place, &[COMPILED], &[("RUNNER_SIM_MULTIPROCESSORS", "2")]);
    assert!(
        few.ended.stderr.contains("it needs a grid of 32 blocks, and this GPU runs 4 at once"),
        "{}",
        few.ended.stderr
    );
}

#[test]
fn a_step_over_a_grid_that_differs_is_not_used() {
    let Some(sim) = Sim::get() else { return };
    let wrong = [("RUNNER_SIM_FAIL", "miscompile:1"), LARGE];
    let place = wide();
    let ran = sim.run(&place, &[COMPILED], &wrong).ended_by(0);
    let log = ran.text("run.log");
    assert!(log.contains("the compiled step is not used: its loss differs"), "{log}");
    assert!(log.contains("The engine `cooperative` runs the steps"), "{log}");
}

/// The plan considers it for a long run, and says what it takes.
#[test]
fn check_says_what_a_grid_takes() {
    let Some(sim) = Sim::get() else { return };
    let place = wide();
    let check = |arguments: &[&str]| {
        sim.runner(&place, &[&["check", "spec.toml"], arguments].concat(), &[LARGE]).stdout
    };
    let text = check(&[COMPILED]);
    assert!(text.contains("a grid of 32 blocks of 256 threads, with "), "{text}");
    assert!(text.contains("of shared memory each; 2 barriers of the grid a step"), "{text}");
    assert!(check(&["trainer.max_epochs=20000"]).contains("`compiled`"));
}

#[test]
fn the_kernel_of_the_trial_runs_the_steps_after_its_trial() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let arguments = [COMPILED, "trainer.validate_every_epochs=0", "trainer.max_epochs=40"];
    let ran = sim.run(&place, &arguments, &[]).ended_by(0);
    let launches: Vec<String> = sim.calls().into_iter().filter(|call| call.starts_with("launch ")).collect();
    let of = |name: &str| launches.iter().filter(|call| call.split(' ').nth(1) == Some(name)).count();
    // The check runs interpreter and compiled kernel from a copy of the state; after it only the trial's own
    // kernel is launched, for several epochs at once.
    assert_eq!(of("interpret"), 1, "{launches:?}");
    assert!((1 + 3..1 + 40).contains(&of("steps")), "{launches:?}");
    assert!(!ran.text("run.log").contains("is not used"), "{}", ran.text("run.log"));
    // The compiled code is cached, so another process finds it.
    let kept = || std::fs::read_dir(sim.kernels()).unwrap().count();
    let before = kept();
    sim.run(&place, &[COMPILED], &[]).ended_by(0);
    assert_eq!(kept(), before);
}

/// The trials of a sweep that have the same kernel take one proof of it, and go the way that it says.
#[test]
fn a_sweep_proves_a_kernel_once() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let axes = [COMPILED, "trainer.validate_every_epochs=0", "optimizer.sgd.lr=0.01,0.02,0.03,0.04"];
    let launches = |sim: &Sim, name: &str| {
        sim.calls()
            .iter()
            .filter(|call| call.starts_with("launch ") && call.split(' ').nth(1) == Some(name))
            .count()
    };
    sim.run(&place, &[&axes[..], &["--jobs", "3"]].concat(), &[]).ended_by(0);
    assert_eq!(launches(&sim, "interpret"), 1);
    let wrong = Sim::at(&sim.libraries);
    let sweep = wrong.run(&place, &axes, &[("RUNNER_SIM_FAIL", "miscompile:1")]).ended_by(0);
    assert_eq!(launches(&wrong, "steps"), 1);
    for trial in trials(&sweep.0) {
        assert!(trial.text("run.log").contains("The engine `persistent` runs the steps"));
    }
}

/// Trials repay the kernel together that each of them would not.
#[test]
fn the_steps_of_a_sweep_count_together() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let check = |axes: &[&str]| {
        sim.runner(&place, &[&["check", "spec.toml", "trainer.max_epochs=2000"], axes].concat(), &[]).stdout
    };
    assert!(check(&[]).contains("engine     persistent: a step may take"));
    assert!(check(&["seed=0,1"]).contains("engine     persistent: a step may take"), "too few steps");
    let text = check(&["seed=0,1,2,3"]);
    assert!(
        text.contains("engine     compiled: the sweep has 128,000 steps with this kernel, which repay"),
        "{text}"
    );
    // Those of other sizes have kernels of their own.
    let text = check(&["data.batch_size=30,31,32,33"]);
    assert!(text.contains("engine     persistent: a step may take"), "{text}");
}

#[test]
fn a_compiled_step_that_differs_is_not_used() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let own = sim.run(&place, &["devices.engine=persistent"], &[]).ended_by(0);
    let wrong = [("RUNNER_SIM_FAIL", "miscompile:1")];
    let ran = Sim::at(&sim.libraries).run(&place, &[COMPILED], &wrong);
    assert!(
        ran.ended.stderr.contains("the compiled step is not used: its loss differs"),
        "{}",
        ran.ended.stderr
    );
    let ran = ran.ended_by(0);
    assert!(ran.text("run.log").contains("The engine `persistent` runs the steps"));
    assert_eq!(ran.numbers(), own.numbers());
}

/// The first block has one step, and the proof as many as are left of the epoch.
#[test]
fn a_step_that_differs_after_the_first_is_not_used() {
    let Some(sim) = Sim::get() else { return };
    let (place, wrong) = (Sandbox::new(LINREG), [("RUNNER_SIM_FAIL", "misstep:1")]);
    let ran = sim.run(&place, &[COMPILED], &wrong).ended_by(0);
    let log = ran.text("run.log");
    assert!(log.contains("the compiled step is not used: its loss differs"), "{log}");
}

/// The step on the smaller batch of an epoch, with which the run goes on, has its own proof.
#[test]
fn a_resumed_run_proves_the_step_on_the_smaller_batch() {
    let Some(sim) = Sim::get() else { return };
    for (place, full) in [(Sandbox::new(LINREG), 15), (wide(), 4)] {
        let most = |steps: u32| format!("trainer.max_steps={steps}");
        let saves = "checkpoint.every_steps=1000"; // and at the end
        let run = sim.run(&place, &[COMPILED, saves, &most(full)], &[LARGE]).ended_by(0);
        let path = run.0.to_str().unwrap();
        let wrong = Sim::at(&sim.libraries);
        let variables = [("RUNNER_SIM_FAIL", "miscompile:1"), LARGE];
        wrong.runner(&place, &["run", "-q", "--resume", path, &most(full + 1)], &variables).ended_by(0);
        let log = run.text("run.log");
        assert!(log.contains("the compiled step is not used: its loss differs"), "{log}");
    }
}

/// `spec.toml` names the engine that the plan chose, so a run that is repeated or resumed has its bits, whatever was faster.
#[test]
fn the_plans_choice_runs_the_steps_however_long_they_take() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let long = ["trainer.max_epochs=8000", "trainer.max_time=300ms", "trainer.validate_every_epochs=0"];
    let ran = sim.run(&place, &long, &[("RUNNER_SIM_SLOW", "launch steps:20000")]).ended_by(0);
    assert!(ran.text("spec.toml").contains("engine = \"compiled\""));
    let interprets = |call: &&String| call.split(' ').nth(1) == Some("interpret");
    let interpreted = sim.calls().iter().filter(interprets).count();
    assert_eq!(interpreted, 1, "only to compare: {}", ran.text("run.log"));
}

#[test]
fn check_says_what_it_takes() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let check =
        |arguments: &[&str]| sim.runner(&place, &[&["check", "spec.toml"], arguments].concat(), &[]).stdout;
    let text = check(&[COMPILED]);
    assert!(text.contains("compiled: the spec asks for it"), "{text}");
    assert!(text.contains("one block of "), "{text}");
    // With 16 steps per epoch, only a long run makes up for the compile time.
    assert!(!check(&["trainer.max_epochs=4000"]).contains("`compiled`"));
    let text = check(&["trainer.max_epochs=8000"]);
    assert!(text.contains("`compiled`"), "{text}");
    let wide = check(&[COMPILED, "model.layers=[{linear={out_features=9000}},{linear={out_features=1}}]"]);
    assert!(wide.is_empty(), "{wide}");
}
