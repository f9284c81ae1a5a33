//! `runner check SPEC.toml`: what would happen, in words and numbers. Nothing is written, nothing trained.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use super::{
    args::RunOptions,
    exit::{Exit, print},
    machine::machine,
    measure,
    prepare::{Datasets, Prepared, prepare},
    run::refuse,
};
use crate::{
    plan::{Machine, Trial},
    spec::{self, Experiment, Optimizer, Rule, Source},
};

/// Trials that are shown whole; the table lists all of them.
const SHOWN: usize = 1;

/// Runs the command.
pub fn check(options: &RunOptions) -> Exit {
    let experiment = match spec::load(&options.spec(), &options.overrides()) {
        Ok(experiment) => experiment,
        Err(failure) => return refuse(&failure),
    };
    let machine = machine();
    let mut datasets = Datasets::new(&machine);
    let prepared = match prepare(&experiment, &mut datasets, &machine, options.thread_count()) {
        Ok(prepared) => prepared,
        Err(problems) => return refuse(&experiment.failure(problems)),
    };
    let mut text = String::new();
    let planned = prepared.iter().filter_map(|p| match p {
        Prepared::Run(trial) => Some(trial),
        _ => None,
    });
    for trial in planned.take(SHOWN) {
        if experiment.is_sweep() {
            let _ = writeln!(text, "the first of {} trials that run:\n", experiment.trials.len());
        }
        text.push_str(&describe(trial, &machine));
    }
    if experiment.is_sweep() {
        text.push_str(&trials(&experiment, &prepared));
    }
    print(&text);
    let missing = prepared.iter().zip(&experiment.trials).filter_map(|(p, t)| match p {
        Prepared::Missing(problem) => Some((t.index, problem.clone())),
        _ => None,
    });
    let missing: Vec<_> = missing.collect();
    if missing.is_empty() {
        return Exit::Done;
    }
    refuse(&experiment.failure(missing));
    Exit::Missing
}

fn describe(trial: &Trial, machine: &Machine) -> String {
    let mut text = format!("{}\n\n", trial.spec.name);
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<12} {value}");
    };
    row(
        "devices",
        format!("asked {}, used {}", trial.devices.requested, trial.devices.used_names().join(", ")),
    );
    if let Some(note) = &trial.devices.note {
        row("", note.clone());
    }
    let f = trial.facts;
    let target = match f.classes {
        Some(classes) => format!("{classes} classes"),
        None => counted(f.targets as u64, "target"),
    };
    let rows = format!("{} to train on, {} to validate on", f.train_rows, f.validation_rows);
    row("data", format!("{}: {rows}; {}, {target}", source(trial), counted(f.features as u64, "feature")));
    row(
        "",
        match trial.chunk_rows {
            Some(rows) => format!("streamed in chunks of {rows} rows"),
            None => format!("resident, {}", bytes(trial.data_bytes)),
        },
    );
    row("model", String::new());
    text.push_str(&layers(trial));
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<12} {value}");
    };
    row("optimizer", optimizer(trial));
    let batch = trial.programs.train.rows;
    let last =
        trial.programs.train_last.as_ref().map_or(String::new(), |p| format!(", the last on {}", p.rows));
    row(
        "steps",
        format!("{} of {batch} rows per epoch{last}; {} in all", trial.steps_per_epoch, trial.steps),
    );
    row("engine", format!("{}: {}", trial.engine.name(), trial.engine_reason));
    let floor = &trial.floor;
    row(
        "a step",
        format!(
            "{} FLOP, {} moved, {} instructions",
            si(floor.cost.flops),
            bytes(floor.cost.bytes as u64),
            trial.programs.train.instructions.len()
        ),
    );
    let time = match trial.threads {
        1 => floor.serial_s(),
        n => floor.team_s(machine, n),
    };
    row(
        "",
        format!(
            "about {:.2} us by the cost model, bound by {}; {}",
            time * 1e6,
            floor.bound().name(),
            measured(trial)
        ),
    );
    row(
        "memory",
        format!(
            "{} on the device, {} usable",
            bytes(trial.programs.layout.arena_bytes() + trial.data_bytes),
            bytes(machine.memory_available)
        ),
    );
    text.push('\n');
    text
}

