//! Splits a page into text, files that it shows, and commands with their output.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{super::process::without_build, alike};

const FENCE: &str = "```";

/// A command and the lines that it prints.
#[derive(Debug)]
struct Step {
    command: String,
    output: Vec<String>,
}

/// A piece of a page, in the order of the page.
enum Piece {
    Text(String),
    /// A block that begins with ```` ```toml NAME ````. Later commands find it under that name.
    File {
        name: String,
        text: String,
    },
    Console(Vec<Step>),
}

/// Runs a page's commands in a folder with the examples and the files that the page shows. Returns the page
/// with current output, and every difference from what it shows.
pub fn run(page: &Path) -> (String, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    copy(Path::new("experiments"), &folder.path().join("experiments"));
    let (mut fresh, mut wrong) = (String::new(), Vec::new());
    for piece in pieces(&fs::read_to_string(page).unwrap()) {
        match piece {
            Piece::Text(text) => fresh += &text,
            Piece::File { name, text } => {
                fs::write(folder.path().join(&name), &text).unwrap();
                fresh += &format!("{FENCE}toml {name}\n{text}{FENCE}\n");
            }
            Piece::Console(steps) => {
                fresh += &format!("{FENCE}console\n");
                for step in steps {
                    let printed = printed(&step.command, folder.path());
                    fresh += &format!("$ {}\n{printed}", step.command);
                    let printed: Vec<String> = printed.lines().map(str::to_owned).collect();
                    if let Some(difference) = alike::difference(&step.output, &printed) {
                        wrong.push(format!("{}: $ {}\n{difference}", page.display(), step.command));
                    }
                }
                fresh += &format!("{FENCE}\n");
            }
        }
    }
    (fresh, wrong)
}

fn pieces(page: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut lines = page.lines();
    let mut text = String::new();
    while let Some(line) = lines.next() {
        let file = line.strip_prefix("```toml ");
        if file.is_none() && line != "```console" {
            text += &format!("{line}\n");
            continue;
        }
        pieces.push(Piece::Text(std::mem::take(&mut text)));
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != FENCE).collect();
        pieces.push(match file {
            Some(name) => Piece::File {
                name: name.to_owned(),
                text: block.iter().map(|line| format!("{line}\n")).collect(),
            },
            None => Piece::Console(steps(&block)),
        });
    }
    pieces.push(Piece::Text(text));
    pieces
}

fn steps(block: &[&str]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push(Step { command: command.to_owned(), output: Vec::new() }),
            (None, Some(step)) => step.output.push((*line).to_owned()),
            (None, None) => panic!("a console block begins with a command, not with `{line}`"),
        }
    }
    steps
}

/// Standard error without lines on progress, then standard output, of a command run by a shell in that folder.
fn printed(command: &str, folder: &Path) -> String {
    let runner =
        env::var_os("DOCS_RUNNER").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_runner")), PathBuf::from);
    let runner = fs::canonicalize(runner).unwrap();
    let path = env::join_paths(
        [runner.parent().unwrap().to_owned()]
            .into_iter()
            .chain(env::split_paths(&env::var_os("PATH").unwrap())),
    )
    .unwrap();
    let output = Command::new("sh")
        .args(["-c", &command.replace("cargo run --release --", "runner")])
        .env("PATH", path)
        .env("RUNNER_CACHE_DIR", folder.join("cache"))
        .current_dir(folder)
        .output()
        .unwrap();
    let [progress, text] =
        [&output.stderr, &output.stdout].map(|bytes| without_build(&String::from_utf8_lossy(bytes)));
    let told = progress.split_inclusive('\n').filter(|line| !is_progress(line));
    let text = told.collect::<String>() + &text;
    text.replace(&folder.canonicalize().unwrap().display().to_string(), "/home/you")
}

/// Whether a line is on how far a sweep is, `22/27  1 running  best 0.5 (#1: lr 0.1)`: only one that takes seconds has some.
fn is_progress(line: &str) -> bool {
    let count = |word: &str| word.replace(',', "").parse::<u64>().is_ok();
    let done = line.split("  ").next().and_then(|done| done.split_once('/'));
    done.is_some_and(|(ended, trials)| count(ended) && count(trials.trim_end()))
}

#[test]
fn only_lines_on_progress_are_left_out() {
    for line in ["22/27  1 running  best 0.5174 (#10: lr 0.01)  1.2 s left\n", "1,000/2,000\n"] {
        assert!(is_progress(line), "{line}");
    }
    for line in ["successive halving ran 237 of 729 epochs\n", "runs/a/b\n", "1/x  2\n", "3/4 of it\n", "\n"]
    {
        assert!(!is_progress(line), "{line}");
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
