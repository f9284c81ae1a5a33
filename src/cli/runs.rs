//! `runner list`, `latest`, `show`, `diff`: find runs and show them.

use std::path::Path;

use super::{
    args::{DiffOptions, ListOptions},
    terminal::{fit, terminal_width},
};
use crate::{
    host::escape_line,
    record::{command_line, output_width},
    report::{self, BestSetting, Comparison, ListRequest, Question, ReportError},
    run::{Exit, print, print_json},
};

pub fn list(options: &ListOptions) -> Result<Exit, Exit> {
    let request = ListRequest {
        path: &options.path,
        filter: options.filter.as_deref(),
        sort: options.sort.as_deref(),
        json: options.json,
    };
    // What reads a pipe has no width.
    let width = output_width().filter(|_| !options.verbose).map_or(usize::MAX, usize::from);
    match report::list(&request, width) {
        Ok(json) if options.json => Ok(print_json(&json)),
        text if options.verbose => answer(text),
        text => answer(text.map(|text| fit(&text))),
    }
}

pub fn latest(path: &str) -> Result<Exit, Exit> {
    answer(report::latest(path).map(|folder| format!("{}\n", escape_line(&folder.to_string_lossy()))))
}

pub fn show(run: &str, json: bool) -> Result<Exit, Exit> {
    if json {
        return report::show_json(run).map(|json| print_json(&json)).map_err(refuse);
    }
    answer(report::show(run, terminal_width()).map(|text| fit(&text)))
}

pub fn diff(options: &DiffOptions) -> Result<Exit, Exit> {
    let find = |path: &str| Ok(report::find_run(path)?.display().to_string());
    let paths = find(&options.first).and_then(|first| Ok([first, find(&options.second)?]));
    let read = |paths: [String; 2]| Comparison::read(&paths, None);
    let compared = paths.and_then(read).and_then(Comparison::with_curves);
    let every_run = Question { top: usize::MAX, ..Question::default() };
    answer(compared.and_then(|comparison| {
        if let Some(reason) = comparison.unread().next() {
            return Err(ReportError::Damaged(reason.to_owned()));
        }
        let times = comparison.times(&every_run, terminal_width())?;
        Ok(format!("{}\n{times}", comparison.detail().trim_start()))
    }))
}

fn answer(text: Result<String, ReportError>) -> Result<Exit, Exit> {
    text.map(|text| print(&text)).map_err(refuse)
}

pub(super) fn refuse(error: ReportError) -> Exit {
    match &error {
        ReportError::Several { path, .. } => {
            Exit::refused(&error, one_of_several(path).as_deref().or(error.hint()))
        }
        _ => Exit::refused(&error, error.hint()),
    }
}

/// A hint with the command of the newest of several runs, and that of the best; `None` if the newest cannot be read.
fn one_of_several(path: &str) -> Option<String> {
    let command = |run: &Path| {
        let run = run.display().to_string();
        let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
        let words = words.map(|word| if word == path { run.clone() } else { word });
        command_line(["runner".to_owned()].into_iter().chain(words))
    };
    let newest = report::latest(path).ok()?;
    let of_newest = command(&newest);
    let takes_sweeps = std::env::args_os().any(|word| word == "--ensemble" || word == "--out-of-fold");
    let of_best = |best: &BestSetting| match best.folder.parent() {
        Some(sweep) if takes_sweeps => sweep.to_owned(),
        _ => best.folder.clone(),
    };
    Some(match BestSetting::of_path(path) {
        Some(best) if of_best(&best) == newest => format!("the newest is the best: `{of_newest}`"),
        Some(best) => {
            format!("the newest: `{of_newest}`; the best ({}): `{}`", best.words, command(&of_best(&best)))
        }
        None => {
            let why = BestSetting::why_none(path).map(|why| format!("; none is the best: {why}"));
            format!("the newest: `{of_newest}`{}", why.unwrap_or_default())
        }
    })
}
