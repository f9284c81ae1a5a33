//! Writing to the disk without waiting.

use std::{fs::File, os::fd::AsRawFd};

/// Starts to write what the system holds of a file to its disk, and does not wait. Where that cannot be done, a later sync
/// does it all.
#[cfg(target_os = "linux")]
pub fn start_writing(file: &File) {
    // SAFETY: the descriptor is open as long as `file` is, and no memory is passed.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE);
    }
}

/// Starts to write what the system holds of a file to its disk; here the later sync does it all.
#[cfg(not(target_os = "linux"))]
pub fn start_writing(_: &File) {}
