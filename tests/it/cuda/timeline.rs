//! `trace.json` of GPUs: one lane per stream, filled from device events, without additional waits.

use super::{LINREG, Sim};
use crate::{
    process::{Folder, Sandbox},
    timeline::{Span, lanes},
};

fn lane(run: &Folder, name: &str) -> Vec<Span> {
    let mut all = lanes(run);
    all.remove(&("gpu:0".to_owned(), name.to_owned())).unwrap_or_default()
}

fn names(spans: &[Span]) -> Vec<&str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}

fn steps(spans: &[Span]) -> u64 {
    let steps = |span: &Span| {
        let of = |key: &str| span.arguments.get(key).and_then(serde_json::Value::as_u64);
        match (of("step"), of("first_step").zip(of("last_step"))) {
            (Some(_), _) => 1,
            (None, Some((first, last))) => last - first + 1,
            (None, None) => of("steps").unwrap_or(0),
        }
    };
    spans.iter().map(steps).sum()
}

#[test]
fn a_gpu_has_a_lane_for_each_of_its_streams() {
    let Some(all) = Sim::get() else { return };
    for engine in ["persistent", "cooperative", "graph", "launch"] {
        let choice = format!("devices.engine={engine}");
        let arguments = [&choice, "data.placement=streamed", "logging.trace=true", "logging.flush_every=20"];
        let (traced, plain) = (Sim::at(&all.libraries), Sim::at(&all.libraries));
        let place = Sandbox::new(LINREG);
        let run = traced.run(&place, &arguments, &[]).ended_by(0);
        let found: Vec<(String, String)> = lanes(&run).into_keys().collect();
        let expected =
            [("gpu:0", "copies in"), ("gpu:0", "copies out"), ("gpu:0", "steps"), ("host", "host loop")];
        assert_eq!(found, expected.map(|(p, t)| (p.to_owned(), t.to_owned())), "{engine}");
        let computed = lane(&run, "steps");
        assert_eq!(steps(&computed), 48, "{engine}: {computed:?}");
        // Three validations of two chunks.
        assert_eq!(names(&computed).iter().filter(|name| **name == "validation").count(), 6, "{engine}");
        // Features and targets of an epoch, three times, and of its validation, in chunks.
        let copied = lane(&run, "copies in");
        assert!(copied.len() >= 12 && names(&copied).iter().all(|name| *name == "upload"), "{copied:?}");
        // 48 losses in flushes of 20, and three validations.
        let read = lane(&run, "copies out");
        assert_eq!(names(&read).iter().filter(|name| **name == "log").count(), 3, "{read:?}");
        assert_eq!(names(&read).iter().filter(|name| **name == "validation").count(), 3, "{read:?}");
        // Uploads are timed by the device's clock.
        let timing = run.table("timing.csv").only("clock", "device");
        assert!(timing.column("phase").contains(&"upload"), "{engine}");
        // A trace adds no waits.
        let without: Vec<&str> =
            arguments.iter().copied().filter(|a| !a.starts_with("logging.trace")).collect();
        plain.run(&place, &without, &[]).ended_by(0);
        let waits = |sim: &Sim| sim.calls().iter().filter(|call| call.starts_with("synchronize")).count();
        assert_eq!(waits(&traced), waits(&plain), "{engine}");
    }
}

#[test]
fn launches_are_steps_of_phases() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let run = sim.run(&place, &["devices.engine=launch", "logging.trace=true"], &[]).ended_by(0);
    let spans = lane(&run, "steps");
    let whole: Vec<&Span> = spans.iter().filter(|span| span.name == "step").collect();
    assert_eq!(whole.len(), 48);
    for (n, step) in whole.iter().enumerate() {
        assert_eq!(step.arguments["step"], n as u64 + 1);
        let within = |s: &&Span| s.name != "step" && s.start_ns >= step.start_ns && s.end_ns <= step.end_ns;
        let phases: Vec<&str> = spans.iter().filter(within).map(|s| s.name.as_str()).collect();
        assert_eq!(phases, ["data", "forward", "loss", "backward", "log"]);
    }
}

/// Short steps are traced as blocks. Long ones are traced singly, as soon as they are known to be long.
#[test]
fn long_steps_are_told_one_by_one() {
    let Some(all) = Sim::get() else { return };
    let arguments = ["devices.engine=persistent", "logging.trace=true", "trainer.validate_every_epochs=0"];
    let whole = |slow: &str| {
        let sim = Sim::at(&all.libraries);
        let place = Sandbox::new(LINREG);
        let run = sim.run(&place, &arguments, &[("RUNNER_SIM_SLOW", slow)]).ended_by(0);
        let spans = lane(&run, "steps");
        assert_eq!(steps(&spans), 48);
        spans.iter().filter(|span| span.name == "step").count()
    };
    let one_by_one = whole("launch interpret:500");
    assert!(one_by_one >= 24, "{one_by_one}");
}
