//! Groups the repeats of a configuration.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use super::{
    axes::{file_name, is_inferred, is_of_record, is_path, keys},
    grouping::{distinct, grouped},
    run::{Run, varies_setting},
    statistics::Estimate,
};
use crate::files::Leaves;

/// Environment keys that define a different machine.
pub(super) const THE_MACHINE: [&str; 4] =
    ["cpu.model", "cpu.instruction_set", "cpu.bf16_unit", "host.threads"];

/// Runs with the same spec and data on the same machine; their seeds may differ.
#[derive(Clone, Debug)]
pub(super) struct Configuration {
    /// The sweep's axes, except the repeat, with their values.
    pub(super) axes: Vec<(String, String)>,
    /// Indices of its finished runs or, if there are none, of the others; never empty.
    pub(super) places: Vec<usize>,
    /// Equal for configurations that differ only in their machines, and so learn the same.
    pub(super) setting: usize,
    /// How its other runs ended: `1 diverged`.
    pub(super) unfinished: String,
    /// How many of its other runs diverged or were stopped by their sweep, if some finished.
    pub(super) lost: usize,
    is_finished: bool,
}

impl Configuration {
    /// Number of finished runs.
    pub(super) fn count(&self) -> usize {
        if self.is_finished { self.places.len() } else { 0 }
    }

    pub(super) fn first<'a>(&self, runs: &'a [Run]) -> &'a Run {
        &runs[self.places[0]]
    }

    /// Statistics of a figure over its runs; `None` if a run lacks it.
    pub(super) fn estimate(&self, runs: &[Run], column: &str) -> Option<Estimate> {
        let known = |&place: &usize| runs[place].number(column).filter(|_| self.is_finished);
        let values: Option<Vec<f64>> = self.places.iter().map(known).collect();
        Estimate::from_values(&values?)
    }

    /// Pairs of a figure of this configuration's runs with that of the other's run in the same turn of a
    /// sweep; empty if there are no turns.
    pub(super) fn within_turns<T>(
        &self,
        other: &Self,
        runs: &[Run],
        figure: impl Fn(&Run) -> Option<T>,
    ) -> Vec<(T, T)> {
        // A turn also needs its sweep: two sweeps of one spec have the same turn numbers.
        let turn = |place: usize| Some((runs[place].sweep.as_deref(), runs[place].repeat()?));
        let pair = |place: &usize| {
            let own = turn(*place)?;
            let place_of_other = other.places.iter().find(|&&place| turn(place) == Some(own))?;
            figure(&runs[*place]).zip(figure(&runs[*place_of_other]))
        };
        self.places.iter().filter_map(pair).collect()
    }

    /// Statistics of a loss or accuracy over its runs; runs with equal seeds and equal bits count once.
    pub(super) fn estimate_loss(&self, runs: &[Run], column: &str) -> Option<Estimate> {
        let values = self.places.iter().map(|&place| {
            let run = &runs[place];
            Some((run.outcome(), run.number(column).filter(|_| self.is_finished)?.to_bits()))
        });
        let values: Option<Vec<_>> = values.collect();
        let values: Vec<f64> = distinct(values?).into_iter().map(|(_, bits)| f64::from_bits(bits)).collect();
        Estimate::from_values(&values)
    }
}

impl Run {
    /// The kinds of the devices that trained, one per device: `["gpu", "gpu"]`.
    pub(super) fn device_kinds(&self) -> Vec<&str> {
        let kind = |device| match str::split_once(device, ':') {
            Some((kind @ ("gpu" | "virtual"), _)) => kind,
            _ => device,
        };
        self.figure("devices_used").unwrap_or_default().split(';').map(kind).collect()
    }

    /// Its seeds and the figures of what it learned: equal for runs of a spec that learned the same.
    pub(super) fn outcome(&self) -> (Option<[String; 2]>, [Option<&str>; 4]) {
        (self.seeds(), OUTCOME.map(|column| self.figure(column)))
    }
}

