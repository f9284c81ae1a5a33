//! The CUDA backend end to end, without a GPU: the program runs on the stand-in libraries of `tests/cuda_sim`.

mod cache;
mod compiled;
mod devices;
mod early_sums;
mod faults;
mod flow;
mod lab;
mod machine;
mod moved;
mod parity;
mod peers;
mod processes;
mod products;
mod rates;
mod row_weights;
mod timeline;
mod trials;
pub mod waits;
mod waits_apart;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    kernels::driver::folder,
    process::{Ended, Ran, Sandbox},
};

/// Linear regression on 500 rows, with a smaller last batch and last validation chunk.
pub const LINREG: &str = r#"
name = "linreg"
[devices]
num_gpus = 1
[data]
batch_size = 32
[data.synthetic_regression]
weights = [2.0, -3.4]
bias = 4.2
train_rows = 500
validation_rows = 300
[model]
layers = [ { linear = { out_features = 1 } } ]
[optimizer.sgd]
lr = 0.03
[trainer]
max_epochs = 3
"#;

/// The simulated NVIDIA libraries, and an empty cache of compiled kernels.
pub struct Sim {
    libraries: PathBuf,
    cache: tempfile::TempDir,
    /// Path of the log of driver calls.
    log: PathBuf,
    /// Path of the names of calls that take something or return it.
    counts: PathBuf,
}

impl Sim {
    /// `None` without a C++ compiler to build them.
    pub fn get() -> Option<Self> {
        folder().map(|libraries| Self::at(libraries))
    }

    /// Only these libraries.
    pub fn only(names: &[&str]) -> Option<(Self, tempfile::TempDir)> {
        let all = folder()?;
        let some = tempfile::tempdir().unwrap();
        names.iter().for_each(|name| symlink(all.join(name), some.path().join(name)).unwrap());
        Some((Self::at(some.path()), some))
    }

    /// The libraries in this folder.
    pub fn at(libraries: &Path) -> Self {
        let cache = tempfile::tempdir().unwrap();
        let [log, counts] = ["calls", "counts"].map(|name| cache.path().join(name));
        Self { libraries: libraries.to_owned(), cache, log, counts }
    }

    /// The cache folder for compiled kernels.
    pub fn kernels(&self) -> PathBuf {
        self.cache.path().join("kernels")
    }

    /// Lets a command find only these libraries, and sets additional variables.
    pub fn on<'a>(&self, command: &'a mut Command, variables: &[(&str, &str)]) -> &'a mut Command {
        for variable in ["VIRTUAL_ENV", "CONDA_PREFIX", "RUNNER_CUDA_PATH", "CUDA_VISIBLE_DEVICES"] {
            command.env_remove(variable);
        }
        command
            .env_remove("RUNNER_VIRTUAL_GPUS")
            .env("LD_LIBRARY_PATH", &self.libraries)
            .env("RUNNER_CACHE_DIR", self.cache.path())
            .env("RUNNER_SIM_LOG", &self.log)
            .env("RUNNER_SIM_COUNTS", &self.counts)
            .envs(variables.iter().copied())
    }

    /// Runs a sandbox's spec on the simulated GPU.
    pub fn run(&self, place: &Sandbox, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
        let (mut command, runs) = place.prepared(arguments);
        Ran { ended: Ended::from_output(self.on(&mut command, variables).output().unwrap()), runs }
    }

    /// Runs `runner ARGUMENTS` on the simulated GPU.
    pub fn runner(&self, place: &Sandbox, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
        Ended::from_output(self.on(&mut place.command(arguments), variables).output().unwrap())
    }

    /// The file with the calls so far.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The calls so far, without the leading device number.
    pub fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().map(|line| line.split_once(' ').map_or(line, |(_, call)| call).to_owned()).collect()
    }

    /// How often each call took something from the driver or returned it, since the last time that this was asked.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        let text = fs::read_to_string(&self.counts).unwrap_or_default();
        text.lines().for_each(|name| *counts.entry(name.to_owned()).or_default() += 1);
        let _ = fs::remove_file(&self.counts);
        counts
    }
}

/// Arguments and one more.
pub fn plus<'a>(arguments: &[&'a str], more: &'a str) -> Vec<&'a str> {
    let mut all = arguments.to_vec();
    all.push(more);
    all
}

/// Whether this machine has a real NVIDIA driver.
pub fn has_real_driver() -> bool {
    Path::new("/proc/driver/nvidia/version").exists()
}
