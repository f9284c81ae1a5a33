//! `runner`: a declarative experiment runner.
//!
//! One idea carries the code: **an experiment is compiled to a program; devices run programs; everything they do is
//! recorded.**
//!
//! ```text
//! spec  ->  plan  ->  programs  ->  device  ->  record  ->  report
//! what      what      what each     runs them,  what is     what it
//! the user  will      kind of step  counts      kept        meant
//! wrote     happen    does
//! ```
//!
//! A layer uses only those above it in this list; `tests/it/architecture.rs` enforces this.
//!
//! The layers are in six crates, each compiled with the optimization that it needs: [`vector`] (arithmetic on
//! one core), `runner_base` (the first three), `runner_spec`, `runner_engine` (from [`collective`] to
//! [`train`]), `runner_session` (from `lab` to `run`), and this one.
//!
//! | layer | owns |
//! | --- | --- |
//! | [`units`] | numbers as a person reads them: times, bytes, counts, rates |
//! | [`host`] | what the host tells of itself: processor, caches, memory |
//! | [`random`] | streams of random numbers, one per purpose, all from the seed |
//! | [`spec`] | what the user wrote: TOML with places, strict, every problem at once, overrides, JSON Schema |
//! | [`collective`] | what several devices do together: sums in rank order, barriers that a failing rank poisons |
//! | [`op`] | the instructions of a step, one file each: shapes, cost, reference, lowering, CPU tasks, GPU record |
//! | [`program`] | a training step as data: layers, loss and optimizer lowered to ops over planned buffers |
//! | [`plan`] | what will happen: devices and engine chosen, shapes inferred, programs lowered, bytes and FLOPs counted |
//! | [`device`] | memory, copies, running a program; the ledger that counts every transfer and every wait |
//! | [`data`] | sources (synthetic, csv, idx, npy) and the order of rows |
//! | `event` | all that the outside may learn about a run |
//! | [`train`] | the loop: blocks of steps, validation, stopping; it formats nothing |
//! | `lab` | experiments on the machine itself: products, copies, a tour of tensors |
//! | [`record`] | events into a run folder: one sink per file |
//! | `run` | a session: trials prepared, executed, recorded; one run or a sweep, for every kind |
//! | [`report`] | run folders into tables and comparisons |
//! | `predict` | a run's model on new rows: predictions, and metrics where they are labelled |
//! | `slurm` | a cluster's Slurm, by its own commands: job arrays submitted, looked at, ended |
//! | [`cli`] | the command line: arguments, commands, printing |

// Tests may be tables.
#![cfg_attr(test, allow(clippy::too_many_lines))]

pub mod cli;
mod predict;
pub mod report;
mod slurm;

pub use runner_base::{host, random, units};
pub use runner_engine::{collective, data, device, event, op, plan, program, train};
pub use runner_session::record;
use runner_session::run;
pub use runner_spec as spec;
pub use runner_vector as vector;