/// Per run the index of its configuration.
pub(super) fn of_runs(configurations: &[Configuration], runs: usize) -> Vec<Option<usize>> {
    let mut of_runs = vec![None; runs];
    for (index, own) in configurations.iter().enumerate() {
        own.places.iter().for_each(|&place| of_runs[place] = Some(index));
    }
    of_runs
}

pub(super) const FINISHED: &str = "finished";

/// Stopped at a rung by successive halving.
pub(super) const STOPPED: &str = "stopped";

/// Columns of `summary.csv` that tell what a run learned.
const OUTCOME: [&str; 4] =
    ["steps", "final_train_loss", "final_validation_loss", "final_validation_accuracy"];

/// The configurations of the runs that ended, in the order of their first runs. A copy of a run's folder does
/// not count as a repeat.
pub(super) fn configurations(runs: &[Run]) -> Vec<Configuration> {
    let has_ended = |run: &Run| {
        run.status == FINISHED
            || (run.spec.is_some()
                && ["diverged", "failed", "interrupted", "waiting", STOPPED].contains(&&*run.status))
    };
    let ended = runs.iter().enumerate().filter(|(_, run)| has_ended(run));
    // Two different runs hardly ever take exactly the same time, so only runs with equal times are compared
    // completely.
    let mut known: HashMap<_, Vec<_>> = HashMap::new();
    let ended = ended.filter(|(_, run)| {
        let like = known.entry([run.figure("wall_s"), run.figure("train_s")]).or_default();
        let is_copy = like.contains(&&run.figures);
        like.push(&run.figures);
        !is_copy || run.folder.is_none()
    });
    let swept = distinct(runs.iter().flat_map(|run| &run.axes).map(|(key, _)| key.as_str()));
    let differ: Vec<&str> = keys(runs.iter().filter_map(|run| run.spec.as_ref())).into_iter().collect();
    let identity = |run| (identity(run, &swept, &differ), weak_devices(run));
    let settings = grouped(ended.map(|(place, run)| (identity(run), place)));
    let on_machines = |(setting, (_, places)): (usize, (_, Vec<usize>))| {
        let by_machine = grouped(places.into_iter().map(|place| (machine(&runs[place]), place)));
        by_machine.into_iter().map(move |(_, places)| (setting, places)).collect::<Vec<_>>()
    };
    let mut groups: Vec<_> = settings.into_iter().enumerate().flat_map(on_machines).collect();
    groups.sort_by_key(|(_, places)| places[0]);
    let configuration = |(setting, places): (usize, Vec<usize>)| {
        let is_setting = |(key, _): &&(String, String)| varies_setting(key);
        // A single run has none, or only those that are tables.
        let axes = places.iter().map(|&place| &runs[place].axes).min_by_key(|axes| Reverse(axes.len()));
        let axes = axes.into_iter().flatten().filter(is_setting).cloned().collect();
        let (finished, others): (Vec<usize>, Vec<usize>) =
            places.into_iter().partition(|&place| runs[place].status == FINISHED);
        let statuses = grouped(others.iter().map(|&place| (runs[place].status.as_str(), ())));
        let statuses = statuses.iter().map(|(status, runs)| format!("{} {status}", runs.len()));
        let unfinished = statuses.collect::<Vec<_>>().join(", ");
        let is_finished = !finished.is_empty();
        // A seed that another run learned from is not lost.
        let learned: HashSet<_> = finished.iter().map(|&place| runs[place].seeds()).collect();
        let is_lost = |place: &&usize| {
            let run = &runs[**place];
            ["diverged", STOPPED].contains(&&*run.status) && !learned.contains(&run.seeds())
        };
        let lost = if is_finished { others.iter().filter(is_lost).count() } else { 0 };
        let places = if is_finished { finished } else { others };
        Configuration { axes, places, setting, unfinished, lost, is_finished }
    };
    groups.into_iter().map(configuration).collect()
}

