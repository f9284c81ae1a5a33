//! A cost that can be sorted.

use std::cmp::Ordering;

/// How bad a trial is: the lower, the better. Both zeros are equal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost(f64);

impl Cost {
    pub fn new(cost: f64) -> Self {
        Self(cost + 0.0) // makes -0 a 0
    }
}

impl Ord for Cost {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Cost {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Cost {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Cost {}
