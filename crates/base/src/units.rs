//! Numbers for people: counts have commas, as in 144,240; what is measured has four significant digits and a unit, without commas, as
//! in 7976 steps/s. (Files have exact values instead.) Also the names of enum variants.

/// Declares an enum whose variants have a name for files and messages.
#[macro_export]
macro_rules! named {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$of:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$of])* $variant,)*
        }

        impl $name {
            #[allow(dead_code)]
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            /// The name used in files and messages.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
    };
}
pub use named;

/// `0.01234`, `1234`, `1.234e-7`.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    // Rounded first, so that 9.9996 counts as 10.00.
    let scientific = format!("{value:.3e}");
    let exponent: i32 = scientific.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    match exponent {
        -4..=3 => format!("{value:.*}", usize::try_from(3 - exponent).unwrap_or(0)),
        4..=6 => format!("{value:.0}"),
        _ => scientific,
    }
}

/// The shortest text that reads back to the same value: `0.03`, `1e-8`, `1e20`.
pub fn exact(value: f64) -> String {
    if value == 0.0 || (1e-4..1e9).contains(&value.abs()) { value.to_string() } else { format!("{value:e}") }
}

/// [`exact`] for an f32.
pub fn shortest(value: f32) -> String {
    if value == 0.0 || (1e-4..1e9).contains(&value.abs()) { value.to_string() } else { format!("{value:e}") }
}

/// ` and 3 more`, behind a list that leaves some out.
pub fn and_more(left_out: usize) -> String {
    if left_out == 0 { String::new() } else { format!(" and {} more", count(left_out as u64)) }
}

/// `1,234,567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 step`, `320 steps`.
pub fn counted(value: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(value), if value == 1 { "" } else { "s" })
}

/// Pieces of a list of numbers that are named.
const MOST_PIECES: usize = 8;

/// Numbers in order: `1, 3 to 5, 8`; of many `1, 3, 5, 7, 9, 11, 13, 15 and 49,992 more`.
pub fn numbers(numbers: &[usize]) -> String {
    let mut pieces = numbers.chunk_by(|a, b| a + 1 == *b);
    let words = |piece: &[usize]| match piece {
        [first, .., last] if piece.len() > 2 => format!("{first} to {last}"),
        piece => piece.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
    };
    let named = pieces.by_ref().take(MOST_PIECES).map(words).collect::<Vec<_>>().join(", ");
    match pieces.map(<[usize]>::len).sum::<usize>() {
        0 => named,
        more => format!("{named} and {} more", count(more as u64)),
    }
}

/// `trial 3`, `trials 0, 2 to 5`.
pub fn numbered(thing: &str, list: &[usize]) -> String {
    format!("{thing}{} {}", if list.len() == 1 { "" } else { "s" }, numbers(list))
}

/// A rate without its unit, such as rows/s: `160.2 k`, `5.126 M`.
pub fn rate(value: f64) -> String {
    match value {
        v if v >= 999.95e12 => format!("{} P", number(v / 1e15)),
        v if v >= 999.95e9 => format!("{} T", number(v / 1e12)),
        v if v >= 999.95e6 => format!("{} G", number(v / 1e9)),
        v if v >= 999.95e3 => format!("{} M", number(v / 1e6)),
        v if v >= 9999.5 => format!("{} k", number(v / 1e3)),
        v => number(v),
    }
}

/// `12.3 µs`, `1.23 ms`, `12.3 s`, `2 min 05 s`, `1 h 02 min`.
pub fn seconds(value: f64) -> String {
    let three = |v: f64| match v {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    };
    match value {
        0.0 => "0 s".to_owned(),
        v if v < 0.9995e-3 => format!("{} µs", three(v * 1e6)),
        v if v < 0.9995 => format!("{} ms", three(v * 1e3)),
        v if v < 59.95 => format!("{} s", three(v)),
        v if v < 3599.5 => format!("{} min {:02} s", whole(v) / 60, whole(v) % 60),
        v => format!("{} h {:02} min", whole(v / 60.0) / 60, whole(v / 60.0) % 60),
    }
}

fn whole(value: f64) -> u64 {
    value.round() as u64 // saturates: a run of more than 2⁶⁴ seconds is not expected
}

/// `0 B`, `4 KiB`, `1.50 MiB`.
pub fn bytes(value: u64) -> String {
    let (mut scaled, mut units) = (value as f64, ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].into_iter());
    let mut unit = "B";
    while scaled >= 1023.5
        && let Some(larger) = units.next()
    {
        (scaled, unit) = (scaled / 1024.0, larger);
    }
    let digits = if scaled.fract() == 0.0 || scaled >= 99.95 { 0 } else { 1 };
    format!("{scaled:.digits$} {unit}")
}

