//! What all layers of the runner stand on: facts about the host, numbers as a person reads them, streams of random
//! numbers.

// Only this project is the user: a name that says enough has no doc.
#[allow(missing_docs)]
pub mod host;
pub mod random;
pub mod units;
