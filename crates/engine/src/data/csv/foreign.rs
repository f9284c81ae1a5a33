//! Files that are no text: what they are, and what reads them.

use std::path::Path;

use crate::{
    data::{file, idx},
    spec::Problem,
};

const AS_ARRAYS: &str = "write a table as CSV; `numpy.save` writes arrays that `[data.npy]` reads";

/// The first bytes of files that people have, what they are, and what to do with them.
const KINDS: [(&[u8], &str, &str); 10] = [
    (&file::PARQUET, "a Parquet file", "name it in `[data.parquet]`, which has the same keys"),
    (
        b"\x93NUMPY",
        "an array of NumPy",
        "`runner new npy` writes a spec for arrays: this is `features` or `labels` under `[data.npy]`",
    ),
    (b"PK\x03\x04", "a ZIP archive, such as those of Excel and `numpy.savez`", AS_ARRAYS),
    (b"\xd0\xcf\x11\xe0", "a file of an older Excel", AS_ARRAYS),
    (b"\x89HDF", "an HDF5 file", AS_ARRAYS),
    (b"ARROW1", "an Arrow file", "write it as Parquet or CSV"),
    (b"SQLite format 3", "an SQLite database", AS_ARRAYS),
    (b"\x80\x04\x95", "a pickle of Python", AS_ARRAYS),
    (b"\xff\xfe", "UTF-16", "save the file as UTF-8"),
    (b"\xfe\xff", "UTF-16", "save the file as UTF-8"),
];

/// No text has a zero byte; in binary files there is one among this many.
const LOOKED_AT: usize = 4096;

/// The problem of a file that begins with `bytes` and is no text.
pub(super) fn refusal(path: &Path, bytes: &[u8]) -> Option<Problem> {
    let is_binary = bytes.iter().take(LOOKED_AT).any(|byte| *byte == 0);
    // The name of a text's first column may begin with letters such as ARROW1.
    let is_it = |start: &[u8]| bytes.starts_with(start) && (is_binary || std::str::from_utf8(start).is_err());
    if let Some((_, what, hint)) = KINDS.into_iter().find(|(start, ..)| is_it(start)) {
        return Some(file::problem(path, format!("{what}, not UTF-8 text")).hint(hint));
    }
    if let Ok(header) = idx::read_header(&mut &bytes[..]) {
        let shape: Vec<String> = header.shape.iter().map(u64::to_string).collect();
        let message = format!("an IDX file of {}, not UTF-8 text", shape.join(" x "));
        return Some(file::problem(path, message).hint(of_idx(path, shape.len() == 1)));
    }
    is_binary.then(|| file::problem(path, "a binary file, not UTF-8 text").hint(AS_ARRAYS))
}

/// The lines of a spec for images or labels; the other file is called as MNIST's is.
fn of_idx(path: &Path, are_labels: bool) -> String {
    let (from, to) = if are_labels { ("labels-idx1", "images-idx3") } else { ("images-idx3", "labels-idx1") };
    let own = path.to_string_lossy();
    let other = if own.contains(from) { own.replace(from, to) } else { "FILE".to_owned() };
    let [images, labels] = if are_labels { [&*other, &*own] } else { [&*own, &*other] };
    format!(
        "`runner new mlp` writes a spec for it: under `[data.idx]` put `images = {images:?}` and `labels = {labels:?}`"
    )
}
