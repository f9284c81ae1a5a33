//! The points of the product that run: distinct ones, without those that `exclude` names.

use super::{
    super::{problem::Problem, tree::Node},
    MAX_TRIALS, Sweep, exclude,
};

impl Sweep {
    /// Removes points that `exclude` matches, and points that differ from another only in keys that do not
    /// vary there.
    pub(super) fn leave_out(&mut self, exclude: Option<&[Node]>, problems: &mut Vec<Problem>) {
        if exclude.is_none() && self.conditions.is_empty() {
            return;
        }
        let Some(all) = self.distinct() else { return };
        let count = all.len();
        let left = match exclude {
            Some(exclude) => exclude::left(self, all, exclude, problems),
            None => all,
        };
        self.excluded = count - left.len();
        self.left = Some(left);
    }

    /// The distinct points of the product: of those that differ only in keys that do not vary, the first.
    /// `None` if there are more than a sweep may have.
    fn distinct(&self) -> Option<Vec<usize>> {
        // The whole product may be far too large to list. So blocks are added in the order of their
        // conditions, and a block that does not vary adds one row.
        let first_keys =
            self.blocks.iter().scan(0, |next, block| Some(std::mem::replace(next, *next + block.keys.len())));
        let mut blocks: Vec<(usize, usize)> = first_keys.enumerate().collect();
        blocks.sort_by_key(|(_, key)| self.conditions.place_of(*key));
        let mut points = vec![vec![0; self.blocks.len()]];
        for (block, key) in blocks {
            let mut next = Vec::new();
            for rows in points {
                let is_active = self.active(&self.nodes_at(&rows))[key];
                let all = if is_active { self.blocks[block].rows.len() } else { 1 };
                if next.len() + all > MAX_TRIALS {
                    return None;
                }
                next.extend((0..all).map(|row| {
                    let mut rows = rows.clone();
                    rows[block] = row;
                    rows
                }));
            }
            points = next;
        }
        let number = |rows: Vec<usize>| {
            let sizes = self.blocks.iter().map(|block| block.rows.len());
            rows.into_iter()
                .zip(sizes)
                .try_fold(0_usize, |n, (row, size)| n.checked_mul(size)?.checked_add(row))
        };
        let mut numbers: Vec<usize> = points.into_iter().map(number).collect::<Option<_>>()?;
        numbers.sort_unstable();
        Some(numbers)
    }
}
