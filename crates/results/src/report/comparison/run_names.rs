//! How runs are called, in every table and sentence: `#` and the number of a trial or else the position of a run, with a letter of
//! its input if there are several.

use super::Comparison;
use crate::{report::grouping::grouped, units};

impl Comparison {
    /// A run's displayed number: for a sweep's trial its own, with which its folder begins, for another run its position, counted
    /// from 1. If inputs have letters, only both together name a run.
    pub(in crate::report) fn number(&self, place: usize) -> usize {
        self.runs[place].trial.unwrap_or(place + 1)
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

    /// One name for runs of one setting: `#7` is the first, or `#7 B` if inputs have letters, of which all are named.
    pub(in crate::report) fn numbered(&self, places: &[usize]) -> String {
        let letters = self.letters(places);
        let space = if letters.is_empty() { "" } else { " " };
        format!("#{}{space}{letters}", self.number(places[0]))
    }
}
