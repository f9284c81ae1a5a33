//! `runner devices -o FILE`: writes the file that describes this machine, which [`super::machine_file`] reads.

use std::{io::Write, path::Path};

use serde::Serialize;
use toml::{Table, Value};

use super::{machine::machine, rate_cache::VERSION};
use crate::{
    cuda,
    host::{self, Durability, write_atomically},
    plan::{Gpu, Link, Machine, Origin},
    record::RecordError,
    run::{Exit, print_stderr},
};

/// Writes what is known of this machine.
pub fn write(path: &Path) -> Result<(), Exit> {
    if path.exists() {
        let message = format!("`{}` is there already", path.display());
        return Err(Exit::refused(message, Some("name another file, or remove it first")));
    }
    let machine = machine(None, true);
    let mut all = Table::new();
    all.insert("cpu".to_owned(), cpu(&machine).into());
    if let Some(first) = machine.gpus.first() {
        all.insert("gpu".to_owned(), gpu(&machine, first)?.into());
    }
    let model = host::cpu_model().unwrap_or_default();
    let text = format!("# {model}, by runner {VERSION}\n\n{all}\n");
    write_atomically(path, Durability::Process, |out| out.write_all(text.as_bytes()))
        .map_err(|e| Exit::failed(RecordError::write(path, e), None))?;
    print_stderr(&format!("wrote {}\n", path.display()));
    Ok(())
}

fn cpu(machine: &Machine) -> Table {
    let mut cpu = Table::new();
    let mut set = |key: &str, value: Value| cpu.insert(key.to_owned(), value);
    set("cores", (machine.cores as i64).into());
    set("memory_bytes", integer(machine.memory_available));
    set("instruction_set", machine.instruction_set.clone().into());
    if let Some(unit) = &machine.bf16_unit {
        set("bf16_unit", unit.clone().into());
    }
    set("cache_bytes", integer(machine.cache_bytes));
    if machine.rates.origin == Origin::Measured {
        set("rates", rates(&machine.rates));
    }
    cpu
}

/// # Errors
/// Its GPUs are of several models, or were not measured.
fn gpu(machine: &Machine, first: &Gpu) -> Result<Table, Exit> {
    if let Some(other) = machine.gpus.iter().find(|gpu| gpu.model != first.model) {
        let message =
            format!("a description has GPUs of one model, and here are {} and {}", first.model, other.model);
        return Err(Exit::refused(message, Some("set CUDA_VISIBLE_DEVICES to those of one")));
    }
    let found = cuda::gpus().ok().and_then(|gpus| gpus.into_iter().next());
    let (Some(found), Some(speed)) = (found, first.speed) else {
        let hint = "`runner devices --measure -o FILE` measures them first";
        return Err(Exit::refused("the rates of gpu:0 are not known", Some(hint)));
    };
    if machine.gpus.len() > 1 && machine.sum_rates.is_empty() {
        let hint = "`runner devices --measure -o FILE` measures them, if NCCL is there; with CUDA_VISIBLE_DEVICES=0 the description \
                    is of one GPU";
        return Err(Exit::refused("what sums over these GPUs take is not known", Some(hint)));
    }
    let mut gpu = Table::new();
    let mut set = |key: &str, value: Value| gpu.insert(key.to_owned(), value);
    set("model", first.model.clone().into());
    set("count", (machine.gpus.len() as i64).into());
    set("memory_bytes", integer(machine.gpus.iter().map(|gpu| gpu.memory_free).min().unwrap_or(0)));
    set("compute_capability", format!("{}.{}", found.capability.0, found.capability.1).into());
    set("multiprocessors", i64::from(found.multiprocessors).into());
    set("clock_hz", (1000.0 * f64::from(found.clock_khz)).into());
    set("shared_bytes", i64::from(found.shared_bytes).into());
    set("rates", rates(&speed));
    if let Some(sums) = machine.sum_rates.first() {
        let Link { latency_s, bytes_per_s } = sums.link();
        let link = [("latency_s", latency_s), ("bytes_per_s", bytes_per_s)];
        set(
            "link",
            link.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect::<Table>().into(),
        );
    }
    Ok(gpu)
}

fn integer(value: u64) -> Value {
    i64::try_from(value).unwrap_or(i64::MAX).into()
}

fn rates(rates: &impl Serialize) -> Value {
    Value::try_from(rates).unwrap_or(Value::Table(Table::new()))
}
