//! Ranks settings by a metric: seeds and repeats are combined, and each setting is compared with the best (`pairs.rs`).

mod equal;
mod pairs;

use super::{
    ReportError,
    axes::differences,
    comparison::Comparison,
    configurations::{Configuration, FINISHED, STOPPED, of_runs},
    grouping::{distinct, grouped},
    key::Key,
    metric::Metric,
    run::{Run, SAME_AS, varies_setting},
    setting_name::named,
    statistics::{ALPHA, Dependence, JudgingRows, MeanDifference, ROUNDING, fold, sample_of, samples},
};
use crate::run::{Ranked, Sample, SampleUnit, SeedsAndFold, order};

/// A setting's values of some keys.
pub(in crate::report) type Values = Vec<Option<String>>;

/// Finished runs that differ only in the seed, or in what `--by` folds.
pub(in crate::report) struct Candidate {
    /// Its values of the ranking's keys.
    pub(in crate::report) values: Vec<String>,
    /// Indices of its runs, best first; of folds in the order of rows, the last first: it trains on most rows.
    pub(in crate::report) places: Vec<usize>,
    /// One per fold, seed or split, or per run for a measured metric; if `--by` folds axes, the mean over them.
    pub(in crate::report) samples: Vec<Sample>,
    /// What a sample is: a fold, a seed, a split or a run.
    pub(in crate::report) each: SampleUnit,
    /// What its samples have in common.
    pub(in crate::report) dependence: Dependence,
    /// The rows that its samples are of.
    pub(in crate::report) rows: JudgingRows,
    /// Number of combinations of the folded axes it has, and the maximum over all settings.
    pub(in crate::report) combinations: [usize; 2],
    /// How many of its runs diverged or were stopped by their sweep.
    pub(in crate::report) lost: usize,
    /// Number of seeds or repeats that lack a combination and are not counted.
    pub(in crate::report) incomplete: usize,
    /// The mean of its samples.
    pub(in crate::report) value: f64,
    /// Student's at 95 %, or the range of folds in the order of rows.
    pub(in crate::report) interval: Option<[f64; 2]>,
    /// Its mean minus that of the best setting; `None` for the best.
    pub(in crate::report) difference: Option<MeanDifference>,
    /// The p-value of the difference, corrected for all pairs of settings.
    pub(in crate::report) p: Option<f64>,
}

/// Settings of one task, best first.
pub(in crate::report) struct Ranking {
    pub(in crate::report) metric: Metric,
    /// The keys in which the settings differ.
    pub(in crate::report) keys: Vec<String>,
    pub(in crate::report) settings: Vec<Candidate>,
    /// Number of pairs of settings with more than one value: the best setting is selected among all of them.
    pub(in crate::report) pairs: usize,
    /// What a sample is: a fold, a seed, a split or a run.
    pub(in crate::report) each: SampleUnit,
    /// The status of the ranked runs: finished, or, if none finished, stopped by the sweep.
    pub(in crate::report) status: &'static str,
    /// Runs that ended otherwise, or have no value of the metric.
    pub(in crate::report) left_out: Vec<usize>,
}

impl Ranking {
    /// Ranks the runs at `places`, folded over everything except the keys of `by`, or over seeds if there are none. Differences from the
    /// best and p-values take long for many settings: [`Ranking::new`] has them, too.
    pub(in crate::report) fn sorted(
        comparison: &Comparison,
        places: &[usize],
        metric: &Metric,
        by: &[String],
    ) -> Result<Self, ReportError> {
        let by = by.iter().map(|word| Key::new(word, &comparison.runs)).collect::<Result<Vec<_>, _>>()?;
        let runs = &comparison.runs;
        let values = |place: usize| by.iter().map(|key| key.value(&runs[place]).map(str::to_owned)).collect();
        Ok(Self::by_keys(comparison, places, metric, &by, &values))
    }

