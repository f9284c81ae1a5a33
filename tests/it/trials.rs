//! Trials of a sweep that equal others, lack their devices, or fail.

use super::{
    process::{Sandbox, Table},
    run::LINREG,
};

#[test]
fn trials_that_equal_others_or_lack_devices() {
    let place = Sandbox::new(LINREG);
    let sweep = place
        .run(&["devices.num_gpus=0,1,2", "devices.on_missing=clamp", "trainer.max_epochs=1,2"])
        .ended_by(0);
    let table = sweep.table("sweep.csv");
    assert_eq!(table.column("trial"), ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(table.column("devices.num_gpus"), ["0", "0", "1", "1", "2", "2"]);
    assert_eq!(table.column("trainer.max_epochs"), ["1", "2", "1", "2", "1", "2"]);
    assert_eq!(table.column("status"), ["finished", "finished", "same_as", "same_as", "same_as", "same_as"]);
    let folders = ["000-num_gpus=0-max_epochs=1", "001-num_gpus=0-max_epochs=2"];
    assert_eq!(table.column("folder"), [folders, folders, folders].concat());
    assert_eq!(table.column("steps"), ["6", "12", "", "", "", ""]);
    assert_eq!(sweep.files(), [folders[0], folders[1], "sweep.csv", "sweep.toml"]);

    let arguments = ["devices.num_gpus=0,1,2", "devices.on_missing=error"];
    let sweep = place.run(&arguments).ended_by(3);
    let table = sweep.table("sweep.csv");
    assert_eq!(table.column("status"), ["finished", "skipped", "skipped"]);
    assert!(table.cell(2, "reason").starts_with("gpu:0, gpu:1 are not there"), "{table:?}");
    let compared = place.runner(&["compare", sweep.0.to_str().unwrap(), "--export", "csv"]).ended_by(0);
    assert_eq!(Table::read(&compared.stdout).column("status"), ["finished", "skipped", "skipped"]);
}

/// Replaced devices are reported before the first trial, and recorded in `sweep.csv`. A trial that did not
/// run is not compared with one that did.
#[test]
fn trials_say_which_devices_they_lack() {
    let place = Sandbox::new(LINREG);
    let arguments = ["devices.num_gpus=0,1,2", "devices.on_missing=clamp", "--virtual-gpus=0"];
    let note = |asked: &str| {
        format!(
            "devices.num_gpus asks for {asked}, but no GPU can be used (--virtual-gpus 0 hides every one): the run uses the CPU"
        )
    };
    let warning = |asked: &str| {
        let note = note(asked).replace("devices.num_gpus", "`devices.num_gpus`");
        format!("warning: trials 1, 2: {}\n", note.replace("--virtual-gpus 0", "`--virtual-gpus 0`"))
    };
    // One line for all: their requests are in the table.
    let warnings = warning("up to 2 GPUs");
    let checked = place.runner(&[&["check", "spec.toml"], &arguments[..]].concat());
    assert_eq!((checked.code, &checked.stderr), (Some(0), &warnings));
    let table = checked.stdout.split("\n\n").take(2).collect::<Vec<_>>().join("\n\n");
    insta::assert_snapshot!(table, @r"
    spec: 3 trials, 1 run

      trial  devices.num_gpus  steps  devices  engine  becomes
          0                 0     24  cpu      serial  run
          1                 1         cpu              same_as trial 0: not run twice
          2                 2         cpu              same_as trial 0: not run twice
    ");
    let ran = place.run(&arguments);
    let sweep = ran.ended_by(0);
    assert!(ran.ended.stderr.starts_with(&warnings), "{}", ran.ended.stderr);
    assert_eq!(ran.ended.stderr.matches("no GPU can be used").count(), 1, "{}", ran.ended.stderr);
    let end = "\n  trials 1, 2 not run: the same run as trial 0\n";
    assert!(ran.ended.stdout.contains(end), "{}", ran.ended.stdout);
    let table = sweep.table("sweep.csv");
    let reason = |asked: &str| format!("the same run as trial 0: {}", note(asked));
    assert_eq!(table.column("reason"), ["", &reason("1 GPU"), &reason("2 GPUs")]);
    let compared = place.runner(&["compare", sweep.0.to_str().unwrap(), "--detail"]);
    assert_eq!((compared.code, compared.stderr.as_str()), (Some(0), ""));
    let head: Vec<&str> = compared.stdout.lines().take(6).collect();
    assert_eq!(head[0], "1 run (2 more trials are the same as it)");
    let row = |name: &str| compared.stdout.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
    let cells: Vec<&str> =
        row("status ").split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells, ["status", "finished", "same as #0", "same as #0"]);
    let last = compared.stdout.split("\nruns\n").nth(1).unwrap().lines().nth(2).unwrap();
    assert!(last.ends_with(&format!(" trial 2; not run: {}", reason("2 GPUs"))), "{last}");
}

#[test]
fn a_trial_that_fails_does_not_end_the_sweep() {
    let place = Sandbox::new(LINREG);
    let sweep = place.run(&["optimizer.sgd.lr=0.03,1e10,0.01"]).ended_by(1);
    let table = sweep.table("sweep.csv");
    assert_eq!(table.column("status"), ["finished", "diverged", "finished"]);
    assert!(table.cell(1, "reason").starts_with("the loss is not a finite number at step 3"));
    // A failure outranks a missing device in the exit code.
    let arguments = ["devices.on_missing=error", "devices.num_gpus=0,1", "optimizer.sgd.lr=1e10"];
    let sweep = place.run(&arguments).ended_by(1);
    assert_eq!(sweep.table("sweep.csv").column("status"), ["diverged", "skipped"]);
}
