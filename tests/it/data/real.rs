//! Real files: those in the repository, and larger ones where available.

use std::{env, path::PathBuf};

use runner::{
    data::Task,
    spec::{Csv, Idx, Missing, Source},
};

use super::{csv_of, idx_of, memory, read_ok};

fn carried(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "experiments", "data", name].iter().collect()
}

/// A file of the folder `RUNNER_TEST_DATA`; `None`, with a printed line, if it is missing.
fn larger(name: &str) -> Option<PathBuf> {
    let path = env::var_os("RUNNER_TEST_DATA").map(|folder| PathBuf::from(folder).join(name));
    let path = path.filter(|path| path.exists());
    if path.is_none() {
        println!("skipped: no `{name}` (set RUNNER_TEST_DATA to the folder of the test data)");
    }
    path
}

#[test]
fn diabetes() {
    let made = read_ok(Source::Csv(csv_of(carried("diabetes.csv"), "progression")), Task::Regression);
    assert_eq!((made.train.rows, made.features, made.classes), (442, 10, None));
    assert_eq!(memory(&made.train)[..4], [59.0, 2.0, 32.1, 101.0]);
    assert_eq!(made.train.targets[..3], [151.0, 75.0, 141.0]);
}

#[test]
fn penguins() {
    let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
    let spec = Csv {
        categorical: names(&["island", "sex"]),
        ignore: names(&["year"]),
        missing: Missing::Mean,
        ..csv_of(carried("penguins.csv"), "species")
    };
    let made = read_ok(Source::Csv(spec.clone()), Task::Classification);
    assert_eq!((made.train.rows, made.features, made.classes), (344, 4 + 3 + 3, Some(3)));
    assert_eq!(made.preprocessing["target"]["classes"], serde_json::json!(["Adelie", "Chinstrap", "Gentoo"]));
    // The first penguin: bill, bill, flipper, mass; Torgersen of Biscoe, Dream, Torgersen; male of female, male, missing.
    assert_eq!(memory(&made.train)[..10], [39.1, 18.7, 181.0, 3750.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    assert_eq!(made.notes.len(), 4, "{:?}", made.notes);

    let spec = Csv { missing: Missing::Drop, ..spec };
    let made = read_ok(Source::Csv(spec), Task::Classification);
    assert_eq!((made.train.rows, made.features), (333, 4 + 3 + 2));
    assert_eq!(made.notes[..2], ["left out 1 of 8 columns: `year`", "dropped 11 rows with missing cells"]);
}

#[test]
fn digits() {
    let (images, labels) = (carried("digits-images-idx3-ubyte.gz"), carried("digits-labels-idx1-ubyte.gz"));
    let spec = Idx { scale: 16.0, validation_fraction: Some(0.2), ..idx_of(images, labels) };
    let made = read_ok(Source::Idx(spec), Task::Classification);
    assert_eq!((made.train.rows, made.features, made.classes), (1438, 64, Some(10)));
    assert_eq!(made.validation.map(|part| part.rows), Some(359));
    assert!(memory(&made.train).iter().all(|pixel| (0.0..=1.0).contains(pixel)));
}

#[test]
fn california_housing() {
    let Some(path) = larger("california_housing.csv") else { return };
    let spec = Csv {
        categorical: vec!["ocean_proximity".into()],
        missing: Missing::Mean,
        standardize: true,
        ..csv_of(path, "median_house_value")
    };
    let made = read_ok(Source::Csv(spec.clone()), Task::Regression);
    assert_eq!((made.train.rows, made.features), (20_640, 8 + 5));
    // pandas: total_bedrooms.mean(), and median_income's mean and std(ddof=0).
    let features = &made.preprocessing["features"];
    assert_eq!(features[4]["fill"].as_f64().map(|fill| (fill * 1e9).round()), Some(537_870_552_538.0));
    let income = |key: &str| features[7][key].as_f64().map(|value| (value * 1e9).round());
    assert_eq!((income("mean"), income("std")), (Some(3_870_671_003.0), Some(1_899_775_695.0)));
    assert_eq!(
        features[8]["categories"],
        serde_json::json!(["<1H OCEAN", "INLAND", "ISLAND", "NEAR BAY", "NEAR OCEAN"])
    );

    let spec = Csv { missing: Missing::Drop, validation_fraction: Some(0.2), ..spec };
    let made = read_ok(Source::Csv(spec), Task::Regression);
    let rows = (made.train.rows, made.validation.map_or(0, |part| part.rows));
    assert_eq!(rows, (16_346, 4_087));
    assert_eq!(made.notes[0], "dropped 207 rows with missing cells");
}

#[test]
fn mnist() {
    let images = larger("mnist/t10k-images-idx3-ubyte.gz");
    let labels = larger("mnist/t10k-labels-idx1-ubyte.gz");
    let (Some(images), Some(labels)) = (images, labels) else { return };
    let spec = Idx { validation_fraction: Some(0.2), ..idx_of(images, labels) };
    let made = read_ok(Source::Idx(spec.clone()), Task::Classification);
    assert_eq!((made.train.rows, made.features, made.classes), (8000, 784, Some(10)));
    assert_eq!(made.validation.map(|part| part.rows), Some(2000));

    let all = read_ok(Source::Idx(Idx { validation_fraction: Some(0.0), ..spec }), Task::Classification);
    assert_eq!(all.train.targets[..8], [7.0, 2.0, 1.0, 0.0, 4.0, 1.0, 4.0, 9.0]);
    // numpy: images.mean() / 255.
    let mean = memory(&all.train).iter().map(|&pixel| f64::from(pixel)).sum::<f64>() / 7_840_000.0;
    assert!((mean - 0.132_514_605_8).abs() < 1e-7, "{mean}");
}
