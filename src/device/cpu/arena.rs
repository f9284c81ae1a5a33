//! One block of memory that a team of threads shares without locks.
//!
//! Each task of a schedule declares what it reads and writes. [`Arena::verify`] proves, once and before anything
//! runs, that no task's write overlaps anything that another thread touches between the same two barriers, nor
//! anything else of the task itself. Only what was so proven can be borrowed ([`Verified::borrow`]), as plain slices.

use std::{cell::UnsafeCell, fmt, ops::Range};

use crate::{
    host::prefer_huge_pages,
    op::{Access, Layout, Role, Slice, run::Slices},
};

/// A cache line of numbers: the arena's unit of alignment.
#[repr(C, align(64))]
struct Line(UnsafeCell<[f32; 16]>);

/// A run of numbers within the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: usize,
    len: usize,
}

impl Span {
    fn part(self, offset: usize, len: usize) -> Span {
        assert!(offset + len <= self.len, "a part lies within its span");
        Span { start: self.start + offset, len }
    }

    fn overlaps(self, other: Span) -> bool {
        self.len > 0
            && other.len > 0
            && self.start < other.start + other.len
            && other.start < self.start + self.len
    }
}

#[derive(Clone, Copy, Debug)]
struct Spans {
    reads: [Span; 4],
    writes: [Span; 4],
}

impl Spans {
    fn touched(&self) -> impl Iterator<Item = Span> {
        self.reads.into_iter().chain(self.writes)
    }
}

/// An [`Access`] that was proven to be free of conflicts.
#[derive(Clone, Copy, Debug)]
pub struct Verified(Spans);

/// Two tasks that would touch the same numbers at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The stage: how many barriers stand before it.
    pub stage: usize,
    /// The thread that writes; numbers past the threads' are of tasks that all of them share.
    pub writer: usize,
    /// The thread that reads or writes, too; the writer itself where one task's slices overlap.
    pub other: usize,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stage, writer, other } = self;
        write!(f, "in stage {stage}, thread {writer} writes what thread {other} touches")
    }
}

/// The memory of a trial on the CPU: every buffer but the data, each on its own cache lines.
pub struct Arena {
    lines: Box<[Line]>,
    spans: Vec<Span>,
}

// SAFETY: shared access goes through `Verified` only (see `verify` and `borrow`), or through `&mut self`.
unsafe impl Sync for Arena {}

impl Arena {
    /// Room for all buffers of `layout` and for `scratch` buffers of the given lengths beyond, zeroed. `None` where the
    /// memory is not there.
    pub fn new(layout: &Layout, scratch: &[usize]) -> Option<Self> {
        let mut spans = Vec::new();
        let mut start = 0;
        for len in layout.buffers.iter().map(|b| b.len).chain(scratch.iter().copied()) {
            spans.push(Span { start, len });
            start += len.div_ceil(16) * 16;
        }
        let count = start / 16;
        let mut lines = Vec::new();
        lines.try_reserve_exact(count).ok()?;
        prefer_huge_pages(lines.spare_capacity_mut());
        lines.resize_with(count, || Line(UnsafeCell::new([0.0; 16])));
        Some(Self { lines: lines.into_boxed_slice(), spans })
    }

    /// Fills with NaN what must be written before it is read, as fresh memory of a device of its own: all but gradients,
    /// optimizer state and cells, which begin with zeros.
    pub fn poison(&mut self, layout: &Layout) {
        for i in 0..self.spans.len() {
            let zero = |role| matches!(role, Role::Gradients | Role::State | Role::Cells);
            if !layout.buffers.get(i).is_some_and(|b| zero(b.role)) {
                let span = self.spans[i];
                self.get_mut(span).fill(f32::NAN);
            }
        }
    }

    pub fn bytes(&self) -> u64 {
        self.lines.len() as u64 * 64
    }

    /// Where a slice of a buffer lies; scratch buffers come behind those of the layout.
    pub fn span(&self, slice: Slice) -> Span {
        self.spans[slice.buffer.0].part(slice.offset, slice.len)
    }

