//! What rows from a file take, held against rows that are drawn and counted.

use super::*;

fn facts(rows: usize, features: usize) -> Facts {
    Facts {
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
        let (mut calls, mut bytes) = (1, rows * row_bytes);
        for pair in drawn.windows(2) {
            let dropped = pair[1] - pair[0] - 1;
            match dropped <= most {
                true => bytes += dropped * row_bytes,
                false => calls += 1,
            }
        }
        let together = Together { rows: rows as f64, drawn_of: Some(of as f64), row_bytes: row_bytes as f64 };
        let (expected_calls, expected_bytes) = together.calls_and_bytes();
        let whole = calls as f64 + bytes as f64 / BLOCK_BYTES as f64;
        assert!((expected_calls / whole - 1.0).abs() < 0.05, "{rows} of {of}: {expected_calls} {whole}");
        assert!(
            (expected_bytes / bytes as f64 - 1.0).abs() < 0.05,
            "{rows} of {of}: {expected_bytes} {bytes}"
        );
    }
}

#[test]
fn narrow_rows_in_any_order_are_read_many_at_a_time() {
    let memory = 16 << 30;
    let together = |rows, features, shuffle| {
        let facts = facts(rows, features);
        let chunks = Chunks::together(facts, [256, 1], memory);
        super::together(facts, (256, shuffle), chunks, 2).map(|chunks| chunks.train)
    };
    // A gigabyte of ten numbers per row: 64 MiB of rows and targets at a time, in whole batches.
    assert_eq!(together(26_843_546, 10, true), Some((64 << 20) / 44 / 256 * 256));
    assert_eq!(together(26_843_546, 10, false), None, "they follow each other");
    assert_eq!(together(1_310_720, 784, true), None, "wide rows lie far apart, however many are read");
    assert_eq!(together(3_200, 10, true), Some(3_200), "each batch would read half of the file");
    assert_eq!(together(3_200, 2_000, true), None, "to copy a row takes longer than to ask for it");
    let little = Chunks::together(facts(26_843_546, 10), [256, 1], 64 << 20);
    assert_eq!(
        super::together(facts(26_843_546, 10), (256, true), little, 2),
        None,
        "there is no room for so many"
    );
}

/// One thread reads chunks, however many could fetch rows in the steps.
#[test]
fn many_threads_fetch_rows_themselves_where_that_is_quicker() {
    let facts = facts(26_843_546, 10);
    let together = |batch, threads| {
        let chunks = Chunks::together(facts, [batch, 1], 16 << 30);
        super::together(facts, (batch, true), chunks, threads).is_some()
    };
    // 1.5 µs for a row by itself, 0.2 for one of a chunk: 32 threads are some 23 times as quick as one.
    assert_eq!([1, 2, 32].map(|threads| together(256, threads)), [true, true, false]);
    assert!(together(8, 32), "a step that is too short for a team");
}

/// A chunk of 32 rows for two devices by two threads is four batches in any order of 8 rows each.
#[test]
fn each_part_of_a_chunk_is_read_by_itself() {
    let facts = facts(32, 10);
    let chunks = Chunks::new(facts, [8, 1]);
    assert_eq!(chunks.train, 32);
    let of = |chunks, world_size, readers| {
        Fetch::of(facts, None, (8, true), (chunks, world_size, readers)).expect("a file").near_s
    };
    let part = Together { rows: 8.0, drawn_of: Some(32.0), row_bytes: 40.0 };
    assert_eq!(of(Some(chunks), 2, 2), part.near_s(&FileRates::TYPICAL));
    assert_eq!(of(Some(chunks), 4, 1), of(None, 1, 1));
    assert!(of(Some(chunks), 1, 1) < of(Some(chunks), 2, 1), "fewer rows lie farther apart");
}

#[test]
fn a_disk_is_waited_for_beside_the_steps() {
    let rates = FileRates {
        origin: Origin::Measured,
        call_s: 1e-6,
        bytes_per_s: 4e9,
        scaling: 0.5,
        looked_at: 64,
        slow: 16,
        disk: Some(Disk { rows: 16, row_s: 100e-6, bytes_per_s: 1e8 }),
    };
    let words = "one by itself in 2.00 µs, some that follow each other at 4.000 GB/s, measured on 64 rows";
    assert_eq!(rates.in_words(4000), format!("{words}, of which 16 came from the disk, in 100 µs each"));
    let late = FileRates { disk: None, slow: 2, ..rates };
    let doing = "all of which the system had in memory, though 2 came late once";
    assert_eq!(late.in_words(4000), format!("{words}, {doing}"));
    let near = FileRates { disk: None, slow: 0, ..rates };
    assert_eq!(near.in_words(4000), format!("{words}, all of which the system had in memory"));
    let words = "one by itself in 2.64 µs, some that follow each other at 3.500 GB/s, typical";
    assert_eq!(FileRates::TYPICAL.in_words(4000), words);
    let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
    let facts = facts(10_000_000, 1000);
    let alone = Fetch::of(facts, Some(rates), (1, true), (None, 1, 1)).expect("a file");
    // One row of 4000 bytes: a call, a microsecond of copying; a quarter of the rows are far, four are waited for at once.
    let call = 1.0 + 4000.0 / BLOCK_BYTES as f64;
    close(alone.in_step_s(1), call * 1e-6 + 1e-6);
    close(alone.in_step_s(3), (call * 1e-6 + 1e-6) / 2.0);
    close(alone.disk_s, 0.25 * (call * 100e-6 + 40e-6) / 4.0);
    assert_eq!(alone.disk_in_words(), "; the disk takes 8.85 µs for them as it is, beside it");
    // Nobody but the system reads ahead of rows in the order of the file.
    let in_order = Fetch::of(facts, Some(rates), (1, false), (None, 1, 1)).expect("a file");
    close(in_order.disk_s, 0.25 * 40e-6);
    assert_eq!(in_order.disk_in_words(), "; the disk takes 10.0 µs for them as it is, within it");
    let none = Fetch::of(facts, Some(near), (1, false), (None, 1, 1)).expect("a file");
    assert_eq!((none.disk_s, none.disk_in_words()), (0.0, String::new()));
    let chunks = Chunks::new(facts, [1, 1]);
    let fed = Fetch::of(facts, Some(rates), (1, false), (Some(chunks), 1, 2)).expect("a file");
    let bytes = chunks.train as f64 * 4000.0;
    // Each of two threads begins a run of its own.
    let call = (2.0 + bytes / BLOCK_BYTES as f64) / chunks.train as f64;
    assert_eq!([fed.in_step_s(1), alone.beside_s()], [0.0; 2]);
    close(fed.beside_s(), (call * 1e-6 + 1e-6) / 1.5);
    close(fed.disk_s, 0.25 * 40e-6 / 2.0);
}
