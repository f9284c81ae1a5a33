//! A build without GPUs: nothing can be opened, so nothing can be asked.

use super::{Driver, Gpu, GpuLink, GpuSample};

/// See the other build's.
#[derive(Debug)]
pub enum Monitor {}

impl Monitor {
    /// Says why there is none.
    pub fn open() -> Result<Self, String> {
        Err("this program was built without its feature `cuda`".into())
    }

    /// See the other build's.
    pub fn driver(&self) -> Driver {
        match *self {}
    }

    /// See the other build's.
    pub fn gpus(&self) -> Vec<Gpu> {
        match *self {}
    }

    /// See the other build's.
    pub fn sample(&self, _uuid: &str) -> Option<GpuSample> {
        match *self {}
    }

    /// See the other build's.
    pub fn links(&self) -> Vec<GpuLink> {
        match *self {}
    }
}
