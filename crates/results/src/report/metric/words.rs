//! Values of a metric in words: with their intervals, as many digits as are meaningful, and of shares percentage points where they are
//! differences.

use super::{Metric, Valued};
use crate::units;

impl Metric {
    /// The same for differences of its values: those of shares are percentage points, not percent of anything.
    pub(in crate::report) fn of_differences(&self) -> Self {
        let is_share = matches!(self.scale(), Some((_, " %")));
        Self { word: if is_share { points } else { self.word }, kept: 1, ..self.clone() }
    }

    /// `0.446 [0.425, 0.493]`, with only as many digits as are meaningful.
    pub(in crate::report) fn with_interval(&self, value: f64, interval: Option<[f64; 2]>) -> String {
        let Some([low, high]) = interval else { return self.word(value) };
        let own = [(value, interval)];
        match (self.digits(&own), self.scale()) {
            (Some(digits), _) => self.with_digits(own[0], digits),
            (None, Some(_)) => format!("{} [{}, {}]", self.word(value), self.word(low), self.word(high)),
            (None, None) => {
                let [value, low, high] = in_one_unit([value, low, high], self.word);
                format!("{value} [{low}, {high}]")
            }
        }
    }

    /// Values with their intervals in a column; all have the same number of decimals if there are intervals.
    pub(in crate::report) fn in_column(&self, column: &[Valued]) -> Vec<String> {
        match self.digits(column) {
            Some(digits) => column.iter().map(|own| self.with_digits(*own, digits)).collect(),
            None => column.iter().map(|(value, interval)| self.with_interval(*value, *interval)).collect(),
        }
    }

    /// The factor and the unit of what is written with a fixed number of decimals; `None` of rates, times and sizes.
    fn scale(&self) -> Option<(f64, &'static str)> {
        match self.word(12345.0).as_str() {
            "12345" => Some((1.0, "")),
            "1234500.0 %" => Some((100.0, " %")),
            "1234500.0 pp" => Some((100.0, " pp")),
            _ => None,
        }
    }

    /// The decimals of a column: enough for the width of each interval, for a value without one as where it stands alone, and to
    /// tell values apart, where that takes no more than six significant digits; `None` if there is no interval, or values are too
    /// small or large for decimals.
    fn digits(&self, column: &[Valued]) -> Option<usize> {
        let (scale, _) = self.scale()?;
        let ends = column
            .iter()
            .flat_map(|(value, interval)| [*value].into_iter().chain(interval.iter().flatten().copied()));
        let largest = scale * ends.map(f64::abs).fold(0.0, f64::max);
        if column.iter().all(|own| own.1.is_none()) || (largest != 0.0 && !(1e-4..1e6).contains(&largest)) {
            return None;
        }
        let decimals_of =
            |digits: i32, of: f64| (digits - 1 - of.log10().floor() as i32).clamp(0, 12) as usize;
        // A wide interval takes no digit from the value that one decimal more gives back.
        let of_interval = |value: f64, [low, high]: [f64; 2]| match scale * (high - low) {
            width if width > 0.0 => {
                let kept = if value == 0.0 { 0 } else { decimals_of(self.kept, scale * value.abs()) };
                decimals_of(2, width).max(kept.min(decimals_of(3, width)))
            }
            _ => 4,
        };
        let alone = |value: f64| match self.word(value).split_once('.') {
            Some((_, decimals)) if !decimals.contains('e') => {
                decimals.bytes().take_while(u8::is_ascii_digit).count()
            }
            _ => 0,
        };
        let own = column.iter().map(|(value, interval)| {
            interval.map_or_else(|| alone(*value), |interval| of_interval(*value, interval))
        });
        let own = own.max()?;
        if column.len() == 1 || largest == 0.0 {
            return Some(own);
        }
        let most = decimals_of(6, largest).max(1);
        let word = |value: f64, digits: usize| format!("{:.digits$}", scale * value);
        let is_told = |digits: &usize| {
            column.windows(2).all(|pair| {
                let [a, b] = [pair[0].0, pair[1].0];
                a == b || word(a, *digits) != word(b, *digits)
            })
        };
        let own = own.min(most);
        Some((own..=most).find(is_told).unwrap_or(own))
    }

    fn with_digits(&self, (value, interval): Valued, digits: usize) -> String {
        let (scale, unit) = self.scale().unwrap_or((1.0, ""));
        let fixed = |value: f64| unsigned_zero(format!("{:.digits$}", scale * value));
        let interval = interval.map(|[low, high]| format!(" [{}, {}]", fixed(low), fixed(high)));
        format!("{}{unit}{}", fixed(value), interval.unwrap_or_default())
    }
}

/// `4.2 pp`.
fn points(value: f64) -> String {
    units::percent(value).replace('%', "pp")
}

