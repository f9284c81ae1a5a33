//! Programs that trials have in common. A sweep plans all its trials before the first one runs; thousands of them often
//! differ in rates and seeds alone, which no program holds.

use std::sync::Arc;

use crate::{plan::Trial, program::Programs};

/// Those that are kept, the newest.
const KEPT: usize = 16;

#[derive(Default)]
pub struct SharedPrograms(Vec<Arc<Programs>>);

impl SharedPrograms {
    /// Has a trial hold the programs of an earlier one where they are equal.
    pub fn share(&mut self, trial: &mut Trial) {
        for programs in std::iter::once(&mut trial.programs).chain(&mut trial.peers) {
            match self.0.iter().find(|kept| *kept == programs) {
                Some(kept) => *programs = Arc::clone(kept),
                None => {
                    if self.0.len() >= KEPT {
                        self.0.remove(0);
                    }
                    self.0.push(Arc::clone(programs));
                }
            }
        }
    }
}
