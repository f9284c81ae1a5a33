//! Reading on, in parts, and by a sample.

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

/// All that is known of the file.
fn figures(file: &MetricsFile) -> String {
    let best = [false, true].map(|is_highest| file.best("loss", is_highest).cloned());
    let ends: Vec<_> = file.curves[0].1.iter().map(|curve| (curve.first(), curve.last())).collect();
    let MetricsFile { last, last_loss, epoch_loss, last_validation, end, lines, .. } = file;
    format!("{best:?} {ends:?} {last:?} {last_loss:?} {epoch_loss:?} {last_validation:?} {end} {lines}")
}

#[test]
fn a_file_is_read_on_and_in_parts_as_if_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.csv");
    let whole = || MetricsFile::read(&path, &AtomicU64::default()).unwrap();
    fs::write(&path, HEAD.to_owned() + &rows(1..1234) + "1234,13,tra").unwrap();
    let mut file = whole();
    let mut add = File::options().append(true).open(&path).unwrap();
    write!(add, "in,32,5,0.1\n{}", rows(1235..5000)).unwrap();
    file.read_on(&path).unwrap();
    assert_eq!(figures(&file), figures(&whole()));

    let half = file.end / 2;
    let text = fs::read(&path).unwrap();
    let border = half + memchr::memchr(b'\n', &text[half as usize..]).unwrap() as u64 + 1;
    let head = MetricsFile::head(&mut File::open(&path).unwrap()).ok().unwrap();
    let [mut first, second] = [head.end..border, border..file.end].map(|range| {
        let mut part = MetricsFile { end: range.start, ..head.clone() };
        let taken = part.take(&mut File::open(&path).unwrap(), range.end, &AtomicU64::default());
        assert!(taken.is_ok());
        part
    });
    first.append(second);
    assert_eq!(figures(&first), figures(&file));

    // A resumed run cuts the file, and writes other rows.
    fs::write(&path, HEAD.to_owned() + &rows(1..7000).replace(",train,32,", ",train,33,")).unwrap();
    file.read_on(&path).unwrap();
    assert_eq!(figures(&file), figures(&whole()));
}

#[test]
fn a_sample_knows_the_end_and_no_row_that_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.csv");
    for text in ["", "step,epo", HEAD, &(HEAD.to_owned() + &rows(1..2)), &(HEAD.to_owned() + &rows(1..9000))]
    {
        fs::write(&path, text).unwrap();
        let sample = MetricsFile::sample(&path).unwrap();
        let whole = MetricsFile::read(&path, &AtomicU64::default()).unwrap();
        let step = |file: &MetricsFile| file.last.map(|row| row.step);
        if text.len() > 100 {
            assert_eq!(step(&sample), step(&whole), "{}", text.len());
        }
    }
}
