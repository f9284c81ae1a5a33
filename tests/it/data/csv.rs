//! `csv`: files that are accepted.

use std::{fs, path::PathBuf};

use runner::{
    data::{Dataset, Task},
    spec::{Csv, Missing, Source},
};
use serde_json::json;
use tempfile::TempDir;

use super::{csv_of, idx::gzip, memory, problems, read_ok};

/// A folder with one file, `rows.csv`.
pub struct Folder(TempDir);

impl Folder {
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        let folder = Self(TempDir::new().expect("a folder"));
        folder.write("rows.csv", bytes);
        folder
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).expect("a file");
        path
    }

    pub fn spec(&self, target: &str) -> Csv {
        csv_of(self.0.path().join("rows.csv"), target)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn problems(&self, spec: Csv, task: Task) -> String {
        problems(Source::Csv(spec), task, self.0.path())
    }
}

pub fn read(spec: Csv, task: Task) -> Dataset {
    read_ok(Source::Csv(spec), task)
}

pub fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|&name| name.to_owned()).collect()
}

pub const HOLES: &str = "a,kind,y\n1,x,1\n,x,2\n5,NA,3\nnull,y,4\n3,x,nan\n";

#[test]
fn reads_numbers_in_file_order_plain_and_gzipped() {
    let text = b"a,y,b\n1,10,2\n3,30,4\n";
    for bytes in [text.to_vec(), gzip(text)] {
        reads_numbers_in_file_order(&Folder::new(bytes));
    }
    let cut = Folder::new(&gzip(text)[..20]);
    let reported = cut.problems(cut.spec("y"), Task::Regression);
    assert!(reported.starts_with("cannot be read: "), "{reported}");
}

fn reads_numbers_in_file_order(folder: &Folder) {
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
    let made = read(spec, Task::Regression);
    assert_eq!(memory(&made.train), [2.0, 1.0]);
    assert_eq!(made.notes, ["left out 1 of 4 columns: `text`"]);
}

/// As many names as fit on a line, and the number of the others.
#[test]
fn columns_that_are_left_out_are_named() {
    let wide: String = (0..1200).map(|n| format!(",column {n}")).collect();
    let folder = Folder::new(format!("a,y{wide}\n1,2{}\n", ",x".repeat(1200)));
    let spec = Csv { features: Some(names(&["a"])), ..folder.spec("y") };
    assert_eq!(
        read(spec, Task::Regression).notes,
        [
            "left out 1,200 of 1,202 columns: `column 0`, `column 1`, `column 2`, `column 3`, `column 4` and 1,195 more"
        ]
    );
    let long = "n".repeat(100);
    let folder = Folder::new(format!("a,y,{long},b\n1,2,3,4\n"));
    let spec = Csv { ignore: names(&[&long, "b"]), ..folder.spec("y") };
    let notes = read(spec, Task::Regression).notes;
    assert_eq!(notes.len(), 1);
    assert!(
        notes[0].starts_with("left out 2 of 4 columns: `nnnn") && notes[0].ends_with(" and 1 more"),
        "{notes:?}"
    );
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

/// The numbers are those of `pandas.read_csv(sep=";", decimal=",", float_precision="round_trip")`, pandas 3.0.
#[test]
fn decimals_after_a_comma() {
    let body = "a;kind;y\n46,2;0,5;1\n-1,25e2;1;2\n+,5;0,5;3\n1e-3;2,0;4\n0,1;1;5\n1234567,890625;2,0;6\n";
    let pandas = [46.2, -125.0, 0.5, 0.001, 0.1, 1_234_567.890_625_f64];
    let folder = Folder::new(body);
    let of = |columns: &[&str], target: &str| Csv {
        delimiter: ';',
        decimal: ',',
        categorical: names(columns),
        ..folder.spec(target)
    };
    let made = read(of(&["kind"], "y"), Task::Regression);
    let a: Vec<f32> = memory(&made.train).iter().step_by(4).copied().collect();
    assert_eq!(a, pandas.map(|value| value as f32));
    assert_eq!(made.preprocessing["features"][1]["categories"], json!(["0.5", "1", "2.0"]));
    let made = read(of(&["kind"], "a"), Task::Regression);
    assert_eq!(made.train.targets[..], pandas.map(|value| value as f32));
    // Whole numbers are classes however they are written.
    let whole = Folder::new("a;y\n1,5;1,0\n2;2\n3;1\n");
    let spec = Csv { delimiter: ';', decimal: ',', ..whole.spec("y") };
    let made = read(spec, Task::Classification);
    assert_eq!((made.classes, &made.train.targets[..]), (Some(2), &[0.0, 1.0, 0.0][..]));
    // Quoted cells may be separated by the same mark.
    let quoted = Folder::new("a,y\n\"1,5\",1\n\"2,5\",2\n");
    let made = read(Csv { decimal: ',', ..quoted.spec("y") }, Task::Regression);
    assert_eq!(memory(&made.train), [1.5, 2.5]);
    // The names of binary formats may begin the name of a column.
    for name in ["ARROW1", "PAR1", "SQLite format 3"] {
        let made = read(Folder::new(format!("{name}_a,y\n1,2\n")).spec("y"), Task::Regression);
        assert_eq!(memory(&made.train), [1.0]);
    }
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
        json!({ "name": "b", "kind": "numeric", "mean": 7.0, "std": 1.0, "constant": true })
    );
}

