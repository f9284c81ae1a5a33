//! Where the slices of a program lie, and the scratch memory that its tasks need beside them.

use std::ops::Range;

use super::super::{
    arena::{Arena, Span},
    task::{NextRows, RowFetch},
};
use crate::program::{Layout, Slice};

/// Scratch memory that tasks need beyond the layout, by number of floats.
#[derive(Default)]
pub struct Scratch {
    /// Lengths, in the order asked for.
    pub lens: Vec<usize>,
    next: usize,
}

impl Scratch {
    /// Begins another program, which may use the same memory as those before.
    pub fn restart(&mut self) {
        self.next = 0;
    }

    fn take(&mut self, len: usize) -> usize {
        let index = self.next;
        self.next += 1;
        if index == self.lens.len() {
            self.lens.push(0);
        }
        self.lens[index] = self.lens[index].max(len);
        index
    }
}

/// Where spans lie; a dry run that only measures scratch has no arena yet.
pub(super) struct BufferMap<'a> {
    pub arena: Option<&'a Arena>,
    /// The batch's features, and the next step's rows of them, where those are drawn by an order.
    pub fetched: Option<(Slice, NextRows)>,
    /// The batch's features, and which rows they are, where they are read where they lie.
    pub in_place: Option<(Slice, RowFetch)>,
    pub layout: &'a Layout,
    pub scratch: &'a mut Scratch,
}

impl BufferMap<'_> {
    /// Which rows a share of `x` from that row on is, where it is read where it lies.
    pub fn in_place(&self, x: Slice, row: usize) -> Option<RowFetch> {
        self.in_place.filter(|(features, _)| *features == x).map(|(_, fetch)| fetch.from(row))
    }

    pub fn span(&self, slice: Slice) -> Span {
        self.arena.map_or(Span::default(), |a| a.span(slice))
    }

    pub fn part(&self, slice: Slice, part: Range<usize>) -> Span {
        self.span(Slice { offset: slice.offset + part.start, len: part.len(), ..slice })
    }

    pub fn scratch(&mut self, len: usize) -> Span {
        let index = self.scratch.take(len);
        self.arena.map_or(Span::default(), |a| a.scratch(self.layout, index).part(0, len))
    }

    pub fn sub(&self, span: Span, part: Range<usize>) -> Span {
        if self.arena.is_some() { span.part(part.start, part.len()) } else { span }
    }
}
