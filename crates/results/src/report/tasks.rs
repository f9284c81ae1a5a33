//! Determines which runs have the same learning task: only their losses can be compared.

use super::{
    axes::{differences, file_name, is_path},
    grouping::grouped,
    metric::Metric,
    run::{FOLD, Run},
};
use crate::{files::Leaves, run::SEEDS};

/// Keys of `[data]` that change neither targets nor the rows that validate.
const HARMLESS: [&str; 13] = [
    "data.batch_size",
    "data.fold",
    "data.placement",
    "data.shuffle",
    "data.shuffle_seed",
    // If absent, the run's seed is used.
    "data.split.seed",
    "data.csv.missing_indicators",
    "data.csv.standardize",
    "data.idx.scale",
    "data.parquet.missing_indicators",
    "data.parquet.standardize",
    "data.synthetic_classification.train_rows",
    "data.synthetic_regression.train_rows",
];

/// Keys that choose features; if rows with missing cells are dropped, they affect the rows too.
const FEATURES: [&str; 6] = [
    "data.csv.features",
    "data.csv.ignore",
    "data.csv.categorical",
    "data.parquet.features",
    "data.parquet.ignore",
    "data.parquet.categorical",
];

/// The keys that say what is minimized, and in which unit: metrics of the same rows do not depend on them.
const LOSS: [&str; 4] =
    ["model.loss", "model.class_weights", "data.csv.standardize_target", "data.parquet.standardize_target"];

/// The keys of weights of rows.
const WEIGHTS: [&str; 2] = ["data.csv.weight", "data.parquet.weight"];

/// The name for the digest of the data in messages.
const DATA: &str = "the data";

/// Trainings grouped by task.
#[derive(Clone, Debug, Default)]
pub(super) struct Tasks {
    /// Indices of the runs of each task, in the order of its first run.
    groups: Vec<Vec<usize>>,
    /// The keys in which tasks differ: the data, the loss, keys of `[data]`.
    keys: Vec<String>,
    /// What cannot be compared between them.
    what: &'static str,
}

impl Tasks {
    /// Those whose losses can be compared.
    pub(super) fn new(runs: &[Run]) -> Self {
        Self::told_by(runs, "losses", |_| true)
    }

    /// Those in which a metric can be compared, if they are not those of losses: of validations every metric but the loss is of
    /// targets and predictions alone, in the units of the data, so that the loss makes no other task; nor do weights of rows, by
    /// which metrics of classes do not go.
    pub(super) fn of_metric(runs: &[Run], metric: &Metric) -> Option<Self> {
        match metric.full_name().strip_prefix("validation.")? {
            "loss" => None,
            "mae" | "rmse" | "r2" => Some(Self::of_rows(runs)),
            _ => {
                let is_told = |key: &str| !is_one_of(key, &LOSS) && !is_one_of(key, &WEIGHTS);
                Some(Self::told_by(runs, "metrics", is_told))
            }
        }
    }

    /// Those of the same rows, targets and weights, whatever is minimized.
    pub(super) fn of_rows(runs: &[Run]) -> Self {
        Self::told_by(runs, "metrics", |key| !is_one_of(key, &LOSS))
    }

    fn told_by(runs: &[Run], what: &'static str, tells: fn(&str) -> bool) -> Self {
        let trainings = || {
            let with_spec = runs.iter().enumerate().filter(|(_, run)| run.kind() == "train");
            with_spec.filter_map(|(place, run)| Some((place + 1, run, run.spec.as_ref()?)))
        };
        // A run that was killed at its start has no digest: if there is one, data files are identified by their names instead.
        let is_known = trainings().all(|(_, run, _)| run.digest().is_some());
        // Most runs are alike in all that a task is made of.
        let differ: Vec<&str> = differences::keys(trainings().map(|(_, _, spec)| spec))
            .into_iter()
            .filter(|key| tells(key) && (is_one_of(key, &LOSS) || key.starts_with("data.")))
            .collect();
        let alike = grouped(trainings().map(|(number, run, spec)| {
            let values: Vec<Option<&str>> = differ.iter().map(|key| spec.get(key)).collect();
            ((values, digest(run, is_known)), (number, run, spec))
        }));
        let tasks: Vec<(Leaves, Vec<usize>)> = alike
            .into_iter()
            .map(|(_, runs)| {
                let (_, run, spec) = runs[0];
                (task(run, spec, is_known, tells), runs.into_iter().map(|(number, ..)| number).collect())
            })
            .collect();
        let tables: Vec<_> = tasks.iter().map(|(task, numbers)| (numbers[0], task)).collect();
        let found = differences::differences(&tables, |_| true);
        let mut keys: Vec<String> = found.into_iter().map(|difference| difference.key).collect();
        if keys.iter().any(|key| key == DATA) {
            // That the data differ says what the keys of a source do that only some of them have.
            keys.retain(|key| {
                source(key).is_none_or(|table| {
                    trainings().all(|(.., spec)| spec.keys().any(|key| key.starts_with(table)))
                })
            });
        }
        let groups = grouped(tasks.iter().map(|(task, numbers)| (task, numbers))).into_iter();
        let groups = groups.map(|(_, numbers)| {
            let mut numbers: Vec<usize> = numbers.into_iter().flatten().copied().collect();
            numbers.sort_unstable();
            numbers
        });
        Self { groups: groups.collect(), keys, what }
    }

