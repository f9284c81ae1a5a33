//! Locks on single bytes of a file, as processes hold them against each other, also on several hosts that share the file's
//! folder. The system ends them with the process, however that ends, so a lock never outlives its owner.

// Linux's own belong to the opened file, others to the process, which must then open the file only once.
#[cfg(not(target_os = "linux"))]
use libc::{F_GETLK as GET, F_SETLK as SET, F_SETLKW as WAIT};
#[cfg(target_os = "linux")]
use libc::{F_OFD_GETLK as GET, F_OFD_SETLK as SET, F_OFD_SETLKW as WAIT};
use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::AsRawFd,
    path::Path,
};

/// A file whose bytes may be locked; it need not have them.
#[derive(Debug)]
pub struct ByteLocks(File);

impl ByteLocks {
    /// # Errors
    /// The file cannot be opened for writing.
    pub fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().read(true).write(true).open(path).map(Self)
    }

    /// Locks a byte; false where another process has it. A file system without locks has none to hold.
    pub fn try_lock(&self, byte: u64) -> bool {
        let held = [libc::EAGAIN, libc::EACCES].map(Some);
        self.control(SET, libc::F_WRLCK, byte).map_or_else(|e| !held.contains(&e.raw_os_error()), |_| true)
    }

    /// Locks a byte beside others that share it, and waits for one that does not.
    pub fn share(&self, byte: u64) {
        while self.control(WAIT, libc::F_RDLCK, byte).is_err_and(|e| e.kind() == io::ErrorKind::Interrupted) {
        }
    }

    /// Ends the lock of a byte.
    pub fn unlock(&self, byte: u64) {
        let _ = self.control(SET, libc::F_UNLCK, byte); // it ends with the process
    }

    /// Whether another process has or shares a byte.
    pub fn is_locked(&self, byte: u64) -> bool {
        self.control(GET, libc::F_WRLCK, byte).is_ok_and(|found| found != libc::F_UNLCK)
    }

    /// Returns the kind of the lock that was found.
    fn control(&self, command: i32, kind: i32, byte: u64) -> io::Result<i32> {
        // SAFETY: the struct is plain numbers, of which 0 is a value.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as _;
        lock.l_whence = libc::SEEK_SET as _;
        (lock.l_start, lock.l_len) = (byte as _, 1);
        // SAFETY: the descriptor is open as long as `self` is; the struct is this frame's own.
        let done = unsafe { libc::fcntl(self.0.as_raw_fd(), command, &raw mut lock) };
        if done == -1 { Err(io::Error::last_os_error()) } else { Ok(lock.l_type.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_has_one_owner_or_several_that_share_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let [a, b] = [0, 1].map(|_| ByteLocks::open(file.path()).unwrap());
        assert!(a.try_lock(3) && !b.try_lock(3) && b.try_lock(4));
        assert_eq!((b.is_locked(3), b.is_locked(4), b.is_locked(5)), (true, false, false));
        a.share(7);
        b.share(7);
        assert!(!a.try_lock(7));
        b.unlock(7);
        assert!(a.try_lock(7));
        drop(a);
        assert!(b.try_lock(3) && b.try_lock(7));
    }
}