    /// The same, folded over everything except keys, whose `values` tell settings apart.
    pub(in crate::report) fn by_keys(
        comparison: &Comparison,
        places: &[usize],
        metric: &Metric,
        by: &[Key],
        values: &dyn Fn(usize) -> Values,
    ) -> Self {
        let runs = &comparison.runs;
        let has = |status: &str| places.iter().any(|&place| runs[place].status == status);
        let status = if !has(FINISHED) && has(STOPPED) { STOPPED } else { FINISHED };
        let mut groups = comparison.settings(places, status, metric);
        let is_told = |key: &&String| *key != "name" && varies_setting(key);
        let mut keys: Vec<String> = comparison.axes.iter().filter(is_told).cloned().collect();
        if by.is_empty() {
            // Lab runs have other keys and are not ranked.
            let ranked = places.iter().filter(|&&place| metric.value(&runs[place]).is_some());
            let kinds = distinct(ranked.map(|&place| runs[place].kind()));
            let is_alike = |place: &usize| kinds.is_empty() || kinds.contains(&runs[*place].kind());
            let alike: Vec<usize> = places.iter().copied().filter(is_alike).collect();
            // A trial that was not run has its sweep's axes but no spec, so it cannot differ in anything
            // else.
            let value = |key: &String, place: usize| match runs[place].axis(key) {
                None if runs[place].spec.is_none() => None,
                value => Some(value),
            };
            keys.retain(|key| distinct(alike.iter().filter_map(|&place| value(key, place))).len() > 1);
            let alike: Vec<&Run> = alike.iter().map(|&place| &runs[place]).collect();
            keys.retain(|key| !differences::names_same_rows(key, &alike));
            differences::keep_telling(&mut keys, &alike);
        } else {
            groups = grouped(groups.into_iter().flatten().map(|place| (values(place), place)))
                .into_iter()
                .map(|(_, places)| places)
                .collect();
            keys = by.iter().map(|key| key.name().to_owned()).collect();
        }
        let value = |key: usize, run: &Run| match by.get(key) {
            Some(key) => key.value(run).map(str::to_owned),
            None => run.axis(&keys[key]).map(str::to_owned),
        };
        let is_folded = |axis: &&String| is_told(axis) && !by.iter().any(|key| key.stands_for(axis));
        let folded: Vec<&String> =
            comparison.axes.iter().filter(|_| !by.is_empty()).filter(is_folded).collect();
        let each = sample_of(runs, places, &groups, metric);
        let configurations = of_runs(&comparison.configurations, runs.len());
        let setting = |places: Vec<usize>| {
            let values =
                (0..keys.len()).map(|key| value(key, &runs[places[0]]).unwrap_or_else(|| "-".to_owned()));
            let own = distinct(places.iter().filter_map(|&place| configurations[place]));
            let lost = own.into_iter().map(|index| comparison.configurations[index].lost).sum();
            let own = Candidate::new(values.collect(), places, (runs, metric, each), &folded)?;
            Some(Candidate { lost, ..own })
        };
        let settings: Vec<Candidate> = groups.into_iter().filter_map(setting).collect();
        let mut settings = sorted(settings, metric);
        JudgingRows::share(settings.iter_mut().map(|setting| &mut setting.rows));
        let most = settings.iter().map(|setting| setting.combinations[0]).max().unwrap_or(1);
        settings.iter_mut().for_each(|setting| setting.combinations[1] = most);
        let is_ranked = |run: &Run| run.status == status && metric.value(run).is_some();
        let left_out = places.iter().copied().filter(|&place| !is_ranked(&runs[place]));
        let left_out = left_out.filter(|&place| runs[place].status != SAME_AS).collect();
        Self { metric: metric.clone(), keys, settings, pairs: 0, each, status, left_out }
    }

    /// Whether all that would be ranked are final models.
    pub(in crate::report) fn has_final_models_alone(&self, comparison: &Comparison) -> bool {
        let mut all = self.left_out.iter().map(|&place| &comparison.runs[place]);
        self.settings.is_empty() && !self.left_out.is_empty() && all.all(Run::is_final_model)
    }

    /// `#12 lr 0.03 width 32`.
    pub(in crate::report) fn name(&self, comparison: &Comparison, setting: &Candidate) -> String {
        self.name_of(comparison, &setting.places, setting.values.iter().map(String::as_str))
    }

    /// The same for a run that is not ranked, with how it ended, and with its seed if that tells it from others.
    pub(in crate::report) fn name_left_out(
        &self,
        comparison: &Comparison,
        place: usize,
        has_seeds: bool,
    ) -> String {
        let run = &comparison.runs[place];
        let values = self.keys.iter().map(|key| run.axis(key).unwrap_or_default());
        let seed = run.axis("seed").filter(|_| has_seeds);
        let seed = seed.map(|seed| format!(", seed {seed}")).unwrap_or_default();
        format!("{}{seed}, {}", self.name_of(comparison, &[place], values), run.status)
    }

    /// The indices of all its runs.
    pub(in crate::report) fn all_places(&self) -> Vec<usize> {
        let ranked = self.settings.iter().flat_map(|setting| &setting.places);
        ranked.chain(&self.left_out).copied().collect()
    }

