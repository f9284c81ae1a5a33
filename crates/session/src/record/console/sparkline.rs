//! A curve drawn within a line of text.

/// Bars from one eighth to eight eighths of a line's height.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Maximum number of characters.
const WIDTH: usize = 20;

/// Fewer values than this are not drawn.
const FEWEST: usize = 3;

/// From this ratio of the highest to the lowest value on, a character's height is that of the logarithm.
const LOG_FROM: f64 = 10.0;

/// A character for each value; of many, for the first and for the last of each later group. Values that are not finite are left
/// out.
pub(super) fn sparkline(values: &[f64]) -> Option<String> {
    let values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    if values.len() < FEWEST {
        return None;
    }
    let width = values.len().min(WIDTH);
    let last = |group: usize| values[(group + 1) * values.len() / width - 1];
    let shown: Vec<f64> = (0..width).map(|group| if group == 0 { values[0] } else { last(group) }).collect();
    let fold = |end: fn(f64, f64) -> f64| shown.iter().copied().reduce(end);
    let (low, high) = (fold(f64::min)?, fold(f64::max)?);
    let is_log = low > 0.0 && high / low >= LOG_FROM;
    let share = |value: f64| match is_log {
        _ if high <= low => 0.0,
        true => (value / low).ln() / (high / low).ln(),
        false => (value - low) / (high - low),
    };
    Some(
        shown
            .iter()
            .map(|&value| LEVELS[(share(value) * (LEVELS.len() - 1) as f64).round() as usize])
            .collect(),
    )
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
        // The first value stands for itself, and one that is not shown has no part in the scale.
        let mut long: Vec<f64> = (0..1000).map(|step| 1.0 - f64::from(step) / 2000.0).collect();
        (long[0], long[1]) = (2.0, 1e9);
        assert_eq!(line(&long), "█▃▃▃▃▃▃▂▂▂▂▂▂▂▂▁▁▁▁▁");
    }
}
