//! Programs shared by trials. A sweep plans all its trials before the first one runs; thousands of trials
//! often differ only in learning rates and seeds, which are not part of a program.

use std::sync::Arc;

use crate::{plan::Trial, program::Programs};

/// Number of program sets kept, the newest ones.
const KEPT: usize = 16;

#[derive(Default)]
pub struct SharedPrograms(Vec<Arc<Programs>>);

impl SharedPrograms {
    /// Replaces the programs of a trial with those of an earlier one if they are equal.
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
