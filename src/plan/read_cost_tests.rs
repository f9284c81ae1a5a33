//! What rows from a file take, held against rows that are drawn and counted, and against epochs that are acted out.

use super::*;
use crate::plan::{Disk, MachineRates, Origin};

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
        let way = ReadPlan::on_the_cpu(shuffle, Some(chunks));
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
        let way = ReadPlan::on_the_cpu(true, Some(Chunks::together(facts, course, 1, memory)));
        super::together(facts, course, way, (2, &speed()))
    };
    assert_eq!(of(&epoch(facts, 256), 64 << 20), None, "there is no room for so many");
    // Of a run of a hundred steps no more is read than they take: its rows lie as far apart as those of a step.
    assert_eq!(of(&course(facts, 256, 1, Some(100)), memory), None, "there are too few steps");
}

/// Epochs acted out step by step: a thread reads a chunk after the other while there is room for one that is ready, and
/// another computes with them.
#[test]
fn an_epoch_takes_its_first_chunk_longer_than_what_is_done_meanwhile() {
    let acted = |read_s: &[f64], compute_s: &[f64]| {
        let (mut read, mut taken) = (0.0_f64, vec![0.0_f64]);
        let mut computed = 0.0_f64;
        for (i, (read_s, compute_s)) in read_s.iter().zip(compute_s).enumerate() {
            // A chunk is read once the one before the last was taken.
            read = read.max(if i > 1 { taken[i - 1] } else { 0.0 }) + read_s;
            let take = read.max(computed);
            taken.push(take);
            computed = take + compute_s;
        }
        computed
    };
    for (rows, row_s, step_s) in
        [(100_000, 2e-6, 1e-6), (2_000_000, 1e-8, 3e-6), (6_000_000, 6e-8, 3e-6), (6_000_000, 2e-7, 3e-6)]
    {
        let (facts, batch) = (facts(rows, 10), 64);
        let course = epoch(facts, batch);
        let chunks = Chunks::together(facts, &course, 1, 16 << 30);
        let rates = FileRates { row_s, bytes_per_s: 1e18, next_s: 0.0, call_s: 0.0, ..FileRates::TYPICAL };
        let no_far = Speed { cache_bytes: u64::MAX, ..speed() };
        let way = ReadPlan::on_the_cpu(true, Some(chunks));
        let fetch = ReadCost::compute(facts, Some(rates), &course, way, &no_far).expect("a file");
        assert_eq!(fetch.order_s * course.steps as f64, rows as f64 * DRAW_S);
        let read_s = fetch.beside_s();
        assert!((read_s / (batch as f64 * row_s) - 1.0).abs() < 0.01, "{read_s}");
        let of = |rows: usize| (rows as f64 / batch as f64).ceil();
        let sizes: Vec<usize> =
            (0..rows).step_by(chunks.train).map(|first| chunks.train.min(rows - first)).collect();
        let reads: Vec<f64> = sizes.iter().map(|rows| *rows as f64 / batch as f64 * read_s).collect();
        let computes: Vec<f64> = sizes.iter().map(|rows| of(*rows) * step_s).collect();
        let parts = crate::plan::TimeBreakdown {
            arithmetic_s: step_s,
            memory_s: 0.0,
            overhead_s: 0.0,
            all_reduce_s: 0.0,
            fetch_s: 0.0,
            upload_s: 0.0,
            read_s,
            order_s: 0.0,
            first_s: fetch.ends[0] * read_s,
            last_s: fetch.ends[1] * step_s,
        };
        let (reported, acted) = (parts.total_s() * course.steps as f64, acted(&reads, &computes));
        assert!(reported <= 1.001 * acted && reported > 0.98 * acted, "{rows} {row_s}: {reported} {acted}");
        let first = fetch.wait_s()[1];
        // The last step of an epoch has fewer rows.
        assert!((first / reads[0] - 1.0).abs() < 1e-3, "{first} {reads:?}");
    }
}

/// Numbers by hand: rows of 8 numbers and a target, a chunk of them larger than the caches, the order larger than the
/// second-level one.
#[test]
fn rows_of_a_chunk_are_laid_all_over_it() {
    let facts = facts(1_000_000, 8);
    let course = course(facts, 64, 3, None);
    let chunks = Chunks::together(facts, &course, 1, 16 << 30);
    assert_eq!((chunks.train, (4 << 20) > speed().cache_bytes), (1_000_000, true));
    let way = ReadPlan::on_the_cpu(true, Some(chunks));
    let fetch = ReadCost::compute(facts, None, &course, way, &speed()).expect("a file");
    let rates = FileRates::TYPICAL;
    let read_s = 1e6 * (32.0 / rates.bytes_per_s + rates.row_s) + 32e6 / BLOCK_BYTES as f64 * rates.next_s;
    // One and a half lines of features go there and back, and a line and a sixteenth of targets comes.
    let far_s = 1e6 * (2.0 * 1.5 + 1.0625) * 64.0 / 12e9;
    assert!((fetch.near_s / ((read_s + far_s) * 64.0 / 1e6) - 1.0).abs() < 1e-3, "{fetch:?}");
    let order_s = 1e6 * (4e-9 + 64.0 / 60e9);
    let wait = fetch.wait_s();
    assert!((wait[0] / order_s - 1.0).abs() < 1e-6 && (wait[1] / (read_s + far_s) - 1.0).abs() < 1e-3);
    // In order nothing is laid anywhere, and there is no order to be made.
    let in_order = ReadPlan::on_the_cpu(false, None);
    let fetch = ReadCost::compute(facts, None, &course, in_order, &speed()).expect("a file");
    let expected = rates.next_s + 64.0 * 32.0 / rates.bytes_per_s;
    assert!((fetch.near_s / expected - 1.0).abs() < 1e-9, "{fetch:?}");
    assert_eq!(fetch.wait_s(), [0.0; 2]);
}

