//! Writing to the disk without waiting.

use std::{fs::File, os::fd::AsRawFd};

/// Starts to write what the system holds of a file to its disk. A later sync waits for it, and does it all where this
/// cannot.
#[cfg(target_os = "linux")]
pub fn start_writing(file: &File) {
    // SAFETY: the descriptor is open as long as `file` is, and no memory is passed.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE);
    }
}

#[cfg(not(target_os = "linux"))]
pub fn start_writing(_: &File) {}
