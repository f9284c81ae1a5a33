//! Tests of the table of a sweep.

use std::fs;

use super::*;
use crate::record::SWEEP_FILE;

#[test]
fn each_process_writes_its_own_rows() {
    let sweep = tempfile::tempdir().unwrap();
    fs::write(sweep.path().join(SWEEP_FILE), "").unwrap();
    let table = || {
        let claims = Claims::new(sweep.path(), true, || false).unwrap().unwrap();
        let values = |trial: usize| vec![["1", "a \"quoted\"\nvalue", "3"][trial].to_owned()];
        let ends = [const { None }; 3];
        SweepTable::create(sweep.path(), &["lr".to_owned()], &ends, values, Arc::new(claims)).unwrap()
    };
    let ran = |reason: &str| {
        let (status, folder) = (Status::Diverged, String::new());
        TrialEnd::Ran { status, folder, reason: Some(reason.to_owned()) }
    };
    let skipped = |reason: &str| TrialEnd::Skipped { reason: reason.to_owned() };
    let [mut first, mut second] = [0, 1].map(|_| table());
    let set = |table: &mut SweepTable, trial: usize, end| {
        let value = ["1", "a \"quoted\"\nvalue", "3"][trial].to_owned();
        table.set(trial, &[value], &end).unwrap();
        table.write().unwrap();
    };
    set(&mut first, 0, ran("by the first"));
    set(&mut second, 1, ran("by the\nsecond"));
    set(&mut first, 1, skipped("the first was interrupted"));
    set(&mut second, 2, skipped("the second lacks a GPU"));
    set(&mut first, 2, ran("the first has one"));
    second.write().unwrap();
    let mut rows = csv::Reader::from_path(sweep.path().join("sweep.csv")).unwrap();
    let rows: Vec<_> = rows.records().map(|row| row.unwrap()).collect();
    let cells = |place| rows.iter().map(|row| row[place].to_owned()).collect::<Vec<_>>();
    assert_eq!(cells(2), ["diverged"; 3]);
    assert_eq!(cells(4), ["by the first", "by the\nsecond", "the first has one"]);
    // A process that joins keeps the rows of the others.
    let before = fs::read(first.path()).unwrap();
    let third = table();
    assert_eq!(fs::read(third.path()).unwrap(), before);
    assert_eq!((third.known, third.changed.len()), (vec![Knowledge::Ended; 3], 0));
}

/// Whoever opens the table in another program may sort its rows or remove some: what a row says stays with its trial.
#[test]
fn rows_belong_to_their_trials_wherever_they_are() {
    let sweep = tempfile::tempdir().unwrap();
    fs::write(sweep.path().join(SWEEP_FILE), "").unwrap();
    let values = |trial: usize| vec![format!("lr {trial}")];
    let table = || {
        let claims = Claims::new(sweep.path(), true, || false).unwrap().unwrap();
        let ends = [const { None }; 4];
        SweepTable::create(sweep.path(), &["lr".to_owned()], &ends, values, Arc::new(claims)).unwrap()
    };
    let [mut first, mut second] = [0, 1].map(|_| table());
    let end = |table: &mut SweepTable, trial: usize| {
        let (status, folder, reason) = (Status::Diverged, String::new(), Some(format!("of trial {trial}")));
        table.set(trial, &values(trial), &TrialEnd::Ran { status, folder, reason }).unwrap();
        table.write().unwrap();
    };
    (0..3).for_each(|trial| end(&mut first, trial));
    let path = first.path();
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    fs::write(&path, [lines[0], lines[3], lines[1], lines[4]].concat()).unwrap();
    end(&mut second, 3);
    let mut rows = csv::Reader::from_path(&path).unwrap();
    let rows: Vec<[String; 4]> = rows
        .records()
        .map(|row| row.unwrap())
        .map(|row| [0, 1, 2, 4].map(|cell| row[cell].to_owned()))
        .collect();
    let row = |trial: usize| {
        [trial.to_string(), format!("lr {trial}"), "diverged".into(), format!("of trial {trial}")]
    };
    let lost = ["1", "", "", ""].map(str::to_owned);
    assert_eq!(rows, [row(0), lost, row(2), row(3)]);
}

/// A write that fails, as on a full disk, takes nothing away from the table.
#[test]
fn a_failed_write_loses_no_row() {
    let sweep = tempfile::tempdir().unwrap();
    fs::write(sweep.path().join(SWEEP_FILE), "").unwrap();
    let claims = Claims::new(sweep.path(), true, || false).unwrap().unwrap();
    let ends = [const { None }; 3];
    let values = |trial: usize| vec![trial.to_string()];
    let axes = ["lr".to_owned()];
    let mut table = SweepTable::create(sweep.path(), &axes, &ends, values, Arc::new(claims)).unwrap();
    let skipped = |reason: &str| TrialEnd::Skipped { reason: reason.to_owned() };
    table.set(0, &values(0), &skipped("the first")).unwrap();
    table.write().unwrap();
    table.set(1, &values(1), &skipped("the second")).unwrap();
    // A folder under the name of the table cannot be replaced by a file.
    let (path, aside) = (table.path(), sweep.path().join("aside"));
    fs::rename(&path, &aside).unwrap();
    fs::create_dir_all(path.join("full")).unwrap();
    assert!(table.write().is_err());
    fs::remove_dir_all(&path).unwrap();
    fs::rename(&aside, &path).unwrap();
    table.write().unwrap();
    let text = fs::read_to_string(path).unwrap();
    let reasons = ["the first", "the second"].map(|reason| text.contains(reason));
    assert_eq!((reasons, text.lines().count()), ([true; 2], 4), "{text}");
}
