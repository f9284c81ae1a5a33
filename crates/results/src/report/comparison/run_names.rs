//! How runs are called: by the numbers of trials, with a letter of their input if there are several, or by their positions.

use super::Comparison;
use crate::{report::grouping::grouped, units};

impl Comparison {
    /// A run's displayed number: for a sweep's trial its own, with which its folder begins, for another run its position, counted
    /// from 1. If inputs have letters, only both together name a run.
    pub(in crate::report) fn number(&self, place: usize) -> usize {
        self.runs[place].trial.unwrap_or(place + 1)
    }

    fn has_trials(&self) -> bool {
        self.runs.iter().any(|run| run.trial.is_some())
    }

    /// The title of a column with the numbers of runs.
    pub(in crate::report) fn numbers_title(&self) -> &'static str {
        if self.has_trials() { "#" } else { "run" }
    }

    /// `#3` of trials, as in every table of them, or `run 4` where no run is a trial.
    pub(in crate::report) fn run_name(&self, place: usize) -> String {
        if self.has_trials() { self.numbered(&[place]) } else { format!("run {}", place + 1) }
    }

    /// The same of several: `#1, 3 to 5`, or `runs 1, 3 to 5`.
    pub(in crate::report) fn run_names(&self, places: &[usize]) -> String {
        let runs = match (self.has_trials(), places.len()) {
            (true, _) => "",
            (false, 1) => "run ",
            (false, _) => "runs ",
        };
        runs.to_owned() + &self.run_numbers(places)
    }

    /// What follows [`Comparison::numbers_title`]: `#1, 3 to 5`, or `1, 3 to 5`.
    pub(in crate::report) fn run_numbers(&self, places: &[usize]) -> String {
        match self.has_trials() {
            true => self.numbers(places),
            false => units::numbers(&places.iter().map(|place| place + 1).collect::<Vec<_>>()),
        }
    }

    /// `#1, 3 to 5`, or `#1 A, #3 to 5 A, #2 B` if inputs have letters.
    pub(in crate::report) fn numbers(&self, places: &[usize]) -> String {
        let mut places = places.to_vec();
        places.sort_unstable();
        let by_input = grouped(places.iter().map(|&place| (self.letters(&[place]), self.number(place))));
        let words = |(letter, numbers): &(String, Vec<usize>)| match (units::numbers(numbers), &**letter) {
            (numbers, "") => format!("#{numbers}"),
            (numbers, letter) => {
                numbers.split(", ").map(|own| format!("#{own} {letter}")).collect::<Vec<_>>().join(", ")
            }
        };
        by_input.iter().map(words).collect::<Vec<_>>().join(", ")
    }

    /// `#7`, or `#7 B` if inputs have letters: the first letter is that of the number.
    pub(in crate::report) fn numbered(&self, places: &[usize]) -> String {
        let letters = self.letters(places);
        let space = if letters.is_empty() { "" } else { " " };
        format!("#{}{space}{letters}", self.number(places[0]))
    }
}
