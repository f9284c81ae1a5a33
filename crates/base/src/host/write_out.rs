//! Files on their way to the disk, many at once.

#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::{fs::File, io};

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

/// Waits until the disk holds all that was written to the file system of an open file or folder. Returns false where the
/// system has no such call.
///
/// # Errors
/// The system's, also of an earlier write that nobody was told about.
#[cfg(target_os = "linux")]
pub fn sync_file_system(file: &File) -> io::Result<bool> {
    // SAFETY: the descriptor is open as long as `file` is, and no memory is passed.
    match unsafe { libc::syncfs(file.as_raw_fd()) } {
        0 => Ok(true),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(target_os = "linux"))]
pub fn sync_file_system(_: &File) -> io::Result<bool> {
    Ok(false)
}
