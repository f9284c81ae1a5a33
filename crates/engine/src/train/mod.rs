//! The trainer: epochs of blocks of steps, validation, stopping. It emits events and formats nothing.
//!
//! A block of steps runs on the device without the host. It ends at the next flush of the log, at the end of
//! an epoch, at `max_steps`, or after about 50 ms, so that a signal or `max_time` is noticed.

mod areas;
mod batch_weights;
mod best;
mod blocks;
mod checkpoints;
mod class_counts;
mod decision;
mod device_group;
mod feed;
mod files;
mod flush;
#[allow(unsafe_code)]
mod helpers;
mod init;
mod lr_scheduler;
mod metric_buffer;
mod orders;
mod outcome;
mod plateau;
mod prefetch;
mod resamples;
mod save;
mod scores;
mod state;
mod stop;
mod train_loop;
mod validation;

pub use class_counts::ClassCounts;
pub use decision::{DecisionRule, log_softmax, softmax};
pub use device_group::DeviceGroup;
pub use init::initial_values;
pub use lr_scheduler::LrScheduler;
pub use resamples::{Drawn, Resamples, losses_of_rows};
pub use scores::{Errors, Scores};
pub use state::Emit;
pub use stop::{EarlyStopper, Judge, StopFlag};
pub use train_loop::{TrainSetup, Trained, grain, train};
