//! A command's output file: replaced once it is complete, and never one of the files that the command reads.

use std::{
    fs::{self, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::PredictError;
use crate::host::{is_replaceable, open_regular, write_until_signal};

/// Bytes of a longer line are not looked at.
const LONGEST_LINE: u64 = 1 << 20;

/// A file to write.
pub struct OutputFile<'a> {
    path: &'a Path,
}

impl<'a> OutputFile<'a> {
    /// `inputs` are the files that are read; `runs` are the folders of the models.
    ///
    /// # Errors
    /// The path is one of the inputs, or lies in such a folder.
    pub fn new<'b>(
        path: &'a Path,
        runs: impl IntoIterator<Item = &'b Path>,
        inputs: impl IntoIterator<Item = &'b Path>,
    ) -> Result<Self, PredictError> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let is_in = |place: &Path, run: &Path| match (fs::canonicalize(place), fs::canonicalize(run)) {
            (Ok(place), Ok(run)) => place.starts_with(run),
            _ => false,
        };
        if runs.into_iter().any(|run| is_in(folder, run) || is_in(path, run)) {
            return Err(PredictError::IsOfRun { file: path.to_owned() });
        }
        if inputs.into_iter().any(|input| is_same_file(input, path)) {
            return Err(PredictError::IsInput { file: path.to_owned() });
        }
        Ok(Self { path })
    }

    /// Checks that an existing file starts with `head`, like the one to be written.
    ///
    /// # Errors
    /// It is something other than `what`.
    pub fn check_replaces(&self, head: &[u8], what: &'static str) -> Result<(), PredictError> {
        if self.replaces_other(head) {
            return Err(PredictError::IsOther { file: self.path.to_owned(), what });
        }
        Ok(())
    }

    /// Whether it exists and does not start with `head`.
    pub fn replaces_other(&self, head: &[u8]) -> bool {
        // A path that is not a regular file is written to, not replaced.
        let is_replaced = self.path.is_file() && !is_standard_output(self.path);
        is_replaced && !is_replaceable(self.path, head).unwrap_or(false)
    }

    /// The first line of an existing file, with its end.
    pub fn first_line(&self) -> Option<String> {
        let mut line = String::new();
        let (file, _) = open_regular(self.path).ok()?;
        BufReader::new(file.take(LONGEST_LINE)).read_line(&mut line).ok()?;
        Some(line)
    }

    /// The file's name in messages.
    pub fn name(&self) -> String {
        format!("`{}`", self.path.display())
    }

    /// Writes the file, or the target of the link; `write` writes its content.
    ///
    /// # Errors
    /// Those of `write`, or the system's. A regular file is then unchanged.
    pub fn write(
        &self,
        write: impl FnOnce(&mut dyn Write) -> Result<(), PredictError>,
    ) -> Result<(), PredictError> {
        let unwritable = |source| PredictError::Write { to: self.name(), source };
        if is_standard_output(self.path) {
            return write(&mut io::stdout().lock());
        }
        let Some(target) = replaceable(self.path) else {
            let is_new = !self.path.exists();
            let file = OpenOptions::new().write(true).create(is_new).truncate(true).open(self.path);
            return write(&mut file.map_err(unwritable)?);
        };
        let mut result = Ok(());
        let written = write_until_signal(&target, |file| {
            result = write(file);
            if result.is_ok() { Ok(()) } else { Err(io::ErrorKind::Other.into()) }
        });
        result.and(written.map_err(unwritable))
    }
}

/// The path of the file to replace; `None` for a pipe, a device, or a broken link.
fn replaceable(path: &Path) -> Option<PathBuf> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => fs::canonicalize(path).ok(),
        Ok(metadata) => metadata.is_dir().then(|| path.to_owned()),
        Err(_) => fs::symlink_metadata(path).is_err().then(|| path.to_owned()),
    }
}

/// Whether the path is the file that standard output is redirected to: opening that again would truncate it.
pub fn is_standard_output(path: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    identity(path).is_some_and(|file| identity(Path::new("/dev/stdout")) == Some(file))
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b && a.is_file())
}
