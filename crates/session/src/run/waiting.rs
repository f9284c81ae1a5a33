//! A wait for another process that may take long.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use super::exit::print_stderr;
use crate::record::Verbosity;

/// How long a process waits before it says so.
const REPORT_AFTER: Duration = Duration::from_secs(1);

/// A wait that has begun.
pub(super) struct Waiting {
    begun: Instant,
    is_reported: Cell<bool>,
}

impl Waiting {
    pub fn new(verbosity: Verbosity) -> Self {
        Self { begun: Instant::now(), is_reported: Cell::new(verbosity == Verbosity::Quiet) }
    }

    /// Says once what it waits for, if it has waited long.
    pub fn report(&self, what: impl FnOnce() -> String) {
        if self.begun.elapsed() > REPORT_AFTER && !self.is_reported.replace(true) {
            print_stderr(&format!("waiting for {}\n", what()));
        }
    }
}
