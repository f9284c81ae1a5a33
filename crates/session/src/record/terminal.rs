//! The width of the terminal that standard output goes to, and long lines of words broken to fit it.

use std::{env, io, os::unix::process::parent_id, process};

use terminal_size::terminal_size_of;

/// Set by `--plot` for the run whose output it prints to its terminal: the width, and the process that set it. What that run
/// starts inherits it, but has another parent.
const COLUMNS: &str = "RUNNER_COLUMNS";

/// A last cell with fewer words is a value, and stays on its line.
const FEWEST_WORDS: usize = 4;

/// What a command to copy begins with, behind the words that introduce it.
const COMMAND: &str = ": runner ";

/// Columns of the terminal; `None` if standard output goes elsewhere.
pub fn output_width() -> Option<u16> {
    let set = || width_from(&env::var(COLUMNS).ok()?, parent_id());
    terminal_size_of(io::stdout()).map(|(width, _)| width.0).or_else(set)
}

/// Tells a child, whose output this process prints, how wide that may be.
pub fn pass_output_width(child: &mut process::Command) {
    if let Some(width) = output_width() {
        child.env(COLUMNS, format!("{width} {}", process::id()));
    }
}

fn width_from(text: &str, parent: u32) -> Option<u16> {
    let (width, setter) = text.split_once(' ')?;
    width.parse().ok().filter(|_| setter.parse() == Ok(parent))
}

/// Breaks a line between words if it is wider than the terminal; of a table's row only a last cell of several words. A line that ends
/// with a command stays whole: broken it cannot be copied.
pub fn folded(line: &str, width: usize) -> String {
    if line.chars().count() <= width || line.contains(COMMAND) {
        return line.to_owned();
    }
    let lead = line.len() - line.trim_start().len();
    let cell = line[lead..].rfind("  ").map(|at| lead + at + 2);
    let (start, hanging) = match cell {
        Some(start) if line[start..].split(' ').count() < FEWEST_WORDS => return line.to_owned(),
        Some(start) => (start, line[..start].chars().count().min(width / 2)),
        None => (lead, lead + 2),
    };
    broken(line, (start, hanging), width)
}

/// Breaks what follows the byte `start` of a line between words; further lines begin with `hanging` spaces.
pub(super) fn broken(line: &str, (start, hanging): (usize, usize), width: usize) -> String {
    let mut text = line[..start].to_owned();
    let (mut taken, mut is_at_start) = (text.chars().count(), true);
    for word in line[start..].split(' ') {
        let length = word.chars().count();
        if !is_at_start && taken + 1 + length > width {
            text.truncate(text.trim_end().len());
            text += &format!("\n{}", " ".repeat(hanging));
            (taken, is_at_start) = (hanging, true);
        } else if !is_at_start {
            text.push(' ');
            taken += 1;
        }
        text += word;
        taken += length;
        is_at_start &= word.is_empty();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{folded, width_from};

    #[test]
    fn only_a_child_of_the_process_that_set_the_width_takes_it() {
        assert_eq!(width_from("60 17", 17), Some(60));
        for (text, parent) in [("60 17", 18), ("60", 17), ("wide 17", 17), ("", 17)] {
            assert_eq!(width_from(text, parent), None, "{text}");
        }
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(folded("a bc def gh", 6), "a bc\n  def\n  gh");
        assert_eq!(folded("  #1 longer than this", 10), "  #1\n    longer\n    than\n    this");
        assert_eq!(folded("a/path/of/one/word", 6), "a/path/of/one/word");
        assert_eq!(folded("it fits", 7), "it fits");
        assert_eq!(folded("  repeat it with: runner a b", 10), "  repeat it with: runner a b");
    }

    #[test]
    fn of_a_row_only_words_are_broken() {
        let row = "  lr  15.0 %  1 to 3: 0.4929, 4 to 6: 0.4972";
        assert_eq!(folded(row, 30), "  lr  15.0 %  1 to 3: 0.4929,\n              4 to 6: 0.4972");
        assert_eq!(folded(" 3   0.2  0.32 [0.20, 0.43]", 20), " 3   0.2  0.32 [0.20, 0.43]");
    }
}
