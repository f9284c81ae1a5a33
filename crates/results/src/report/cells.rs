//! Parses cells of a long file as numbers.

use std::str;

/// The message about a malformed cell.
pub(super) fn wrong(cell: &[u8], column: &str, what: &str) -> String {
    format!("`{}` in column `{column}` {what}", String::from_utf8_lossy(cell))
}

/// Whether a row with this `split` belongs to a validation.
pub(super) fn is_validation(split: &[u8]) -> Result<bool, String> {
    match split {
        b"train" => Ok(false),
        b"validation" => Ok(true),
        _ => Err(wrong(split, "split", "is neither `train` nor `validation`")),
    }
}

// A plain loop: this crate is optimized for size, so each step of an iterator would be a call.

pub(super) fn integer(cell: &[u8]) -> Option<u64> {
    // More digits may overflow.
    if cell.is_empty() || cell.len() > 19 {
        return None;
    }
    let (mut value, mut at) = (0, 0);
    while at < cell.len() {
        let digit = cell[at].wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + digit as u64;
        at += 1;
    }
    Some(value)
}

/// A cell with few digits is an integer divided by a power of ten, both exact in f64, so the quotient is
/// rounded only once (Clinger 1990). Everything else is left to the standard library.
pub(super) fn number(cell: &[u8]) -> Option<f64> {
    const MOST_DIGITS: usize = 15;
    const TENS: [f64; MOST_DIGITS + 1] =
        [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let (mut digits, mut value, mut at) = (0, 0_u64, 0);
    // The number of digits after the point.
    let mut after = 0;
    while at < cell.len() && at <= MOST_DIGITS {
        let digit = cell[at].wrapping_sub(b'0');
        at += 1;
        if digit <= 9 {
            (digits, value) = (digits + 1, value * 10 + digit as u64);
        } else if cell[at - 1] == b'.' && digits + 1 >= at {
            after = cell.len() - at;
        } else {
            digits = 0;
            break;
        }
    }
    if matches!(digits, 1..=MOST_DIGITS) && at == cell.len() {
        return Some(value as f64 / TENS[after]);
    }
    str::from_utf8(cell).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_standard_library() {
        let mut texts: Vec<String> =
            ["0", "-0.5", ".25", "7.", ".", "", "-", "1.2.3", "1e-7", "NaN", "inf", "12x", "+3"]
                .map(str::to_owned)
                .into();
        texts.extend(
            ["123456789012345", "1234567890123456", "0.123456789012345", "999999999999999.9"]
                .map(str::to_owned),
        );
        texts.extend((0..5000_u64).map(|i| format!("{}", f64::from(i as u32 * 7919) / 1013.0)));
        texts.extend((0..5000_u32).map(|i| format!("{}", f32::from_bits(0x3000_0000 + i * 50_021))));
        for text in texts {
            let bits = |value: f64| value.to_bits();
            assert_eq!(number(text.as_bytes()).map(bits), text.parse().ok().map(bits), "{text}");
            assert_eq!(
                integer(text.as_bytes()),
                text.parse().ok().filter(|_| !text.starts_with('+')),
                "{text}"
            );
        }
        assert_eq!([&b""[..], &[b'9'; 20], &[b'9'; 40]].map(integer), [None; 3]);
    }
}
