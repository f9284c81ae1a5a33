//! Sessions: prepares the trials of an experiment, runs them with the engine, and records them in run
//! folders.

// A long function is fine in a test that is a table of cases.
#![cfg_attr(test, allow(clippy::too_many_lines))]

// Modules that only this project uses may leave `missing_docs` unmet: a name that says enough needs no doc.
#[allow(missing_docs)]
pub mod lab;
#[allow(missing_docs)]
pub mod record;
#[allow(missing_docs)]
pub mod run;

use runner_base::{host, random, units};
use runner_cuda as cuda;
use runner_engine::{collective, data, device, event, op, plan, program, train};
use runner_spec as spec;
use runner_vector as vector;
