//! The values of a swept key: a list, a range, or a distribution that a sampler draws from.

use super::super::{
    suggest,
    tree::{Span, Value},
    typed::{FORMS, FUNCTIONS, split_at_commas, value},
};

/// Lists longer than this cannot be swept anyway.
const MAX_VALUES: f64 = super::MAX_TRIALS as f64;

/// The values that a key may take.
#[derive(Clone, Debug)]
pub(crate) enum Space {
    /// A list of values; a grid runs all of them.
    Values(Vec<Value>),
    Uniform(f64, f64),
    LogUniform(f64, f64),
    /// Both ends are included.
    Int(i64, i64),
}

/// Why a text is not a space, and a hint.
pub(crate) struct NoSpace {
    pub message: String,
    pub hint: String,
}

/// A number and how it was written (`integer` if it has no decimal point).
#[derive(Clone, Copy)]
struct Number {
    value: f64,
    integer: Option<i64>,
}

impl Space {
    /// Whether a text looks like a range or a distribution.
    pub fn is_meant_by(text: &str) -> bool {
        let is_call = text.split_once('(').is_some_and(|(name, _)| FUNCTIONS.contains(&name.trim()));
        is_call || ends(text).is_some()
    }

    /// The name of a call of no function, and the call that was meant, if that is known: `logunif(1, 2)`.
    pub fn misspelled(text: &str) -> Option<(&str, Option<String>)> {
        let (name, rest) = text.trim().strip_suffix(')')?.split_once('(')?;
        let name = name.trim();
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
        if !is_name || FUNCTIONS.contains(&name) {
            return None;
        }
        let functions = || FUNCTIONS.into_iter();
        // Other programs have them in modules: `tune.uniform(0, 1)`.
        let last = name.rsplit('.').next().unwrap_or(name);
        let near = suggest::nearest(last, functions()).or_else(|| suggest::longer(last, functions()));
        let meant = near.map(|near| format!("{near}({rest})"));
        // Other words are strings, such as a column's name.
        let are_numbers =
            rest.contains(',') && rest.split(',').all(|piece| piece.trim().parse::<f64>().is_ok());
        (meant.is_some() || are_numbers).then_some((name, meant))
    }

    /// Parses `logspace(1e-4, 1e-1, 7)` and the other forms.
    pub fn parse(text: &str) -> Result<Self, NoSpace> {
        if let Some((from, to)) = ends(text) {
            return range([from, to, 1].map(|i| Number { value: i as f64, integer: Some(i) }), text);
        }
        let call = text.split_once('(').map(|(name, rest)| (name.trim(), rest.trim_end()));
        let (name, Some(inner)) = call.map_or((text, None), |(name, rest)| (name, rest.strip_suffix(')')))
        else {
            return Err(unknown(text, text));
        };
        let arguments: Vec<&str> = split_at_commas(inner);
        if name == "choice" {
            let at = Span { source: 0, start: 0, end: 0 };
            let choice = |piece: &&str| Some(value(piece, at).ok().filter(|_| !piece.is_empty())?.value);
            let values: Option<Vec<Value>> = arguments.iter().map(choice).collect();
            return values.map(Self::Values).ok_or_else(|| wrong(text, "an empty choice"));
        }
        if !FUNCTIONS.contains(&name) {
            return Err(unknown(name, text));
        }
        let numbers: Option<Vec<Number>> = arguments.iter().map(|piece| number(piece)).collect();
        let Some(numbers) = numbers else { return Err(wrong(text, "it takes finite numbers")) };
        let ordered = |[a, b]: [Number; 2]| match a.value < b.value {
            true => Ok((a.value, b.value)),
            false if a.value > b.value && arguments.len() == 2 => {
                let [a, b] = [arguments[0], arguments[1]];
                let message = format!("`{text}`: its ends are in the wrong order");
                Err(NoSpace { message, hint: format!("write `{name}({b}, {a})`") })
            }
            false => Err(wrong(text, "the first number is not below the second")),
        };
        match (name, &numbers[..]) {
            ("range", [from, to]) => range([*from, *to, Number { value: 1.0, integer: Some(1) }], text),
            ("range", [from, to, step]) => range([*from, *to, *step], text),
            ("linspace", [from, to, n]) => spaced([*from, *to], count(*n, text)?, linear),
            ("logspace", [a, b, ..]) | ("loguniform", [a, b]) if a.value.min(b.value) <= 0.0 => {
                Err(wrong(text, "its ends are above 0"))
            }
            ("logspace", [from, to, n]) => spaced([*from, *to], count(*n, text)?, geometric),
            ("uniform", [a, b]) => ordered([*a, *b]).map(|(a, b)| Self::Uniform(a, b)),
            ("loguniform", [a, b]) => ordered([*a, *b]).map(|(a, b)| Self::LogUniform(a, b)),
            ("int", [a, b]) => match (a.integer, b.integer, ordered([*a, *b])?) {
                (Some(a), Some(b), _) => Ok(Self::Int(a, b)),
                _ => Err(wrong(text, "it takes integers")),
            },
            _ => Err(wrong(text, &format!("{} arguments", numbers.len()))),
        }
    }

