//! The monitor of a build without the feature `cuda`: it never opens.

use super::{Driver, Gpu, GpuLink, GpuProcess, GpuSample};

#[derive(Debug)]
pub enum Monitor {}

impl Monitor {
    pub fn open() -> Result<Self, String> {
        Err("this program was built without its feature `cuda`".into())
    }

    pub fn driver(&self) -> Driver {
        match *self {}
    }

    pub fn gpus(&self) -> Vec<Gpu> {
        match *self {}
    }

    pub fn sample(&self, _uuid: &str) -> Option<GpuSample> {
        match *self {}
    }

    pub fn processes(&self, _uuid: &str) -> Vec<GpuProcess> {
        match *self {}
    }

    pub fn computing_beside(&self, _uuid: &str) -> Vec<GpuProcess> {
        match *self {}
    }

    pub fn links(&self) -> Vec<GpuLink> {
        match *self {}
    }
}
