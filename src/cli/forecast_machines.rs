//! `runner check --on FILE --on FILE ...`: one spec on several machines that are not here, side by side.

use std::{collections::HashSet, path::Path, time::Duration};

use super::{
    args::CheckOptions,
    conditions::{Conditions, Numbered, threads_of_each},
    forecast::sweep_s,
    forecast_table::Figures,
    machine::machine,
    machine_file,
    terminal::fit,
};
use crate::{
    plan::{Gpu, Machine, Trial},
    record::text_table,
    run::{Datasets, Exit, Prepared, prepare, print, refuse, warn},
    spec::{Experiment, Problem},
    units,
};

/// What is foretold of one machine.
struct Line {
    name: String,
    devices: String,
    figures: Figures,
    /// Seconds that the run takes, or all trials of a sweep.
    all_s: f64,
    /// The number of trials that it runs.
    trials: usize,
    memory: String,
}

/// What a machine came to: its line, or why there is none.
enum Outcome {
    Line(Line),
    /// Its rates do not say how long the trials take.
    Unknown,
    /// It cannot run them: the problems, and the exit that they have when no machine can.
    None(Vec<(usize, Problem)>, Exit),
}

/// Runs the command.
pub fn compare(all: &CheckOptions, experiment: &Experiment) -> Result<Exit, Exit> {
    let here = machine(Some(0), false);
    let read = |file| machine_file::read(file, here.clone()).map_err(|failure| refuse(&failure));
    let machines: Vec<Machine> = all.on.iter().map(|file| read(file)).collect::<Result<_, _>>()?;
    let mut datasets = Datasets::for_plans(&here);
    let (mut lines, mut notes, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for (name, machine) in names(&all.on).into_iter().zip(&machines) {
        notes.extend(all.run.too_many_threads(machine.cores, "its").map(|words| format!("{name}: {words}")));
        match outcome(all, experiment, (&name, machine), &mut datasets, &mut notes) {
            Outcome::Line(line) => lines.push(line),
            Outcome::Unknown => notes.push(format!(
                "{name}: none: only trials on the devices of one host are foretold; `--hosts` is for several"
            )),
            Outcome::None(problems, exit) => {
                notes.extend(
                    problems.first().map(|(_, own)| format!("{name} cannot run it: {}", own.message)),
                );
                failures.push((problems, exit));
            }
        }
    }
    let can_none = failures.len() == machines.len();
    if let Some((problems, exit)) = failures.into_iter().next().filter(|_| can_none) {
        notes.iter().for_each(warn);
        refuse(&experiment.failure(problems));
        return Err(exit);
    }
    Ok(print(&fit(&table(experiment, &lines, &notes))))
}

/// The stems of the files, or their paths where two have the same stem.
fn names(files: &[impl AsRef<Path>]) -> Vec<String> {
    let stem =
        |file: &Path| file.file_stem().map_or_else(String::new, |own| own.to_string_lossy().into_owned());
    let stems: Vec<String> = files.iter().map(|file| stem(file.as_ref())).collect();
    match stems.iter().collect::<HashSet<_>>().len() == stems.len() {
        true => stems,
        false => files.iter().map(|file| file.as_ref().display().to_string()).collect(),
    }
}

fn outcome(
    all: &CheckOptions,
    experiment: &Experiment,
    (name, machine): (&str, &Machine),
    datasets: &mut Datasets,
    notes: &mut Vec<String>,
) -> Outcome {
    let threads = threads_of_each(&all.run, all.jobs, experiment.trials.len(), machine.cores);
    let prepared = match prepare(experiment, datasets, machine, threads) {
        Ok(prepared) => prepared,
        Err(problems) => return Outcome::None(problems, Exit::Refused),
    };
    let missing = |(index, own): (usize, &Prepared<Trial>)| match own {
        Prepared::Missing(problem) => Some((index, (**problem).clone())),
        _ => None,
    };
    let missing: Vec<(usize, Problem)> = prepared.iter().enumerate().filter_map(missing).collect();
    let (trials, conditions) = Conditions::new(all, experiment, &prepared, (machine, Duration::ZERO));
    if trials.is_empty() {
        return Outcome::None(missing, Exit::Missing);
    }
    let counted = |count: usize| units::counted(count as u64, "trial");
    if let Some((_, problem)) = missing.first() {
        notes.push(format!("{name}: {} skipped: {}", counted(missing.len()), problem.message));
    }
    let repeats = prepared.iter().filter(|own| matches!(own, Prepared::SameAs(..))).count();
    if repeats > 0 {
        notes.push(format!("{name}: {} not run: the same runs as others on its devices", counted(repeats)));
    }
    let Some(line) = line(name, &trials, &conditions) else { return Outcome::Unknown };
    let described = machine.described.as_ref().filter(|own| !own.has_cpu && !line.figures.is_gpu);
    notes.extend(
        described.map(|own| format!("{name}: the CPU is this machine's: {} describes none", own.file)),
    );
    Outcome::Line(line)
}

fn line(name: &str, trials: &Numbered<'_>, conditions: &Conditions<'_>) -> Option<Line> {
    let Conditions { machine, is_sweep, .. } = *conditions;
    let (_, first) = trials.first()?;
    let figures = Figures::new(first, is_sweep, machine)?;
    let gpus: Vec<&Gpu> = first.devices.used.iter().filter_map(|device| device.real_gpu(machine)).collect();
    let (needed, free, devices) = match gpus.iter().map(|gpu| gpu.memory_free).min() {
        None => {
            let all = units::counted(machine.cores as u64, "core");
            let some = format!("{} of {all}", first.threads);
            let cores = if first.threads < machine.cores { some } else { all };
            (first.footprint.in_host_memory(&first.devices.used), machine.memory_available, cores)
        }
        Some(free) => {
            let own = first.footprint.devices.iter().copied().max()?;
            (own, free, units::counted(gpus.len() as u64, "GPU"))
        }
    };
    let [needed, free] = units::two_sizes(needed, free);
    // The trials of a sweep have one context.
    let on_gpu = trials.iter().find(|(_, trial)| trial.engine.is_gpu());
    let start_s = on_gpu.and_then(|(_, trial)| Some(Figures::new(trial, is_sweep, machine)?.start_s));
    Some(Line {
        name: name.to_owned(),
        devices,
        all_s: if is_sweep { sweep_s(trials, conditions)? + start_s.unwrap_or(0.0) } else { figures.run_s },
        trials: trials.len() + conditions.undrawn,
        figures,
        memory: format!("{needed} of {free}"),
    })
}

fn table(experiment: &Experiment, lines: &[Line], notes: &[String]) -> String {
    let what = if experiment.is_sweep() { "sweep" } else { "run" };
    let header =
        ["machine", "devices", "engine", "a step", "rows/s", what, "ratio", "memory", "a step is bound by"];
    // Time is no measure of machines that have other trials to run, or of runs that a limit ends.
    let is_limited = experiment.trials.iter().any(|trial| trial.spec.trainer.max_time.is_some());
    let ratio = |line: &Line| {
        let first = lines.first()?;
        let times = match experiment.is_sweep() {
            false => line.figures.rows_per_s / first.figures.rows_per_s,
            true if is_limited || line.trials != first.trials => return None,
            true => first.all_s / line.all_s,
        };
        Some(format!("{}x", units::factor(times)))
    };
    let row = |line: &Line| {
        let Figures { engine, step_s, rows_per_s, bound, .. } = line.figures;
        vec![
            line.name.clone(),
            line.devices.clone(),
            engine.to_owned(),
            units::seconds(step_s),
            units::rate(rows_per_s),
            units::seconds(line.all_s),
            ratio(line).unwrap_or_default(),
            line.memory.clone(),
            bound.to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = lines.iter().map(row).collect();
    let mut text = "\nforecasts by the rates of each machine's file; nothing ran there\n".to_owned();
    let mut notes = notes.to_vec();
    if !rows.is_empty() {
        text += &text_table::text(&header, &rows, |place| (3..7).contains(&place));
        let of_first = "devices, engine, step and memory are those of the first trial".to_owned();
        notes.extend(experiment.is_sweep().then_some(of_first));
        notes.push(format!(
            "{what}: starting GPUs, loading, steps, validations and some ms for a folder; data are read and kernels compiled before"
        ));
    }
    notes.iter().for_each(|note| text += &format!("  {note}\n"));
    text
}