/// Formats values with the unit and decimals of the largest: `0.1 k`, `215.6 k`.
pub(in crate::report) fn in_one_unit<const N: usize>(
    values: [f64; N],
    word: fn(f64) -> String,
) -> [String; N] {
    let text = word(values.into_iter().map(f64::abs).fold(0.0, f64::max));
    let (number, unit) = text.rsplit_once(' ').unwrap_or((&text, ""));
    let scale = match unit {
        "" | "s" | "B" => 1.0,
        "µs" => 1e-6,
        "ms" => 1e-3,
        "min" => 60.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "KiB" => 1024.0,
        "MiB" => 1024_f64.powi(2),
        "GiB" => 1024_f64.powi(3),
        "TiB" => 1024_f64.powi(4),
        _ => f64::NAN,
    };
    if scale.is_nan() || number.contains('e') {
        return values.map(|value| if value < 0.0 { format!("-{}", word(-value)) } else { word(value) });
    }
    let digits = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    values.map(|value| {
        if value == 0.0 {
            return word(value);
        }
        unsigned_zero(format!("{:.digits$} {unit}", value / scale)).trim_end().to_owned()
    })
}

/// What is rounded to zero has no sign.
fn unsigned_zero(fixed: String) -> String {
    match fixed.strip_prefix('-') {
        Some(zero) if !zero.contains(|c| ('1'..='9').contains(&c)) => zero.to_owned(),
        _ => fixed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::key::Key;

    /// A single value has the digits that a heading gives it, and means beside it as many.
    #[test]
    fn a_column_keeps_the_digits_of_single_values() {
        let column = |name: &str, values: &[Valued]| Metric::from_key(Key::full(name), &[]).in_column(values);
        let mean = (0.1398, Some([0.0776, 0.202]));
        assert_eq!(column("validation.loss", &[(0.1474, None), mean]), ["0.1474", "0.1398 [0.0776, 0.2020]"]);
        assert_eq!(column("validation.loss", &[mean]), ["0.14 [0.08, 0.20]"]);
        let accuracy = [(0.9384, None), (0.9, Some([0.8, 1.0]))];
        assert_eq!(column("validation.accuracy", &accuracy), ["93.8 %", "90.0 % [80.0, 100.0]"]);
        let tiny = [(1e-7, None), (0.5, Some([0.4, 0.6]))];
        assert_eq!(column("validation.loss", &tiny), ["0.00", "0.50 [0.40, 0.60]"]);
    }

    /// However wide its interval, a mean keeps two digits and a difference one, where one decimal more is enough.
    #[test]
    fn a_wide_interval_leaves_the_mean_its_digits() {
        let column = |name: &str, values: &[Valued]| Metric::from_key(Key::full(name), &[]).in_column(values);
        let wide = [(0.655, Some([0.02, 1.0])), (0.64, Some([0.0, 1.0]))];
        assert_eq!(column("validation.loss", &wide), ["0.66 [0.02, 1.00]", "0.64 [0.00, 1.00]"]);
        let differences = [(0.0151, Some([-0.61, 0.64])), (1e-9, Some([-0.6, 0.6]))];
        let of_loss = Metric::from_key(Key::full("validation.loss"), &[]).of_differences();
        assert_eq!(of_loss.in_column(&differences), ["0.02 [-0.61, 0.64]", "0.00 [-0.60, 0.60]"]);
        assert_eq!(of_loss.with_interval(0.00043, Some([-0.00135, 0.00222])), "0.0004 [-0.0014, 0.0022]");
    }

    /// A difference of two shares is no share of either.
    #[test]
    fn differences_of_shares_are_points() {
        let of = |name: &str| Metric::from_key(Key::full(name), &[]).of_differences();
        let accuracy = of("validation.accuracy");
        assert_eq!(accuracy.word(-0.004), "-0.40 pp");
        assert_eq!(accuracy.with_interval(0.04, Some([-0.1, 0.18])), "4 pp [-10, 18]");
        assert_eq!(of("validation.f1").word(-0.004), "-0.004000");
    }

    #[test]
    fn an_interval_has_one_unit() {
        assert_eq!(in_one_unit([154.3e3, 51.72, 215.6e3], units::rate), ["154.3 k", "0.1 k", "215.6 k"]);
        assert_eq!(
            in_one_unit([-20_210.0, -208_696.0, 168_300.0], units::rate),
            ["-20.2 k", "-208.7 k", "168.3 k"]
        );
        assert_eq!(in_one_unit([8000.0, -3.0, 9000.0], units::rate), ["8000", "-3", "9000"]);
        assert_eq!(in_one_unit([0.5, 0.0002, 1.5], units::seconds), ["0.50 s", "0.00 s", "1.50 s"]);
        assert_eq!(in_one_unit([302.0, 250.0, 355.0], units::seconds), ["302 s", "250 s", "355 s"]);
        assert_eq!(in_one_unit([1e-9, 0.0, 2e-9], units::rate), ["1.000e-9", "0", "2.000e-9"]);
        assert_eq!(in_one_unit([0.0, -20_210.0, 168_300.0], units::rate), ["0", "-20.2 k", "168.3 k"]);
        assert_eq!(
            ["-0.00000", "-0.00010", "0.00"].map(|text| unsigned_zero(text.to_owned())),
            ["0.00000", "-0.00010", "0.00"]
        );
    }
}
