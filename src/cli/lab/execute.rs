//! One run of the lab from its folder to its last file.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use super::{
    super::execute::{ExecuteError, Process, libraries, resolved},
    say_plain,
};
use crate::{
    event::Level,
    lab::{self, Finding, LabOutcome},
    plan::lab::{LabTrial, Work},
    record::{
        EnvironmentFacts, EnvironmentFile, Findings, LabFacts, LabFiles, LabTable, RecordError, RunDir,
        step_in_words,
    },
    spec::{Lab, Policy, lab::Norm},
    tensor::Devices,
    train::Closed,
};

/// How much is said while it runs.
pub struct Voice {
    /// Warnings only.
    pub quiet: bool,
    /// Notices, too.
    pub verbose: bool,
    /// What stands before each line.
    pub prefix: String,
    /// Warnings that were given: each trial of a sweep would give the same.
    pub warned: Mutex<BTreeSet<String>>,
}

impl Voice {
    /// Takes note of a warning that was given elsewhere.
    pub fn note(&self, warning: &str) {
        self.is_new(warning);
    }

    /// Whether a warning is given for the first time.
    fn is_new(&self, warning: &str) -> bool {
        self.warned.lock().unwrap_or_else(PoisonError::into_inner).insert(warning.to_owned())
    }
}

/// Takes findings: into files, and to the user.
struct Taker<'a> {
    files: LabFiles,
    table: LabTable,
    voice: &'a Voice,
    /// The first that could not be written.
    fault: Option<RecordError>,
}

impl Taker<'_> {
    fn take(&mut self, finding: &Finding) -> Result<(), Closed> {
        if let Err(e) = self.files.take(finding) {
            self.fault.get_or_insert(e);
            return Err(Closed);
        }
        self.table.take(finding);
        match finding {
            Finding::Notice(Level::Warning, text) if self.voice.is_new(text) => {
                say_plain(self.voice, &format!("warning: {text}"));
            }
            Finding::Notice(Level::Info, text) if self.voice.verbose => say_plain(self.voice, text),
            Finding::Step(row) if !self.voice.quiet => {
                let _ = super::print(&step_in_words(row)); // a reader that hung up changes nothing about the run
            }
            _ => {}
        }
        Ok(())
    }
}

/// Runs a trial in `folder`; gives its end and what it found as a table.
pub fn execute(
    process: &Process<'_>,
    trial: &LabTrial,
    devices: &Devices,
    folder: &RunDir,
    voice: &Voice,
) -> Result<(LabOutcome, LabTable), ExecuteError> {
    let spec = trial.spec.to_toml();
    folder.write("spec.toml", &resolved(process, folder, &trial.devices, Vec::new(), &spec))?;
    let names = trial.devices.used_names();
    let facts = EnvironmentFacts {
        started: process.started,
        command: process.command.clone(),
        devices_requested: trial.devices.requested.clone(),
        devices_used: names.clone(),
        virtual_devices: trial.devices.any_virtual(),
        virtual_gpus: process.virtual_gpus,
        threads: trial.threads,
        available_threads: process.available_threads(),
        instruction_set: trial.instruction_set.clone(),
        precision: "f32".to_owned(),
        gpus: trial.gpus.clone(),
        timed_by: "operations".to_owned(),
        libraries: libraries(&trial.devices.used, [false; 2]),
        sums: None,
    };
    let environment = EnvironmentFile::create(&folder.file("environment.toml"), facts, process.git.clone())?;
    let facts = LabFacts {
        name: trial.spec.name.clone(),
        kind: trial.spec.kind,
        devices_requested: trial.devices.requested.clone(),
        devices_used: names,
        virtual_devices: trial.devices.any_virtual(),
        logs_norms: logs_norms(trial),
    };
    let files = LabFiles::create(folder, facts, process.begun)?;
    if !voice.quiet {
        say_plain(voice, &super::check::headline(trial));
    }
    let taker = Mutex::new(Taker { files, table: LabTable::default(), voice, fault: None });
    let tell = |finding: Finding| taker.lock().unwrap_or_else(PoisonError::into_inner).take(&finding);
    let outcome = lab::run(trial, devices, folder.path(), process.stop, &tell);
    let Taker { files, table, fault, .. } = taker.into_inner().unwrap_or_else(PoisonError::into_inner);
    let finished = files.finish(&outcome);
    let environment = environment.finish(process.load.load(), Findings::default());
    // What went wrong first is what is told.
    fault.map_or(Ok(()), Err)?;
    finished?;
    environment?;
    Ok((outcome, table))
}

fn logs_norms(trial: &LabTrial) -> bool {
    let policy = trial.spec.logging.as_ref().map(|logging| logging.policy);
    match (&trial.spec.lab, &trial.work) {
        (Lab::Matmul(matmul), Work::Matmul { .. }) => {
            matmul.norm != Norm::None && policy.is_some_and(|policy| policy != Policy::Off)
        }
        _ => false,
    }
}
