//! `parquet`: files written by pandas and pyarrow (tests/fixtures/parquet/make.py), compared with CSV files
//! of the same cells.

use std::{
    fs,
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use runner::{
    data::Task,
    spec::{Csv, Missing, Parquet, Source},
};
use tempfile::TempDir;

use crate::{
    mutated::mutated,
    opened::{csv_of, memory, problems, read, read_ok},
    process::Sandbox,
};

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|&name| name.to_owned()).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/parquet")
}

fn fixture(name: &str) -> PathBuf {
    folder().join(name)
}

fn as_parquet(csv: Csv) -> Parquet {
    Parquet {
        path: csv.path.with_extension("parquet"),
        target: csv.target,
        features: csv.features,
        categorical: csv.categorical,
        ignore: csv.ignore,
        group: csv.group,
        weight: csv.weight,
        missing: csv.missing,
        missing_values: csv.missing_values,
        missing_indicators: csv.missing_indicators,
        standardize: csv.standardize,
        standardize_target: csv.standardize_target,
        validation_path: csv.validation_path,
        validation_fraction: csv.validation_fraction,
    }
}

fn csv(name: &str, target: &str, ignore: &[&str]) -> Csv {
    let categorical = names(&["kind", "label"]).into_iter().filter(|column| column != target).collect();
    Csv {
        categorical,
        ignore: names(ignore),
        validation_fraction: Some(0.2),
        ..csv_of(fixture(name), target)
    }
}

#[test]
fn rows_are_those_of_the_csv_file() {
    let holes = |missing| Csv { missing, ..csv("holes.csv", "y", &[]) };
    let few = |target: &str| Csv {
        features: Some(names(&["whole", "small"])),
        categorical: Vec::new(),
        standardize: false,
        ..csv("plain.csv", target, &[])
    };
    for (csv, task) in [
        (csv("plain.csv", "y", &[]), Task::Regression),
        (csv("plain.csv", "label", &["y"]), Task::Classification),
        (csv("plain.csv", "truth", &["y"]), Task::Classification),
        (few("y"), Task::Regression),
        (few("byte"), Task::Regression),
        (holes(Missing::Mean), Task::Regression),
        (Csv { missing_indicators: true, ..holes(Missing::Mean) }, Task::Regression),
        (holes(Missing::Drop), Task::Regression),
    ] {
        let expected = read_ok(Source::Csv(csv.clone()), task);
        let found = read_ok(Source::Parquet(as_parquet(csv)), task);
        assert_eq!(
            (found.features, found.classes, &found.apart),
            (expected.features, expected.classes, &expected.apart)
        );
        assert_eq!((found.notes, found.preprocessing), (expected.notes, expected.preprocessing));
        let parts = [(&found.train, &expected.train)].into_iter();
        for (found, expected) in parts.chain(found.validation.iter().zip(&expected.validation)) {
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(memory(found)), bits(memory(expected)));
            assert_eq!(bits(&found.targets), bits(&expected.targets));
        }
    }
}

