//! Compares two groups of runs setting by setting, matched by the axes that both have.

use crate::{
    report::{
        ReportError,
        answer::caveats,
        comparison::Comparison,
        grouping::distinct,
        key::{Key, short},
        matching::{Group, Spelling, axes_of_both, lost_in_words},
        metric::Metric,
        ranking::{Candidate, Values},
        statistics::MeanDifference,
    },
    units,
};

/// Settings that two groups share.
pub(in crate::report) struct Matched {
    pub(in crate::report) keys: Vec<String>,
    pub(in crate::report) pairs: Vec<Pair>,
    /// Settings of both that have no result in one of them.
    pub(in crate::report) lost: Vec<Lost>,
    /// Runs of `own` and of `base`, of settings that both have, that finished without a value of the metric.
    pub(in crate::report) unmeasured: [Vec<usize>; 2],
    /// Settings that `own` alone has, and those that `base` alone has: one run of each.
    pub(in crate::report) alone: [Vec<usize>; 2],
}

/// A setting of both groups.
pub(in crate::report) struct Pair {
    pub(in crate::report) own: Candidate,
    pub(in crate::report) base: Candidate,
    /// `own` minus `base`.
    pub(in crate::report) difference: MeanDifference,
    /// Those of its runs in `own` and in `base` that have no result.
    pub(in crate::report) without_result: [Vec<usize>; 2],
}

/// A setting of both groups that has no result in one of them.
pub(in crate::report) struct Lost {
    /// Its values of the keys.
    pub(in crate::report) values: Vec<String>,
    /// Those of its runs in `own` and in `base` that have no result.
    pub(in crate::report) without_result: [Vec<usize>; 2],
    /// How many of them have one.
    pub(in crate::report) with_result: [usize; 2],
}

/// Runs of a setting of one of the groups that have no result.
pub(in crate::report) struct Unjudged {
    /// The group's number.
    pub(in crate::report) group: usize,
    /// `lr 0.1: baseline: 5 of 8 runs diverged (#0, 2)`.
    pub(in crate::report) words: String,
    /// Whether they are still to end.
    pub(in crate::report) is_under_way: bool,
}

impl Pair {
    /// Whether samples of one of the two are of folds in the order of rows.
    pub(in crate::report) fn is_in_order(&self) -> bool {
        self.own.is_in_order() || self.base.is_in_order()
    }

    /// Why there is no interval for the difference.
    pub(in crate::report) fn too_few(&self) -> &'static str {
        match self.own.samples.len().max(self.base.samples.len()) {
            _ if self.own.is_of_other_rows(&self.base) => "other validation rows: no interval",
            1 => "one run each: no interval",
            _ if self.own.lacks_rows() || self.base.lacks_rows() => {
                "runs do not record their validation rows: no interval"
            }
            _ if self.is_in_order() && self.difference.pairs == 0 => "they share no folds: no range",
            _ => "too few runs for an interval",
        }
    }

    fn new(mut own: Candidate, base: Candidate, without_result: [Vec<usize>; 2]) -> Self {
        // A table that only one of them sweeps has no single value in the other's spec.
        for (value, of_base) in own.values.iter_mut().zip(&base.values).filter(|(value, _)| *value == "-") {
            value.clone_from(of_base);
        }
        let difference = own.minus(&base, 1.0);
        Self { own, base, difference, without_result }
    }
}

impl Matched {
    /// Matches settings by the keys of `by`, or, if there are none, by the axes of both groups.
    ///
    /// # Errors
    /// A key of `by` is unknown.
    pub(in crate::report) fn new(
        own: &Comparison,
        base: &Comparison,
        metric: &Metric,
        by: &[String],
    ) -> Result<Self, ReportError> {
        let groups = [own, base];
        let [mut own, mut base] = match by {
            [] => {
                let axes = axes_of_both(groups, metric);
                let spelling = Spelling::new(groups, &axes);
                groups.map(|group| Group::by_axes(group, metric, &axes, spelling))
            }
            by => {
                let keys = |group: &Comparison| {
                    by.iter().map(|word| Key::new(word, &group.runs)).collect::<Result<Vec<_>, _>>()
                };
                let keys = [keys(own)?, keys(base)?];
                let spelling = Spelling::new(groups, &keys[0]);
                let [of_own, of_base] = keys;
                [(own, of_own), (base, of_base)]
                    .map(|(group, keys)| Group::by_words(group, metric, keys, spelling))
            }
        };
        let keys: Vec<String> = own.keys.iter().map(|key| key.name().to_owned()).collect();
        let groups = [&own, &base];
        let without_result = |values| groups.map(|group| group.without_result(values));
        let is_ranked = |values: &&Values| groups.iter().all(|group| group.settings.contains_key(*values));
        let lost = own.shared(&base).filter(|values| !is_ranked(values)).map(|values| Lost {
            values: own.words(values),
            without_result: without_result(values),
            with_result: groups
                .map(|group| group.settings.get(values).map_or(0, |setting| setting.places.len())),
        });
        let mut lost: Vec<Lost> = lost.collect();
        let unmeasured = groups
            .map(|group| own.shared(&base).flat_map(|values| group.unmeasured(values)).collect::<Vec<_>>());
        lost.sort_by(|a, b| a.values.cmp(&b.values));
        let alone = [(&own, &base), (&base, &own)].map(|(group, other)| group.alone(other));
        let ranked = own.settings.keys().filter(is_ranked);
        let ranked: Vec<_> = ranked.map(|values| (values.clone(), without_result(values))).collect();
        let pair = |(values, without_result): (Values, _)| {
            let [own, base] = [&mut own, &mut base].map(|group| group.settings.swap_remove(&values));
            Some(Pair::new(own?, base?, without_result))
        };
        let pairs: Vec<Pair> = ranked.into_iter().filter_map(pair).collect();
        Ok(Self { keys, pairs, lost, unmeasured, alone })
    }

