//! Tests of the reader: its memory, its order, its threads.

use std::sync::{Condvar, Mutex};

use super::*;
use crate::{data::RowReader, device::HostMemory};

/// A fake file that counts the reads that have begun.
#[derive(Default)]
struct Notify(Mutex<usize>, Condvar);

impl Notify {
    /// Waits until this many reads have begun.
    fn reads(&self, count: usize) {
        let wait = self
            .1
            .wait_timeout_while(self.0.lock().expect("a count"), Duration::from_secs(60), |n| *n < count);
        assert!(!wait.expect("a count").1.timed_out(), "the reader does not read ahead");
    }
}

impl RowReader for Notify {
    fn read_rows(&self, _: &[u32], _: &mut [f32]) -> io::Result<()> {
        *self.0.lock().expect("nobody panics") += 1;
        self.1.notify_all();
        Ok(())
    }

    fn read_range(&self, _: u32, _: &mut [f32]) -> io::Result<()> {
        unreachable!("chunks are read by number")
    }

    fn row_bytes(&self) -> u64 {
        4
    }

    fn counted(&self, _: Arc<crate::device::Reads>) -> Arc<dyn RowReader> {
        unreachable!("nobody counts")
    }
}

/// The number of buffers used over `passes` passes of `chunks` chunks, if the reader is always as far ahead as possible.
fn buffers(chunks: usize, passes: usize, is_held: bool) -> usize {
    let reported = Arc::new(Notify::default());
    let stream = stream(&reported, chunks, is_held, Vec::new());
    let mut seen = std::collections::BTreeSet::new();
    let mut bound = None;
    for pass in 0..passes {
        stream.begin(pass as u64, 0..2 * chunks).expect("a thread that reads");
        for taken in 0..chunks {
            // One is ready, one is being read.
            reported.reads(pass * chunks + chunks.min(taken + 2));
            let chunk = stream.next(Duration::MAX).expect("rows").expect("in time");
            seen.insert(chunk.features[0].as_ptr());
            bound = is_held.then(|| chunk.features[0].clone());
            reported.reads(pass * chunks + chunks.min(taken + 3));
            stream.recycle(chunk);
        }
    }
    drop(bound);
    seen.len()
}

/// Chunks of two rows of one feature and one target.
fn stream(reported: &Arc<Notify>, chunks: usize, is_held: bool, lent: Lent) -> Stream {
    let (rows, file) = (2 * chunks, Arc::clone(reported) as Arc<dyn RowReader>);
    let part = Part { rows, features: Store::File(file), targets: Arc::new(vec![0.0; rows]) };
    let cut =
        ChunkShape { features: 1, targets: 1, batch: 2, chunk: 2, world_size: 1, readers: 1, shuffle: None };
    Stream::new(part, cut, is_held, lent).expect("a thread")
}

/// The plan counts the same number: see `on_the_host` in `plan::chunks`.
#[test]
fn no_more_chunks_are_in_memory_than_an_epoch_has() {
    let of = |passes, is_held| [1, 2, 3, 4, 6].map(|chunks| buffers(chunks, passes, is_held));
    assert_eq!(of(1, false), [1, 2, 3, 3, 3]);
    assert_eq!(of(3, false), [1, 2, 3, 3, 3]);
    // The device keeps the last chunk until it is given the next one.
    assert_eq!(of(1, true), [1, 2, 3, 4, 4]);
    assert_eq!(of(3, true), [2, 3, 4, 4, 4]);
}

/// A GPU holds the last two chunks. With as many blocks as the plan counts the reader never waits for good, and of four it
/// has one while another is ready.
#[test]
fn what_a_device_lent_is_read_into_again_and_again() {
    for (chunks, passes, blocks) in [(1, 1, 1), (2, 1, 2), (1, 5, 3), (2, 3, 4), (6, 2, 4)] {
        let lend = || LentMemory::new((0..blocks).map(|_| Box::new(vec![0.0_f32; 2]) as HostMemory));
        let reported = Arc::new(Notify::default());
        let stream = stream(&reported, chunks, false, vec![Some([lend(), lend()])]);
        let (mut seen, mut held) = (std::collections::BTreeSet::new(), [None, None]);
        for pass in 0..passes {
            stream.begin(pass as u64, 0..2 * chunks).expect("a thread that reads");
            for taken in 0..chunks {
                let chunk = stream.next(Duration::MAX).expect("rows").expect("in time");
                seen.insert(chunk.features[0].as_ptr());
                held = [held[1].take(), Some(chunk.features[0].clone())];
                stream.recycle(chunk);
                if blocks == 4 {
                    reported.reads(pass * chunks + chunks.min(taken + 3));
                }
            }
        }
        assert!(seen.len() <= blocks, "{chunks} chunks, {passes} passes");
    }
}

/// As after an early stop: the reader waits for a block while a device still holds all.
#[test]
fn the_reader_ends_with_its_stream() {
    let lend = || LentMemory::new((0..2).map(|_| Box::new(vec![0.0_f32; 2]) as HostMemory));
    let reported = Arc::new(Notify::default());
    let stream = stream(&reported, 6, false, vec![Some([lend(), lend()])]);
    stream.begin(1, 0..12).expect("a thread that reads");
    let held = [(); 2].map(|()| stream.next(Duration::MAX).expect("rows").expect("in time"));
    drop(stream);
    assert_eq!(Arc::strong_count(&reported), 1, "the reader has let go of the file");
    assert_eq!(held[1].features[0].len(), 2);
}

#[test]
fn several_threads_copy_the_rows_that_were_asked_for() {
    let (rows, features) = (700, 1024);
    let all: Vec<f32> = (0..rows * features).map(|i| i as f32).collect();
    let part = Part {
        rows,
        features: Store::Memory(all.into()),
        targets: Arc::new((0..rows).map(|i| i as f32).collect()),
    };
    let cut = ChunkShape {
        features,
        targets: 1,
        batch: 100,
        chunk: 600,
        world_size: 1,
        readers: 3,
        shuffle: Some(7),
    };
    let stream = Stream::new(part, cut, false, Vec::new()).expect("a thread");
    let mut orders = Vec::new();
    (1..3).for_each(|epoch| epoch_order(7, epoch, rows as u32, &mut orders));
    stream.begin(1, 0..rows).expect("a thread that reads");
    for (taken, expected) in orders.chunks(rows).flat_map(|order| order.chunks(600)).enumerate() {
        // It begins once, and may begin early.
        stream.begin(1 + taken as u64 / 2, 0..rows).expect("a thread that reads");
        let chunk = stream.next(Duration::MAX).expect("rows").expect("in time");
        let first: Vec<_> =
            chunk.features[0].chunks(features).map(|row| (row[0], row[features - 1])).collect();
        let number = |row: &u32| (*row as usize * features) as f32;
        let last = |row: &u32| number(row) + (features - 1) as f32;
        assert_eq!(first, expected.iter().map(|row| (number(row), last(row))).collect::<Vec<_>>());
        assert_eq!(chunk.targets[0][..], expected.iter().map(|row| *row as f32).collect::<Vec<_>>());
    }
}
