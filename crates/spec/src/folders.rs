//! The folders of a spec's files: a relative path starts at that of the file which has it.

use std::path::{Path, PathBuf};

use super::tree::{FIRST_BASE, Span};

/// The folder of the spec, at which paths on the command line start, too, and of the files that it extends.
#[derive(Clone, Debug)]
pub(super) struct Folders {
    own: PathBuf,
    bases: Vec<PathBuf>,
}

impl Folders {
    pub fn new(own: &Path) -> Self {
        Self { own: own.to_owned(), bases: Vec::new() }
    }

    pub fn add_base(&mut self, folder: PathBuf) {
        self.bases.push(folder);
    }

    /// The folder of the file in which a value stands.
    pub fn folder(&self, span: Span) -> &Path {
        let base = span.source.checked_sub(FIRST_BASE).and_then(|base| self.bases.get(base));
        base.unwrap_or(&self.own)
    }
}
