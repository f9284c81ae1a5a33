//! `runner check` of an experiment of the lab: what would be done, on which devices.

use comfy_table::{CellAlignment, Table, presets};

use super::{
    super::{
        args::RunOptions,
        describe::{Page, flop},
        exit::{Exit, print},
        machine::machine,
        run::refuse,
        warnings::Warnings,
    },
    prepare::{Prepared, prepare},
};
use crate::{
    plan::lab::{LabTrial, Outlook, Work},
    record::devices_in_words,
    spec::{
        Experiment, Lab, LabSpec, Policy,
        lab::{Matmul, Norm, Order},
    },
    units,
};

/// What is to be said of the trials that run, or would do the same as one that does.
pub fn warnings(experiment: &Experiment<LabSpec>, prepared: &[Prepared]) -> Warnings {
    let trials = prepared.iter().zip(&experiment.trials).filter_map(|(prepared, trial)| match prepared {
        Prepared::Run(planned) => Some((trial.index, planned.notes.clone())),
        Prepared::SameAs(_, devices) => Some((trial.index, devices.note.clone().into_iter().collect())),
        Prepared::Missing(_) => None,
    });
    Warnings::new(experiment.is_sweep(), trials)
}

/// Runs the command.
pub fn check(options: &RunOptions, experiment: &Experiment<LabSpec>) -> Exit {
    let machine = machine(options.virtual_gpus, true);
    let prepared = match prepare(experiment, &machine, options.thread_count()) {
        Ok(prepared) => prepared,
        Err(problems) => return refuse(&experiment.failure(problems)),
    };
    let mut text = String::new();
    if options.quiet {
        // The page has these.
        warnings(experiment, &prepared).print();
    } else if experiment.is_sweep() {
        text.push_str(&trials(experiment, &prepared));
    }
    let first = prepared.iter().enumerate().find_map(|(i, prepared)| match prepared {
        Prepared::Run(planned) => Some((i, planned)),
        _ => None,
    });
    if let Some((index, planned)) = first.filter(|_| !options.quiet) {
        if experiment.is_sweep() {
            text.push_str(&format!("\ntrial {index}: "));
        }
        text.push_str(&describe(planned));
    }
    let printed = print(&text);
    let missing: Vec<_> = prepared
        .iter()
        .enumerate()
        .filter_map(|(i, prepared)| match prepared {
            Prepared::Missing(problem) => Some((i, problem.clone())),
            _ => None,
        })
        .collect();
    if missing.is_empty() {
        return printed;
    }
    refuse(&experiment.failure(missing));
    Exit::Missing
}