    /// The numbers of a span, for one who has the arena to himself.
    pub fn get_mut(&mut self, span: Span) -> &mut [f32] {
        self.check(span);
        let base = self.lines.as_mut_ptr().cast::<f32>();
        // SAFETY: the span lies within the arena (checked), and `&mut self` excludes every other borrow.
        unsafe { std::slice::from_raw_parts_mut(base.add(span.start), span.len) }
    }

    fn check(&self, span: Span) {
        assert!(span.start + span.len <= self.lines.len() * 16, "a span lies within its arena");
    }

    /// Proves that the accesses of a schedule are free of conflicts. `stages[s][t]` lists what thread `t` touches
    /// between barrier `s` and the next; those past the threads are tasks that all of them share.
    pub fn verify(&self, stages: &[Vec<Vec<Access>>]) -> Result<Vec<Vec<Vec<Verified>>>, Conflict> {
        let spans = |slices: [Slice; 4]| slices.map(|slice| self.span(slice));
        let spans = |a: &Access| Spans { reads: spans(a.reads), writes: spans(a.writes) };
        let spans = |tasks: &Vec<Access>| tasks.iter().map(spans).collect();
        let stages = stages.iter().map(|stage| stage.iter().map(spans).collect());
        self.prove(stages.collect())
    }

    fn prove(&self, stages: Vec<Vec<Vec<Spans>>>) -> Result<Vec<Vec<Vec<Verified>>>, Conflict> {
        for (stage, threads) in stages.iter().enumerate() {
            for (writer, task) in
                threads.iter().enumerate().flat_map(|(t, tasks)| tasks.iter().map(move |a| (t, a)))
            {
                task.reads.iter().chain(&task.writes).for_each(|s| self.check(*s));
                let aliases = |(k, w): (usize, &Span)| {
                    task.reads.iter().chain(&task.writes[k + 1..]).any(|s| w.overlaps(*s))
                };
                if task.writes.iter().enumerate().any(aliases) {
                    return Err(Conflict { stage, writer, other: writer });
                }
            }
            let writes: Vec<_> = threads.iter().map(|t| union(t.iter().flat_map(|a| a.writes))).collect();
            let touched: Vec<_> = threads.iter().map(|t| union(t.iter().flat_map(Spans::touched))).collect();
            for (writer, w) in writes.iter().enumerate() {
                for (other, t) in touched.iter().enumerate().filter(|(other, _)| *other != writer) {
                    if intersect(w, t) {
                        return Err(Conflict { stage, writer, other });
                    }
                }
            }
        }
        let prove = |tasks: &Vec<Spans>| tasks.iter().map(|a| Verified(*a)).collect();
        Ok(stages.iter().map(|stage| stage.iter().map(prove).collect()).collect())
    }
}

/// The spans sorted and merged, so that a deep model's schedule is verified in n log n.
fn union(spans: impl Iterator<Item = Span>) -> Vec<Span> {
    let mut spans: Vec<Span> = spans.filter(|s| s.len > 0).collect();
    spans.sort_unstable_by_key(|s| s.start);
    let mut merged: Vec<Span> = Vec::new();
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start <= last.start + last.len => {
                last.len = last.len.max(span.start + span.len - last.start);
            }
            _ => merged.push(span),
        }
    }
    merged
}

fn intersect(a: &[Span], b: &[Span]) -> bool {
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        if a[i].overlaps(b[j]) {
            return true;
        }
        if a[i].start < b[j].start { i += 1 } else { j += 1 }
    }
    false
}

impl Verified {
    /// Access to nothing, which conflicts with nothing.
    pub fn nothing() -> Self {
        let none = [Span::default(); 4];
        Self(Spans { reads: none, writes: none })
    }

