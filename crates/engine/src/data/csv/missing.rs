//! Which cells are missing, and which are numbers.

use std::borrow::Cow;

use super::{columns::Columns, decimal::value, faults::Kind};
use crate::spec::{Csv, MISSING_VALUES, Missing};

/// Texts that stand for missing cells, ASCII letters in either case. An empty cell is always missing.
pub(super) struct MissingCells {
    pub(super) words: Vec<String>,
    /// Bytes of the longest word: a longer cell is compared with none.
    longest: usize,
    /// The words that are numbers: `-999` stands for `-999.0`, too.
    pub(super) numbers: Vec<f64>,
    /// The mark before a number's decimals.
    pub(super) decimal: char,
    /// What becomes of such cells.
    pub(super) rule: Missing,
}

impl MissingCells {
    /// Cells are trimmed before.
    pub(super) fn new(spec: &Csv) -> Self {
        let words = spec.missing_values.clone();
        let words = words.unwrap_or_else(|| MISSING_VALUES.map(str::to_owned).into());
        Self::from_words(words, spec.decimal, spec.missing)
    }

    /// Those of a file without a spec.
    pub(super) fn usual(decimal: char) -> Self {
        Self::from_words(MISSING_VALUES.map(str::to_owned).into(), decimal, Missing::Error)
    }

    fn from_words(words: Vec<String>, decimal: char, rule: Missing) -> Self {
        let numbers = words.iter().filter_map(|word| value(word, decimal)).filter(|x| x.is_finite());
        let longest = words.iter().map(String::len).max().unwrap_or(0);
        Self { longest, numbers: numbers.collect(), words, decimal, rule }
    }

    /// Whether a row is left out: with any missing cell, or where cells are filled, without a target, a group or a weight.
    pub(super) fn drops<'a>(&self, columns: &Columns, cell: impl Fn(usize) -> &'a str) -> bool {
        match self.rule {
            Missing::Error => false,
            Missing::Mean => {
                let never_filled = columns.targets.iter().chain(&columns.group).chain(&columns.weight);
                never_filled.into_iter().any(|&column| self.has(cell(column)))
            }
            Missing::Drop => columns.used().any(|column| self.has(cell(column))),
        }
    }

    /// Whether a cell is missing.
    pub(super) fn has(&self, cell: &str) -> bool {
        self.has_text(cell)
            || (!self.numbers.is_empty() && self.value(cell).is_some_and(|x| self.has_number(x)))
    }

    /// Parses a cell as a number that is finite in f32.
    pub(super) fn number(&self, cell: &str) -> Result<f64, Kind> {
        match self.value(cell) {
            _ if self.has_text(cell) => Err(Kind::Missing),
            Some(value) if self.has_number(value) => Err(Kind::Missing),
            Some(value) if (value as f32).is_finite() => Ok(value),
            Some(value) if value.is_nan() => Err(Kind::Text),
            Some(_) if cell.bytes().any(|byte| byte.is_ascii_digit()) => Err(Kind::TooLarge),
            Some(_) => Err(Kind::Infinite),
            None => Err(Kind::Text),
        }
    }

    /// The number that a cell holds.
    pub(super) fn value(&self, cell: &str) -> Option<f64> {
        value(cell, self.decimal)
    }

    /// A cell as a class or a category: a number is written with a point, so that the file's mark does not tell it from another
    /// file's.
    pub(super) fn word<'a>(&self, cell: &'a str) -> Cow<'a, str> {
        match self.value(cell) {
            Some(_) if self.decimal != '.' && cell.contains(self.decimal) => {
                Cow::Owned(cell.replacen(self.decimal, ".", 1))
            }
            _ => Cow::Borrowed(cell),
        }
    }

    fn has_text(&self, cell: &str) -> bool {
        cell.is_empty()
            || (cell.len() <= self.longest && self.words.iter().any(|word| cell.eq_ignore_ascii_case(word)))
    }

    fn has_number(&self, value: f64) -> bool {
        self.numbers.contains(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_words() {
        let missing = MissingCells::usual('.');
        for cell in ["", "n/a", "N/A", "NA", "na", "NaN", "NAN", "null", "NULL"] {
            assert!(missing.has(cell), "{cell}");
            assert_eq!(missing.number(cell), Err(Kind::Missing), "{cell}");
        }
        for cell in ["0", "None", "-", "nano", "inf", "NAs"] {
            assert!(!missing.has(cell), "{cell}");
        }
    }

    #[test]
    fn own_words_replace_the_usual_ones() {
        let words = ["?", "Unknown", "-999"].map(str::to_owned);
        let missing = MissingCells::from_words(words.into(), '.', Missing::Error);
        for cell in ["", "?", "unknown", "-999", "-999.0", "-9.99e2"] {
            assert!(missing.has(cell), "{cell}");
            assert_eq!(missing.number(cell), Err(Kind::Missing), "{cell}");
        }
        for (cell, kind) in [("NA", Kind::Text), ("NaN", Kind::Text), ("??", Kind::Text)] {
            assert!(!missing.has(cell), "{cell}");
            assert_eq!(missing.number(cell), Err(kind), "{cell}");
        }
        assert_eq!(missing.number("999"), Ok(999.0));
        assert!(MissingCells::from_words(Vec::new(), '.', Missing::Error).has(""));
    }

    #[test]
    fn numbers() {
        let missing = MissingCells::usual('.');
        for (cell, value) in [("1", 1.0), ("-2.5e-3", -0.0025), ("+.5", 0.5), ("3.", 3.0), ("1e-60", 1e-60)] {
            assert_eq!(missing.number(cell), Ok(value));
        }
        for (cell, kind) in [
            ("inf", Kind::Infinite),
            ("-Infinity", Kind::Infinite),
            ("1e39", Kind::TooLarge),
            ("-1e999", Kind::TooLarge),
            ("1,5", Kind::Text),
            ("0x10", Kind::Text),
            ("-nan", Kind::Text),
            ("12a", Kind::Text),
        ] {
            assert_eq!(missing.number(cell), Err(kind), "{cell}");
        }
    }

    #[test]
    fn numbers_with_a_comma() {
        let missing = MissingCells::from_words(vec!["-99,5".to_owned()], ',', Missing::Error);
        for (cell, value) in
            [("1", 1.0), ("-2,5e-3", -0.0025), ("+,5", 0.5), ("3,", 3.0), ("0,1", 0.1), ("1e2", 100.0)]
        {
            assert_eq!(missing.number(cell), Ok(value), "{cell}");
        }
        for (cell, kind) in [
            ("-99,50", Kind::Missing),
            ("1.5", Kind::Text),
            ("1.234,5", Kind::Text),
            ("1,234,5", Kind::Text),
            (",", Kind::Text),
            ("1,5e39", Kind::TooLarge),
            ("inf", Kind::Infinite),
        ] {
            assert_eq!(missing.number(cell), Err(kind), "{cell}");
        }
        let words = ["1,0", "1", "a,b", "1,2,3", "2.5"].map(|cell| missing.word(cell));
        assert_eq!(words, ["1.0", "1", "a,b", "1,2,3", "2.5"]);
    }
}
