//! Corrupted files.

use proptest::prelude::*;

/// A corrupted file: truncated, with a changed byte, with a piece missing, or with extra bytes.
pub fn mutated(valid: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let length = valid.len();
    let change = prop_oneof![
        (0..=length).prop_map(Change::Cut),
        prop::collection::vec((0..length, any::<u8>()), 1..4).prop_map(Change::Set),
        (0..length, 1..40_usize).prop_map(|(start, count)| Change::Remove(start, count)),
        (0..=length, prop::collection::vec(any::<u8>(), 1..20))
            .prop_map(|(at, bytes)| Change::Insert(at, bytes)),
    ];
    change.prop_map(move |change| {
        let mut bytes = valid.clone();
        match change {
            Change::Cut(length) => bytes.truncate(length),
            Change::Set(all) => all.into_iter().for_each(|(at, byte)| bytes[at] = byte),
            Change::Remove(start, count) => drop(bytes.drain(start..(start + count).min(length))),
            Change::Insert(at, more) => drop(bytes.splice(at..at, more)),
        }
        bytes
    })
}

#[derive(Clone, Debug)]
enum Change {
    Cut(usize),
    Set(Vec<(usize, u8)>),
    Remove(usize, usize),
    Insert(usize, Vec<u8>),
}
