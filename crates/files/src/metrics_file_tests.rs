//! Reading at once, incrementally and in parts gives the same result, also for files with odd lines.

use std::{fs, io::Write};

use super::*;

const HEAD: &str = "step,epoch,split,rows,loss,elapsed_s\n";

fn rows(steps: Range<u64>) -> String {
    let row = |step: u64| {
        let validation = if step.is_multiple_of(100) {
            format!("{step},{},validation,8,{},0.5\n", step / 100, (step * 7919) % 1013)
        } else {
            String::new()
        };
        format!("{step},{},train,32,{},{}\n{validation}", step.div_ceil(100), step % 77, step as f64 / 10.0)
    };
    steps.map(row).collect()
}

/// Everything known about the file.
fn figures(file: &MetricsFile) -> String {
    let best = [false, true].map(|is_highest| file.best("loss", is_highest).cloned());
    let ends: Vec<_> = file.curves[0].1.iter().map(|curve| (curve.first(), curve.last())).collect();
    let Position { end, lines, .. } = file.position;
    let ends_of = |ends: &Ends| {
        let means: Vec<_> = ends.clone().means().points().collect();
        format!("{:?} {:?} {:?} {means:?}", ends.validation, ends.train, ends.epoch)
    };
    let metrics: Vec<_> = file.ends.iter().map(ends_of).collect();
    format!("{best:?} {ends:?} {:?} {:?} {metrics:?} {end} {lines}", file.last, file.elapsed_s())
}

/// Sizes that put a block boundary at every position of a small file's lines.
fn small() -> impl Iterator<Item = Sizes> {
    let sizes = |block| [1, 2, 3, 7].map(|threads| (block, threads));
    [1, 7, 64, 1 << 20].into_iter().flat_map(sizes).map(|(block, threads)| Sizes {
        block,
        worth_a_thread: 50,
        threads,
    })
}

#[test]
fn a_file_is_read_on_and_in_parts_as_if_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.csv");
    for sizes in small() {
        let at_once = || figures(&MetricsFile::read(&path, Sizes::default()).unwrap());
        fs::write(&path, HEAD.to_owned() + &rows(1..234) + "234,3,tra").unwrap();
        let mut file = MetricsFile::read(&path, sizes).unwrap();
        assert_eq!(figures(&file), at_once(), "{sizes:?}");
        let mut add = File::options().append(true).open(&path).unwrap();
        write!(add, "in,32,5,0.1\n{}", rows(235..500)).unwrap();
        file.read_on(&path, sizes).unwrap();
        assert_eq!(figures(&file), at_once(), "{sizes:?}");
        // A resumed run cuts the file and writes other rows.
        fs::write(&path, HEAD.to_owned() + &rows(1..700).replace(",train,32,", ",train,33,")).unwrap();
        file.read_on(&path, sizes).unwrap();
        assert_eq!(figures(&file), at_once(), "{sizes:?}");
    }
}

/// Each epoch's mean is weighted by rows and stands at its last step, also where threads met within the epoch.
#[test]
fn epochs_have_means() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.csv");
    let text = "1,1,train,3,1,0.1\n2,1,train,1,5,0.1\n2,1,validation,9,7,0.1\n3,2,train,4,0.5,0.2\n4,2,train,4,0.5,0.2\n\
        5,3,train,1,8,0.3\n6,4,train,2,NaN,0.4\n7,5,train,2,3,0.5\n";
    fs::write(&path, format!("{HEAD}{text}")).unwrap();
    for sizes in small().chain([Sizes::default()]) {
        let [_, _, means] = &MetricsFile::read(&path, sizes).unwrap().into_curves()[0].1;
        let mut points: Vec<_> = means.points().collect();
        points.dedup();
        assert_eq!(points, [(2.0, 2.0), (4.0, 0.5), (5.0, 8.0), (7.0, 3.0)], "{sizes:?}");
    }
}