    /// The same of some runs of the setting, by the first of them.
    pub(in crate::report) fn name_of<'a>(
        &self,
        comparison: &Comparison,
        places: &[usize],
        values: impl Iterator<Item = &'a str>,
    ) -> String {
        comparison.numbered(places) + &named(&self.keys, values)
    }

    /// Settings that lack seeds that others have, and rank as having fewer: there, each fold of a seed counts.
    pub(in crate::report) fn lacking_seeds(&self) -> impl Iterator<Item = &Candidate> {
        let most = |count: fn(&Candidate) -> usize| self.settings.iter().map(count).max().unwrap_or(0);
        let most = [most(Candidate::seeds), most(|own| own.ranked().count())];
        let lacks = move |own: &&Candidate| own.seeds() < most[0] && own.ranked().count() < most[1];
        self.settings.iter().filter(|_| self.metric.is_learned).filter(lacks)
    }

    /// Whether a setting is ranked behind all that can be compared with the best.
    pub(in crate::report) fn comes_last(&self, setting: &Candidate) -> bool {
        let best = self.settings.first();
        self.metric.is_learned && best.is_some_and(|best| setting.ranked().comes_last(&best.ranked()))
    }

    /// Where a setting validates on several folds of its data: those that do not so on all of them, or not with each seed.
    pub(in crate::report) fn lacking_folds<'a>(
        &'a self,
        runs: &'a [Run],
    ) -> impl Iterator<Item = &'a Candidate> {
        let taken = |setting: &Candidate| -> Vec<usize> {
            match self.each {
                SampleUnit::Fold => vec![setting.samples.len()],
                _ => {
                    let of_seeds = |own: &'_ Sample| -> Vec<usize> {
                        own.of.chunk_by(|[seed, _], [next, _]| seed == next).map(<[_]>::len).collect()
                    };
                    setting.samples.iter().flat_map(of_seeds).collect()
                }
            }
        };
        let are_several = self.settings.iter().flat_map(taken).any(|taken| taken > 1);
        let all = |own: &Candidate| {
            own.places.iter().find_map(|&place| runs[place].axis("data.folds")?.parse::<usize>().ok())
        };
        let lacks =
            move |own: &&Candidate| all(own).is_some_and(|all| taken(own).iter().any(|taken| *taken < all));
        self.settings.iter().filter(move |own| are_several && lacks(own))
    }

    /// Settings that are better than the best on the seeds that both have, or by their means if they share none: they lost seeds,
    /// have none in common with it, or other seeds decided.
    pub(in crate::report) fn ahead(&self) -> impl Iterator<Item = &Candidate> {
        self.settings.iter().skip(1).filter(|setting| self.is_ahead(setting))
    }

    /// Settings that other rows judge than the best: nothing is known of which is better.
    pub(in crate::report) fn of_other_rows(&self) -> impl Iterator<Item = &Candidate> {
        self.settings.iter().skip(1).filter(|setting| self.settings[0].is_of_other_rows(setting))
    }

    fn is_ahead(&self, setting: &Candidate) -> bool {
        // Of equal means a difference is the rounding of sums.
        let least = ROUNDING * setting.value.abs();
        let is_lower = |own: MeanDifference| self.metric.cost(own.mean) < -least;
        setting.difference.is_some_and(is_lower) && !self.settings[0].is_of_other_rows(setting)
    }

    /// Settings that are not significantly worse than the best, without its equals and those that are ahead or of other rows.
    pub(in crate::report) fn rivals(&self) -> impl Iterator<Item = &Candidate> {
        let is_rival = |setting: &&Candidate| {
            !self.is_ahead(setting) && !setting.is_told_apart() && !self.settings[0].is_of_other_rows(setting)
        };
        self.settings.iter().skip(1).filter(|own| !self.equals_best(own)).filter(is_rival)
    }
}

impl Candidate {
    fn new(
        values: Vec<String>,
        places: Vec<usize>,
        (runs, metric, each): (&[Run], &Metric, SampleUnit),
        folded: &[&String],
    ) -> Option<Self> {
        let known = places.iter().filter_map(|&place| Some((place, metric.value(&runs[place])?)));
        let mut known: Vec<(usize, f64)> = known.collect();
        let combination = |place: usize| folded.iter().map(|axis| runs[place].axis(axis)).collect::<Vec<_>>();
        let combined = grouped(known.iter().map(|&(place, value)| (combination(place), (place, value))));
        let of_combinations: Vec<Vec<Sample>> =
            combined.iter().map(|(_, values)| samples(values, runs, each)).collect();
        let (samples, incomplete) = fold(&of_combinations);
        if samples.is_empty() {
            return None;
        }
        let rows = JudgingRows::new(runs, &places, metric);
        let dependence = Dependence::new(each, (runs, &places), &rows, &samples);
        let mean = MeanDifference::from_bound(&samples, 0.0, dependence);
        let fold = |place: usize| runs[place].fold_in_order();
        known.sort_by(|a, b| fold(b.0).cmp(&fold(a.0)).then(metric.cost(a.1).total_cmp(&metric.cost(b.1))));
        let places = known.into_iter().map(|(place, _)| place).collect();
        let combinations = [of_combinations.len(); 2];
        Some(Self {
            values,
            places,
            samples,
            each,
            dependence,
            rows,
            combinations,
            lost: 0,
            incomplete,
            value: mean.mean,
            interval: mean.interval.map(|interval| metric.within_range(interval)),
            difference: None,
            p: None,
        })
    }

