//! A problem that a user can mend, in words and with its place. Every layer that checks input speaks this type; only
//! The crate knows how to print it.

use std::{ops::Range, path::PathBuf};

/// Where a problem is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// At the value of a dotted key of the spec, such as `model.layers.1.linear.in_features`; where the key itself is
    /// not written, at the nearest table above it.
    Key(String),
    /// At bytes of a text that the spec was read from: 0 is the file, then one per override in the order given.
    Span {
        /// Which text.
        source: usize,
        /// Which bytes.
        range: Range<usize>,
    },
    /// In another file.
    File {
        /// The file.
        path: PathBuf,
        /// 1-based line, where there is one.
        line: Option<u64>,
        /// 1-based column in characters, where there is one.
        column: Option<u64>,
        /// The line's text, where it can be shown.
        text: Option<String>,
    },
    /// In a row of a file without lines.
    Row {
        /// The file.
        path: PathBuf,
        /// Counted from 0.
        row: usize,
    },
    /// Nowhere in particular.
    Nowhere,
}

/// What is wrong, where, and the way out. Messages are lower case, without a final period, with what the user typed in
/// backticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong.
    pub message: String,
    /// Where.
    pub place: Location,
    /// Said at the underlined place, such as `expected a positive integer`.
    pub label: Option<String>,
    /// Other places that explain it, each with its words.
    pub related: Vec<(Location, String)>,
    /// The way out.
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

    /// Says more at the underlined place.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Says the way out.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
