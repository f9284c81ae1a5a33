//! Measured rates of the CPU on disk. Where there are none, typical rates serve until `runner devices --measure` measures
//! anew.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::rate_cache::{self, Cached, VERSION};
use crate::{host, plan::MachineRates, record::RecordError};

pub use super::rate_cache::{FOLDER_VARIABLE, folder};

/// The first word of the file's name.
const CPU: &str = "rates";

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

impl Key {
    /// The key of this machine.
    pub fn here(instruction_set: &str) -> Self {
        Self {
            version: VERSION.to_owned(),
            cpu_model: host::cpu_model().unwrap_or_default(),
            instruction_set: instruction_set.to_owned(),
            logical_cores: host::logical_cores().unwrap_or(1),
            caches: host::caches(),
        }
    }
}

/// What was measured on this machine, if anything.
pub fn read(folder: &Path, key: &Key) -> Option<Cached<MachineRates>> {
    rate_cache::read(folder, CPU, key).filter(|cached: &Cached<MachineRates>| cached.figures.is_sane())
}

/// Keeps rates; returns the file.
///
/// # Errors
/// Where the folder cannot be written.
pub fn write(
    folder: &Path,
    key: &Key,
    rates: &MachineRates,
    measured: String,
) -> Result<PathBuf, RecordError> {
    rate_cache::write(folder, CPU, key, *rates, measured)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::plan::Origin;

    #[test]
    fn rates_are_kept_and_damage_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("not/yet/there");
        let key = Key::here("avx2");
        assert_eq!(read(&inner, &key), None);
        let rates = MachineRates {
            origin: Origin::Measured,
            flops_per_s: 123.456e9,
            block_s: 0.0,
            ..MachineRates::typical("avx2")
        };
        let path = write(&inner, &key, &rates, "2027-01-15T08:00:00Z".to_owned()).unwrap();
        let cached = Cached { figures: rates, measured: "2027-01-15T08:00:00Z".to_owned() };
        assert_eq!(read(&inner, &key), Some(cached.clone()));
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 1, "no temporary file is left");

        // Another machine, instruction set or version has another file.
        for other in [
            Key::here("avx512"),
            Key { cpu_model: "other".into(), ..key.clone() },
            Key { version: "0.0.0".into(), ..key.clone() },
            Key { logical_cores: 1000, ..key.clone() },
        ] {
            assert_eq!(read(&inner, &other), None);
            assert_ne!(rate_cache::file_name(CPU, &other), rate_cache::file_name(CPU, &key));
        }

        let text = fs::read_to_string(&path).unwrap();
        for cut in 0..text.len() {
            fs::write(&path, &text[..cut]).unwrap();
            assert!(read(&inner, &key).is_none_or(|read| read == cached), "cut at {cut}");
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
        write(&inner, &key, &rates, cached.measured.clone()).unwrap();
        assert_eq!(read(&inner, &key), Some(cached));
    }
}
