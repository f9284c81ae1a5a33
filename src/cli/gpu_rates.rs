//! Measured rates of GPUs on disk: one file per GPU and driver, and one for the sums over all GPUs of a machine.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::rate_cache::{self, Cached, VERSION};
use crate::{
    plan::{AllReduceRates, GpuRates},
    record::RecordError,
};

/// What a GPU's rates depend on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuKey {
    /// This program's.
    version: String,
    /// As CUDA tells it.
    uuid: String,
    model: String,
    /// The driver's version, as far as it is known.
    driver: String,
}

impl GpuKey {
    /// For a GPU by UUID, name and driver version.
    pub fn new(uuid: &str, model: &str, driver: &str) -> Self {
        let [uuid, model, driver] = [uuid, model, driver].map(str::to_owned);
        Self { version: VERSION.to_owned(), uuid, model, driver }
    }
}

/// What the rates of sums depend on: all GPUs, in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllReduceKey {
    gpus: Vec<GpuKey>,
}

impl AllReduceKey {
    /// For these GPUs together.
    pub fn new(gpus: Vec<GpuKey>) -> Self {
        Self { gpus }
    }
}

const GPU: &str = "gpu-rates";
const SUMS: &str = "gpu-sums";

/// What was measured of a GPU, if anything.
pub fn read(folder: &Path, key: &GpuKey) -> Option<Cached<GpuRates>> {
    rate_cache::read(folder, GPU, key).filter(|cached: &Cached<GpuRates>| cached.figures.is_sane())
}

/// What was measured of sums, if anything.
pub fn read_sums(folder: &Path, key: &AllReduceKey) -> Option<Cached<AllReduceRates>> {
    rate_cache::read(folder, SUMS, key).filter(|cached: &Cached<AllReduceRates>| cached.figures.is_sane())
}

/// Keeps rates; tells where.
///
/// # Errors
/// Where the folder cannot be written.
pub fn write(folder: &Path, key: &GpuKey, rates: GpuRates, now: String) -> Result<PathBuf, RecordError> {
    rate_cache::write(folder, GPU, key, rates, now)
}

/// Keeps rates of sums; tells where.
///
/// # Errors
/// Where the folder cannot be written.
pub fn write_sums(
    folder: &Path,
    key: &AllReduceKey,
    sums: AllReduceRates,
    now: String,
) -> Result<PathBuf, RecordError> {
    rate_cache::write(folder, SUMS, key, sums, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_belong_to_a_gpu_and_its_driver() {
        let folder = tempfile::tempdir().unwrap();
        let key = GpuKey::new("0-1", "A GPU", "580.1");
        let sums = AllReduceRates { gpus: 2, small_s: 1e-5, bytes_per_s: 1e11 };
        let of_two = AllReduceKey::new(vec![key.clone(), GpuKey::new("0-2", "A GPU", "580.1")]);
        assert_eq!(read_sums(folder.path(), &of_two), None);
        let now = "2027-01-15T08:00:00Z".to_owned();
        let path = write_sums(folder.path(), &of_two, sums, now.clone()).unwrap();
        assert_eq!(read_sums(folder.path(), &of_two), Some(Cached { figures: sums, measured: now.clone() }));
        for other in [
            AllReduceKey::new(vec![key.clone()]),
            AllReduceKey::new(vec![key.clone(), GpuKey::new("0-2", "A GPU", "580.2")]),
            AllReduceKey::new(vec![GpuKey::new("0-2", "A GPU", "580.1"), key]),
        ] {
            assert_eq!(read_sums(folder.path(), &other), None);
        }
        // What no machine has is not believed, whoever wrote it.
        write_sums(folder.path(), &of_two, AllReduceRates { bytes_per_s: 0.0, ..sums }, now).unwrap();
        assert_eq!(read_sums(folder.path(), &of_two), None);
        assert!(path.exists());
    }
}
