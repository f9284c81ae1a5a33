//! Work on many items, by all cores.

use std::{
    panic::resume_unwind,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use crate::host::logical_cores;

/// Small files that a thread takes at a time; it is not worth a thread of its own for fewer.
const FILES: usize = 50;

/// What `of` makes of each small file, in their order.
pub(super) fn map<T: Sync, R: Send>(items: &[T], of: impl Fn(&T) -> R + Sync) -> Vec<R> {
    map_blocks(items, FILES, of)
}

/// What `of` makes of each item, in their order; a thread takes `block` items at a time.
pub fn map_blocks<T: Sync, R: Send>(items: &[T], block: usize, of: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let block = block.max(1);
    let blocks: Vec<&[T]> = items.chunks(block).collect();
    let next = AtomicUsize::new(0);
    let work = || -> Vec<(usize, Vec<R>)> {
        let take = || {
            let block = next.fetch_add(1, Ordering::Relaxed);
            Some((block, blocks.get(block)?.iter().map(&of).collect()))
        };
        std::iter::from_fn(take).collect()
    };
    let threads = (items.len() / block).clamp(1, logical_cores().unwrap_or(1));
    let mut done = thread::scope(|scope| {
        // If a thread cannot be started, the others do its work.
        let start = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let others: Vec<_> = (1..threads).filter_map(start).collect();
        let mut done = work();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(block, _)| *block);
    let mut all = Vec::with_capacity(items.len());
    done.into_iter().for_each(|(_, block)| all.extend(block));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_their_items() {
        for count in [0, 1, FILES, 3 * FILES + 7] {
            let items: Vec<usize> = (0..count).collect();
            assert_eq!(map(&items, |item| item + 1), (1..=count).collect::<Vec<_>>());
        }
    }
}
