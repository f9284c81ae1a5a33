//! (to come)

pub mod cpu;
