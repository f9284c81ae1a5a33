//! `runner list`, `latest`, `show`, `diff`: find runs and show them.

use std::path::PathBuf;

use super::{
    args::{DiffOptions, ListOptions},
    run::terminal_width,
};
use crate::{
    host::escape_line,
    report::{self, Comparison, ListRequest, Question, ReportError},
    run::{Exit, print, print_error, print_json},
};

pub fn list(options: &ListOptions) -> Exit {
    let request = ListRequest {
        path: &options.path,
        filter: options.filter.as_deref(),
        sort: options.sort.as_deref(),
        json: options.json,
    };
    match report::list(&request, terminal_width()) {
        Ok(json) if options.json => print_json(&json),
        text => answer(text),
    }
}

pub fn latest(path: &str) -> Exit {
    answer(report::latest(path).map(|folder| format!("{}\n", escape_line(&folder.to_string_lossy()))))
}

pub fn show(run: &str) -> Exit {
    let read = |folder: PathBuf| Comparison::read(&[folder.display().to_string()], None);
    answer(report::find_run(run).and_then(read).map(|comparison| comparison.figures()))
}

pub fn diff(options: &DiffOptions) -> Exit {
    let paths = [options.first.clone(), options.second.clone()];
    let compared = Comparison::read(&paths, None).and_then(Comparison::with_curves);
    let every_run = Question { top: usize::MAX, ..Question::default() };
    answer(compared.and_then(|comparison| {
        let times = comparison.times(&every_run, terminal_width())?;
        Ok(format!("{}\n{times}", comparison.detail().trim_start()))
    }))
}

pub(super) fn answer(text: Result<String, ReportError>) -> Exit {
    text.map_or_else(|e| refuse(&e), |text| print(&text))
}

pub(super) fn refuse(error: &ReportError) -> Exit {
    print_error(error, error.hint());
    Exit::Refused
}
