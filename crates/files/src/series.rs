//! A curve of any length in bounded memory: neighbouring points are merged, and their extremes are kept.

/// Maximum number of buckets: several for each column of the widest terminal.
const MOST: usize = 4096;

/// Fewer means of epochs are no curve.
const FEWEST_MEANS: f64 = 3.0;

/// Some points that follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    pub first: (f64, f64),
    pub low: (f64, f64),
    pub high: (f64, f64),
    last: (f64, f64),
    pub sum: f64,
    pub count: f64,
}

impl Bucket {
    fn join(&mut self, later: &Self) {
        if later.low.1 < self.low.1 {
            self.low = later.low;
        }
        if later.high.1 > self.high.1 {
            self.high = later.high;
        }
        self.last = later.last;
        self.sum += later.sum;
        self.count += later.count;
    }
}

/// A curve; values that are not finite are counted, not kept.
#[derive(Clone, Debug, Default)]
pub struct Series {
    pub name: String,
    /// Whether it is grey, below a curve that shows its course.
    pub is_pale: bool,
    buckets: Vec<Bucket>,
    /// Points in a full bucket; 0 means 1.
    size: usize,
    /// Points in the last bucket.
    filled: usize,
    pub not_finite: u64,
}

impl Series {
    pub fn named(self, name: String) -> Self {
        Self { name, ..self }
    }

    pub fn pale(self) -> Self {
        Self { is_pale: true, ..self }
    }

    pub fn push(&mut self, step: f64, value: f64) {
        if !value.is_finite() {
            self.not_finite += 1;
            return;
        }
        let point = (step, value);
        let single = Bucket { first: point, low: point, high: point, last: point, sum: value, count: 1.0 };
        self.size = self.size.max(1);
        match self.buckets.last_mut().filter(|_| self.filled < self.size) {
            Some(last) => last.join(&single),
            None => {
                if self.buckets.len() == MOST {
                    self.merge_pairs();
                }
                self.buckets.push(single);
                self.filled = 0;
            }
        }
        self.filled += 1;
    }

    fn merge_pairs(&mut self) {
        if self.buckets.len().is_multiple_of(2) {
            self.filled += self.size;
        }
        let pairs = 0..self.buckets.len().div_ceil(2);
        for i in pairs.clone() {
            let mut joined = self.buckets[2 * i];
            self.buckets.get(2 * i + 1).into_iter().for_each(|next| joined.join(next));
            self.buckets[i] = joined;
        }
        self.buckets.truncate(pairs.end);
        self.size *= 2;
    }

    /// Appends a curve that follows this one.
    pub fn append(&mut self, mut later: Self) {
        self.not_finite += later.not_finite;
        if later.buckets.is_empty() {
            return;
        }
        while !self.buckets.is_empty() && self.size < later.size {
            self.merge_pairs();
        }
        while later.size < self.size {
            later.merge_pairs();
        }
        self.buckets.append(&mut later.buckets);
        (self.size, self.filled) = (later.size, later.filled);
        while self.buckets.len() > MOST {
            self.merge_pairs();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty() && self.not_finite == 0
    }

    /// Whether its single steps hide the course that the means of its epochs show.
    pub fn hides(&self, means: &Self) -> bool {
        let count = |series: &Self| series.buckets.iter().map(|bucket| bucket.count).sum::<f64>();
        count(means) >= FEWEST_MEANS && count(self) > count(means)
    }

    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// Step and value of the points to draw, by ascending step.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.buckets.iter().flat_map(|bucket| {
            let Bucket { first, low, high, last, .. } = *bucket;
            let (a, b) = if low.0 <= high.0 { (low, high) } else { (high, low) };
            [first, a, b, last]
        })
    }

    /// Whether both curves would be drawn with the same points.
    pub fn is_drawn_as(&self, other: &Self) -> bool {
        self.buckets == other.buckets && !self.buckets.is_empty()
    }

    pub fn first(&self) -> Option<(f64, f64)> {
        self.buckets.first().map(|bucket| bucket.first)
    }

    pub fn last(&self) -> Option<(f64, f64)> {
        self.buckets.last().map(|bucket| bucket.last)
    }

    pub fn lowest(&self) -> Option<(f64, f64)> {
        self.buckets.iter().map(|bucket| bucket.low).min_by(|a, b| a.1.total_cmp(&b.1))
    }

    pub fn highest(&self) -> Option<(f64, f64)> {
        // Reversed, so that of equal values the first is returned, as for the lowest.
        self.buckets.iter().rev().map(|bucket| bucket.high).max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_curve_join_as_if_read_at_once() {
        for cuts in [[0, 10], [1, 4097], [4096, 9000], [10, 90_000], [90_000, 90_001]] {
            let value = |i: u32| f64::from(i * 7919 % 10_007);
            let part = |range: std::ops::Range<u32>| {
                let mut series = Series::default();
                range.for_each(|i| series.push(f64::from(i), value(i)));
                series
            };
            let mut joined = part(0..cuts[0]);
            joined.append(part(cuts[0]..cuts[1]));
            joined.append(part(cuts[1]..100_000));
            joined.push(100_000.0, 1e9);
            let mut all = part(0..100_000);
            all.push(100_000.0, 1e9);
            let figures = |series: &Series| {
                let count: f64 = series.buckets.iter().map(|bucket| bucket.count).sum();
                let sum: f64 = series.buckets.iter().map(|bucket| bucket.sum).sum();
                (series.first(), series.last(), series.lowest(), series.highest(), count, sum)
            };
            assert_eq!(figures(&joined), figures(&all), "{cuts:?}");
            assert!(joined.buckets.len() <= MOST && joined.points().is_sorted_by(|a, b| a.0 <= b.0));
        }
    }

    #[test]
    fn a_long_curve_keeps_its_ends_and_extremes() {
        for count in [1u32, 5, 4096, 4097, 100_000] {
            let mut series = Series::default();
            let value = |i: u32| match i {
                1_000 => 1e6,
                3_001 => -1e6,
                _ => f64::from(i % 7),
            };
            (0..count).for_each(|i| series.push(f64::from(i), value(i)));
            let points: Vec<_> = series.points().collect();
            assert!(points.len() <= 4 * MOST && points.is_sorted_by(|a, b| a.0 <= b.0), "{count}");
            let end = f64::from(count - 1);
            assert_eq!((points[0], series.last()), ((0.0, 0.0), Some((end, value(count - 1)))));
            if count > 3_001 {
                assert_eq!(series.lowest(), Some((3_001.0, -1e6)));
                assert_eq!(series.highest(), Some((1_000.0, 1e6)));
            }
        }
    }
}