#[test]
fn damage_is_found_in_its_line_whoever_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.csv");
    for (damage, words) in [
        ("77,1,train,8\n", "expected 6 cells, got 4"),
        ("77,1,train,8,\0\0,0.1\n", "`\0\0` in column `loss` is not a number"),
        ("77,1,test,8,1,0.1\n", "`test` in column `split` is neither `train` nor `validation`"),
        ("-1,1,train,8,1,0.1\n", "`-1` in column `step` is not an integer"),
    ] {
        for after in [10, 150, 299] {
            let text = HEAD.to_owned() + &rows(1..after + 1) + damage + &rows(after + 1..301);
            fs::write(&path, text).unwrap();
            let line = 2 + after + after / 100;
            for sizes in small() {
                let error = MetricsFile::read(&path, sizes).unwrap_err().to_string();
                assert!(error.ends_with(&format!("at line {line}: {words}")), "{sizes:?}: {error}");
            }
        }
    }
}

#[test]
fn quotes_line_ends_and_cells_that_are_not_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.csv");
    let plain = "step,epoch,split,rows,loss,elapsed_s\n1,1,train,8,0.5,0.1\n1,1,validation,8,,0.2\n2,2,train,8,NaN,0.3\n";
    let quoted = plain.replace("train", "\"train\"").replace("step", "\"step\"").replace('\n', "\r\n\r\n");
    let known = |text: &str| {
        fs::write(&path, text).unwrap();
        let file = MetricsFile::read(&path, Sizes::default()).unwrap();
        format!("{:?} {:?} {:?}", file.curves, file.last, file.ends("loss"))
    };
    assert_eq!(known(plain), known(&quoted));
    for before in ["\n", "\r\n\n", "\u{feff}"] {
        assert_eq!(known(plain), known(&format!("{before}{plain}")), "{before:?}");
    }
}

/// `mae` lacks the last validation, and `f1` the last epoch. A sum of 0.001 is rounded.
#[test]
fn a_metric_ends_with_the_last_epoch_or_has_no_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.csv");
    let head = "step,epoch,split,rows,loss,mae,lr,f1,elapsed_s\n";
    let train = |steps: Range<u64>, epoch: u64, f1: &str| -> String {
        steps.map(|step| format!("{step},{epoch},train,32,0.5,,0.001,{f1},0.1\n")).collect()
    };
    let validation = |step: u64, mae: &str| format!("{step},1,validation,8,0.25,{mae},,,0.2\n");
    let text =
        [train(1..90, 1, "0.3"), validation(89, "7"), train(90..200, 2, ""), validation(199, "")].concat();
    fs::write(&path, format!("{head}{text}")).unwrap();
    for sizes in small().chain([Sizes::default()]) {
        let file = MetricsFile::read(&path, sizes).unwrap();
        let ends = |metric| file.ends(metric).map(|ends| (ends.epoch_mean(), ends.validation.as_deref()));
        assert_eq!(ends("loss"), Some((Some(0.5), Some("0.25"))), "{sizes:?}");
        assert_eq!(ends("mae"), Some((None, Some(""))), "{sizes:?}");
        assert_eq!(ends("lr"), Some((Some(0.001), Some(""))), "{sizes:?}");
        assert_eq!(ends("f1"), Some((None, Some(""))), "{sizes:?}");
    }
}

/// Also if it is large enough for several threads.
#[test]
fn a_file_without_columns_has_no_rows_and_a_hole_in_it_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.csv");
    for (text, length, words) in [
        ("", 1 << 10, None),
        ("\n\n", 1 << 10, None),
        ("\n\n", 1 << 26, Some("at line 3: it is longer than 16 MiB")),
        (HEAD, 1 << 20, None),
        (HEAD, 1 << 28, Some("at line 2: it is longer than 16 MiB")),
    ] {
        fs::write(&path, text).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
        for sizes in [Sizes::default(), Sizes { worth_a_thread: 1 << 8, threads: 2, ..Sizes::default() }] {
            match (MetricsFile::read(&path, sizes), words) {
                (Ok(file), None) => assert!(file.last.is_none()),
                (Err(error), Some(words)) => assert!(error.to_string().ends_with(words), "{error}"),
                (other, _) => panic!("{length} {sizes:?}: {other:?}"),
            }
        }
    }
}
