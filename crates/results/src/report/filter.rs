//! `--where`: comparisons of a run's columns, combined with `and` and `or`.

use super::{ReportError, key::Key, run::Run};

const HINT: &str =
    "as in `--where 'lr < 0.1 and status = finished'`: a column, one of < <= > >= = !=, a value";

/// The hint for parentheses and for operators of other languages.
const JOINED: &str = "join comparisons by `and` and `or`, without parentheses: `and` binds closer, as in `a = 1 and b = 2 or a = 2 and b = 2`";

/// A disjunction of conjunctions of tests.
pub(super) struct Filter(Vec<Vec<Test>>);

struct Test {
    key: Key,
    operator: Operator,
    value: String,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Operator {
    Less,
    AtMost,
    Greater,
    AtLeast,
    Equal,
    Differs,
}

impl Operator {
    const ALL: [(&'static str, Self); 7] = [
        ("<=", Self::AtMost),
        (">=", Self::AtLeast),
        ("!=", Self::Differs),
        ("==", Self::Equal),
        ("<", Self::Less),
        (">", Self::Greater),
        ("=", Self::Equal),
    ];

    /// Splits a text at its first operator: returns the text before it, the operator, and the text after it.
    pub(super) fn split(text: &str) -> Option<(&str, Self, &str)> {
        let at = text.find(['<', '>', '=', '!'])?;
        let (word, operator) = Self::ALL.into_iter().find(|(word, _)| text[at..].starts_with(word))?;
        Some((text[..at].trim(), operator, text[at + word.len()..].trim()))
    }

    pub(super) fn holds(self, a: f64, b: f64) -> bool {
        match self {
            Self::Less => a < b,
            Self::AtMost => a <= b,
            Self::Greater => a > b,
            Self::AtLeast => a >= b,
            Self::Equal => a == b,
            Self::Differs => a != b,
        }
    }
}

impl Filter {
    pub(super) fn new(text: &str, runs: &[Run]) -> Result<Self, ReportError> {
        let alternative = |text: &str| {
            split_at_word(text, " and ")?.into_iter().map(|test| Test::new(test, runs)).collect()
        };
        split_at_word(text, " or ")?.into_iter().map(alternative).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn holds(&self, run: &Run) -> bool {
        self.0.iter().any(|tests| tests.iter().all(|test| test.holds(run)))
    }

    /// A tested column that depends on a run's outcome, if there is one.
    pub(super) fn outcome(&self, runs: &[Run]) -> Option<&str> {
        let mut keys = self.0.iter().flatten().map(|test| &test.key);
        keys.find(|key| key.is_outcome(runs)).map(Key::name)
    }
}

/// Splits a text at a word, in lower or upper case, outside quotes and tables. A quote or bracket only opens
/// one of these at the beginning of a value; inside a value it is an ordinary character.
fn split_at_word<'t>(text: &'t str, word: &str) -> Result<Vec<&'t str>, ReportError> {
    let (mut parts, mut begin, mut quote, mut depth) = (Vec::new(), 0, None, 0_usize);
    // At the end of the text no space follows it. After an operator it is a value.
    let is_at = |at: usize, begins: bool| {
        let is_word = |own: &str| own.eq_ignore_ascii_case(word);
        let is_last = || text[at..].trim_end().eq_ignore_ascii_case(word.trim_end());
        !begins && (text.get(at..at + word.len()).is_some_and(is_word) || is_last())
    };
    for (at, c) in text.char_indices() {
        let before = text[..at].trim_end();
        let begins = before.ends_with(['<', '>', '=']) || (depth > 0 && before.ends_with(['[', '{', ',']));
        match c {
            _ if quote.is_some() => quote = quote.filter(|quote| *quote != c),
            '"' | '\'' if begins => quote = Some(c),
            '{' | '[' if begins || depth > 0 => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            _ if depth == 0 && at >= begin && is_at(at, begins) => {
                parts.push(&text[begin..at]);
                begin = (at + word.len()).min(text.len());
            }
            _ => {}
        }
    }
    if quote.is_some() || depth > 0 {
        let what = if quote.is_some() { "a quote" } else { "a bracket" };
        let message = format!("{what} in `{}` does not close", text.trim());
        return Err(ReportError::query(message, Some(HINT)));
    }
    parts.push(&text[begin..]);
    if parts.len() > 1 && parts.iter().any(|part| part.trim().is_empty()) {
        let message =
            format!("`{}` in `{}` joins two comparisons, and one is missing", word.trim(), text.trim());
        return Err(ReportError::query(message, Some(HINT)));
    }
    Ok(parts)
}

impl Test {
    fn new(text: &str, runs: &[Run]) -> Result<Self, ReportError> {
        let is_joined = text.contains(['(', '&', '|']);
        let hint = if is_joined { JOINED } else { HINT };
        let wrong = |message: String| ReportError::query(message, Some(hint));
        let (name, operator, value) = Operator::split(text)
            .filter(|(name, _, value)| !name.is_empty() && !value.is_empty())
            .ok_or_else(|| wrong(format!("`{}` is no comparison", text.trim())))?;
        if name.starts_with('(') {
            return Err(wrong(format!("expected a column, found `{name}`")));
        }
        let quoted = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
        let text = quoted('"').or_else(|| quoted('\''));
        let is_order = !matches!(operator, Operator::Equal | Operator::Differs);
        let is_cut = text.is_none() && !value.starts_with(['{', '[']) && value.contains(['<', '>', '=']);
        let value = text.unwrap_or(value).to_owned();
        if (is_order && value.parse::<f64>().is_err() && !is_date(&value)) || is_cut {
            return Err(wrong(format!("expected a number or a date after `{name}`, found `{value}`")));
        }
        Ok(Self { key: Key::new(name, runs)?, operator, value })
    }

