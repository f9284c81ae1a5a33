//! `runner check --on FILE`: what runs would take on a machine that is not here, with the settings and devices that decide it.

use std::ptr;

use super::{
    forecast::Conditions,
    forecast_groups::{Group, estimate, grouped},
};
use crate::{
    plan::{DeviceId, ExpectedTime, Machine, PlanError, Trial},
    record::{cause, text_table},
    run::{Datasets, Planned},
    spec::{Experiment, GpuCount, Placement, Policy, Precision, Request, Spec, short_keys},
    units,
};

/// The most kinds of trials that a table shows.
const MOST: usize = 30;

const FIGURES: [&str; 6] = ["engine", "a step", "rows/s", "ratio", "run", "a step is bound by"];

const BATCH_SIZE: &str = "data.batch_size";

/// What is foretold of a run.
struct Figures {
    is_gpu: bool,
    engine: &'static str,
    step_s: f64,
    rows_per_s: f64,
    run_s: f64,
    bound: &'static str,
}

impl Figures {
    /// `None` if the machine's rates do not say.
    fn new(trial: &Trial, is_sweep: bool, machine: &Machine) -> Option<Self> {
        let expected = ExpectedTime::new(trial, machine)?;
        let mut groups = grouped([trial].into_iter());
        estimate(&mut groups, machine);
        let time = groups.first()?.time(None, is_sweep)?;
        Some(Self {
            is_gpu: trial.engine.is_gpu(),
            engine: trial.engine.name(),
            step_s: expected.step_s,
            rows_per_s: trial.programs.train.batch as f64 / expected.step_s,
            run_s: time.seconds + expected.start_s,
            bound: cause(expected.bound, expected.processor),
        })
    }

    fn cells(&self, base: &Self) -> Vec<String> {
        vec![
            self.engine.to_owned(),
            units::seconds(self.step_s),
            units::rate(self.rows_per_s),
            format!("{}x", units::factor(self.rows_per_s / base.rows_per_s)),
            units::seconds(self.run_s),
            self.bound.to_owned(),
        ]
    }
}

/// A table of the trials of a sweep, or of the settings of a run.
pub fn forecasts(
    experiment: &Experiment,
    trials: &[(usize, &Trial)],
    (datasets, threads): (&mut Datasets, usize),
    Conditions { machine, .. }: &Conditions<'_>,
) -> String {
    let (Some(described), Some((_, first))) = (&machine.described, trials.first()) else {
        return String::new();
    };
    let mut left_out = Vec::new();
    let (header, lines) = if experiment.is_sweep() {
        of_trials(experiment, trials, machine, &mut left_out)
    } else {
        let lines = of_settings(first, (datasets, threads), machine, &mut left_out);
        (vec!["setting".to_owned()], lines)
    };
    let mut text = format!("\nforecasts by the rates in {}; nothing ran there\n", described.file);
    let Some((_, base)) = lines.first() else {
        return text + "  none: these rates do not say what a step takes\n";
    };
    let names = header.len();
    let header: Vec<&str> = header.iter().map(String::as_str).chain(FIGURES).collect();
    let rows: Vec<Vec<String>> =
        lines.iter().map(|(cells, own)| [cells.clone(), own.cells(base)].concat()).collect();
    text += &text_table::text(&header, &rows, |place| (names + 1..names + 5).contains(&place));
    let mut notes = left_out;
    if lines.iter().any(|(_, own)| own.is_gpu) {
        let words = "run: starts the GPU, copies the rows, trains and validates; data are read and kernels compiled before";
        notes.push(words.to_owned());
    }
    if described.cores.is_none() && lines.iter().any(|(_, own)| !own.is_gpu) {
        notes.push(format!("the CPU is this machine's: {} describes none", described.file));
    }
    if lines.iter().any(|(cells, _)| cells[0].starts_with(BATCH_SIZE)) {
        notes.push(format!("`{BATCH_SIZE}` changes the training: expect other losses"));
    }
    notes.iter().for_each(|what| text += &format!("  {what}\n"));
    text
}

