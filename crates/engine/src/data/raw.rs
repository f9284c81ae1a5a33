//! Arrays of plain numbers in a file, read in blocks as f32: the part that IDX and NPY have in common.

use std::io::{self, Read};

use super::{
    memory,
    split::{RowUse, Split},
};
use crate::vector::vectorized;

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
}

/// The order of an element's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endian {
    Little,
    Big,
}

/// The element type and byte order of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) element: Element,
    pub(super) endian: Endian,
}

impl Element {
    /// Bytes of one element.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }
}

macro_rules! decoder {
    ($(#[$doc:meta])* $name:ident -> $to:ty) => {
        $(#[$doc])*
        pub(super) fn $name(self, bytes: &[u8], out: &mut [$to]) {
            match self.element {
                Element::U8 => self.each(bytes, out, u8::from_le_bytes, u8::from_be_bytes, |x| x as $to),
                Element::I8 => self.each(bytes, out, i8::from_le_bytes, i8::from_be_bytes, |x| x as $to),
                Element::U16 => self.each(bytes, out, u16::from_le_bytes, u16::from_be_bytes, |x| x as $to),
                Element::I16 => self.each(bytes, out, i16::from_le_bytes, i16::from_be_bytes, |x| x as $to),
                Element::U32 => self.each(bytes, out, u32::from_le_bytes, u32::from_be_bytes, |x| x as $to),
                Element::I32 => self.each(bytes, out, i32::from_le_bytes, i32::from_be_bytes, |x| x as $to),
                Element::U64 => self.each(bytes, out, u64::from_le_bytes, u64::from_be_bytes, |x| x as $to),
                Element::I64 => self.each(bytes, out, i64::from_le_bytes, i64::from_be_bytes, |x| x as $to),
                Element::F32 => self.each(bytes, out, f32::from_le_bytes, f32::from_be_bytes, |x| x as $to),
                Element::F64 => self.each(bytes, out, f64::from_le_bytes, f64::from_be_bytes, |x| x as $to),
            }
        }
    };
}

impl Layout {
    /// Whether elements are native f32.
    pub(super) fn is_f32_of_this_machine(self) -> bool {
        let endian = if cfg!(target_endian = "little") { Endian::Little } else { Endian::Big };
        self.element == Element::F32 && self.endian == endian
    }

    decoder! {
        /// Converts elements to f32, up to the shorter side's length.
        decode_f32 -> f32
    }
    decoder! {
        /// Converts elements to f64, up to the shorter side's length.
        decode_f64 -> f64
    }

    /// The first element, unscaled.
    pub(super) fn exact(self, bytes: &[u8]) -> f64 {
        let mut value = [0.0];
        self.decode_f64(bytes, &mut value);
        value[0]
    }

    #[inline]
    fn each<const N: usize, T, O>(
        self,
        bytes: &[u8],
        out: &mut [O],
        little: impl Fn([u8; N]) -> T,
        big: impl Fn([u8; N]) -> T,
        convert: impl Fn(T) -> O,
    ) {
        let elements = bytes.as_chunks::<N>().0.iter().zip(out);
        match self.endian {
            Endian::Little => elements.for_each(|(bytes, out)| *out = convert(little(*bytes))),
            Endian::Big => elements.for_each(|(bytes, out)| *out = convert(big(*bytes))),
        }
    }
}

/// Why an array could not be read.
#[derive(Debug)]
pub(super) enum Fault {
    /// The file cannot be read, or its compression is damaged.
    Io(io::Error),
    /// The file ends after this many bytes of elements.
    Short(u64),
    /// The file continues after the last element.
    Long,
    /// An element is infinite or NaN as f32, before or after `finish`.
    NotFinite { row: u64, column: u64, value: f64 },
    /// Out of memory: the bytes needed.
    Memory(u128),
}

/// Bytes read and converted at a time; they fit into the L1 cache.
const BLOCK: usize = 1 << 16;

/// Reads a `[rows, width]` array as f32 into the parts of `split`; `finish` is called once per element, in
/// blocks. If `trusted`, the file is known to contain all elements, and memory is allocated at once.
/// Otherwise memory grows with the rows read, so that a false header does no harm.
pub(super) fn read_split(
    reader: &mut dyn Read,
    layout: Layout,
    width: usize,
    split: &Split,
    trusted: bool,
    finish: impl Fn(&mut [f32]),
) -> Result<(Vec<f32>, Vec<f32>), Fault> {
    // The error names the bytes of all rows, whichever of the two parts did not fit.
    let whole = split.rows() as u128 * width as u128 * 4;
    let room =
        |rows| memory::reserved(if trusted { rows } else { 0 }, width).map_err(|_| Fault::Memory(whole));
    let (mut train, mut held) = (room(split.train_rows())?, room(split.held_rows())?);
    let total = split.rows() as u64 * width as u64;
    let mut block = vec![0.0_f32; BLOCK / layout.element.bytes()];
    let mut bytes = vec![0_u8; BLOCK];
    let mut done = 0_u64;
    while done < total {
        let count = block.len().min(usize::try_from(total - done).unwrap_or(usize::MAX));
        let bytes = &mut bytes[..count * layout.element.bytes()];
        let read = fill(reader, bytes).map_err(Fault::Io)?;
        if read < bytes.len() {
            return Err(Fault::Short(done * layout.element.bytes() as u64 + read as u64));
        }
        let block = &mut block[..count];
        layout.decode_f32(bytes, block);
        finish(block);
        if let Some(bad) = first_not_finite(block) {
            let element = done + bad as u64;
            let (row, column) = (element / width as u64, element % width as u64);
            let value = layout.exact(&bytes[bad * layout.element.bytes()..]);
            return Err(Fault::NotFinite { row, column, value });
        }
        let mut rest: &[f32] = block;
        while !rest.is_empty() {
            let (row, column) = ((done / width as u64) as usize, (done % width as u64) as usize);
            let (head, tail) = rest.split_at((width - column).min(rest.len()));
            let part = match split.use_of(row) {
                RowUse::Train => Some(&mut train),
                RowUse::Held => Some(&mut held),
                RowUse::Unused | RowUse::Later => None,
            };
            if let Some(part) = part {
                memory::grow(part, head.len()).map_err(|()| Fault::Memory(whole))?;
                part.extend_from_slice(head);
            }
            done += head.len() as u64;
            rest = tail;
        }
    }
    match fill(reader, &mut [0]).map_err(Fault::Io)? {
        0 => Ok((train, held)),
        _ => Err(Fault::Long),
    }
}

/// The index of the first element that is infinite or NaN.
pub(super) fn first_not_finite(values: &[f32]) -> Option<usize> {
    // Checking without an early exit vectorizes; this runs for every row that a step fetches from a file.
    let all_finite = vectorized(
        #[inline(always)]
        || values.iter().fold(true, |all, value| all & value.is_finite()),
    );
    if all_finite { None } else { values.iter().position(|value| !value.is_finite()) }
}

/// Why an element is not finite as f32, phrased as the end of a sentence.
pub(super) fn not_finite(value: f64) -> String {
    match value.is_finite() {
        false => format!("is {value}: expected a finite number"),
        true if (value as f32).is_finite() => {
            format!("is {:e}, and more than f32 holds once scaled", value as f32)
        }
        true => format!("is {value:e}: f32, in which rows are kept, holds numbers up to 3.4e38"),
    }
}

/// Reads until `bytes` is full or the reader ends.
pub(super) fn fill(reader: &mut dyn Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match reader.read(&mut bytes[read..]) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::{super::division::Division, *};

    #[test]
    fn decodes_every_element() {
        let cases: [(Element, &[u8], f64); 10] = [
            (Element::U8, &[200], 200.0),
            (Element::I8, &[200], -56.0),
            (Element::U16, &[1, 2], 513.0),
            (Element::I16, &[0xfe, 0xff], -2.0),
            (Element::U32, &[0, 0, 0, 128], 2_147_483_648.0),
            (Element::I32, &[0, 0, 0, 128], -2_147_483_648.0),
            (Element::U64, &[0, 0, 0, 0, 1, 0, 0, 0], 4_294_967_296.0),
            (Element::I64, &[255; 8], -1.0),
            (Element::F32, &[0, 0, 0x20, 0x40], 2.5),
            (Element::F64, &[0, 0, 0, 0, 0, 0, 0x04, 0x40], 2.5),
        ];
        for (element, little, expected) in cases {
            let big: Vec<u8> = little.iter().rev().copied().collect();
            for (endian, bytes) in [(Endian::Little, little), (Endian::Big, &big)] {
                let (mut single, mut double) = ([0.0], [0.0]);
                Layout { element, endian }.decode_f32(bytes, &mut single);
                Layout { element, endian }.decode_f64(bytes, &mut double);
                assert_eq!((f64::from(single[0]), double[0]), (expected, expected), "{element:?} {endian:?}");
            }
        }
    }

    #[test]
    fn reads_rows_across_blocks() {
        let (rows, width) = (40_000, 7);
        let bytes: Vec<u8> = (0..rows * width).map(|i| (i % 251) as u8).collect();
        let split = Split::new(&Division::of_fraction(1, 0.3), rows, None::<std::iter::Empty<u32>>, None)
            .expect("a split");
        let layout = Layout { element: Element::U8, endian: Endian::Big };
        let read = read_split(&mut &bytes[..], layout, width, &split, false, |block| {
            block.iter_mut().for_each(|x| *x /= 2.0);
        });
        let all = bytes.iter().map(|&byte| f32::from(byte) / 2.0).collect();
        assert_eq!(read.expect("rows"), split.apply(all, width));
    }

    /// The error is the same, whichever of the two parts does not fit into memory.
    #[test]
    fn what_memory_does_not_hold_is_all_of_it() {
        let layout = Layout { element: Element::U8, endian: Endian::Little };
        let split = Split::new(&Division::of_fraction(1, 0.2), 10, None::<std::iter::Empty<u32>>, None)
            .expect("a split");
        for trusted in [true, false] {
            let width = if trusted { 1 << 58 } else { 3 };
            let read = read_split(&mut &[0; 30][..], layout, width, &split, trusted, |_| {});
            match read {
                Err(Fault::Memory(bytes)) => assert_eq!(bytes, 40 << 58),
                read => assert_eq!(read.map(|(train, rest)| [train.len(), rest.len()]).ok(), Some([24, 6])),
            }
        }
    }

    #[test]
    fn names_what_is_wrong() {
        let layout = Layout { element: Element::F32, endian: Endian::Little };
        let mut bytes: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let read = |bytes: &[u8]| read_split(&mut &bytes[..], layout, 3, &Split::none(2), false, |_| {});
        assert!(matches!(read(&bytes[..23]), Err(Fault::Short(23))));
        assert!(matches!(read(&[&bytes[..], &[0]].concat()), Err(Fault::Long)));
        bytes[16..20].copy_from_slice(&f32::INFINITY.to_le_bytes());
        let fault = read(&bytes);
        assert!(
            matches!(fault, Err(Fault::NotFinite { row: 1, column: 1, value }) if value == f64::INFINITY)
        );
    }
}
