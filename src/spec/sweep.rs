//! `[sweep]`: one spec, many trials.

/// The table `[sweep]`, joined with the axes of the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// Dotted key and its values, as TOML; the first axis varies slowest.
    pub axes: Vec<(String, Vec<toml::Value>)>,
    /// How often each point runs (1).
    pub repeats: u32,
    /// Whether repeat r runs with seed + r (true).
    pub repeat_seeds: bool,
}
