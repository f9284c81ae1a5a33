//! `csv`: classes that are codes, and categories that no training row has.

use runner::{
    data::{Task, open},
    spec::{Csv, Missing, Source, SplitRule},
};
use serde_json::json;

use super::{MUCH, csv::Folder, data, read_ok};

/// `01` and `1` are two codes, where any code begins with a zero.
#[test]
fn codes_with_leading_zeros_are_words() {
    let folder = Folder::new("a,k\n1,01\n2,1\n3,002\n4,01\n");
    let made = read_ok(Source::Csv(folder.spec("k")), Task::Classification);
    assert_eq!((made.classes, &made.train.targets[..]), (Some(3), &[1.0, 2.0, 0.0, 1.0][..]));
    assert_eq!(made.preprocessing["target"], json!({ "name": "k", "classes": ["002", "01", "1"] }));
}

#[test]
fn categories_without_a_training_row_are_told() {
    let folder = Folder::new("a,kind,y\n1,x,1\n2,x,2\n3,z,3\n4,,4\n");
    let spec = Csv {
        categorical: vec!["kind".to_owned()],
        missing: Missing::Mean,
        validation_fraction: None,
        ..folder.spec("y")
    };
    let of = |validation: f64| {
        let mut data = data(Source::Csv(spec.clone()));
        let rule = SplitRule {
            validation: Some(validation),
            test: 0.0,
            stratify: false,
            shuffle: false,
            seed: None,
        };
        data.split = Some(rule);
        open(&data, Task::Regression, 0, MUCH).expect("rows").warnings
    };
    assert_eq!(**of(0.0), [""; 0]);
    let what = "categories without a row to train on, so that their inputs keep their first weights";
    assert_eq!(**of(0.5), [format!("{what}: `z` of `kind`, missing cells of `kind`")]);
}