type Lines = Vec<(Vec<String>, Figures)>;

/// A line for each kind of trials.
fn of_trials(
    experiment: &Experiment,
    trials: &[(usize, &Trial)],
    machine: &Machine,
    left_out: &mut Vec<String>,
) -> (Vec<String>, Lines) {
    let axes: Vec<&str> = experiment.axes.iter().map(String::as_str).collect();
    let mut header = vec!["trial".to_owned()];
    header.extend(short_keys(&axes).into_iter().map(str::to_owned));
    let groups = grouped(trials.iter().map(|(_, trial)| *trial));
    if groups.len() > MOST {
        left_out.push(format!("{} more kinds of trials are not shown", groups.len() - MOST));
    }
    let line = |group: &Group<'_>| {
        let (number, trial) = trials.iter().find(|(_, trial)| ptr::eq(*trial, group.trial))?;
        let alike = if group.count > 1 { format!(" and {} like it", group.count - 1) } else { String::new() };
        let mut cells = vec![format!("{number}{alike}")];
        cells.extend(experiment.values(&experiment.trials[*number]));
        Some((cells, Figures::new(trial, true, machine)?))
    };
    (header, groups.iter().take(MOST).filter_map(line).collect())
}

/// A line for the run as it is, and one for each setting that changes what it takes.
fn of_settings(
    trial: &Trial,
    (datasets, threads): (&mut Datasets, usize),
    machine: &Machine,
    left_out: &mut Vec<String>,
) -> Lines {
    let mut lines: Lines = Vec::new();
    let mut add = |words: String, trial: &Trial| {
        lines.extend(Figures::new(trial, false, machine).map(|own| (vec![words], own)));
    };
    add("as it is".to_owned(), trial);
    for (words, spec) in settings(trial, machine) {
        match Trial::plan(&spec, datasets, machine, threads) {
            Ok(planned) => add(words, &planned),
            Err(PlanError::Missing(problem)) => left_out.push(format!("`{words}`: {}", problem.message)),
            Err(PlanError::Problems(problems)) => {
                left_out.extend(problems.first().map(|problem| format!("`{words}`: {}", problem.message)));
            }
        }
    }
    lines
}

/// Other specs, each with the change as a user would type it.
fn settings(trial: &Trial, machine: &Machine) -> Vec<(String, Spec)> {
    let mut all = Vec::new();
    let mut add = |words: String, change: &dyn Fn(&mut Spec)| {
        let mut spec = trial.spec.clone();
        change(&mut spec);
        all.push((words, spec));
    };
    let on_gpu = trial.engine.is_gpu();
    let used = trial.devices.used.iter().filter(|device| matches!(device, DeviceId::Gpu(_))).count();
    for count in (0..).map(|power| 1 << power).take_while(|count| *count <= machine.gpus.len()).chain([0]) {
        if count != used {
            add(format!("devices.num_gpus={count}"), &|spec| {
                spec.devices.request = Request::NumGpus(GpuCount::Exactly(count as u32));
            });
        }
    }
    for policy in [Policy::Off, Policy::PerEpoch, Policy::Buffered, Policy::Immediate] {
        if on_gpu && policy != trial.spec.logging.policy {
            add(format!("logging.policy={}", policy.name()), &|spec| spec.logging.policy = policy);
        }
    }
    if on_gpu {
        let is_streamed = trial.chunks.is_some() || trial.facts.in_file();
        let other = if is_streamed { Placement::Resident } else { Placement::Streamed };
        add(format!("data.placement={}", other.name()), &|spec| spec.data.placement = other);
    }
    for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
        if on_gpu && precision != trial.spec.devices.precision {
            add(format!("devices.precision={}", precision.name()), &|spec| {
                spec.devices.precision = precision;
            });
        }
    }
    for times in [2, 4] {
        let rows = trial.spec.data.batch_size * times;
        if rows <= trial.facts.train_rows {
            add(format!("{BATCH_SIZE}={rows}"), &|spec| spec.data.batch_size = rows);
        }
    }
    all
}
