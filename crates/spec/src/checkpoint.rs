//! `[checkpoint]`: when the training state is saved, and which checkpoints are kept.

use super::reader::{choices, count, count_or_zero, positive, table};

table! {
    /// Saved states of the training, from which `runner run --resume RUN` goes on.
    pub struct Checkpoint {
        /// When a checkpoint is written; without a word on it, after every epoch.
        pub every: Every [flatten] = Every::Epochs(1),
        /// Latest checkpoints to keep.
        pub keep_last: u64 = 1 => count,
        /// Checkpoints to keep besides: those with the best values of `trainer.monitor`.
        pub keep_best: u64 = 0 => count_or_zero,
    }
}

choices! {
    /// How often a checkpoint is written.
    pub enum Every {
        /// Epochs between two checkpoints (1); each is written after the epoch's validation.
        Epochs(u64) = "every_epochs" => count,
        /// Instead of `every_epochs`, optimizer steps between two checkpoints.
        Steps(u64) = "every_steps" => count,
        /// Instead of `every_epochs`, minutes between two checkpoints, such as 0.5.
        Minutes(f64) = "every_minutes" => positive,
    }
}