    /// The value at `u` in [0, 1).
    pub fn at(&self, u: f64) -> Value {
        match self {
            Self::Values(values) => values[(u * values.len() as f64) as usize].clone(),
            Self::Uniform(a, b) => Value::Float(rounded(a + u * (b - a), b - a).clamp(*a, *b)),
            Self::LogUniform(a, b) => Value::Float(six_digits(a * (b / a).powf(u)).clamp(*a, *b)),
            Self::Int(a, b) => {
                let offset = (u * (apart(*a, *b) as f64 + 1.0)) as i128;
                Value::Integer(i64::try_from(i128::from(*a) + offset).unwrap_or(i64::MAX).min(*b))
            }
        }
    }

    /// Parses a [`Value::literal`]; `None` if it is not in this space.
    pub fn read(&self, text: &str) -> Option<Value> {
        match self {
            Self::Values(values) => values.iter().find(|value| value.literal() == text).cloned(),
            Self::Int(a, b) => text.parse().ok().filter(|i| (a..=b).contains(&i)).map(Value::Integer),
            Self::Uniform(a, b) | Self::LogUniform(a, b) => {
                text.parse().ok().filter(|x| (a..=b).contains(&x)).map(Value::Float)
            }
        }
    }

    /// Whether a key can have exactly this value. False for continuous distributions: no single value can be
    /// counted on.
    pub fn can_be(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Values(values), _) => values.iter().any(|own| same(value, own)),
            (Self::Int(a, b), Value::Integer(i)) => (a..=b).contains(&i),
            _ => false,
        }
    }

    /// The inverse of [`Space::at`]: the position of a value in [0, 1).
    pub fn place_of(&self, value: &Value) -> f64 {
        let place = match (self, value) {
            (Self::Values(values), _) => {
                let index = values.iter().position(|own| own.literal() == value.literal()).unwrap_or(0);
                (index as f64 + 0.5) / values.len() as f64
            }
            (Self::Uniform(a, b), Value::Float(x)) => (x - a) / (b - a),
            (Self::LogUniform(a, b), Value::Float(x)) => (x / a).ln() / (b / a).ln(),
            (Self::Int(a, b), Value::Integer(i)) => {
                (apart(*a, *i) as f64 + 0.5) / (apart(*a, *b) as f64 + 1.0)
            }
            _ => 0.5,
        };
        place.clamp(0.0, 1.0 - f64::EPSILON)
    }
}

/// Whether two values are equal. An integer equals a float of the same value, and a word equals a table with
/// only that key.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(word), Value::Table(table)) => {
            matches!(&table.entries[..], [only] if only.key == *word)
        }
        (Value::Integer(i), Value::Float(x)) | (Value::Float(x), Value::Integer(i)) => *i as f64 == *x,
        _ => a.to_toml() == b.to_toml(),
    }
}

/// `b - a`, which may overflow an `i64`.
fn apart(a: i64, b: i64) -> i128 {
    i128::from(b) - i128::from(a)
}

/// The ends of `0..5`.
fn ends(text: &str) -> Option<(i64, i64)> {
    let (from, to) = text.split_once("..")?;
    Some((from.trim().parse().ok()?, to.trim().parse().ok()?))
}

fn unknown(name: &str, text: &str) -> NoSpace {
    let near = suggest::nearest(name, FUNCTIONS.into_iter()).filter(|_| name != text);
    let hint = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("write an array, `0..5`, {}", suggest::listing(FORMS.into_iter(), "or")),
    };
    NoSpace { message: format!("`{text}` is no range"), hint }
}

fn wrong(text: &str, why: &str) -> NoSpace {
    let form = FORMS.iter().find(|form| form.split('(').next() == text.split('(').next().map(str::trim));
    NoSpace { message: format!("`{text}`: {why}"), hint: format!("write `{}`", form.unwrap_or(&"0..5")) }
}

fn number(piece: &str) -> Option<Number> {
    match value(piece, Span { source: 0, start: 0, end: 0 }).ok()?.value {
        Value::Integer(i) => Some(Number { value: i as f64, integer: Some(i) }),
        Value::Float(value) if value.is_finite() => Some(Number { value, integer: None }),
        _ => None,
    }
}

