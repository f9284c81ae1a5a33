//! A run's model on new rows: predictions, and metrics where the rows are labelled.
//!
//! The forward pass is the program of a validation, on the CPU; preprocessing is the one that the model's file keeps.

mod error;
mod evaluate;
mod forward;
mod output;
mod output_file;
mod trained;

pub use error::PredictError;
pub use evaluate::evaluate;
pub use output::predict;
pub use trained::{Trained, WhichWeights};
