//! Times as a user writes them: `90s`, `15m`, `1h30m`, `0.5h`, `30d`, `250ms`.

use std::time::Duration;

use serde::Serializer;
use serde_json::json;

use super::{reader::Item, tree::Value};

/// What [`parse`] accepts, as a regular expression.
const PATTERN: &str = r"^([0-9]+(\.[0-9]{1,9})?(d|h|ms|m|s))+$";

/// Units from the largest to the smallest, in nanoseconds. Each may appear once, in this order.
const UNITS: [(&str, u128); 5] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", SECOND),
    ("ms", 1_000_000),
];

const SECOND: u128 = 1_000_000_000;

/// Reads a duration. `None` if the text is not one, or if it is longer than a century.
pub fn parse(text: &str) -> Option<Duration> {
    let (mut rest, mut total, mut units) = (text, 0_u128, &UNITS[..]);
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_lowercase())?;
        let (number, after) = rest.split_at(end);
        let unit_end = after.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let at = units.iter().position(|(name, _)| *name == unit)?;
        total = total.checked_add(nanoseconds(number, units[at].1)?)?;
        (rest, units) = (after, &units[at + 1..]);
    }
    let century = 100 * 366 * UNITS[0].1;
    let total = Some(total).filter(|t| *t <= century && !text.is_empty())?;
    Some(Duration::new((total / SECOND) as u64, (total % SECOND) as u32))
}

/// Parses decimal digits exactly (no floating point), so that what [`write()`] writes reads back the same.
fn nanoseconds(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |s: &str| !s.is_empty() && s.len() <= 12 && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let scale = 10_u128.pow(fraction.len() as u32);
    Some(whole.parse::<u128>().ok()? * unit + fraction.parse::<u128>().ok()? * unit / scale)
}

/// In seconds, with as many digits as needed.
fn write(time: Duration) -> String {
    let fraction = format!("{:09}", time.subsec_nanos());
    match fraction.trim_end_matches('0') {
        "" => format!("{}s", time.as_secs()),
        fraction => format!("{}.{fraction}s", time.as_secs()),
    }
}

/// Serializes an optional duration.
pub(super) fn seconds<S: Serializer>(value: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(d) => s.serialize_str(&write(*d)),
        None => s.serialize_none(),
    }
}

pub(super) fn read_time(v: Item<'_>) -> Duration {
    let schema = json!({ "type": "string", "pattern": PATTERN });
    let read = |v: &Value| parse(v.as_str()?).filter(|d| !d.is_zero());
    v.custom("a time above 0, such as `90s`, `15m`, `1h30m` or `250ms`", schema, Duration::from_secs(1), read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let ms = |t| parse(t).map(|d| d.as_millis());
        assert_eq!(ms("90s"), Some(90_000));
        assert_eq!(ms("2h"), Some(7_200_000));
        assert_eq!(ms("15m"), Some(900_000));
        assert_eq!(ms("1h30m"), Some(5_400_000));
        assert_eq!(ms("250ms"), Some(250));
        assert_eq!(ms("1m0.25s"), Some(60_250));
        for bad in [
            "",
            "90",
            "s",
            "-1s",
            "1.s",
            ".5s",
            "1e3s",
            "1 s",
            "1w",
            "30m1h",
            "1s1s",
            "1sx",
            "9999999999h",
            "1٣s",
        ] {
            assert_eq!(ms(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_are_written_so_that_they_are_read_back() {
        for time in [Duration::from_nanos(1), Duration::from_millis(250), Duration::new(3_000_000_000, 7)] {
            assert_eq!(parse(&write(time)), Some(time));
        }
        assert_eq!(write(Duration::from_millis(1500)), "1.5s");
    }
}
