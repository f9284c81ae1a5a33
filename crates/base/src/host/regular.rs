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
    // Then opening a pipe does not block. Looking before would take as long again, and `list` opens 600,000 files of a large sweep.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        // A socket cannot be opened.
        Err(e) if e.kind() != io::ErrorKind::NotFound => return check_regular(path).and(Err(e)),
        opened => opened?,
    };
    let metadata = file.metadata()?;
    check_kind(metadata.file_type())?;
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
    let (mut file, length) = open_regular(path)?;
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
    match open_regular(path) {
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
    let (file, length) = open_regular(path)?;
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
    use std::os::unix::net::UnixListener;

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
}
