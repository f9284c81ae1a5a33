//! `runner report PATH ...`: runs and sweeps as one page of HTML.

use std::{
    fs,
    io::{self, Read, Write},
    iter,
    path::{Path, PathBuf},
};

use super::args::ReportOptions;
use crate::{
    host::{Durability, open_regular, reason, write_atomically},
    predict::{Trained, WhichWeights, predict_validation},
    report::{self, Found, HEAD, PageRequest, Predicted, SVG, find_one},
    run::{Exit, print, print_error, print_stderr},
    units,
};

/// The page where no name is given.
const NAME: &str = "report.html";

/// Runs the command.
pub fn report(options: &ReportOptions) -> Exit {
    let ReportOptions { paths, metric, filter, .. } = options;
    if options.png.is_some() {
        print_error("`--png` is not in this version", Some("`--svg DIR` writes drawings of any size"));
        return Exit::Refused;
    }
    let predicted = predicted(paths);
    let request = PageRequest {
        paths,
        metric: metric.as_deref(),
        filter: filter.as_deref(),
        tag: None,
        predicted: predicted.as_ref(),
    };
    let page = match report::page(&request) {
        Ok(page) => page,
        Err(e) => {
            print_error(&e, e.hint());
            return Exit::Refused;
        }
    };
    for warning in &page.warnings {
        print_stderr(&format!("warning: {warning}\n"));
    }
    let path = options.out.clone().unwrap_or_else(|| default_path(paths));
    let drawings = options.svg.iter().flat_map(|folder| {
        page.drawings.iter().map(|(name, text)| (folder.join(format!("{name}.svg")), text, SVG))
    });
    let files: Vec<_> = iter::once((path.clone(), &page.html, HEAD)).chain(drawings).collect();
    for (path, _, head) in &files {
        match is_replaceable(path, head) {
            Ok(true) => {}
            Ok(false) => {
                let message =
                    format!("`{}` was not made by `runner report`, and is not replaced", path.display());
                print_error(message, Some("`-o FILE` and `--svg DIR` name other places"));
                return Exit::Refused;
            }
            Err(e) => return unwritable(path, &e),
        }
    }
    if let Some(folder) = &options.svg
        && let Err(e) = fs::create_dir_all(folder)
    {
        return unwritable(folder, &e);
    }
    for (path, text, _) in &files {
        // A link stays, and the page that it leads to is replaced.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let written = write_atomically(&target, Durability::Process, |file| file.write_all(text.as_bytes()));
        if let Err(e) = written {
            return unwritable(path, &e);
        }
    }
    let drawings = match files.len() {
        1 => String::new(),
        count => format!(", {}", units::counted(count as u64 - 1, "drawing")),
    };
    print_stderr(&format!("a page of {}{drawings}\n", units::bytes(page.html.len() as u64)));
    print(&format!("{}\n", path.display()))
}

/// What the model of a single run that has ended says of its validation rows; `None` where there is no such run or no model.
pub(super) fn predicted(paths: &[String]) -> Option<Result<Predicted, String>> {
    let [path] = paths else { return None };
    let Ok(Found::Run(folder)) = find_one(path) else { return None };
    let has = |file: &str| folder.join(file).is_file();
    if !has("summary.csv") || !(has("best.safetensors") || has("model.safetensors")) {
        return None;
    }
    let trained = Trained::open(path, WhichWeights::Best);
    trained.and_then(|trained| predict_validation(&trained)).map_err(|e| e.to_string()).transpose()
}

fn unwritable(path: &Path, error: &io::Error) -> Exit {
    print_error(format!("cannot write `{}`: {}", path.display(), reason(error)), None);
    Exit::Failed
}

/// In the folder of a single run or sweep, else in the current one.
fn default_path(paths: &[String]) -> PathBuf {
    match paths {
        [path] => match find_one(path) {
            Ok(Found::Run(folder) | Found::Sweep(folder)) => folder.join(NAME),
            Err(_) => PathBuf::from(NAME),
        },
        _ => PathBuf::from(NAME),
    }
}

/// Whether there is no such file, or only an earlier one that begins alike. A pipe or a device is an error.
fn is_replaceable(path: &Path, head: &str) -> io::Result<bool> {
    let mut file = match open_regular(path) {
        Ok((file, _)) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(e) => return Err(e),
    };
    let mut found = vec![0; head.len()];
    match file.read_exact(&mut found) {
        Ok(()) => Ok(found == head.as_bytes()),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}
