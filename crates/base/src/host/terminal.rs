//! Text that a terminal may be given.

use std::{borrow::Cow, fmt::Display};

/// Control characters as escapes, so that names from files and arguments neither move the cursor nor hide text; line ends,
/// tabs and colours stay.
pub fn escape_controls(text: &str) -> Cow<'_, str> {
    let stays = |c: char| !c.is_control() || c == '\n' || c == '\t';
    if text.chars().all(stays) {
        return text.into();
    }
    let mut shown = String::new();
    for (at, letter) in text.char_indices() {
        let rest = &text[at..];
        if stays(letter) || rest.starts_with("\r\n") || is_colour(rest) {
            shown.push(letter);
        } else {
            shown.extend(letter.escape_default());
        }
    }
    shown.into()
}

/// JSON with DEL and the C1 controls escaped: they stand in its strings only, where JSON permits them raw.
pub fn json_text(json: &impl Display) -> String {
    let mut text = String::new();
    for letter in json.to_string().chars() {
        match letter {
            '\u{7f}'..='\u{9f}' => text += &format!("\\u{:04x}", u32::from(letter)),
            _ => text.push(letter),
        }
    }
    text
}

/// Whether it begins with a sequence of SGR: `ESC [ 1;31 m`.
fn is_colour(text: &str) -> bool {
    let numbers = text.strip_prefix("\x1b[").and_then(|rest| rest.split_once('m'));
    numbers.is_some_and(|(numbers, _)| numbers.bytes().all(|byte| byte == b';' || byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::{escape_controls, json_text};

    #[test]
    fn json_keeps_its_meaning() {
        assert_eq!(json_text(&"{\"ä\":\"d\u{7f}\u{9b}\"}\n"), "{\"ä\":\"d\\u007f\\u009b\"}\n");
    }

    #[test]
    fn only_colours_pass() {
        assert_eq!(escape_controls("a\tü\r\n\x1b[1;31merror\x1b[0m\n"), "a\tü\r\n\x1b[1;31merror\x1b[0m\n");
        assert_eq!(
            escape_controls("a\rb\u{9b}2J\x1b[2J\x1b]0;x\u{7}\x1b"),
            r"a\rb\u{9b}2J\u{1b}[2J\u{1b}]0;x\u{7}\u{1b}"
        );
    }
}
