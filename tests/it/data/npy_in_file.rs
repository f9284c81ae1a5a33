//! Rows of arrays that stay in their file until a batch needs them.

use std::fs;

use runner::{
    data::{Store, Task, open},
    spec::{Npy, Source},
};

use super::{
    data, memory,
    npy::{Folder, counted, f32s, in_both_widths, in_file, npy, rows},
    read_ok,
};

#[test]
fn rows_from_the_file_are_those_of_memory() {
    for descr in ["<f4", "<f8", "|u1"] {
        let folder = counted(descr);
        let spec = Npy { validation_fraction: Some(0.2), ..folder.spec() };
        let whole = read_ok(Source::Npy(spec.clone()), Task::Classification);
        let streamed = in_file(spec);
        let parts = [(&whole.train, &streamed.train)];
        let validation = whole.validation.as_ref().zip(streamed.validation.as_ref());
        for (whole, streamed) in parts.into_iter().chain(validation) {
            assert_eq!((whole.rows, &whole.targets), (streamed.rows, &streamed.targets));
            let all: Vec<u32> = (0..whole.rows as u32).collect();
            assert_eq!(rows(streamed, &all, 3), memory(whole));
            let Store::File(reader) = &streamed.features else { panic!("not in a file") };
            for (first, count) in [(0, whole.rows), (3, 4), (whole.rows - 1, 1), (2, 0)] {
                let mut out = vec![f32::NAN; 3 * count];
                reader.read_range(first as u32, &mut out).expect("rows");
                assert_eq!(out, memory(whole)[3 * first..][..3 * count]);
            }
            let beyond = reader.read_range(whole.rows as u32 - 1, &mut [0.0; 6]).expect_err("no such row");
            assert_eq!(beyond.to_string(), format!("row {0} of {0} does not exist", whole.rows));
            for order in [&[9, 1, 2, 3, 0, 0][..], &[], &[5]] {
                let expected: Vec<f32> =
                    order.iter().flat_map(|&row| memory(whole)[3 * row as usize..][..3].to_vec()).collect();
                assert_eq!(rows(streamed, order, 3), expected);
            }
        }
        assert_eq!(validation.map(|(whole, _)| whole.rows), Some(10));
        // Row r is (3 r, 3 r + 1, 3 r + 2).
        let numbers = memory(validation.expect("rows").0).iter().step_by(3).map(|x| *x as u32 / 3);
        assert_eq!(*whole.apart, [numbers.collect(), Vec::new(), Vec::new()]);
        assert_eq!(whole.apart, streamed.apart);
    }
}

#[test]
fn a_run_of_rows_may_be_longer_than_a_read() {
    let (count, width) = (3000, 101);
    let values: Vec<f32> = (0..count * width).map(|i| i as f32).collect();
    let labels: Vec<u8> = (0..count).map(|i| (i % 2) as u8).collect();
    let folder = Folder::new(
        &npy("<f4", &format!("({count}, {width})"), &f32s(&values)),
        &npy("|u1", &format!("({count},)"), &labels),
    );
    let made = in_file(folder.spec());
    let all: Vec<u32> = (0..count as u32).collect();
    assert_eq!(rows(&made.train, &all, width), values);
}

#[test]
fn rows_far_and_near_come_to_their_places() {
    let (count, width) = (3000_usize, 101);
    let values: Vec<f32> = (0..count * width).map(|i| i as f32).collect();
    for (descr, folder) in in_both_widths(&values, width) {
        let made = in_file(folder.spec());
        // All rows shuffled; then a few rows that are kilobytes apart, in descending order; then neighbours
        // among distant rows.
        let disorder = (0..count).map(|i| (i * 1009 % count) as u32).collect();
        let apart = (0..40).rev().map(|i| i * 37).collect();
        for order in [disorder, apart, vec![2999, 5, 6, 7, 2999, 1500, 1499, 0]] {
            let expected: Vec<f32> =
                order.iter().flat_map(|&row| values[width * row as usize..][..width].to_vec()).collect();
            assert!(rows(&made.train, &order, width) == expected, "{descr} {order:?}");
        }
    }
}

