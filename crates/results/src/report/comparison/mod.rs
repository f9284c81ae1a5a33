//! The comparison of runs, independent of how it is printed: axes, figures, ratios, curves, the names of runs, and whether their
//! times can be compared.

mod comparability;
mod inputs;
mod run_names;

pub(super) use comparability::is_debug;

use std::{collections::HashMap, path::Path};

use super::{
    ReportError,
    axes::{Difference, differences, take_kinds, take_layers},
    configurations::{Configuration, configurations},
    filter::Filter,
    find,
    grouping::{distinct, grouped},
    lab::Findings,
    machines::Machine,
    metric::Metric,
    parallel,
    run::{DAMAGED, DELETED, PLANNED, REPEAT, RUNNING, Run, SAME_AS},
    speeds::{self, Ratio},
    sweep,
    tasks::Tasks,
};
use crate::{
    files::{
        Leaves,
        curve::{self, Against, CurveDifference},
    },
    run::{POLICY, concerns_learning},
    units,
};

/// The task of each run, in the order of runs, and the keys in which the runs of each task differ.
pub(in crate::report) type AxesByTask = (Vec<Option<usize>>, HashMap<Option<usize>, Vec<String>>);

/// Runs to be compared; the first is the reference for the others.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Keys that distinguish the runs: the sweeps' axes, or what differs between the specs.
    pub(in crate::report) axes: Vec<String>,
    pub(in crate::report) runs: Vec<Run>,
    /// The run whose loss curve is the reference.
    pub(in crate::report) curve_reference: Option<usize>,
    /// Per run: its loss curve against the reference's.
    pub(in crate::report) curves: Vec<Option<CurveDifference>>,
    pub(in crate::report) configurations: Vec<Configuration>,
    pub(in crate::report) tasks: Tasks,
    pub(in crate::report) findings: Findings,
    /// The input of each run, if inputs have letters.
    pub(in crate::report) inputs: Vec<usize>,
    /// A sentence if `--where` removed runs from settings because of their outcome.
    cut: Option<String>,
    /// Sentences about paths that hold no run.
    foreign: Vec<String>,
    /// Keys of the spec that differ.
    pub(in crate::report) spec: Vec<Difference>,
    /// Keys of the environment that differ and matter.
    pub(in crate::report) environment: Vec<Difference>,
}

impl Comparison {
    /// Reads what the paths name: run folders, sweep folders, folders of either, globs. `filter` selects
    /// among the runs.
    ///
    /// # Errors
    /// The paths name no run, no run has readable files, or no run passes the filter. A damaged run among
    /// others is only marked, and a path that holds none is left out.
    pub fn read(paths: &[String], filter: Option<&str>) -> Result<Self, ReportError> {
        let (mut fault, mut cut) = (None, None);
        let (found, foreign) = find::find(paths)?;
        let mut runs: Vec<Run> = sweep::read_all(&found, &mut fault).into_iter().flatten().collect();
        let findings = Findings::read(&mut runs, &mut fault);
        if let Some(fault) = fault.filter(|_| runs.iter().all(|run| run.status == DAMAGED)) {
            return Err(fault);
        }
        if let Some(text) = filter {
            let spec = differences::spec(&runs);
            take_kinds(&mut runs, &spec, tasks_of_rows);
            let filter = Filter::new(text, &runs)?;
            let all = units::counted(runs.len() as u64, "run");
            cut = cut_settings(&runs, &filter);
            runs.retain(|run| filter.holds(run));
            if runs.is_empty() {
                return Err(ReportError::query(format!("none of {all} has `{text}`"), None));
            }
        }
        let foreign = foreign.iter().map(ReportError::to_string).collect();
        Ok(Self { findings, cut, foreign, ..Self::from_runs(runs) })
    }

    /// The tasks in which a metric can be compared, or else losses.
    pub(in crate::report) fn tasks_of(&self, metric: Option<&Metric>) -> Tasks {
        let own = metric.and_then(|metric| Tasks::of_metric(&self.runs, metric));
        own.unwrap_or_else(|| self.tasks.clone())
    }

