//! Draws of rows, and of groups of rows that stay together.

use std::{cmp::Reverse, collections::HashSet};

use crate::random::{self, Purpose};

/// The number of rows nearest to a fraction.
pub(super) fn rounded(fraction: f64, rows: usize) -> usize {
    (fraction * rows as f64).round() as usize
}

/// The number of rows from each class. Together they are the rounded fraction of all rows: what is left after
/// rounding down goes to the classes with the largest remainders.
pub(super) fn shares(fraction: f64, sizes: &[usize]) -> Vec<usize> {
    let exact: Vec<f64> = sizes.iter().map(|&size| fraction * size as f64).collect();
    let mut shares: Vec<usize> = exact.iter().map(|share| share.floor() as usize).collect();
    let left = rounded(fraction, sizes.iter().sum()).saturating_sub(shares.iter().sum());
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()).then(a.cmp(&b)));
    order.into_iter().take(left).for_each(|class| shares[class] += 1);
    shares
}

/// Takes `count` random rows out of `order`, or all if there are fewer; the others keep their order.
pub(super) fn draw(
    order: &mut Vec<u32>,
    count: usize,
    seed: u64,
    purpose: Purpose,
    stratum: u64,
) -> Vec<u32> {
    let count = count.min(order.len());
    // A partial Fisher-Yates shuffle draws without replacement.
    let mut rng = random::fast_stream(seed, purpose, stratum);
    let mut shuffled = order.clone();
    for first in 0..count {
        let chosen = first + random::below(&mut rng, (shuffled.len() - first) as u32) as usize;
        shuffled.swap(first, chosen);
    }
    shuffled.truncate(count);
    let taken: HashSet<u32> = shuffled.iter().copied().collect();
    order.retain(|row| !taken.contains(row));
    shuffled
}

/// The groups of `order` that come as near to `wanted` rows as whole groups do: each in turn, if it brings their rows nearer. At
/// least one, and, of several, not all. `sizes` are the rows of each group.
pub(super) fn nearest_groups(order: &[u32], sizes: &[usize], wanted: usize) -> Vec<u32> {
    let (mut taken, mut rows) = (Vec::new(), 0_usize);
    for &group in order {
        let with = rows + sizes[group as usize];
        if with.abs_diff(wanted) < rows.abs_diff(wanted) && taken.len() + 1 < order.len() {
            taken.push(group);
            rows = with;
        }
    }
    if taken.is_empty() {
        taken.extend(order.first());
    }
    taken
}

/// Each group with its fold, as scikit-learn's `GroupKFold` deals them: the largest first, each to the fold with the fewest rows;
/// of groups with as many rows, the one that is earlier in `order`.
pub(super) fn folds_of_groups(
    mut order: Vec<u32>,
    sizes: &[usize],
    folds: u32,
) -> impl Iterator<Item = (u32, u32)> {
    order.sort_by_key(|&group| Reverse(sizes[group as usize]));
    let mut rows = vec![0; folds as usize];
    order.into_iter().map(move |group| {
        let fold = (0..rows.len()).min_by_key(|&fold| rows[fold]).unwrap_or_default();
        rows[fold] += sizes[group as usize];
        (group, fold as u32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Even if all classes are small, the number of rows matches the fraction.
    #[test]
    fn shares_of_small_classes_add_up() {
        assert_eq!(shares(0.2, &[2; 100]).iter().sum::<usize>(), 40);
        assert_eq!(shares(0.2, &[3; 100]).iter().sum::<usize>(), 60);
        assert_eq!(shares(0.25, &[6, 4, 2]), [2, 1, 0]);
    }

    /// Each group that is skipped would have led further away; one is left for the other part.
    #[test]
    fn groups_come_near_to_a_fraction() {
        let sizes = [50, 7, 3, 20, 100];
        let taken = |order: &[u32], wanted| nearest_groups(order, &sizes, wanted);
        assert_eq!(taken(&[0, 1, 2, 3, 4], 36), [0]);
        assert_eq!(taken(&[4, 1, 2, 3, 0], 36), [1, 2, 3]);
        assert_eq!(taken(&[4, 3, 1, 2, 0], 22), [3, 2]);
        assert_eq!(taken(&[4, 0], 1), [4], "all are too large");
        assert_eq!(taken(&[4, 0], 140), [4], "not all");
    }

    /// The folds of scikit-learn 1.9's `GroupKFold(3)` on groups of 9, 8, 5, 5, 4, 2 and 1 rows, in their order.
    #[test]
    fn folds_are_those_of_group_k_fold() {
        let sizes = [5, 9, 1, 8, 5, 4, 2];
        let mut folds: Vec<_> = folds_of_groups((0..7).collect(), &sizes, 3).collect();
        folds.sort_unstable();
        assert_eq!(folds.iter().map(|(_, fold)| *fold).collect::<Vec<_>>(), [2, 0, 2, 1, 2, 1, 0]);
    }
}
