//! A problem that the user can fix, with its location. Every layer that checks input uses this type; only the
//! command line prints it.

use std::{ops::Range, path::PathBuf};

use runner_base::units;

/// The location of a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// The value of a dotted key, such as `model.layers.1.linear.in_features`. If the spec does not set the
    /// key, the nearest table above it is meant.
    Key(String),
    /// Bytes of one of the spec's texts: 0 is the file, then one per override in the order given; far above are the files that it extends.
    Span {
        /// The number of the text.
        source: usize,
        /// The bytes within it.
        range: Range<usize>,
    },
    /// In another file.
    File {
        /// Its path.
        path: PathBuf,
        /// 1-based line, if known.
        line: Option<u64>,
        /// 1-based column in characters, if known.
        column: Option<u64>,
        /// The line's text, if it can be shown.
        text: Option<String>,
    },
    /// In a row of a binary file, which has no lines.
    Row {
        /// The file's path.
        path: PathBuf,
        /// The row, counted from 0.
        row: usize,
    },
    /// No location.
    Nowhere,
}

impl Location {
    /// ` in line 7` of a text, ` in row 7` of a file without lines; empty elsewhere.
    pub fn in_words(&self) -> String {
        match self {
            Self::File { line: Some(line), .. } => format!(" in line {}", units::count(*line)),
            Self::Row { row, .. } => format!(" in row {}", units::count(*row as u64)),
            _ => String::new(),
        }
    }
}

/// What is wrong, where, and how to fix it. Messages are lower case, without a final period, with the user's
/// words in backticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong: the first line that is printed.
    pub message: String,
    /// Where it is.
    pub place: Location,
    /// Printed at the underlined text, such as `expected a positive integer`.
    pub label: Option<String>,
    /// Other locations that explain the problem, each with a label.
    pub related: Vec<(Location, String)>,
    /// How to fix it.
    pub hint: Option<String>,
}

impl From<Problem> for Vec<Problem> {
    fn from(problem: Problem) -> Self {
        vec![problem]
    }
}

impl Problem {
    /// A problem at `place`.
    pub fn new(place: Location, message: impl Into<String>) -> Self {
        Self { message: message.into(), place, label: None, related: Vec::new(), hint: None }
    }

    /// A problem at the value of a dotted key.
    pub fn at_key(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Location::Key(key.into()), message)
    }

    /// Sets the text at the underlined location.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets the hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