/// Needed and available bytes; in exact bytes if the rounded texts would be equal.
pub fn two_sizes(needed: u64, there: u64) -> [String; 2] {
    let words = [needed, there].map(bytes);
    let same = words[0].replace(".0 ", " ") == words[1].replace(".0 ", " ");
    if same && needed != there { [needed, there].map(|b| format!("{} B", count(b))) } else { words }
}

/// `93.4 %`, `0.42 %`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let rest = 100.0 - percent;
    if (1e-9..0.05).contains(&rest) {
        // Almost all is not all.
        let digits = -rest.log10().floor() as usize;
        format!("{percent:.digits$} %")
    } else if percent.abs() >= 9.995 || percent == 0.0 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.2} %")
    }
}

/// `1.82`; four digits for very small and large ratios, so that none is printed as zero.
pub fn factor(ratio: f64) -> String {
    if (0.1..1000.0).contains(&ratio) { format!("{ratio:.2}") } else { number(ratio) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn almost_all_is_not_all() {
        let words = [1.0, 0.999_966_7, 0.9996, 0.9994, 1.0 - 1e-15, 0.05, 1.5].map(percent);
        assert_eq!(words, ["100.0 %", "99.997 %", "99.96 %", "99.9 %", "100.0 %", "5.00 %", "150.0 %"]);
    }

    #[test]
    fn four_digits_that_matter() {
        let words =
            [0.0, 0.000_102_34, 9.999_96, 1234.4, 123_456.0, 1.234e-7, 1e12, -0.5, f64::NAN].map(number);
        assert_eq!(
            words,
            ["0", "0.0001023", "10.00", "1234", "123456", "1.234e-7", "1.000e12", "-0.5000", "NaN"]
        );
    }

    #[test]
    fn exact_numbers_are_short() {
        let words = [0.0, 0.03, -10.0, 0.0001, 1e-8, 2.5e-300, 1e20, f64::INFINITY].map(exact);
        assert_eq!(words, ["0", "0.03", "-10", "0.0001", "1e-8", "2.5e-300", "1e20", "inf"]);
        assert_eq!([0.39, 1.315_140_7e-8].map(shortest), ["0.39", "1.3151407e-8"]);
    }

    #[test]
    fn counts_rates_and_shares() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([counted(1, "step"), counted(2, "step")], ["1 step", "2 steps"]);
        assert_eq!(
            [12.0, 9999.9, 160_240.0, 5.126e6, 2.5e9, 3.2e13, 4e15].map(rate),
            ["12.00", "10.00 k", "160.2 k", "5.126 M", "2.500 G", "32.00 T", "4.000 P"]
        );
        assert_eq!(
            [0.0, 0.0042, 0.934, 1.0, -0.56].map(percent),
            ["0.0 %", "0.42 %", "93.4 %", "100.0 %", "-56.0 %"]
        );
    }

    #[test]
    fn no_ratio_reads_as_zero() {
        let words = [1.0, 0.1, 999.99, 1234.5, 0.05, 0.000_246].map(factor);
        assert_eq!(words, ["1.00", "0.10", "999.99", "1234", "0.05000", "0.0002460"]);
    }

    #[test]
    fn numbers_in_a_row_are_taken_together() {
        assert_eq!(numbers(&[1, 3, 4, 5, 8, 9]), "1, 3 to 5, 8, 9");
        let odd: Vec<usize> = (0..2000).map(|number| 2 * number + 1).collect();
        assert_eq!(numbers(&odd), "1, 3, 5, 7, 9, 11, 13, 15 and 1,992 more");
    }

    #[test]
    fn long_lists_are_cut() {
        let even: Vec<usize> = (0..200).step_by(2).collect();
        assert_eq!(numbered("trial", &even), "trials 0, 2, 4, 6, 8, 10, 12, 14 and 92 more");
        assert_eq!(numbered("trial", &even[..3]), "trials 0, 2, 4");
    }

    #[test]
    fn seconds_at_every_size() {
        let words = [0.0, 1.5e-6, 0.0123, 0.99999, 12.34, 59.99, 125.0, 3599.9, 3720.0].map(seconds);
        let expected = [
            "0 s",
            "1.50 µs",
            "12.3 ms",
            "1.00 s",
            "12.3 s",
            "1 min 00 s",
            "2 min 05 s",
            "1 h 00 min",
            "1 h 02 min",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn bytes_at_every_size() {
        let words = [0, 1000, 4096, 1_572_864, 188_160_000].map(bytes);
        assert_eq!(words, ["0 B", "1000 B", "4 KiB", "1.5 MiB", "179 MiB"]);
        let words = [192_000_000_000_000, u64::MAX].map(bytes);
        assert_eq!(words, ["175 TiB", "16 EiB"]);
        assert_eq!(two_sizes(5 << 30, 3 << 30), ["5 GiB", "3 GiB"]);
        assert_eq!(two_sizes((5 << 30) + 1, 5 << 30), ["5,368,709,121 B", "5,368,709,120 B"]);
    }
}
