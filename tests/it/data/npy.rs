//! `npy`.

use std::{fs, path::PathBuf};

use runner::{
    data::{Dataset, Part, Store, Task, open},
    spec::{Data, Npy, Placement, Source},
};
use tempfile::TempDir;

use super::{MUCH, data, memory, npy_of, problems, read_ok, reported};

/// A `.npy` file of version 1.0, as `numpy.save` writes it.
pub fn npy(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let mut dictionary = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    while (10 + dictionary.len() + 1) % 64 != 0 {
        dictionary.push(' ');
    }
    dictionary.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((dictionary.len() as u16).to_le_bytes());
    bytes.extend(dictionary.as_bytes());
    bytes.extend(elements);
    bytes
}

pub fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub struct Folder(pub TempDir);

impl Folder {
    pub fn new(features: &[u8], labels: &[u8]) -> Self {
        let folder = Self(TempDir::new().expect("a folder"));
        folder.write("x.npy", features);
        folder.write("y.npy", labels);
        folder
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).expect("a file");
        path
    }

    pub fn spec(&self) -> Npy {
        npy_of(self.0.path().join("x.npy"), self.0.path().join("y.npy"))
    }

    fn problems(&self, task: Task) -> String {
        problems(Source::Npy(self.spec()), task, self.0.path())
    }
}

/// 50 rows of 3 consecutive numbers; the label is the row's number modulo 5.
pub fn counted(descr: &str) -> Folder {
    let numbers = 0..150_u8;
    let elements: Vec<u8> = match descr {
        "<f4" => numbers.flat_map(|i| f32::from(i).to_le_bytes()).collect(),
        "<f8" => numbers.flat_map(|i| f64::from(i).to_le_bytes()).collect(),
        _ => numbers.collect(),
    };
    let labels: Vec<u8> = (0..50_i64).flat_map(|i| (i % 5).to_le_bytes()).collect();
    Folder::new(&npy(descr, "(50, 3)", &elements), &npy("<i8", "(50,)", &labels))
}

/// Rows of this width as f32 and as f64, each with labels of two classes.
pub fn in_both_widths(values: &[f32], width: usize) -> [(&'static str, Folder); 2] {
    let doubles: Vec<u8> = values.iter().flat_map(|&v| f64::from(v).to_le_bytes()).collect();
    let count = values.len() / width;
    let labels: Vec<u8> = (0..count).map(|i| (i % 2) as u8).collect();
    [("<f4", f32s(values)), ("<f8", doubles)].map(|(descr, elements)| {
        let features = npy(descr, &format!("({count}, {width})"), &elements);
        (descr, Folder::new(&features, &npy("|u1", &format!("({count},)"), &labels)))
    })
}

pub fn in_file(spec: Npy) -> Dataset {
    let streamed = Data { placement: Placement::Streamed, ..data(Source::Npy(spec)) };
    open(&streamed, Task::Classification, 0, MUCH).expect("rows")
}

pub fn rows(part: &Part, rows: &[u32], width: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; rows.len() * width];
    match &part.features {
        Store::File(reader) => reader.read_rows(rows, &mut out).expect("rows"),
        Store::Memory(_) => panic!("not in a file"),
    }
    out
}

#[test]
fn reads_every_type_into_memory() {
    for descr in ["<f4", "<f8", "|u1"] {
        let made = read_ok(Source::Npy(counted(descr).spec()), Task::Classification);
        assert_eq!((made.features, made.targets, made.classes, made.train.rows), (3, 1, Some(5), 50));
        assert!(memory(&made.train).iter().copied().eq((0..150).map(|i| i as f32)));
        assert_eq!(made.train.targets[..7], [0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 1.0]);
    }
}

/// Chunks equal the file's contents, however it is read.
#[test]
fn a_number_that_f32_does_not_hold_is_called_by_its_value() {
    let values = [0.0, 1.0, -1e300, 2.0, 3.0, f64::NEG_INFINITY];
    let elements: Vec<u8> = values.iter().flat_map(|value: &f64| value.to_le_bytes()).collect();
    let folder = Folder::new(&npy("<f8", "(6,)", &elements), &npy("|u1", "(6,)", &[0, 1, 0, 1, 0, 1]));
    let made = in_file(folder.spec());
    let Store::File(reader) = &made.train.features else { panic!("not in a file") };
    let fault = |rows: &[u32]| {
        reader.read_rows(rows, &mut vec![0.0; rows.len()]).expect_err("it cannot be used").to_string()
    };
    let reported = |row: usize, what: &str| {
        let path = folder.0.path().join("x.npy");
        format!("row {row}, feature 0 (both counted from 0) of `{}` {what}", path.display())
    };
    let large = reported(2, "is -1e300: f32, in which rows are kept, holds numbers up to 3.4e38");
    assert_eq!(fault(&[0, 1, 2, 3]), large);
    assert_eq!(fault(&[3, 2, 0]), large);
    assert_eq!(fault(&[5]), reported(5, "is -inf: expected a finite number"));
    let labels = Folder::new(&npy("|u1", "(2,)", &[0, 1]), &npy("<f8", "(2,)", &elements[8..24]));
    assert_eq!(
        labels.problems(Task::Regression),
        "the label of row 1 (counted from 0) is -1e300: f32, in which rows are kept, holds numbers up to 3.4e38\n  --> y.npy\n"
    );
}

