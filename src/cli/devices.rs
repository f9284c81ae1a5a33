//! `runner devices`: the machine.

use std::fmt::Write;

use super::{
    exit::{Exit, print},
    machine::machine,
};
use crate::host;

/// Runs the command.
pub fn devices() -> Exit {
    let machine = machine(None);
    let unknown = || "unknown".to_owned();
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64);
    let rows = [
        ("processor", host::cpu_model().unwrap_or_else(unknown)),
        ("cores", host::logical_cores().map_or_else(unknown, |n| n.to_string())),
        ("products by", machine.instruction_set),
        ("caches", host::caches().join(", ")),
        ("memory", host::memory("MemTotal").map_or_else(unknown, gib)),
        ("usable now", gib(machine.memory_available)),
    ];
    let mut text = "cpu\n".to_owned();
    for (name, value) in rows {
        let _ = writeln!(text, "  {name:<12} {value}");
    }
    text.push_str("\ngpu\n  none: this version computes on the CPU only\n");
    print(&text)
}