/// Groups the configurations by job. The configurations of a sweep, which its axes distinguish, form one job,
/// together with other sweeps that share some of them. Runs outside sweeps form another job.
pub(super) fn jobs(runs: &[Run], configurations: &[Configuration]) -> Vec<Vec<Configuration>> {
    // Union-find over sweeps: each points to another sweep of its job, and the root points to itself.
    let mut others: Vec<usize> = Vec::new();
    let mut sweeps: HashMap<Option<&str>, usize> = HashMap::new();
    let job = |others: &[usize], mut sweep: usize| {
        while others[sweep] != sweep {
            sweep = others[sweep];
        }
        sweep
    };
    let mut first_sweeps = Vec::new();
    for configuration in configurations {
        let mut shared = None;
        for sweep in distinct(configuration.places.iter().map(|&place| runs[place].sweep.as_deref())) {
            let sweep = *sweeps.entry(sweep).or_insert_with(|| {
                others.push(others.len());
                others.len() - 1
            });
            let own = job(&others, sweep);
            others[own] = *shared.get_or_insert(own);
        }
        first_sweeps.push(shared.unwrap_or(0));
    }
    let members =
        first_sweeps.into_iter().map(|sweep| job(&others, sweep)).zip(configurations.iter().cloned());
    grouped(members).into_iter().map(|(_, members)| members).collect()
}

/// The keys and values that repeats have in common.
type Identity<'a> = Vec<(&'a str, &'a str)>;

/// The identity of a run's machine. It does not matter which of its GPUs was used: trials that run side by
/// side take any free ones.
fn machine(run: &Run) -> Identity<'_> {
    let facts = run.environment.iter().flat_map(Leaves::iter).filter(|(key, _)| THE_MACHINE.contains(key));
    facts.chain(run.device_kinds().into_iter().map(|kind| ("device", kind))).collect()
}

/// The identity of a run's spec and data: by the keys of the specs in which runs `differ`. A trial's axes are part of its spec,
/// as for a single run. Keys about recording only count if they are swept, seeds only as part of a swept table.
fn identity<'a>(run: &'a Run, swept: &[&str], differ: &[&'a str]) -> (bool, bool, Identity<'a>) {
    let is_within =
        |key: &str| swept.iter().any(|axis| key.strip_prefix(axis).is_some_and(|rest| rest.starts_with('.')));
    let is_swept = |key: &str| swept.contains(&key) || is_within(key);
    let is_free = |key: &str| {
        (is_of_record(key) && !is_swept(key))
            || (!varies_setting(key) && !is_within(key))
            || is_inferred(key)
            || run.is_its_length(key)
    };
    let spec = run.spec.iter().flat_map(|spec| differ.iter().filter_map(|key| Some((*key, spec.get(key)?))));
    let axes =
        run.axes.iter().filter(|_| run.spec.is_none()).map(|(key, value)| (key.as_str(), value.as_str()));
    let digest = run.rows_digest();
    // Rows are known by a digest of all bytes, whichever file holds them. Samples of two files may be equal where the rows are not.
    let is_sampled = run.is_sampled();
    let is_file = |key: &str, value: &str| key.starts_with("data.") && is_path(value);
    let is_known =
        |key: &str, value: &str| digest.is_some() && !is_sampled && is_file(key, value) && !is_swept(key);
    let pairs = axes.chain(spec).filter(|(key, value)| !is_free(key) && !is_known(key, value));
    let digest = digest.map(|digest| ("data", digest));
    let name = |key: &str, value| if is_sampled && is_file(key, value) { value } else { file_name(value) };
    let pairs = pairs.map(|(key, value)| (key, name(key, value))).chain(digest);
    (run.spec.is_some(), is_sampled, pairs.collect())
}

/// The number of devices if it changes the global batch (weak scaling), otherwise 0.
fn weak_devices(run: &Run) -> usize {
    let is_weak = run.setting("devices.scaling") == Some("weak");
    if is_weak { run.devices().split_whitespace().count() } else { 0 }
}

/// Whether a configuration was run more than once.
pub(super) fn has_repeats(configurations: &[Configuration]) -> bool {
    configurations.iter().any(|configuration| configuration.count() > 1)
}
