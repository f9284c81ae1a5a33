//! Devices of other processes: rank 0 sends commands, and each rank runs them on its own device, with its own
//! rows.

mod executor;
mod serve;
#[cfg(test)]
mod tests;
mod wire;

pub use executor::RemoteExecutor;
pub use serve::{
    ask_for_report, ask_to_connect, end, fail, report, report_connection, serve, wait_for_connections,
    wait_for_end, wait_for_identifier,
};
