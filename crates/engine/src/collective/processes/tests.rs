//! Ranks in threads of one process.

use std::{sync::atomic::Ordering, thread, time::Duration};

use super::{
    ProcessGroup, RankSum, Tag, Traffic,
    memory::{counted_groups, groups, leave},
    ranks::with_pieces,
};
use crate::collective::{Collective, CollectiveError, shared};

const LONG: Duration = Duration::from_secs(60);

/// The elements of one rank; their sum depends on the order of additions.
fn input(rank: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7 + rank * 13) as f32).sin() * 10f32.powi(rank as i32 % 3)).collect()
}

fn sums<C: Collective + 'static>(ranks: Vec<C>, len: usize) -> Vec<Vec<u32>> {
    early_sums(ranks, len, 1, &[])
}

/// The sums of the last step; each step starts the sums from each of `bounds` on early.
fn early_sums<C: Collective + 'static>(
    ranks: Vec<C>,
    len: usize,
    steps: u64,
    bounds: &[usize],
) -> Vec<Vec<u32>> {
    let work = |(rank, mut own): (usize, C)| {
        let mut elements = Vec::new();
        for step in 1..=steps {
            elements = input(rank, len);
            let mut end = len;
            for &start in bounds {
                own.start(&elements[start..end], step).expect("a thread");
                end = start;
            }
            own.all_reduce(&mut elements, step).expect("all come");
        }
        elements.iter().map(|element| element.to_bits()).collect()
    };
    thread::scope(|scope| {
        let ranks: Vec<_> = ranks.into_iter().enumerate().map(|own| scope.spawn(move || work(own))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

/// Covers buffers sent in one message, in parts, and in several pieces.
#[test]
fn processes_sum_to_the_bits_of_threads() {
    for size in [2, 3, 4] {
        let groups = groups(size);
        for len in [0, 1, 4096, 4097, 10_000, 25_001] {
            let own = groups.iter().map(|group| with_pieces(group, LONG, 10_000)).collect();
            let (threads, _) = shared((0..size).map(|rank| rank.to_string()).collect(), LONG);
            assert_eq!(sums(own, len), sums(threads, len), "{size} ranks, {len} elements");
        }
        leave(&groups);
    }
}

/// Parts of one message, of several pieces, and of none.
#[test]
fn early_sums_have_the_bits_of_whole_ones() {
    let len = 25_001;
    for size in [2, 3, 4] {
        let (threads, _) = shared((0..size).map(|rank| rank.to_string()).collect(), LONG);
        let whole = sums(threads, len);
        for bounds in [&[20_000, 19_999, 19_999, 3000][..], &[1], &[0]] {
            let groups = groups(size);
            let own = groups.iter().map(|group| with_pieces(group, LONG, 10_000)).collect();
            assert_eq!(early_sums(own, len, 3, bounds), whole, "{size} ranks, early from {bounds:?}");
            leave(&groups);
        }
    }
}

/// The thread of early sums flushes denormal numbers to zero, as those that compute do.
#[test]
fn early_sums_flush_denormals() {
    let mut sum = RankSum::new(&ProcessGroup::rehearsal(2), LONG);
    let mut elements = [1e-39; 8];
    sum.start(&elements[4..], 1).expect("a thread");
    sum.all_reduce(&mut elements, 1).expect("nobody else is there to fail");
    assert_eq!(elements, [0.0; 8]);
}

/// If the ranks do not divide the elements evenly, the count may be off by at most one element per message.
#[test]
fn a_sums_traffic_is_what_it_sends() {
    for size in [2, 3, 4] {
        for len in [1, 4096, 4097, (1 << 20) + 5] {
            let (groups, sent) = counted_groups(size);
            sums(groups.iter().map(|group| RankSum::new(group, LONG)).collect(), len);
            let sent = *sent.lock().expect("no panic");
            let Traffic { messages, bytes } = Traffic::new(len, size);
            assert_eq!(sent.messages, messages * size as u64, "{size} ranks, {len} elements");
            assert!(sent.bytes.abs_diff(bytes * size as u64) <= 4 * sent.messages, "{sent:?} {bytes}");
            leave(&groups);
        }
    }
    assert_eq!(Traffic::new(1000, 1), Traffic { messages: 0, bytes: 0 });
}

#[test]
fn a_rehearsal_adds_nothing() {
    let mut sum = RankSum::new(&ProcessGroup::rehearsal(5), LONG);
    for len in [3, 10_000] {
        let mut elements = input(0, len);
        sum.all_reduce(&mut elements, 1).expect("nobody else is there to fail");
        assert_eq!(elements[..len / 5], input(0, len)[..len / 5]);
    }
}

#[test]
fn every_rank_knows_all_hosts() {
    let groups = groups(3);
    for (rank, group) in groups.iter().enumerate() {
        assert_eq!(group.names(), ["rank:0@h0", "rank:1@h1", "rank:2@h2"]);
        assert_eq!((group.rank(), group.size()), (rank, 3));
    }
    leave(&groups);
}

#[test]
fn frames_keep_their_order_and_length() {
    let groups = groups(2);
    for len in [0, 1, 1000] {
        groups[0].send(1, Tag::Command, vec![7; len]).expect("it is there");
    }
    for len in [0, 1, 1000] {
        assert_eq!(groups[1].receive(0, Tag::Command), Ok(vec![7; len]));
    }
    leave(&groups);
}

/// The second rank joins, and then sends no more heartbeats.
#[test]
fn a_silent_rank_is_named_with_its_host() {
    for (signal, limit_ms) in [(0, 300), (15, 3_600_000)] {
        let groups = groups(2);
        // Make it leave without telling the others.
        groups[1].lose("the test".to_owned(), String::new());
        groups[1].finish();
        groups[0].set_limit(Duration::from_millis(limit_ms));
        groups[0].signal().store(signal, Ordering::SeqCst);
        let result = groups[0].receive(1, Tag::Answer);
        let Err(CollectiveError::Gone { rank, why }) = result else { panic!("{result:?}") };
        assert_eq!(rank, "rank:1@h1");
        assert!(why.starts_with("no sign of life for "), "{why}");
        let mut sum = with_pieces(&groups[0], LONG, 10);
        let gone = Err(CollectiveError::Gone { rank, why });
        assert_eq!(sum.all_reduce(&mut [1.0], 1), gone);
        sum.start(&[1.0], 2).expect("a thread");
        assert_eq!(sum.all_reduce(&mut [1.0; 2], 2), gone);
        groups[0].finish();
    }
}

#[test]
fn an_abort_releases_ranks_of_other_processes() {
    let groups = groups(2);
    groups[0].abort().now();
    let mut sum = with_pieces(&groups[1], LONG, 10);
    sum.start(&[1.0], 1).expect("a thread");
    assert_eq!(sum.all_reduce(&mut [1.0; 2], 1), Err(CollectiveError::Poisoned));
    assert_eq!(sum.all_reduce(&mut [1.0], 2), Err(CollectiveError::Poisoned));
    leave(&groups);
}

/// The other rank is alive but does not take part in the sum.
#[test]
fn a_rank_that_does_not_come_to_a_sum_is_named() {
    let groups = groups(2);
    let limit = Duration::from_millis(1);
    let mut sum = with_pieces(&groups[0], limit, 10);
    let device = "rank:1@h1".to_owned();
    let stalled = Err(CollectiveError::Stalled { device, waited: limit });
    assert_eq!(sum.all_reduce(&mut [1.0], 1), stalled);
    sum.start(&[1.0], 2).expect("a thread");
    assert_eq!(sum.all_reduce(&mut [1.0; 2], 2), stalled);
    leave(&groups);
}
