//! A value for each seed of a setting whose other axes are averaged.

use super::{difference_of_means::Sample, grouping::grouped, run::mean};

/// For each seed, or each turn of a sweep, the mean over the combinations of the folded axes; also the number
/// of seeds that lack a combination. If all of them do, the result is the mean of everything as a single
/// value, which says nothing about spread.
pub(super) fn fold(combinations: &[Vec<Sample>]) -> (Vec<Sample>, usize) {
    if let [samples] = combinations {
        return (samples.clone(), 0);
    }
    let all = combinations.iter().flatten().cloned();
    let (complete, others): (Vec<_>, Vec<_>) = grouped(all)
        .into_iter()
        .partition(|(key, values)| key.is_some() && values.len() == combinations.len());
    let incomplete = others.len();
    if complete.is_empty() && incomplete > 0 {
        let of_each = |samples: &Vec<Sample>| mean(samples.iter().map(|(_, value)| value));
        return (vec![(None, mean(&combinations.iter().map(of_each).collect::<Vec<_>>()))], incomplete);
    }
    (complete.into_iter().map(|(key, values)| (key, mean(&values))).collect(), incomplete)
}
