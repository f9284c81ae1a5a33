//! `runner tag` and `runner clean`: which runs stay.

use std::{fs, path::Path};

use super::{
    args::CleanOptions,
    run::terminal_width,
    runs::{answer, refuse},
};
use crate::{
    host::reason,
    record::{RunDir, now},
    report::{self, CleanRequest, Cleaning, Found, ReportError},
    run::{Exit, print, print_error},
};

/// Adds words to a run's tags, or takes them away.
pub fn tag(run: &str, words: &[String]) -> Exit {
    let folder = match report::find_one(run) {
        Ok(Found::Run(folder) | Found::Sweep(folder)) => folder,
        Err(e) => return refuse(&e),
    };
    let mut tags = report::tags(&folder);
    for word in words {
        let name = word.strip_prefix('~').unwrap_or(word);
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || "~<>=!'\"".contains(c)) {
            print_error(format!("`{word}` is no tag"), Some("a word without spaces, quotes and < > = ! ~"));
            return Exit::Refused;
        }
        tags.retain(|tag| tag != name);
        if name == word {
            tags.push(word.clone());
        }
    }
    let lines: String = tags.iter().map(|tag| format!("{tag}\n")).collect();
    match RunDir::existing(folder.clone()).write(report::TAGS, &lines) {
        Ok(()) => print(&format!("{}: {}\n", folder.display(), tags.join(" "))),
        Err(e) => {
            print_error(&e, e.hint());
            Exit::Failed
        }
    }
}

/// Shows the runs that may go, and with `--yes` removes them.
pub fn clean(options: &CleanOptions) -> Exit {
    let resolved = |path: &Path| {
        let missing = |_| ReportError::NotFound { path: path.display().to_string(), near: None };
        fs::canonicalize(path).map_err(missing)
    };
    let runs_dir = &options.runs_dir;
    let paths =
        resolved(runs_dir).and_then(|all| Ok((all, resolved(options.path.as_ref().unwrap_or(runs_dir))?)));
    let (all, path) = match paths {
        Ok(paths) => paths,
        Err(e) => return refuse(&e),
    };
    if !path.starts_with(&all) {
        let message = format!("`{}` is outside the runs folder `{}`", path.display(), runs_dir.display());
        print_error(message, Some("name that folder with `--runs-dir DIR`"));
        return Exit::Refused;
    }
    let (keep_best, older_than, now) = (options.keep_best, options.older_than, now());
    let request = CleanRequest { runs_dir: &all, path: &path, keep_best, older_than, now };
    let is_live = |folder: &Path| RunDir::existing(folder.to_owned()).is_live();
    let cleaning = match Cleaning::new(&request, is_live) {
        Ok(cleaning) => cleaning,
        Err(e) => return refuse(&e),
    };
    let is_empty = cleaning.folders().next().is_none();
    let last = match options.yes {
        _ if is_empty => "",
        true => "removed\n",
        false => "nothing was removed: `--yes` removes them for good\n",
    };
    if options.yes
        && let Err(exit) = cleaning.folders().try_for_each(remove)
    {
        return exit;
    }
    answer(Ok(cleaning.text(terminal_width()) + last))
}

fn remove(folder: &Path) -> Result<(), Exit> {
    if let Err(e) = fs::remove_dir_all(folder) {
        print_error(format!("cannot remove `{}`: {}", folder.display(), reason(&e)), None);
        return Err(Exit::Failed);
    }
    // The folder of the name stays while it holds other runs.
    let _ = folder.parent().map(fs::remove_dir);
    Ok(())
}