    /// The task of each of `count` runs, in order; `None` for a run without a spec.
    pub(super) fn by_run(&self, count: usize) -> Vec<Option<usize>> {
        let mut tasks = vec![None; count];
        for (task, numbers) in self.groups.iter().enumerate() {
            numbers.iter().for_each(|number| tasks[number - 1] = Some(task));
        }
        tasks
    }

    /// The indices of `count` runs by task; the first task also gets the runs whose task is unknown.
    pub(super) fn places(&self, count: usize) -> Vec<Vec<usize>> {
        let known = self.by_run(count).into_iter().map(|task| task.unwrap_or(0));
        grouped(known.zip(0..)).into_iter().map(|(_, places)| places).collect()
    }

    /// `2 tasks, whose losses are not comparable`; `None` if all runs have the same task.
    pub(super) fn apart(&self) -> Option<String> {
        let (tasks, what) = (self.groups.len(), self.what);
        (tasks > 1).then(|| format!("{tasks} tasks, whose {what} are not comparable"))
    }

    /// Whether tasks differ in this key.
    pub(super) fn differ_in(&self, key: &str) -> bool {
        self.keys.iter().any(|own| own == key)
    }

    /// `2 tasks, whose losses are not comparable: the data differ (runs 1, 2; run 3)`; `None` if all runs
    /// have the same task. `name` tells the runs at some places.
    pub(super) fn difference(&self, name: impl Fn(&[usize]) -> String) -> Option<String> {
        let apart = self.apart()?;
        let several = self.keys.len() > 1 || self.keys.first().is_some_and(|key| key == DATA);
        let runs = |group: &Vec<usize>| name(&group.iter().map(|number| number - 1).collect::<Vec<_>>());
        let groups: Vec<String> = self.groups.iter().map(runs).collect();
        let verb = if several { "differ" } else { "differs" };
        let (keys, groups) = (self.keys.join(", "), groups.join("; "));
        Some(format!("{apart}: {keys} {verb} ({groups})"))
    }
}

impl Run {
    /// What it minimizes, and in which unit: `mse`, `mse standardize_target`, `cross_entropy class_weights balanced`.
    pub(super) fn loss(&self) -> String {
        let own = self.spec.iter().flat_map(Leaves::iter).filter(|(key, _)| is_one_of(key, &LOSS));
        let words = own.filter(|(_, value)| *value != "false").map(|(key, value)| {
            let name = key.trim_start_matches("model.").trim_start_matches("data.csv.");
            match (name.trim_start_matches("data.parquet."), value) {
                ("loss", kind) => kind.to_owned(),
                (name, "true") => name.to_owned(),
                (name, value) => format!("{name} {value}"),
            }
        });
        // The kind is last among the sorted keys.
        words.collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join(" ")
    }

    /// Its seeds together as text, and the fold used for validation.
    pub(super) fn seeds(&self) -> Option<[String; 2]> {
        self.axis(SEEDS[0])?;
        let keys = SEEDS.into_iter().filter(|key| *key != FOLD);
        let seeds: Vec<&str> = keys.map(|key| self.axis(key).unwrap_or_default()).collect();
        Some([seeds.join(" ").trim_end().to_owned(), self.axis(FOLD).unwrap_or_default().to_owned()])
    }
}

/// Everything that determines a run's losses besides model and training, as far as it `tells` tasks apart.
fn task(run: &Run, spec: &Leaves, digest_is_known: bool, tells: fn(&str) -> bool) -> Leaves {
    let drops = |key| spec.get(key).is_some_and(|how| how.contains("drop"));
    let drops_rows = drops("data.csv.missing") || drops("data.parquet.missing");
    let decides = |(key, value): &(&str, &str)| {
        let is_of_data = || {
            key.starts_with("data.")
                && !is_one_of(key, &HARMLESS)
                && (drops_rows || !is_one_of(key, &FEATURES))
                && !(digest_is_known && is_path(value))
        };
        tells(key) && (is_one_of(key, &LOSS) || is_of_data())
    };
    let keys = spec.iter().filter(decides);
    let task = keys.map(|(key, value)| (key.to_owned(), file_name(value).to_owned()));
    task.chain(digest(run, digest_is_known).map(|digest| (DATA.to_owned(), digest.to_owned()))).collect()
}

/// `data.csv.` of `data.csv.header`: the table of a source; `None` of other keys.
fn source(key: &str) -> Option<&str> {
    let rest = key.strip_prefix("data.").filter(|rest| !rest.starts_with("split."))?;
    Some(&key[.."data.".len() + rest.find('.')? + 1])
}

/// Whether a key is one of these, or within one: a list has one leaf per item.
fn is_one_of(key: &str, keys: &[&str]) -> bool {
    let is_within = |rest: &str| rest.is_empty() || rest.starts_with('.');
    keys.iter().any(|own| key.strip_prefix(own).is_some_and(is_within))
}

/// The digest by which a task is known. Synthetic rows are drawn anew for each seed, so their table in the spec identifies them
/// instead.
fn digest(run: &Run, is_known: bool) -> Option<&str> {
    (is_known && !run.draws_rows()).then(|| run.digest().unwrap_or_default())
}
