//! `runner report PATH ...`: runs and sweeps as one page of HTML.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use super::args::ReportOptions;
use crate::{
    host::{Durability, reason, write_atomically},
    report::{self, Found, HEAD, PageRequest, find_one},
    run::{Exit, print, print_error, print_stderr},
    units,
};

/// The page where no name is given.
const NAME: &str = "report.html";

/// Runs the command.
pub fn report(options: &ReportOptions) -> Exit {
    let ReportOptions { paths, metric, filter, .. } = options;
    let request = PageRequest { paths, metric: metric.as_deref(), filter: filter.as_deref() };
    let page = match report::page(&request) {
        Ok(page) => page,
        Err(e) => {
            print_error(&e, e.hint());
            return Exit::Refused;
        }
    };
    for reason in page.left_out {
        print_stderr(&format!("warning: left out: {reason}\n"));
    }
    let path = options.out.clone().unwrap_or_else(|| default_path(paths));
    match is_replaceable(&path) {
        Ok(true) => {}
        Ok(false) => {
            let message =
                format!("`{}` was not made by `runner report`, and is not replaced", path.display());
            print_error(message, Some("`-o FILE` names another file"));
            return Exit::Refused;
        }
        Err(e) => return unwritable(&path, &e),
    }
    let written = write_atomically(&path, Durability::Process, |file| file.write_all(page.html.as_bytes()));
    match written {
        Ok(()) => {
            print_stderr(&format!("a page of {}\n", units::bytes(page.html.len() as u64)));
            print(&format!("{}\n", path.display()))
        }
        Err(e) => unwritable(&path, &e),
    }
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

/// Whether there is no such file, or only an earlier page.
fn is_replaceable(path: &Path) -> io::Result<bool> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(e) => return Err(e),
    };
    let mut head = [0; HEAD.len()];
    match file.read_exact(&mut head) {
        Ok(()) => Ok(head == HEAD.as_bytes()),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}
