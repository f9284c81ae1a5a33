//! Collective operations over the devices of one run.
//!
//! A [`Collective`] is one rank's handle. An executor gets it at construction and uses it within a step, so
//! the other layers need not know how many devices there are.

mod abort;
mod barrier;
mod give_way;
mod processes;
mod shared;

use std::time::Duration;

pub use abort::{Abort, Guard};
pub use barrier::Barrier;
pub use give_way::give_way;
#[cfg(test)]
pub use processes::memory::{groups, leave};
pub use processes::{HEARTBEAT_TIMEOUT, ProcessGroup, RankSum, Tag, Traffic};
pub use shared::{Shared, shared};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveError {
    /// Another rank has failed; its own error gives the reason.
    #[error("another device of the run has failed")]
    Poisoned,
    /// Another rank did not arrive in time.
    #[error("`{device}` did not come to the sum over devices within {}", crate::units::seconds(waited.as_secs_f64()))]
    Stalled { device: String, waited: Duration },
    /// The process of another rank no longer responds.
    #[error("`{rank}` is lost: {why}; it was killed, is frozen, or its link is cut")]
    Gone { rank: String, why: String },
    #[error("a thread for sums over processes cannot be started: {0}")]
    NoThread(String),
}

pub trait Collective: Send {
    /// Sums `elements` over all ranks, in place and in rank order, so that every rank gets the same bits.
    /// `step` counts from 1 and is used in messages.
    ///
    /// # Errors
    /// Another rank failed or did not arrive; the contents of `elements` are then undefined.
    fn all_reduce(&mut self, elements: &mut [f32], step: u64) -> Result<(), CollectiveError>;

    /// Starts to sum the elements that end where the previous call's begin, or at the end if it is the first.
    /// They must not change until [`all_reduce`](Self::all_reduce) sums the whole. All ranks must start the
    /// same parts. By default nothing is started early.
    ///
    /// # Errors
    /// If there is no thread for it.
    fn start(&mut self, elements: &[f32], step: u64) -> Result<(), CollectiveError> {
        let _ = (elements, step);
        Ok(())
    }
}
