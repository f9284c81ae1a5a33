//! `runner devices`: shows and measures the machine.

use std::fmt::Write;

use chrono::SecondsFormat;
use serde_json::json;

use super::{
    args::DevicesOptions,
    gpus::GpuList,
    link,
    machine::machine,
    machine_export,
    rates::{self, CpuKey},
    terminal::fit,
};
use crate::{
    device::cpu::measure_rates,
    host,
    plan::{MachineRates, Origin},
    record,
    run::{Exit, print, print_error, print_json, print_stderr},
    units,
};

/// Columns of a name.
const NAME: usize = 14;

/// Runs the command.
pub fn devices(options: &DevicesOptions) -> Result<Exit, Exit> {
    // Several processes on one machine would disturb each other's measurements.
    if let Some(launched) = host::Launched::here().filter(|_| options.measure) {
        if options.json || options.virtual_gpus.is_some() || options.output.is_some() {
            let message = "`--measure` of several processes prints a table of their sums alone";
            return Err(Exit::refused(message, None));
        }
        return link::measure(launched);
    }
    if options.output.is_some() && options.virtual_gpus.is_some() {
        let hint = "`RUNNER_VIRTUAL_GPUS` is set: unset it";
        return Err(Exit::refused("virtual GPUs are not described", Some(hint)));
    }
    let measured = if options.measure { measure(options.virtual_gpus.is_none()) } else { Ok(()) };
    // If measuring fails, the existing rates are kept and shown.
    let shown = show(options);
    measured?;
    if let Some(path) = &options.output {
        machine_export::write(path)?;
    }
    Ok(shown)
}

fn show(options: &DevicesOptions) -> Exit {
    let machine = machine(None, false);
    let rates = machine.rates;
    let gpus = match options.virtual_gpus {
        Some(count) => GpuList::of_virtual(count, machine.memory_available),
        None => GpuList::find(),
    };
    if options.json {
        let json = json!({
            "cpu": {
                "processor": host::cpu_model(),
                "cores": host::logical_cores(),
                "vector_unit": machine.instruction_set,
                "bf16_unit": machine.bf16_unit,
                "caches": host::caches(),
                "memory_bytes": host::memory().total,
                "usable_bytes": machine.memory_available,
                "rates": rates,
                "rates_are": rates.origin.name(),
            },
            "gpu": gpus,
        });
        return print_json(&format!("{json:#}\n"));
    }
    let unknown = || "unknown".to_owned();
    let rows = [
        ("processor", host::cpu_model().unwrap_or_else(unknown)),
        ("cores", host::logical_cores().map_or_else(unknown, |n| n.to_string())),
        ("vector unit", machine.instruction_set),
        (
            "bf16 unit",
            machine.bf16_unit.unwrap_or_else(|| "none: `precision = \"bf16\"` needs a GPU".to_owned()),
        ),
        ("caches", host::caches().join(", ")),
        ("memory", host::memory().total.map_or_else(unknown, units::bytes)),
        ("usable now", units::bytes(machine.memory_available)),
    ];
    let mut text = "cpu\n".to_owned();
    for (name, value) in rows {
        let _ = writeln!(text, "  {name:<NAME$} {value}");
    }
    text.push_str(&describe(&rates));
    text.push('\n');
    text.push_str(&gpus.text(options.measure));
    if options.virtual_gpus.is_none() {
        text.push_str(&super::gpu_measure::describe(host::cache_folder().as_deref()));
    }
    print(&fit(&text))
}

/// Measures this machine, including its GPUs unless they are hidden, and stores the results.
fn measure(with_gpus: bool) -> Result<(), Exit> {
    let instruction_set = machine(None, false).instruction_set;
    let hint = format!("set {} to a writable folder", host::CACHE_VARIABLE);
    let Some(folder) = host::cache_folder() else {
        return Err(Exit::failed("there is no folder to keep the rates in", Some(&hint)));
    };
    print_stderr("measuring: some four seconds, up to twenty where the machine is busy\n");
    let now = record::now().to_rfc3339_opts(SecondsFormat::Secs, true);
    let mut faults = Vec::new();
    match measure_rates(host::logical_cores().unwrap_or(1)) {
        Ok(rates) => {
            let written = rates::write(&folder, &CpuKey::here(&instruction_set), rates, &now);
            written.map(drop).map_err(|e| Exit::failed(e, Some(&hint)))?;
        }
        Err(fault) => faults.push(fault.to_string()),
    }
    if with_gpus {
        faults.extend(super::gpu_measure::measure(&folder, &now));
    }
    match faults.pop() {
        None => Ok(()),
        Some(last) => {
            faults.into_iter().for_each(|fault| print_error(fault, None));
            Err(Exit::failed(last, None))
        }
    }
}

/// The rates used by the cost model, and where they come from.
fn describe(rates: &MachineRates) -> String {
    let threads = host::logical_cores().unwrap_or(1);
    let instruction_set = machine(None, false).instruction_set;
    let folder = host::cache_folder();
    let cached = folder.as_ref().and_then(|folder| rates::read(folder, &CpuKey::here(&instruction_set)));
    let origin = match (rates.origin, cached) {
        (Origin::Measured, Some(cached)) => format!("measured {}", cached.measured),
        (Origin::Measured, None) => "measured".to_owned(),
        (Origin::Typical | Origin::Given, _) => {
            format!("typical of {instruction_set}; `runner devices --measure` measures this machine's")
        }
    };
    let all = |one: f64, speedup: f64, unit: &str| {
        let more = if threads > 1 && rates.origin == Origin::Measured {
            format!(", {} by {threads}", units::rate(one * speedup))
        } else {
            String::new()
        };
        format!("{}{unit}/s by one thread{more}", units::rate(one))
    };
    // Where no two takes agree, a typical cost serves.
    let typical = MachineRates::typical(&instruction_set);
    let cost = |own: f64, typical: f64| {
        let is_typical = rates.origin == Origin::Measured && own == typical;
        let unsettled = if is_typical { ", a typical one: no two measurements agreed" } else { "" };
        format!("{}{unsettled}", units::seconds(own))
    };
    // One thread waits for none.
    let typical_barrier_s = if threads > 1 { typical.barrier_s } else { f64::NAN };
    let rows = [
        ("rates", origin),
        ("products", all(rates.flops_per_s, rates.product_speedup(threads), "FLOP")),
        ("elementwise", format!("{}FLOP/s", units::rate(rates.elementwise_per_s))),
        ("from caches", format!("{}B/s", units::rate(rates.cache_bytes_per_s))),
        ("from memory", all(rates.memory_bytes_per_s, rates.memory_speedup(threads), "B")),
        ("op overhead", cost(rates.instruction_s, typical.instruction_s)),
        ("barrier", cost(rates.barrier_s, typical_barrier_s)),
        ("block overhead", cost(rates.block_s, typical.block_s)),
    ];
    let noise = format!("rates varied by {} from round to round", units::percent(rates.noise));
    let bf16 = rates
        .bf16_flops_per_s
        .map(|rate| ("bf16 products", format!("{}FLOP/s by one thread", units::rate(rate))));
    let noise = (rates.noise > 0.0).then_some(("noise", noise));
    let mut text = String::new();
    for (name, value) in rows.into_iter().chain(bf16).chain(noise) {
        let _ = writeln!(text, "  {name:<NAME$} {value}"); // a String takes every write
    }
    text
}
