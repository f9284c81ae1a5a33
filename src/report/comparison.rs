//! The comparison of runs: axes, figures, ratios, curves and differences, before any of it is printed.

use std::{collections::HashMap, path::Path};

use super::{
    ReportError,
    configurations::{Configuration, configurations},
    curve::{self, Against, CurveDifference},
    differences::Difference,
    differing,
    filter::Filter,
    find,
    grouping::{distinct, grouped},
    lab::Findings,
    machines::Machine,
    run::{DAMAGED, PLANNED, REPEAT, Run, SAME_AS},
    speeds::{self, Ratio},
    sweep,
    tasks::Tasks,
};
use crate::units;

/// Axes that leave what is learned as it is, but for the last bits.
const OTHERWISE: [&str; 3] = ["devices.", "logging.", "data.placement"];

/// Those among them that change it.
const LEARNS: [&str; 2] = ["devices.precision", "devices.lr_scaling"];

/// The task of each run by place, and the keys in which the runs of each task differ.
pub(super) type AxesByTask = (Vec<Option<usize>>, HashMap<Option<usize>, Vec<String>>);

/// Runs side by side. The others are compared with the first.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Keys that tell the runs apart: the sweeps' axes, or what differs between the specs.
    pub(super) axes: Vec<String>,
    pub(super) runs: Vec<Run>,
    is_one_sweep: bool,
    /// The run whose curve the others' are compared with.
    pub(super) curve_reference: Option<usize>,
    /// Per run: its loss curve against the reference's.
    pub(super) curves: Vec<Option<CurveDifference>>,
    pub(super) configurations: Vec<Configuration>,
    pub(super) tasks: Tasks,
    pub(super) findings: Findings,
    /// A sentence where `--where` took runs out of settings by their outcome.
    cut: Option<String>,
    /// Keys of the spec that differ.
    pub(super) spec: Vec<Difference>,
    /// Keys of the environment that differ, of those that matter.
    pub(super) environment: Vec<Difference>,
}

impl Comparison {
    /// Reads what the paths name (run folders, sweep folders, folders of either, globs); `filter` chooses among the runs.
    ///
    /// # Errors
    /// A path names no run, no run has files that can be read, or no run passes the filter; a damaged run among others is
    /// marked.
    pub fn read(paths: &[String], filter: Option<&str>) -> Result<Self, ReportError> {
        let (mut fault, mut cut) = (None, None);
        let found = sweep::read_all(&find::find(paths)?, &mut fault);
        let mut runs: Vec<Run> = found.into_iter().flatten().collect();
        let findings = Findings::read(&mut runs, &mut fault);
        if let Some(fault) = fault.filter(|_| runs.iter().all(|run| run.status == DAMAGED)) {
            return Err(fault);
        }
        if let Some(text) = filter {
            let filter = Filter::new(text, &runs)?;
            let all = units::counted(runs.len() as u64, "run");
            cut = cut_settings(&runs, &filter);
            runs.retain(|run| filter.holds(run));
            if runs.is_empty() {
                return Err(ReportError::Query {
                    message: format!("none of {all} has `{text}`"),
                    hint: None,
                });
            }
        }
        Ok(Self { findings, cut, ..Self::from_runs(runs) })
    }

    /// What sets the runs of each task apart.
    pub(super) fn axes_by_task(&self) -> AxesByTask {
        let tasks = self.tasks.by_run(self.runs.len());
        let differs = |key: &&String, places: &[usize]| {
            let first = self.runs[places[0]].axis(key);
            places.iter().any(|&place| self.runs[place].axis(key) != first)
        };
        let of_task = |(task, places): (Option<usize>, Vec<usize>)| {
            let own = self.axes.iter().filter(|key| differs(key, &places));
            (task, own.cloned().collect())
        };
        let by_task = grouped(tasks.iter().copied().zip(0..));
        let axes = match by_task.len() {
            1 => by_task.into_iter().map(|(task, _)| (task, self.axes.clone())).collect(),
            _ => by_task.into_iter().map(of_task).collect(),
        };
        (tasks, axes)
    }

    /// Reads the loss curves as well, and compares each with the first.
    ///
    /// # Errors
    /// No run has files that can be read.
    pub fn with_curves(self) -> Result<Self, ReportError> {
        let Self { mut runs, findings, cut, .. } = self;
        let mut fault = None;
        let (curve_reference, curves) = curves(&mut runs, &mut fault);
        match fault {
            // What is left is compared; where nothing is, that is no comparison.
            Some(fault) if runs.iter().all(|run| run.status == DAMAGED) => Err(fault),
            _ => Ok(Self { curve_reference, curves, findings, cut, ..Self::from_runs(runs) }),
        }
    }

