//! The engine: a spec is planned and compiled to a program; devices run programs.

// A long function is fine in a test that is a table of cases.
#![cfg_attr(test, allow(clippy::too_many_lines))]

// Modules that only this project uses may leave `missing_docs` unmet: a name that says enough needs no doc.
#[allow(missing_docs)]
pub mod collective;
pub mod data;
#[allow(missing_docs)]
pub mod device;
#[allow(missing_docs)]
pub mod event;
#[allow(missing_docs)]
pub mod op;
#[allow(missing_docs)]
pub mod plan;
#[allow(missing_docs)]
pub mod program;
#[allow(missing_docs)]
pub mod train;

use runner_base::{host, random, units};
use runner_spec as spec;
use runner_vector as vector;
