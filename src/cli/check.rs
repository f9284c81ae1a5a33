//! `runner check SPEC.toml`: what would happen, in words and numbers. Nothing is written, nothing trained.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use super::{
    args::RunOptions,
    describe::describe,
    exit::{Exit, print},
    lab,
    machine::{machine, wants_gpu},
    prepare::{Datasets, Prepared, prepare},
    run::refuse,
    warnings::Warnings,
};
use crate::{
    spec::{self, Experiment, Loaded},
    units,
};

/// Runs the command.
pub fn check(options: &RunOptions) -> Exit {
    let experiment = match spec::read(&options.spec(), &options.overrides()) {
        Ok(Loaded::Train(experiment)) => *experiment,
        Ok(Loaded::Lab(experiment)) => return lab::check(options, &experiment),
        Err(failure) => return refuse(&failure),
    };
    let machine = machine(options.virtual_gpus, wants_gpu(&experiment));
    let mut datasets = Datasets::new(&machine);
    let prepared = match prepare(&experiment, &mut datasets, &machine, options.thread_count()) {
        Ok(prepared) => prepared,
        Err(problems) => return refuse(&experiment.failure(problems)),
    };
    // One trial is shown whole; the table lists all of them.
    let first = prepared.iter().zip(&experiment.trials).find_map(|(prepared, trial)| match prepared {
        Prepared::Run(planned) => Some((trial.index, planned)),
        _ => None,
    });
    let first = first.filter(|_| !options.quiet);
    // The page has the note on its own devices.
    let on_page = first.and_then(|(_, planned)| planned.devices.note.as_deref());
    warnings(&experiment, &prepared, on_page).print();
    let mut text = String::new();
    if experiment.is_sweep() && !options.quiet {
        text.push_str(&trials(&experiment, &prepared));
    }
    if let Some((index, planned)) = first {
        if experiment.is_sweep() {
            let _ = write!(text, "\ntrial {index}: "); // a String takes every write
        }
        let dataset = match datasets.open(&planned.spec) {
            Ok(dataset) => dataset,
            Err(problems) => return refuse(&experiment.failure(problems.into_iter().map(|p| (index, p)))),
        };
        text.push_str(&describe(planned, &machine, &dataset));
    }
    let printed = print(&text);
    let missing = prepared.iter().zip(&experiment.trials).filter_map(|(p, t)| match p {
        Prepared::Missing(problem) => Some((t.index, problem.clone())),
        _ => None,
    });
    let missing: Vec<_> = missing.collect();
    if missing.is_empty() {
        return printed;
    }
    refuse(&experiment.failure(missing));
    Exit::Missing
}

/// What is to be said of the trials that run, or would do the same as one that does, but for what is told elsewhere.
pub fn warnings(experiment: &Experiment, prepared: &[Prepared], elsewhere: Option<&str>) -> Warnings {
    let trials = prepared.iter().zip(&experiment.trials).filter_map(|(own, trial)| {
        let (devices, runs) = match own {
            Prepared::Run(planned) => (&planned.devices, own),
            Prepared::SameAs(earlier, devices) => (devices, prepared.get(*earlier)?),
            Prepared::Missing(_) => return None,
        };
        let Prepared::Run(planned) = runs else { return None };
        let note = devices.note.clone().filter(|note| Some(note.as_str()) != elsewhere);
        Some((trial.index, note.into_iter().chain(planned.remarks()).collect()))
    });
    Warnings::new(experiment.is_sweep(), trials)
}

/// A line per trial: its axes, and what becomes of it.
fn trials(experiment: &Experiment, prepared: &[Prepared]) -> String {
    let mut table = Table::new();
    let mut header = vec!["trial".to_owned()];
    header.extend(experiment.axes.iter().map(|a| a.key.clone()));
    header.extend(["steps", "devices", "engine", "becomes"].map(str::to_owned));
    let numeric = header.len() - 3;
    table.load_style(presets::NOTHING).set_header(header);
    for (trial, prepared) in experiment.trials.iter().zip(prepared) {
        let mut cells = vec![trial.index.to_string()];
        cells.extend(trial.axes.iter().map(|(_, value)| value.clone()));
        let nothing = String::new;
        cells.extend(match prepared {
            Prepared::Run(t) => [
                units::count(t.steps),
                t.devices.used_names().join(" "),
                t.engine.name().into(),
                "run".into(),
            ],
            Prepared::SameAs(other, devices) => [
                nothing(),
                devices.used_names().join(" "),
                nothing(),
                format!("same_as trial {other}: not run twice"),
            ],
            Prepared::Missing(p) => {
                [nothing(), nothing(), nothing(), format!("skipped: {}", p.message.replace('`', ""))]
            }
        });
        table.add_row(cells);
    }
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if place == 0 { 2 } else { 0 }, 2));
        if place < numeric {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let runs = prepared.iter().filter(|p| matches!(p, Prepared::Run(_))).count();
    let all = units::counted(prepared.len() as u64, "trial");
    let name = experiment.trials.first().map_or("", |t| t.spec.name.as_str());
    let lines: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    format!("{name}: {all}, {}\n\n{lines}", units::counted(runs as u64, "run"))
}
