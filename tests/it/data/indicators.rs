//! `missing_indicators`: features that say where a number is missing.

use std::{fs, path::Path};

use runner::{
    data::{Dataset, ParsedTables, Task, open, open_among},
    spec::{Csv, Data, Missing, Source},
};
use serde_json::{Value, json};

use super::{
    MUCH,
    csv::{Folder, names, read},
    csv_of, data, memory,
};

/// `a` lacks cells in the first third of the rows and in the last, `b` in the last alone, `c` nowhere.
const ROWS: &str = "a,b,c,kind,y\n1,1,1,x,1\n,2,2,x,2\n3,3,3,,3\n4,4,4,x,4\n5,5,5,x,5\n6,6,6,x,6\n7,,7,x,7\n,8,8,x,8\n9,9,9,x,9\n";

fn settings(folder: &Folder) -> Csv {
    Csv {
        categorical: names(&["kind"]),
        missing: Missing::Mean,
        missing_indicators: true,
        ..folder.spec("y")
    }
}

/// The data with one of three folds.
fn fold(csv: &Csv, fold: u32) -> Data {
    let csv = Csv { validation_fraction: None, ..csv.clone() };
    Data { folds: Some(3), fold: Some(fold), ..data(Source::Csv(csv)) }
}

fn opened(data: &Data, seed: u64) -> Dataset {
    open(data, Task::Regression, seed, MUCH).expect("rows")
}

/// Features of the training rows, fitted and transformed by scikit-learn's `SimpleImputer(add_indicator=True)` and
/// `StandardScaler`, and texts by its `OneHotEncoder`.
#[test]
fn features_are_those_of_scikit_learn() {
    let fixtures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/predict"));
    let expected = fs::read_to_string(fixtures.join("missing.json")).expect("the reference");
    let expected = serde_json::from_str::<Value>(&expected).expect("JSON")["features"].take();
    let csv = Csv {
        categorical: names(&["ward"]),
        missing: Missing::Mean,
        missing_values: Some(names(&["NA", "-999"])),
        missing_indicators: true,
        standardize: true,
        ..csv_of(fixtures.join("missing_train.csv"), "risk")
    };
    let made = read(csv, Task::Regression);
    assert_eq!((made.features, made.train.rows), (8, 60));
    let rows = expected.as_array().expect("rows").iter();
    let expected: Vec<f64> = rows
        .flat_map(|row| row.as_array().expect("features"))
        .map(|x| x.as_f64().expect("a number"))
        .collect();
    let found = memory(&made.train);
    assert_eq!(found.len(), expected.len());
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((f64::from(*found) - expected).abs() < 1e-6, "{place}: {found}, {expected}");
    }
}

/// Indicators come after all numbers, as 0 and 1, before the categories; and are stored with their columns.
#[test]
fn each_column_with_missing_cells_has_one() {
    let folder = Folder::new(ROWS);
    let made = read(Csv { standardize: true, ..settings(&folder) }, Task::Regression);
    assert_eq!(made.features, 7);
    let indicators: Vec<&[f32]> = memory(&made.train).chunks_exact(7).map(|row| &row[3..5]).collect();
    let [none, first, second] = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]];
    assert_eq!(indicators, [none, first, none, none, none, none, second, first, none]);
    let stored = |column: usize| made.preprocessing["features"][column]["indicator"].clone();
    assert_eq!([0, 1, 2, 3].map(stored), [json!(true), json!(true), json!(null), json!(null)]);
    assert_eq!(
        made.notes,
        [
            "filled missing cells with means of training rows: `a` 2, `b` 1",
            "2 indicators of missing cells: `a`, `b`",
            "`kind` has 2 categories, one of them for missing cells"
        ]
    );
    assert_eq!(*made.warnings, Vec::<String>::new());
    let without = read(Csv { missing_indicators: false, ..settings(&folder) }, Task::Regression);
    assert_eq!((without.features, without.notes.len()), (5, 2));
}

/// Every fold and seed has the same features. The indicator of a column without missing cells in the training rows is 0 in all
/// rows: its weight would be a random one.
#[test]
fn the_number_of_features_is_that_of_the_file() {
    let folder = Folder::new(ROWS);
    let csv = settings(&folder);
    let mut tables = ParsedTables::default();
    tables.begin(MUCH);
    let mut idle = 0;
    for missing_indicators in [true, false] {
        let csv = Csv { missing_indicators, ..csv.clone() };
        for (number, seed) in [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)] {
            let data = fold(&csv, number);
            let made = opened(&data, seed);
            assert_eq!(made.features, if missing_indicators { 7 } else { 5 });
            let among = open_among(&mut tables, &data, Task::Regression, seed, MUCH).expect("rows");
            assert_eq!(format!("{made:?}"), format!("{among:?}"));
            if made.preprocessing["features"][1]["indicator"] == json!(false) {
                idle += 1;
                let parts = [Some(&made.train), made.validation.as_ref()].into_iter().flatten();
                assert!(parts.flat_map(|part| memory(part).chunks_exact(7)).all(|row| row[4] == 0.0));
                let note = "1 indicator always 0, with no missing cell in the training rows: `b`";
                assert!(made.notes.iter().any(|own| own == note), "{:?}", made.notes);
            }
        }
    }
    assert_eq!(idle, 2, "row 6 is in one fold of each seed");
}

/// A second file to validate on has the features of the first.
#[test]
fn a_file_to_validate_on_adds_none() {
    let folder = Folder::new(ROWS);
    let path = folder.write("other.csv", "a,b,c,kind,y\n1,,,x,1\n,2,2,x,2\n");
    let csv = Csv { validation_path: Some(path), validation_fraction: None, ..settings(&folder) };
    let made = read(csv, Task::Regression);
    let rows: Vec<&[f32]> = memory(made.validation.as_ref().expect("rows")).chunks_exact(7).collect();
    assert_eq!(rows, [[1.0, 4.75, 5.0, 0.0, 1.0, 1.0, 0.0], [5.0, 2.0, 2.0, 1.0, 0.0, 1.0, 0.0]]);
}

#[test]
fn a_setting_without_effect_is_warned_of() {
    let folder = Folder::new("a,y\n1,1\n2,2\n");
    let made = read(Csv { categorical: Vec::new(), ..settings(&folder) }, Task::Regression);
    assert_eq!(
        *made.warnings,
        ["`missing_indicators` changes nothing: no numeric feature has a missing cell"]
    );
}
