//! The samples of a setting, also where its other axes are averaged.

use crate::{
    report::{
        grouping::grouped,
        run::{Run, mean},
    },
    run::{Sample, SampleUnit, TrialValue, samples as of_trials},
};

/// For each sample the mean over the combinations of the folded axes; also the number of samples that lack a combination. If all of
/// them do, the result is the mean of everything as a single value, which says nothing about spread.
pub(in crate::report) fn fold(combinations: &[Vec<Sample>]) -> (Vec<Sample>, usize) {
    if let [samples] = combinations {
        return (samples.clone(), 0);
    }
    let all = combinations.iter().flatten().map(|own| (&own.of, own.clone()));
    let (complete, others): (Vec<_>, Vec<_>) = grouped(all)
        .into_iter()
        .partition(|(of, samples)| !of.is_empty() && samples.len() == combinations.len());
    let incomplete = others.len();
    if complete.is_empty() && incomplete > 0 {
        let of_each = |samples: &Vec<Sample>| mean(samples.iter().map(|own| &own.value));
        let mean = mean(&combinations.iter().map(of_each).collect::<Vec<_>>());
        return (vec![Sample::unpaired(mean)], incomplete);
    }
    (complete.iter().map(|(_, samples)| Sample::mean_of(samples)).collect(), incomplete)
}

/// The samples of values. Learned metrics are paired by what they are of; values with equal seeds and folds are averaged, and so are
/// the folds of one seed, which share most of their rows. Measured metrics are paired by the turn of a sweep.
pub(in crate::report) fn samples(values: &[(usize, f64)], runs: &[Run], unit: SampleUnit) -> Vec<Sample> {
    let seeds = |place: usize| runs[place].seeds().unwrap_or_default();
    if unit == SampleUnit::Run {
        let turn = |place: usize| {
            let (run, [seed, fold]) = (&runs[place], seeds(place));
            Some([run.sweep.as_deref()?, run.repeat().unwrap_or_default(), &seed, &fold].join("\n"))
        };
        let sample = |&(place, value): &(usize, f64)| match turn(place) {
            Some(turn) => Sample::new([([turn, String::new()], value)]),
            None => Sample::unpaired(value),
        };
        return values.iter().map(sample).collect();
    }
    let of_trial =
        |&(place, value): &(usize, f64)| TrialValue { of: seeds(place), rows: runs[place].rows_id(), value };
    of_trials(&values.iter().map(of_trial).collect::<Vec<_>>(), unit)
}