fn count(n: Number, text: &str) -> Result<usize, NoSpace> {
    let whole = n.integer.filter(|n| (2..=super::MAX_TRIALS as i64).contains(n));
    let count = whole.and_then(|n| usize::try_from(n).ok());
    let why = || format!("the last number counts values: an integer from 2 to {}", super::MAX_TRIALS);
    count.ok_or_else(|| wrong(text, &why()))
}

/// From the first number up to, and without, the second; exact in the decimals that were written.
fn range([from, to, step]: [Number; 3], text: &str) -> Result<Space, NoSpace> {
    let length = from.integer.zip(to.integer).map_or(to.value - from.value, |(a, b)| apart(a, b) as f64);
    let n = length / step.value;
    // Rounding may leave 2.9999999999999996 where 3 is meant.
    let n = if (n - n.round()).abs() < 1e-9 { n.round() } else { n.ceil() };
    if !(1.0..=MAX_VALUES).contains(&n) {
        let (why, hint) = if step.value == 0.0 {
            ("its step is 0".to_owned(), "leave the step out, or name another".to_owned())
        } else if n > MAX_VALUES {
            let hint = "take a larger step, or let a sampler draw from `int(a, b)` or `uniform(a, b)`";
            (format!("{n} values, more than {MAX_VALUES} trials"), hint.to_owned())
        } else if from.value == to.value {
            ("no values: the end is left out".to_owned(), "one value needs no range".to_owned())
        } else {
            let hint = format!("`range({}, {}, {})` has some", from.value, to.value, -step.value);
            ("no values: its step leads away from its end".to_owned(), hint)
        };
        return Err(NoSpace { message: format!("`{text}`: {why}"), hint });
    }
    if n == 1.0 && (to.value - from.value).abs() < step.value.abs() {
        return Err(too_short([from, to, step].map(|number| number.value), text));
    }
    let decimals =
        [from, step].map(|x| x.value.to_string().split_once('.').map_or(0, |(_, rest)| rest.len()));
    let decimals = decimals[0].max(decimals[1]);
    let at = |k: usize| match (from.integer, step.integer) {
        (Some(from), Some(step)) => {
            let x = i128::from(from) + k as i128 * i128::from(step);
            i64::try_from(x).ok().map(Value::Integer)
        }
        _ => Some(Value::Float(parsed(format!("{:.decimals$}", from.value + k as f64 * step.value)))),
    };
    let values: Option<Vec<Value>> = (0..n as usize).map(at).collect();
    values.map(Space::Values).ok_or_else(|| wrong(text, "its values do not fit into 64 bits"))
}

/// The step is left out, or too large.
fn too_short([from, to, step]: [f64; 3], text: &str) -> NoSpace {
    let hint = match from.min(to) > 0.0 {
        true => {
            format!("`logspace({from}, {to}, 5)` has five by factors, `linspace({from}, {to}, 5)` by steps")
        }
        false => format!("`linspace({from}, {to}, 5)` has five"),
    };
    NoSpace { message: format!("`{text}` has one value, {from}: its step is {step}"), hint }
}

/// `n` values from one end to the other; the ends are kept as written. If the ends are integers and all
/// values between are whole, the result is integers.
fn spaced(
    [from, to]: [Number; 2],
    n: usize,
    between: fn(f64, f64, usize, usize) -> f64,
) -> Result<Space, NoSpace> {
    let at = |k: usize| match k {
        0 => from.value,
        k if k + 1 == n => to.value,
        k => between(from.value, to.value, k, n - 1),
    };
    let values: Vec<f64> = (0..n).map(at).collect();
    let is_whole = from.integer.and(to.integer).is_some() && values.iter().all(|x| x.fract() == 0.0);
    let value = |x: f64| if is_whole { Value::Integer(x as i64) } else { Value::Float(x) };
    Ok(Space::Values(values.into_iter().map(value).collect()))
}

fn linear(from: f64, to: f64, k: usize, of: usize) -> f64 {
    rounded(from + (to - from) * (k as f64 / of as f64), (to - from) / of as f64)
}

fn geometric(from: f64, to: f64, k: usize, of: usize) -> f64 {
    six_digits(from * (to / from).powf(k as f64 / of as f64))
}

/// Rounds to six significant digits of `step`, so that round decimals stay round.
fn rounded(x: f64, step: f64) -> f64 {
    let decimals = (5.0 - step.abs().log10().floor()).clamp(0.0, 300.0) as usize;
    parsed(format!("{x:.decimals$}"))
}

fn six_digits(x: f64) -> f64 {
    parsed(format!("{x:.5e}"))
}

