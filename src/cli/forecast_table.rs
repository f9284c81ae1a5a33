//! `runner check --on FILE`: what runs would take on a machine that is not here, with the settings and devices that decide it.

use std::ptr;

use super::{
    conditions::Conditions,
    forecast_groups::{Group, estimate, grouped},
};
use crate::{
    plan::{COMPILE_S, DeviceId, Engine, ExpectedTime, Machine, PlanError, Trial, plan},
    record::{cause, text_table},
    run::useful_threads,
    spec::{Experiment, GpuCount, Placement, Policy, Precision, Request, Scaling, Spec, short_keys},
    units,
};

/// The most kinds of trials that a table shows.
const MOST: usize = 30;

const FIGURES: [&str; 6] = ["engine", "a step", "rows/s", "ratio", "run", "a step is bound by"];

const BATCH_SIZE: &str = "data.batch_size";
const NUM_GPUS: &str = "devices.num_gpus";

/// What is foretold of a run.
pub struct Figures {
    pub is_gpu: bool,
    pub engine: &'static str,
    pub start_s: f64,
    pub step_s: f64,
    pub rows_per_s: f64,
    pub run_s: f64,
    pub bound: &'static str,
}

impl Figures {
    /// `None` if the machine's rates do not say.
    pub fn new(trial: &Trial, is_sweep: bool, machine: &Machine) -> Option<Self> {
        let expected = ExpectedTime::new(trial, machine)?;
        let mut groups = grouped([trial].into_iter());
        estimate(&mut groups, machine);
        let time = groups.first()?.time(None, is_sweep)?;
        // The trials of a sweep have one context.
        let start_s = if is_sweep { 0.0 } else { expected.start_s };
        Some(Self {
            is_gpu: trial.engine.is_gpu(),
            engine: trial.engine.name(),
            start_s: expected.start_s,
            step_s: expected.step_s,
            rows_per_s: trial.facts.train_rows as f64 / (trial.steps_per_epoch as f64 * expected.step_s),
            run_s: time.seconds + start_s,
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

/// A table of the trials of a sweep, or of the settings of a run; `threads` are those of the host.
pub fn forecasts(
    experiment: &Experiment,
    trials: &[(usize, &Trial)],
    threads: usize,
    Conditions { machine, .. }: &Conditions<'_>,
) -> String {
    let (Some(described), Some((_, first))) = (&machine.described, trials.first()) else {
        return String::new();
    };
    let mut notes = Vec::new();
    let (header, lines) = if experiment.is_sweep() {
        of_trials(experiment, trials, machine, &mut notes)
    } else {
        (vec!["setting".to_owned()], of_settings(first, threads, machine, &mut notes))
    };
    let mut text = format!("\nforecasts by the rates in {}; nothing ran there\n", described.file);
    let Some((_, base)) = lines.first() else {
        return text
            + "  none: only trials on the devices of one host are foretold; `--hosts` is for several\n";
    };
    let names = header.len();
    let header: Vec<&str> = header.iter().map(String::as_str).chain(FIGURES).collect();
    let rows: Vec<Vec<String>> =
        lines.iter().map(|(cells, own)| [cells.clone(), own.cells(base)].concat()).collect();
    text += &text_table::text(&header, &rows, |place| (names + 1..names + 5).contains(&place));
    let gpus = || lines.iter().filter(|(_, own)| own.is_gpu);
    let start = match (gpus().next(), experiment.is_sweep()) {
        (None, _) => "",
        (Some((_, own)), false) => &format!("starting the GPU ({}), ", units::seconds(own.start_s)),
        (Some((_, own)), true) => {
            &format!("without starting the GPU once ({}): ", units::seconds(own.start_s))
        }
    };
    notes.push(format!(
        "run: {start}loading, steps, validations and some ms for the folder; data are read and kernels compiled before"
    ));
    let is_compiled = |(_, own): &&(Vec<String>, Figures)| own.engine == Engine::Compiled.name();
    if gpus().any(|line| is_compiled(&line)) && !gpus().all(|line| is_compiled(&line)) {
        notes.push(format!(
            "engine: a kernel is compiled where that saves a run {}",
            units::seconds(COMPILE_S)
        ));
    }
    if !described.has_cpu && lines.iter().any(|(_, own)| !own.is_gpu) {
        notes.push(format!("the CPU is this machine's: {} describes none", described.file));
    }
    let is_weak = first.spec.devices.scaling == Scaling::Weak;
    if is_weak && lines.iter().any(|(cells, _)| cells[0].starts_with(NUM_GPUS)) {
        notes.push(format!("`{NUM_GPUS}` changes the batch under weak scaling: expect other losses"));
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
    notes: &mut Vec<String>,
) -> (Vec<String>, Lines) {
    let axes: Vec<&str> = experiment.axes.iter().map(String::as_str).collect();
    let mut header = vec!["trial".to_owned()];
    header.extend(short_keys(&axes).into_iter().map(str::to_owned));
    let groups = grouped(trials.iter().map(|(_, trial)| *trial));
    if groups.len() > MOST {
        notes.push(format!("{} more kinds of trials are not shown", groups.len() - MOST));
    }
    let line = |group: &Group<'_>| {
        let (number, trial) = trials.iter().find(|(_, trial)| ptr::eq(*trial, group.trial))?;
        let alike = if group.count > 1 { format!(" and {} like it", group.count - 1) } else { String::new() };
        let mut cells = vec![format!("{number}{alike}")];
        cells.extend(experiment.values(&experiment.trials[*number]));
        Some((cells, Figures::new(trial, true, machine)?))
    };
    let shown = groups.len().min(MOST);
    let lines: Lines = groups.iter().take(shown).filter_map(line).collect();
    if lines.len() < shown {
        notes.push(format!(
            "{} kinds of trials use several hosts or devices without rates",
            shown - lines.len()
        ));
    }
    (header, lines)
}

/// A line for the run as it is, and one for each setting that changes what it takes.
fn of_settings(trial: &Trial, threads: usize, machine: &Machine, notes: &mut Vec<String>) -> Lines {
    let mut lines: Lines = Vec::new();
    let mut add = |words: String, trial: &Trial| {
        lines.extend(Figures::new(trial, false, machine).map(|own| (vec![words], own)));
    };
    add("as it is".to_owned(), trial);
    for (words, spec) in settings(trial, machine) {
        match plan(&spec, trial.facts, machine, useful_threads(&spec, threads, machine)) {
            Ok(planned) => add(words, &planned),
            Err(PlanError::Missing(problem)) => notes.push(format!("`{words}`: {}", problem.message)),
            Err(PlanError::Problems(problems)) => {
                notes.extend(problems.first().map(|problem| format!("`{words}`: {}", problem.message)));
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
    let most = machine.gpus.len();
    let mut counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|count| *count < most).collect();
    counts.extend([most, 0]);
    counts.dedup();
    for count in counts {
        if count != used {
            add(format!("{NUM_GPUS}={count}"), &|spec| {
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
    let rates = trial.devices.used.first().and_then(|device| device.real_gpu(machine)?.speed);
    let own = trial.spec.devices.precision;
    for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
        // Without tensor cores a precision changes nothing.
        if rates.is_some_and(|rates| precision != own && rates.product(precision) != rates.product(own)) {
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
