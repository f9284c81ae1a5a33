//! The engine: a spec is planned and compiled to a program; devices run programs.

// Tests may be tables.
#![cfg_attr(test, allow(clippy::too_many_lines))]

// `missing_docs` is allowed where only this project is the user: there a name that says enough has no doc.
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
