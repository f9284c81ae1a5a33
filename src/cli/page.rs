//! A page of facts, as `runner check` prints it.

use std::fmt::Write;

use crate::{host, record::of_build};

/// Lines with a name and a value; further lines of a value are indented below it.
pub struct Page(String);

impl Page {
    pub fn new(title: &str) -> Self {
        Self(format!("{title}\n\n"))
    }

    /// The complete text.
    pub fn into_text(self) -> String {
        self.0
    }

    /// Adds a name with several lines.
    pub fn list(&mut self, name: &str, lines: impl Iterator<Item = String>) {
        for (i, line) in lines.enumerate() {
            self.row(if i == 0 { name } else { "" }, line);
        }
    }

    pub fn row(&mut self, name: &str, value: impl AsRef<str>) {
        let _ = writeln!(self.0, "  {name:<10} {}", value.as_ref()); // writing to a String cannot fail
    }

    /// Notes the kind of build if that makes times misleading.
    pub fn build(&mut self) {
        if let Some(words) = of_build(host::BUILD) {
            self.row("build", words);
        }
    }

    pub fn more(&mut self, lines: impl IntoIterator<Item = String>) {
        for line in lines {
            self.row("", line);
        }
    }
}
