//! `slurm.toml`: the jobs of a sweep, a table each, in the order in which they were submitted.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::SlurmError;

const FILE: &str = "slurm.toml";

/// A job array that was submitted for a sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// Its number.
    pub job: String,
    /// The cluster, where Slurm named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    pub tasks: u32,
    /// RFC 3339, UTC.
    pub submitted: String,
}

#[derive(Serialize, Deserialize)]
struct File {
    #[serde(default)]
    job: Vec<Submission>,
}

impl Submission {
    /// Adds it to those of a sweep.
    pub fn append(&self, sweep: &Path) -> Result<(), SlurmError> {
        let path = sweep.join(FILE);
        let written = toml::to_string(&File { job: vec![self.clone()] }).map_err(io::Error::other);
        let written = written.and_then(|text| {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(&path)?
                .write_all(format!("{text}\n").as_bytes())
        });
        written.map_err(|source| SlurmError::Write { path, source })
    }
}

/// The jobs of a sweep; none where none was submitted.
pub fn read_submissions(sweep: &Path) -> Result<Vec<Submission>, SlurmError> {
    let path = sweep.join(FILE);
    let malformed = |message: String| SlurmError::Malformed { path: path.clone(), message };
    match fs::read_to_string(&path) {
        Ok(text) => {
            toml::from_str::<File>(&text).map(|file| file.job).map_err(|e| malformed(e.message().to_owned()))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(malformed(crate::host::reason(&e))),
    }
}