    /// The keys that distinguish the runs of each task of a metric.
    pub(in crate::report) fn axes_by_task(&self, metric: Option<&Metric>) -> AxesByTask {
        let tasks = self.tasks_of(metric).by_run(self.runs.len());
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

    /// Also reads the loss curves, and compares each with the reference.
    pub fn with_curves(self) -> Result<Self, ReportError> {
        let Self { mut runs, findings, cut, foreign, .. } = self;
        let mut fault = None;
        let (curve_reference, curves) = curves(&mut runs, &mut fault);
        match fault {
            // Continue with the runs that are left; if none is, return the error.
            Some(fault) if runs.iter().all(|run| run.status == DAMAGED) => Err(fault),
            _ => Ok(Self { curve_reference, curves, findings, cut, foreign, ..Self::from_runs(runs) }),
        }
    }

    /// Compares runs without their curves, whose files may be large.
    pub(in crate::report) fn from_runs(mut runs: Vec<Run>) -> Self {
        let spec = differences::spec(&runs);
        take_layers(&mut runs, &spec);
        take_kinds(&mut runs, &spec, tasks_of_rows);
        let environment = differences::environment(&runs);
        Self {
            axes: differences::axes(&runs, &spec),
            curve_reference: None,
            curves: vec![None; runs.len()],
            configurations: configurations(&runs),
            tasks: Tasks::new(&runs),
            findings: Findings::default(),
            inputs: sweep::inputs(&runs),
            cut: None,
            foreign: Vec::new(),
            runs,
            spec,
            environment,
        }
    }

    /// Per run: its speed over that of the first with the same work.
    pub(in crate::report) fn ratios(&self) -> Vec<Option<Ratio>> {
        let speeds: Vec<_> = self.runs.iter().map(speeds::speed).collect();
        speeds::ratios(&speeds, &self.runs.iter().map(Machine::from_run).collect::<Vec<_>>())
    }

    /// Run indices by folder. A trial that was not run has the folder of the equal one.
    pub(in crate::report) fn originals(&self) -> HashMap<&Path, usize> {
        let ran = self.runs.iter().enumerate().rev().filter(|(_, run)| run.twin.is_none());
        ran.filter_map(|(place, run)| Some((run.folder.as_deref()?, place))).collect()
    }

    /// The spec of a run's sweep; `None` of a run alone, or where it cannot be read.
    pub(in crate::report) fn sweep_spec(&self, place: usize) -> Option<Leaves> {
        Leaves::read(&Path::new(self.runs[place].sweep.as_deref()?).join("sweep.toml")).ok()?
    }

    /// Whether the runs are about times: they differ in nothing that affects what is learned, except for the
    /// last bits.
    pub fn is_about_times(&self) -> bool {
        Self::are_about_times(&self.axes, &self.runs.iter().collect::<Vec<_>>())
    }

    /// The same of some runs, which differ in `axes`.
    pub(in crate::report) fn are_about_times(axes: &[String], runs: &[&Run]) -> bool {
        let is_alone = axes.iter().all(|key| key == REPEAT);
        let seeds = || distinct(runs.iter().filter_map(|run| run.seeds())).len();
        let repeats = || distinct(runs.iter().map(|run| run.repeat())).len();
        let learn = axes.iter().any(|key| concerns_learning(key)) || (is_alone && seeds() > 1);
        // Repeats of one seed over policies ask what these cost, for each of the other settings.
        let is_of_policies =
            |run: &&Run| run.repeat().is_some() && run.axes.iter().any(|(key, _)| key == POLICY);
        let policies = || distinct(runs.iter().map(|run| run.axis(POLICY))).len();
        !learn
            || (runs.iter().all(is_of_policies) && policies() > 1 && seeds() == 1 && repeats() > 1)
            || runs.iter().all(|run| is_not_run(run) || run.kind() != "train")
    }

    /// Whether there is one run alone.
    pub fn is_single(&self) -> bool {
        self.runs.len() == 1
    }

    /// Whether all runs are trials of exactly two sweeps.
    pub fn is_of_two_sweeps(&self) -> bool {
        let sweeps = distinct(self.runs.iter().map(|run| run.sweep.as_deref()));
        sweeps.len() == 2 && !sweeps.contains(&None)
    }

    /// Whether a run is still to end: a process works on it, or on another trial of its sweep, which comes to it.
    pub(in crate::report) fn is_under_way(&self, place: usize) -> bool {
        let run = &self.runs[place];
        let is_at_work = |own: &Run| own.status == RUNNING && own.sweep == run.sweep;
        match run.status.as_str() {
            RUNNING | "waiting" => true,
            PLANNED => self.runs.iter().any(is_at_work),
            _ => false,
        }
    }

    /// A sentence if the runs are of several tasks of a metric.
    pub(in crate::report) fn task_difference(&self, metric: Option<&Metric>) -> Option<String> {
        self.tasks_of(metric).difference(|places| self.numbers(places))
    }

    /// The sentence about settings from which the filter removed runs.
    pub fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    /// Sentences about runs whose files cannot be read, and paths that hold no run.
    pub fn unread(&self) -> impl Iterator<Item = &str> {
        let damaged = self.runs.iter().filter(|run| run.status == DAMAGED);
        self.foreign().chain(damaged.map(|run| run.reason.as_str()))
    }

    /// Sentences about paths that hold no run.
    pub fn foreign(&self) -> impl Iterator<Item = &str> {
        self.foreign.iter().map(String::as_str)
    }
}

/// The task of each run, whatever it minimizes.
fn tasks_of_rows(runs: &[Run]) -> Vec<Option<usize>> {
    Tasks::of_rows(runs).by_run(runs.len())
}

/// Whether a trial was never started.
pub(in crate::report) fn is_not_run(run: &Run) -> bool {
    matches!(run.status.as_str(), "skipped" | PLANNED | SAME_AS | DAMAGED | DELETED)
}

/// A sentence if a filter by outcome removes some finished runs of a setting: the rest are no fair sample of
/// it.
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

/// Compares each curve with the reference, which is the only one kept in memory: that of the first run with losses.
fn curves(
    runs: &mut [Run],
    fault: &mut Option<ReportError>,
) -> (Option<usize>, Vec<Option<CurveDifference>>) {
    let mut first = Vec::new();
    let is_first = |run: &mut Run| {
        let read = run.metrics().map(|path| curve::read(&path, &mut |step, loss| first.push((step, loss))));
        match read {
            Some(Ok(tail)) => run.torn = tail.torn,
            Some(Err(e)) => run.report_damage(e.into(), fault),
            None => {}
        }
        let has_losses = run.status != DAMAGED && !first.is_empty();
        if !has_losses {
            first.clear();
        }
        has_losses
    };
    let reference = runs.iter_mut().position(is_first);
    let mut differences = vec![None; runs.len()];
    let Some(reference) = reference else { return (None, differences) };
    let tasks = Tasks::new(runs).by_run(runs.len());
    let (before, others) = runs.split_at_mut(reference + 1);
    let (means, begin) = (before[reference].has_epoch_means(), reference + 1);
    let read = parallel::map(others, |run| {
        let mut against = Against::new(&first);
        let tail = curve::read(&run.metrics()?, &mut |step, loss| against.take(step, loss));
        Some(tail.map(|tail| (tail, against.difference())))
    });
    for (place, (run, read)) in (begin..).zip(others.iter_mut().zip(read)) {
        match read {
            Some(Ok((tail, difference))) => {
                run.torn = tail.torn;
                let found = if tasks[reference] != tasks[place] {
                    CurveDifference::OtherTask
                } else if run.has_epoch_means() != means {
                    CurveDifference::MeansAndSteps
                } else {
                    difference
                };
                differences[place] = tail.has_losses.then_some(found);
            }
            Some(Err(e)) => run.report_damage(e.into(), fault),
            None => {}
        }
    }
    (Some(reference), differences)
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
        let (tasks, axes) = Comparison::from_runs(runs).axes_by_task(None);
        assert_eq!(tasks, [Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!(axes[&Some(0)], ["optimizer.sgd.lr"]);
        assert_eq!(axes[&Some(1)], ["model.width"]);
    }
}
