//! Formats CSV lines into one reused buffer, since a small model makes millions of rows per second.
//!
//! Numbers are written with the fewest digits that read back to the same value.

use std::io::Write;

/// A confusion matrix as CSV, with a line per actual class; `counts` has a cell for each pair of classes, row
/// by row.
pub fn confusion_csv(names: &[String], counts: &[u64]) -> String {
    let mut lines = Lines::new();
    lines.text("actual").texts(names).end();
    for (name, counts) in names.iter().zip(counts.chunks_exact(names.len().max(1))) {
        lines.text(name);
        for count in counts {
            lines.u64(*count);
        }
        lines.end();
    }
    String::from_utf8_lossy(lines.bytes()).into_owned()
}

/// Complete lines and the cells of the current one.
#[derive(Default)]
pub struct Lines {
    bytes: Vec<u8>,
    /// Whether the current line has a cell.
    begun: bool,
}

impl Lines {
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes since the last [`Lines::clear`].
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Clears the lines and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.begun = false;
    }

    fn separate(&mut self) {
        if self.begun {
            self.bytes.push(b',');
        }
        self.begun = true;
    }

    /// A text cell, quoted if necessary.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.separate();
        if text.bytes().any(|byte| matches!(byte, b'"' | b',' | b'\n' | b'\r')) {
            self.bytes.push(b'"');
            self.bytes.extend_from_slice(text.replace('"', "\"\"").as_bytes());
            self.bytes.push(b'"');
        } else {
            self.bytes.extend_from_slice(text.as_bytes());
        }
        self
    }

    /// A text cell for each of them.
    pub fn texts(&mut self, texts: impl IntoIterator<Item: AsRef<str>>) -> &mut Self {
        texts.into_iter().for_each(|text| _ = self.text(text.as_ref()));
        self
    }

    /// For an unknown value.
    pub fn empty(&mut self) -> &mut Self {
        self.separate();
        self
    }

    /// Appends cells already formatted and separated by commas.
    pub fn cells(&mut self, cells: &[u8]) -> &mut Self {
        self.separate();
        self.bytes.extend_from_slice(cells);
        self
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.separate();
        self.bytes.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        self
    }

    /// An `f32`, as `0.1`, `1e-10`, `NaN`, `inf`.
    pub fn f32(&mut self, value: f32) -> &mut Self {
        self.separate();
        self.bytes.extend_from_slice(zmij::Buffer::new().format(value).as_bytes());
        self
    }

    pub fn f64(&mut self, value: f64) -> &mut Self {
        self.separate();
        self.bytes.extend_from_slice(zmij::Buffer::new().format(value).as_bytes());
        self
    }

    /// Seconds, as an `f64` without an exponent whatever its size.
    pub fn seconds(&mut self, value: f64) -> &mut Self {
        let plain = value == 0.0 || (1e-5..1e15).contains(&value);
        if plain {
            return self.f64(value);
        }
        self.separate();
        let _ = write!(self.bytes, "{value}"); // writing to a Vec cannot fail
        self
    }

    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.text(if value { "true" } else { "false" })
    }

    /// Writes a known value with `write`, or an empty cell.
    pub fn option<T>(
        &mut self,
        value: Option<T>,
        write: impl FnOnce(&mut Self, T) -> &mut Self,
    ) -> &mut Self {
        match value {
            Some(value) => write(self, value),
            None => self.empty(),
        }
    }

    /// A full line of plain text; its line breaks become spaces.
    pub fn line(&mut self, parts: &[&str]) {
        for part in parts {
            self.bytes
                .extend(part.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
        }
        self.end();
    }

    pub fn end(&mut self) {
        self.bytes.push(b'\n');
        self.begun = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &Lines) -> &str {
        std::str::from_utf8(lines.bytes()).unwrap()
    }

    #[test]
    fn cells_of_every_kind() {
        let mut lines = Lines::new();
        lines.u64(7).f32(0.1).f64(1e-10).seconds(1e-10).empty().bool(true).text("a,\"b\"").end();
        lines.option(None, Lines::f64).empty().option(Some(2.5), Lines::f64);
        lines.f32(f32::NAN).f32(f32::INFINITY).end();
        assert_eq!(text(&lines), "7,0.1,1e-10,0.0000000001,,true,\"a,\"\"b\"\"\"\n,,2.5,NaN,inf\n");
    }

    proptest::proptest! {
        #[test]
        fn numbers_read_back_to_the_same_bits(single: f32, double: f64, second in 0.0..1e20_f64) {
            let mut lines = Lines::new();
            lines.f32(single).f64(double).seconds(second).end();
            let cells: Vec<&str> = text(&lines).trim_end().split(',').collect();
            proptest::prop_assert_eq!(cells[0].parse::<f32>().unwrap().to_bits(), single.to_bits());
            proptest::prop_assert_eq!(cells[1].parse::<f64>().unwrap().to_bits(), double.to_bits());
            proptest::prop_assert_eq!(cells[2].parse::<f64>().unwrap().to_bits(), second.to_bits());
            proptest::prop_assert!(!cells[2].contains('e'));
        }
    }
}
