//! A pipe, a socket, a device or a folder in the place of a run's file: one error at once, and no command hangs.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    path::{Path, PathBuf},
    process::Command,
};

use super::{super::resume::copy, disk::sandbox, ended, quiet};
use crate::process::Sandbox;

/// Commands, each with the files of `RUN` that it cannot do without.
const COMMANDS: [(&[&str], &[&str]); 14] = [
    (&["predict", "RUN", "rows.csv"], &["spec.toml", "best.safetensors"]),
    (&["evaluate", "RUN", "rows.csv"], &["spec.toml", "best.safetensors"]),
    (&["evaluate", "RUN"], &["spec.toml", "best.safetensors"]),
    (&["export", "RUN", "--onnx", "model.onnx"], &["spec.toml", "best.safetensors"]),
    (&["export", "RUN", "--mlflow", "mlflow"], READ),
    (&["report", "RUN", "-o", "page.html"], READ),
    (
        &["run", "--resume", "RUN", "trainer.max_epochs=3"],
        &["spec.toml", "environment.toml", "metrics.csv", "run.log"],
    ),
    (&["compare", "RUN"], READ),
    (&["show", "RUN"], READ),
    (&["diff", "RUN", "OTHER"], READ),
    (&["plot", "RUN"], &["metrics.csv"]),
    (&["watch", "RUN"], READ),
    (&["list", "RUN"], &[]),
    (&["tag", "RUN", "good"], &["tags"]),
];

/// What a finished run is read from.
const READ: &[&str] = &["spec.toml", "environment.toml", "summary.csv", "metrics.csv"];

/// What a file may be instead, and how that is made.
type Kind = (&'static str, fn(&Path));

const KINDS: [Kind; 4] = [
    ("a named pipe", |path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success())),
    ("a socket", |path| drop(UnixListener::bind(path).unwrap())),
    ("a device", |path| symlink("/dev/zero", path).unwrap()),
    ("a folder", |path| fs::create_dir(path).unwrap()),
];

/// Files of a run and of its checkpoints, below its folder.
fn files(run: &Path) -> Vec<PathBuf> {
    let below = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let all = below(run.to_owned()).chain(below(run.join("checkpoints")));
    let files = all.filter(|path| path.is_file()).map(|path| path.strip_prefix(run).unwrap().to_owned());
    files.chain(["tags".into(), "earlier".into()]).collect()
}

/// Runs each command on a run in which one file is of another kind.
fn each_command(sandbox: &Sandbox, run: &Path, (kind, make): Kind, only_needed: bool) {
    let [copied, made] = ["copy", "made"].map(|name| sandbox.path().join(name));
    for file in files(run) {
        for (command, needed) in COMMANDS {
            let is_needed = needed.iter().any(|needed| Path::new(needed) == file);
            if only_needed && !is_needed {
                continue;
            }
            copy(run, &copied);
            let _ = fs::remove_file(copied.join(&file)); // there may be none
            // The name of a socket must be short where it is made.
            make(&made);
            fs::rename(&made, copied.join(&file)).unwrap();
            let named = |word: &&str| match *word {
                "RUN" => copied.display().to_string(),
                "OTHER" => run.display().to_string(),
                word => word.to_owned(),
            };
            let words: Vec<String> = command.iter().map(named).collect();
            let ended = ended(quiet(sandbox.command(&words.iter().map(String::as_str).collect::<Vec<_>>())));
            let at = format!("{command:?}, {} is {kind}: {ended:?}", file.display());
            assert!(matches!(ended.code, Some(0..=2)) && !ended.stderr.contains("panicked"), "{at}");
            let said = format!(
                "cannot read `{}`: it is {kind}: expected a regular file",
                copied.join(&file).display()
            );
            // A live view shows the error, as it may pass.
            let (shows, is_refused) =
                (command[0] == "watch", ended.code != Some(0) && ended.stderr.contains(&said));
            assert!(!is_needed || is_refused || shows && ended.stdout.contains(&said), "{at}");
            fs::remove_dir_all(&copied).unwrap();
        }
    }
}

#[test]
fn no_command_hangs_on_a_pipe_in_a_run() {
    let sandbox = sandbox();
    let run = sandbox.run(&["-q"]).ended_by(0).0;
    each_command(&sandbox, &run, KINDS[0], false);
}

#[test]
fn what_is_no_regular_file_is_one_error() {
    let sandbox = sandbox();
    let run = sandbox.run(&["-q"]).ended_by(0).0;
    KINDS[1..].iter().for_each(|kind| each_command(&sandbox, &run, *kind, true));
}
