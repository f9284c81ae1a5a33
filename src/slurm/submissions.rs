//! `slurm.toml`: the jobs of a sweep, one table each, in order of submission.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::{FOLDER, SlurmError};
use crate::host::{Durability, read_text, write_atomically};

const FILE: &str = "slurm.toml";

/// A job array that was submitted for a sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// Its number.
    pub job: String,
    /// Its name: a job with the same number but another name belongs to another cluster.
    pub name: String,
    /// The cluster, if Slurm named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    pub tasks: u32,
    /// RFC 3339, UTC.
    pub submitted: String,
}

#[derive(Serialize, Deserialize)]
struct Content {
    #[serde(default)]
    job: Vec<Submission>,
}

impl Submission {
    /// Adds this job to those of a sweep.
    pub fn append(&self, sweep: &Path) -> Result<(), SlurmError> {
        let path = sweep.join(FILE);
        // If two processes submit at once, the second waits for the first; not on a file system without
        // locks.
        let folder = File::open(sweep.join(FOLDER));
        let _lock = folder.and_then(|folder| folder.lock().map(|()| folder));
        let mut job = read_submissions(sweep)?;
        job.push(self.clone());
        let written = toml::to_string(&Content { job }).map_err(io::Error::other).and_then(|text| {
            write_atomically(&path, Durability::Power, |file| file.write_all(text.as_bytes()))
        });
        written.map_err(|source| SlurmError::Write { path, source })
    }
}

/// The jobs of a sweep; none if nothing was submitted.
pub fn read_submissions(sweep: &Path) -> Result<Vec<Submission>, SlurmError> {
    let path = sweep.join(FILE);
    let malformed = |message: String| SlurmError::Malformed { path: path.clone(), message };
    match read_text(&path) {
        Ok(text) => toml::from_str::<Content>(&text)
            .map(|file| file.job)
            .map_err(|e| malformed(e.message().to_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(malformed(crate::host::reason(&e))),
    }
}
