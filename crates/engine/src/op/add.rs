//! Sums of two tensors, or of a tensor's rows and one row.

use super::{
    Access, Cost, Encoder, Kind, Operation, Record, Refused, Slice,
    reference::Memory,
    run::{Context, Slices},
    split::Split,
};

/// y = a + b, where b may be shorter: it is added to every row of its length.
#[derive(Clone, Debug, PartialEq)]
pub struct Add {
    /// As long as y.
    pub a: Slice,
    /// Its length divides y's.
    pub b: Slice,
    /// The sum.
    pub y: Slice,
}

impl Operation for Add {
    fn access(&self) -> Access {
        Access::new([self.a, self.b], [self.y])
    }

    fn cost(&self) -> Cost {
        Cost::new(self.y.len, 2 * self.y.len + self.b.len)
    }

    fn reference(&self, memory: &mut Memory) {
        let b = memory.get(self.b);
        let y: Vec<f64> = memory.get(self.a).iter().zip(b.iter().cycle()).map(|(a, b)| a + b).collect();
        memory.set(self.y, &y);
    }

    fn split(&self, split: &mut Split<'_>) {
        let Self { a, b, y } = *self;
        split.each(y.len.checked_div(b.len).unwrap_or(0), |rows| {
            (Job, Access::new([a.rows(&rows, b.len), b], [y.rows(&rows, b.len)]))
        });
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        let inputs = e.int(self.b.len)?;
        Ok(Record { inputs, ..e.numbered(Kind::Add, self.y.len, [self.a, self.b, self.y])? })
    }
}

/// Reads some rows of a, and b; writes rows of y.
#[derive(Clone, Copy, Debug)]
pub struct Job;

impl Job {
    pub(super) fn run(&self, ([a, b, ..], [y, ..]): Slices<'_>, _: &mut Context<'_>) {
        for (y, a) in y.chunks_mut(b.len().max(1)).zip(a.chunks(b.len().max(1))) {
            y.iter_mut().zip(a.iter().zip(b)).for_each(|(y, (a, b))| *y = a + b);
        }
    }
}
