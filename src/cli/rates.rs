//! Cached rates, with keys for everything they depend on. If there are none, typical rates are used until
//! `runner devices --measure` is run.

use serde::{Deserialize, Serialize};

use super::rate_cache::VERSION;
pub use super::rate_cache::{Cached, Key, read, write};
use crate::{
    host,
    plan::{AllReduceRates, GpuRates, MachineRates},
};

/// The key of the CPU's rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuKey {
    /// This program's version: another one computes differently.
    version: String,
    cpu_model: String,
    instruction_set: String,
    /// Processors that this process may use: a container may have only some of them.
    logical_cores: usize,
    /// A virtual machine may have other caches than the named processor.
    caches: Vec<String>,
}

impl CpuKey {
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

/// The key of a GPU's rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuKey {
    /// This program's version.
    version: String,
    /// As CUDA reports it.
    uuid: String,
    model: String,
    /// The driver's version, if known.
    driver: String,
}

impl GpuKey {
    /// The key of a GPU with this UUID, model and driver version.
    pub fn new(uuid: &str, model: &str, driver: &str) -> Self {
        let [uuid, model, driver] = [uuid, model, driver].map(str::to_owned);
        Self { version: VERSION.to_owned(), uuid, model, driver }
    }
}

/// The key of the rates of sums: all GPUs, in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllReduceKey {
    pub gpus: Vec<GpuKey>,
}

impl Key for CpuKey {
    type Figures = MachineRates;
    const KIND: &str = "rates";
}

impl Key for GpuKey {
    type Figures = GpuRates;
    const KIND: &str = "gpu-rates";
}

impl Key for AllReduceKey {
    type Figures = AllReduceRates;
    const KIND: &str = "gpu-sums";
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{cli::rate_cache::file_name, plan::Origin};

    const NOW: &str = "2027-01-15T08:00:00Z";

    #[test]
    fn rates_are_kept_and_damage_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("not/yet/there");
        let key = CpuKey::here("avx2");
        assert_eq!(read(&inner, &key), None);
        let rates = MachineRates {
            origin: Origin::Measured,
            flops_per_s: 123.456e9,
            block_s: 0.0,
            ..MachineRates::typical("avx2")
        };
        let path = write(&inner, &key, rates, NOW).unwrap();
        let cached = Cached { figures: rates, measured: NOW.to_owned() };
        assert_eq!(read(&inner, &key), Some(cached.clone()));
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 1, "no temporary file is left");

        // Another machine, instruction set or version has a different file.
        for other in [
            CpuKey::here("avx512"),
            CpuKey { cpu_model: "other".into(), ..key.clone() },
            CpuKey { version: "0.0.0".into(), ..key.clone() },
            CpuKey { logical_cores: 1000, ..key.clone() },
        ] {
            assert_eq!(read(&inner, &other), None);
            assert_ne!(file_name(&other), file_name(&key));
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
        // Measuring again repairs it.
        write(&inner, &key, rates, NOW).unwrap();
        assert_eq!(read(&inner, &key), Some(cached));
    }

    #[test]
    fn rates_of_sums_belong_to_gpus_in_their_order_and_their_driver() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, newer] = [("0-1", "580.1"), ("0-2", "580.1"), ("0-2", "580.2")]
            .map(|(uuid, driver)| GpuKey::new(uuid, "A GPU", driver));
        let sums = AllReduceRates { gpus: 2, small_s: 1e-5, bytes_per_s: 1e11 };
        let key = AllReduceKey { gpus: vec![a.clone(), b.clone()] };
        write(folder.path(), &key, sums, NOW).unwrap();
        assert_eq!(read(folder.path(), &key), Some(Cached { figures: sums, measured: NOW.to_owned() }));
        for gpus in [vec![a.clone()], vec![a.clone(), newer], vec![b, a]] {
            assert_eq!(read(folder.path(), &AllReduceKey { gpus }), None);
        }
        // Impossible figures are rejected, whoever wrote them.
        write(folder.path(), &key, AllReduceRates { bytes_per_s: 0.0, ..sums }, NOW).unwrap();
        assert_eq!(read(folder.path(), &key), None);
    }
}
