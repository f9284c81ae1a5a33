//! The header of a `.npy` file, versions 1.0 to 3.0: a Python dictionary with the element type, the order of
//! the dimensions and the shape (<https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>).

use std::io::Read;

use super::{
    array_file::{Header, Refusal, refuse},
    file,
    raw::{self, Element, Endian, Layout},
};

/// Maximum header length: far more than an array of numbers needs.
const LONGEST: usize = 1 << 16;

/// Reads a header from the start of a file.
pub(super) fn read(reader: &mut dyn Read) -> Result<Header, Refusal> {
    let mut start = [0; 8];
    let found = raw::fill(reader, &mut start)?;
    if start.starts_with(b"PK") {
        return refuse(
            "not an NPY file but an archive, as `numpy.savez` writes it",
            Some("in Python: `numpy.save(path, numpy.load(archive)[name])` for each of its arrays"),
        );
    }
    if start.starts_with(&[0x1F, 0x8B]) {
        return refuse(
            "not an NPY file but one that gzip has compressed",
            Some("decompress it: `gunzip FILE.npy.gz`"),
        );
    }
    if found < 8 || start[..6] != *b"\x93NUMPY" {
        return refuse(
            "not an NPY file: it does not start with `\\x93NUMPY`",
            Some("write it with `numpy.save`"),
        );
    }
    let length_bytes = match start[6] {
        1 => 2,
        2 | 3 => 4,
        other => return refuse(format!("NPY version {other}.{}: expected 1 to 3", start[7]), None),
    };
    let mut length = [0; 4];
    raw::fill(reader, &mut length[..length_bytes])?;
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST {
        return refuse(format!("a header of {length} bytes: expected at most {LONGEST}"), None);
    }
    let mut text = vec![0; length];
    if raw::fill(reader, &mut text)? < length {
        return refuse("ends within its header", None);
    }
    let offset = (8 + length_bytes + length) as u64;
    let text = String::from_utf8_lossy(&text);
    match Dictionary::parse(&text) {
        Some(dictionary) => dictionary.header(offset),
        None => refuse(format!("its header cannot be understood: `{}`", file::printable(text.trim())), None),
    }
}

/// The values of a header's three entries, as written.
struct Dictionary<'a> {
    descr: &'a str,
    fortran_order: bool,
    shape: Vec<u64>,
}

