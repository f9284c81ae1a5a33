//! The comparison of runs: axes, figures, ratios, curves and differences, before any of it is printed.

use std::collections::HashMap;

use super::{
    ReportError,
    configurations::{Configuration, configurations},
    curve::{self, Against, CurveDifference},
    differences::{self, Difference, Leaves},
    find::{self, Found},
    run::Run,
    sweep,
};

/// Keys of the environment that differ between any two runs and say nothing of whether they can be compared.
const NOT_THE_MACHINE: [&str; 9] = [
    "started",
    "command",
    "devices.requested",
    "devices.used",
    "devices.virtual",
    "devices.timed_by",
    "devices.sums",
    "memory.available_bytes",
    // The plan's choice; what it chose from is `host.available_threads`.
    "host.threads",
];

/// Keys of the environment in which runs must be equal for their times to say something of each other.
const DECIDES_TIMES: [&str; 8] = [
    "cpu.model",
    "cpu.instruction_set",
    "cpu.governor",
    "cpu.simultaneous_threads",
    "cpu.quota_cores",
    "host.available_threads",
    "devices.precision",
    "versions.build",
];

/// The same of GPUs, among the runs that have one.
const DECIDES_GPU_TIMES: [&str; 5] = ["model", "driver", "pcie", "power_limit_w", "mig"];

/// Runs side by side. The first is what the others are held against.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Keys that tell the runs apart: the sweeps' axes, or what differs between the specs.
    pub(super) axes: Vec<String>,
    /// At least one.
    pub(super) runs: Vec<Run>,
    /// Per run: steps per second over those of the first that takes steps of the same data and model.
    pub(super) ratios: Vec<Option<f64>>,
    /// The run whose curve the others' are held against.
    pub(super) curve_reference: Option<usize>,
    /// Per run: its loss curve against the reference's.
    pub(super) curves: Vec<Option<CurveDifference>>,
    /// Repeats taken together.
    pub(super) configurations: Vec<Configuration>,
    /// Keys of the spec that differ.
    pub(super) spec: Vec<Difference>,
    /// Keys of the environment that differ, of those that matter.
    pub(super) environment: Vec<Difference>,
}

/// Reads what the paths name (run folders, sweep folders, folders of either, globs) and compares it.
///
/// # Errors
/// Where a path names no run, or a file of a run is malformed.
pub fn compare(paths: &[String]) -> Result<Comparison, ReportError> {
    let mut runs = Vec::new();
    for found in find::find(paths)? {
        match found {
            Found::Run(folder) => runs.push(Run::read(&folder)?),
            Found::Sweep(folder) => runs.extend(sweep::read(&folder)?),
        }
    }
    let mut comparison = Comparison::of(runs);
    (comparison.curve_reference, comparison.curves) = curves(&mut comparison.runs)?;
    Ok(comparison)
}

impl Comparison {
    /// Without the curves, whose files may be large.
    pub(super) fn of(runs: Vec<Run>) -> Self {
        let spec = differing(&runs, |run| run.spec.as_ref());
        let mut environment = differing(&runs, |run| run.environment.as_ref());
        environment.retain(|difference| {
            let key = difference.key.as_str();
            let is_gpu_of_some = key.starts_with("gpus.") && known_values(difference) < 2;
            !is_gpu_of_some
                && !NOT_THE_MACHINE.contains(&key)
                && !key.starts_with("load.")
                && !key.starts_with("during.")
        });
        Self {
            axes: axes(&runs, &spec),
            ratios: ratios(&runs),
            curve_reference: None,
            curves: vec![None; runs.len()],
            configurations: configurations(&runs),
            runs,
            spec,
            environment,
        }
    }

    /// Whether the runs may be held against each other, in a sentence.
    pub(super) fn comparability(&self) -> String {
        let runs =
            if self.runs.len() == 1 { "1 run".to_owned() } else { format!("{} runs", self.runs.len()) };
        if self.runs.len() == 1 {
            return runs;
        }
        let unknown = self.places(|run| run.environment.is_none() && !is_not_run(run));
        let dirty = self.places(|run| environment(run, "git.dirty") == Some("true"));
        let keys: Vec<&str> = self.environment.iter().map(|difference| difference.key.as_str()).collect();
        let decisive: Vec<&str> = keys.iter().copied().filter(|key| decides_times(key)).collect();
        let mut sentence = match keys.as_slice() {
            _ if !unknown.is_empty() => format!("{runs}; no environment.toml in run {unknown}"),
            _ if !decisive.is_empty() => {
                let verb = if decisive.len() == 1 { "differs" } else { "differ" };
                format!("{runs}, whose times say nothing of each other: {} {verb}", decisive.join(", "))
            }
            [] => format!("{runs}, comparable: same processor, instruction set, threads and version"),
            [key] => format!("{runs}, to be compared with care: {key} differs"),
            _ => format!("{runs}, to be compared with care: {} differ", keys.join(", ")),
        };
        if !dirty.is_empty() {
            sentence += &format!("; uncommitted changes in run {dirty}");
        }
        sentence
    }