#[test]
fn targets_may_be_several_numbers() {
    let folder = Folder::new(
        &npy("<f4", "(2,)", &f32s(&[1.0, 2.0])),
        &npy("<f4", "(2, 3)", &f32s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
    );
    let made = read_ok(Source::Npy(folder.spec()), Task::Regression);
    assert_eq!((made.features, made.targets, made.classes), (1, 3, None));
    assert_eq!(**made.train.targets, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(
        folder.problems(Task::Classification),
        "\
labels of shape [2, 3]: expected one class per row
  --> y.npy
  hint: for one-hot labels, in Python: `numpy.save(path, labels.argmax(1))`
"
    );
}

/// Equals NumPy's `(x - train.mean(0)) / train.std(0)`, also for rows outside the training rows. A constant
/// column becomes 0.
#[test]
fn features_are_standardized_by_the_training_rows() {
    for (descr, fraction) in [("<f4", 0.2), ("<f8", 0.5), ("|u1", 0.0)] {
        let folder = counted(descr);
        let plain = Npy { validation_fraction: Some(fraction), ..folder.spec() };
        let scaled = Npy { standardize: true, ..plain.clone() };
        let [plain, scaled] = [plain, scaled].map(|spec| read_ok(Source::Npy(spec), Task::Classification));
        let train: Vec<f64> = memory(&plain.train).iter().map(|x| f64::from(*x)).collect();
        let count = plain.train.rows as f64;
        let reference = |column: usize| {
            let of = || train.iter().skip(column).step_by(3);
            let mean = of().sum::<f64>() / count;
            (mean, (of().map(|x| (x - mean).powi(2)).sum::<f64>() / count).sqrt())
        };
        let both = [(&plain.train, &scaled.train)];
        for (plain, scaled) in
            both.into_iter().chain(plain.validation.as_ref().zip(scaled.validation.as_ref()))
        {
            for (i, (x, found)) in memory(plain).iter().zip(memory(scaled)).enumerate() {
                let (mean, std) = reference(i % 3);
                let expected = (f64::from(*x) - mean) / std;
                assert!((f64::from(*found) - expected).abs() < 1e-6, "{descr} {i}: {found}, {expected}");
            }
            assert_eq!(plain.targets, scaled.targets);
        }
        assert_eq!(plain.digest, scaled.digest);
    }
    let constant = Folder::new(&npy("<f4", "(3,)", &f32s(&[0.1; 3])), &npy("|u1", "(3,)", &[0, 1, 0]));
    let made = read_ok(Source::Npy(Npy { standardize: true, ..constant.spec() }), Task::Classification);
    assert_eq!(memory(&made.train), [0.0; 3]);
    assert_eq!(made.warnings[0], "feature 0 is alike in all training rows");
    // Seconds since 1970: f32 has a number every 128 of them.
    let seconds: Vec<u8> =
        (0..20).flat_map(|i| [1.7e9 + f64::from(i * 37), f64::from(i)]).flat_map(f64::to_le_bytes).collect();
    let labels: Vec<u8> = (0..20).map(|i| i % 2).collect();
    let far = Folder::new(&npy("<f8", "(20, 2)", &seconds), &npy("|u1", "(20,)", &labels));
    let made = read_ok(Source::Npy(Npy { standardize: true, ..far.spec() }), Task::Classification);
    let told = "feature 0 is too far from 0 for f32 to tell its values apart: subtract the mean in the file";
    assert_eq!(**made.warnings, [told]);
}

#[test]
fn what_cannot_be_standardized_is_refused() {
    let folder = counted("<f4");
    let wide = f32s(&[1.0, 3e38, 2.0, 1.0, 3.0, 4.0]);
    let narrow: Vec<f32> = (0..150).map(|i| i as f32 * 1e-6).collect();
    let spec = Npy {
        features: folder.write("x.npy", &npy("<f4", "(50, 3)", &f32s(&narrow))),
        validation_features: Some(folder.write("vx.npy", &npy("<f4", "(2, 3)", &wide))),
        validation_labels: Some(folder.write("vy.npy", &npy("|u1", "(2,)", &[4, 1]))),
        standardize: true,
        ..folder.spec()
    };
    let text = |data: &Data, limit: u64| {
        let problems = open(data, Task::Classification, 0, limit).expect_err("it cannot be standardized");
        reported(&problems, folder.0.path())
    };
    let auto = data(Source::Npy(spec));
    let words =
        "row 0, feature 1 (both counted from 0) is 3e38, and more than f32 holds once scaled\n  --> vx.npy\n";
    assert_eq!(text(&auto, MUCH), words);
    let stays = "\
features (624 B as f32) that stay in their file cannot be standardized
  --> data.npy.standardize
  hint: store them standardized; in Python: `(x - x.mean(0)) / x.std(0)`
";
    assert_eq!(text(&auto, 100), stays);
    assert_eq!(text(&Data { placement: Placement::Streamed, ..auto }, MUCH), stays);
}

#[test]
fn a_validation_pair_may_be_given() {
    let folder = counted("|u1");
    let spec = Npy {
        validation_features: Some(folder.write("vx.npy", &npy("<f4", "(1, 3)", &f32s(&[1.0, 2.0, 3.0])))),
        validation_labels: Some(folder.write("vy.npy", &npy("|u1", "(1,)", &[4]))),
        ..folder.spec()
    };
    let validation = |made: &Dataset| made.validation.clone().expect("rows to validate on");
    let made = read_ok(Source::Npy(spec.clone()), Task::Classification);
    assert_eq!(
        (memory(&validation(&made)), &validation(&made).targets[..]),
        (&[1.0, 2.0, 3.0][..], &[4.0][..])
    );
    assert_eq!(rows(&validation(&in_file(spec.clone())), &[0], 3), [1.0, 2.0, 3.0]);

    let text = |spec: &Npy| problems(Source::Npy(spec.clone()), Task::Classification, folder.0.path());
    folder.write("vx.npy", &npy("|u1", "(1, 2)", &[1, 2]));
    assert_eq!(text(&spec), "rows have 2 features, but those of `x.npy` have 3\n  --> vx.npy\n");
}

#[test]
fn a_header_that_lies_is_told() {
    let labels = npy("|u1", "(2,)", &[0, 1]);
    let size = "  --> x.npy\n  hint: the file is damaged, or was cut while it was copied\n";
    for (features, expected) in [
        (
            npy("<f4", "(2, 3)", &[0; 23]),
            format!("the header declares 24 bytes of elements, and 23 are there\n{size}"),
        ),
        (npy("|u1", "(2, 3)", &[0; 7]), format!("the header declares 6 bytes of elements, and 7 are there\n{size}")),
        (
            npy("|u1", "(2, 99999999999)", &[0; 7]),
            format!("the header declares 199999999998 bytes of elements, and 7 are there\n{size}"),
        ),
        (
            npy("|u1", "(9999999999, 9999999999, 9)", &[0; 7]),
            "no file holds its shape [9999999999, 9999999999, 9]\n  --> x.npy\n".into(),
        ),
        (npy("|u1", "(2, 0)", &[]), "rows of shape [0] hold no numbers\n  --> x.npy\n".into()),
        (npy("|u1", "()", &[1]), "a single number: expected rows\n  --> x.npy\n".into()),
        (npy("|u1", "(0, 3)", &[]), "it holds no rows\n  --> x.npy\n".into()),
        (
            npy("<i4", "(2,)", &[0; 8]),
            "features are i32: expected f32, f64 or u8\n  --> x.npy\n  hint: in Python: `numpy.save(path, array.astype(\"float32\"))`\n".into(),
        ),
        (
            npy("|u1", "(3,)", &[0; 3]),
            "2 labels, but `x.npy` has 3 rows\n  --> y.npy\n  hint: both files need the same number of rows\n".into(),
        ),
        (
            npy("<f4", "(2,)", &f32s(&[0.0, f32::INFINITY])),
            "row 1, feature 0 (both counted from 0) is inf: expected a finite number\n  --> x.npy\n".into(),
        ),
        (
            npy("<f8", "(2,)", &[0.0_f64.to_le_bytes(), 1e300_f64.to_le_bytes()].concat()),
            "row 1, feature 0 (both counted from 0) is 1e300: f32, in which rows are kept, holds numbers up to 3.4e38\n  --> x.npy\n".into(),
        ),
    ] {
        assert_eq!(Folder::new(&features, &labels).problems(Task::Classification), expected);
    }
}

#[test]
fn what_must_be_resident_is_not_streamed() {
    let folder = counted("<f4");
    let resident = Data { placement: Placement::Resident, ..data(Source::Npy(folder.spec())) };
    assert!(open(&resident, Task::Classification, 0, 600).is_ok());
    let problems = open(&resident, Task::Classification, 0, 599).expect_err("50 rows of 3 f32");
    insta::assert_snapshot!(reported(&problems, "".as_ref()), @r#"
    `placement = "resident"`: the features need 600 B as f32, and memory has room for 599 B
      --> data.placement
      hint: `data.placement = "auto"` reads from the file what memory does not hold
    "#);
    let auto = Data { placement: Placement::Auto, ..resident };
    let made = open(&auto, Task::Classification, 0, 599).expect("rows");
    assert!(matches!(made.train.features, Store::File(_)));
}
