//! Who holds the lock on a file.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
};

/// The process that holds the lock on a file, as far as the system tells: not one on another host or in another container.
pub fn lock_holder(file: &File) -> Option<u32> {
    let facts = file.metadata().ok()?;
    // Device numbers are of another type on macOS, which has no such list.
    let (major, minor) = (libc::major(facts.dev() as _), libc::minor(facts.dev() as _));
    let place = format!("{major:02x}:{minor:02x}:{}", facts.ino());
    holder_in(&fs::read_to_string("/proc/locks").ok()?, &place)
}

/// In lines such as `1: FLOCK  ADVISORY  WRITE 1234 08:01:131 0 EOF`; those of processes that wait begin with `1: ->`.
fn holder_in(locks: &str, place: &str) -> Option<u32> {
    let held = |line: &str| match line.split_whitespace().skip(1).collect::<Vec<_>>()[..] {
        ["FLOCK", _, _, pid, at, ..] if at == place => pid.parse().ok().filter(|pid| *pid > 0),
        _ => None,
    };
    locks.lines().find_map(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_among_those_that_wait() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 08:01:131 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 12 08:01:131 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 13 08:01:132 0 EOF\n3: FLOCK  ADVISORY  WRITE 14 08:01:131 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE -1 08:01:133 0 EOF\n";
        let found = ["131", "132", "133", "13"].map(|inode| holder_in(locks, &format!("08:01:{inode}")));
        assert_eq!(found, [Some(14), Some(13), None, None]);
    }
}