    /// Why times of these runs must not be held against each other, in a sentence; `None` where they may.
    pub fn warning(&self) -> Option<String> {
        let keys = self.environment.iter().map(|difference| difference.key.as_str());
        let decisive: Vec<String> =
            keys.filter(|key| decides_times(key)).map(|key| format!("`{key}`")).collect();
        let verb = if decisive.len() == 1 { "differs" } else { "differ" };
        let keys = decisive.join(", ");
        (!decisive.is_empty())
            .then(|| format!("{keys} {verb} between the runs: their times say nothing of each other"))
    }

    /// The numbers of the runs that are so, as `1, 3`.
    fn places(&self, so: impl Fn(&Run) -> bool) -> String {
        let places = self.runs.iter().enumerate().filter(|(_, run)| so(run));
        places.map(|(place, _)| (place + 1).to_string()).collect::<Vec<_>>().join(", ")
    }
}

/// Values that some run has.
fn known_values(difference: &Difference) -> usize {
    difference.values.iter().filter(|(value, _)| value.is_some()).count()
}

fn decides_times(key: &str) -> bool {
    let of_gpu = key.strip_prefix("gpus.").and_then(|rest| rest.split_once('.')).map(|(_, key)| key);
    DECIDES_TIMES.contains(&key) || of_gpu.is_some_and(|key| DECIDES_GPU_TIMES.contains(&key))
}

fn environment<'a>(run: &'a Run, key: &str) -> Option<&'a str> {
    run.environment.as_ref()?.get(key).map(String::as_str)
}

/// Whether a trial was never started.
pub(super) fn is_not_run(run: &Run) -> bool {
    matches!(run.status.as_str(), "skipped" | "same_as")
}

fn differing<'a>(runs: &'a [Run], table: impl Fn(&'a Run) -> Option<&'a Leaves>) -> Vec<Difference> {
    let tables: Vec<(usize, &Leaves)> =
        runs.iter().enumerate().filter_map(|(place, run)| Some((place + 1, table(run)?))).collect();
    differences::differences(&tables)
}

/// The sweeps' axes in order; where a run of its own is among them, also what differs between the specs.
fn axes(runs: &[Run], spec: &[Difference]) -> Vec<String> {
    let mut axes: Vec<String> = Vec::new();
    for (key, _) in runs.iter().flat_map(|run| &run.axes) {
        if !axes.contains(key) {
            axes.push(key.clone());
        }
    }
    if runs.iter().any(|run| run.axes.is_empty()) {
        let more = spec.iter().map(|difference| &difference.key).filter(|key| *key != "description");
        let more: Vec<String> = more.filter(|key| !axes.contains(key)).cloned().collect();
        axes.extend(more);
    }
    axes
}

/// Virtual devices share one processor: their times say nothing of real ones, so they have no ratio and give none.
fn ratios(runs: &[Run]) -> Vec<Option<f64>> {
    let speed = |run: &Run| run.number("steps_per_s").filter(|&speed| speed > 0.0);
    // Of each kind of step: the first run that has a rate, and how many have one.
    let mut kinds: HashMap<_, (&Run, f64, usize)> = HashMap::new();
    for run in runs {
        if let Some(rate) = speed(run) {
            kinds.entry(run.work()).or_insert((run, rate, 0)).2 += usize::from(!run.is_virtual());
        }
    }
    let ratio = |run: &Run| {
        let &(first, base, count) = kinds.get(&run.work())?;
        // One that stands alone is held against nothing.
        (count > 1 && !first.is_virtual() && !run.is_virtual()).then_some(speed(run)? / base)
    };
    runs.iter().map(ratio).collect()
}

/// Each curve against the first, which alone is kept in memory.
fn curves(runs: &mut [Run]) -> Result<(Option<usize>, Vec<Option<CurveDifference>>), ReportError> {
    let has_means = |run: &Run| {
        let policy = run.spec.as_ref().and_then(|spec| spec.get("logging.policy"));
        policy.is_some_and(|policy| policy == "per_epoch")
    };
    let (mut first, mut reference) = (Vec::new(), None);
    let mut differences = Vec::with_capacity(runs.len());
    for (place, run) in runs.iter_mut().enumerate() {
        let means = has_means(run);
        let mut difference = None;
        match (&run.metrics, reference) {
            (None, _) => {}
            (Some(metrics), None) => {
                run.torn = curve::read(metrics, |step, loss| first.push((step, loss)))?.torn;
                reference = (!first.is_empty()).then_some((place, means));
            }
            (Some(metrics), Some((_, reference_means))) => {
                let mut against = Against::new(&first);
                let tail = curve::read(metrics, |step, loss| against.take(step, loss))?;
                run.torn = tail.torn;
                let found = if means == reference_means {
                    against.difference()
                } else {
                    CurveDifference::MeansAndSteps
                };
                difference = tail.last_loss.map(|_| found);
            }
        }
        differences.push(difference);
    }
    Ok((reference.map(|(place, _)| place), differences))
}
