//! Applies a run's model, or several of a sweep, to rows: predictions, and metrics if the rows are labelled.
//!
//! The forward pass is the validation program, on the CPU; the preprocessing is stored in the model's file.
//! Both can be exported as an ONNX file, for programs that serve models.

// A long function is fine in a test that is a table of cases.
#![cfg_attr(test, allow(clippy::too_many_lines))]
// Only this project uses it: a name that says enough needs no doc.
#![allow(missing_docs)]

mod baseline;
mod decision;
mod error;
mod evaluate;
mod evaluation;
mod far;
mod forward;
mod importance;
mod intervals;
mod mean;
mod onnx;
mod out_of_fold;
mod output;
mod output_file;
mod pass;
mod predictor;
mod row_warnings;
mod sample;
mod thresholds;
mod trained;
mod validated;

pub use decision::{Decision, DecisionRequest};
pub use error::PredictError;
pub use evaluate::{EvaluateRequest, EvaluatedRows, evaluate};
pub use forward::quoted;
pub use onnx::write_onnx;
pub use output::{PredictedRows, predict};
pub use output_file::is_standard_output;
pub use predictor::{Models, Predictor};
pub use trained::{Trained, WhichWeights, moved_source};
pub use validated::of_model;

use runner_base::{host, random, units};
use runner_engine::{data, device, plan, program, train};
use runner_results::report;
use runner_session::record;
use runner_spec as spec;
