//! `runner`: a declarative experiment runner.
//!
//! **An experiment is compiled to a program; devices run programs; everything they do is recorded.**
//!
//! ```text
//! spec  ->  plan  ->  programs  ->  device  ->  record  ->  report
//! what      what      what each     runs them,  what is     what it
//! the user  will      kind of step  counts      kept        meant
//! wrote     happen    does          copies
//! ```
//!
//! A layer uses only the layers above it in this list; `tests/it/architecture.rs` checks that.
//!
//! There are ten crates, each compiled with the optimization level that its speed needs: [`vector`]
//! (arithmetic on one core), `runner_base` (the first three layers), `runner_spec`, `runner_engine` (from
//! [`collective`] to [`train`]), `runner_cuda`, `runner_session` (from `lab` to `run`), `runner_files`,
//! `runner_results` (`report`), `runner_predict`, and this one.
//!
//! | layer | owns |
//! | --- | --- |
//! | [`units`] | numbers formatted for people: times, bytes, counts, rates |
//! | [`host`] | facts about the host: processor, caches, memory |
//! | [`random`] | random streams, one per purpose, all from the seed |
//! | [`spec`] | what the user wrote: TOML with locations, strict, every problem at once, overrides, JSON Schema |
//! | [`collective`] | what several devices do together: sums in rank order, barriers, abort when a rank fails |
//! | [`op`] | the instructions of a step, one file each: shapes, cost, reference, lowering, CPU tasks, GPU record |
//! | [`program`] | a training step as data: layers, loss and optimizer lowered to ops over planned buffers |
//! | [`plan`] | what will happen: devices and engine chosen, shapes inferred, programs lowered, bytes and FLOPs counted |
//! | [`device`] | memory, copies, running a program; the ledger that counts every copy and every wait |
//! | [`data`] | sources of rows (synthetic, csv, parquet, idx, npy), their order and splits |
//! | `event` | everything that a run reports to the outside |
//! | [`train`] | the training loop: blocks of steps, validation, stopping; it formats nothing |
//! | [`cuda`] | NVIDIA GPUs as devices: their libraries, memory, launches, engines |
//! | `lab` | experiments on the machine itself: products, copies, a tour of tensors |
//! | [`record`] | writes events to the run folder: one sink per file |
//! | `run` | a session: trials prepared, executed, recorded; one run or a sweep, for every kind |
//! | `files` | reads the files of run folders: rows of CSV, keys of TOML, curves in bounded memory |
//! | [`report`] | run folders to tables, comparisons and pages |
//! | `predict` | applies a run's model to new rows: predictions, metrics if they are labelled, ONNX export |
//! | `slurm` | a Slurm cluster, through Slurm's own commands: submits, watches and ends job arrays |
//! | [`cli`] | the command line: arguments, commands, printing |

// A long function is fine in a test that is a table of cases.
#![cfg_attr(test, allow(clippy::too_many_lines))]

pub mod cli;
mod slurm;

pub use runner_base::{host, random, units};
pub use runner_cuda as cuda;
pub use runner_engine::{collective, data, device, event, op, plan, program, train};
use runner_predict as predict;
pub use runner_results::report;
pub use runner_session::record;
use runner_session::run;
pub use runner_spec as spec;
pub use runner_vector as vector;
