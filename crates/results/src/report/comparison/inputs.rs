//! Several inputs of a comparison: sweeps and single runs, called A, B and so on, since their trials may have equal numbers.

use super::Comparison;
use crate::{
    host::escape_line,
    report::{
        grid::{Column, Columns},
        grouping::{distinct, grouped},
        sweep::input,
    },
    units,
};

/// Maximum inputs in the name of a setting that several have.
const MOST_NAMED: usize = 3;

impl Comparison {
    /// The letters of the inputs that these runs are of: `B`, or `B+A`; empty if inputs have none.
    pub(in crate::report) fn letters(&self, places: &[usize]) -> String {
        let own = distinct(places.iter().filter_map(|&place| self.inputs.get(place).copied()));
        let more = own.len() > MOST_NAMED;
        let own: Vec<String> = own.into_iter().take(MOST_NAMED).map(letter).collect();
        own.join("+") + if more { "+\u{2026}" } else { "" }
    }

    /// A row for each input; none if they have no letters.
    pub(in crate::report) fn input_columns(&self) -> Vec<Column> {
        let inputs = grouped(self.inputs.iter().copied().zip(0..));
        let first = |(_, places): &(usize, Vec<usize>)| &self.runs[places[0]];
        let mut columns = Columns::new(&inputs);
        columns.words("input", |(number, _)| letter(*number));
        columns.words("is", |input| match first(input).sweep {
            Some(_) => format!("a sweep of {}", units::counted(input.1.len() as u64, "trial")),
            None => "a run".to_owned(),
        });
        columns.words("runs", |(_, places)| {
            format!(
                "#{}",
                units::numbers(&places.iter().map(|&place| self.number(place)).collect::<Vec<_>>())
            )
        });
        columns.words("name", |input| first(input).axis("name").unwrap_or_default().to_owned());
        columns.words("folder", |input| self::input(first(input)).to_owned());
        columns.known()
    }

    /// A line for each input of these runs; empty if inputs have no letters.
    pub(in crate::report) fn input_lines(&self, places: impl Iterator<Item = usize>) -> String {
        let known = places.filter_map(|place| Some((*self.inputs.get(place)?, input(&self.runs[place]))));
        let mut known = distinct(known);
        known.sort_unstable();
        known.iter().map(|(own, folder)| format!("  {}  {}\n", letter(*own), escape_line(folder))).collect()
    }
}

/// `A` to `Z`, then `AA` and so on.
fn letter(number: usize) -> String {
    let last = char::from(b'A' + (number % 26) as u8).to_string();
    if number < 26 { last } else { letter(number / 26 - 1) + &last }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_go_on_after_z() {
        assert_eq!([0, 25, 26, 51, 52, 701, 702].map(letter), ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]);
    }
}
