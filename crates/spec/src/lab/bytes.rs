//! Sizes of memory as a user writes them: `4KiB`, `1.5 MiB`, `64 MB`, `512`.

/// What [`parse`] accepts, as a regular expression.
pub(super) const PATTERN: &str = r"^[0-9]+(\.[0-9]+)? ?(B|KiB|MiB|GiB|kB|MB|GB)$";

/// Units and their bytes; the binary units come first, from the largest.
const UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// What a text that [`parse`] does not take may stand for, as it would take it: in other letters, with other spaces,
/// without a unit. `K` may be 1000 or 1024.
pub(super) fn meant(text: &str) -> Vec<String> {
    let text: String = text.chars().filter(|c| !c.is_whitespace() && *c != '_').collect();
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let units: &[&str] = match unit.to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => &["B"],
        "k" | "kb" => &["kB", "KiB"],
        "m" | "mb" => &["MB", "MiB"],
        "g" | "gb" => &["GB", "GiB"],
        "kib" => &["KiB"],
        "mib" => &["MiB"],
        "gib" => &["GiB"],
        _ => &[],
    };
    let all = units.iter().map(|unit| format!("{number}{unit}"));
    all.filter(|spelling| parse(spelling).is_some()).collect()
}

/// A size in bytes; `None` if the text is not one, or not a whole number of bytes.
pub(super) fn parse(text: &str) -> Option<u64> {
    let (unit, number) = UNITS.iter().find_map(|(name, unit)| Some((*unit, text.strip_suffix(name)?)))?;
    let number = number.strip_suffix(' ').unwrap_or(number);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |s: &str| !s.is_empty() && s.len() <= 12 && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let scale = 10_u128.pow(fraction.len() as u32);
    let scaled = whole.parse::<u128>().ok()? * scale + fraction.parse::<u128>().ok()?;
    let bytes = scaled * u128::from(unit);
    bytes.is_multiple_of(scale).then(|| u64::try_from(bytes / scale).ok())?
}

/// Formats a size in the largest binary unit that divides it.
pub(super) fn write(bytes: u64) -> String {
    let binary = UNITS.iter().take(3).find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
    binary.map_or_else(|| format!("{bytes}B"), |(name, unit)| format!("{}{name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        let read = ["4KiB", "1.5 MiB", "64 MB", "2GiB", "512B", "0.5KiB"].map(parse);
        assert_eq!(read, [Some(4096), Some(3 << 19), Some(64_000_000), Some(2 << 30), Some(512), Some(512)]);
        for bad in ["", "4", "KiB", "-4KiB", "4 kib", "0.3B", "1e3B", "4  KiB", ".5KiB", "99999999999GiB"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!([4096, 3 << 19, 1000, 2 << 30].map(write), ["4KiB", "1536KiB", "1000B", "2GiB"]);
    }

    #[test]
    fn other_spellings_of_a_size_are_known() {
        for (text, expected) in [
            ("4KB", "4kB 4KiB"),
            ("4K", "4kB 4KiB"),
            ("4 kib", "4KiB"),
            ("1_000", "1000B"),
            ("1.5m", "1.5MB 1.5MiB"),
            ("64 bytes", "64B"),
            ("0.3K", "0.3kB"),
        ] {
            assert_eq!(meant(text).join(" "), expected, "{text}");
        }
        for bad in ["", "KB", "four", "4TiB", "-4KB", "1e3"] {
            assert!(meant(bad).is_empty(), "{bad}");
        }
    }
}