    /// The slices of a task, in the order declared.
    ///
    /// # Safety
    /// `arena` is the one that verified it. The caller is the thread it was verified for, has met the others at the
    /// barrier before its stage, will meet them at the next only when it no longer uses the slices, and holds no other
    /// slice of the arena.
    #[inline(always)]
    pub unsafe fn borrow<'a>(&self, arena: &'a Arena) -> Slices<'a> {
        let base = arena.lines.as_ptr().cast::<f32>().cast_mut();
        // SAFETY: `Arena::verify` checked that every span lies within the arena, that the writes of this task overlap
        // neither each other nor its reads, and that no task of another thread between the same barriers touches them;
        // that this is between those barriers is the caller's word.
        unsafe {
            (
                self.0.reads.map(|s| std::slice::from_raw_parts(base.add(s.start), s.len)),
                self.0.writes.map(|s| std::slice::from_raw_parts_mut(base.add(s.start), s.len)),
            )
        }
    }
}

impl Verified {
    /// What is read, by a task that several threads share.
    ///
    /// # Safety
    /// As for [`borrow`](Self::borrow), but by any of the threads that share the task.
    pub unsafe fn borrow_reads<'a>(&self, arena: &'a Arena) -> [&'a [f32]; 4] {
        let base = arena.lines.as_ptr().cast::<f32>();
        // SAFETY: as for `borrow`.
        unsafe { self.0.reads.map(|s| std::slice::from_raw_parts(base.add(s.start), s.len)) }
    }

    /// A part of what is written, by a task that several threads share.
    ///
    /// # Panics
    /// Where the part is not within the write.
    ///
    /// # Safety
    /// As for [`borrow_reads`](Self::borrow_reads), and none but the caller has a part of the same numbers.
    #[expect(clippy::mut_from_ref, reason = "of parts that do not overlap, as the caller promises")]
    pub unsafe fn borrow_part<'a>(
        &self,
        arena: &'a Arena,
        write: usize,
        part: Range<usize>,
    ) -> &'a mut [f32] {
        let span = self.0.writes[write].part(part.start, part.len());
        let base = arena.lines.as_ptr().cast::<f32>().cast_mut();
        // SAFETY: `Arena::verify` checked that the span lies within the arena, and that nobody but those who share the task
        // touches it between the same barriers; that they do not share this part is the caller's word.
        unsafe { std::slice::from_raw_parts_mut(base.add(span.start), span.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Buffer, BufferId};

    fn arena() -> Arena {
        let layout = Layout::bare(vec![Buffer { name: "b".into(), len: 100, role: Role::Activation }]);
        Arena::new(&layout, &[50]).expect("memory")
    }

    /// A part of the only buffer, or of the scratch behind it.
    fn slice(buffer: usize, part: std::ops::Range<usize>) -> Slice {
        Slice { buffer: BufferId(buffer), offset: part.start, len: part.len() }
    }

    #[test]
    fn disjoint_rows_and_shared_reads_are_allowed() {
        let a = arena();
        let all = slice(0, 0..100);
        let stage =
            vec![vec![Access::new([all], [slice(1, 0..25)])], vec![Access::new([all], [slice(1, 25..50)])]];
        let verified = a.verify(&[stage]).expect("no conflict");
        // SAFETY: one thread, one borrow at a time.
        let (_, [w, ..]) = unsafe { verified[0][0][0].borrow(&a) };
        w.fill(7.0);
        // SAFETY: the slices above are no longer used.
        let (reads, _) = unsafe { verified[0][1][0].borrow(&a) };
        assert_eq!(reads[0].len(), 100);
    }

    #[test]
    fn overlaps_are_found() {
        let a = arena();
        let racing =
            vec![vec![Access::new([], [slice(0, 0..51)])], vec![Access::new([slice(0, 50..51)], [])]];
        assert_eq!(a.verify(&[racing]).err(), Some(Conflict { stage: 0, writer: 0, other: 1 }));
        let aliasing = vec![vec![Access::new([slice(0, 0..10)], [slice(0, 9..19)])]];
        assert_eq!(a.verify(&[aliasing]).err(), Some(Conflict { stage: 0, writer: 0, other: 0 }));
        let apart = {
            let all = slice(0, 0..100);
            vec![vec![vec![Access::new([], [all])], vec![]], vec![vec![], vec![Access::new([all], [])]]]
        };
        assert!(a.verify(&apart).is_ok(), "a barrier in between");
    }
}