/// However quickly rows come at the moment, decisions go by what is typical.
#[test]
fn what_is_measured_decides_nothing() {
    let facts = facts(1_000_000, 784);
    let course = epoch(facts, 64);
    let way = ReadPlan::on_the_cpu(true, None);
    let of = |rates| ReadCost::compute(facts, rates, &course, way, &speed()).expect("a file");
    let slow = FileRates { origin: Origin::Measured, call_s: 20e-6, scaling: 0.1, ..FileRates::TYPICAL };
    for threads in [1, 2, 8] {
        assert_eq!(of(Some(slow)).in_step_typical_s(threads), of(None).in_step_s(threads));
        assert!(of(Some(slow)).in_step_s(threads) > 2.0 * of(None).in_step_s(threads));
    }
}

/// One thread reads chunks, however many could fetch rows in the steps.
#[test]
fn many_threads_fetch_rows_themselves_where_that_is_quicker() {
    let facts = facts(26_843_546, 10);
    let together = |batch, threads| {
        let course = epoch(facts, batch);
        let chunks = Chunks::together(facts, &course, 1, 16 << 30);
        super::together(facts, &course, ReadPlan::on_the_cpu(true, Some(chunks)), (threads, &speed()))
            .is_some()
    };
    // 1.5 µs for a row by itself, 0.2 for one of a chunk: 32 threads are some 23 times as quick as one.
    assert_eq!([1, 2, 32].map(|threads| together(256, threads)), [true, true, false]);
    assert!(together(8, 32), "a step that is too short for a team");
}

/// A chunk of 32 rows for two devices by two threads is four batches in any order of 8 rows each.
#[test]
fn each_part_of_a_chunk_is_read_by_itself() {
    let facts = facts(32, 10);
    let course = epoch(facts, 8);
    let chunks = Chunks::new(facts, &course, 1);
    assert_eq!(chunks.train, 32);
    let of = |chunks, world_size, readers| {
        let way = ReadPlan { shuffle: true, chunks, world_size, readers };
        ReadCost::compute(facts, None, &course, way, &speed()).expect("a file").near_s
    };
    let part = CoalescedRead { rows: 8.0, drawn_of: Some(32.0), row_bytes: 40.0 };
    assert_eq!(of(Some(chunks), 2, 2), part.near_s(&FileRates::TYPICAL));
    assert_eq!(of(Some(chunks), 4, 1), of(None, 1, 1));
    assert!(of(Some(chunks), 1, 1) < of(Some(chunks), 2, 1), "fewer rows lie farther apart");
}

#[test]
fn a_disk_is_waited_for_beside_the_steps() {
    let rates = FileRates {
        origin: Origin::Measured,
        call_s: 1e-6,
        next_s: 0.5e-6,
        bytes_per_s: 4e9,
        row_s: 20e-9,
        scaling: 0.5,
        looked_at: 64,
        slow: 16,
        disk: Some(Disk { rows: 16, row_s: 100e-6, bytes_per_s: 1e8 }),
    };
    let words = "one by itself in 2.00 µs, one among many in 1.02 µs, some that follow each other at 4.000 GB/s, measured on 64 rows";
    assert_eq!(rates.in_words(4000), format!("{words}, of which 16 came from the disk, in 100 µs each"));
    let late = FileRates { disk: None, slow: 2, ..rates };
    let doing = "all of which the system had in memory, though 2 came late once";
    assert_eq!(late.in_words(4000), format!("{words}, {doing}"));
    let near = FileRates { disk: None, slow: 0, ..rates };
    assert_eq!(near.in_words(4000), format!("{words}, all of which the system had in memory"));
    let words = "one by itself in 2.64 µs, one among many in 1.18 µs, some that follow each other at 3.500 GB/s, typical";
    assert_eq!(FileRates::TYPICAL.in_words(4000), words);
    let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
    let facts = facts(10_000_000, 1000);
    let course = epoch(facts, 1);
    let of = |rates, shuffle, chunks, readers| {
        let way = ReadPlan { shuffle, chunks, world_size: 1, readers };
        ReadCost::compute(facts, Some(rates), &course, way, &speed()).expect("a file")
    };
    let alone = of(rates, true, None, 1);
    // One row of 4000 bytes: a call, a microsecond of copying; a quarter of the rows are far, four are waited for at once.
    let further = 4000.0 / BLOCK_BYTES as f64;
    close(alone.in_step_s(1), 1e-6 + further * 0.5e-6 + 1e-6);
    close(alone.in_step_s(3), (1e-6 + further * 0.5e-6 + 1e-6) / 2.0);
    close(alone.disk_s, 0.25 * ((1.0 + further) * 100e-6 + 40e-6) / 4.0);
    assert_eq!(alone.disk_in_words(), "; the disk takes 8.85 µs for them as it is, beside it");
    // Nobody but the system reads ahead of rows in the order of the file.
    let in_order = of(rates, false, None, 1);
    close(in_order.disk_s, 0.25 * 40e-6);
    assert_eq!(in_order.disk_in_words(), "; the disk takes 10.0 µs for them as it is, within it");
    let none = of(near, false, None, 1);
    assert_eq!((none.disk_s, none.disk_in_words()), (0.0, String::new()));
    let chunks = Chunks::new(facts, &course, 1);
    let fed = of(rates, false, Some(chunks), 2);
    assert_eq!([fed.in_step_s(1), alone.beside_s()], [0.0; 2]);
    close(fed.beside_s(), (further * 0.5e-6 + 1e-6) / 1.5);
    close(fed.disk_s, 0.25 * 40e-6 / 2.0);
}