#[test]
fn keeps_small_differences_of_large_numbers() {
    let folder = Folder::new("t,y\n1700000000,1\n1700000001,2\n1700000002,3\n");
    let made = read(Csv { standardize: true, ..folder.spec("y") }, Task::Regression);
    assert_eq!(memory(&made.train), [-1.224_744_9, 0.0, 1.224_744_9]);
}

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

/// Texts of one's own stand for missing cells in numbers, words and targets, and the usual ones no longer do.
#[test]
fn missing_cells_have_texts_of_their_own() {
    let folder = Folder::new("a,kind,y\n1,NA,1\n?,x,2\n-999.0,Unknown,3\n5,x,4\n,x,?\n");
    let words = names(&["?", "unknown", "-999"]);
    let spec = Csv { missing_values: Some(words), categorical: names(&["kind"]), ..folder.spec("y") };
    let filled = Csv { missing: Missing::Mean, ..spec.clone() };
    let filled = read(filled, Task::Regression);
    assert_eq!(
        (memory(&filled.train), &filled.train.targets[..]),
        (
            &[1.0, 1.0, 0.0, 0.0, 3.0, 0.0, 1.0, 0.0, 3.0, 0.0, 0.0, 1.0, 5.0, 0.0, 1.0, 0.0][..],
            &[1.0, 2.0, 3.0, 4.0][..]
        )
    );
    assert_eq!(
        filled.notes[..2],
        [
            "dropped 1 row without a target",
            "filled 2 missing cells of `a` with 3, the mean of its training rows"
        ]
    );
    let dropped = read(Csv { missing: Missing::Drop, ..spec.clone() }, Task::Regression);
    assert_eq!(
        (memory(&dropped.train), &dropped.train.targets[..]),
        (&[1.0, 1.0, 0.0, 5.0, 0.0, 1.0][..], &[1.0, 4.0][..])
    );
    assert_eq!(dropped.preprocessing["features"][1]["categories"], json!(["NA", "x"]));
    let empty = Csv { missing: Missing::Mean, missing_values: Some(Vec::new()), ..spec };
    let problems = folder.problems(empty, Task::Regression);
    assert!(
        problems.starts_with(
            "`?` in column `a` is not a number\n  --> rows.csv:3:1 | ?,x,2\n  \
             hint: correct the cell; if it stands for a missing value, name it in `data.csv.missing_values`\n"
        ),
        "{problems}"
    );
}

#[test]
fn missing_cells_drop_their_rows() {
    let folder = Folder::new(HOLES);
    let spec = Csv { missing: Missing::Drop, categorical: names(&["kind"]), ..folder.spec("y") };
    let made = read(spec.clone(), Task::Regression);
    assert_eq!((memory(&made.train), &made.train.targets[..]), (&[1.0, 1.0][..], &[1.0][..]));
    assert_eq!(made.notes, ["dropped 4 rows with missing cells", "`kind` has 1 categories"]);
    // An excluded column drops no rows.
    let spec = Csv { categorical: vec![], ignore: names(&["kind"]), ..spec };
    assert_eq!(&**read(spec, Task::Regression).train.targets, [1.0, 3.0]);
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
`Emu` in the target column `species` is not a class of the training file
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

    // Integers other than 0, 1, 2, ... are mapped like words.
    for (labels, targets, classes) in
        [([10, 2, 4], [2.0, 0.0, 1.0], ["2", "4", "10"]), ([1, -1, 1], [1.0, 0.0, 1.0], ["-1", "1", ""])]
    {
        let folder = Folder::new(format!("a,k\n1,{}\n2,{}\n3,{}.0\n", labels[0], labels[1], labels[2]));
        let made = read(folder.spec("k"), Task::Classification);
        let classes: Vec<_> = classes.into_iter().filter(|name| !name.is_empty()).collect();
        assert_eq!((made.classes, &made.train.targets[..]), (Some(classes.len()), &targets[..]));
        assert_eq!(made.preprocessing["target"], json!({ "name": "k", "classes": classes }));
    }
    for bad in ["-1e20", "0.5"] {
        let folder = Folder::new(format!("a,k\n1,0\n2,{bad}\n"));
        assert_eq!(
            folder.problems(folder.spec("k"), Task::Classification),
            format!(
                "\
`{bad}` in the target column `k` is not a class
  --> rows.csv:3:3 | 2,{bad}
  hint: classes are integers or words; for numbers instead of classes use `loss = \"mse\"`
"
            )
        );
    }
    let folder = Folder::new("a,k\n1,0\n2,0\n");
    assert_eq!(
        folder.problems(folder.spec("k"), Task::Classification),
        "all labels are the same class: expected two classes or more\n  --> data\n"
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
`z` in column `kind` is not a category of the training file
  --> more.csv:3:1 | z,2,2
  hint: the training file has `x`, `y`
missing cell in column `kind`, which has none in the training file
  --> more.csv:4:1 | ,3,3
  hint: `data.csv.missing = \"drop\"` leaves such rows out
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
    let spec = Csv { validation_fraction: Some(0.2), ..folder.spec("y") };
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
  hint: use a smaller fraction, or 0 for no validation
"
    );
}
