//! Sessions: prepares the trials of an experiment, runs them with the engine, and records them in run
//! folders.

// Tests may be tables.
#![cfg_attr(test, allow(clippy::too_many_lines))]

// `missing_docs` is allowed where only this project is the user: there an item whose name says enough has no
// doc.
#[allow(missing_docs)]
pub mod lab;
#[allow(missing_docs)]
pub mod record;
#[allow(missing_docs)]
pub mod run;

use runner_base::{host, random, units};
use runner_engine::{collective, data, device, event, op, plan, program, train};
use runner_spec as spec;
use runner_vector as vector;
