//! The width of the terminal, and long lines of words broken to fit it.

use std::io::{self, IsTerminal};

/// A last cell with fewer words is a value, and stays on its line.
const FEWEST_WORDS: usize = 4;

/// Width of the terminal in columns, or of a page if there is none.
pub(super) fn terminal_width() -> u16 {
    terminal_size::terminal_size_of(io::stdout()).map_or(120, |(width, _)| width.0)
}

/// The text for standard output: folded if that is a terminal.
pub(super) fn fit(text: &str) -> String {
    match io::stdout().is_terminal() {
        true => text.lines().map(|line| folded(line, usize::from(terminal_width())) + "\n").collect(),
        false => text.to_owned(),
    }
}

/// Breaks a line between words if it is wider than the terminal; of a table's row only a last cell of several words.
pub(super) fn folded(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let lead = line.len() - line.trim_start().len();
    let cell = line[lead..].rfind("  ").map(|at| lead + at + 2);
    let (start, hanging) = match cell {
        Some(start) if line[start..].split(' ').count() < FEWEST_WORDS => return line.to_owned(),
        Some(start) => (start, line[..start].chars().count().min(width / 2)),
        None => (lead, lead + 2),
    };
    let mut text = line[..start].to_owned();
    let mut taken = text.chars().count();
    for (place, word) in line[start..].split(' ').enumerate() {
        let length = word.chars().count();
        if place > 0 && taken + 1 + length > width {
            text += &format!("\n{}", " ".repeat(hanging));
            taken = hanging;
        } else if place > 0 {
            text.push(' ');
            taken += 1;
        }
        text += word;
        taken += length;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::folded;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(folded("a bc def gh", 6), "a bc\n  def\n  gh");
        assert_eq!(folded("  #1 longer than this", 10), "  #1\n    longer\n    than\n    this");
        assert_eq!(folded("a/path/of/one/word", 6), "a/path/of/one/word");
        assert_eq!(folded("it fits", 7), "it fits");
    }

    #[test]
    fn of_a_row_only_words_are_broken() {
        let row = "  lr  15.0 %  1 to 3: 0.4929, 4 to 6: 0.4972";
        assert_eq!(folded(row, 30), "  lr  15.0 %  1 to 3: 0.4929,\n              4 to 6: 0.4972");
        assert_eq!(folded(" 3   0.2  0.32 [0.20, 0.43]", 20), " 3   0.2  0.32 [0.20, 0.43]");
    }
}