/// A line per trial: its axes, and what becomes of it.
fn trials(experiment: &Experiment<LabSpec>, prepared: &[Prepared]) -> String {
    let mut table = Table::new();
    let mut header = vec!["trial".to_owned()];
    header.extend(experiment.axes.iter().map(|a| a.key.clone()));
    header.extend(["devices", "becomes"].map(str::to_owned));
    let numeric = header.len() - 2;
    table.load_style(presets::NOTHING).set_header(header);
    for (trial, prepared) in experiment.trials.iter().zip(prepared) {
        let mut cells = vec![trial.index.to_string()];
        cells.extend(trial.axes.iter().map(|(_, value)| value.clone()));
        cells.extend(match prepared {
            Prepared::Run(t) => [t.devices.used_names().join(" "), "run".into()],
            Prepared::SameAs(other, devices) => {
                [devices.used_names().join(" "), format!("same_as trial {other}: not run twice")]
            }
            Prepared::Missing(p) => [String::new(), format!("skipped: {}", p.message.replace('`', ""))],
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

/// One line before the work: `norms: 1,000 products of [100, 100] x [100, 100], on cpu`.
pub fn headline(trial: &LabTrial) -> String {
    let devices = devices_in_words(&trial.devices.requested, &trial.devices.used_names());
    let what = match (&trial.spec.lab, &trial.work) {
        (Lab::Matmul(matmul), Work::Matmul { shapes, .. }) => match &shapes[..] {
            [shape] => format!("{} of {}", units::counted(matmul.count, "product"), factors(*shape)),
            _ => format!("{} of each of {} shapes", units::counted(matmul.count, "product"), shapes.len()),
        },
        (Lab::Transfer(transfer), Work::Transfer(copies)) => {
            let sizes = units::counted(transfer.sizes.len() as u64, "size");
            format!(
                "{} in {sizes}",
                units::counted(copies.len() as u64, "kind of copy").replace("kind of copys", "kinds of copy")
            )
        }
        (_, Work::Tensors(steps)) => units::counted(steps.len() as u64, "step"),
        _ => String::new(),
    };
    format!("{}: {what}, on {devices}", trial.spec.name)
}

fn factors([m, k, n]: [usize; 3]) -> String {
    format!("[{m}, {k}] x [{k}, {n}]")
}

/// The page: a line per fact.
fn describe(trial: &LabTrial) -> String {
    let mut page = Page::new(&trial.spec.name);
    let names = trial.devices.used_names();
    page.row("devices", devices_in_words(&trial.devices.requested, &names));
    page.more(trial.notes.iter().cloned());
    match (&trial.spec.lab, &trial.work) {
        (Lab::Matmul(matmul), Work::Matmul { shapes, kept }) => {
            products(&mut page, matmul, shapes, names.len());
            norms(&mut page, trial, matmul, *kept);
        }
        (Lab::Transfer(transfer), Work::Transfer(copies)) => {
            let lines = copies.iter().map(|copy| {
                let memory =
                    copy.memory.map(|m| format!(", {} memory of the host", m.name())).unwrap_or_default();
                let within = if copy.from == copy.to { " (within its memory)" } else { "" };
                format!("{} to {}{within}{memory}", copy.from, copy.to)
            });
            page.list("copies", lines);
            let sizes: Vec<_> = transfer.sizes.iter().map(|size| units::bytes(*size)).collect();
            page.row(
                "sizes",
                format!("{}; each {}", sizes.join(", "), units::counted(transfer.count, "time")),
            );
        }
        (Lab::Tensors(tour), Work::Tensors(steps)) => {
            let lines = tour.step.iter().zip(steps).enumerate().map(|(i, (step, plan))| {
                let name = step.name.as_deref().map(|name| format!("{name} = ")).unwrap_or_default();
                let place = plan.place.map(|place| format!(" on {place}")).unwrap_or_default();
                let shape = plan.shape.as_ref().map(|shape| format!(" {shape:?}")).unwrap_or_default();
                let end = match &plan.outlook {
                    Outlook::Done => String::new(),
                    Outlook::Raises => ": raises the error that it declares".to_owned(),
                    Outlook::DoesNotRaise => ": declares an error that it will not raise".to_owned(),
                    Outlook::Skipped(reason) => format!(": skipped: {reason}"),
                };
                format!("{:>2}. {name}{}{shape}{place}{end}", i + 1, step.op.name())
            });
            page.list("steps", lines);
        }
        _ => {}
    }
    let held = trial.memory.iter().map(|(place, bytes)| format!("{} on {place}", units::bytes(*bytes)));
    page.row("memory", held.collect::<Vec<_>>().join(", "));
    page.build();
    page.into_text()
}

fn products(page: &mut Page, matmul: &Matmul, shapes: &[[usize; 3]], devices: usize) {
    let lines = shapes.iter().map(|shape| {
        let [m, k, n] = shape.map(|axis| axis as f64);
        format!("{} of {}, {} each", units::count(matmul.count), factors(*shape), flop(2.0 * m * k * n))
    });
    page.list("products", lines);
    if devices > 1 {
        page.row(
            "order",
            match matmul.order {
                Order::Sequential => "sequential: one device after the other",
                Order::Concurrent => "concurrent: all devices at once",
            },
        );
    }
}

fn norms(page: &mut Page, trial: &LabTrial, matmul: &Matmul, kept: usize) {
    let norm = match matmul.norm {
        Norm::Frobenius => "Frobenius norm",
        Norm::Trace => "tr(M Mᵀ)",
        Norm::None => return page.row("norms", "none"),
    };
    let log = match trial.spec.logging.as_ref().map(|logging| logging.policy) {
        Some(Policy::Immediate) => "each moved to the host as it is computed".to_owned(),
        Some(Policy::Buffered) => {
            format!("kept on the device, moved in blocks of {}", units::count(kept as u64))
        }
        Some(Policy::PerEpoch) => "kept on the device, which moves their mean".to_owned(),
        Some(Policy::Off) | None => "computed, never moved".to_owned(),
    };
    page.row("norms", format!("{norm}, {log}"));
}
