//! Where rows for a trained model come from.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::file;
use crate::{
    host::{self, Interruptible},
    spec::Problem,
};

/// Where new rows come from.
#[derive(Clone, Debug)]
pub enum Input {
    /// Standard input.
    StandardInput,
    /// A file.
    File(PathBuf),
    /// What was read from standard input or a pipe of this name.
    Memory(PathBuf, Arc<[u8]>),
}

impl Input {
    /// The input for several models, each of which reads all of it: standard input and pipes, which can be read once, are read into
    /// memory.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn for_several(self) -> Result<Self, Problem> {
        let (path, reader): (_, Box<dyn Read>) = match self {
            Self::StandardInput => (host::STANDARD_INPUT.into(), Box::new(io::stdin())),
            // A missing file or a folder is an error once its rows are read.
            Self::File(path) if path.exists() && !path.is_file() && !path.is_dir() => {
                let pipe = File::open(&path).map_err(|e| file::unreadable(&path, &e))?;
                (path, Box::new(pipe))
            }
            other => return Ok(other),
        };
        let mut bytes = Vec::new();
        let read = Interruptible::new(reader).read_to_end(&mut bytes);
        read.map_err(|e| file::unreadable(&path, &e))?;
        Ok(Self::Memory(path, bytes.into()))
    }

    /// The path of the file, or that of standard input.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Memory(path, _) => path,
            Self::StandardInput => Path::new("/dev/stdin"),
        }
    }
}
