//! A file that holds one array of numbers. Its header has been read and checked, its elements not yet.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufReader, Cursor, Read},
    os::fd::AsFd,
    path::Path,
    sync::Arc,
};

use flate2::read::MultiGzDecoder;

use super::{
    FileFingerprint, Task, file, labels,
    raw::{self, Fault, Layout},
    split::Split,
};
use crate::{host::Interruptible, spec::Problem};

/// The contents of a header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) layout: Layout,
    pub(super) shape: Vec<u64>,
    /// The elements' offset in the file.
    pub(super) offset: u64,
}

/// Why a header was refused, and a hint if there is one.
#[derive(Debug)]
pub(super) enum Refusal {
    Io(io::Error),
    Words { message: String, hint: Option<&'static str> },
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Refuses a header.
pub(super) fn refuse<T>(message: impl Into<String>, hint: Option<&'static str>) -> Result<T, Refusal> {
    Err(Refusal::Words { message: message.into(), hint })
}

/// Reads a header from the start of a file, and not one byte more.
pub(super) type ReadHeader = fn(&mut dyn Read) -> Result<Header, Refusal>;

/// An array with at least one row and at least one element per row. The file's length agrees with the header.
pub(super) struct ArrayFile<'a> {
    pub(super) path: &'a Path,
    pub(super) header: Header,
    pub(super) rows: usize,
    /// Elements per row.
    pub(super) width: usize,
    file: File,
    /// Positioned at the first element.
    elements: Box<dyn Read>,
    /// Bytes of elements according to the header.
    declared: u64,
    is_gzipped: bool,
    /// Whether the file's length has been checked, so that it ends where its elements do.
    is_measured: bool,
    /// Rows returned by [`next_rows`](Self::next_rows) so far.
    done: usize,
}

impl<'a> ArrayFile<'a> {
    pub(super) fn open(
        path: &'a Path,
        key: &str,
        read_header: ReadHeader,
        may_be_gzipped: bool,
    ) -> Result<Self, Problem> {
        let unreadable = |error: io::Error| file::unreadable(path, &error);
        let (file, length) = file::open(path, key)?;
        let is_gzipped = may_be_gzipped && file::is_gzip(&file).map_err(unreadable)?;
        let plain = file.try_clone().map_err(unreadable)?;
        let elements: Box<dyn Read> = match is_gzipped {
            true => Box::new(Interruptible::new(MultiGzDecoder::new(BufReader::new(plain)))),
            false => Box::new(Interruptible::new(plain)),
        };
        let array =
            Self { is_gzipped, is_measured: !is_gzipped, ..Self::new(path, file, elements, read_header)? };
        let (declared, found) = (array.declared, length.saturating_sub(array.header.offset));
        if !is_gzipped && found != declared {
            return Err(file::wrong_size(path, declared, &format!("{found} are there")));
        }
        // Deflate expands a byte to at most 1032 bytes.
        if is_gzipped && declared > length.saturating_mul(1032) {
            let found = format!("{length} compressed ones cannot hold them");
            return Err(file::wrong_size(path, declared, &found));
        }
        Ok(array)
    }

    /// An array from standard input, or the `bytes` that were read from it or a pipe, gzipped or not. Its length is only known at its
    /// end. `header_of` looks at the first bytes to select the format.
    pub(super) fn from_stream(
        path: &'a Path,
        bytes: Option<Arc<[u8]>>,
        header_of: impl FnOnce(&[u8]) -> ReadHeader,
    ) -> Result<Self, Problem> {
        let unreadable = |error: io::Error| file::unreadable(path, &error);
        let file = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(unreadable)?);
        let reader: Box<dyn Read> = match bytes {
            Some(bytes) => Box::new(Cursor::new(bytes)),
            None => Box::new(Interruptible::new(file.try_clone().map_err(unreadable)?)),
        };
        let mut reader = file::unpacked(reader).map_err(unreadable)?;
        let mut start = [0; 8];
        let count = raw::fill(&mut *reader, &mut start).map_err(unreadable)?;
        let elements = Cursor::new(start).take(count as u64).chain(reader);
        Self::new(path, file, Box::new(elements), header_of(&start[..count]))
    }

    fn new(
        path: &'a Path,
        file: File,
        mut elements: Box<dyn Read>,
        read_header: ReadHeader,
    ) -> Result<Self, Problem> {
        let header = read_header(&mut *elements).map_err(|refusal| match refusal {
            Refusal::Io(error) => file::unreadable(path, &error),
            Refusal::Words { message, hint } => {
                Problem { hint: hint.map(Into::into), ..file::problem(path, message) }
            }
        })?;
        let shape = &header.shape;
        let declared = shape
            .iter()
            .try_fold(header.layout.element.bytes() as u64, |bytes, dim| bytes.checked_mul(*dim))
            .ok_or_else(|| file::problem(path, format!("no file holds its shape {shape:?}")))?;
        let (rows, width) = rows_and_width(shape).map_err(|message| file::problem(path, message))?;
        let (is_gzipped, is_measured, done) = (false, false, 0);
        Ok(Self { path, header, rows, width, file, elements, declared, is_gzipped, is_measured, done })
    }

    /// The rows of a split, read into memory; `finish` is called once per element, in blocks.
    pub(super) fn values(
        mut self,
        split: &Split,
        finish: impl Fn(&mut [f32]),
    ) -> Result<(Vec<f32>, Vec<f32>), Fault> {
        let layout = self.header.layout;
        raw::read_split(&mut *self.elements, layout, self.width, split, !self.is_gzipped, finish)
    }

