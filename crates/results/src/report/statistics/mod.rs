//! The statistics of comparisons: estimates, intervals and tests, and what the samples of a setting share, which decides
//! which of these hold.

mod dependence;
mod difference_of_means;
mod estimates;
mod judging_rows;
mod rank_shift;
mod seed_means;
mod student;

pub(super) use dependence::{Dependence, sample_of};
pub(super) use difference_of_means::{ALPHA, MOST_RUNS, MeanDifference, ROUNDING};
pub use estimates::{Estimate, sign_test_in_words, verdicts};
pub(super) use estimates::{are_too_few, coverage, fewest, fewest_for_verdict, median};
pub(super) use judging_rows::JudgingRows;
pub(super) use rank_shift::{Shift, fewest_each};
pub(super) use seed_means::{fold, samples};
pub(super) use student::holm;
