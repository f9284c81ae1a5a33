//! A run's model on new rows: predictions, and metrics where the rows are labelled.
//!
//! The forward pass is the program of a validation, on the CPU; preprocessing is the one that the model's file keeps. Both
//! can be written as an ONNX file, for programs that serve models.

mod error;
mod evaluate;
mod forward;
mod onnx;
mod output;
mod output_file;
mod trained;
mod validated;

pub use error::PredictError;
pub use evaluate::evaluate;
pub use forward::quoted;
pub use onnx::write_onnx;
pub use output::predict;
pub use output_file::is_standard_output;
pub use trained::{Trained, WhichWeights};
pub use validated::predict_validation;