    /// Says that the two groups share no setting with results; `None` if they do.
    pub(in crate::report) fn share_nothing(&self) -> Option<String> {
        let words = || format!("no finished runs of both share a setting of {}", self.keys.join(", "));
        self.pairs.is_empty().then(words)
    }

    /// Whether a setting validates on other rows in one group than in the other: that is another task.
    pub(in crate::report) fn have_other_rows(&self) -> bool {
        self.pairs.iter().any(|pair| pair.own.is_of_other_rows(&pair.base))
    }

    /// Sentences on what the intervals of `own` and of `base` do not say, with the name of the one of which alone a sentence is true.
    pub(in crate::report) fn caveats(
        &self,
        metric: &Metric,
        groups: [&Comparison; 2],
        names: [&str; 2],
    ) -> Vec<String> {
        let of_own = caveats(metric, self.pairs.iter().map(|pair| (groups[0], &pair.own)));
        let of_base = caveats(metric, self.pairs.iter().map(|pair| (groups[1], &pair.base)));
        let named = |words: &String| match [&of_own, &of_base].map(|own| own.contains(words)) {
            [true, false] => format!("{}: {words}", names[0]),
            [false, true] => format!("{}: {words}", names[1]),
            _ => words.clone(),
        };
        distinct(of_base.iter().chain(&of_own)).into_iter().map(named).collect()
    }

    /// `lr 0.01 width 32`; empty if no axis is shared.
    pub(in crate::report) fn name(&self, pair: &Pair) -> String {
        self.words(&pair.own.values)
    }

    /// For each setting of a group some of whose runs have no result those that ended, and those that are under way, by the names of
    /// `own` and of `base`.
    pub(in crate::report) fn lost_in_words(
        &self,
        groups: [&Comparison; 2],
        names: [&str; 2],
    ) -> Vec<Unjudged> {
        let of_pair = |pair: &'_ Pair, group: usize| [&pair.own, &pair.base][group].places.len();
        let pairs = self
            .pairs
            .iter()
            .map(|pair| (&pair.own.values, &pair.without_result, [0, 1].map(|group| of_pair(pair, group))));
        let lost = self.lost.iter().map(|lost| (&lost.values, &lost.without_result, lost.with_result));
        let lines = pairs.chain(lost).flat_map(|(values, without, with)| {
            let name = self.words(values);
            let name = if name.is_empty() { name } else { format!("{name}: ") };
            [0, 1].into_iter().flat_map(move |group| {
                let all = with[group] + without[group].len();
                let is_to_end = |place: &usize| groups[group].is_under_way(*place);
                let (to_end, ended): (Vec<usize>, Vec<usize>) =
                    without[group].iter().partition(|own| is_to_end(own));
                let parts =
                    [(ended, false), (to_end, true)].into_iter().filter(|(places, _)| !places.is_empty());
                let name = name.clone();
                parts.map(move |(places, is_under_way)| {
                    let words = lost_in_words(groups[group], &places, all);
                    Unjudged { group, words: format!("{name}{}{words}", names[group]), is_under_way }
                })
            })
        });
        lines.collect()
    }

    /// What of `own` and of `base`, if there is one, is not held against a bound: runs that finished without a value of the metric,
    /// and settings that the other lacks.
    pub(in crate::report) fn left_out_in_words(
        &self,
        metric: &Metric,
        own: &Comparison,
        base: Option<&Comparison>,
    ) -> Vec<String> {
        let groups =
            [(own, "", "the baseline lacks"), (base.unwrap_or(own), "baseline: ", "these runs lack")];
        let known = groups.into_iter().zip(&self.unmeasured).zip(&self.alone);
        let mut lines = Vec::new();
        for (((group, name, lacks), unmeasured), alone) in known.take(1 + usize::from(base.is_some())) {
            let numbered = |places: &[usize], noun: &str| {
                let is_some = !places.is_empty();
                is_some.then(|| (units::counted(places.len() as u64, noun), group.numbers(places)))
            };
            let unmeasured = numbered(unmeasured, "run");
            let words = unmeasured
                .map(|(runs, numbers)| format!("{name}{runs} finished without {} ({numbers})", metric.name));
            lines.extend(words);
            let alone = numbered(alone, "setting");
            lines.extend(
                alone.map(|(settings, numbers)| format!("{name}{settings} that {lacks} ({numbers})")),
            );
        }
        lines
    }

    /// The values of a setting with their keys.
    pub(in crate::report) fn words(&self, values: &[String]) -> String {
        let words = short(&self.keys).into_iter().zip(values).map(|(key, value)| format!("{key} {value}"));
        words.collect::<Vec<_>>().join(" ")
    }
}