/// Parses a number that this module has just formatted.
fn parsed(text: String) -> f64 {
    text.parse().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match Space::parse(text) {
            Ok(Space::Values(values)) => values.iter().map(Value::display).collect::<Vec<_>>().join(" "),
            Ok(space) => format!("{space:?}"),
            Err(e) => e.message,
        }
    }

    #[test]
    fn ranges_are_round_in_decimals() {
        for (text, want) in [
            ("0..5", "0 1 2 3 4"),
            ("-1 .. 2", "-1 0 1"),
            ("range(0, 6)", "0 1 2 3 4 5"),
            ("range(10, 0, -4)", "10 6 2"),
            ("range(0, 1, 0.3)", "0.0 0.3 0.6 0.9"),
            ("range(0.1, 0.4, 0.1)", "0.1 0.2 0.3"),
            ("range(0, 2.5)", "0 1 2"),
            (
                "9223372036854775804..9223372036854775807",
                "9223372036854775804 9223372036854775805 9223372036854775806",
            ),
            (
                "range(-9223372036854775808, 9223372036854775807, 6000000000000000000)",
                "-9223372036854775808 -3223372036854775808 2776627963145224192 8776627963145224192",
            ),
            ("linspace(0, 1, 5)", "0.0 0.25 0.5 0.75 1.0"),
            ("linspace(0, 1, 4)", "0.0 0.333333 0.666667 1.0"),
            ("linspace(8, 32, 4)", "8 16 24 32"),
            ("linspace(-.5, 1., 3)", "-0.5 0.25 1.0"),
            ("linspace(1000000, 1000001, 3)", "1000000.0 1000000.5 1000001.0"),
            ("logspace(1e-4, 1e-1, 4)", "0.0001 0.001 0.01 0.1"),
            ("logspace(1e-4, 1e-1, 7)", "0.0001 0.000316228 0.001 0.00316228 0.01 0.0316228 0.1"),
            ("logspace(1, 1000, 4)", "1 10 100 1000"),
            ("logspace(0.1, 1e-12, 3)", "0.1 3.16228e-7 1e-12"),
            ("choice(a, 1, [2, b], \"x, y\")", "a 1 [2, \"b\"] x, y"),
        ] {
            assert_eq!(shown(text), want, "{text}");
        }
    }

    #[test]
    fn what_is_no_range_is_said() {
        for (text, want) in [
            ("uniform(0, 1)", "Uniform(0.0, 1.0)"),
            ("int(1, 3)", "Int(1, 3)"),
            ("logspce(1, 2, 3)", "`logspce(1, 2, 3)` is no range"),
            ("logspace(1, 2, 3", "`logspace(1, 2, 3` is no range"),
            ("logspace(0, 1, 3)", "`logspace(0, 1, 3)`: its ends are above 0"),
            ("logspace(1, 2)", "`logspace(1, 2)`: 2 arguments"),
            ("linspace(1, 2)", "`linspace(1, 2)`: 2 arguments"),
            ("linspace(1, x, 2)", "`linspace(1, x, 2)`: it takes finite numbers"),
            (
                "linspace(1, 2, 1)",
                "`linspace(1, 2, 1)`: the last number counts values: an integer from 2 to 100000",
            ),
            ("5..5", "`5..5`: no values: the end is left out"),
            ("range(1e-3,1e-1)", "`range(1e-3,1e-1)` has one value, 0.001: its step is 1"),
            ("range(0, 1, 2)", "`range(0, 1, 2)` has one value, 0: its step is 2"),
            ("5..1", "`5..1`: no values: its step leads away from its end"),
            ("range(0, 1, 0)", "`range(0, 1, 0)`: its step is 0"),
            ("0..999999", "`0..999999`: 999999 values, more than 100000 trials"),
            (
                "range(0, 1e19, 4611686018427387904)",
                "`range(0, 1e19, 4611686018427387904)`: its values do not fit into 64 bits",
            ),
            ("uniform(1, 1)", "`uniform(1, 1)`: the first number is not below the second"),
            ("int(0.5, 2)", "`int(0.5, 2)`: it takes integers"),
            ("choice()", "`choice()`: an empty choice"),
        ] {
            assert_eq!(shown(text), want, "{text}");
        }
    }

    #[test]
    fn integers_are_drawn_between_any_two() {
        let last = 1.0 - f64::EPSILON / 2.0;
        for (a, b) in [(i64::MIN, i64::MAX), (0, i64::MAX), (i64::MIN, 0), (-1, 1)] {
            let space = Space::Int(a, b);
            let [low, high] = [0.0, last].map(|u| match space.at(u) {
                Value::Integer(i) => i,
                other => panic!("{}", other.display()),
            });
            assert_eq!(low, a);
            // Near the ends of `i64`, neighbouring values of `u` are thousands of integers apart.
            assert!(high <= b && apart(high, b) < 4096, "{high} of {a}..={b}");
        }
        assert_eq!(
            shown("int(-9223372036854775808, 9223372036854775807)"),
            format!("Int({}, {})", i64::MIN, i64::MAX)
        );
    }
}
