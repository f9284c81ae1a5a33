//! Every trial planned before anything starts.

use super::same::repeats;
use crate::{
    plan::{
        Machine, PlanError, ResolvedDevices,
        lab::{LabTrial, plan},
    },
    spec::{Experiment, LabSpec, Problem},
};

/// What is to become of a trial.
pub enum Prepared {
    /// It runs.
    Run(Box<LabTrial>),
    /// It would only repeat that earlier trial: what it asks for, and what it would use.
    SameAs(usize, ResolvedDevices),
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
                    Prepared::Run(other) => spec.repeat == trial.repeat && repeats(other, &planned),
                    _ => false,
                });
                prepared.push(match earlier {
                    Some(earlier) => Prepared::SameAs(earlier, planned.devices),
                    None => Prepared::Run(Box::new(planned)),
                });
            }
            Err(PlanError::Missing(problem)) => prepared.push(Prepared::Missing(problem)),
            Err(PlanError::Problems(found)) => problems.extend(found.into_iter().map(|p| (trial.index, p))),
        }
    }
    if problems.is_empty() { Ok(prepared) } else { Err(problems) }
}
