//! `csv`.

use std::{fs, path::PathBuf};

use runner::{
    data::{Dataset, Task},
    spec::{Csv, Missing, Source},
};
use serde_json::json;
use tempfile::TempDir;

use super::{csv_of, memory, problems, read_ok};

/// A folder with one file, `rows.csv`.
struct Folder(TempDir);

impl Folder {
    fn new(bytes: impl AsRef<[u8]>) -> Self {
        let folder = Self(TempDir::new().expect("a folder"));
        folder.write("rows.csv", bytes);
        folder
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).expect("a file");
        path
    }

    fn spec(&self, target: &str) -> Csv {
        csv_of(self.0.path().join("rows.csv"), target)
    }

    fn problems(&self, spec: Csv, task: Task) -> String {
        problems(Source::Csv(spec), task, self.0.path())
    }
}

fn read(spec: Csv, task: Task) -> Dataset {
    read_ok(Source::Csv(spec), task)
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn reads_numbers_in_file_order() {
    let folder = Folder::new("a,y,b\n1,10,2\n3,30,4\n");
    let made = read(folder.spec("y"), Task::Regression);
    assert_eq!((made.features, made.targets, made.train.rows, made.classes), (2, 1, 2, None));
    assert_eq!(memory(&made.train), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(**made.train.targets, [10.0, 30.0]);
    assert!(made.validation.is_none() && made.notes.is_empty());
    assert_eq!(
        made.preprocessing,
        json!({
            "source": "csv",
            "features": [{ "name": "a", "kind": "numeric" }, { "name": "b", "kind": "numeric" }],
            "target": { "name": "y" },
        })
    );
}

#[test]
fn reads_features_in_the_order_of_the_spec() {
    let folder = Folder::new("a,y,b,text\n1,10,2,x\n");
    let spec = Csv { features: Some(names(&["b", "a"])), ..folder.spec("y") };
    assert_eq!(memory(&read(spec, Task::Regression).train), [2.0, 1.0]);
}

#[test]
fn byte_order_mark_line_ends_quotes_and_blanks_do_not_matter() {
    let body = "\u{feff}a ,\"the, target\", b\r\n\r\n 1 ,\"10\",\"2\"\r\n\"3\",30,4";
    let made = read(Folder::new(body).spec("the, target"), Task::Regression);
    assert_eq!(memory(&made.train), [1.0, 2.0, 3.0, 4.0]);
    let folder = Folder::new("1;2\n3;4\n");
    let spec = Csv { delimiter: ';', header: false, ..folder.spec("1") };
    let made = read(spec, Task::Regression);
    assert_eq!((memory(&made.train), &made.train.targets[..]), (&[1.0, 3.0][..], &[2.0, 4.0][..]));
}

#[test]
fn categories_are_sorted_and_come_last() {
    let folder = Folder::new("kind,y,a\nred,1,5\nblue,2,6\nred,3,7\n");
    let spec = Csv { categorical: names(&["kind"]), ..folder.spec("y") };
    let made = read(spec, Task::Regression);
    assert_eq!(memory(&made.train), [5.0, 0.0, 1.0, 6.0, 1.0, 0.0, 7.0, 0.0, 1.0]);
    assert_eq!(made.preprocessing["features"][1]["categories"], json!(["blue", "red"]));
    assert_eq!(made.notes, ["`kind` has 2 categories"]);
}

#[test]
fn standardizes_by_the_training_rows() {
    let folder = Folder::new("a,b,y\n1,7,2\n2,7,4\n4,7,6\n9,7,8\n");
    let validation = folder.write("more.csv", "y,b,a\n10,8,4\n");
    let spec = Csv {
        standardize: true,
        standardize_target: true,
        validation_path: Some(validation),
        ..folder.spec("y")
    };
    let made = read(spec, Task::Regression);
    // scikit-learn: StandardScaler().fit_transform([[1], [2], [4], [9]]).
    let expected = [-0.973_328_53, -0.648_885_67, 0.0, 1.622_214_2].map(|x: f32| [x, 0.0]).concat();
    assert_eq!(memory(&made.train), expected);
    let validation = made.validation.expect("rows to validate on");
    assert_eq!(memory(&validation), [0.0, 1.0]);
    assert_eq!(**validation.targets, [(5.0 / 5.0_f64.sqrt()) as f32]);
    assert_eq!(made.preprocessing["target"], json!({ "name": "y", "mean": 5.0, "std": 5.0_f64.sqrt() }));
    assert_eq!(
        made.preprocessing["features"][1],
        json!({ "name": "b", "kind": "numeric", "mean": 7.0, "std": 1.0 })
    );
}

#[test]
fn keeps_small_differences_of_large_numbers() {
    let folder = Folder::new("t,y\n1700000000,1\n1700000001,2\n1700000002,3\n");
    let made = read(Csv { standardize: true, ..folder.spec("y") }, Task::Regression);
    assert_eq!(memory(&made.train), [-1.224_744_9, 0.0, 1.224_744_9]);
}

const HOLES: &str = "a,kind,y\n1,x,1\n,x,2\n5,NA,3\nnull,y,4\n3,x,nan\n";

#[test]
fn missing_cells_are_filled() {
    let folder = Folder::new(HOLES.replace("nan", "5"));
    let spec = Csv { missing: Missing::Mean, categorical: names(&["kind"]), ..folder.spec("y") };
    let made = read(spec, Task::Regression);
    let expected = [
        [1.0, 1.0, 0.0, 0.0],
        [3.0, 1.0, 0.0, 0.0],
        [5.0, 0.0, 0.0, 1.0],
        [3.0, 0.0, 1.0, 0.0],
        [3.0, 1.0, 0.0, 0.0],
    ];
    assert_eq!(memory(&made.train), expected.concat());
    assert_eq!(
        made.preprocessing["features"],
        json!([
            { "name": "a", "kind": "numeric", "fill": 3.0 },
            { "name": "kind", "kind": "categorical", "categories": ["x", "y", null] },
        ])
    );
    assert_eq!(
        made.notes,
        [
            "filled 2 missing cells of `a` with 3, the mean of its training rows",
            "`kind` has 3 categories, one of them for missing cells"
        ]
    );
}

#[test]
fn missing_cells_drop_their_rows() {
    let folder = Folder::new(HOLES);
    let spec = Csv { missing: Missing::Drop, categorical: names(&["kind"]), ..folder.spec("y") };
    let made = read(spec.clone(), Task::Regression);
    assert_eq!((memory(&made.train), &made.train.targets[..]), (&[1.0, 1.0][..], &[1.0][..]));
    assert_eq!(made.notes, ["dropped 4 rows with missing cells", "`kind` has 1 categories"]);
    // A column that is left out drops nothing.
    let spec = Csv { categorical: vec![], ignore: names(&["kind"]), ..spec };
    assert_eq!(&**read(spec, Task::Regression).train.targets, [1.0, 3.0]);
}

#[test]
fn missing_cells_are_told() {
    let folder = Folder::new(HOLES);
    let spec = Csv { categorical: names(&["kind"]), ..folder.spec("y") };
    assert_eq!(
        folder.problems(spec.clone(), Task::Regression),
        "\
missing cell in column `a`
  --> rows.csv:3:1 | ,x,2
  hint: `data.csv.missing = \"mean\"` fills such cells, `\"drop\"` leaves their rows out
missing cell in column `kind`
  --> rows.csv:4:3 | 5,NA,3
  hint: `data.csv.missing = \"mean\"` fills such cells, `\"drop\"` leaves their rows out
missing cell in column `a`
  --> rows.csv:5:1 | null,y,4
  hint: `data.csv.missing = \"mean\"` fills such cells, `\"drop\"` leaves their rows out
missing cell in the target column `y`
  --> rows.csv:6:5 | 3,x,nan
  hint: `data.csv.missing = \"drop\"` leaves such rows out; a target is never filled
"
    );
    assert_eq!(
        folder.problems(Csv { missing: Missing::Mean, ..spec }, Task::Regression),
        "\
missing cell in the target column `y`
  --> rows.csv:6:5 | 3,x,nan
  hint: `data.csv.missing = \"drop\"` leaves such rows out; a target is never filled
"
    );
}

#[test]
fn a_text_column_is_told_once() {
    let rows: String = (0..30).map(|i| format!("{i},NEAR BAY,{i}\n")).collect();
    let folder = Folder::new(format!("a,ocean,y\n{rows}"));
    assert_eq!(
        folder.problems(folder.spec("y"), Task::Regression),
        "\
`NEAR BAY` in column `ocean` is not a number
  --> rows.csv:2:3 | 0,NEAR BAY,0
  label: the first of 30 such cells in column `ocean`
  hint: add `ocean` to `data.csv.categorical` (one-hot) or to `data.csv.ignore`
"
    );
}

#[test]
fn bad_cells_are_told_one_by_one() {
    let folder = Folder::new("ä,b,y\nüü,1,1\n2,inf,2\n3,1e39,1.5x\n4,\"1,5\",4\n5,5,5\n");
    assert_eq!(
        folder.problems(folder.spec("y"), Task::Regression),
        "\
`üü` in column `ä` is not a number
  --> rows.csv:2:1 | üü,1,1
  hint: correct the cell, or add `ä` to `data.csv.categorical` (one-hot) or to `data.csv.ignore`
`inf` in column `b` is not a finite number
  --> rows.csv:3:3 | 2,inf,2
`1e39` in column `b` is too large for f32
  --> rows.csv:4:3 | 3,1e39,1.5x
`1.5x` in the target column `y` is not a number
  --> rows.csv:4:8 | 3,1e39,1.5x
  hint: for classes use `loss = \"cross_entropy\"`
`1,5` in column `b` is not a number
  --> rows.csv:5:3 | 4,\"1,5\",4
  hint: write decimals with a point, thousands without a mark
"
    );
}

#[test]
fn at_most_twenty_problems_are_told() {
    let header: String = (0..30).map(|i| format!("c{i},")).collect();
    let folder = Folder::new(format!("{header}y\n{}1\n", "x,".repeat(30)));
    let text = folder.problems(folder.spec("y"), Task::Regression);
    assert_eq!(text.matches("is not a number").count(), 20);
    assert!(text.ends_with("30 cells and lines are wrong; these were the first\n  --> rows.csv\n"), "{text}");
}

#[test]
fn a_cut_file_is_told() {
    let folder = Folder::new("a,b,y\n1,2,3\n4,5");
    assert_eq!(
        folder.problems(folder.spec("y"), Task::Regression),
        "\
2 cells in this line: expected 3, as in the first
  --> rows.csv:3 | 4,5
  hint: the file ends within this line: it may have been cut while it was copied
"
    );
    let folder = Folder::new("a,y\r\n1,2\r\n1,2,3\r\n1\r\n");
    assert_eq!(
        folder.problems(folder.spec("y"), Task::Regression),
        "\
3 cells in this line: expected 2, as in the first
  --> rows.csv:3 | 1,2,3
  hint: a cell that holds a `,` must be quoted
1 cell in this line: expected 2, as in the first
  --> rows.csv:4 | 1
"
    );
    let folder = Folder::new("a,y\n1,2\n\"3,4\n5,6\n");
    assert_eq!(
        folder.problems(folder.spec("y"), Task::Regression),
        "\
a quoted cell is never closed
  --> rows.csv:3:1 | \"3,4
  hint: close it with `\"`; within quotes a quote is written `\"\"`
"
    );
}

#[test]
fn a_file_without_rows_is_told() {
    for (body, expected) in [
        ("", "an empty file: expected a line of column names\n  --> rows.csv\n"),
        ("\n\n", "an empty file: expected a line of column names\n  --> rows.csv\n"),
        ("a,y\n", "a header and no rows\n  --> rows.csv\n"),
        ("a,y", "a header and no rows\n  --> rows.csv\n"),
    ] {
        let folder = Folder::new(body);
        assert_eq!(folder.problems(folder.spec("y"), Task::Regression), expected);
    }
    let folder = Folder::new("a,y\n,1\n2,\n");
    assert_eq!(
        folder.problems(Csv { missing: Missing::Drop, ..folder.spec("y") }, Task::Regression),
        "\
all 2 rows have missing cells
  --> rows.csv
  hint: `data.csv.missing = \"mean\"` fills them, `data.csv.ignore` leaves columns out
"
    );
    let folder = Folder::new("a,y\n,1\n,2\n");
    assert_eq!(
        folder.problems(Csv { missing: Missing::Mean, ..folder.spec("y") }, Task::Regression),
        "\
column `a` has no number in any training row
  --> rows.csv
  hint: leave it out: add `a` to `data.csv.ignore`
"
    );
}

#[test]
fn text_that_is_not_utf8_is_told() {
    let folder = Folder::new(b"a,y\n1,2\nx\xc3\xa4\xff,3\n");
    assert_eq!(
        folder.problems(folder.spec("y"), Task::Regression),
        "not UTF-8: byte `ff`\n  --> rows.csv:3:3\n  hint: save the file as UTF-8\n"
    );
}

#[test]
fn unknown_names_are_told() {
    let folder = Folder::new("longitude,latitude,median_house_value\n1,2,3\n");
    let spec = Csv {
        features: Some(names(&["longitude", "lattitude"])),
        categorical: names(&["ocean"]),
        ignore: names(&["longitude"]),
        ..folder.spec("medain_house_value")
    };
    assert_eq!(
        folder.problems(spec, Task::Regression),
        "\
no column `medain_house_value` in `rows.csv`
  --> data.csv.target
  hint: did you mean `median_house_value`?
no column `ocean` in `rows.csv`
  --> data.csv.categorical.0
  hint: the columns are `longitude`, `latitude`, `median_house_value`
column `longitude` is named twice, here and in `data.csv.ignore.0`
  --> data.csv.features.0
  hint: a column has one purpose
no column `lattitude` in `rows.csv`
  --> data.csv.features.1
  hint: did you mean `latitude`?
"
    );
    let folder = Folder::new("1.5,2\n3,4\n");
    assert_eq!(
        folder.problems(folder.spec("price"), Task::Regression),
        "\
no column `price` in `rows.csv`
  --> data.csv.target
  hint: the first line holds only numbers: if it is no header, `data.csv.header = false`
"
    );
    let folder = Folder::new("a;y\n3;4\n");
    assert_eq!(
        folder.problems(folder.spec("y"), Task::Regression),
        "\
no column `y` in `rows.csv`
  --> data.csv.target
  hint: cells seem to be separated otherwise: `data.csv.delimiter = ';'`
"
    );
}

#[test]
fn columns_that_cannot_be_told_apart_are_told() {
    let folder = Folder::new(",a,a,y\n1,2,3,4\n");
    assert_eq!(
        folder.problems(folder.spec("y"), Task::Regression),
        "\
columns 2 and 3 are both named `a`
  --> rows.csv:1:4 | ,a,a,y
  hint: rename one of them
column 1 has no name
  --> rows.csv:1:1 | ,a,a,y
  hint: name it, or leave it out with `data.csv.ignore = [\"\"]`
"
    );
    let folder = Folder::new(",a,y\n1,2,3\n");
    let made = read(Csv { ignore: names(&[""]), ..folder.spec("y") }, Task::Regression);
    assert_eq!(memory(&made.train), [2.0]);
}

#[test]
fn a_file_that_cannot_be_read_is_told() {
    let folder = Folder::new("a,y\n1,2\n");
    let spec = Csv { path: folder.0.path().join("row.csv"), ..folder.spec("y") };
    assert_eq!(
        folder.problems(spec, Task::Regression),
        "\
cannot read `row.csv`: no such file or directory
  --> data.csv.path
  hint: a relative path is taken from the folder of the spec
"
    );
    let spec = Csv { path: folder.0.path().join("."), ..folder.spec("y") };
    assert!(folder.problems(spec, Task::Regression).contains("it is a folder"));
}

#[test]
fn words_are_classes() {
    let folder = Folder::new("a,species\n1,Gentoo\n2,Adelie\n3,Gentoo\n");
    let validation = folder.write("more.csv", "species,a\nAdelie,7\n");
    let spec = Csv { validation_path: Some(validation), ..folder.spec("species") };
    let made = read(spec.clone(), Task::Classification);
    assert_eq!((made.classes, &made.train.targets[..]), (Some(2), &[1.0, 0.0, 1.0][..]));
    assert_eq!(made.preprocessing["target"], json!({ "name": "species", "classes": ["Adelie", "Gentoo"] }));
    assert_eq!(made.validation.map(|part| part.targets[0]), Some(0.0));

    folder.write("more.csv", "species,a\nAdelie,7\nEmu,8\n");
    assert_eq!(
        folder.problems(spec, Task::Classification),
        "\
`Emu` in the target column `species` is no class of the training file
  --> more.csv:3:1 | Emu,8
  hint: the training file has `Adelie`, `Gentoo`
"
    );
}

#[test]
fn numbers_are_classes_from_zero() {
    let folder = Folder::new("a,k\n1,2\n2,0\n3,1.0\n");
    let made = read(folder.spec("k"), Task::Classification);
    assert_eq!((made.classes, &made.train.targets[..]), (Some(3), &[2.0, 0.0, 1.0][..]));
    assert_eq!(made.preprocessing["target"], json!({ "name": "k", "classes": 3 }));

    let folder = Folder::new("a,k\n1,1\n2,2\n3,4\n");
    assert_eq!(
        folder.problems(folder.spec("k"), Task::Classification),
        "\
target column `k`: classes are numbered 0, 1, 2, ... without a gap: found 1, 2, 4
  --> rows.csv
  hint: renumber them, or write words; for numbers instead of classes use `loss = \"mse\"`
"
    );
    for bad in ["-1", "0.5"] {
        let folder = Folder::new(format!("a,k\n1,0\n2,{bad}\n"));
        assert_eq!(
            folder.problems(folder.spec("k"), Task::Classification),
            format!(
                "\
`{bad}` in the target column `k` is no class
  --> rows.csv:3:3 | 2,{bad}
  hint: classes are 0, 1, 2, ... or words; for numbers instead of classes use `loss = \"mse\"`
"
            )
        );
    }
    let folder = Folder::new("a,k\n1,0\n2,0\n");
    assert_eq!(
        folder.problems(folder.spec("k"), Task::Classification),
        "all labels are the same class: expected two classes or more\n  --> data\n"
    );
    assert_eq!(
        folder.problems(Csv { standardize_target: true, ..folder.spec("k") }, Task::Classification),
        "\
`standardize_target` is for numbers, and `cross_entropy` learns classes
  --> data.csv.standardize_target
  hint: leave it out
"
    );
}

#[test]
fn a_validation_file_must_be_like_the_training_file() {
    let folder = Folder::new("a,kind,y\n1,x,1\n2,y,2\n");
    let validation = folder.write("more.csv", "kind,y,a\nx,1,1\nz,2,2\n,3,3\n");
    let spec = Csv {
        validation_path: Some(validation),
        categorical: names(&["kind"]),
        missing: Missing::Mean,
        ..folder.spec("y")
    };
    assert_eq!(
        folder.problems(spec.clone(), Task::Regression),
        "\
`z` in column `kind` is no category of the training file
  --> more.csv:3:1 | z,2,2
  hint: the training file has `x`, `y`
column `kind` has missing cells, and none in the training file
  --> more.csv
  hint: `data.csv.missing = \"drop\"` leaves their rows out
"
    );
    folder.write("more.csv", "kin,y\nx,1\n");
    assert_eq!(
        folder.problems(spec, Task::Regression),
        "\
no column `a`, which the training file has
  --> more.csv
  hint: the columns are `kin`, `y`
no column `kind`, which the training file has
  --> more.csv
  hint: did you mean `kin`?
"
    );
}

#[test]
fn a_fraction_validates() {
    let rows: String = (0..100).map(|i| format!("{i},{}\n", 2 * i)).collect();
    let folder = Folder::new(format!("a,y\n{rows}"));
    let spec = Csv { validation_fraction: None, ..folder.spec("y") };
    let made = read(spec.clone(), Task::Regression);
    let validation = made.validation.expect("rows to validate on");
    assert_eq!((made.train.rows, validation.rows), (80, 20));
    let (train, validation) = (memory(&made.train), memory(&validation));
    assert!(train.is_sorted() && validation.is_sorted());
    assert!(train.iter().zip(made.train.targets.iter()).all(|(x, y)| 2.0 * x == *y));
    let mut all = [train, validation].concat();
    all.sort_by(f32::total_cmp);
    assert!(all.into_iter().eq((0..100).map(|i| i as f32)));
    assert_eq!(
        folder.problems(Csv { validation_fraction: Some(0.999), ..spec }, Task::Regression),
        "\
`0.999` of 100 rows leaves no row to train on
  --> data.csv.validation_fraction
  hint: take a smaller part, or 0 for no validation
"
    );
}

#[test]
fn an_identifier_is_no_category() {
    let rows: String = (0..5000).map(|i| format!("id{i},{i}\n")).collect();
    let folder = Folder::new(format!("id,y\n{rows}"));
    assert_eq!(
        folder.problems(Csv { categorical: names(&["id"]), ..folder.spec("y") }, Task::Regression),
        "\
column `id` has 5000 categories: expected at most 4096
  --> rows.csv
  hint: a column that names single rows is better left to `data.csv.ignore`
"
    );
}
