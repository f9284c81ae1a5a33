//! What the values of a setting are samples of: its folds, its seeds, or the splits that several seeds share.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};

/// What random numbers and rows a trial has: its seeds together, and its fold, as text.
pub type SeedsAndFold = [String; 2];

/// How a sample is known that is a fold: only one of the same fold can be paired with it, whatever the seed.
const OF_FOLD: &str = "fold ";

/// Whether a sample is this fold.
pub fn is_of_fold([name, _]: &SeedsAndFold, fold: &str) -> bool {
    name.strip_prefix(OF_FOLD) == Some(fold)
}

/// A value of a trial.
#[derive(Clone, Debug)]
pub struct TrialValue {
    pub of: SeedsAndFold,
    /// What its validation rows are known by among the trials of its setting; `None` if they are not known.
    pub rows: Option<String>,
    pub value: f64,
}

/// What one sample of a setting is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SampleUnit {
    /// One value of a measured metric, such as a time.
    Run,
    /// All trials have one seed.
    Fold,
    /// The folds of a seed share most of their rows.
    Seed,
    /// All seeds that validate on the same rows, where others validate on other rows: of these rows they are one draw.
    Split,
}

impl fmt::Display for SampleUnit {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Run => "run",
            Self::Fold => "fold",
            Self::Seed => "seed",
            Self::Split => "split",
        })
    }
}

/// The mean of some values of a setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What its values are of, sorted. Only values of the same seeds and fold can be paired; it has none where that is not known.
    pub of: Vec<SeedsAndFold>,
    /// One for each of `of`.
    values: Vec<f64>,
    /// Their mean.
    pub value: f64,
}

impl Sample {
    pub fn new(values: impl IntoIterator<Item = (SeedsAndFold, f64)>) -> Self {
        let (of, values): (Vec<_>, Vec<f64>) = values.into_iter().unzip();
        let value = mean(&values);
        Self { of, values, value }
    }

    /// A value that nothing can be paired with.
    pub fn unpaired(value: f64) -> Self {
        Self { of: Vec::new(), values: Vec::new(), value }
    }

    /// The mean of samples of the same seeds and folds.
    pub fn mean_of(samples: &[Self]) -> Self {
        let value = |at: usize| mean(&samples.iter().map(|own| own.values[at]).collect::<Vec<_>>());
        let of = samples.first().map(|first| first.of.as_slice()).unwrap_or_default();
        Self::new(of.iter().cloned().enumerate().map(|(at, of)| (of, value(at))))
    }

    /// A value for each of its folds: of a split the mean over its seeds.
    pub fn by_fold(&self) -> Vec<f64> {
        if self.of.len() < 2 { vec![self.value] } else { by_fold(self.iter()) }
    }

    fn iter(&self) -> impl Iterator<Item = (&SeedsAndFold, f64)> {
        self.of.iter().zip(self.values.iter().copied())
    }

    /// Its mean over the folds that another has; `None` if it has none of them.
    pub(super) fn on_folds_of(&self, other: &Self) -> Option<f64> {
        let is_shared = |[_, fold]: &SeedsAndFold| other.of.iter().any(|[_, own]| own == fold);
        let shared: Vec<f64> = self.iter().filter(|(of, _)| is_shared(of)).map(|(_, value)| value).collect();
        if other.of.is_empty() { Some(self.value) } else { (!shared.is_empty()).then(|| mean(&shared)) }
    }
}

/// What a sample is of, if the trials of `settings` are ranked together.
pub fn sample_unit(settings: &[Vec<(SeedsAndFold, Option<String>)>]) -> SampleUnit {
    let all = || settings.iter().flatten().map(|(of, _)| of);
    if differ(all(), 1) && !differ(all(), 0) {
        return SampleUnit::Fold;
    }
    let are_shared = settings.iter().any(|own| {
        let splits = splits(own.iter().map(|(of, rows)| (of, rows.as_deref())));
        let count = splits.values().collect::<BTreeSet<_>>().len();
        count > 1 && count < splits.len()
    });
    if are_shared { SampleUnit::Split } else { SampleUnit::Seed }
}

/// The samples of a setting. Values of the same seeds and fold count once, by their mean, unless a sample is a run.
pub fn samples(values: &[TrialValue], unit: SampleUnit) -> Vec<Sample> {
    if unit == SampleUnit::Run {
        return values.iter().map(|own| Sample::new([(own.of.clone(), own.value)])).collect();
    }
    let splits = match unit {
        SampleUnit::Split => splits(values.iter().map(|own| (&own.of, own.rows.as_deref()))),
        _ => BTreeMap::new(),
    };
    let mut samples: BTreeMap<String, BTreeMap<SeedsAndFold, Vec<f64>>> = BTreeMap::new();
    for TrialValue { of, value, .. } in values {
        let [seed, fold] = of;
        let (name, of) = match unit {
            SampleUnit::Fold => (fold.clone(), [format!("{OF_FOLD}{fold}"), String::new()]),
            SampleUnit::Run | SampleUnit::Seed => (seed.clone(), of.clone()),
            SampleUnit::Split => (splits[&**seed].to_owned(), of.clone()),
        };
        samples.entry(name).or_default().entry(of).or_default().push(*value);
    }
    let sample = |values: BTreeMap<SeedsAndFold, Vec<f64>>| {
        Sample::new(values.into_iter().map(|(of, values)| (of, mean(&values))))
    };
    samples.into_values().map(sample).collect()
}

