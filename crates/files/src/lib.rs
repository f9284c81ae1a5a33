//! Reads the files of run folders: rows of CSV files, keys of TOML files, and curves of any length in bounded memory.
//!
//! A comparison reads thousands of files, or one with millions of rows, so this crate is optimized; tables and pages are not.
//! For the same reason its loops call closures by reference: what is generic compiles where it is used.

// Only this project uses it: a name that says enough needs no doc.
#![allow(missing_docs)]

pub mod csv_file;
pub mod csv_lines;
pub mod curve;
mod error;
mod leaves;
mod metric_ends;
mod metrics_file;
mod series;
mod texts;

pub use error::FileError;
pub use leaves::{LAYERS, Leaves, is_of_layers};
pub use metric_ends::{Ends, EpochValues, Validation};
pub use metrics_file::{MetricCurves, MetricsFile, NO_METRIC, Row, Sizes};
pub use series::{Bucket, Series};
pub use texts::Texts;

use runner_base::{host, units};
use runner_spec as spec;
