//! Reads the text of a spec file, or says which file is meant.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use runner_base::host;

use super::{
    problem::{Location, Problem},
    suggest,
};

/// A larger file cannot be a spec.
const MAX_BYTES: u64 = 16 << 20;

/// Reads the file or standard input; fails if it is too large or not UTF-8.
pub(super) fn read_text(path: &Path, is_piped: bool) -> Result<String, Box<Problem>> {
    let refuse = |message: String| Box::new(Problem::new(Location::Nowhere, message));
    let name = path.display();
    let mut bytes = Vec::new();
    // A shell passes what a command prints, as in `runner <(command)`, by a path in one of these folders.
    let is_shells = ["/dev/", "/proc/"].iter().any(|folder| path.starts_with(folder));
    let opened: io::Result<Box<dyn io::Read>> = match is_shells {
        _ if is_piped => Ok(Box::new(io::stdin())),
        true => File::open(path).map(|file| Box::new(file) as _),
        false => host::open_regular(path).map(|(file, _)| Box::new(file) as _),
    };
    opened.and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes)).map_err(|e| {
        let mut problem = refuse(format!("cannot read `{name}`: {}", host::reason(&e)));
        problem.hint = near(path).map(|near| format!("did you mean `{}`?", near.display()));
        problem
    })?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(refuse(format!("`{name}` is larger than {} MiB: it is no spec", MAX_BYTES >> 20)));
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&e.as_bytes()[..at]);
        let line = before.matches('\n').count() as u64 + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() as u64 + 1;
        let place =
            Location::File { path: path.to_owned(), line: Some(line), column: Some(column), text: None };
        Box::new(Problem::new(place, "not TOML: the file is not UTF-8 text"))
    })
}

/// The spec whose path is nearly this one: its name, or that of its folder, is another.
fn near(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir());
    if let Some(folder) = folder {
        let meant = near_in_folder(folder, |entry| entry.path().is_dir())?.join(path.file_name()?);
        return if meant.is_file() { Some(meant) } else { near(&meant) };
    }
    near_in_folder(path, |entry| entry.path().extension().is_some_and(|end| end == "toml"))
}

/// The nearest name of what fits beside a path.
fn near_in_folder(path: &Path, fits: impl Fn(&fs::DirEntry) -> bool) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let typed = path.file_name()?.to_str()?;
    let entries = fs::read_dir(folder).ok()?.flatten().filter(fits);
    let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    // An ending that all share makes no two names alike.
    let stem = |name: &'_ str| name.strip_suffix(".toml").unwrap_or(name).to_owned();
    let stems: Vec<String> = names.iter().filter(|name| *name != typed).map(|name| stem(name)).collect();
    let (typed_stem, all) = (stem(typed), || stems.iter().map(String::as_str));
    let near = suggest::nearest(&typed_stem, all()).or_else(|| suggest::longer(&typed_stem, all()))?;
    names.iter().find(|name| *name != typed && stem(name) == near).map(|name| path.with_file_name(name))
}
