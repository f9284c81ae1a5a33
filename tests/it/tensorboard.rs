//! TensorBoard event files, read back by TensorBoard's own package if a Python has it.

use std::process::Command;

use super::{
    process::{Folder, Sandbox, python_with},
    resume::{SPEC, checkpoints, killed_after},
};

/// Prints a line for each scalar that TensorBoard shows: folder, tag, step, value.
const READ: &str = r#"
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

for number, folder in enumerate(sys.argv[1:]):
    events = EventAccumulator(folder, size_guidance={"scalars": 0})
    events.Reload()
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            print(number, tag, event.step, event.value)
"#;

/// The contents of `metrics.csv` in the same form.
fn expected(number: usize, run: &Folder, metrics: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    for split in ["train", "validation"] {
        let rows = run.metrics().only("split", split);
        for metric in metrics {
            let cells = rows.column("step").into_iter().zip(rows.column(metric));
            let known = cells.filter(|(_, value)| !value.is_empty());
            let value = |text: &str| f64::from(text.parse::<f64>().unwrap() as f32);
            lines.extend(known.map(|(step, v)| format!("{number} {metric}/{split} {step} {:e}", value(v))));
        }
    }
    lines
}

#[test]
fn tensorboard_shows_the_rows_of_metrics_csv() {
    let Some(python) = python_with("tensorboard") else { return };
    let metrics = ["loss", "grad_norm", "lr"];
    let place = Sandbox::new(SPEC);
    let on = ["logging.tensorboard=true", "logging.metrics=[\"loss\", \"grad_norm\", \"lr\"]"];
    let whole = place.run(&[&on[..], &["checkpoint.every_steps=1", "checkpoint.keep_last=1000"]].concat());
    let whole = whole.ended_by(0);
    // Within an epoch, at its end before a validation, and after the first step.
    let names: Vec<String> = checkpoints(&whole).into_iter().step_by(6).collect();
    let mut runs = vec![whole];
    for name in names {
        let copied = killed_after(&runs[0], &name, place.path().join(&name));
        place.runner(&["run", "-q", "--resume", copied.0.to_str().unwrap()]).ended_by(0);
        runs.push(copied);
    }
    let folders = runs.iter().map(|run| &run.0);
    let output = Command::new(python).args(["-c", READ]).args(folders).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let exponent = |line: &str| {
        let (rest, value) = line.rsplit_once(' ').unwrap();
        format!("{rest} {:e}", value.parse::<f64>().unwrap())
    };
    let mut found: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(exponent).collect();
    found.sort();
    let rows = runs.iter().enumerate().flat_map(|(number, run)| expected(number, run, &metrics));
    let mut expected: Vec<String> = rows.collect();
    expected.sort();
    let other = found.iter().zip(&expected).find(|(found, expected)| found != expected);
    assert!(found == expected, "{} scalars, expected {}: {other:?}", found.len(), expected.len());
}