/// Rows in order with validation rows between them: pages apart, or adjacent but spanning several reads.
#[test]
fn ranges_of_split_rows_are_those_of_memory() {
    for (count, width) in [(200_usize, 1500), (40_000, 5), (6, 100_000)] {
        let values: Vec<f32> = (0..count * width).map(|i| (i % 9973) as f32).collect();
        for (descr, folder) in in_both_widths(&values, width) {
            let spec = Npy { validation_fraction: Some(0.35), ..folder.spec() };
            let whole = read_ok(Source::Npy(spec.clone()), Task::Classification);
            let streamed = in_file(spec);
            let Store::File(reader) = &streamed.train.features else { panic!("not in a file") };
            let rows = streamed.train.rows;
            for (first, rows) in [(0, rows), (rows / 2, rows - rows / 2), (rows - 1, 1), (1, 0)] {
                let mut out = vec![f32::NAN; rows * width];
                reader.read_range(first as u32, &mut out).expect("rows");
                let expected = &memory(&whole.train)[first * width..][..rows * width];
                assert!(out == expected, "{descr} {count} {first}");
            }
        }
    }
}

/// A bad validation row does not affect the rows around it.
#[test]
fn a_range_of_split_rows_is_judged_by_its_own_rows() {
    let (labels, seed_0) = (npy("|u1", "(20,)", &[0, 1].repeat(10)), [0, 4, 7, 17, 19]);
    let range = |bad: usize| {
        let mut values: Vec<f32> = (0..20).map(|i| i as f32).collect();
        values[bad] = f32::NAN;
        let folder = Folder::new(&npy("<f4", "(20, 1)", &f32s(&values)), &labels);
        let made = in_file(Npy { validation_fraction: Some(0.25), ..folder.spec() });
        let Store::File(reader) = &made.train.features else { panic!("not in a file") };
        let mut out = [0.0; 15];
        let read = reader.read_range(0, &mut out).map(|()| out.to_vec()).map_err(|error| error.to_string());
        (read, folder.0.path().join("x.npy"))
    };
    let expected: Vec<f32> = (0..20).filter(|row| !seed_0.contains(row)).map(|row| row as f32).collect();
    assert_eq!(range(7).0, Ok(expected));
    let (fault, path) = range(9);
    let reported = "is NaN: expected a finite number";
    let path = path.display();
    assert_eq!(fault, Err(format!("row 9, feature 0 (both counted from 0) of `{path}` {reported}")));
}

#[test]
fn what_memory_does_not_hold_stays_in_its_file() {
    let folder = counted("<f4");
    let opened = |limit| {
        let made = open(&data(Source::Npy(folder.spec())), Task::Classification, 0, limit).expect("rows");
        (matches!(made.train.features, Store::File(_)), made.notes)
    };
    assert_eq!(opened(600), (false, vec![]));
    assert_eq!(opened(599), (true, vec!["features (600 B as f32) are read from their file".to_owned()]));
}

#[test]
fn faults_while_reading_are_told() {
    let folder = Folder::new(
        &npy("<f4", "(3, 2)", &f32s(&[0.0, 1.0, 2.0, f32::NAN, 4.0, 5.0])),
        &npy("|u1", "(3,)", &[0, 1, 0]),
    );
    let made = in_file(folder.spec());
    let Store::File(reader) = &made.train.features else { panic!("not in a file") };
    let mut out = [0.0; 2];
    let mut fault = |row: u32| reader.read_rows(&[row], &mut out).map_err(|error| error.to_string());
    let path = folder.0.path().join("x.npy");
    assert_eq!(fault(0), Ok(()));
    assert_eq!(
        fault(1),
        Err(format!(
            "row 1, feature 1 (both counted from 0) of `{}` is NaN: expected a finite number",
            path.display()
        ))
    );
    assert_eq!(fault(3), Err("row 3 of 3 does not exist".into()));
    let bytes = fs::read(&path).expect("a file");
    fs::write(&path, &bytes[..bytes.len() - 4]).expect("a file");
    let why = "it ends before what is read from row 2 (counted from 0) on, and was longer when it was opened";
    assert_eq!(fault(2), Err(format!("cannot read `{}`: {why}", path.display())));
    assert!(reader.read_rows(&[0, 1], &mut out).is_err(), "too little room");
}
