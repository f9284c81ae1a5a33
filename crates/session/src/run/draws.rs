//! Trials whose values a sampler draws from the results of earlier ones. `points.csv` keeps them: each is written before its
//! trial begins, so that `--resume` finds it again.

use std::{collections::BTreeMap, io, sync::OnceLock};

use super::{
    exit::{Exit, refuse},
    planned::Planned,
    prepare::Prepared,
    session::Session,
    sweep::{Drawn, DrawnTrial, Sweep},
};
use crate::{
    event::Status,
    plan::{Machine, PlanError},
    record::{Lines, RecordError, RunDir, TrialEnd},
    spec::{Failure, Observed, TrialSpec},
};

const FILE: &str = "points.csv";

/// Finds the trials again that an earlier part of the sweep drew.
pub(super) fn found<P: Planned>(session: &Session<'_, P>, machine: &Machine, sweep: &RunDir) -> Drawn<P> {
    let experiment = session.experiment;
    let all = experiment.trials.len();
    if experiment.known == all {
        return Vec::new();
    }
    let reader = csv::Reader::from_path(sweep.file(FILE)).into_iter();
    let rows = reader.flat_map(csv::Reader::into_records).flatten();
    let point = |row: csv::StringRecord| {
        let index = row.get(0)?.parse().ok().filter(|index| (experiment.known..all).contains(index))?;
        Some((index, row.iter().skip(1).map(str::to_owned).collect()))
    };
    let points: BTreeMap<usize, Vec<String>> = rows.filter_map(point).collect();
    let drawn: Drawn<P> = (0..all).map(|_| OnceLock::new()).collect();
    for (index, values) in points {
        // One that cannot be planned has no folder, and is drawn anew.
        if let Ok(own) = planned(session, machine, index, &values) {
            let _ = drawn[index].set(own);
        }
    }
    drawn
}

/// A trial with these values.
fn planned<P: Planned>(
    session: &Session<'_, P>,
    machine: &Machine,
    index: usize,
    values: &[String],
) -> Result<DrawnTrial<P>, Option<Failure>> {
    let experiment = session.experiment;
    let trial = experiment.drawn(index, values)?;
    let prepared = match P::plan(&trial.spec, &mut *session.shared(), machine, session.threads()) {
        Ok(planned) => Prepared::Run(Box::new(planned)),
        Err(PlanError::Missing(problem)) => Prepared::Missing(problem),
        Err(PlanError::Problems(problems)) => {
            return Err(Some(experiment.failure(problems.into_iter().map(|problem| (index, problem)))));
        }
    };
    Ok((trial, prepared))
}

impl<P: Planned> Sweep<'_, '_, P> {
    /// A trial, and the decision about it. Before a trial is drawn, these stand for any that could be.
    pub fn own(&self, index: usize) -> (&TrialSpec<P::Spec>, &Prepared<P>) {
        match self.drawn.get(index).and_then(OnceLock::get) {
            Some((trial, prepared)) => (trial, prepared),
            None => (&self.session.experiment.trials[index], &self.prepared[index]),
        }
    }

    /// Draws a trial whose values are not known yet.
    pub fn draw(&self, index: usize) -> Result<(), (TrialEnd, Exit)> {
        let Some(own) =
            self.drawn.get(index).filter(|own| index >= self.session.experiment.known && own.get().is_none())
        else {
            return Ok(());
        };
        let failed = |reason: String| {
            let (status, folder) = (Status::Failed, String::new());
            (TrialEnd::Ran { status, folder, reason: Some(reason) }, Exit::Failed)
        };
        let values = self.drawn_values(index).map_err(|fault| {
            let reason = fault.to_string();
            self.with(|progress| progress.unlisted(fault));
            failed(reason)
        })?;
        let planned = planned(self.session, self.machine, index, &values);
        let (trial, prepared) = planned.map_err(|failure| {
            let shown = values.join(" ");
            self.line.apart(&mut io::stderr(), |_| failure.as_ref().map(refuse));
            failed(format!("the spec is wrong with the values {shown}"))
        })?;
        let _ = own.set((trial, prepared)); // each trial is one worker's
        Ok(())
    }

    /// Draws values and writes them down, at the same time for no two trials.
    fn drawn_values(&self, index: usize) -> Result<Vec<String>, RecordError> {
        let experiment = self.session.experiment;
        self.with(|progress| {
            let earlier = progress.points.iter().filter(|(other, _)| **other != index);
            let history: Vec<Observed<'_>> =
                earlier.map(|(other, axes)| Observed { axes, cost: progress.costs[*other] }).collect();
            let values = experiment.draw(index, &history);
            let mut lines = Lines::new();
            if !self.folder.file(FILE).exists() {
                lines.text("trial");
                for axis in &experiment.axes {
                    lines.text(axis);
                }
                lines.end();
            }
            lines.u64(index as u64);
            for value in &values {
                lines.text(value);
            }
            lines.end();
            self.folder.append(FILE, lines.bytes())?;
            progress.table.draw(index, &values)?;
            let axes = experiment.axes.iter().cloned().zip(values.iter().cloned());
            progress.points.insert(index, axes.collect());
            Ok(values)
        })
    }
}
