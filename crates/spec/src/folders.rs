//! The folders of a spec's files: a relative path starts at that of the file which has it.

use std::path::{Component, Path, PathBuf};

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

    /// The absolute path that a value is, from the folder of the file in which it stands.
    pub fn absolute(&self, span: Span, value: &str) -> PathBuf {
        let base = span.source.checked_sub(FIRST_BASE).and_then(|base| self.bases.get(base));
        let joined = base.unwrap_or(&self.own).join(value);
        direct(std::path::absolute(&joined).unwrap_or(joined))
    }
}

/// The same path without `..`: as it is spelled, unless links lead elsewhere, which the folder's real path then replaces. That of a
/// folder that is not there stays.
pub(super) fn direct(path: PathBuf) -> PathBuf {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return path };
    if !folder.components().any(|part| part == Component::ParentDir) {
        return path;
    }
    let mut spelled = PathBuf::new();
    for part in folder.components() {
        match (part, spelled.components().next_back()) {
            (Component::ParentDir, Some(Component::Normal(_))) => _ = spelled.pop(),
            (Component::ParentDir, Some(Component::RootDir)) => {}
            _ => spelled.push(part),
        }
    }
    match (folder.canonicalize(), Path::new(".").join(&spelled).canonicalize()) {
        (Ok(real), Ok(other)) if real == other => spelled.join(name),
        (Ok(real), _) => real.join(name),
        (Err(_), _) => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_goes_no_way_up_again() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("real/deep")).unwrap();
        std::fs::create_dir_all(root.join("own")).unwrap();
        std::os::unix::fs::symlink(root.join("real/deep"), root.join("link")).unwrap();
        for (path, wanted) in [
            ("own/../real/a.csv", "real/a.csv"),
            ("own/../link/a.csv", "link/a.csv"),
            ("link/../a.csv", "real/a.csv"),
            ("link/a.csv", "link/a.csv"),
            ("gone/../a.csv", "gone/../a.csv"),
        ] {
            assert_eq!(direct(root.join(path)), root.join(wanted), "{path}");
        }
        assert_eq!(direct("/../../tmp/../a.csv".into()), Path::new("/a.csv"));
        assert_eq!(direct("src/../src/lib.rs".into()), Path::new("src/lib.rs"));
        assert_eq!(direct("src/../lib.rs".into()), Path::new("lib.rs"));
    }
}
