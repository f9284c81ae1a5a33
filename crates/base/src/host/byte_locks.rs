//! Locks on single bytes of a file, which processes hold against each other, also on several hosts that share
//! the file's folder. The system releases them when the process ends, however it ends, so a lock never
//! outlives its owner.

// Such a lock belongs to the open file. One by F_SETLK belongs to the process, which loses it once it closes any descriptor of
// that file.
use libc::{F_OFD_GETLK as GET, F_OFD_SETLK as SET};
use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::FileExt,
    },
    path::Path,
};

use super::regular::open_regular;

/// Kinds of locks, which are of another type than `flock`'s field on Linux.
#[allow(clippy::unnecessary_cast)]
const EXCLUSIVE: i16 = libc::F_WRLCK as i16;
#[allow(clippy::unnecessary_cast)]
const SHARED: i16 = libc::F_RDLCK as i16;
#[allow(clippy::unnecessary_cast)]
const NONE: i16 = libc::F_UNLCK as i16;

/// A file whose bytes may be locked; the bytes need not exist. All errors except those from opening mean that
/// the file system has no locks, or none left.
#[derive(Debug)]
pub struct ByteLocks<F: AsFd = File>(F);

impl ByteLocks {
    /// # Errors
    /// The file cannot be opened for writing.
    pub fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().read(true).write(true).open(path).map(Self)
    }

    /// Writes a mark on a byte, for those that lock a byte of the file later.
    ///
    /// # Errors
    /// The system's error.
    pub fn mark(&self, byte: u64, mark: u8) -> io::Result<()> {
        self.0.write_all_at(&[mark], byte)?;
        // NFS writes data back before it releases a lock, even one that is not held; the mark then survives
        // this host.
        self.unlock(u64::MAX >> 1);
        Ok(())
    }

    /// The mark that a byte had before this process locked a byte of the file, or 0: taking a lock makes NFS
    /// reread the file.
    ///
    /// # Errors
    /// The system's error.
    pub fn marked(&self, byte: u64) -> io::Result<u8> {
        let mut mark = [0];
        self.0.read_at(&mut mark, byte).map(|_| mark[0])
    }

    /// Removes all marks.
    ///
    /// # Errors
    /// The system's error.
    pub fn clear_marks(&self) -> io::Result<()> {
        self.0.set_len(0)
    }

    /// Whether a process holds or shares a byte of a file; only looks, does not lock. A regular file that cannot be opened counts
    /// as locked; on a file system without locks nothing is.
    pub fn are_held(path: &Path, byte: u64) -> bool {
        match open_regular(path) {
            Ok((file, _)) => Self(file).is_locked(byte).unwrap_or(false),
            Err(e) => {
                use io::ErrorKind::{InvalidInput, IsADirectory, NotFound};
                ![NotFound, InvalidInput, IsADirectory].contains(&e.kind())
            }
        }
    }
}

impl<F: AsFd> ByteLocks<F> {
    /// For a file that is open for writing.
    pub fn new(file: F) -> Self {
        Self(file)
    }

    /// Locks a byte exclusively; false if another process holds or shares it.
    ///
    /// # Errors
    /// See [`ByteLocks`].
    pub fn try_lock(&self, byte: u64) -> io::Result<bool> {
        self.attempt(EXCLUSIVE, byte)
    }

    /// Locks a byte shared with others; false if another process holds it exclusively.
    ///
    /// # Errors
    /// See [`ByteLocks`].
    pub fn try_share(&self, byte: u64) -> io::Result<bool> {
        self.attempt(SHARED, byte)
    }

    /// Releases the lock on a byte.
    pub fn unlock(&self, byte: u64) {
        let _ = self.control(SET, NONE, byte); // it ends with the process at the latest
    }

    /// Sets the file's modification time to now.
    ///
    /// # Errors
    /// The system's error.
    pub fn touch(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open as long as `self` lives; a null pointer for the times means now.
        let done = unsafe { libc::futimens(self.0.as_fd().as_raw_fd(), std::ptr::null()) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Whether another process holds or shares a byte.
    fn is_locked(&self, byte: u64) -> io::Result<bool> {
        self.control(GET, EXCLUSIVE, byte).map(|found| found != NONE)
    }

    fn attempt(&self, kind: i16, byte: u64) -> io::Result<bool> {
        match self.control(SET, kind, byte) {
            Ok(_) => Ok(true),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Calls fcntl; returns the kind of lock that it found or set.
    fn control(&self, command: i32, kind: i16, byte: u64) -> io::Result<i16> {
        // SAFETY: the struct has only integers, for which all-zero bytes are valid.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind;
        lock.l_whence = libc::SEEK_SET as _;
        (lock.l_start, lock.l_len) = (byte as _, 1);
        loop {
            // SAFETY: the descriptor is open as long as `self` lives; the struct is a local variable.
            let done = unsafe { libc::fcntl(self.0.as_fd().as_raw_fd(), command, &raw mut lock) };
            match io::Error::last_os_error() {
                _ if done != -1 => return Ok(lock.l_type),
                e if e.kind() != io::ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_has_one_owner_or_several_that_share_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let [a, b] = [0, 1].map(|_| ByteLocks::open(file.path()).unwrap());
        let (lock, share) =
            (|of: &ByteLocks, n| of.try_lock(n).unwrap(), |of: &ByteLocks, n| of.try_share(n).unwrap());
        assert!(lock(&a, 3) && !lock(&b, 3) && !share(&b, 3) && lock(&b, 4));
        assert_eq!([3, 4, 5].map(|byte| b.is_locked(byte).unwrap()), [true, false, false]);
        assert_eq!([3, 5].map(|byte| ByteLocks::are_held(file.path(), byte)), [true, false]);
        assert!(share(&a, 7) && share(&b, 7) && !lock(&a, 7));
        b.unlock(7);
        // A process that holds a byte exclusively may turn that into a shared lock, without releasing it in
        // between.
        assert!(lock(&a, 7) && !share(&b, 7) && share(&a, 7) && share(&b, 7));
        assert_eq!(a.marked(3).unwrap(), 0);
        a.mark(3, 2).unwrap();
        drop(a);
        assert!(lock(&b, 3) && lock(&b, 7));
        assert_eq!([0, 2, 3, 4].map(|byte| b.marked(byte).unwrap()), [0, 0, 2, 0]);
        b.clear_marks().unwrap();
        assert_eq!(b.marked(3).unwrap(), 0);
    }

    #[test]
    fn what_cannot_be_locked_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let unwritable = ByteLocks::new(File::open(file.path()).unwrap());
        assert_eq!(unwritable.try_lock(0).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert!(ByteLocks::are_held(&file.path().join("within"), 0));
        assert!(!ByteLocks::are_held(&file.path().with_extension("none"), 0));
    }
}
