//! Measured rates on disk: one small file per machine, in the user's cache folder, named by all that they depend on.
//!
//! A file is written whole and renamed. One that is damaged, or of another machine or version, counts as absent: then
//! typical rates serve until `runner devices --measure` measures anew.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    host,
    plan::{Origin, Processor, Rates},
    record::{Durability, RecordError, write_whole},
};

/// The folder to use instead of the user's own.
pub const FOLDER_VARIABLE: &str = "RUNNER_CACHE_DIR";

/// A build for debugging is several times slower.
const VERSION: &str = if cfg!(debug_assertions) {
    concat!(env!("CARGO_PKG_VERSION"), " debug")
} else {
    env!("CARGO_PKG_VERSION")
};

/// What rates depend on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// This program's: another one computes otherwise.
    version: String,
    cpu_model: String,
    instruction_set: String,
    /// Processors that this process may use: a container may have a few of many.
    logical_cores: usize,
    /// A virtual machine may have others than the processor whose name it bears.
    caches: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// RFC 3339, UTC.
    measured: String,
    key: Key,
    rates: Figures,
    /// Of the key and the figures: a file that was cut or changed is not believed.
    checksum: String,
}

/// The numbers of [`Rates`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figures {
    flops_per_s: f64,
    elementwise_per_s: f64,
    cache_bytes_per_s: f64,
    memory_bytes_per_s: f64,
    product_scaling: f64,
    memory_scaling: f64,
    instruction_s: f64,
    barrier_s: f64,
    block_s: f64,
}

/// Measured rates and when that was.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    pub rates: Rates,
    pub measured: String,
}

impl Key {
    /// Of this machine.
    pub fn here(instruction_set: &str) -> Self {
        Self {
            version: VERSION.to_owned(),
            cpu_model: host::cpu_model().unwrap_or_default(),
            instruction_set: instruction_set.to_owned(),
            logical_cores: host::logical_cores().unwrap_or(1),
            caches: host::caches(),
        }
    }

    fn file_name(&self) -> String {
        format!("rates-{}.toml", hex16(&toml::to_string(self).unwrap_or_default()))
    }
}

/// The folder that the environment names; `None` where it names none.
pub fn folder() -> Option<PathBuf> {
    let set = |variable: &str| env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from);
    set(FOLDER_VARIABLE).or_else(|| {
        let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
        Some(base.join("runner"))
    })
}

/// What was measured on this machine, if anything.
pub fn read(folder: &Path, key: &Key) -> Option<Kept> {
    let file: File = toml::from_str(&fs::read_to_string(folder.join(key.file_name())).ok()?).ok()?;
    let f = file.rates;
    let speeds = [f.flops_per_s, f.elementwise_per_s, f.cache_bytes_per_s, f.memory_bytes_per_s];
    let times = [f.instruction_s, f.barrier_s, f.block_s, f.product_scaling, f.memory_scaling];
    let sane =
        speeds.iter().all(|v| v.is_finite() && *v > 0.0) && times.iter().all(|v| v.is_finite() && *v >= 0.0);
    if file.key != *key || !sane || file.checksum != checksum(key, &f) {
        return None;
    }
    let rates = Rates {
        origin: Origin::Measured,
        processor: Processor::Cpu,
        flops_per_s: f.flops_per_s,
        elementwise_per_s: f.elementwise_per_s,
        cache_bytes_per_s: f.cache_bytes_per_s,
        memory_bytes_per_s: f.memory_bytes_per_s,
        product_scaling: f.product_scaling,
        memory_scaling: f.memory_scaling,
        instruction_s: f.instruction_s,
        barrier_s: f.barrier_s,
        block_s: f.block_s,
    };
    Some(Kept { rates, measured: file.measured })
}

/// Keeps rates; tells where.
///
/// # Errors
/// Where the folder cannot be written.
pub fn write(folder: &Path, key: &Key, rates: &Rates, measured: String) -> Result<PathBuf, RecordError> {
    let figures = Figures {
        flops_per_s: rates.flops_per_s,
        elementwise_per_s: rates.elementwise_per_s,
        cache_bytes_per_s: rates.cache_bytes_per_s,
        memory_bytes_per_s: rates.memory_bytes_per_s,
        product_scaling: rates.product_scaling,
        memory_scaling: rates.memory_scaling,
        instruction_s: rates.instruction_s,
        barrier_s: rates.barrier_s,
        block_s: rates.block_s,
    };
    let path = folder.join(key.file_name());
    fs::create_dir_all(folder)
        .map_err(|source| RecordError::MakeFolder { path: folder.to_owned(), source })?;
    let file = File { measured, key: key.clone(), rates: figures, checksum: checksum(key, &figures) };
    let text = toml::to_string(&file)
        .map_err(|e| RecordError::Encode { path: path.clone(), message: e.to_string() })?;
    write_whole(&path, Durability::Process, |out| out.write_all(text.as_bytes()))?;
    Ok(path)
}

fn checksum(key: &Key, figures: &Figures) -> String {
    hex16(&(toml::to_string(key).unwrap_or_default() + &toml::to_string(figures).unwrap_or_default()))
}

fn hex16(text: &str) -> String {
    Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_kept_and_damage_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("not/yet/there");
        let key = Key::here("avx2");
        assert_eq!(read(&inner, &key), None);
        let rates = Rates {
            origin: Origin::Measured,
            flops_per_s: 123.456e9,
            block_s: 0.0,
            ..Rates::typical("avx2")
        };
        let path = write(&inner, &key, &rates, "2027-01-15T08:00:00Z".to_owned()).unwrap();
        let kept = Kept { rates, measured: "2027-01-15T08:00:00Z".to_owned() };
        assert_eq!(read(&inner, &key), Some(kept.clone()));
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 1, "no temporary file is left");

        // Another machine, instruction set or version has another file.
        for other in [
            Key::here("avx512"),
            Key { cpu_model: "other".into(), ..key.clone() },
            Key { version: "0.0.0".into(), ..key.clone() },
            Key { logical_cores: 1000, ..key.clone() },
        ] {
            assert_eq!(read(&inner, &other), None);
            assert_ne!(other.file_name(), key.file_name());
        }

        let text = fs::read_to_string(&path).unwrap();
        for cut in 0..text.len() {
            fs::write(&path, &text[..cut]).unwrap();
            assert!(read(&inner, &key).is_none_or(|read| read == kept), "cut at {cut}");
        }
        for (from, to) in [
            ("123456000000.0", "999456000000.0"),
            ("123456000000.0", "nan"),
            ("123456000000.0", "-1.0"),
            ("[rates]", "[rates]\nmore = 1"),
        ] {
            assert!(text.contains(from), "{text}");
            fs::write(&path, text.replace(from, to)).unwrap();
            assert_eq!(read(&inner, &key), None, "{to}");
        }
        // Measuring anew heals it.
        write(&inner, &key, &rates, kept.measured.clone()).unwrap();
        assert_eq!(read(&inner, &key), Some(kept));
    }
}
