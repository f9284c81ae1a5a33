//! Starts and awaits writing many files to the disk.

#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::{fs::File, io};

/// Starts writing a file's cached data to the disk, so that a later sync has less to wait for. If the system
/// cannot do this, that sync does all the work.
#[cfg(target_os = "linux")]
pub fn start_writing(file: &File) {
    // SAFETY: the descriptor is open as long as `file` is, and no memory is passed.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE);
    }
}

#[cfg(not(target_os = "linux"))]
pub fn start_writing(_: &File) {}

/// Waits until everything written to the file system of an open file or folder is on the disk. Returns false
/// if the system has no such call.
///
/// # Errors
/// The system's error, including that of an earlier write that nobody has seen yet.
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
