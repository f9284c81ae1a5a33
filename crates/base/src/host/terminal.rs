//! Makes text safe to print on a terminal.
//!
//! Text from files and arguments is escaped when it enters a table or a message. Whatever is printed is
//! escaped once more, so that text which was missed cannot move the cursor.

use std::{borrow::Cow, fmt::Display};

/// Escapes control characters and direction-changing characters except line ends and tabs, so that nothing
/// moves the cursor, hides text or reverses it.
pub fn escape_controls(text: &str) -> Cow<'_, str> {
    escape(text, |rest| rest.starts_with(['\n', '\t']) || rest.starts_with("\r\n"))
}

/// Like [`escape_controls`], and also escapes line ends and tabs: for text from files and arguments when it
/// enters a table or a message.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    escape(text, |_| false)
}

/// Like [`escape_controls`], but keeps colour sequences: for text that this program has coloured itself.
pub fn escape_uncoloured(text: &str) -> Cow<'_, str> {
    escape(text, |rest| rest.starts_with(['\n', '\t']) || rest.starts_with("\r\n") || is_colour(rest))
}

/// Escapes what must be escaped; `stays` gets the text from a character on and decides whether that one is
/// kept.
fn escape(text: &str, stays: impl Fn(&str) -> bool) -> Cow<'_, str> {
    if !text.contains(is_escaped) {
        return text.into();
    }
    let mut shown = String::new();
    for (at, letter) in text.char_indices() {
        if !is_escaped(letter) || stays(&text[at..]) {
            shown.push(letter);
        } else {
            shown.extend(letter.escape_default());
        }
    }
    shown.into()
}

/// Control characters, line and paragraph separators, and characters that change the direction of text.
fn is_escaped(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// JSON with DEL and the C1 controls escaped: they only occur in strings, where JSON permits them unescaped.
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

/// Whether the text begins with an SGR sequence: `ESC [ 1;31 m`.
fn is_colour(text: &str) -> bool {
    let numbers = text.strip_prefix("\x1b[").and_then(|rest| rest.split_once('m'));
    numbers.is_some_and(|(numbers, _)| numbers.bytes().all(|byte| byte == b';' || byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_its_meaning() {
        assert_eq!(json_text(&"{\"ä\":\"d\u{7f}\u{9b}\"}\n"), "{\"ä\":\"d\\u007f\\u009b\"}\n");
    }

    #[test]
    fn what_passes() {
        let coloured = "a\tü\r\n\x1b[1;31merror\x1b[0m\n";
        assert_eq!(escape_uncoloured(coloured), coloured);
        assert_eq!(escape_controls(coloured), "a\tü\r\n\\u{1b}[1;31merror\\u{1b}[0m\n");
        assert_eq!(escape_line(coloured), r"a\tü\r\n\u{1b}[1;31merror\u{1b}[0m\n");
        for escape in [escape_controls, escape_line, escape_uncoloured] {
            assert_eq!(
                escape("a\rb\u{9b}2J\x1b[2J\x1b]0;x\u{7}\x1b\u{202e}\u{2069}\u{2028}"),
                r"a\rb\u{9b}2J\u{1b}[2J\u{1b}]0;x\u{7}\u{1b}\u{202e}\u{2069}\u{2028}"
            );
        }
    }
}
