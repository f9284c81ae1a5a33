//! README.md and docs/: every command on a page prints what the page shows, every link leads somewhere, every key exists.
//!
//! `DOCS_REFRESH=1 cargo test --test it docs` writes outputs and the reference anew;
//! `DOCS_RUNNER=target/release/runner` beside it takes them from that build.

mod alike;
mod keys;
mod links;
mod pages;
mod reference;

use std::{env, fs, path::PathBuf};

/// README.md stays short enough to be read to the end.
const MOST_README_LINES: usize = 200;

/// README.md, the other pages in the root folder, and all of docs/.
fn all_pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = [".", "docs"]
        .into_iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.sort();
    pages
}

fn is_refresh() -> bool {
    env::var_os("DOCS_REFRESH").is_some()
}

/// One test per page, so that pages run in parallel. [`every_page_is_run`] checks that the list is complete.
macro_rules! pages {
    ($($name:ident: $path:literal),+ $(,)?) => {
        const RUN: &[&str] = &[$($path),+];
        $(#[test]
        fn $name() {
            let (fresh, wrong) = pages::run($path.as_ref());
            if is_refresh() {
                fs::write($path, fresh).unwrap();
            } else {
                assert!(wrong.is_empty(), "(DOCS_REFRESH=1 renews the page)\n{}", wrong.join("\n"));
            }
        })+
    };
}

pages! {
    readme: "README.md",
    checkpoints: "docs/checkpoints.md",
    cluster: "docs/cluster.md",
    data: "docs/data.md",
    devices: "docs/devices.md",
    exercises: "docs/exercises.md",
    forecasts: "docs/forecasts.md",
    logging: "docs/logging.md",
    measurement: "docs/measurement.md",
    notebooks: "docs/notebooks.md",
    predict: "docs/predict.md",
    report: "docs/report.md",
    run_folder: "docs/run-folder.md",
    sweeps: "docs/sweeps.md",
    training: "docs/training.md",
}

#[test]
fn every_page_is_run() {
    let with_commands: Vec<String> = all_pages()
        .into_iter()
        .filter(|page| fs::read_to_string(page).unwrap().contains("```console\n"))
        .map(|page| page.strip_prefix(".").unwrap_or(&page).display().to_string())
        .collect();
    assert_eq!(with_commands, RUN);
}

#[test]
fn the_readme_is_short() {
    let lines = fs::read_to_string("README.md").unwrap().lines().count();
    assert!(
        lines <= MOST_README_LINES,
        "README.md has {lines} lines, {MOST_README_LINES} at most: move some to docs/"
    );
}

#[test]
fn the_reference_is_that_of_the_schema() {
    let fresh = reference::page(&runner::spec::schema());
    if is_refresh() {
        fs::write("docs/spec.md", fresh).unwrap();
    } else {
        let shown = fs::read_to_string("docs/spec.md").unwrap();
        assert!(shown == fresh, "docs/spec.md is not that of the schema: DOCS_REFRESH=1 writes it anew");
    }
}

/// Odd words, outside of code and of the program's output.
#[test]
fn pages_are_in_plain_english() {
    const OUT: [&str; 9] = [
        "so many",
        "is told",
        "are told",
        "\nOf ",
        ". Of ",
        "instrument ",
        "a meeting",
        "for ever ",
        "floor of",
    ];
    let mut found = Vec::new();
    for page in all_pages().into_iter().filter(|page| !page.ends_with("CHANGELOG.md")) {
        let text = fs::read_to_string(&page).unwrap();
        // Every second part between fences is code.
        let prose: String = text.split("\n```").step_by(2).collect();
        found.extend(OUT.iter().filter(|words| prose.contains(**words)).map(|words| (page.clone(), *words)));
    }
    assert!(found.is_empty(), "{found:?}");
}