    /// The number of its seeds; of one seed, that of its folds.
    fn seeds(&self) -> usize {
        let of_sample = |own: &Sample| match self.each {
            SampleUnit::Split => distinct(own.of.iter().map(|[seed, _]| seed)).len().max(1),
            _ => 1,
        };
        self.samples.iter().map(of_sample).sum()
    }

    fn ranked(&self) -> Ranked<'_> {
        Ranked { samples: &self.samples, has_lost: self.lost > 0 }
    }

    /// Its mean minus `factor` times that of another; without interval and p-value if other rows judge it.
    pub(in crate::report) fn minus(&self, other: &Self, factor: f64) -> MeanDifference {
        let dependence = |shared: Option<&[Vec<&SeedsAndFold>]>| self.dependence_with(other, shared);
        match self.is_of_other_rows(other) {
            true => MeanDifference::untested(&self.samples, &other.samples, factor),
            false => MeanDifference::new(&self.samples, &other.samples, factor, dependence),
        }
    }

    pub(in crate::report) fn p_of_difference(&self, other: &Self) -> Option<f64> {
        let dependence = |shared: Option<&[Vec<&SeedsAndFold>]>| self.dependence_with(other, shared);
        MeanDifference::without_interval(&self.samples, &other.samples, 1.0, dependence).p
    }

    /// What differences from another have in common: of pairs of some of the runs what these have.
    fn dependence_with(&self, other: &Self, shared: Option<&[Vec<&SeedsAndFold>]>) -> Dependence {
        let of_all = self.dependence.or(other.dependence);
        match shared.filter(|_| of_all.has_interval() && self.each != SampleUnit::Run) {
            Some(shared) => Dependence::from_rows(self.each, &self.rows, shared),
            None => of_all,
        }
    }

    /// Whether other rows judge it than another: a difference of the two says nothing of them.
    pub(in crate::report) fn is_of_other_rows(&self, other: &Self) -> bool {
        self.rows.differ(&other.rows)
    }

    /// Whether its difference from the best is significant, or, of folds in the order of rows, of one sign on all of them.
    fn is_told_apart(&self) -> bool {
        match self.p {
            Some(p) => p <= ALPHA,
            None => self.is_in_order() && self.difference.is_some_and(|own| own.excludes_0()),
        }
    }

    /// Whether its samples are of folds in the order of rows.
    pub(in crate::report) fn is_in_order(&self) -> bool {
        self.dependence == Dependence::InOrder
    }

    /// Whether runs of it do not record which rows they validate on.
    pub(in crate::report) fn lacks_rows(&self) -> bool {
        self.dependence == Dependence::Unknown
    }

    /// Whether there is a p-value, or a range, of its difference from the best.
    pub(in crate::report) fn is_tested(&self) -> bool {
        let has_range = || self.difference.is_some_and(|own| own.interval.is_some());
        self.p.is_some() || (self.is_in_order() && has_range())
    }

    /// `, n 5`; nothing of one sample.
    pub(in crate::report) fn counted(&self) -> String {
        match self.samples.len() {
            0 | 1 => String::new(),
            count if self.is_in_order() => {
                let is_of_several = |own: &Sample| own.of.len() > 1;
                let each = if self.samples.iter().any(is_of_several) { "seeds" } else { "folds" };
                format!(", range over {count} {each}")
            }
            count => format!(", n {count}"),
        }
    }
}

/// Best first, as the sweep itself ranks them.
fn sorted(settings: Vec<Candidate>, metric: &Metric) -> Vec<Candidate> {
    let ranked: Vec<Ranked<'_>> = settings.iter().map(Candidate::ranked).collect();
    let order = order(&ranked, metric.is_learned, &|value| metric.cost(value));
    let mut settings: Vec<Option<Candidate>> = settings.into_iter().map(Some).collect();
    order.into_iter().filter_map(|place| settings[place].take()).collect()
}

impl Comparison {
    /// Groups the runs at `places` with this status that differ only in the seed; a measured metric also
    /// distinguishes machines.
    fn settings(&self, places: &[usize], status: &str, metric: &Metric) -> Vec<Vec<usize>> {
        let of_places: std::collections::HashSet<usize> = places.iter().copied().collect();
        let is_ranked = |place: &usize| of_places.contains(place) && self.runs[*place].status == status;
        let of_setting = |(place, c): (usize, &'_ Configuration)| {
            let key = if metric.is_learned { c.setting } else { place };
            c.places.iter().copied().filter(is_ranked).map(|place| (key, place)).collect::<Vec<_>>()
        };
        let runs = self.configurations.iter().enumerate().flat_map(of_setting);
        grouped(runs).into_iter().map(|(_, places)| places).collect()
    }
}

#[cfg(test)]
mod tests;