#[test]
fn what_is_wrong_is_named_by_column_and_row() {
    let wrong = |csv: Csv| problems(Source::Parquet(as_parquet(csv)), Task::Regression, &folder());
    let plain = |categorical: &[&str]| Csv { categorical: names(categorical), ..csv("plain.csv", "y", &[]) };
    insta::assert_snapshot!(wrong(plain(&["kind"])), @r#"
    `up` in column `label` is not a number
      --> plain.parquet, row 0
      label: the first of 60 such cells in column `label`
      hint: add `label` to `data.parquet.categorical` (one-hot) or to `data.parquet.ignore`
    "#);
    insta::assert_snapshot!(wrong(plain(&["kind", "labels"])), @r#"
    no column `labels` in `plain.parquet`
      --> data.parquet.categorical.1
      hint: did you mean `label`?
    "#);
    insta::assert_snapshot!(wrong(Csv { ignore: names(&["small", "truth"]), ..csv("holes.csv", "y", &[]) }), @r#"
    missing cell in column `kind`
      --> holes.parquet, row 1
      label: the first of 9 such cells in column `kind`
      hint: `data.parquet.missing = "mean"` fills such cells, `"drop"` leaves their rows out
    missing cell in column `x`
      --> holes.parquet, row 5
      label: the first of 9 such cells in column `x`
      hint: `data.parquet.missing = "mean"` fills such cells, `"drop"` leaves their rows out
    "#);
    let odd = |features: &[&str]| Csv { features: Some(names(features)), ..csv_of(fixture("odd.csv"), "y") };
    for column in ["when", "price", "pair", "parts", "half"] {
        let reported = wrong(odd(&["x", column]));
        insta::allow_duplicates! {
            insta::assert_snapshot!(reported.replace(column, "COLUMN").split(" of the type ").next().unwrap_or_default(), @"column `COLUMN` is");
        }
    }
    insta::assert_snapshot!(wrong(odd(&["x", "when"])), @r#"
    column `when` is of the type timestamp: expected numbers, text or truth values
      --> odd.parquet
      hint: leave it out with `data.parquet.ignore`, or write it as numbers or text
    "#);
    insta::assert_snapshot!(wrong(odd(&["x"])), @r#"
    `inf` in column `x` is not a finite number
      --> odd.parquet, row 1
    "#);
    insta::assert_snapshot!(wrong(csv_of(fixture("zstd.csv"), "y")), @r#"
    column `x` is compressed by zstd, which is not unpacked here
      --> zstd.parquet
      hint: write the file anew with `compression="snappy"`, or "gzip", "lz4" or none
    "#);
    let text = Parquet { path: fixture("plain.csv"), ..as_parquet(plain(&[])) };
    insta::assert_snapshot!(problems(Source::Parquet(text), Task::Regression, &folder()), @r#"
    cannot be read as a Parquet file: Parquet error: Invalid Parquet file. Corrupt footer
      --> plain.csv
      hint: the file is of another format, is damaged, or was cut while it was copied
    "#);
    let csv = csv_of(fixture("plain.parquet"), "y");
    insta::assert_snapshot!(problems(Source::Csv(csv), Task::Regression, &folder()), @r#"
    a Parquet file, not UTF-8 text
      --> plain.parquet
      hint: name it in `[data.parquet]`, which has the same keys
    "#);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn damaged_files_give_rows_or_problems(
        bytes in prop::sample::select(vec!["plain", "holes", "odd"])
            .prop_flat_map(|name| mutated(fs::read(fixture(&format!("{name}.parquet"))).unwrap())),
    ) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("rows.parquet");
        fs::write(&path, bytes).unwrap();
        let spec = Parquet { path, ..as_parquet(csv("plain.csv", "y", &[])) };
        _ = read(Source::Parquet(spec), Task::Regression);
    }
}

#[test]
fn a_run_and_its_predictions_are_those_of_the_csv_file() {
    let spec = |source: &str| {
        format!(
            "[data.{source}]\npath = \"holes.{source}\"\ntarget = \"y\"\ncategorical = [\"kind\", \"label\"]\n\
             missing = \"mean\"\nstandardize_target = true\n[model]\n\
             layers = [{{ linear = {{ out_features = 8 }} }}, \"tanh\", {{ linear = {{ out_features = 1 }} }}]\n\
             [optimizer.adam]\nlr = 0.01\n[trainer]\nmax_epochs = 4\n"
        )
    };
    let place = Sandbox::new("");
    let shown = |words: &[&str]| {
        let ended = place.runner(words);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout
    };
    let [csv, parquet] = ["csv", "parquet"].map(|source| {
        fs::copy(fixture(&format!("holes.{source}")), place.path().join(format!("holes.{source}"))).unwrap();
        fs::write(place.path().join(format!("{source}.toml")), spec(source)).unwrap();
        place.path().join(shown(&[&format!("{source}.toml"), "-q"]).trim())
    });
    let table = |run: &Path, name: &str| -> Vec<String> {
        let text = fs::read_to_string(run.join(name)).unwrap();
        // Leaves out elapsed times.
        let place = text.lines().next().unwrap().split(',').position(|name| name == "elapsed_s");
        let cells = |line: &str| {
            let cells = line.split(',').enumerate().filter(|(column, _)| Some(*column) != place);
            cells.map(|(_, cell)| cell).collect::<Vec<_>>().join(",")
        };
        text.lines().map(cells).collect()
    };
    for name in ["metrics.csv", "rows.csv"] {
        assert_eq!(table(&csv, name), table(&parquet, name));
    }
    let tensors = |run: &Path| -> Vec<u8> {
        let bytes = fs::read(run.join("model.safetensors")).unwrap();
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        bytes[8 + header..].to_vec()
    };
    assert_eq!(tensors(&csv), tensors(&parquet));
    for command in ["predict", "evaluate"] {
        let [csv, parquet] = [&csv, &parquet].map(|run| {
            let run = run.to_str().unwrap();
            ["holes.csv", "holes.parquet"].map(|rows| shown(&[command, run, rows]))
        });
        assert_eq!((&csv[0], &csv[0], &csv[0]), (&csv[1], &parquet[0], &parquet[1]), "{command}");
    }
    fs::copy(fixture("none.parquet"), place.path().join("none.parquet")).unwrap();
    assert_eq!(shown(&["predict", parquet.to_str().unwrap(), "none.parquet"]), "prediction\n");
}

#[test]
fn a_spec_is_drafted() {
    let place = Sandbox::new("");
    fs::copy(fixture("odd.parquet"), place.path().join("odd.parquet")).unwrap();
    let drafted = place.runner(&["new", "csv", "--from", "odd.parquet"]).stdout;
    let (_, source) = drafted.split_once("[data.parquet]\n").unwrap();
    insta::assert_snapshot!(source.split("\n\n").next().unwrap(), @r#"
    path = "odd.parquet"
    target = "y"    # a quantity
    # numbers: "z"
    # `when` is left out: it has no numbers and no text
    # `price` is left out: it has no numbers and no text
    # `pair` is left out: it has no numbers and no text
    # `parts` is left out: it has no numbers and no text
    # `half` is left out: it has no numbers and no text
    # `x` is left out: 1 of its 4 cells is `inf`, which is no finite number; `missing_values` names texts that stand for missing ones
    ignore = ["when", "price", "pair", "parts", "half", "x"]
    standardize = true    # features to mean 0 and deviation 1
    standardize_target = true    # losses are in the target's deviations
    validation_fraction = 0.0    # too few rows to hold some out
    "#);
}

#[test]
fn a_column_that_tells_the_target_is_found_beside_dates() {
    let place = Sandbox::new("");
    fs::copy(fixture("dates.parquet"), place.path().join("dates.parquet")).unwrap();
    let ended = place.runner(&["new", "csv", "--from", "dates.parquet"]);
    let told = "`told` alone tells the target (correlation 1.000)";
    assert!(ended.code == Some(0) && ended.stderr.contains(told), "{ended:?}");
}
