//! Plans every trial of an experiment before anything starts.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{planned::Planned, warnings::Warnings};
use crate::{
    plan::{Lack, Machine, PlanError, ResolvedDevices},
    spec::{Experiment, Problem},
    units,
};

/// Planning stops after this number of problems.
const MOST_PROBLEMS: usize = 100;

/// The decision about one trial.
pub enum Prepared<P> {
    Run(Box<P>),
    /// It would only repeat that earlier trial. The devices are those that this trial requested and would
    /// use.
    SameAs(usize, Box<ResolvedDevices>),
    Missing(Box<Problem>),
}

/// Plans every trial. Each problem has the number of its trial.
pub fn prepare<P: Planned>(
    experiment: &Experiment<P::Spec>,
    shared: &mut P::Shared,
    machine: &Machine,
    threads: usize,
) -> Result<Vec<Prepared<P>>, Vec<(usize, Problem)>> {
    P::begin_planning(shared, experiment.trials.len());
    let mut problems = Vec::new();
    let mut prepared: Vec<Prepared<P>> = Vec::with_capacity(experiment.trials.len());
    for trial in &experiment.trials {
        match P::plan(&trial.spec, shared, machine, threads) {
            Ok(planned) => {
                let unjudged = experiment.stop.and_then(|halving| planned.unjudged(halving));
                problems.extend(unjudged.map(|[why, hint]| {
                    (trial.index, Problem::at_key("sweep.stop", format!("`sweep.stop`: {why}")).hint(hint))
                }));
                prepared.push(Prepared::Run(Box::new(planned)));
            }
            Err(PlanError::Missing(problem)) => prepared.push(Prepared::Missing(Box::new(problem))),
            Err(PlanError::Problems(found)) => {
                problems.extend(found.into_iter().map(|p| (trial.index, p)));
                if problems.len() > MOST_PROBLEMS {
                    break;
                }
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let all = prepared.iter_mut();
    let run =
        all.filter_map(|own| if let Prepared::Run(planned) = own { Some(&mut **planned) } else { None });
    P::settle_together(run.collect(), shared, machine, threads);
    find_repeats(experiment, &mut prepared);
    Ok(prepared)
}

/// Leaves out the trials that would only repeat an earlier one.
fn find_repeats<P: Planned>(experiment: &Experiment<P::Spec>, prepared: &mut [Prepared<P>]) {
    // Only these keys can make a trial repeat another, so only trials that are alike on all other axes are compared.
    let may_repeat = |axis: &str| axis.starts_with("devices") || axis == "matmul.order";
    if !experiment.axes.iter().any(|axis| may_repeat(axis)) {
        return;
    }
    let mut alike: HashMap<Vec<String>, Vec<usize>> = HashMap::new();
    // A trial that is drawn later will differ from its stand-in.
    for (at, trial) in
        experiment.trials.iter().enumerate().filter(|(_, trial)| trial.index < experiment.known)
    {
        let Prepared::Run(planned) = &prepared[at] else { continue };
        let values = experiment.values(trial).into_iter().zip(&experiment.axes);
        let others = values.filter(|(_, axis)| !may_repeat(axis)).map(|(value, _)| value).collect();
        let earlier = alike.entry(others).or_default();
        let is_repeated = |other: &&usize| match &prepared[**other] {
            Prepared::Run(other) => planned.repeats(other),
            _ => false,
        };
        match earlier.iter().find(is_repeated).copied() {
            Some(found) => prepared[at] = Prepared::SameAs(found, Box::new(planned.devices().clone())),
            None => earlier.push(at),
        }
    }
}

/// The first trial that runs, with its number.
pub fn first_run<P>(prepared: &[Prepared<P>]) -> Option<(usize, &P)> {
    prepared.iter().enumerate().find_map(|(index, prepared)| match prepared {
        Prepared::Run(planned) => Some((index, &**planned)),
        _ => None,
    })
}

/// Messages about folds that no trial validates on, although some folds are swept; by the number of folds.
fn missing_folds<P: Planned>(prepared: &[Prepared<P>]) -> BTreeMap<u32, String> {
    let mut taken: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for own in prepared {
        if let Prepared::Run(planned) = own
            && let Some([folds, fold]) = planned.fold()
        {
            taken.entry(folds).or_default().insert(fold);
        }
    }
    let words = |(folds, taken): (u32, BTreeSet<u32>)| {
        let missing = (0..folds).filter(|fold| !taken.contains(fold)).map(|fold| fold as usize);
        let missing: Vec<usize> = missing.collect();
        let numbers = units::numbers(&missing);
        let text =
            format!("no trial validates on fold {numbers} of {folds}: `data.fold=0..{folds}` takes all");
        (taken.len() > 1 && !missing.is_empty()).then_some((folds, text))
    };
    taken.into_iter().filter_map(words).collect()
}

/// Warnings of the trials that run or repeat one that runs, except those contained in the text `elsewhere`.
pub fn warnings<P: Planned>(
    experiment: &Experiment<P::Spec>,
    prepared: &[Prepared<P>],
    elsewhere: &str,
) -> Warnings {
    let folds_missing = missing_folds(prepared);
    let lacks: BTreeSet<&Lack> = prepared.iter().filter_map(|own| devices_of(own)?.lack.as_ref()).collect();
    let trials = prepared.iter().zip(&experiment.trials).filter_map(|(own, trial)| {
        let devices = devices_of(own)?;
        let runs = if let Prepared::SameAs(earlier, _) = own { prepared.get(*earlier)? } else { own };
        let Prepared::Run(planned) = runs else { return None };
        let folds = planned.fold().and_then(|[folds, _]| folds_missing.get(&folds).cloned());
        let no_rung = experiment.stop.zip(planned.epochs()).and_then(|(halving, epochs)| {
            let [first, all] = [halving.min_epochs, epochs].map(|epochs| units::counted(epochs, "epoch"));
            let text =
                format!("no trial stops early: `sweep.stop` judges first after {first}, and there are {all}");
            halving.rungs(epochs).next().is_none().then_some(text)
        });
        let lack = devices.lack.iter().filter(|lack| !elsewhere.contains(&lack.to_string()));
        let lack = lack.map(|lack| lack.joined(&lacks).to_string());
        let remarks = planned.remarks(&experiment.axes).into_iter();
        let others = remarks.chain(folds).chain(no_rung).filter(|text| !elsewhere.contains(text));
        Some((trial.index, lack.chain(others).collect()))
    });
    let own = lacks.iter().map(|lack| lack.to_string()).collect();
    Warnings::new(experiment.is_sweep(), trials, own)
}

/// The devices of a trial that runs or repeats one that runs.
fn devices_of<P: Planned>(prepared: &Prepared<P>) -> Option<&ResolvedDevices> {
    match prepared {
        Prepared::Run(planned) => Some(planned.devices()),
        Prepared::SameAs(_, devices) => Some(devices),
        Prepared::Missing(_) => None,
    }
}
