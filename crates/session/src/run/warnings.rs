//! Warnings known before anything runs: each is printed once, with the numbers of its trials.

use std::collections::HashMap;

use super::print_stderr;
use crate::units;

/// Warnings with the numbers of their trials, in order of appearance.
pub struct Warnings {
    found: Vec<(String, Vec<usize>)>,
    /// In a sweep, the number of trials that run.
    of_sweep: Option<usize>,
    /// What the trials say themselves of what is joined here.
    own: Vec<String>,
}

impl Warnings {
    /// Collects the warnings of each trial that runs, by trial number; `own` are those that trials put otherwise.
    pub fn new(is_sweep: bool, trials: impl Iterator<Item = (usize, Vec<String>)>, own: Vec<String>) -> Self {
        let mut found: Vec<(String, Vec<usize>)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut count = 0;
        for (trial, warnings) in trials {
            count += 1;
            for warning in warnings {
                let place = *places.entry(warning).or_insert_with_key(|warning| {
                    found.push((warning.clone(), Vec::new()));
                    found.len() - 1
                });
                let trials = &mut found[place].1;
                if trials.last() != Some(&trial) {
                    trials.push(trial);
                }
            }
        }
        Self { found, of_sweep: is_sweep.then_some(count), own }
    }

    /// Prints them to standard error.
    pub fn print(&self) {
        self.lines().iter().for_each(|line| print_stderr(&format!("{line}\n")));
    }

    /// All that need not be said again.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.found.iter().map(|(text, _)| text).chain(&self.own).map(String::as_str)
    }

    fn lines(&self) -> Vec<String> {
        let line = |(text, trials): &(String, Vec<usize>)| match self.of_sweep {
            None => format!("warning: {text}"),
            Some(all) if all == trials.len() && all > 1 => format!("warning: all trials: {text}"),
            Some(_) => format!("warning: {}: {text}", units::numbered("trial", trials)),
        };
        self.found.iter().map(line).collect()
    }
}