    /// The next rows, `most` at most and none at the end, with the index of the first; `finish` is called on
    /// all of them.
    pub(super) fn next_rows(
        &mut self,
        most: usize,
        finish: impl Fn(&mut [f32]),
    ) -> Result<(usize, Vec<f32>), Problem> {
        let (layout, first) = (self.header.layout, self.done);
        let bytes_per = layout.element.bytes();
        if first == self.rows && !self.is_measured {
            let after = raw::fill(&mut *self.elements, &mut [0]).map_err(|e| self.problem(Fault::Io(e)))?;
            return if after > 0 { Err(self.problem(Fault::Long)) } else { Ok((first, Vec::new())) };
        }
        // A stream has no length to check the header's width against, so this allocation may fail.
        let (rows, mut bytes) = (most.min(self.rows - first) as u64, Vec::new());
        let wanted = (rows * bytes_per as u64).saturating_mul(self.width as u64);
        let room = usize::try_from(wanted).ok().filter(|room| bytes.try_reserve_exact(*room).is_ok());
        bytes.resize(room.ok_or_else(|| self.problem(Fault::Memory(wanted.into())))?, 0);
        let read = raw::fill(&mut *self.elements, &mut bytes).map_err(|e| self.problem(Fault::Io(e)))?;
        if read < bytes.len() {
            let before = (first * self.width * bytes_per) as u64;
            return Err(self.problem(Fault::Short(before + read as u64)));
        }
        let mut values = vec![0.0; bytes.len() / bytes_per];
        layout.decode_f32(&bytes, &mut values);
        finish(&mut values);
        if let Some(bad) = raw::first_not_finite(&values) {
            let (row, column) = ((first + bad / self.width) as u64, (bad % self.width) as u64);
            let value = layout.exact(&bytes[bad * bytes_per..]);
            return Err(self.problem(Fault::NotFinite { row, column, value }));
        }
        self.done += values.len() / self.width;
        Ok((first, values))
    }

    /// The labels and, for a classification, the number of classes. For validation rows `known` is that
    /// number, from the training rows.
    pub(super) fn labels(
        self,
        task: Task,
        known: Option<usize>,
    ) -> Result<(Vec<f32>, Option<usize>), Problem> {
        let (path, width) = (self.path, self.width);
        let exact = self.exact()?;
        let classes = labels::check(&exact, width, task, known, &file::place(path))?;
        Ok((exact.iter().map(|&label| label as f32).collect(), classes))
    }

    /// The groups of the rows, numbered from 0.
    pub(super) fn groups(self) -> Result<Vec<u32>, Problem> {
        let (path, shape) = (self.path, self.header.shape.clone());
        if self.width != 1 {
            let message = format!("groups of shape {shape:?}: expected one integer per row");
            return Err(file::problem(path, message));
        }
        let exact = self.exact()?;
        // f64 represents all integers up to 2^53 exactly.
        let is_group = |value: f64| value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0;
        if let Some(bad) = exact.iter().position(|&value| !is_group(value)) {
            let message = format!("the group of row {bad} (counted from 0) is {}", exact[bad]);
            return Err(file::problem(path, format!("{message}: expected an integer up to 2^53")));
        }
        let mut numbers = HashMap::new();
        let mut number = |value: f64| {
            let next = numbers.len() as u32;
            *numbers.entry(value as i64).or_insert(next)
        };
        Ok(exact.into_iter().map(&mut number).collect())
    }

    /// All elements.
    fn exact(mut self) -> Result<Vec<f64>, Problem> {
        let mut bytes = Vec::new();
        let reader = (&mut *self.elements).take(self.declared + 1);
        let found =
            { reader }.read_to_end(&mut bytes).map_err(|error| file::unreadable(self.path, &error))?;
        match found as u64 {
            found if found < self.declared => return Err(self.problem(Fault::Short(found))),
            found if found > self.declared => return Err(self.problem(Fault::Long)),
            _ => {}
        }
        let mut exact = vec![0.0; self.rows * self.width];
        self.header.layout.decode_f64(&bytes, &mut exact);
        Ok(exact)
    }

    /// The open file and its fingerprint, for rows that stay in it.
    pub(super) fn into_file(self) -> Result<(File, FileFingerprint), Problem> {
        let metadata = self.file.metadata().map_err(|error| file::unreadable(self.path, &error))?;
        Ok((self.file, FileFingerprint::new(self.path, &metadata)))
    }

    fn problem(&self, fault: Fault) -> Problem {
        file::fault(self.path, self.declared, fault)
    }

    /// Bytes of the elements according to the header.
    pub(super) fn declared(&self) -> u64 {
        self.declared
    }
}

fn rows_and_width(shape: &[u64]) -> Result<(usize, usize), String> {
    let Some((&rows, rest)) = shape.split_first() else {
        return Err("a single number: expected rows".to_owned());
    };
    let width = rest.iter().try_fold(1_u64, |width, &dim| width.checked_mul(dim));
    match (u32::try_from(rows), width.and_then(|width| usize::try_from(width).ok())) {
        (Ok(0), _) => Err("it holds no rows".to_owned()),
        (_, Some(0)) => Err(format!("rows of shape {rest:?} hold no numbers")),
        (Ok(rows), Some(width)) => Ok((rows as usize, width)),
        _ => Err(format!("shape {shape:?}: at most {} rows", u32::MAX)),
    }
}
