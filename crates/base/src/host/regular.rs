//! Opens regular files only: a pipe may block, a device may have no end, and neither can be read twice.

use std::{
    fs::{self, File, FileType, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::Path,
};

/// Opens a regular file for reading; also returns its length in bytes.
///
/// # Errors
/// The system's error, or `IsADirectory` for a folder and `InvalidInput` for anything else that is not a
/// regular file.
pub fn open_regular(path: &Path) -> io::Result<(File, u64)> {
    let (file, _) = open_looked_at(path)?;
    // It may be another file by now.
    let metadata = file.metadata()?;
    check_kind(metadata.file_type())?;
    Ok((file, metadata.len()))
}

/// Like [`open_regular`], with the length that the file had just before. To look at the open file would take as long again, and
/// `list` reads 600,000 files of a large sweep.
fn open_looked_at(path: &Path) -> io::Result<(File, u64)> {
    // To open a pipe lets its writer go on, which then fails.
    let metadata = fs::metadata(path)?;
    check_kind(metadata.file_type())?;
    // If it has become a pipe, this does not wait for a writer.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    Ok((file, metadata.len()))
}

/// Checks that a file may be opened: it is regular, or missing. Opening a pipe blocks until someone else opens it, too.
///
/// # Errors
/// Those of [`open_regular`], except for a missing file.
pub fn check_regular(path: &Path) -> io::Result<()> {
    let kind = match fs::metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    check_kind(kind)
}

fn check_kind(kind: FileType) -> io::Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    let message = format!("it is {}: expected a regular file", name(kind));
    let other = if kind.is_dir() { io::ErrorKind::IsADirectory } else { io::ErrorKind::InvalidInput };
    Err(io::Error::new(other, message))
}

/// Reads all of a regular file.
///
/// # Errors
/// Those of [`open_regular`].
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let (mut file, length) = open_looked_at(path)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(length).unwrap_or(usize::MAX))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether a new file that begins with `head` may be written to this path: there is no file, an empty one, or
/// one that begins with `head` too.
///
/// # Errors
/// Those of [`open_regular`], except for a missing file.
pub fn is_replaceable(path: &Path, head: &[u8]) -> io::Result<bool> {
    let mut found = Vec::new();
    match open_looked_at(path) {
        Ok((file, _)) => file.take(head.len() as u64).read_to_end(&mut found)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
        Err(e) => return Err(e),
    };
    Ok(found.is_empty() || found == head)
}

/// Maximum bytes of a spec or of a file that describes a run.
const MOST_TEXT: u64 = 16 << 20;

/// Reads a regular text file.
///
/// # Errors
/// Those of [`open_regular`]; or the file is not text or is implausibly long.
pub fn read_text(path: &Path) -> io::Result<String> {
    let (file, length) = open_looked_at(path)?;
    // Some extra room, so that the end of the file is found without reallocating.
    let mut text = String::with_capacity(length.min(MOST_TEXT) as usize + 64);
    let length = file.take(MOST_TEXT + 1).read_to_string(&mut text)?;
    if length as u64 > MOST_TEXT {
        let message = format!("it is longer than {} MiB", MOST_TEXT >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(text)
}

fn name(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a named pipe",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::net::UnixListener, sync::mpsc::channel, thread};

    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let [pipe, socket, file] = ["pipe", "socket", "file"].map(|name| folder.path().join(name));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let _listener = UnixListener::bind(&socket).unwrap();
        let refused = |path: &Path| {
            let error = open_regular(path).unwrap_err();
            (error.kind(), error.to_string())
        };
        let other = io::ErrorKind::InvalidInput;
        for (path, kind, what) in [
            (folder.path(), io::ErrorKind::IsADirectory, "a folder"),
            (&pipe, other, "a named pipe"),
            (&socket, other, "a socket"),
            (Path::new("/dev/zero"), other, "a device"),
        ] {
            assert_eq!(refused(path), (kind, format!("it is {what}: expected a regular file")));
        }
        assert_eq!(refused(&file).0, io::ErrorKind::NotFound);
        fs::write(&file, "1234").unwrap();
        assert_eq!(open_regular(&file).unwrap().1, 4);
        assert_eq!(read_text(&file).unwrap(), "1234");
        assert_eq!(read_regular(&file).unwrap(), b"1234");
        assert!(read_text(&pipe).is_err());
        File::create(&file).unwrap().set_len(MOST_TEXT + 1).unwrap();
        assert_eq!(read_text(&file).unwrap_err().to_string(), "it is longer than 16 MiB");
    }

    #[test]
    fn a_pipe_that_is_refused_does_not_let_its_writer_go() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (started, starts) = channel();
        let path = pipe.clone();
        let writer = thread::spawn(move || {
            started.send(fs::read_link("/proc/thread-self").unwrap()).unwrap();
            File::create(path)?.write_all(b"1234")
        });
        let state = Path::new("/proc").join(starts.recv().unwrap()).join("stat");
        // It sleeps until there is a reader.
        while !fs::read_to_string(&state).unwrap().contains(") S ") {
            thread::yield_now();
        }
        open_regular(&pipe).unwrap_err();
        let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
        let mut bytes = [0; 8];
        let count = loop {
            match reader.read(&mut bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => thread::yield_now(),
                read => break read.unwrap(),
            }
        };
        assert_eq!(&bytes[..count], b"1234");
        writer.join().unwrap().unwrap();
    }
}
