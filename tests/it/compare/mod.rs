//! Comparisons of run folders: full texts, exports that read back, and folders of killed processes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use runner::{
    record::summary_columns,
    report::{Comparison, Question},
};

use crate::process::Sandbox;

mod answer;
mod architecture;
mod axes;
mod best_epoch;
mod exports;
mod faults;
mod foreign;
mod gate;
mod groups;
mod kinds;
mod lab;
mod listing;
mod machine;
mod metrics;
mod options;
mod redrawn;
mod row_weights;
mod samples;
mod settings;
mod tables;
mod tasks;
mod two_sweeps;
mod verdict;

/// A folder in which a spec ran with each of these overrides.
fn place_of(spec: &str, runs: &[&[&str]]) -> Sandbox {
    let place = Sandbox::new(spec);
    runs.iter().for_each(|words| add(&place, words));
    place
}

fn add(place: &Sandbox, words: &[&str]) {
    let ended = place.runner(&[&["spec.toml", "-q"], words].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// A folder of runs; assertions show its path as `RUNS`.
struct Runs(tempfile::TempDir);

impl Runs {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, inner: &str) -> PathBuf {
        self.0.path().join(inner)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if path.ends_with("sweep.csv") {
            let name = path.ancestors().nth(2).and_then(Path::file_name).unwrap().to_string_lossy();
            fs::write(path.with_file_name("sweep.toml"), format!("name = \"{name}\"\n")).unwrap();
        }
        fs::write(path, text).unwrap();
    }

    /// Argument for `compare`.
    fn named(&self, inner: &str) -> String {
        self.path(inner).display().to_string()
    }

    fn masked(&self, text: &str) -> String {
        text.replace(&self.0.path().display().to_string(), "RUNS")
    }

    fn read(&self, inner: &[&str]) -> Comparison {
        let paths: Vec<String> = inner.iter().map(|path| self.named(path)).collect();
        Comparison::read(&paths, None).unwrap()
    }

    /// What `--times --detail` shows.
    fn table(&self, inner: &[&str], width: u16) -> String {
        let comparison = self.read(inner).with_curves().unwrap();
        self.masked(&(comparison.times(&Question::default(), width).unwrap() + &comparison.detail()))
    }

    fn answer(&self, inner: &[&str], width: u16) -> String {
        self.masked(&self.read(inner).answer(&Question::default(), width).unwrap())
    }

    fn error(&self, inner: &str) -> String {
        let read = Comparison::read(&[self.named(inner)], None).and_then(Comparison::with_curves);
        self.masked(&read.unwrap_err().to_string())
    }

    /// A finished run.
    fn run(&self, path: &str, facts: &Facts) {
        self.write(&format!("{path}/spec.toml"), &facts.spec());
        self.write(&format!("{path}/environment.toml"), &facts.environment());
        self.write(&format!("{path}/metrics.csv"), &facts.metrics());
        self.write(&format!("{path}/summary.csv"), &facts.summary(path.rsplit('/').next().unwrap()));
    }
}

/// The facts of a run that tests vary.
#[derive(Clone, Copy)]
struct Facts {
    num_gpus: u32,
    epochs: u32,
    losses: [f32; 3],
    devices: &'static str,
    steps_per_s: &'static str,
    cpu: &'static str,
    commit: &'static str,
    status: &'static str,
    policy: &'static str,
    /// Used and available threads.
    threads: [u32; 2],
    digest: &'static str,
}

const FACTS: Facts = Facts {
    num_gpus: 0,
    epochs: 3,
    losses: [4.0, 2.0, 1.0],
    devices: "cpu",
    steps_per_s: "1000.0",
    cpu: "A",
    commit: "c0ffee",
    status: "finished",
    policy: "buffered",
    threads: [2, 2],
    digest: "d1",
};

impl Facts {
    fn spec(&self) -> String {
        format!(
            "# runner linreg.toml\nname = \"linreg\"\nseed = 0\n[devices]\nnum_gpus = {}\n[trainer]\nmax_epochs = {}\n\
             [logging]\npolicy = \"{}\"\n[model]\nlayers = [{{ linear = {{ out_features = 1 }} }}, \"relu\"]\n",
            self.num_gpus, self.epochs, self.policy
        )
    }

    fn is_virtual(&self) -> bool {
        self.devices.starts_with("virtual")
    }

    fn environment(&self) -> String {
        format!(
            "started = \"{}\"\ncommand = \"runner\"\n[devices]\nrequested = \"{}\"\nused = [\"{}\"]\nvirtual = {}\n\
             [host]\nthreads = {}\navailable_threads = {}\n[cpu]\nmodel = \"{}\"\n[git]\ncommit = \"{}\"\n",
            self.steps_per_s,
            self.num_gpus,
            self.devices.replace(';', "\", \""),
            self.is_virtual(),
            self.threads[0],
            self.threads[1],
            self.cpu,
            self.commit
        )
    }

    fn metrics(&self) -> String {
        let mut text = "step,epoch,split,rows,loss,elapsed_s\n".to_owned();
        for (place, loss) in self.losses.iter().enumerate() {
            let step = place + 1;
            text += &format!(
                "{step},{step},train,32,{loss},0.{step}\n{step},{step},validation,100,0.5,0.{step}\n"
            );
        }
        text
    }

    fn summary(&self, run: &str) -> String {
        let cells = [
            run,
            "linreg",
            self.status,
            &self.num_gpus.to_string(),
            self.devices,
            if self.is_virtual() { "true" } else { "false" },
            "strong",
            "f32",
            "serial",
            "3",
            "3",
            &self.losses[2].to_string(),
            "0.5",
            "",
            "0.05",
            "0.003",
            self.steps_per_s,
            &(32.0 * self.steps_per_s.parse::<f64>().unwrap()).to_string(),
            "0.00001",
            "0.003",
            "0",
            "4096",
            "12",
            "8192",
            "1048576",
            "0.5",
            "1",
            "1",
            self.digest,
            &self.losses[2].to_string(),
            "16384",
            "",
            "",
        ];
        format!("{}\n{}\n", summary_columns().join(","), cells.join(","))
    }
}

/// A sweep over `num_gpus` that was killed in its fourth trial.
fn sweep(runs: &Runs) {
    let two = Facts { num_gpus: 2, devices: "gpu:0;gpu:1", steps_per_s: "2500.0", ..FACTS };
    runs.run("linreg/S/000-devices.num_gpus=0", &FACTS);
    runs.run("linreg/S/002-devices.num_gpus=2", &Facts { losses: [4.0, 2.0001, 1.0], ..two });
    runs.write("linreg/S/003-devices.num_gpus=3/spec.toml", &Facts { num_gpus: 3, ..FACTS }.spec());
    runs.write(
        "linreg/S/003-devices.num_gpus=3/metrics.csv",
        "step,epoch,split,rows,loss,elapsed_s\n1,1,train,32,4.0,0.1\n2,2,tr",
    );
    runs.write("linreg/S/003-devices.num_gpus=3/summary.csv", &format!("{}\n", summary_columns().join(",")));
    let columns: Vec<&str> =
        summary_columns().into_iter().filter(|column| !["status", "reason"].contains(column)).collect();
    let empty = ",".repeat(columns.len());
    let figures = |facts: &Facts, run: &str| {
        let summary = facts.summary(run);
        let cells: Vec<&str> = summary.lines().nth(1).unwrap().split(',').collect();
        [&cells[..2], &cells[3..cells.len() - 1]].concat().join(",")
    };
    let mut text = format!("trial,devices.num_gpus,status,folder,reason,{}\n", columns.join(","));
    let (zero, second) = ("000-devices.num_gpus=0", "002-devices.num_gpus=2");
    text += &format!("0,0,finished,{zero},,{}\n", figures(&FACTS, zero));
    text += &format!("1,1,same_as,{zero},the same run as trial 0{empty}\n");
    text += &format!("2,2,finished,{second},,{}\n", figures(&two, second));
    runs.write("linreg/S/sweep.csv", &text);
}
