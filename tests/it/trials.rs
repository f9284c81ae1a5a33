//! Trials of a sweep that equal others, lack their devices, or fail.

use super::{
    process::{Place, Table},
    run::LINREG,
};

#[test]
fn trials_that_equal_others_or_lack_devices() {
    let place = Place::new(LINREG);
    let sweep = place
        .run(&["devices.num_gpus=0,1,2", "devices.on_missing=clamp", "trainer.max_epochs=1,2"])
        .ended_by(0);
    let table = sweep.table("sweep.csv");
    assert_eq!(table.column("trial"), ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(table.column("devices.num_gpus"), ["0", "0", "1", "1", "2", "2"]);
    assert_eq!(table.column("trainer.max_epochs"), ["1", "2", "1", "2", "1", "2"]);
    assert_eq!(table.column("status"), ["finished", "finished", "same_as", "same_as", "same_as", "same_as"]);
    let folders =
        ["000-devices.num_gpus=0+trainer.max_epochs=1", "001-devices.num_gpus=0+trainer.max_epochs=2"];
    assert_eq!(table.column("folder"), [folders, folders, folders].concat());
    assert_eq!(table.column("steps"), ["6", "12", "", "", "", ""]);
    assert_eq!(sweep.files(), [folders[0], folders[1], "sweep.csv"]);

    let arguments = ["devices.num_gpus=0,1,2", "devices.on_missing=error"];
    let sweep = place.run(&arguments).ended_by(3);
    let table = sweep.table("sweep.csv");
    assert_eq!(table.column("status"), ["finished", "skipped", "skipped"]);
    assert!(table.cell(2, "reason").starts_with("gpu:0, gpu:1 are not there"), "{table:?}");
    let compared = place.runner(&["compare", sweep.0.to_str().unwrap(), "--export", "csv"]);
    assert_eq!(compared.code, Some(0), "{compared:?}");
    assert_eq!(Table::read(&compared.stdout).column("status"), ["finished", "skipped", "skipped"]);
}

#[test]
fn a_trial_that_fails_does_not_end_the_sweep() {
    let place = Place::new(LINREG);
    let sweep = place.run(&["optimizer.sgd.lr=0.03,1e10,0.01"]).ended_by(1);
    let table = sweep.table("sweep.csv");
    assert_eq!(table.column("status"), ["finished", "diverged", "finished"]);
    assert!(table.cell(1, "reason").starts_with("the loss is not a finite number at step 3"));
    // A failure is graver than a device that is not there.
    let arguments = ["devices.on_missing=error", "devices.num_gpus=0,1", "optimizer.sgd.lr=1e10"];
    let sweep = place.run(&arguments).ended_by(1);
    assert_eq!(sweep.table("sweep.csv").column("status"), ["diverged", "skipped"]);
}
