//! `runner check --on FILE --on FILE ...`: one spec on several machines that are not here, side by side.

use std::{collections::HashSet, path::Path, time::Duration};

use super::{
    args::CheckOptions,
    conditions::{Conditions, Numbered},
    forecast::sweep_s,
    forecast_table::Figures,
    machine::machine,
    machine_file,
    terminal::fit,
};
use crate::{
    plan::{Machine, Trial},
    record::text_table,
    run::{Datasets, Exit, Prepared, prepare, print, refuse},
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
    memory: String,
}

/// What a machine came to: its line, or why there is none.
enum Outcome {
    Line(Line),
    /// The first problem, and the exit that it has when no machine can run the spec.
    None(Vec<(usize, Problem)>, Exit),
}

/// Runs the command.
pub fn compare(all: &CheckOptions, experiment: &Experiment) -> Result<Exit, Exit> {
    let here = machine(Some(0), false);
    let read = |file| machine_file::read(file, here.clone()).map_err(|failure| refuse(&failure));
    let machines: Vec<Machine> = all.on.iter().map(|file| read(file)).collect::<Result<_, _>>()?;
    let mut datasets = Datasets::for_plans(&here);
    let (mut lines, mut notes, mut failure) = (Vec::new(), Vec::new(), None);
    for (name, machine) in names(&all.on).into_iter().zip(&machines) {
        match outcome(all, experiment, (&name, machine), &mut datasets, &mut notes) {
            Outcome::Line(line) => lines.push(line),
            Outcome::None(problems, exit) => {
                notes.extend(
                    problems.first().map(|(_, own)| format!("{name} cannot run it: {}", own.message)),
                );
                failure.get_or_insert((problems, exit));
            }
        }
    }
    if let Some((problems, exit)) = failure.filter(|_| lines.is_empty()) {
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
    let jobs = all.jobs.map_or(1, |jobs| jobs.count(machine.cores)).clamp(1, experiment.trials.len().max(1));
    let threads = (all.run.threads_of(machine.cores) / jobs).max(1);
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
    let Some(line) = line(name, &trials, &conditions) else {
        return Outcome::None(missing, Exit::Missing);
    };
    if let Some((_, problem)) = missing.first() {
        let count = units::counted(missing.len() as u64, "trial");
        notes.push(format!("{name}: {count} skipped: {}", problem.message));
    }
    Outcome::Line(line)
}

fn line(name: &str, trials: &Numbered<'_>, conditions: &Conditions<'_>) -> Option<Line> {
    let Conditions { machine, is_sweep, .. } = *conditions;
    let (_, first) = trials.first()?;
    let figures = Figures::new(first, is_sweep, machine)?;
    let gpus = first.devices.used.iter().filter(|device| device.is_real_gpu()).count();
    let own = || first.footprint.devices.iter().copied().max();
    let (needed, free, devices) = match gpus {
        0 => {
            let cores = units::counted(first.threads as u64, "core");
            (first.footprint.in_host_memory(&first.devices.used), machine.memory_available, cores)
        }
        _ => {
            let free = machine.gpus.iter().map(|gpu| gpu.memory_free).min()?;
            (own()?, free, units::counted(gpus as u64, "GPU"))
        }
    };
    let [needed, free] = units::two_sizes(needed, free);
    Some(Line {
        name: name.to_owned(),
        devices,
        all_s: if is_sweep { sweep_s(trials, conditions)? + figures.start_s } else { figures.run_s },
        figures,
        memory: format!("{needed} of {free}"),
    })
}

fn table(experiment: &Experiment, lines: &[Line], notes: &[String]) -> String {
    let what = if experiment.is_sweep() { "sweep" } else { "run" };
    let header =
        ["machine", "devices", "engine", "a step", "rows/s", what, "ratio", "memory", "a step is bound by"];
    let first_s = lines.first().map_or(1.0, |line| line.all_s);
    let row = |line: &Line| {
        let Figures { engine, step_s, rows_per_s, bound, .. } = line.figures;
        vec![
            line.name.clone(),
            line.devices.clone(),
            engine.to_owned(),
            units::seconds(step_s),
            units::rate(rows_per_s),
            units::seconds(line.all_s),
            format!("{}x", units::factor(first_s / line.all_s)),
            line.memory.clone(),
            bound.to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = lines.iter().map(row).collect();
    let mut text = "\nforecasts by the rates of each machine's file; nothing ran there\n".to_owned();
    text += &text_table::text(&header, &rows, |place| (3..7).contains(&place));
    let mut notes = notes.to_vec();
    if experiment.is_sweep() {
        notes.push("devices, engine, step and memory are those of the first trial".to_owned());
    }
    notes.push(format!(
        "{what}: starting GPUs, loading, steps, validations and some ms for a folder; data are read and kernels compiled before"
    ));
    notes.iter().for_each(|note| text += &format!("  {note}\n"));
    text
}
