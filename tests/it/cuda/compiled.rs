//! The engine `compiled`: what it reports, and the check that a compiled step must pass before it is used.

use super::{LINREG, Sim};
use crate::process::Sandbox;

const COMPILED: &str = "devices.engine=compiled";

#[test]
fn the_kernel_of_the_trial_runs_the_steps_after_its_trial() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let ran = sim.run(&place, &[COMPILED, "trainer.validate_every_epochs=0"], &[]).ended_by(0);
    let launches: Vec<String> = sim.calls().into_iter().filter(|call| call.starts_with("launch ")).collect();
    let of = |name: &str| launches.iter().filter(|call| call.split(' ').nth(1) == Some(name)).count();
    // The check runs interpreter and compiled kernel twice from a copy of the state; after it only the
    // trial's own kernel is launched.
    assert_eq!((of("interpret"), of("last_step")), (2, 3), "{launches:?}");
    assert!(of("steps") >= 2 + 3, "{launches:?}");
    assert!(!ran.text("run.log").contains("is not used"), "{}", ran.text("run.log"));
    // The compiled code is cached, so another process finds it.
    let kept = || std::fs::read_dir(sim.kernels()).unwrap().count();
    let before = kept();
    sim.run(&place, &[COMPILED], &[]).ended_by(0);
    assert_eq!(kept(), before);
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
    assert!(!check(&["trainer.max_epochs=1500"]).contains("`compiled`"));
    let text = check(&["trainer.max_epochs=1600"]);
    assert!(text.contains("`compiled`"), "{text}");
    let wide = check(&[COMPILED, "model.layers=[{linear={out_features=9000}},{linear={out_features=1}}]"]);
    assert!(wide.is_empty(), "{wide}");
}
