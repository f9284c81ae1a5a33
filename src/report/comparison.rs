//! The comparison of runs: axes, figures, ratios, curves and differences, before any of it is printed.

use super::{
    ReportError,
    configurations::{Configuration, configurations},
    curve::{self, Against, CurveDifference},
    differences::Difference,
    differing,
    find::{self, Found},
    grouping::distinct,
    lab::Findings,
    machines::times_are_comparable,
    run::{DAMAGED, Run, SAME_AS},
    speeds::{self, Ratio},
    sweep,
    tasks::Tasks,
};

/// Runs side by side. The others are compared with the first.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Keys that tell the runs apart: the sweeps' axes, or what differs between the specs.
    pub(super) axes: Vec<String>,
    pub(super) runs: Vec<Run>,
    /// Per run: its speed over that of the first with the same work.
    pub(super) ratios: Vec<Option<Ratio>>,
    /// The run whose curve the others' are compared with.
    pub(super) curve_reference: Option<usize>,
    /// Per run: its loss curve against the reference's.
    pub(super) curves: Vec<Option<CurveDifference>>,
    pub(super) configurations: Vec<Configuration>,
    pub(super) tasks: Tasks,
    pub(super) findings: Findings,
    /// Keys of the spec that differ.
    pub(super) spec: Vec<Difference>,
    /// Keys of the environment that differ, of those that matter.
    pub(super) environment: Vec<Difference>,
}

/// Reads what the paths name (run folders, sweep folders, folders of either, globs) and compares it.
///
/// # Errors
/// Where a path names no run, or no run has files that can be read; one among others is marked as damaged.
pub fn compare(paths: &[String]) -> Result<Comparison, ReportError> {
    let (mut runs, mut fault) = (Vec::new(), None);
    for found in find::find(paths)? {
        match found {
            Found::Run(folder) => runs.push(Run::read_or_report(&folder, &mut fault)),
            Found::Sweep(folder) => match sweep::read(&folder, &mut fault) {
                Ok(trials) => runs.extend(trials),
                Err(e) => runs.push(Run::damaged(folder.display().to_string(), e, &mut fault)),
            },
        }
    }
    // First, since a curve that cannot be read marks its run.
    let (reference, differences) = curves(&mut runs, &mut fault);
    let findings = Findings::read(&mut runs, &mut fault);
    let mut comparison = Comparison::from_runs(runs);
    (comparison.curve_reference, comparison.curves) = (reference, differences);
    comparison.findings = findings;
    // What is left is compared; where nothing is, that is no comparison.
    match fault {
        Some(fault) if comparison.runs.iter().all(|run| run.status == DAMAGED) => Err(fault),
        _ => Ok(comparison),
    }
}

impl Comparison {
    /// Without the curves, whose files may be large.
    pub(super) fn from_runs(runs: Vec<Run>) -> Self {
        let spec = differing::spec(&runs);
        let environment = differing::environment(&runs);
        Self {
            axes: axes(&runs, &spec),
            ratios: speeds::ratios(&runs.iter().map(speeds::speed).collect::<Vec<_>>(), |base, own| {
                times_are_comparable(&runs[base], &runs[own])
            }),
            curve_reference: None,
            curves: vec![None; runs.len()],
            configurations: configurations(&runs),
            tasks: Tasks::new(&runs),
            findings: Findings::default(),
            runs,
            spec,
            environment,
        }
    }

    /// The run that a trial is the same as, where it was not run itself.
    pub(super) fn original(&self, run: &Run) -> Option<usize> {
        let twin = run.twin.as_deref()?;
        self.runs.iter().position(|other| other.twin.is_none() && other.folder.as_deref() == Some(twin))
    }

    /// What is wrong with runs whose files cannot be read, a sentence each.
    pub fn damaged(&self) -> impl Iterator<Item = &str> {
        self.runs.iter().filter(|run| run.status == DAMAGED).map(|run| run.reason.as_str())
    }
}

/// Whether a trial was never started.
pub(super) fn is_not_run(run: &Run) -> bool {
    matches!(run.status.as_str(), "skipped" | SAME_AS | DAMAGED)
}

/// The sweeps' axes in order; where a run of its own is among them, also what differs between the specs.
fn axes(runs: &[Run], spec: &[Difference]) -> Vec<String> {
    let swept = runs.iter().flat_map(|run| &run.axes).map(|(key, _)| key);
    let is_among = runs.iter().any(|run| run.axes.is_empty());
    let more = spec.iter().map(|difference| &difference.key).filter(|key| is_among && *key != "description");
    distinct(swept.chain(more)).into_iter().cloned().collect()
}

/// Each curve against the first, which alone is kept in memory.
fn curves(
    runs: &mut [Run],
    fault: &mut Option<ReportError>,
) -> (Option<usize>, Vec<Option<CurveDifference>>) {
    let (mut first, mut reference) = (Vec::new(), None);
    let mut differences = vec![None; runs.len()];
    let tasks = Tasks::new(runs);
    for (place, run) in runs.iter_mut().enumerate() {
        let Some(metrics) = &run.metrics else { continue };
        let means = run.has_epoch_means();
        let mut against = Against::new(if reference.is_some() { &first } else { &[] });
        let mut own = Vec::new();
        let read = curve::read(metrics, |step, loss| match reference {
            Some(_) => against.take(step, loss),
            None => own.push((step, loss)),
        });
        match (read, reference) {
            (Err(e), _) => run.report_damage(e, fault),
            (Ok(tail), Some((reference, reference_means))) => {
                run.torn = tail.torn;
                let found = if !tasks.are_equal(reference + 1, place + 1) {
                    CurveDifference::OtherTask
                } else if means != reference_means {
                    CurveDifference::MeansAndSteps
                } else {
                    against.difference()
                };
                differences[place] = tail.last_loss.map(|_| found);
            }
            (Ok(tail), None) => {
                run.torn = tail.torn;
                reference = (!own.is_empty()).then_some((place, means));
                first = own;
            }
        }
    }
    (reference.map(|(place, _)| place), differences)
}
