//! Basics for all layers: facts about the host, formatting of numbers for people, and streams of random
//! numbers.

// Only this project uses the module: a name that says enough needs no doc.
#[allow(missing_docs)]
pub mod host;
pub mod random;
pub mod units;
