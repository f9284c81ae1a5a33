//! The last lines of a file, which may be long.

use std::{fs::File, io, os::unix::fs::FileExt};

/// How much of the end of a file is looked at first.
pub const TAIL_BYTES: u64 = 64 * 1024;

/// What `find` makes of the lines at the end of the first `length` bytes of a file: of those in its last part, then in twice as much
/// of it, until something is found or these are all. The first line is whole; what follows the last `\n` is there, too.
pub fn find_in_last_lines<T>(
    file: &File,
    length: u64,
    find: impl Fn(&str) -> Option<T>,
) -> io::Result<Option<T>> {
    let mut size = TAIL_BYTES;
    loop {
        let from = length.saturating_sub(size);
        let mut tail = vec![0; (length - from) as usize];
        file.read_exact_at(&mut tail, from)?;
        let begin = match from {
            0 => 0,
            _ => tail.iter().position(|&byte| byte == b'\n').map_or(tail.len(), |end| end + 1),
        };
        let found = find(&String::from_utf8_lossy(&tail[begin..]));
        if found.is_some() || from == 0 {
            return Ok(found);
        }
        size *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_longer_than_the_part_is_whole() {
        let path = tempfile::tempdir().unwrap().keep().join("lines");
        for longest in [0, 5, TAIL_BYTES, 3 * TAIL_BYTES] {
            let long = "x".repeat(longest as usize);
            let text = format!("head\n1,{long}\n2,{long}\n");
            std::fs::write(&path, &text).unwrap();
            let file = File::open(&path).unwrap();
            let last = |lines: &str| lines.lines().next_back().map(str::to_owned);
            let found = |length: usize| find_in_last_lines(&file, length as u64, last).unwrap();
            assert_eq!(found(text.len()), Some(format!("2,{long}")));
            assert_eq!(found("head\n".len()), Some("head".to_owned()));
            assert_eq!(found(0), None);
        }
    }
}