impl<'a> Dictionary<'a> {
    /// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`, in any order.
    fn parse(text: &'a str) -> Option<Self> {
        let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim_start();
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        while !rest.is_empty() {
            let (key, after) = quoted(rest)?;
            let value = after.trim_start().strip_prefix(':')?.trim_start();
            rest = match key {
                "descr" if value.starts_with('[') => {
                    // Structured types with named fields are kept as written, for the message that refuses
                    // them.
                    let end = value.find("'fortran_order'").or(value.rfind(']').map(|end| end + 1))?;
                    descr = Some(value[..end].trim_end().trim_end_matches(','));
                    &value[end..]
                }
                "descr" => {
                    let (text, after) = quoted(value)?;
                    descr = Some(text);
                    after
                }
                "fortran_order" => {
                    let after = value.strip_prefix("False").or(value.strip_prefix("True"))?;
                    fortran_order = Some(value.starts_with('T'));
                    after
                }
                "shape" => {
                    let (dims, after) = value.strip_prefix('(')?.split_once(')')?;
                    let dims = dims.trim().trim_end_matches(',');
                    let parse = |dim: &str| dim.trim().trim_end_matches('L').parse().ok();
                    shape = if dims.is_empty() { Some(vec![]) } else { dims.split(',').map(parse).collect() };
                    after
                }
                _ => return None,
            };
            rest = rest.trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
        Some(Self { descr: descr?, fortran_order: fortran_order?, shape: shape? })
    }

    fn header(self, offset: u64) -> Result<Header, Refusal> {
        if self.descr.starts_with('>') {
            let hint = "in Python: `numpy.save(path, array.astype(array.dtype.newbyteorder(\"<\")))`";
            return refuse(
                format!("elements `{}` are big-endian: expected little", file::printable(self.descr)),
                Some(hint),
            );
        }
        let element = match self.descr.trim_start_matches(['<', '|', '=']) {
            "u1" | "b1" => Element::U8,
            "i1" => Element::I8,
            "u2" => Element::U16,
            "i2" => Element::I16,
            "u4" => Element::U32,
            "i4" => Element::I32,
            "u8" => Element::U64,
            "i8" => Element::I64,
            "f4" => Element::F32,
            "f8" => Element::F64,
            _ => {
                let message =
                    format!("elements `{}` are not numbers that can be read", file::printable(self.descr));
                return refuse(message, Some("in Python: `numpy.save(path, array.astype(\"float32\"))`"));
            }
        };
        if self.fortran_order && self.shape.iter().filter(|&&dim| dim != 1).count() > 1 {
            let hint = "in Python: `numpy.save(path, numpy.ascontiguousarray(array))`";
            return refuse("columns come first (Fortran order): expected rows first", Some(hint));
        }
        Ok(Header { layout: Layout { element, endian: Endian::Little }, shape: self.shape, offset })
    }
}

/// A Python string at the start of `text`, and what follows it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|letter| ['\'', '"'].contains(letter))?;
    text[1..].split_once(quote)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, dictionary: &str) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY".to_vec();
        bytes.extend([version, 0]);
        match version {
            1 => bytes.extend((dictionary.len() as u16).to_le_bytes()),
            _ => bytes.extend((dictionary.len() as u32).to_le_bytes()),
        }
        bytes.extend(dictionary.as_bytes());
        bytes
    }

    fn words(bytes: &[u8]) -> String {
        match read(&mut &bytes[..]) {
            Err(Refusal::Words { message, hint }) => format!("{message} | {}", hint.unwrap_or("-")),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn reads_every_version() {
        let dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n";
        for (version, start) in [(1, 10), (2, 12), (3, 12)] {
            let header = read(&mut &file(version, dictionary)[..]).expect("a header");
            let layout = Layout { element: Element::F32, endian: Endian::Little };
            assert_eq!(header, Header { layout, shape: vec![3, 4], offset: start + dictionary.len() as u64 });
        }
        for (shape, expected) in [("()", vec![]), ("(7,)", vec![7]), ("(2L, 3L)", vec![2, 3])] {
            let text = format!("{{'shape': {shape}, 'fortran_order': False, \"descr\": \"|u1\"}}");
            assert_eq!(read(&mut &file(1, &text)[..]).expect("a header").shape, expected);
        }
    }

    #[test]
    fn fortran_order_of_one_column_is_no_matter() {
        let column = "{'descr': '<f8', 'fortran_order': True, 'shape': (9, 1)}";
        assert_eq!(read(&mut &file(1, column)[..]).expect("a header").shape, [9, 1]);
    }

    #[test]
    fn says_what_it_refuses() {
        assert_eq!(
            words(b"1,2,3\n4,5,6\n"),
            "not an NPY file: it does not start with `\\x93NUMPY` | write it with `numpy.save`"
        );
        assert_eq!(
            words(b"PK\x03\x04 a file in it"),
            "not an NPY file but an archive, as `numpy.savez` writes it | in Python: `numpy.save(path, numpy.load(archive)[name])` for each of its arrays"
        );
        assert_eq!(
            words(b"\x1F\x8B\x08"),
            "not an NPY file but one that gzip has compressed | decompress it: `gunzip FILE.npy.gz`"
        );
        assert_eq!(words(&file(4, "")), "NPY version 4.0: expected 1 to 3 | -");
        assert_eq!(
            words(&file(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }")),
            "columns come first (Fortran order): expected rows first | in Python: `numpy.save(path, numpy.ascontiguousarray(array))`"
        );
        assert_eq!(
            words(&file(1, "{'descr': '>f4', 'fortran_order': False, 'shape': (3, 4), }")),
            "elements `>f4` are big-endian: expected little | in Python: `numpy.save(path, array.astype(array.dtype.newbyteorder(\"<\")))`"
        );
        assert_eq!(
            words(&file(1, "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }")),
            "elements `|O` are not numbers that can be read | in Python: `numpy.save(path, array.astype(\"float32\"))`"
        );
        assert_eq!(
            words(&file(1, "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (3,), }")),
            "elements `[('x', '<f4')]` are not numbers that can be read | in Python: `numpy.save(path, array.astype(\"float32\"))`"
        );
        assert_eq!(words(&file(1, "{'descr'")), "its header cannot be understood: `{'descr'` | -");
        assert_eq!(words(&file(1, "{}")), "its header cannot be understood: `{}` | -");
        assert_eq!(words(&file(2, "{}")[..13]), "ends within its header | -");
        let mut long = file(2, "{}");
        long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(words(&long), "a header of 4294967295 bytes: expected at most 65536 | -");
    }
}