/// The step as it is on blank rows, beside the model's.
fn measured(trial: &Trial) -> String {
    match measure::step_s(trial) {
        Ok(seconds) => format!("{:.2} us measured on blank rows", seconds * 1e6),
        Err(e) => format!("not measured: {e}"),
    }
}

fn layers(trial: &Trial) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["", "layer", "", "input", "output", "parameters"]);
    for column in [1, 3, 4, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let batch = trial.programs.train.rows;
    for row in &trial.layers {
        let parameters = if row.parameters > 0 { row.parameters.to_string() } else { String::new() };
        let shape = |width: usize| format!("[{batch}, {width}]");
        table.add_row([
            "   ".to_owned(),
            row.index.to_string(),
            row.name.to_owned(),
            shape(row.inputs),
            shape(row.outputs),
            parameters,
        ]);
    }
    let total = trial.programs.layout.parameter_count();
    let lines: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    format!(
        "{lines}               {}, {}; loss {}\n",
        counted(total, "parameter"),
        bytes(total * 4),
        loss(trial)
    )
}

fn trials(experiment: &Experiment, prepared: &[Prepared]) -> String {
    let mut table = Table::new();
    let mut header = vec!["trial".to_owned()];
    header.extend(experiment.axes.iter().map(|a| a.key.clone()));
    header.extend(["devices", "engine", "steps", "becomes"].map(str::to_owned));
    table.load_style(presets::NOTHING).set_header(header);
    for (trial, prepared) in experiment.trials.iter().zip(prepared) {
        let mut cells = vec![trial.index.to_string()];
        cells.extend(trial.axes.iter().map(|(_, value)| value.clone()));
        cells.extend(match prepared {
            Prepared::Run(t) => {
                [t.devices.used_names().join(";"), t.engine.name().into(), t.steps.to_string(), "run".into()]
            }
            Prepared::SameAs(other) => ["".into(), "".into(), "".into(), format!("same_as trial {other}")],
            Prepared::Missing(p) => {
                ["".into(), "".into(), "".into(), format!("skipped: {}", p.message.replace('`', ""))]
            }
        });
        table.add_row(cells);
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn source(trial: &Trial) -> &'static str {
    match trial.spec.data.source {
        Source::SyntheticRegression(_) => "synthetic_regression",
        Source::Csv(_) => "csv",
        Source::Idx(_) => "idx",
        Source::Npy(_) => "npy",
    }
}

fn loss(trial: &Trial) -> &'static str {
    match trial.spec.model.loss {
        spec::Loss::Mse => "mse",
        spec::Loss::L1 => "l1",
        spec::Loss::Huber => "huber",
        spec::Loss::CrossEntropy => "cross_entropy",
    }
}

fn optimizer(trial: &Trial) -> String {
    let name = match trial.spec.optimizer {
        Optimizer::Sgd(_) => "sgd",
        Optimizer::Adam(_) => "adam",
        Optimizer::Adamw(_) => "adamw",
    };
    let schedule = match &trial.spec.schedule.rule {
        Rule::Constant => "constant".to_owned(),
        Rule::One(curve) => curve.name().to_owned(),
        Rule::Chain { chain } => chain.iter().map(|l| l.curve.name()).collect::<Vec<_>>().join(", then "),
    };
    format!("{name}, lr {}, schedule {schedule}", trial.spec.optimizer.lr())
}

fn counted(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// A number with a decimal prefix.
fn si(value: f64) -> String {
    let prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match prefixes.iter().find(|(scale, _)| value >= *scale) {
        Some((scale, prefix)) => format!("{:.2} {prefix}", value / scale),
        None => format!("{value:.0} "),
    }
}

fn bytes(value: u64) -> String {
    format!("{}B", si(value as f64))
}
