//! The resolved spec as text: every default filled in, no sweep, paths absolute, always in the same order.

use std::fmt::Write;

use serde::Serialize;
use sha2::{Digest, Sha256};
use toml::{Table, Value};

use super::Spec;

/// Tables whose own tables get a header of their own, as in `[optimizer.sgd]`; others are written inline.
const WITH_HEADERS: [&str; 3] = ["data", "optimizer", "schedule"];

impl Spec {
    /// TOML that reads back as the same spec, from any folder.
    pub fn to_toml(&self) -> String {
        to_toml(self)
    }

    /// First 8 hex digits of SHA-256 of the resolved spec.
    pub fn hash8(&self) -> String {
        hash8(&self.to_toml())
    }
}

/// A spec of any kind as TOML that reads back the same.
pub(super) fn to_toml(spec: &impl Serialize) -> String {
    let mut out = String::new();
    // Every type of a spec is a TOML value: paths were checked to be text when they were read.
    let table = Table::try_from(spec).unwrap_or_default();
    let (tables, scalars): (Vec<_>, Vec<_>) = table.iter().partition(|(_, v)| v.is_table());
    for (key, value) in scalars {
        line(&mut out, key, value);
    }
    for (name, value) in tables {
        let Value::Table(table) = value else { continue };
        let has_headers = WITH_HEADERS.contains(&name.as_str());
        let (inner, fields): (Vec<_>, Vec<_>) = table.iter().partition(|(_, v)| has_headers && v.is_table());
        if !fields.is_empty() {
            let _ = write!(out, "\n[{name}]\n");
        }
        for (key, value) in fields {
            line(&mut out, key, value);
        }
        for (key, value) in inner {
            let _ = write!(out, "\n[{name}.{key}]\n");
            for (key, value) in value.as_table().into_iter().flatten() {
                line(&mut out, key, value);
            }
        }
    }
    out
}

/// First 8 hex digits of SHA-256 of a text.
pub(super) fn hash8(text: &str) -> String {
    hex8(Sha256::new().chain_update(text))
}

/// The first 8 hex digits.
pub(super) fn hex8(hash: Sha256) -> String {
    hash.finalize().iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

fn line(out: &mut String, key: &str, value: &Value) {
    match value {
        // Layers, links of a chain, steps of a tour: one per line.
        Value::Array(items) if matches!(key, "layers" | "chain" | "step") => {
            let _ = writeln!(out, "{key} = [");
            for item in items {
                let _ = writeln!(out, "    {item},");
            }
            out.push_str("]\n");
        }
        _ => {
            let _ = writeln!(out, "{key} = {value}");
        }
    }
}