/// For each seed the first of those that share validation rows with it in any fold, directly or through others.
fn splits<'a>(
    values: impl Iterator<Item = (&'a SeedsAndFold, Option<&'a str>)>,
) -> BTreeMap<&'a str, &'a str> {
    let mut seeds: BTreeMap<&str, Vec<[&str; 2]>> = BTreeMap::new();
    for ([seed, fold], rows) in values {
        seeds.entry(seed).or_default().extend(rows.map(|rows| [fold, rows]));
    }
    let mut groups = Groups::new(seeds.len());
    let mut first_with: HashMap<[&str; 2], usize> = HashMap::new();
    for (seed, rows) in seeds.values().enumerate() {
        rows.iter().for_each(|rows| groups.join(seed, *first_with.entry(*rows).or_insert(seed)));
    }
    let names: Vec<&str> = seeds.into_keys().collect();
    names.iter().enumerate().map(|(seed, name)| (*name, names[groups.first(seed)])).collect()
}

/// The values of two settings, in pairs.
pub struct Paired<'a> {
    pub values: Vec<(f64, f64)>,
    /// The values of each of their folds.
    pub folds: Vec<(f64, f64)>,
    /// What each pair is of, where that is not all that both settings have.
    pub shared: Option<Vec<Vec<&'a SeedsAndFold>>>,
}

/// A pair for each sample that both have, of the seeds and folds that both have of it. Samples of one that are a single one of the
/// other give one pair. `None` where settings are compared by the means of all their values: they share none, or one of several.
pub fn pairs<'a>(own: &'a [Sample], other: &'a [Sample]) -> Option<Paired<'a>> {
    if own.len() == other.len() && own.iter().zip(other).all(|(a, b)| a.of == b.of && !a.of.is_empty()) {
        let both = || own.iter().zip(other);
        let values: Vec<_> = both().map(|(own, other)| (own.value, other.value)).collect();
        let of_pair = |(own, other): (&Sample, &Sample)| own.by_fold().into_iter().zip(other.by_fold());
        let folds = match own.iter().all(|own| own.of.len() == 1) {
            true => values.clone(),
            false => both().flat_map(of_pair).collect(),
        };
        return Some(Paired { values, folds, shared: None });
    }
    let of_other: HashMap<&SeedsAndFold, (usize, f64)> = other
        .iter()
        .enumerate()
        .flat_map(|(at, sample)| sample.iter().map(move |(of, value)| (of, (at, value))))
        .collect();
    let of_own = own.iter().enumerate().flat_map(|(at, own)| own.iter().map(move |cell| (at, cell)));
    let shared: Vec<_> = of_own
        .filter_map(|(at, (of, value))| {
            let (at_other, of_value) = of_other.get(of)?;
            Some(([at, own.len() + at_other], of, (value, *of_value)))
        })
        .collect();
    let mut groups = Groups::new(own.len() + other.len());
    shared.iter().for_each(|([at, at_other], ..)| groups.join(*at, *at_other));
    let mut paired: BTreeMap<usize, (Vec<_>, Vec<_>)> = BTreeMap::new();
    for ([at, _], of, values) in shared {
        let (all, pairs) = paired.entry(groups.first(at)).or_default();
        all.push(of);
        pairs.push(values);
    }
    let mut count =
        |places: std::ops::Range<usize>| places.map(|at| groups.first(at)).collect::<BTreeSet<_>>().len();
    let fewest = count(0..own.len()).min(count(own.len()..own.len() + other.len()));
    let (mut shared, mut values, mut folds) = (Vec::new(), Vec::new(), Vec::new());
    for (of, own) in paired.into_values() {
        let sides = [|pair: &(f64, f64)| pair.0, |pair: &(f64, f64)| pair.1];
        let [own, other] = sides.map(|side| own.iter().map(side).collect::<Vec<f64>>());
        values.push((mean(&own), mean(&other)));
        let [own, other] = [own, other].map(|own| by_fold(of.iter().copied().zip(own)));
        folds.extend(own.into_iter().zip(other));
        shared.push(of);
    }
    let is_enough = values.len() > 1 || (values.len() == 1 && fewest == 1);
    is_enough.then_some(Paired { values, folds, shared: Some(shared) })
}

/// The mean of each fold.
fn by_fold<'a>(values: impl Iterator<Item = (&'a SeedsAndFold, f64)>) -> Vec<f64> {
    let mut folds: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    values.for_each(|([_, fold], value)| folds.entry(fold).or_default().push(value));
    folds.values().map(mean).collect()
}

/// Disjoint sets of numbers, each known by its first.
struct Groups(Vec<usize>);

impl Groups {
    fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    fn first(&mut self, mut at: usize) -> usize {
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.first(a), self.first(b));
        self.0[a.max(b)] = a.min(b);
    }
}

/// Whether trials differ in their seeds (part 0), or in their folds (part 1).
pub(super) fn differ<'a>(mut all: impl Iterator<Item = &'a SeedsAndFold>, part: usize) -> bool {
    let first = all.next();
    all.any(|own| first.is_some_and(|first| first[part] != own[part]))
}

/// The mean; if all values are equal, exactly that value, without rounding. Not a number without values.
pub fn mean<'a>(values: impl IntoIterator<Item = &'a f64, IntoIter: Clone>) -> f64 {
    let values = values.into_iter();
    let mut rest = values.clone();
    let first = rest.next().copied().unwrap_or(f64::NAN);
    match rest.all(|value| *value == first) {
        true => first,
        false => values.clone().sum::<f64>() / values.count() as f64,
    }
}
