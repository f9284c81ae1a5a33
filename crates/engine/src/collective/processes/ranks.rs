//! A rank's sums over processes: whole, or in parts that start early.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{
    ProcessGroup,
    early::EarlySums,
    exchange::{Exchange, PIECE},
};
use crate::collective::{Collective, CollectiveError};

/// This rank's handle.
pub struct RankSum {
    exchange: Exchange,
    /// Started with the first early sum.
    early: Option<EarlySums>,
}

pub(super) fn with_pieces(world: &Arc<ProcessGroup>, limit: Duration, piece: usize) -> RankSum {
    RankSum { exchange: Exchange::new(world, limit, piece), early: None }
}

impl RankSum {
    pub fn new(world: &Arc<ProcessGroup>, limit: Duration) -> Self {
        with_pieces(world, limit, PIECE)
    }
}

impl Collective for RankSum {
    fn all_reduce(&mut self, elements: &mut [f32], step: u64) -> Result<(), CollectiveError> {
        self.exchange.world.step.store(step, Ordering::Relaxed);
        match self.early.as_mut().filter(|early| early.has_started()) {
            Some(early) => early.finish(elements),
            None => self.exchange.sum(elements),
        }
    }

    fn start(&mut self, elements: &[f32], step: u64) -> Result<(), CollectiveError> {
        self.exchange.world.step.store(step, Ordering::Relaxed);
        let early = match &mut self.early {
            Some(early) => early,
            None => self.early.insert(EarlySums::new(self.exchange.clone())?),
        };
        early.start(elements);
        Ok(())
    }
}
