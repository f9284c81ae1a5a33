//! Values typed on the command line or within `choice(...)`: TOML if possible, otherwise plain text.

use super::{
    key::{self, Key},
    problem::Problem,
    sweep::Space,
    tree::{self, Node, Span, Table, Value},
};

/// The functions of swept values, such as `logspace(...)`; see [`super::sweep::Space`].
pub(super) const FUNCTIONS: [&str; 7] =
    ["range", "linspace", "logspace", "choice", "uniform", "loguniform", "int"];

/// The usage of each of [`FUNCTIONS`], for messages.
pub(super) const FORMS: [&str; 7] = [
    "range(a, b, step)",
    "linspace(a, b, n)",
    "logspace(a, b, n)",
    "choice(x, y, ...)",
    "uniform(a, b)",
    "loguniform(a, b)",
    "int(a, b)",
];

/// As deep as values of TOML may nest; a text with more brackets around it is plain.
const MOST_NESTED: usize = 80;

/// Parses TOML, or takes the text as a plain string. Within brackets too, so that `[loss, lr]` needs no
/// quotes.
pub(super) fn value(piece: &str, span: Span) -> Result<Node, Box<Problem>> {
    nested(piece, span, 0)
}

fn nested(piece: &str, span: Span, depth: usize) -> Result<Node, Box<Problem>> {
    let plain = || Node { span, value: Value::String(piece.to_owned()) };
    match tree::parse_value(piece, span)? {
        Some(Node { value: Value::Datetime(_), .. }) => return Ok(plain()),
        Some(node) => return Ok(node),
        None => {}
    }
    if let Some(number) = bare_number(piece) {
        return Ok(Node { span, value: Value::Float(number) });
    }
    if depth == MOST_NESTED {
        return Ok(plain());
    }
    let start_of = |part: &str| span.start + (part.as_ptr() as usize - piece.as_ptr() as usize);
    if let Some(inner) = piece.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        return Ok(table(inner, Span { start: start_of(inner), end: span.end - 1, ..span }, depth)?
            .map_or_else(plain, |table| Node { span, value: Value::Table(table) }));
    }
    let Some(inner) = piece.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return Ok(plain());
    };
    let items = split_at_commas(inner);
    if items.iter().any(|item| item.is_empty()) {
        return Ok(plain());
    }
    let item = |item: &&str| {
        let start = start_of(item);
        nested(item, Span { start, end: start + item.len(), ..span }, depth + 1)
    };
    let items = items.iter().map(item).collect::<Result<_, _>>()?;
    Ok(Node { span, value: Value::Array(items) })
}

/// Parses what stands within the braces of a table; `None` if that is no table.
fn table(inner: &str, span: Span, depth: usize) -> Result<Option<Table>, Box<Problem>> {
    let mut table = Table::default();
    let span_of = |part: &str| {
        let start = span.start + (part.as_ptr() as usize - inner.as_ptr() as usize);
        Span { start, end: start + part.len(), ..span }
    };
    for entry in split_at_commas(inner) {
        let Some((name, text)) = entry.split_once('=').map(|(name, text)| (name.trim(), text.trim())) else {
            return Ok(None);
        };
        let Ok(key) = Key::parse(name, span_of(name)) else { return Ok(None) };
        if text.is_empty() || key::is_written(&table, name) {
            return Ok(None);
        }
        key::set(&mut table, &key, nested(text, span_of(text), depth + 1)?)?;
    }
    Ok(Some(table))
}

/// Parses `.1`, `1.` and `-.5`, which TOML rejects.
fn bare_number(piece: &str) -> Option<f64> {
    let digits = piece.strip_prefix(['+', '-']).unwrap_or(piece);
    let lacks_digits = digits.starts_with('.') || digits.ends_with('.') || digits.contains(".e");
    let is_decimal = digits.chars().all(|c| c.is_ascii_digit() || ".e+-".contains(c));
    piece.parse().ok().filter(|_| lacks_digits && is_decimal)
}

/// Whether these values make an axis.
pub(super) fn is_swept(pieces: &[&str]) -> bool {
    pieces.len() > 1 || pieces.iter().any(|piece| Space::is_meant_by(piece))
}

/// Splits at commas outside brackets, braces, quotes and the parentheses of [`FUNCTIONS`], and trims the
/// pieces. A quote opens a string only at the start of a value or within brackets, so that `it's` is a word.
pub(super) fn split_at_commas(text: &str) -> Vec<&str> {
    let (mut pieces, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    let (mut quote, mut escaped, mut fresh) = (None, false, true);
    let mut in_call = false;
    for (i, c) in text.char_indices() {
        match (quote, c) {
            (Some('"'), '\\') => escaped = !escaped,
            (Some(open), _) => {
                if c == open && !escaped {
                    quote = None;
                }
                escaped = false;
            }
            (None, '"' | '\'') if fresh => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, '(') if depth == 0 && FUNCTIONS.contains(&text[start..i].trim()) => {
                (depth, in_call) = (1, true)
            }
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ')') if in_call && depth == 1 => (depth, in_call) = (0, false),
            (None, ',') if depth == 0 => {
                pieces.push(text[start..i].trim());
                start = i + 1;
            }
            (None, _) => {}
        }
        fresh = depth > 0 || c == ',' || (fresh && c.is_whitespace());
    }
    pieces.push(text[start..].trim());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_split_outside_brackets_braces_quotes_and_calls() {
        assert_eq!(split_at_commas("0, 1,2"), ["0", "1", "2"]);
        assert_eq!(split_at_commas("[1,2],[3]"), ["[1,2]", "[3]"]);
        assert_eq!(split_at_commas("{a={b=1},c=2},x"), ["{a={b=1},c=2}", "x"]);
        assert_eq!(split_at_commas(r#""a, b""#), [r#""a, b""#]);
        assert_eq!(split_at_commas(r#""a\", b",c"#), [r#""a\", b""#, "c"]);
        assert_eq!(split_at_commas("it's, fine"), ["it's", "fine"]);
        assert_eq!(split_at_commas("['a,b', 'c'],d"), ["['a,b', 'c']", "d"]);
        assert_eq!(split_at_commas("range(0, 6)"), ["range(0, 6)"]);
        assert_eq!(split_at_commas("choice([1,2],[3]), x"), ["choice([1,2],[3])", "x"]);
        assert_eq!(split_at_commas("other(a, b)"), ["other(a", "b)"]);
        assert_eq!(split_at_commas(""), [""]);
        assert_eq!(split_at_commas("a,"), ["a", ""]);
    }

    #[test]
    fn brackets_without_end_do_not_exhaust_the_stack() {
        for [open, close] in [["[", "]"], ["{a=", "}"]] {
            let deep = format!("{}x{}", open.repeat(20_000), close.repeat(20_000));
            assert!(value(&deep, Span::new(1, 0..deep.len())).is_ok());
        }
    }
}