    /// Whether the value is the run's own. A table may be given as in `sweep.csv`, such as `sgd(lr 0.1)`, or
    /// by its key.
    fn is_value(&self, run: &Run, own: &str) -> bool {
        let is_key = || own.strip_prefix(&self.value).is_some_and(|rest| rest.starts_with('('));
        own == self.value || self.key.table(run).is_some_and(|table| table == self.value || is_key())
    }

    /// Compares numbers as numbers, everything else as text. For a run without the column, only "differs"
    /// holds.
    fn holds(&self, run: &Run) -> bool {
        if let Some(tags) = self.key.tags(run) {
            return tags.contains(&self.value) == (self.operator == Operator::Equal);
        }
        let Some(own) = self.key.value(run) else { return self.operator == Operator::Differs };
        match (own.parse::<f64>(), self.value.parse::<f64>()) {
            (Ok(own), Ok(value)) => self.operator.holds(own, value),
            _ => match self.operator {
                Operator::Equal => self.is_value(run, own),
                Operator::Differs => !self.is_value(run, own),
                // Times are written so that they sort as text.
                order if is_date(own) => order.holds(f64::from(own.cmp(&self.value) as i8), 0.0),
                _ => false,
            },
        }
    }
}

/// Whether a text begins like `2026-11-24`.
fn is_date(text: &str) -> bool {
    let is_of_date = |(place, c): (usize, char)| if place == 4 { c == '-' } else { c.is_ascii_digit() };
    text.len() >= 7 && text.chars().take(7).enumerate().all(is_of_date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_chosen_by_their_columns() {
        let run = |lr: &str, status: &str| Run {
            axes: vec![("optimizer.sgd.lr".to_owned(), lr.to_owned())],
            status: status.to_owned(),
            ..Run::default()
        };
        let runs = [run("0.1", "finished"), run("0.01", "finished"), run("1e-3", "diverged")];
        let chosen = |text: &str| -> Vec<bool> {
            let filter = Filter::new(text, &runs).unwrap();
            runs.iter().map(|run| filter.holds(run)).collect()
        };
        assert_eq!(chosen("lr < .1"), [false, true, true]);
        assert_eq!(chosen("lr<=.1 and status = finished"), [true, true, false]);
        assert_eq!(chosen("lr = 0.001 or lr > 0.05"), [true, false, true]);
        assert_eq!(chosen("status != 'finished'"), [false, false, true]);
        assert_eq!(chosen("lr<=.1 AND status = finished Or lr = 0.001"), [true, true, true]);
        assert_eq!(chosen("status != 'finished and done'"), [true; 3]);
        let named = |name: &str, tables: &[(&str, &str)]| Run {
            axes: vec![("name".to_owned(), name.to_owned())],
            tables: tables.iter().map(|(key, table)| ((*key).to_owned(), (*table).to_owned())).collect(),
            ..Run::default()
        };
        let runs = [named("a", &[]), named("a(2)", &[]), named("a(lr 2)", &[("name", "{ a = { lr = 2 } }")])];
        let chosen = |text: &str| runs.each_ref().map(|run| Filter::new(text, &runs).unwrap().holds(run));
        assert_eq!(chosen("name = a"), [true, false, true]);
        assert_eq!(chosen("name != a(2)"), [true, false, true]);
        assert_eq!(chosen("name = { a = { lr = 2 } }"), [false, false, true]);
        let runs = [named("don't", &[]), named("a[", &[]), named("a and b]", &[])];
        let chosen = |text: &str| runs.each_ref().map(|run| Filter::new(text, &runs).unwrap().holds(run));
        assert_eq!(chosen("name = don't and name != x"), [true, false, false]);
        assert_eq!(chosen("name = \"don't\" or name = a["), [true, true, false]);
        assert_eq!(chosen("name = a] or name = a[ or name = 'a and b]'"), [false, true, true]);
        let runs = ["2026-11-23T10:00:00.000Z", "2026-11-24T09:00:00.000Z"]
            .map(|time| Run { axes: vec![("started".to_owned(), time.to_owned())], ..Run::default() });
        let chosen = |text: &str| runs.each_ref().map(|run| Filter::new(text, &runs).unwrap().holds(run));
        assert_eq!(chosen("started >= 2026-11-24"), [false, true]);
        assert_eq!(chosen("started < 2026-11-23T12 or started > 2026-12"), [true, false]);
        let runs = [named("a=b", &[]), named("a", &[])];
        let chosen = |text: &str| runs.each_ref().map(|run| Filter::new(text, &runs).unwrap().holds(run));
        assert_eq!(chosen("name = 'a=b' or name = \"a>b\""), [true, false]);
        let error = |text: &str| Filter::new(text, &runs).err().unwrap().to_string();
        assert_eq!(error("name = 'a and name = b"), "a quote in `name = 'a and name = b` does not close");
        assert_eq!(error("name = [a or name = b"), "a bracket in `name = [a or name = b` does not close");
        assert_eq!(error("lr"), "`lr` is no comparison");
        let missing = |word: &str, text: &str| {
            format!("`{word}` in `{text}` joins two comparisons, and one is missing")
        };
        assert_eq!(error("name = b or"), missing("or", "name = b or"));
        assert_eq!(error("name = b OR  "), missing("or", "name = b OR"));
        assert_eq!(error("name = b and"), missing("and", "name = b and"));
        assert_eq!(error("name = a or name = b and"), missing("and", "name = b and"));
        assert_eq!(error(" or name = b"), missing("or", "or name = b"));
        assert_eq!(chosen("name = or or name = 'and'"), [false, false]);
        assert_eq!(chosen("name = 'a=b' or name = or"), [true, false]);
        assert_eq!(error("lr < 0.1 <"), "expected a number or a date after `lr`, found `0.1 <`");
        assert_eq!(error("lr < fast"), "expected a number or a date after `lr`, found `fast`");
        assert_eq!(error("stat = x"), "no run has a column `stat`");
        assert_eq!(error("(lr < 0.1)"), "expected a column, found `(lr`");
        for text in ["(lr < 0.1)", "lr < 0.1 && lr > 0", "lr < 0.1 | lr > 1"] {
            let hint = Filter::new(text, &runs).err().unwrap().hint().unwrap_or_default().to_owned();
            assert!(hint.starts_with("join comparisons by `and` and `or`, without parentheses"), "{hint}");
        }
    }
}
