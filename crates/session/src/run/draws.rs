//! Trials whose values a sampler draws from the results of earlier ones.

use std::{io, sync::OnceLock};

use super::{
    exit::{Exit, refuse},
    planned::Planned,
    points::Points,
    prepare::Prepared,
    session::Session,
    sweep::{Drawn, DrawnTrial, Sweep},
};
use crate::{
    event::Status,
    host::lock,
    plan::{Machine, PlanError},
    record::{RecordError, SweepLock, TrialEnd},
    spec::{Failure, Point, TrialSpec},
};

/// Plans the trials that an earlier part of the sweep drew. An error of planning one is reported when its
/// turn comes.
pub(super) fn found<P: Planned>(
    session: &Session<'_, P>,
    machine: &Machine,
    points: &Points<'_, P::Spec>,
) -> Drawn<P> {
    let experiment = session.experiment;
    if experiment.known == experiment.trials.len() {
        return Vec::new();
    }
    let drawn = |index: usize| {
        let point = points.get(index).filter(|_| index >= experiment.known);
        let own = point.and_then(|point| planned(session, machine, index, point).ok());
        own.map_or_else(OnceLock::new, OnceLock::from)
    };
    (0..experiment.trials.len()).map(drawn).collect()
}

/// Plans a trial with these values.
fn planned<P: Planned>(
    session: &Session<'_, P>,
    machine: &Machine,
    index: usize,
    point: &Point,
) -> Result<DrawnTrial<P>, Failure> {
    let experiment = session.experiment;
    let trial = experiment.drawn(index, point)?;
    let prepared = match P::plan(&trial.spec, &mut *session.shared(), machine, session.threads()) {
        Ok(planned) => Prepared::Run(Box::new(planned)),
        Err(PlanError::Missing(problem)) => Prepared::Missing(Box::new(problem)),
        Err(PlanError::Problems(problems)) => return Err(experiment.failure_at(point, problems)),
    };
    Ok((trial, prepared))
}

impl<P: Planned> Sweep<'_, '_, P> {
    /// A trial and the decision about it. Until a sampled trial is drawn, this returns a stand-in for it.
    pub fn own(&self, index: usize) -> (&TrialSpec<P::Spec>, &Prepared<P>) {
        match self.drawn.get(index).and_then(OnceLock::get) {
            Some((trial, prepared)) => (trial, prepared),
            None => (&self.session.experiment.trials[index], &self.prepared[index]),
        }
    }

    /// Draws a trial whose values are not known yet.
    pub fn draw(&self, index: usize) -> Result<(), (TrialEnd, Exit)> {
        let experiment = self.session.experiment;
        let is_open = |own: &&OnceLock<_>| index >= experiment.known && own.get().is_none();
        let Some(own) = self.drawn.get(index).filter(is_open) else { return Ok(()) };
        let failed = |reason: String| {
            let (status, folder) = (Status::Failed, String::new());
            (TrialEnd::Ran { status, folder, reason: Some(reason) }, Exit::Failed)
        };
        let point = self.point(index).map_err(|fault| {
            let reason = fault.to_string();
            self.with(|progress| progress.unlisted(fault));
            failed(reason)
        })?;
        let Some(point) = point else { return Ok(()) };
        let drawn = planned(self.session, self.machine, index, &point);
        if drawn.is_err() && self.session.process.stop.signal().is_some() {
            return Ok(()); // reading its rows was interrupted
        }
        let drawn = drawn.map_err(|failure| {
            let pairs = experiment.pairs(&point).into_iter().filter(|(_, value)| !value.is_empty());
            let pairs: Vec<String> = pairs.map(|(key, value)| format!("{key} {value}")).collect();
            self.line.apart(&mut io::stderr(), |_| refuse(&failure));
            failed(format!("the spec is wrong with {}", pairs.join(", ")))
        })?;
        let _ = own.set(drawn); // only one worker handles a trial, so the cell is empty
        Ok(())
    }

    /// The values of a trial as displayed, also of one that another process has drawn; empty if it is not drawn yet.
    pub fn values_of(&self, index: usize) -> Vec<String> {
        let points = (!self.drawn.is_empty()).then(|| lock(&self.points));
        let drawn = points.and_then(|points| Some(points.get(index)?.clone()));
        match drawn {
            Some(point) => {
                self.session.experiment.pairs(&point).into_iter().map(|(_, value)| value).collect()
            }
            None => self.session.experiment.values(&self.session.experiment.trials[index]),
        }
    }

    /// Whether this process knows the values of a trial and has planned it.
    pub fn is_known(&self, index: usize) -> bool {
        index < self.session.experiment.known || self.drawn.get(index).is_some_and(|own| own.get().is_some())
    }

    /// A trial that another process has drawn, and this one has not planned; `None` if its values are not known, or wrong.
    pub fn drawn_elsewhere(&self, index: usize) -> Option<TrialSpec<P::Spec>> {
        let point = lock(&self.points).get(index)?.clone();
        self.session.experiment.drawn(index, &point).ok()
    }

    /// The point of a trial: the one drawn by an earlier part of the sweep, or else drawn now. `None` if the
    /// sweep is interrupted.
    fn point(&self, index: usize) -> Result<Option<Point>, RecordError> {
        let is_cut = || self.session.process.stop.signal().is_some();
        let drawn = lock(&self.points).get(index).cloned();
        if drawn.is_some() || is_cut() {
            return Ok(drawn);
        }
        self.take_ends(false);
        self.with_points(|points| {
            let draw = || {
                points.read_others()?;
                if points.get(index).is_none() {
                    let costs = self.with(|progress| progress.costs.clone());
                    points.draw(index, &costs)?;
                }
                Ok(())
            };
            self.claims.with_lock(SweepLock::Draw, is_cut, draw)?.transpose()?;
            Ok(points.get(index).cloned())
        })
    }

    /// Reads the points that other processes have drawn.
    pub fn take_points(&self) -> Result<(), RecordError> {
        match self.drawn.is_empty() {
            true => Ok(()),
            false => self.with_points(|points| points.read_others()),
        }
    }

    /// Passes the points to `what` and enters points that it adds into the table.
    fn with_points<R>(
        &self,
        what: impl FnOnce(&mut Points<'_, P::Spec>) -> Result<R, RecordError>,
    ) -> Result<R, RecordError> {
        // Draws are serialized; trials that already run continue meanwhile.
        let mut points = lock(&self.points);
        let done = what(&mut points)?;
        for new in points.take_new() {
            let pairs = points.get(new).map(|point| self.session.experiment.pairs(point));
            let values: Vec<String> = pairs.into_iter().flatten().map(|(_, value)| value).collect();
            self.with(|progress| progress.table.draw(new, &values))?;
        }
        Ok(done)
    }
}
