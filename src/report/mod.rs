//! Tables and comparisons of run folders. Reads files only, never live objects.

mod best;
mod columns;
mod comparability;
mod comparison;
mod configurations;
mod csv_file;
mod curve;
mod differences;
mod differing;
mod error;
mod export;
mod find;
mod grid;
mod grouping;
mod lab;
mod machines;
mod noise;
mod policies;
mod repeats;
mod run;
mod scaling;
mod speeds;
mod statistics;
mod sweep;
mod sweep_end;
mod tasks;
mod text;
mod verdict;

pub use comparison::{Comparison, compare};
pub(crate) use error::ReportError;
pub use export::Format;
pub(crate) use find::find_run;
pub(crate) use run::run_status;
pub use statistics::Estimate;
pub use sweep_end::sweep_end;
