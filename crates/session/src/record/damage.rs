//! Finds files of a run that were cut, emptied or replaced after it had ended.
//!
//! A model or a `metrics.csv` that is missing is no damage: somebody removed it to save space.

use std::{
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use safetensors::tensor::Metadata;

use super::{RunDir, last_lines::find_in_last_lines};
use crate::{
    event::Status,
    host::{open_regular, read_text, reason},
};

/// Files of weights.
const MODELS: [&str; 2] = ["model.safetensors", "best.safetensors"];

/// Longer than the header of any file of weights.
const LONGEST_HEADER: u64 = 100_000_000;

/// What is wrong with the metrics or the weights of a run that has finished; `figure` is a cell of its summary.
pub fn damage<'a>(folder: &Path, figure: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    let metrics = folder.join("metrics.csv");
    let losses = ["final_train_loss", "final_validation_loss"].map(|name| figure(name).unwrap_or_default());
    let told = |path: &Path, found: io::Result<Option<&str>>| match found {
        Ok(what) => what.map(|what| format!("`{}` {what}", path.display())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => Some(unreadable(path, &e)),
    };
    let of_metrics = told(&metrics, damaged_metrics(&metrics, losses));
    of_metrics.or_else(|| {
        let mut models = MODELS.iter().map(|name| folder.join(name));
        models.find_map(|path| told(&path, damaged_model(&path)))
    })
}

/// What became of the summary of a run that is known to have ended, where it has no row.
pub fn lost_summary(folder: &Path) -> String {
    let path = folder.join("summary.csv");
    match read_text(&path) {
        Ok(text) if text.is_empty() => format!("`{}` is empty", path.display()),
        Ok(_) => format!("`{}` has lost its row", path.display()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => format!("`{}` is missing", path.display()),
        Err(e) => unreadable(&path, &e),
    }
}

impl RunDir {
    /// What is wrong with the files of a run that was begun, in words; `has_ended` is known from elsewhere.
    pub fn damage(&self, has_ended: bool) -> Option<String> {
        let is_begun = ["summary.csv", "metrics.csv"].iter().any(|name| self.file(name).exists());
        let of_toml = |name: &str| damaged_toml(self.file(name));
        let spec = || match of_toml("spec.toml") {
            Err(path) => Some(format!("`{}` is missing", path.display())),
            Ok(damage) => damage,
        };
        let files = || spec().or_else(|| of_toml("environment.toml").ok().flatten());
        let of_files = is_begun.then(files).flatten();
        of_files.or_else(|| match self.status() {
            None if has_ended => Some(lost_summary(self.path())),
            Some(Status::Finished) => {
                let figures = self.figures();
                damage(self.path(), |name| figures.get(name).map(String::as_str))
            }
            _ => None,
        })
    }
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    format!("cannot read `{}`: {}", path.display(), reason(error))
}

/// What is wrong with a TOML file; its path if it is missing.
fn damaged_toml(path: PathBuf) -> Result<Option<String>, PathBuf> {
    let text = match read_text(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(path),
        Err(e) => return Ok(Some(unreadable(&path, &e))),
    };
    if text.is_empty() {
        return Ok(Some(format!("`{}` is empty", path.display())));
    }
    let Err(e) = toml::from_str::<toml::Table>(&text) else { return Ok(None) };
    let before = e.span().map_or("", |span| text.get(..span.start).unwrap_or_default());
    let line = before.matches('\n').count() + 1;
    Ok(Some(format!("`{}` is malformed at line {line}: {}", path.display(), e.message())))
}

/// The last row has the last loss that is in the summary: that of a validation, with which every run ends that has rows for one.
fn damaged_metrics(path: &Path, [train, validation]: [&str; 2]) -> io::Result<Option<&'static str>> {
    let (file, length) = open_regular(path)?;
    let what = |lines: &str| match lines.strip_suffix('\n') {
        Some(lines) => Some(damaged_line(lines.lines().next_back().unwrap_or_default(), [train, validation])),
        None => (!lines.is_empty()).then_some(Some("ends within a line")),
    };
    let found = find_in_last_lines(&file, length, what)?;
    Ok(found.unwrap_or(Some("is empty")))
}

/// What is wrong with the last line of a `metrics.csv`.
fn damaged_line(line: &str, [train, validation]: [&str; 2]) -> Option<&'static str> {
    let cells: Vec<&str> = line.split(',').collect();
    let is_whole = match (validation, train, &cells[..]) {
        ("", "", _) => true, // nothing was logged
        ("", train, [_, _, "train", _, loss, ..]) => are_equal(loss, train),
        (validation, _, [_, _, "validation", _, loss, ..]) => are_equal(loss, validation),
        _ => false,
    };
    (!is_whole).then_some("does not end with the last loss of `summary.csv`")
}

fn are_equal(one: &str, other: &str) -> bool {
    let numbers = one.parse::<f64>().ok().zip(other.parse::<f64>().ok());
    one == other || numbers.is_some_and(|(one, other)| one == other)
}

/// Reads the header alone: the weights may be large.
fn damaged_model(path: &Path) -> io::Result<Option<&'static str>> {
    let (file, length) = open_regular(path)?;
    let mut size = [0; 8];
    if length < size.len() as u64 {
        return Ok(Some(if length == 0 { "is empty" } else { CUT }));
    }
    file.read_exact_at(&mut size, 0)?;
    let size = u64::from_le_bytes(size);
    if size > LONGEST_HEADER.min(length - 8) {
        return Ok(Some(CUT));
    }
    let mut header = vec![0; size as usize];
    file.read_exact_at(&mut header, 8)?;
    let header = serde_json::from_slice::<Metadata>(&header);
    let is_whole = header.is_ok_and(|header| header.data_len() as u64 == length - 8 - size);
    Ok((!is_whole).then_some(CUT))
}

const CUT: &str = "was cut, or is no safetensors file";
