//! What comes of runs: tables, comparisons and pages of their folders.

// A long function is fine in a test that is a table of cases.
#![cfg_attr(test, allow(clippy::too_many_lines))]

#[allow(missing_docs)]
pub mod report;

use runner_base::{host, random, units};
use runner_engine::{event, train};
use runner_files as files;
use runner_session::{record, run};
use runner_spec as spec;
