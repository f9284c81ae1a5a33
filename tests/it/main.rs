//! One integration binary: every test drives the program or the library as a user would.

mod architecture;
mod bad_specs;
mod compare;
mod conformance;
mod cuda;
mod data;
mod dependencies;
mod devices;
mod experiments;
#[cfg(feature = "cuda")]
mod gpu;
mod kernels;
mod moved;
mod parity;
mod process;
mod readme;
mod repeats;
mod robust;
mod run;
mod spec;
mod timeline;
