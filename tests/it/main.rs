//! One integration binary: every test drives the program or the library as a user would.

mod compare;
mod conformance;
mod data;
mod parity;
mod process;
mod robust;
mod run;
