//! Every trial planned before anything starts.

use crate::{
    plan::{
        Machine, PlanError,
        lab::{LabTrial, plan},
    },
    spec::{Experiment, GpuCount, LabSpec, OnMissing, Problem, Request},
};

/// What is to become of a trial.
pub enum Prepared {
    /// It runs.
    Run(Box<LabTrial>),
    /// It would equal that earlier trial in all but the request.
    SameAs(usize),
    /// Its devices are not there.
    Missing(Problem),
}

/// Plans every trial. Problems come with the number of their trial.
pub fn prepare(
    experiment: &Experiment<LabSpec>,
    machine: &Machine,
    threads: usize,
) -> Result<Vec<Prepared>, Vec<(usize, Problem)>> {
    let (mut problems, mut prepared) = (Vec::new(), Vec::<Prepared>::new());
    for trial in &experiment.trials {
        match plan(&trial.spec, machine, threads) {
            Ok(planned) => {
                let earlier = prepared.iter().zip(&experiment.trials).position(|(other, spec)| match other {
                    Prepared::Run(other) => spec.repeat == trial.repeat && same_but_request(other, &planned),
                    _ => false,
                });
                prepared.push(earlier.map_or_else(|| Prepared::Run(Box::new(planned)), Prepared::SameAs));
            }
            Err(PlanError::Missing(problem)) => prepared.push(Prepared::Missing(problem)),
            Err(PlanError::Problems(found)) => problems.extend(found.into_iter().map(|p| (trial.index, p))),
        }
    }
    if problems.is_empty() { Ok(prepared) } else { Err(problems) }
}

/// Whether two trials differ in nothing but which devices they asked for, and got the same ones.
fn same_but_request(a: &LabTrial, b: &LabTrial) -> bool {
    let (x, y) = (&a.spec.devices, &b.spec.devices);
    if x.request == y.request || y.on_missing != OnMissing::Clamp || a.devices.used != b.devices.used {
        return false;
    }
    let without_request = |spec: &LabSpec| {
        let mut spec = spec.clone();
        spec.devices.request = Request::NumGpus(GpuCount::Exactly(0));
        spec
    };
    without_request(&a.spec) == without_request(&b.spec)
}
