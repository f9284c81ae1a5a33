//! Arbitrary bytes in a data file give rows or problems, but never a panic, nor memory use far beyond the
//! file's size.

use std::{fs, path::Path};

use proptest::prelude::*;
use runner::{
    data::{Input, RowOptions, Task, TrainedData, open, read_weights},
    spec::{Csv, Missing, Source, Spec, load},
};
use tempfile::TempDir;

use super::{MUCH, csv_of, data, idx::idx, idx_of, mutated::mutated, npy::npy, npy_of};

/// Both success and a clean error are fine.
fn outcome(source: Source, classes: bool) {
    let task = if classes { Task::Classification } else { Task::Regression };
    match open(&data(source), task, 1, MUCH) {
        Ok(made) => {
            assert!(made.train.rows > 0 && made.features > 0);
            assert_eq!(made.train.targets.len(), made.train.rows * made.targets);
            assert_eq!(super::memory(&made.train).len(), made.train.rows * made.features);
            assert!(super::memory(&made.train).iter().all(|value| value.is_finite()));
        }
        Err(problems) => {
            assert!((1..=21).contains(&problems.len()));
            for problem in problems {
                assert!(!problem.message.contains('\n') && !problem.message.ends_with('.'), "{problem:?}");
            }
        }
    }
}

fn csv(path: &Path, header: bool, missing: Missing) -> Csv {
    Csv {
        header,
        missing,
        categorical: vec![if header { "kind" } else { "1" }.into()],
        standardize: true,
        validation_fraction: Some(0.3),
        ..csv_of(path.into(), if header { "y" } else { "2" })
    }
}

/// 300 cases, or `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 300 };
    ProptestConfig { cases, ..default }
}

/// A safetensors file of one tensor.
fn safetensors() -> Vec<u8> {
    let header = r#"{"0.weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}"#;
    let length = (header.len() as u64).to_le_bytes();
    [&length, header.as_bytes(), &1_f32.to_le_bytes(), &2_f32.to_le_bytes()].concat()
}

const TABLE: &str = "\u{feff}a,kind,y\r\n1.5,\"x, \"\"z\"\"\",0\r\n-2e3,y,1\n,NA,2\n\n4,\"l\nm\",1\n";

proptest! {
    #![proptest_config(config())]

    #[test]
    fn csv_of_any_bytes(
        bytes in prop_oneof![
            mutated(TABLE.into()),
            prop::collection::vec(any::<u8>(), 0..200),
            "[ay,kind\"\r\n;0-9.eE-]{0,200}".prop_map(String::into_bytes),
        ],
        header: bool,
        classes: bool,
        missing in prop_oneof![Just(Missing::Error), Just(Missing::Mean), Just(Missing::Drop)],
    ) {
        let folder = TempDir::new()?;
        let path = folder.path().join("rows.csv");
        fs::write(&path, bytes)?;
        outcome(Source::Csv(csv(&path, header, missing)), classes);
    }

    #[test]
    fn idx_of_any_bytes(
        images in prop_oneof![
            mutated(idx(8, &[3, 2, 2], &[7; 12])),
            mutated(gzipped(&idx(13, &[3, 2, 1], &[63; 24]))),
            prop::collection::vec(any::<u8>(), 0..100),
        ],
        labels in prop_oneof![
            4 => Just(idx(8, &[3], &[0, 1, 0])),
            1 => mutated(idx(8, &[3], &[0, 1, 0])),
        ],
        classes: bool,
    ) {
        let folder = TempDir::new()?;
        let (images_path, labels_path) = (folder.path().join("images"), folder.path().join("labels"));
        fs::write(&images_path, images)?;
        fs::write(&labels_path, labels)?;
        outcome(Source::Idx(idx_of(images_path, labels_path)), classes);
    }

    #[test]
    fn weights_of_any_bytes(
        bytes in prop_oneof![mutated(safetensors()), prop::collection::vec(any::<u8>(), 0..100)],
    ) {
        let folder = TempDir::new()?;
        let path = folder.path().join("w.safetensors");
        fs::write(&path, bytes)?;
        match read_weights(&path, &[("0.weight".to_owned(), vec![1, 2])]) {
            Ok(weights) => assert!(weights["0.weight"].values.iter().all(|value| value.is_finite())),
            Err(problems) => assert!((1..=20).contains(&problems.len())),
        }
    }

    #[test]
    fn npy_of_any_bytes(
        features in prop_oneof![
            mutated(npy("<f4", "(3, 2)", &[63; 24])),
            mutated(npy("|u1", "(3,)", &[63; 3])),
            prop::collection::vec(any::<u8>(), 0..100),
        ],
        labels in prop_oneof![
            4 => Just(npy("|u1", "(3,)", &[0, 1, 0])),
            1 => mutated(npy("<i8", "(3,)", &[0; 24])),
        ],
        classes: bool,
    ) {
        let folder = TempDir::new()?;
        let (features_path, labels_path) = (folder.path().join("x.npy"), folder.path().join("y.npy"));
        fs::write(&features_path, features)?;
        fs::write(&labels_path, labels)?;
        outcome(Source::Npy(npy_of(features_path, labels_path)), classes);
    }
}

const MODEL: &str = r#"
[data.csv]
path = "train.csv"
target = "y"
categorical = ["kind"]
missing = "mean"
[model]
layers = [{ linear = { out_features = 3 } }]
loss = "cross_entropy"
[optimizer.sgd]
lr = 1.0
"#;

/// The spec and the preprocessing data that a model trained on the table stores.
fn trained() -> (Spec, String) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("spec.toml");
    fs::write(&path, MODEL).expect("a spec");
    fs::write(folder.path().join("train.csv"), TABLE).expect("rows");
    let spec = load(&path, &[]).expect("a spec").trials.remove(0).spec;
    let made = open(&spec.data, Task::Classification, 1, MUCH).expect("rows");
    (spec, made.preprocessing.to_string())
}

proptest! {
    #![proptest_config(config())]

    /// New rows for a trained model, with and without targets; in some cases the stored preprocessing is
    /// damaged.
    #[test]
    fn new_rows_of_any_bytes(
        bytes in prop_oneof![
            mutated(TABLE.into()),
            mutated(gzipped(TABLE.as_bytes())),
            "[ay,kind\"\r\n;0-9.eE-]{0,200}".prop_map(String::into_bytes),
        ],
        stored in prop_oneof![2 => Just(trained().1.into_bytes()), 1 => mutated(trained().1.into_bytes())],
    ) {
        let folder = TempDir::new()?;
        let path = folder.path().join("rows.csv");
        fs::write(&path, bytes)?;
        let (spec, stored) = (trained().0, String::from_utf8_lossy(&stored).into_owned());
        let Ok(data) = TrainedData::new(&spec, Some(&stored), 3) else { return Ok(()) };
        let (input, options) = (Input::File(path), RowOptions::default());
        for (opened, has_targets) in
            [(data.rows(&input, &options), false), (data.labelled_rows(&input, None, &options), true)]
        {
            let Ok(mut rows) = opened else { continue };
            while let Ok(Some(block)) = rows.next_block() {
                prop_assert_eq!(block.features.len(), block.rows * data.features().unwrap_or(0));
                prop_assert_eq!(block.targets.len(), if has_targets { block.rows } else { 0 });
                prop_assert!(block.targets.iter().all(|class| (0.0..3.0).contains(class)));
            }
        }
    }
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).expect("memory");
    packed.finish().expect("memory")
}
