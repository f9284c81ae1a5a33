//! Collectives: what several devices of one run do together.
//!
//! A [`Collective`] is one rank's handle. It is given to an executor when that is made, and used from within a step, so
//! that the other layers need not know how many devices there are. May use [`crate::spec`] and [`crate::program`].

mod abort;
mod barrier;
mod shared;

use std::time::Duration;

pub use abort::{Abort, Guard};
pub use barrier::Barrier;
pub use shared::{Shared, shared};

/// Why devices did not come together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveError {
    /// Another rank has failed, and has said why itself.
    #[error("another device of the run has failed")]
    Poisoned,
    /// Another rank did not come.
    #[error("`{device}` did not come to the sum over devices within {}", crate::units::seconds(waited.as_secs_f64()))]
    Stalled {
        /// The one that is missing.
        device: String,
        /// How long it was waited for.
        waited: Duration,
    },
}

/// One rank's way to the others.
pub trait Collective: Send {
    /// Sums `numbers` over all ranks, in rank order, in place: afterwards every rank holds the same bits. `step` is
    /// 1-based, for messages.
    ///
    /// # Errors
    /// Where another rank has failed or does not come; the numbers are then of no use.
    fn all_reduce(&mut self, numbers: &mut [f32], step: u64) -> Result<(), CollectiveError>;
}
