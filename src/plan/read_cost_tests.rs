//! What rows from a file take, held against rows that are drawn and counted, and against epochs that are acted out.

use super::*;
use crate::plan::MachineRates;

/// A machine whose memory brings 12 GB/s.
fn speed() -> Speed {
    Speed {
        rates: MachineRates::typical("avx2"),
        rows_bytes_per_s: [60e9, 12e9],
        cache_bytes: 1 << 20,
        sums: None,
        upload_bytes_per_s: None,
        fetch: None,
    }
}

/// One epoch by steps of so many rows.
fn epoch(facts: DatasetInfo, batch: usize) -> RunLength {
    course(facts, batch, 1, None)
}

fn course(facts: DatasetInfo, batch: usize, max_epochs: u64, max_steps: Option<u64>) -> RunLength {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parity/sgd/spec.toml");
    let experiment = crate::spec::load(path.as_ref(), &[]).expect("a spec");
    let mut spec = experiment.trials[0].spec.clone();
    (spec.trainer.max_epochs, spec.trainer.max_steps) = (max_epochs, max_steps);
    RunLength::new(&spec, facts, batch)
}

fn facts(rows: usize, features: usize) -> DatasetInfo {
    DatasetInfo {
        train_rows: rows,
        validation_rows: 0,
        features,
        targets: 1,
        classes: None,
        file_row_bytes: Some(4 * features as u64),
    }
}

/// Held against rows that are drawn and counted one by one.
#[test]
fn calls_and_bytes_are_those_of_rows_that_are_drawn() {
    for (rows, of, row_bytes) in
        [(3000, 100_000, 40_usize), (3000, 1_000_000, 40), (500, 800, 3136), (64, 64, 8)]
    {
        let mut drawn: Vec<usize> = (0..of).collect();
        // Fisher and Yates with a fixed stream.
        for i in 0..rows {
            drawn.swap(i, i + (crate::random::mix(i as u64) % (of - i) as u64) as usize);
        }
        drawn.truncate(rows);
        drawn.sort_unstable();
        let most = GAP_BYTES as usize / row_bytes;
        let (mut calls, mut bytes, mut laid) = (1, rows * row_bytes, 0);
        for pair in drawn.windows(2) {
            let dropped = pair[1] - pair[0] - 1;
            match dropped <= most {
                true => (bytes, laid) = (bytes + dropped * row_bytes, laid + 1),
                false => calls += 1,
            }
        }
        let together =
            CoalescedRead { rows: rows as f64, drawn_of: Some(of as f64), row_bytes: row_bytes as f64 };
        let pieces = together.pieces();
        let close = |expected: f64, counted: f64, what: &str| {
            let off = (expected - counted).abs();
            assert!(off <= 0.05 * counted.max(20.0), "{rows} of {of}, {what}: {expected} {counted}");
        };
        close(pieces.jumps, f64::from(calls), "calls");
        close(pieces.bytes, bytes as f64, "bytes");
        close(pieces.laid, f64::from(laid), "neighbours");
        close(pieces.next, bytes as f64 / BLOCK_BYTES as f64, "further calls");
    }
}

#[test]
fn narrow_rows_in_any_order_are_read_many_at_a_time() {
    let memory = 16 << 30;
    let together = |rows, features, shuffle| {
        let facts = facts(rows, features);
        let course = epoch(facts, 256);
        let chunks = Chunks::together(facts, &course, 1, memory);
        let way = ReadPlan { shuffle, chunks: Some(chunks) };
        super::together(facts, &course, way, (2, &speed())).map(|chunks| chunks.train)
    };
    // A gigabyte of ten numbers per row: 64 MiB of rows and targets at a time, in whole batches.
    assert_eq!(together(26_843_546, 10, true), Some((64 << 20) / 44 / 256 * 256));
    assert_eq!(together(26_843_546, 10, false), None, "they follow each other");
    assert_eq!(together(1_310_720, 784, true), None, "wide rows lie far apart, however many are read");
    assert_eq!(together(3_200, 10, true), Some(3_200), "each batch would read half of the file");
    assert_eq!(together(3_200, 2_000, true), None, "to copy a row takes longer than to ask for it");
    let facts = facts(26_843_546, 10);
    let of = |course: &RunLength, memory| {
        let way = ReadPlan { shuffle: true, chunks: Some(Chunks::together(facts, course, 1, memory)) };
        super::together(facts, course, way, (2, &speed()))
    };
    assert_eq!(of(&epoch(facts, 256), 64 << 20), None, "there is no room for so many");
    // Of a run of a hundred steps no more is read than they take: its rows lie as far apart as those of a step.
    assert_eq!(of(&course(facts, 256, 1, Some(100)), memory), None, "there are too few steps");
}

/// Numbers by hand: rows of 8 numbers and a target, a chunk of them larger than the caches, the order larger than the
/// second-level one.
#[test]
fn rows_of_a_chunk_are_laid_all_over_it() {
    let facts = facts(1_000_000, 8);
    let course = course(facts, 64, 3, None);
    let chunks = Chunks::together(facts, &course, 1, 16 << 30);
    assert_eq!((chunks.train, (4 << 20) > speed().cache_bytes), (1_000_000, true));
    let way = ReadPlan { shuffle: true, chunks: Some(chunks) };
    let fetch = ReadCost::compute(facts, &course, way, &speed()).expect("a file");
    let read_s = 1e6 * (32.0 / BYTES_PER_S + ROW_S) + 32e6 / BLOCK_BYTES as f64 * NEXT_S;
    // One and a half lines of features go there and back, and a line and a sixteenth of targets comes.
    let far_s = 1e6 * (2.0 * 1.5 + 1.0625) * 64.0 / 12e9;
    assert!((fetch.near_s / ((read_s + far_s) * 64.0 / 1e6) - 1.0).abs() < 1e-3, "{fetch:?}");
    // In order nothing is laid anywhere.
    let in_order = ReadPlan { shuffle: false, chunks: None };
    let fetch = ReadCost::compute(facts, &course, in_order, &speed()).expect("a file");
    let expected = NEXT_S + 64.0 * 32.0 / BYTES_PER_S;
    assert!((fetch.near_s / expected - 1.0).abs() < 1e-9, "{fetch:?}");
}

/// One thread reads chunks, however many could fetch rows in the steps.
#[test]
fn many_threads_fetch_rows_themselves_where_that_is_quicker() {
    let facts = facts(26_843_546, 10);
    let together = |batch, threads| {
        let course = epoch(facts, batch);
        let chunks = Chunks::together(facts, &course, 1, 16 << 30);
        super::together(facts, &course, ReadPlan { shuffle: true, chunks: Some(chunks) }, (threads, &speed()))
            .is_some()
    };
    // 1.5 µs for a row by itself, 0.2 for one of a chunk: 32 threads are some 23 times as quick as one.
    assert_eq!([1, 2, 32].map(|threads| together(256, threads)), [true, true, false]);
    assert!(together(8, 32), "a step that is too short for a team");
}
