//! `runner report PATH ...`: writes runs and sweeps as one HTML page.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::{args::ReportOptions, png, runs::refuse};
use crate::{
    host::{Durability, is_replaceable, reason, write_atomically},
    predict::{Models, Predictor, WhichWeights, of_model},
    report::{self, Found, HEAD, OfModel, Page, PageRequest, SVG, find_one, run_status},
    run::{Exit, print, print_stderr, warn},
    units,
};

/// The page's file name if none is given.
const NAME: &str = "report.html";

/// Runs the command.
pub fn report(options: &ReportOptions) -> Result<Exit, Exit> {
    let ReportOptions { paths, metric, filter, .. } = options;
    let program = options.png.as_ref().map(|_| png::find()).transpose().map_err(|names| {
        let message = format!("`--png` needs a program that draws SVG files, and none of {names} is there");
        let hint = "`apt install librsvg2-bin` or `cargo install resvg`; `--svg DIR` needs none";
        Exit::refused(message, Some(hint))
    })?;
    let model = model(paths);
    let request = PageRequest {
        paths,
        metric: metric.as_deref(),
        filter: filter.as_deref(),
        tag: None,
        model: model.as_ref(),
    };
    let page = report::page(&request).map_err(refuse)?;
    page.warnings.iter().for_each(warn);
    let path = options.out.clone().unwrap_or_else(|| default_path(paths));
    let size = units::bytes(page.html.len() as u64);
    let files = files_of(page, path.clone(), options, program)?;
    for (path, _, head) in &files {
        if !is_replaceable(path, head).map_err(|e| unwritable(path, &e))? {
            let message =
                format!("`{}` was not made by `runner report`, and is not replaced", path.display());
            let hint = "`-o FILE`, `--svg DIR` and `--png DIR` name other places";
            return Err(Exit::refused(message, Some(hint)));
        }
    }
    write(options, &files)?;
    let drawings = match files.len() {
        1 => String::new(),
        count => format!(", {}", units::counted(count as u64 - 1, "drawing")),
    };
    if !options.quiet {
        print_stderr(&format!("a page of {size}{drawings}\n"));
    }
    Ok(print(&format!("{}\n", path.display())))
}

/// A file's path and content, and the beginning that an existing file must have to be replaced.
type File = (PathBuf, Vec<u8>, &'static [u8]);

/// The page and its drawings as files.
fn files_of(
    page: Page,
    path: PathBuf,
    options: &ReportOptions,
    program: Option<usize>,
) -> Result<Vec<File>, Exit> {
    let mut files: Vec<File> = vec![(path, page.html.into(), HEAD.as_bytes())];
    for (name, svg) in page.drawings {
        if let (Some(folder), Some(program)) = (&options.png, program) {
            let path = folder.join(format!("{name}.png"));
            let bytes = png::convert(program, &svg).map_err(|e| unwritable(&path, &e))?;
            files.push((path, bytes, png::PNG));
        }
        if let Some(folder) = &options.svg {
            files.push((folder.join(format!("{name}.svg")), svg.into(), SVG.as_bytes()));
        }
    }
    Ok(files)
}

fn write(options: &ReportOptions, files: &[File]) -> Result<(), Exit> {
    for folder in options.svg.iter().chain(&options.png) {
        fs::create_dir_all(folder).map_err(|e| unwritable(folder, &e))?;
    }
    for (path, bytes, _) in files {
        // If the path is a link, it is kept and its target is replaced.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        write_atomically(&target, Durability::Process, |file| file.write_all(bytes))
            .map_err(|e| unwritable(path, &e))?;
    }
    Ok(())
}

/// What the model of a single finished run does; `None` if there is no such run or no model.
pub(super) fn model(paths: &[String]) -> Option<Result<OfModel, String>> {
    let [path] = paths else { return None };
    let Ok(Found::Run(folder)) = find_one(path) else { return None };
    let has = |file: &str| folder.join(file).is_file();
    let has_ended = !["running", "unfinished"].contains(&run_status(&folder).as_str());
    if !has_ended || !(has("best.safetensors") || has("model.safetensors")) {
        return None;
    }
    let predictor = Predictor::open(path, WhichWeights::Best, Models::One);
    Some(predictor.and_then(|predictor| of_model(&predictor)).map_err(|e| e.to_string()))
}

fn unwritable(path: &Path, error: &io::Error) -> Exit {
    Exit::failed(format!("cannot write `{}`: {}", path.display(), reason(error)), None)
}

/// The path in the folder of a single run or sweep, otherwise in the current folder.
fn default_path(paths: &[String]) -> PathBuf {
    match paths {
        [path] => match find_one(path) {
            Ok(Found::Run(folder) | Found::Sweep(folder)) => folder.join(NAME),
            Err(_) => PathBuf::from(NAME),
        },
        _ => PathBuf::from(NAME),
    }
}
