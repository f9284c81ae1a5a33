//! Values of the options of `check --hosts`: numbers of hosts, and the link between them.

use std::{fmt, str::FromStr};

use crate::{plan::Link, spec::MOST_HOSTS};

/// Numbers of hosts, ascending, without duplicates.
#[derive(Clone, Debug, PartialEq)]
pub struct HostCounts(pub Vec<usize>);

impl FromStr for HostCounts {
    type Err = String;

    /// `1,2,4,...,64`: between two numbers, `...` stands for repeated doubling of the first.
    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("expected counts from 1 to {MOST_HOSTS}, such as `1,2,4` or `1,2,4,...,64`");
        let mut counts: Vec<u32> = Vec::new();
        let mut words = text.split(',').map(str::trim).peekable();
        while let Some(word) = words.next() {
            if word == "..." {
                let last = words.peek().and_then(|last| last.parse::<u32>().ok()).ok_or_else(expected)?;
                let mut next = counts.last().copied().ok_or_else(expected)?.saturating_mul(2);
                while next < last.min(MOST_HOSTS) {
                    counts.push(next);
                    next *= 2;
                }
            } else {
                let count = word.parse().ok().filter(|count| (1..=MOST_HOSTS).contains(count));
                counts.push(count.ok_or_else(expected)?);
            }
        }
        counts.sort_unstable();
        counts.dedup();
        Ok(Self(counts.into_iter().map(|count| count as usize).collect()))
    }
}

/// A network link, in the notation of manufacturers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkOption(pub Link);

impl FromStr for LinkOption {
    type Err = &'static str;

    /// `100Gb/s,2us`: bits or bytes per second, then the latency of a message.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (rate, latency) = text.split_once(',')?;
            let (rate, bits) = match rate.trim().strip_suffix("b/s") {
                Some(bits) => (bits, 8.0),
                None => (rate.trim().strip_suffix("B/s")?, 1.0),
            };
            let rate = scaled(rate, &[("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("", 1.0)])? / bits;
            let units = [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
            let latency_s = scaled(latency, &units)?;
            Some(Self(Link { latency_s, bytes_per_s: rate }))
        };
        parse().ok_or("expected a rate and the latency of a message, such as `100Gb/s,2us` or `11GB/s,1.5us`")
    }
}

/// In the notation that is parsed, with three digits.
impl fmt::Display for LinkOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Link { latency_s, bytes_per_s } = self.0;
        let unit = |value: f64, units: &'static [(&'static str, f64)]| {
            let fits = units.iter().find(|(_, scale)| value >= *scale).or(units.last()).copied();
            let (name, scale) = fits.unwrap_or(("", 1.0));
            let digits = 2 - (value / scale).log10().floor() as i32; // a small integer
            format!("{:.*}{name}", digits.max(0) as usize, value / scale)
        };
        let rate =
            unit(bytes_per_s, &[("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1.0)]);
        write!(f, "{rate},{}", unit(latency_s, &[("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)]))
    }
}

/// A positive number followed by one of the units.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit.trim())?;
    number.parse::<f64>().ok().map(|number| number * scale).filter(|value| *value > 0.0 && value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_double_where_dots_stand() {
        let counts = |text: &str| text.parse::<HostCounts>().ok().map(|HostCounts(counts)| counts);
        assert_eq!(counts("1,2,4,...,32"), Some(vec![1, 2, 4, 8, 16, 32]));
        assert_eq!(counts("3, ..., 20, 2, 3"), Some(vec![2, 3, 6, 12, 20]));
        assert_eq!(counts("1,...,65536").map(|all| all.len()), Some(17));
        for wrong in ["", "0", "a", "...", "...,4", "1,...", "1,...,b", "65537", "1,,2", "-1"] {
            assert_eq!(counts(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn links_are_read_as_they_are_written() {
        for (bytes_per_s, latency_s, expected) in [
            (12.5e9, 2e-6, "12.5GB/s,2.00us"),
            (375e3, 0.04, "375kB/s,40.0ms"),
            (1.25e6, 4e-9, "1.25MB/s,4.00ns"),
            (0.034, 4e-13, "0.0340B/s,0.000400ns"),
            (3.21e12, 12.0, "3.21TB/s,12.0s"),
        ] {
            let text = LinkOption(Link { latency_s, bytes_per_s }).to_string();
            assert_eq!(text, expected);
            let LinkOption(read) = text.parse().expect("it is read");
            let is_near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.005;
            assert!(is_near(read.latency_s, latency_s) && is_near(read.bytes_per_s, bytes_per_s), "{text}");
        }
    }

    #[test]
    fn links_are_read_in_bits_and_bytes() {
        let link = |text: &str| text.parse::<LinkOption>().ok().map(|LinkOption(link)| link);
        let expected = |bytes_per_s, latency_s| Some(Link { latency_s, bytes_per_s });
        assert_eq!(link("100Gb/s,2us"), expected(12.5e9, 2.0 * 1e-6));
        assert_eq!(link("1.5 GB/s, 30 µs"), expected(1.5e9, 30.0 * 1e-6));
        assert_eq!(link("800b/s,1s"), expected(100.0, 1.0));
        for wrong in [
            "",
            "100Gb/s",
            "100Gb/s,2",
            "100,2us",
            "0Gb/s,2us",
            "1Gb/s,0us",
            "1Xb/s,2us",
            "-1Gb/s,2us",
            "1Gb/s,2m",
        ] {
            assert_eq!(link(wrong), None, "{wrong}");
        }
    }
}
