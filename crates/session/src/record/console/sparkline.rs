//! A curve drawn within a line of text.

/// Bars from one eighth to eight eighths of a line's height.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Maximum number of characters.
const WIDTH: usize = 20;

/// Fewer values than this are not drawn.
const FEWEST: usize = 3;

/// The scale is logarithmic if the ratio of the highest to the lowest value is at least this.
const LOG_FROM: f64 = 50.0;

/// One character per value; if there are too many values, one per group, for the last value in it. Values
/// that are not finite are left out.
pub(super) fn sparkline(values: &[f64]) -> Option<String> {
    let values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    if values.len() < FEWEST {
        return None;
    }
    let width = values.len().min(WIDTH);
    let ends = (1..=width).map(|end| values[end * values.len() / width - 1]);
    let fold = |end: fn(f64, f64) -> f64| values.iter().copied().reduce(end);
    let (low, high) = (fold(f64::min)?, fold(f64::max)?);
    let is_log = low > 0.0 && high / low >= LOG_FROM;
    let share = |value: f64| match is_log {
        _ if high <= low => 0.0,
        true => (value / low).ln() / (high / low).ln(),
        false => (value - low) / (high - low),
    };
    Some(ends.map(|value| LEVELS[(share(value) * (LEVELS.len() - 1) as f64).round() as usize]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_in_a_line() {
        let line = |values: &[f64]| sparkline(values).unwrap_or_default();
        assert_eq!(line(&[8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]), "█▇▆▅▄▃▂▁");
        assert_eq!(line(&[1e6, 1e3, 1.0]), "█▅▁");
        assert_eq!(line(&[2.0, f64::NAN, 2.0, 2.0, f64::INFINITY]), "▁▁▁");
        assert_eq!(line(&[2.0, 1.0]), "");
        let many: Vec<f64> = (0..1000).map(f64::from).collect();
        assert_eq!(line(&many).chars().count(), WIDTH);
        assert!(line(&many).ends_with('█'));
    }
}
