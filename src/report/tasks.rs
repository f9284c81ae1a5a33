//! Which runs learn the same: only their losses can be compared.

use super::{
    differences::{self, file_name, is_path},
    grouping::grouped,
    leaves::Leaves,
    run::Run,
};
use crate::units;

/// Keys of `[data]` that leave rows and targets as they are.
const HARMLESS: [&str; 9] = [
    "data.batch_size",
    "data.fold",
    "data.placement",
    "data.shuffle",
    "data.shuffle_seed",
    // As the seed of the run where it is absent.
    "data.split.seed",
    "data.csv.standardize",
    "data.idx.scale",
    "data.parquet.standardize",
];

/// Keys that choose features; where rows with missing cells are dropped, they choose rows, too.
const FEATURES: [&str; 6] = [
    "data.csv.features",
    "data.csv.ignore",
    "data.csv.categorical",
    "data.parquet.features",
    "data.parquet.ignore",
    "data.parquet.categorical",
];

/// Shown for the digest of the data.
const DATA: &str = "the data";

/// Trainings by what they learn.
#[derive(Clone, Debug, Default)]
pub(super) struct Tasks {
    /// Numbers of the runs of each task, in the order of its first run.
    groups: Vec<Vec<usize>>,
    /// What differs between the tasks: the data, the loss, keys of `[data]`.
    keys: Vec<String>,
}

impl Tasks {
    pub(super) fn new(runs: &[Run]) -> Self {
        let trainings = || {
            let with_spec = runs.iter().enumerate().filter(|(_, run)| run.kind() == "train");
            with_spec.filter_map(|(place, run)| Some((place + 1, run, run.spec.as_ref()?)))
        };
        // Runs of older versions have no digest: where one is among them, files are known by their names.
        let is_known = trainings().all(|(_, run, _)| run.digest().is_some());
        let tasks: Vec<(usize, Leaves)> =
            trainings().map(|(number, run, spec)| (number, task(run, spec, is_known))).collect();
        let tables: Vec<_> = tasks.iter().map(|(number, task)| (*number, task)).collect();
        let keys = differences::differences(&tables, |_| true)
            .into_iter()
            .map(|difference| difference.key)
            .collect();
        let groups = grouped(tasks.iter().map(|(number, task)| (task, *number)));
        Self { groups: groups.into_iter().map(|(_, numbers)| numbers).collect(), keys }
    }

    /// The task of each of `count` runs, by place; that of a run without a spec is not known.
    pub(super) fn by_run(&self, count: usize) -> Vec<Option<usize>> {
        let mut tasks = vec![None; count];
        for (task, numbers) in self.groups.iter().enumerate() {
            numbers.iter().for_each(|number| tasks[number - 1] = Some(task));
        }
        tasks
    }

    /// The places of `count` runs by task; the first has those whose task is not known.
    pub(super) fn places(&self, count: usize) -> Vec<Vec<usize>> {
        let known = self.by_run(count).into_iter().map(|task| task.unwrap_or(0));
        grouped(known.zip(0..)).into_iter().map(|(_, places)| places).collect()
    }

    /// `2 tasks, whose losses are not comparable: the data differ (runs 1, 2; run 3)`; `None` where all runs learn the same.
    pub(super) fn difference(&self) -> Option<String> {
        if self.groups.len() < 2 {
            return None;
        }
        let several = self.keys.len() > 1 || self.keys.first().is_some_and(|key| key == DATA);
        let runs = |group: &Vec<usize>| {
            format!("{} {}", if group.len() == 1 { "run" } else { "runs" }, units::numbers(group))
        };
        let groups: Vec<String> = self.groups.iter().map(runs).collect();
        let verb = if several { "differ" } else { "differs" };
        let (tasks, keys, groups) = (self.groups.len(), self.keys.join(", "), groups.join("; "));
        Some(format!("{tasks} tasks, whose losses are not comparable: {keys} {verb} ({groups})"))
    }
}

/// What decides a run's losses beside model and training.
fn task(run: &Run, spec: &Leaves, digest_is_known: bool) -> Leaves {
    let drops = |key| spec.get(key).is_some_and(|how| how.contains("drop"));
    let drops_rows = drops("data.csv.missing") || drops("data.parquet.missing");
    // A list has a leaf for each of its items.
    let is_one_of =
        |key: &str, keys: &[&str]| keys.iter().any(|k| key == *k || key.starts_with(&format!("{k}.")));
    let decides = |(key, value): &(&str, &str)| {
        *key == "model.loss"
            || (key.starts_with("data.")
                && !is_one_of(key, &HARMLESS)
                && (drops_rows || !is_one_of(key, &FEATURES))
                && !(digest_is_known && is_path(value)))
    };
    let keys = spec.iter().filter(decides);
    let task = keys.map(|(key, value)| (key.to_owned(), file_name(value).to_owned()));
    // Synthetic rows are drawn anew for each seed: their table describes them.
    let digest = || (DATA.to_owned(), run.digest().unwrap_or_default().to_owned());
    task.chain((digest_is_known && !run.draws_rows()).then(digest)).collect()
}
