//! One integration binary: every test drives the program or the library as a user would.

#![allow(clippy::too_many_lines)]

mod advise;
mod architecture;
mod arguments;
mod bad_specs;
mod best;
mod bf16;
mod check_hosts;
mod clean;
mod cluster;
mod compare;
mod conformance;
mod cuda;
mod data;
mod data_digest;
mod dependencies;
mod determinism;
mod devices;
mod docs;
mod ends;
mod experiments;
mod fuzz;
#[cfg(feature = "cuda")]
mod gpu;
mod json_events;
mod kernels;
mod lab;
mod language;
mod mlflow;
mod moved;
mod new_csv;
mod notebooks;
mod parity;
mod plot;
mod predict;
mod process;
mod remarks;
mod repeats;
mod report;
mod resume;
mod run;
mod serve;
mod spec;
mod split;
mod streamed;
mod sweep_spaces;
mod tensorboard;
mod thread_trials;
mod timeline;
mod trials;
mod watch;
mod weights;
mod words;
