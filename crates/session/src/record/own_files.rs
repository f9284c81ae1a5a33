//! Which files the program itself writes into the folders of runs and sweeps. Whatever else is there, someone put there.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    CLAIMS_FILE, LOCK_FILE, RunDir, SWEEP_FILE,
    run_dir::{DEATHS, WRITTEN_ANEW},
};

/// Files of a run, beside those that each of its parts writes anew.
const OF_RUN: [&str; 13] = [
    "spec.toml",
    "environment.toml",
    "metrics.csv",
    "rows.csv",
    "run.log",
    LOCK_FILE,
    DEATHS,
    "matmul.csv",
    "norms.csv",
    "transfer.csv",
    "tensors.csv",
    "tags",
    "report.html",
];

/// Files of a sweep, beside its trials' folders.
const OF_SWEEP: [&str; 8] =
    [SWEEP_FILE, "sweep.csv", "rungs.csv", "points.csv", CLAIMS_FILE, "slurm.toml", "tags", "report.html"];

/// What a folder is, and so what it may hold.
#[derive(Clone, Copy)]
enum Kind {
    Run,
    Sweep,
    Checkpoints,
    /// Numbered folders of a run's earlier parts.
    Earlier,
    /// What the tasks of a cluster print.
    Slurm,
}

/// The first file or folder in that of a run or sweep that the program did not make. Links are not followed, and do not count:
/// what they lead to stays where it is.
pub fn not_its_own(folder: &Path) -> Option<PathBuf> {
    let kind = if folder.join(SWEEP_FILE).is_file() { Kind::Sweep } else { Kind::Run };
    first_other(folder, kind)
}

/// It goes no deeper than these folders do: a folder of another name ends the search.
fn first_other(folder: &Path, kind: Kind) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let Ok(mut entries) = entries else { return Some(folder.to_owned()) };
    entries.sort_by_key(fs::DirEntry::file_name);
    entries.into_iter().find_map(|entry| {
        let (path, name) = (entry.path(), entry.file_name());
        match (entry.file_type(), name.to_str()) {
            (Ok(own), _) if own.is_symlink() => None,
            (Ok(own), Some(name)) if own.is_dir() => match kind.inner(name, &path) {
                Some(kind) => first_other(&path, kind),
                None => Some(path),
            },
            (Ok(_), Some(name)) if kind.has(name) || is_saved(kind, folder, name) => None,
            _ => Some(path),
        }
    })
}

/// Whether a file is one that a tour of tensors may have saved, under a name of its user's.
fn is_saved(kind: Kind, folder: &Path, name: &str) -> bool {
    let is_of_tensors = matches!(kind, Kind::Run) && folder.join("tensors.csv").exists();
    is_of_tensors && name.ends_with(".safetensors") && !name.starts_with('.')
}

impl Kind {
    /// What a folder in one of this kind is; `None` if it is none of the program's.
    fn inner(self, name: &str, path: &Path) -> Option<Self> {
        match self {
            Self::Run if name == "checkpoints" => Some(Self::Checkpoints),
            Self::Run if name == "earlier" => Some(Self::Earlier),
            Self::Earlier if name.parse::<u64>().is_ok() => Some(Self::Run),
            Self::Sweep if name == "slurm" => Some(Self::Slurm),
            Self::Sweep => RunDir::existing(path.to_owned()).trial_number().map(|_| Self::Run),
            _ => None,
        }
    }

    /// Whether a file of this name is the program's.
    fn has(self, name: &str) -> bool {
        // What was not finished; what a network's file system keeps for a process that has it open.
        let is_remnant = name.starts_with('.') && name.ends_with(".tmp") || name.starts_with(".nfs");
        is_remnant
            || match self {
                Self::Run => {
                    OF_RUN.contains(&name)
                        || WRITTEN_ANEW.contains(&name)
                        || name.starts_with("events.out.tfevents.")
                }
                Self::Sweep => OF_SWEEP.contains(&name),
                Self::Checkpoints => {
                    name.starts_with("step-")
                        && [".toml", ".safetensors"].iter().any(|end| name.ends_with(end))
                }
                Self::Earlier => false,
                Self::Slurm => true,
            }
    }
}
