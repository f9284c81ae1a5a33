//! The page of `runner check` for products, copies and steps over tensors.

use super::{describe::flop, page::Page};
use crate::{
    plan::lab::{LabTrial, Outlook, Work},
    record::devices_in_words,
    spec::{
        Lab, Policy,
        lab::{FEWEST_PRODUCTS, Matmul, Norm, Order},
    },
    units,
};

/// The page, with a line per fact.
pub fn describe(trial: &LabTrial) -> String {
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
        (Lab::Tensors(tour), Work::Tensors(tensors)) => {
            let lines = tour.step.iter().zip(&tensors.steps).enumerate().map(|(i, (step, plan))| {
                let name = step.name.as_deref().map(|name| format!("{name} = ")).unwrap_or_default();
                let value = plan.result.map(|value| &tensors.values[value]);
                let value = value.map(|value| format!(" {:?} on {}", value.shape, value.device));
                let value = value.unwrap_or_default();
                let end = match &plan.outlook {
                    Outlook::Done => String::new(),
                    Outlook::Raises(_) => ": raises the error that it declares".to_owned(),
                    Outlook::Skipped(reason) => format!(": skipped: {reason}"),
                };
                format!("{:>2}. {name}{}{value}{end}", i + 1, step.op.name())
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
        let [m, k, n] = *shape;
        let flop = flop(2.0 * m as f64 * k as f64 * n as f64);
        format!("{} of [{m}, {k}] x [{k}, {n}], {flop} each", units::count(matmul.count))
    });
    page.list("products", lines);
    if matmul.matrices > 1 {
        let all = units::count(matmul.matrices);
        page.more([format!("of {all} left and {all} right matrices, another pair each time")]);
    }
    if let Some(most) = matmul.max_time {
        let most = units::seconds(most.as_secs_f64());
        page.more([format!("none but the first {FEWEST_PRODUCTS} begins after {most}")]);
    }
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
