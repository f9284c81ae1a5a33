//! The kinds of sessions. Both are compiled here: with this crate's optimization, not that of the command line.

use super::{Ended, Exit, Planned, Prepared, Session, sweep_start::run_sweep};
use crate::plan::{Machine, Trial, lab::LabTrial};

pub trait Kind: Planned {
    /// Plans every trial. If one cannot run as written, the problem is printed and its exit code returned.
    fn prepare_all(session: &Session<'_, Self>, machine: &Machine) -> Result<Vec<Prepared<Self>>, Exit>;

    /// Runs the trials of a sweep that are not done, or the only trial.
    fn run_all(session: &Session<'_, Self>, prepared: &[Prepared<Self>], machine: &Machine) -> Ended;
}

macro_rules! kinds {
    ($($kind:ident),*) => {
        $(impl Kind for $kind {
            fn prepare_all(session: &Session<'_, Self>, machine: &Machine) -> Result<Vec<Prepared<Self>>, Exit> {
                session.prepare(machine)
            }

            fn run_all(session: &Session<'_, Self>, prepared: &[Prepared<Self>], machine: &Machine) -> Ended {
                match session.is_sweep() {
                    true => run_sweep(session, prepared, machine),
                    false => session.single(prepared).unwrap_or_else(|exit| exit).into(),
                }
            }
        })*
    };
}

kinds! { Trial, LabTrial }
