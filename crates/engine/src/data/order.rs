//! The row order of an epoch, a pure function of (seed, epoch), so that batches do not depend on devices or
//! processes.

use crate::random::{self, Purpose};

/// Appends a permutation of `0..rows` to `orders` (Fisher-Yates, seeded by (seed, epoch)). Allocates only if
/// `orders` lacks capacity.
pub fn epoch_order(seed: u64, epoch: u64, rows: u32, orders: &mut Vec<u32>) {
    let before = orders.len();
    orders.extend(0..rows);
    let order = &mut orders[before..];
    let mut rng = random::fast_stream(seed, Purpose::Order, epoch);
    let mut left = rows;
    while left > 1 {
        let (last, next) = random::below_two(&mut rng, left, left - 1);
        order.swap(left as usize - 1, last as usize);
        order.swap(left as usize - 2, next as usize);
        left -= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(seed: u64, epoch: u64, rows: u32) -> Vec<u32> {
        let mut order = Vec::new();
        epoch_order(seed, epoch, rows, &mut order);
        order
    }

    #[test]
    fn numbers_are_frozen() {
        // Computed independently from the papers' definitions. If these values changed, no recorded run could
        // be repeated.
        assert_eq!(order(0, 1, 10), [8, 7, 5, 4, 6, 9, 1, 0, 2, 3]);
        assert_eq!(order(0, 2, 10), [8, 7, 3, 6, 1, 4, 9, 2, 5, 0]);
        assert_eq!(order(1, 1, 10), [6, 1, 3, 7, 2, 5, 4, 9, 0, 8]);
    }

    #[test]
    fn is_a_permutation_of_any_length() {
        for rows in [0, 1, 2, 3, 31, 1000, 65_537] {
            let mut sorted = order(42, 5, rows);
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..rows));
        }
    }

    #[test]
    fn every_permutation_is_as_likely() {
        let mut counts = std::collections::BTreeMap::new();
        for epoch in 0..24_000 {
            *counts.entry(order(3, epoch, 4)).or_insert(0_i64) += 1;
        }
        assert_eq!(counts.len(), 24);
        // Five standard deviations of a binomial with n = 24,000 and p = 1/24.
        assert!(counts.values().all(|count| (count - 1000).abs() < 155), "{counts:?}");
    }

    #[test]
    fn keeps_its_room() {
        let mut order = Vec::with_capacity(1000);
        let room = order.as_ptr();
        epoch_order(0, 0, 500, &mut order);
        epoch_order(0, 1, 500, &mut order);
        assert_eq!(order.as_ptr(), room);
    }
}