    /// Without the curves, whose files may be large.
    pub(super) fn from_runs(runs: Vec<Run>) -> Self {
        let spec = differing::spec(&runs);
        let environment = differing::environment(&runs);
        Self {
            axes: differing::axes(&runs, &spec),
            is_one_sweep: {
                let sweeps = distinct(runs.iter().map(|run| run.sweep.as_deref()));
                sweeps.len() == 1 && sweeps[0].is_some()
            },
            curve_reference: None,
            curves: vec![None; runs.len()],
            configurations: configurations(&runs),
            tasks: Tasks::new(&runs),
            findings: Findings::default(),
            cut: None,
            runs,
            spec,
            environment,
        }
    }

    /// Per run: its speed over that of the first with the same work.
    pub(super) fn ratios(&self) -> Vec<Option<Ratio>> {
        let speeds: Vec<_> = self.runs.iter().map(speeds::speed).collect();
        speeds::ratios(&speeds, &self.runs.iter().map(Machine::from_run).collect::<Vec<_>>())
    }

    /// The places of runs by their folders; a trial that was not run has that of another.
    pub(super) fn originals(&self) -> HashMap<&Path, usize> {
        let ran = self.runs.iter().enumerate().rev().filter(|(_, run)| run.twin.is_none());
        ran.filter_map(|(place, run)| Some((run.folder.as_deref()?, place))).collect()
    }

    /// Whether these runs are about times: they differ in nothing that concerns what is learned, but for the last bits.
    pub fn is_about_times(&self) -> bool {
        let concerns = |key: &String| {
            LEARNS.contains(&key.as_str())
                || (key != REPEAT && !OTHERWISE.iter().any(|other| key.starts_with(other)))
        };
        let is_alone = self.axes.iter().all(|key| key == REPEAT);
        let seeds = || distinct(self.runs.iter().filter_map(Run::seed)).len();
        let learn = self.axes.iter().any(concerns) || (is_alone && seeds() > 1);
        !learn || !self.kinds().contains(&"train")
    }

    /// Whether all runs are trials of two sweeps.
    pub fn is_of_two_sweeps(&self) -> bool {
        let sweeps = distinct(self.runs.iter().map(|run| run.sweep.as_deref()));
        sweeps.len() == 2 && !sweeps.contains(&None)
    }

    /// What a run is called: a sweep's trial by its number, a run among several by its place, from 1.
    pub(super) fn number(&self, place: usize) -> usize {
        self.runs[place].trial.filter(|_| self.is_one_sweep).unwrap_or(place + 1)
    }

    /// What the filter did to settings whose other runs are ranked.
    pub fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    /// What is wrong with runs whose files cannot be read, a sentence each.
    pub fn damaged(&self) -> impl Iterator<Item = &str> {
        self.runs.iter().filter(|run| run.status == DAMAGED).map(|run| run.reason.as_str())
    }
}

/// Whether a trial was never started.
pub(super) fn is_not_run(run: &Run) -> bool {
    matches!(run.status.as_str(), "skipped" | PLANNED | SAME_AS | DAMAGED)
}

/// Where a filter by outcome takes some finished runs out of a setting: the others are no fair sample of it.
fn cut_settings(runs: &[Run], filter: &Filter) -> Option<String> {
    let name = filter.outcome(runs)?;
    let configurations = configurations(runs);
    let of_settings = configurations.iter().filter(|own| own.count() > 0);
    let of_settings = grouped(of_settings.map(|own| (own.setting, own)));
    let is_cut = |(_, own): &&(usize, Vec<&Configuration>)| {
        let places = || own.iter().flat_map(|own| &own.places);
        let kept = places().filter(|&&place| filter.holds(&runs[place])).count();
        kept > 0 && kept < places().count()
    };
    let count = of_settings.iter().filter(is_cut).count();
    let settings = units::counted(count as u64, "setting");
    (count > 0).then(|| {
        format!(
            "the filter by `{name}` takes runs out of {settings} by their results: what is left there is no fair sample"
        )
    })
}

/// Each curve against the first, which alone is kept in memory.
fn curves(
    runs: &mut [Run],
    fault: &mut Option<ReportError>,
) -> (Option<usize>, Vec<Option<CurveDifference>>) {
    let (mut first, mut reference) = (Vec::new(), None);
    let mut differences = vec![None; runs.len()];
    let tasks = Tasks::new(runs).by_run(runs.len());
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
                let found = if tasks[reference] != tasks[place] {
                    CurveDifference::OtherTask
                } else if means != reference_means {
                    CurveDifference::MeansAndSteps
                } else {
                    against.difference()
                };
                differences[place] = tail.has_losses.then_some(found);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_task_are_told_by_what_they_differ_in() {
        let run = |target: &str, lr: &str, width: &str| Run {
            spec: Some(
                [("data.csv.target", target), ("optimizer.sgd.lr", lr), ("model.width", width)]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into_iter()
                    .collect(),
            ),
            ..Run::default()
        };
        let runs = vec![run("a", "1", "8"), run("a", "2", "8"), run("b", "1", "4"), run("b", "1", "8")];
        let (tasks, axes) = Comparison::from_runs(runs).axes_by_task();
        assert_eq!(tasks, [Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!(axes[&Some(0)], ["optimizer.sgd.lr"]);
        assert_eq!(axes[&Some(1)], ["model.width"]);
    }
}
