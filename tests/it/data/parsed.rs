//! Data sets of a table that is read once are those of its file.

use std::fs::{self, File};

use runner::{
    data::{Dataset, ParsedTables, Task, open, open_among},
    spec::{Csv, Data, Missing, Source},
};

use super::{
    MUCH,
    csv::{Folder, names},
    data, reported,
};

/// Numbers, words, missing cells and groups of four rows.
fn rows(offset: usize) -> String {
    let row = |i: usize| {
        let [kind, class] = [["x", "y", ""][i % 3], ["no", "yes"][i / 3 % 2]];
        format!("{},{kind},{},{class}\n", (i * i + offset) % 17, i / 4)
    };
    format!("a,kind,day,y\n{}", (0..40).map(row).collect::<String>())
}

fn settings(folder: &Folder) -> Csv {
    Csv {
        categorical: names(&["kind"]),
        group: Some("day".to_owned()),
        missing: Missing::Mean,
        validation_fraction: Some(0.3),
        ..folder.spec("y")
    }
}

fn made(tables: &mut ParsedTables, data: &Data, seed: u64) -> Dataset {
    let opened = open_among(tables, data, Task::Classification, seed, MUCH);
    opened.unwrap_or_else(|problems| panic!("{}", reported(&problems, "".as_ref())))
}

fn alone(data: &Data, seed: u64) -> String {
    format!("{:?}", open(data, Task::Classification, seed, MUCH).expect("rows"))
}

#[test]
fn of_every_split_and_scale() {
    let folder = Folder::new(rows(0));
    let mut tables = ParsedTables::default();
    tables.begin(1 << 20);
    for standardize in [false, true] {
        let csv = Csv { standardize, ..settings(&folder) };
        let by_fraction = data(Source::Csv(csv.clone()));
        let source = Source::Csv(Csv { validation_fraction: None, ..csv });
        let by_folds = |fold| Data { folds: Some(3), fold: Some(fold), ..data(source.clone()) };
        for data in [by_fraction, by_folds(0), by_folds(2)] {
            for seed in [0, 1] {
                assert_eq!(format!("{:?}", made(&mut tables, &data, seed)), alone(&data, seed));
            }
        }
    }
    // 40 numbers, and 40 codes of words, groups and classes each.
    assert!((800..2000).contains(&tables.bytes()), "{}", tables.bytes());
}

#[test]
fn it_is_read_again_only_if_it_changes() {
    let folder = Folder::new(rows(0));
    let (path, data) = (folder.path("rows.csv"), data(Source::Csv(settings(&folder))));
    let mut tables = ParsedTables::default();
    tables.begin(1 << 20);
    let [first, second] = [0, 1].map(|seed| alone(&data, seed));
    assert_eq!(format!("{:?}", made(&mut tables, &data, 0)), first);
    // The same length and time: nobody looks at the contents.
    let time = fs::metadata(&path).and_then(|file| file.modified()).expect("a time");
    folder.write("rows.csv", " ".repeat(rows(0).len()));
    File::options().write(true).open(&path).and_then(|file| file.set_modified(time)).expect("a time");
    assert_eq!(format!("{:?}", made(&mut tables, &data, 1)), second);
    folder.write("rows.csv", rows(1) + "5,x,10,no\n");
    let changed = alone(&data, 1);
    assert_ne!(changed, second);
    assert_eq!(format!("{:?}", made(&mut tables, &data, 1)), changed);
}

#[test]
fn it_is_kept_for_several_data_sets() {
    let folder = Folder::new(rows(0));
    let data = data(Source::Csv(settings(&folder)));
    let bytes = |most: u64, seeds: &[u64]| {
        let mut tables = ParsedTables::default();
        tables.begin(most);
        seeds.iter().for_each(|seed| drop(made(&mut tables, &data, *seed)));
        tables.settle();
        tables.bytes()
    };
    assert!(bytes(1 << 20, &[0, 1]) > 0);
    assert_eq!([bytes(1 << 20, &[0]), bytes(100, &[0, 1]), bytes(0, &[0, 1])], [0, 0, 0]);
}

/// The text, which has the lines, is not kept.
#[test]
fn its_problems_have_their_lines() {
    let folder = Folder::new("a,kind,y\n1,x,1\n2,y,2\n");
    let validation_path = Some(folder.write("later.csv", "a,kind,y\n1,x,1\n2,z,2\n"));
    let csv = Csv { categorical: names(&["kind"]), validation_path, ..folder.spec("y") };
    let data = data(Source::Csv(Csv { validation_fraction: None, ..csv }));
    let mut tables = ParsedTables::default();
    tables.begin(1 << 20);
    for _ in 0..2 {
        let problems = open_among(&mut tables, &data, Task::Regression, 0, MUCH).expect_err("a problem");
        assert_eq!(
            reported(&problems, data.source.files()[0].parent().expect("a folder")),
            "`z` in column `kind` is not a category of the training file\n  --> later.csv:3:3 | 2,z,2\n  hint: the training \
             file has `x`, `y`\n"
        );
    }
    assert!(tables.bytes() > 0);
}
